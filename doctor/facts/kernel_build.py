"""What compiles CUDA kernels with nvcc at run time: FlashInfer, and where it looks for its tools.

Read in flashinfer-python 0.6.14: jit/cpp_ext.py (get_cuda_path, run_ninja), jit/env.py (folders),
jit/core.py (JitSpec.build_and_load: what flashinfer-jit-cache holds is not compiled).
"""

from __future__ import annotations

import re

from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Distributions, Interpreter, package_folder
from infer_doctor.facts.machine import Environ
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.registry import probe

DEFAULT_CUDA = "/usr/local/cuda"

SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"

SAMPLER_FILE = "v1/sample/ops/topk_topp_sampler.py"

NONE = ("ENOENT", "ENOTDIR")


@frozen
class CudaCompiler:
    """nvcc and ninja where FlashInfer takes them. None: not there."""

    nvcc: str | None
    wanted: str
    """Where nvcc was looked for: "CUDA_HOME=/opt/cuda" or "PATH and /usr/local/cuda"."""
    ninja: str | None
    ninja_beside: str | None
    """A ninja beside the engine's interpreter, which is found only with that folder on PATH."""


@frozen
class FlashInfer:
    """The installed FlashInfer and what vLLM does with it at the start."""

    version: str
    prebuilt: bool
    """Whether flashinfer_jit_cache is there, or the kernels in the package itself (older wheels)."""
    compiled: str | None
    """The library of the sampler that an earlier start compiled and left in the cache."""
    sampler: bool
    """Whether vLLM samples with it unless told otherwise."""


@probe
def cuda_compiler(host: Host, environ: Environ, interpreter: Interpreter) -> CudaCompiler:
    """CUDA_HOME or CUDA_PATH, else the nvcc on PATH, else /usr/local/cuda."""
    variables = environ.variables
    path = variables.get("PATH", "")
    name = next((name for name in ("CUDA_HOME", "CUDA_PATH") if variables.get(name)), None)
    if name is not None:
        nvcc: str | None = f"{variables[name]}/bin/nvcc"
        wanted = f"{name}={variables[name]}"
    else:
        nvcc = host.which("nvcc", path) or f"{DEFAULT_CUDA}/bin/nvcc"
        wanted = f"PATH and {DEFAULT_CUDA}"
    beside = f"{interpreter.executable.rpartition('/')[0]}/ninja"
    return CudaCompiler(
        nvcc=nvcc if nvcc and host.exists(nvcc) else None,
        wanted=wanted,
        ninja=host.which("ninja", path),
        ninja_beside=beside if host.exists(beside) else None,
    )


@probe
def flash_infer(
    host: Host,
    environ: Environ,
    interpreter: Interpreter,
    distributions: Distributions,
    engine: EngineFact,
) -> FlashInfer:
    """Absent without the package, or when the engine is not built for CUDA."""
    if engine.build not in ("cuda", None):
        raise Absent(f"the installed {engine.name} is a {engine.build} build")
    folder = package_folder(host, interpreter, distributions, "flashinfer")
    if folder is None:
        raise Absent("FlashInfer is not installed")
    known = distributions.by_name.get("flashinfer-python")
    if known is None:
        raise Unavailable(f"the version of {folder} cannot be told")
    prebuilt = package_folder(
        host, interpreter, distributions, "flashinfer_jit_cache"
    ) is not None or host.exists(f"{folder}/data/aot/sampling/sampling.so")
    return FlashInfer(
        version=known.version,
        prebuilt=prebuilt,
        compiled=None if prebuilt else _compiled(host, environ, known.version),
        sampler=_samples(host, engine),
    )


def _compiled(host: Host, environ: Environ, version: str) -> str | None:
    """What an earlier start left in BASE/.cache/flashinfer/VERSION/ARCHITECTURES/cached_ops."""
    variables = environ.variables
    base = variables.get("FLASHINFER_WORKSPACE_BASE") or variables.get("HOME")
    if not base:
        return None
    folder = f"{base}/.cache/flashinfer/{version}"
    try:
        names = host.list(folder)
    except Unavailable as error:
        if error.code in NONE:
            return None
        raise
    paths = (f"{folder}/{name}/cached_ops/sampling/sampling.so" for name in names)
    return next((path for path in paths if host.exists(path)), None)


def _samples(host: Host, engine: EngineFact) -> bool:
    """Whether the installed vLLM has the sampler on by default, by its own envs.py."""
    if engine.name != "vllm":
        return False
    try:
        text = host.read(f"{engine.package}/envs.py")
        sampler = host.read(f"{engine.package}/{SAMPLER_FILE}")
    except Unavailable as error:
        if error.code in NONE:
            return False
        raise
    return samples_by_default(text, sampler)


def samples_by_default(envs: str, sampler: str) -> bool:
    """On by default, and used without asking has_flashinfer(), which would look for nvcc first."""
    default = re.search(rf"^\s+{SAMPLER}: bool = (\w+)", envs, re.M)
    return bool(default and default[1] == "True" and "has_flashinfer()" not in sampler)
