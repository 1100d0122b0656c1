"""Options of vLLM that were renamed or taken out: what to write instead.

When each was there is in vllm_arguments.json; here stands only what no source says by itself. A
successor is given where it means the same; what merely sounds alike is a note. Read off the release
notes and the deprecation texts in engine/arg_utils.py of 0.6 to 0.33.
"""

from __future__ import annotations

from collections.abc import Mapping

VALUE = "{value}"

SUCCESSORS: Mapping[str, str] = {
    "--chat-template-text-format": "--chat-template-content-format {value}",
    "--disable-mm-preprocessor-cache": "--mm-processor-cache-gb 0",
    "--enable-multimodal-encoder-data-parallel": "--mm-encoder-tp-mode data",
    "--eplb-log-balancedness": "--eplb-config.log_balancedness true",
    "--eplb-step-interval": "--eplb-config.step_interval {value}",
    "--eplb-window-size": "--eplb-config.window_size {value}",
    "--guided-decoding-backend": "--structured-outputs-config.backend {value}",
    "--ngram-prompt-lookup-max": "--speculative-config.prompt_lookup_max {value}",
    "--ngram-prompt-lookup-min": "--speculative-config.prompt_lookup_min {value}",
    "--num-redundant-experts": "--eplb-config.num_redundant_experts {value}",
    "--num-speculative-tokens": "--speculative-config.num_speculative_tokens {value}",
    "--override-pooler-config": "--pooler-config {value}",
    "--speculative-draft-tensor-parallel-size": "--speculative-config."
    "draft_tensor_parallel_size {value}",
    "--speculative-max-model-len": "--speculative-config.max_model_len {value}",
    "--speculative-model": "--speculative-config.model {value}",
    "--speculative-model-quantization": "--speculative-config.quantization {value}",
    "--worker-use-ray": "--distributed-executor-backend ray",
}
"""Option -> what to write; it is used only where the version has that option."""

TASKS: Mapping[str, str] = {
    "auto": "--runner auto",
    "classify": "--runner pooling --convert classify",
    "draft": "--runner draft",
    "embed": "--runner pooling --convert embed",
    "embedding": "--runner pooling --convert embed",
    "generate": "--runner generate",
    "reward": "--runner pooling --convert reward",
    "score": "--runner pooling --convert classify",
    "transcription": "--runner generate",
}
"""--task VALUE (config/model.py of 0.11 to 0.12, "Passing ... as --task is deprecated")."""

NOTES: Mapping[str, str] = {
    "--calculate-kv-scales": "the scales now come from the checkpoint",
    "--device": "the device is found by itself",
    "--disable-async-output-proc": "the V1 engine has no such switch",
    "--disable-frontend-multiprocessing": "the engine always runs in a process of its own",
    "--disable-log-requests": "requests are not logged unless --enable-log-requests is given",
    "--enable-prompt-adapter": "prompt adapters were taken out with the V0 engine",
    "--enable-reasoning": "--reasoning-parser alone switches it on",
    "--engine-use-ray": "the engine no longer runs as an actor",
    "--guided-decoding-disable-additional-properties": "--structured-outputs-config has the key "
    "disable_additional_properties, beside backend guidance",
    "--guided-decoding-disable-any-whitespace": "--structured-outputs-config has the key "
    "disable_any_whitespace, beside backend xgrammar or guidance",
    "--lora-extra-vocab-size": "adapters can no longer add words",
    "--max-context-len-to-capture": "graphs no longer depend on the length of a sequence",
    "--max-seq-len-to-capture": "graphs no longer depend on the length of a sequence; "
    "--max-cudagraph-capture-size limits the batch size instead",
    "--multi-step-stream-outputs": "multi-step scheduling was taken out with the V0 engine",
    "--num-lookahead-slots": "speculative decoding sets it by itself",
    "--num-scheduler-steps": "multi-step scheduling was taken out with the V0 engine",
    "--preemption-mode": "the V1 engine always recomputes",
    "--rope-scaling": "the values now go into --hf-overrides",
    "--rope-theta": "the values now go into --hf-overrides",
    "--scheduler-delay-factor": "the V1 scheduler has no such delay",
    "--swap-space": "the V1 engine recomputes instead of swapping; --kv-offloading-size keeps KV "
    "blocks in host memory, which is something else",
    "--use-v2-block-manager": "it was the only one left",
}
"""Option -> why nothing replaces it, a clause."""

HAD_EFFECT: frozenset[str] = frozenset(
    {
        "--calculate-kv-scales",
        "--enable-prompt-adapter",
        "--guided-decoding-disable-additional-properties",
        "--guided-decoding-disable-any-whitespace",
        "--lora-extra-vocab-size",
        "--rope-scaling",
        "--rope-theta",
    }
)
"""Of those with a note: answers change when it is merely left out."""

DTYPES: Mapping[str, str] = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""What people write -> what vLLM calls it."""

FOREIGN: Mapping[str, tuple[str, str | None]] = {
    "--attention-reduce-in-fp32": ("SGLang", None),
    "--chunked-prefill-size": ("SGLang", "--max-num-batched-tokens"),
    "--context-length": ("SGLang", "--max-model-len"),
    "--cuda-graph-max-bs": ("SGLang", "--max-cudagraph-capture-size"),
    "--disable-cuda-graph": ("SGLang", "--enforce-eager"),
    "--disable-radix-cache": ("SGLang", "--no-enable-prefix-caching"),
    "--dp-size": ("SGLang", "--data-parallel-size"),
    "--enable-torch-compile": ("SGLang", None),
    "--max-running-requests": ("SGLang", "--max-num-seqs"),
    "--mem-fraction-static": ("SGLang", "--gpu-memory-utilization"),
    "--model-path": ("SGLang", None),
    "--tokenizer-path": ("SGLang", "--tokenizer"),
    "--tp-size": ("SGLang", "--tensor-parallel-size"),
    "--ep-size": ("SGLang", None),
    "--max-batch-prefill-tokens": ("text-generation-inference", "--max-num-batched-tokens"),
    "--max-batch-total-tokens": ("text-generation-inference", None),
    "--max-concurrent-requests": ("text-generation-inference", "--max-num-seqs"),
    "--max-input-length": ("text-generation-inference", "--max-model-len"),
    "--max-input-tokens": ("text-generation-inference", "--max-model-len"),
    "--max-total-tokens": ("text-generation-inference", "--max-model-len"),
    "--model-id": ("text-generation-inference", None),
    "--num-shard": ("text-generation-inference", "--tensor-parallel-size"),
    "--quantize": ("text-generation-inference", "--quantization"),
    "--sharded": ("text-generation-inference", None),
    "--ctx-size": ("llama.cpp", "--max-model-len"),
    "--flash-attn": ("llama.cpp", None),
    "--gpu-layers": ("llama.cpp", None),
    "--n-gpu-layers": ("llama.cpp", None),
    "-ngl": ("llama.cpp", None),
    "--n-predict": ("llama.cpp", None),
    "--parallel": ("llama.cpp", "--max-num-seqs"),
    "--tensor-split": ("llama.cpp", "--tensor-parallel-size"),
    "--max-batch-size": ("TensorRT-LLM", "--max-num-seqs"),
    "--max-num-tokens": ("TensorRT-LLM", "--max-num-batched-tokens"),
    "--max-seq-len": ("TensorRT-LLM", "--max-model-len"),
    "--kv-cache-free-gpu-memory-fraction": ("TensorRT-LLM", "--gpu-memory-utilization"),
    "--free-gpu-memory-fraction": ("TensorRT-LLM", "--gpu-memory-utilization"),
    "--extra-llm-api-options": ("TensorRT-LLM", "--config"),
    "--max-beam-width": ("TensorRT-LLM", None),
    "--omni": ("vLLM-Omni, a plugin whose version must fit", None),
    "--stage-configs-path": ("vLLM-Omni, a plugin whose version must fit", None),
}
"""Options of other engines -> (whose, vLLM's own name for it where there is one). Sources: SGLang
server_args.py, text-generation-inference launcher, llama.cpp server README, trtllm-serve; option
names as of 2026-11. The value is not taken over: the units may differ."""

REQUEST: frozenset[str] = frozenset(
    {
        "frequency_penalty",
        "max_tokens",
        "min_p",
        "min_tokens",
        "n",
        "presence_penalty",
        "repetition_penalty",
        "stop",
        "temperature",
        "top_k",
        "top_p",
    }
)
"""Settings of a request (SamplingParams), which are often given to the server."""
