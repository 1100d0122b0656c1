"""TensorRT-LLM's LLM(...) as a program that comes up, answers once and says so.

Seen only with a stand-in module that has the signatures of TensorRT-LLM 0.14 to 1.3, never with a real
one. `trtllm-serve` needs no adapter: it is started as it is written.
"""

from __future__ import annotations

import json

from infer_doctor.launch.model import Launch, Unknown
from infer_doctor.runs.starting import READY_MARK
from infer_doctor.runs.words import NoRun

ORIGINS = ("tensorrt_llm.LLM", "tensorrt_llm._tensorrt_engine.LLM", "tensorrt_llm.hlapi.LLM")
"""Where the class lived: hlapi until 0.14, _tensorrt_engine from 1.0 to 1.2 for built engines."""

PROGRAM = """
import importlib, json, sys
def main():
    module, values = sys.argv[1], json.loads(sys.argv[2])
    package = importlib.import_module(module)
    sampling = importlib.import_module("tensorrt_llm").SamplingParams
    llm = package.LLM(**values)
    try:
        llm.generate(["Hello"], sampling(max_tokens=1))
        print(sys.argv[3], flush=True)
    finally:
        for name in ("shutdown", "_shutdown"):
            if hasattr(llm, name):
                getattr(llm, name)()
                break
if __name__ == "__main__":
    main()
"""
"""MPI's spawned ranks import the main module again: 0.16 and later need the guard at the end."""


def program(launch: Launch, python: str | None) -> tuple[str, ...]:
    """The command line; raises NoRun for what is known only in the user's code."""
    if python is None:
        raise NoRun(f"{launch.name} is Python code: --python names its interpreter")
    values = {}
    for keyword in launch.keywords:
        if isinstance(keyword.value, Unknown):
            raise NoRun(
                f"{keyword.name} in {launch.name} is {keyword.value.text}, which is known only there"
            )
        values[keyword.name] = keyword.value
    if "model" not in values:
        raise NoRun(f"{launch.name} names no model")
    origin = launch.origin if launch.origin in ORIGINS else ORIGINS[0]
    module = origin.rpartition(".")[0]
    try:
        text = json.dumps(values)
    except TypeError:
        raise NoRun(
            f"{launch.name} passes objects to LLM(): run its trtllm-serve instead"
        ) from None
    return (python, "-c", PROGRAM, module, text, READY_MARK)
