"""TensorRT-LLM: PyPI has only a stub of it."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine import EngineFact, EngineSearch
from infer_doctor.facts.engine_parts import EngineParts
from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.fixes.packages import fetch_trtllm
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check

NAME = "tensorrt-llm"


@check("engine-trtllm-stub", severity="error", category="trt_backend_load", since="0.1")
def trtllm_stub(
    search: EngineSearch,
    distributions: Distributions,
    interpreter: Interpreter,
    engine: EngineFact | None,
    parts: EngineParts | None,
) -> Iterator[Finding]:
    """TensorRT-LLM is there by name only: its compiled modules were never installed.

    ## Why it matters
    `import tensorrt_llm` ends with "No module named 'tensorrt_llm'" or "No module named
    'tensorrt_llm.bindings'", while `pip list` shows the version.

    ## How it decides
    PyPI has no wheel of it: its source archives (wheel_stub, nvidia_stub) fetch the wheel from
    NVIDIA's own index while pip builds them. Told when the distribution tensorrt-llm has metadata
    and no folder of the path has the package, or when the package has no bindings.*.so beside its
    Python files, as a source tree (setup.py packs it there since 0.12 at the latest).

    ## Fix safety
    Unsafe: pip changes the environment; 1 to 2 GB come from NVIDIA's index.
    """
    own = distributions.by_name.get(NAME)
    found = next((row for row in search.engines if row.name == NAME), None)
    if found is None:
        if own is None:
            raise NotApplicable(f"no tensorrt-llm in {interpreter.prefix}")
        if search.gaps:
            return  # the engine turns this into "blocked"
        yield Finding(
            about=NAME,
            message=f"the distribution {own.written_name} {own.version} is installed, but no package "
            "tensorrt_llm",
            evidence=(
                Evidence(source=own.metadata, excerpt=f"Version: {own.version}"),
                *(
                    Evidence(source=place, excerpt="no tensorrt_llm")
                    for place in interpreter.folders
                ),
            ),
            fixes=(fetch_trtllm(own.version, interpreter, distributions),),
        )
        return
    if engine != found:
        raise NotApplicable("the engine that is examined is another")
    if parts is None:
        raise Unavailable(f"{found.package} could not be listed")
    if not parts.libraries:
        yield Finding(
            about=NAME,
            message=f"{found.package} has no compiled module (bindings.*.so)",
            confidence="likely",
            evidence=(Evidence(source=found.package, excerpt="no bindings.*.so"),),
            fixes=(fetch_trtllm(found.version, interpreter, distributions),),
        )
