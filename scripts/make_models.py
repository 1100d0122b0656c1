"""Make doctor/catalog/models.json out of tests/cases/configs: what sizes published models have.

python scripts/make_models.py > doctor/catalog/models.json
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

LEFT_OUT = re.compile(
    r"dropout|token_id|_token$|_tokens?_index$|initializer|init_std|^_|_cache$|^id2label|^label2id|auto_map"
    r"|transformers|epsilon|_eps$|activation_function|^pad_|problem_type|architectures_"
    r"|pretraining|^rope_theta$|aux_loss|^output_|begin_suppress|suppress_tokens|torchscript|summary_"
    r"|^task_specific|^return_|^prefix$|^bad_words|diversity|_penalty$|^temperature$|^top_[kp]$"
    r"|^num_beams|^do_sample|^early_stopping|^length_penalty|^min_length$|^max_length$|^typical_p$"
    r"|median_|^apply_spec|mask_(?:time|feature)_"
)
"""Keys of which neither a size nor a limit follows. What the memory plan or a check may read stays:
tests/memory/test_published.py holds both against the whole file."""


def kept(config: dict[str, Any]) -> dict[str, Any]:
    """The keys that a check or the plan of a model that is only named may read."""
    return {
        key: kept(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if value is not None and not LEFT_OUT.search(key)
    }


QWEN25 = {
    "0.5B": (896, 14, 2, 24, 4864, 151936),
    "1.5B": (1536, 12, 2, 28, 8960, 151936),
    "3B": (2048, 16, 2, 36, 11008, 151936),
    "14B": (5120, 40, 8, 48, 13824, 152064),
    "32B": (5120, 40, 8, 64, 27648, 152064),
    "72B": (8192, 64, 8, 80, 29568, 152064),
}
QWEN3 = {
    "1.7B": (2048, 16, 8, 28, 6144, 151936),
    "4B": (2560, 32, 8, 36, 9728, 151936),
    "14B": (5120, 40, 8, 40, 17408, 151936),
    "32B": (5120, 64, 8, 64, 25600, 151936),
}
LONG_BASE = 131_072
"""max_position_embeddings of the base models of Qwen2.5 from 7B on; -Instruct has 32,768 ("The current
config.json is set for context length up to 32,768 tokens", their model cards)."""

TIED = ("0.5B", "1.5B", "1.7B", "3B", "4B")
"""The small models of both families have one matrix for the embedding and the head
(tie_word_embeddings of their config.json)."""

SIZES = ("hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers")
"""Sizes of models of one family, from their config.json: these, then intermediate_size, vocab_size."""

SAME = {
    "meta-llama/Meta-Llama-3.1-8B": (
        "meta-llama/Llama-3.1-8B",
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Meta-Llama-3.1-8B-Instruct",
        "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
    ),
    "meta-llama/Meta-Llama-3.1-70B": (
        "meta-llama/Llama-3.1-70B",
        "meta-llama/Llama-3.1-70B-Instruct",
        "meta-llama/Meta-Llama-3.1-70B-Instruct",
        "meta-llama/Llama-3.3-70B-Instruct",
        "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
    ),
    "meta-llama/Meta-Llama-3.1-405B": (
        "meta-llama/Llama-3.1-405B",
        "meta-llama/Llama-3.1-405B-Instruct",
    ),
    "meta-llama/Llama-2-7b-hf": ("meta-llama/Llama-2-7b-chat-hf",),
    "meta-llama/Llama-2-70b-hf": ("meta-llama/Llama-2-70b-chat-hf",),
    "meta-llama/Llama-3.2-1B": ("meta-llama/Llama-3.2-1B-Instruct",),
    "mistralai/Mixtral-8x7B-v0.1": ("mistralai/Mixtral-8x7B-Instruct-v0.1",),
    "mistralai/Mistral-7B-Instruct-v0.3": ("mistralai/Mistral-7B-v0.3",),
    "tiiuae/falcon-7b": ("tiiuae/falcon-7b-instruct",),
    "tiiuae/falcon-40b": ("tiiuae/falcon-40b-instruct",),
    "deepseek-ai/DeepSeek-R1": ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3-0324"),
}
"""Models with the sizes of another one."""


def main() -> None:
    cases = Path(__file__).parent.parent / "tests" / "cases" / "configs"
    models = {
        path.stem.replace("--", "/"): kept(json.loads(path.read_text()))
        for path in sorted(cases.glob("*.json"))
    }
    for family, base, rows in (
        ("Qwen/Qwen2.5-{}", "Qwen/Qwen2.5-7B-Instruct", QWEN25),
        ("Qwen/Qwen3-{}", "Qwen/Qwen3-8B", QWEN3),
    ):
        for size, numbers in rows.items():
            names = (*SIZES, "intermediate_size", "vocab_size")
            config = {**models[base], **dict(zip(names, numbers, strict=True))}
            config["tie_word_embeddings"] = size in TIED
            models[family.format(size)] = config
            if "2.5" in family:
                models[family.format(size) + "-Instruct"] = config
                longer = int(float(size[:-1])) >= 7
                length = LONG_BASE if longer else config["max_position_embeddings"]
                models[family.format(size)] = {**config, "max_position_embeddings": length}
    for name, others in SAME.items():
        for other in others:
            models[other] = models[name]
    json.dump(dict(sorted(models.items())), sys.stdout, separators=(",", ":"), sort_keys=True)
    sys.stdout.write("\n")


main()
