"""Names that the engines' packages give to `from PACKAGE import NAME`.

Read from vllm/__init__.py and the folder vllm/ of all 68 releases from 0.6.0 to 0.33.0 (2026-12): the
union, so that what is not in it exists in none of them.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


EXPORTS: dict[str, frozenset[str]] = {
    "vllm": _names(
        "AsyncEngineArgs AsyncLLMEngine ClassificationOutput ClassificationRequestOutput "
        "CompletionOutput EmbeddingOutput EmbeddingRequestOutput EngineArgs LLM LLMEngine "
        "ModelRegistry PoolingOutput PoolingParams PoolingRequestOutput PromptInputs PromptType "
        "RequestOutput SamplingParams ScoringOutput ScoringRequestOutput TextPrompt TokensPrompt "
        "__commit__ __version__ __version_tuple__ bc_linter_include bc_linter_skip "
        "initialize_ray_cluster"
    )
}
"""PromptInputs went with 0.6.4; the outputs of pooling came with 0.6.5."""

MODULES: dict[str, frozenset[str]] = {
    "vllm": _names(
        "_C _aiter_ops _bc_linter _core_ext _custom_ops _ipex_ops _oink_ops _tilelang_ops _version "
        "_xpu_ops adapter_commons assets attention beam_search benchmarks block collect_env "
        "commit_id compilation config connections core cumem_allocator cute_utils "
        "device_allocator distributed engine entrypoints env_override envs exceptions executor "
        "forward_context grpc inputs ir jsontree kernels logger logging logging_utils "
        "logits_process logprobs lora mocks model_executor model_inspection models multimodal "
        "outputs parser platforms plugins pooling_params profiler prompt_adapter ray reasoning "
        "renderers sampling_params scalar_type scripts sequence snapshot spec_decode tasks "
        "test_utils third_party tilelang_utils tokenizers tool_parsers tracing "
        "transformers_utils triton_utils usage utils v1 version vllm_flash_attn worker"
    )
}
"""Modules and packages inside the package: they can be imported too."""

USUAL: dict[str, frozenset[str]] = {
    "vllm": _names(
        "LLM LLMEngine AsyncLLMEngine EngineArgs AsyncEngineArgs SamplingParams PoolingParams "
        "TokensPrompt TextPrompt"
    ),
    "tensorrt_llm": _names("LLM SamplingParams KvCacheConfig BuildConfig"),
}
"""Names that only come from these packages: used without being bound, they were forgotten."""
