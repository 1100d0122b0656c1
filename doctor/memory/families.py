"""Model families: how the config of each is read. An architecture not named here is unknown.

Sources: the model code of vLLM 0.26.0 and 0.32.0 (model_executor/models/) and of transformers 5.19.
The names are those of `architectures` in config.json, by which the engine chooses its class.
"""

from __future__ import annotations

from typing import Literal

from infer_doctor.frozen import frozen


@frozen
class Family:
    """What a family does not write into its config.

    `windows` tells which layers are sliding or chunked when the config has no `layer_types`:
    "all" (each has the window of the config), "even" (Gemma 2), "pattern" (all but each n-th;
    n is sliding_window_pattern), "none" (a window in the config is not used), "rope" (Llama 4:
    layers with rotary positions are chunked).
    """

    kind: Literal[
        "decoder", "mla", "qwen-next", "jamba", "nemotron-h", "mamba", "mamba2", "whisper"
    ] = "decoder"
    gated: bool = True
    biases: tuple[str, ...] = ()
    norms: int = 2
    query_norm: Literal["", "head", "full"] = ""
    tied: bool = False
    """The default of tie_word_embeddings where the config does not say it."""
    windows: Literal["all", "even", "pattern", "none", "rope"] = "all"
    pattern: int = 0
    positions: bool = False
    rope: bool = True
    defaults: tuple[tuple[str, int], ...] = ()
    """Fields that published configs leave out, as the config class of transformers fills them."""


LLAMA = Family()
QWEN2 = Family(biases=("qkv",), windows="none")
QWEN3 = Family(query_norm="head", windows="none")
QWEN_NEXT = Family(kind="qwen-next", query_norm="head")
GEMMA3 = Family(
    norms=4,
    query_norm="head",
    tied=True,
    windows="pattern",
    pattern=6,
    defaults=(
        ("vocab_size", 262208),
        ("num_attention_heads", 8),
        ("num_key_value_heads", 4),
        ("head_dim", 256),
        ("max_position_embeddings", 131072),
        ("sliding_window", 4096),
    ),
)
GPT = Family(
    gated=False,
    biases=("qkv", "o", "mlp", "norm"),
    tied=True,
    positions=True,
    rope=False,
)

FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": LLAMA,
    "MixtralForCausalLM": LLAMA,
    "Ministral3ForCausalLM": LLAMA,
    "InternLM2ForCausalLM": LLAMA,
    "InternLM3ForCausalLM": LLAMA,
    "BaichuanForCausalLM": LLAMA,
    "BaiChuanForCausalLM": LLAMA,
    "AquilaForCausalLM": LLAMA,
    "ExaoneForCausalLM": LLAMA,
    "GraniteForCausalLM": LLAMA,
    "GraniteMoeForCausalLM": LLAMA,
    "SmolLM3ForCausalLM": LLAMA,
    "CwmForCausalLM": LLAMA,
    "GraniteSWAForCausalLM": LLAMA,
    "GraniteMoeSWAForCausalLM": LLAMA,
    "GraniteMoeSharedForCausalLM": LLAMA,
    "ArceeForCausalLM": Family(gated=False),
    "ApertusForCausalLM": Family(gated=False, query_norm="head"),
    "Jais2ForCausalLM": Family(gated=False, biases=("qkv", "o", "mlp", "norm")),
    "MellumForCausalLM": Family(query_norm="head"),
    "Exaone4ForCausalLM": Family(query_norm="head"),
    "ExaoneMoeForCausalLM": Family(query_norm="head"),
    "HYV3ForCausalLM": Family(query_norm="head"),
    "SeedOssForCausalLM": Family(biases=("qkv",)),
    "MiniCPMForCausalLM": LLAMA,
    "Ernie4_5ForCausalLM": Family(tied=True),
    "Ernie4_5_MoeForCausalLM": LLAMA,
    "Phi3ForCausalLM": LLAMA,
    "PhiMoEForCausalLM": Family(biases=("qkv", "o", "norm", "head")),
    "Qwen2ForCausalLM": QWEN2,
    "Qwen2MoeForCausalLM": QWEN2,
    "Qwen3ForCausalLM": QWEN3,
    "Qwen3MoeForCausalLM": QWEN3,
    "Qwen3NextForCausalLM": QWEN_NEXT,
    "Qwen3_5ForCausalLM": QWEN_NEXT,
    "Qwen3_5MoeForCausalLM": QWEN_NEXT,
    "Qwen3_5ForConditionalGeneration": QWEN_NEXT,
    "Qwen3_5MoeForConditionalGeneration": QWEN_NEXT,
    "Qwen2VLForConditionalGeneration": QWEN2,
    "Qwen2_5_VLForConditionalGeneration": QWEN2,
    "Qwen3VLForConditionalGeneration": QWEN3,
    "Qwen3VLMoeForConditionalGeneration": QWEN3,
    "GemmaForCausalLM": Family(tied=True),
    "Gemma2ForCausalLM": Family(norms=4, tied=True, windows="even"),
    "Gemma3ForCausalLM": GEMMA3,
    "Gemma3ForConditionalGeneration": GEMMA3,
    "GlmForCausalLM": Family(biases=("qkv",)),
    "Glm4ForCausalLM": Family(biases=("qkv",), norms=4),
    "Glm4MoeForCausalLM": Family(biases=("qkv",), query_norm="head"),
    "CohereForCausalLM": Family(norms=1, tied=True),
    "Cohere2MoeForCausalLM": Family(norms=1, tied=True, windows="pattern", pattern=4),
    "Cohere2ForCausalLM": Family(norms=1, tied=True, windows="pattern", pattern=4),
    "OlmoForCausalLM": Family(norms=0),
    "Olmo2ForCausalLM": Family(query_norm="full"),
    "Olmo3ForCausalLM": Family(query_norm="full"),
    "OlmoeForCausalLM": Family(query_norm="full"),
    "FlexOlmoForCausalLM": Family(query_norm="full"),
    "StableLmForCausalLM": Family(biases=("norm",)),
    "StableLMEpochForCausalLM": Family(biases=("norm",)),
    "Starcoder2ForCausalLM": Family(
        gated=False, biases=("qkv", "o", "mlp", "norm"), tied=True, windows="all"
    ),
    "NemotronForCausalLM": Family(gated=False, biases=("norm",)),
    "PersimmonForCausalLM": Family(gated=False, biases=("qkv", "o", "mlp", "norm")),
    "PhiForCausalLM": Family(gated=False, biases=("qkv", "o", "mlp", "norm", "head"), norms=1),
    "GPTNeoXForCausalLM": Family(gated=False, biases=("qkv", "o", "mlp", "norm")),
    "FalconForCausalLM": Family(gated=False, biases=("norm",), norms=1, tied=True),
    "GPT2LMHeadModel": GPT,
    "GPTBigCodeForCausalLM": GPT,
    "OPTForCausalLM": GPT,
    "BloomForCausalLM": Family(
        gated=False, biases=("qkv", "o", "mlp", "norm"), tied=True, rope=False
    ),
    "GptOssForCausalLM": Family(biases=("qkv", "o"), windows="even"),
    "Llama4ForCausalLM": Family(windows="rope"),
    "Llama4ForConditionalGeneration": Family(windows="rope"),
    "DeepseekForCausalLM": LLAMA,
    "DeepseekV2ForCausalLM": Family(kind="mla"),
    "DeepseekV3ForCausalLM": Family(kind="mla"),
    "DeepseekV32ForCausalLM": Family(kind="mla"),
    "GlmMoeDsaForCausalLM": Family(kind="mla"),
    "Glm4MoeLiteForCausalLM": Family(kind="mla"),
    "MiniCPM3ForCausalLM": Family(kind="mla"),
    "MiniMaxM2ForCausalLM": Family(query_norm="full"),
    "NemotronHForCausalLM": Family(kind="nemotron-h", gated=False, norms=1, rope=False),
    "MPTForCausalLM": Family(gated=False, tied=True, rope=False),
    "JambaForCausalLM": Family(kind="jamba", rope=False),
    "MambaForCausalLM": Family(kind="mamba", tied=True, rope=False, norms=1),
    "Mamba2ForCausalLM": Family(kind="mamba2", tied=True, rope=False, norms=1),
    "LlavaForConditionalGeneration": LLAMA,
    "LlavaNextForConditionalGeneration": LLAMA,
    "LlavaOnevisionForConditionalGeneration": QWEN2,
    "PaliGemmaForConditionalGeneration": Family(tied=True),
    "Mistral3ForConditionalGeneration": LLAMA,
    "WhisperForConditionalGeneration": Family(
        kind="whisper",
        gated=False,
        biases=("qkv", "o", "mlp", "norm"),
        norms=3,
        tied=True,
        positions=True,
        rope=False,
    ),
}
