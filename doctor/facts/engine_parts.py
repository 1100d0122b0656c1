"""What lies in the engine's package folder, read off the names of its files."""

from __future__ import annotations

import posixpath
import re

from infer_doctor.facts.engine import EngineFact
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host
from infer_doctor.registry import probe

OWN_LIBRARY = {"vllm": r".*\.so", "tensorrt-llm": r"bindings\..*\.so"}
"""Engine -> the compiled modules beside its Python files. TensorRT-LLM: setup.py packs bindings.*.so
into tensorrt_llm/ (0.14 to 1.x); vLLM: setup.py and the wheels of 0.26 and 0.32."""

MADE_FOR = re.compile(r".*\.cpython-3(\d+)t?-.*\.so")
"""The tag that ties a module to one minor version (PEP 3149); .abi3.so is for every Python."""


@frozen
class EngineParts:
    """The compiled modules of an engine, and what it brings itself."""

    libraries: tuple[str, ...]
    """File names of the modules without which it does not start."""
    pythons: tuple[str, ...]
    """Minor versions of Python that those are made for, such as "3.12"; empty: for every one."""
    own_nvml: bool
    """Whether it has a copy of pynvml of its own (vLLM since 0.7.3, third_party/pynvml.py)."""


@probe
def engine_parts(host: Host, engine: EngineFact) -> EngineParts:
    """List the package folder."""
    if not engine.package:
        raise Absent("only a report speaks of this engine")
    pattern = re.compile(OWN_LIBRARY[engine.name])
    libraries = tuple(name for name in host.list(engine.package) if pattern.fullmatch(name))
    found = (MADE_FOR.fullmatch(name) for name in libraries)
    return EngineParts(
        libraries=libraries,
        pythons=tuple(sorted({f"3.{match[1]}" for match in found if match})),
        own_nvml=host.exists(posixpath.join(engine.package, "third_party/pynvml.py")),
    )
