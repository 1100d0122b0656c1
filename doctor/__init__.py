"""infer-doctor: the doctor for LLM inference stacks (vLLM and TensorRT-LLM on NVIDIA GPUs)."""

if __name__ != "infer_doctor":
    raise ImportError(
        "this folder is installed as `infer_doctor`: run `pip install -e .` and import that name"
    )

from infer_doctor._version import VERSION as __version__

__all__ = ["__version__"]
