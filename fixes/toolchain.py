"""Fixes of what compiles kernels at run time."""

from __future__ import annotations

from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.machine import Environ, OperatingSystem
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.fixes.environment import install_packages, managed
from infer_doctor.fixes.variables import set_variable
from infer_doctor.model import Action, Fix

FLASHINFER_INDEX = "https://flashinfer.ai/whl"
"""Wheels of flashinfer-jit-cache by CUDA: https://docs.flashinfer.ai/installation.html"""

MANAGERS = (
    (("debian", "ubuntu"), "apt-get install -y", {"c": "gcc", "c++": "g++"}, "python{}-dev"),
    (
        ("rhel", "fedora", "centos", "rocky", "almalinux", "amzn"),
        "dnf install -y",
        {"c": "gcc", "c++": "gcc-c++"},
        "python{}-devel",
    ),
    (("sles", "suse", "opensuse"), "zypper install -y", {"c": "gcc", "c++": "gcc-c++"}, None),
    (("alpine",), "apk add", {"c": "gcc musl-dev", "c++": "g++"}, None),
    (("arch",), "pacman -S", {"c": "gcc", "c++": "gcc"}, None),
)
"""ID or ID_LIKE of os-release -> command, packages of compilers, package of Python's headers
(https://packages.debian.org, https://packages.fedoraproject.org)."""


def _manager(
    system: OperatingSystem | None,
) -> tuple[str, dict[str, str], str | None] | None:
    names = {system.id, *system.like} if system else set()
    for ids, command, compilers, headers in MANAGERS:
        if names & set(ids):
            return command, compilers, headers
    return None


def install_compiler(language: str, system: OperatingSystem | None) -> Fix:
    """The distribution's own compiler; `language` is "c" or "c++"."""
    spoken = "C++" if language == "c++" else "C"
    manager = _manager(system)
    command = f"{manager[0]} {manager[1][language]}" if manager else None
    return Fix(
        id=f"install-{'cxx' if language == 'c++' else 'c'}-compiler",
        title=f"Install a {spoken} compiler where the engine runs",
        safety="manual",
        restarts=True,
        why="it needs root; in a container it belongs into the image",
        actions=(Action(kind="command", text=command),) if command else (),
    )


def correct_variable(wanted: str) -> Fix:
    """CC or CXX names a program that is not there."""
    name = wanted.partition("=")[0]
    return Fix(
        id=f"correct-{name.lower()}",
        title=f"Unset {name}, or set it to a compiler that exists",
        safety="safe",
        restarts=True,
        actions=(set_variable(name, None),),
    )


def run_eager() -> Fix:
    """Compile nothing."""
    return Fix(
        id="enforce-eager",
        title="Or start with --enforce-eager, which compiles nothing",
        safety="manual",
        restarts=True,
        why="decoding is slower",
    )


def install_headers(interpreter: Interpreter, system: OperatingSystem | None) -> Fix:
    """The headers of the very interpreter that runs the engine."""
    manager = _manager(system)
    package = manager[2].format(interpreter.version) if manager and manager[2] else None
    if interpreter.base_prefix == "/usr" and manager and package:
        return Fix(
            id="install-python-headers",
            title=f"Install {package}, the headers of Python {interpreter.version}",
            safety="manual",
            restarts=True,
            why="it needs root; in a container it belongs into the image",
            actions=(Action(kind="command", text=f"{manager[0]} {package}"),),
        )
    return Fix(
        id="install-python-headers",
        title=f"Give Python {interpreter.version} in {interpreter.base_prefix} its headers",
        safety="manual",
        restarts=True,
        why="this Python is not the system's: install it again with its include folder",
    )


def native_sampler() -> Fix:
    """vLLM's own sampler needs no compiler."""
    return Fix(
        id="native-sampler",
        title="Start with VLLM_USE_FLASHINFER_SAMPLER=0: vLLM then samples with torch and Triton",
        safety="safe",
        restarts=True,
        actions=(set_variable("VLLM_USE_FLASHINFER_SAMPLER", "0"),),
    )


def precompiled_kernels(
    version: str,
    torch: TorchBuild | None,
    interpreter: Interpreter | None,
    distributions: Distributions | None,
) -> Fix:
    """FlashInfer's kernels as a wheel, for the CUDA of this torch."""
    public = version.partition("+")[0]
    cuda = (torch.cuda or "").replace(".", "") if torch else ""
    index = f"{FLASHINFER_INDEX}/cu{cuda or 'XYZ'}"
    wanted = f"flashinfer-jit-cache=={public}"
    return Fix(
        id="install-flashinfer-jit-cache",
        title=f"Or install {wanted}, FlashInfer's compiled kernels, or a CUDA toolkit with nvcc",
        safety="unsafe",
        restarts=True,
        why=managed(interpreter) or f"only if {index} has it for this CUDA",
        actions=(
            install_packages(
                interpreter, distributions, wanted, options=("--extra-index-url", index)
            ),
        ),
    )


def add_to_path(folder: str, environ: Environ) -> Fix:
    """What activating the environment does."""
    before = environ.variables.get("PATH")
    return Fix(
        id="environment-on-path",
        title=f"Start with {folder} on PATH, as the environment's activate does",
        safety="safe",
        restarts=True,
        actions=(set_variable("PATH", f"{folder}:{before}" if before else folder),),
    )


def install_ninja(interpreter: Interpreter | None, distributions: Distributions | None) -> Fix:
    """The distribution ninja brings the program."""
    return Fix(
        id="install-ninja",
        title="Install ninja into the engine's environment and start with its folder on PATH",
        safety="unsafe",
        restarts=True,
        why=managed(interpreter),
        actions=(install_packages(interpreter, distributions, "ninja"),),
    )
