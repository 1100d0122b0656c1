"""The torch of the examined environment and what is built beside it, read from their own files."""

from __future__ import annotations

import re

from infer_doctor.facts.environment import (
    Distribution,
    Distributions,
    Interpreter,
    package_folder,
)
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.registry import probe

COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
"""Packages with libraries that are linked against one torch."""

ARCH_LIBRARY = "lib/libtorch_python.so"
"""torch.cuda.get_arch_list() splits what torch._C._cuda_getArchFlags() returns: the macro
CUDA_ARCH_FLAGS, compiled into torch/csrc/cuda/Module.cpp, which is part of this library (read there
in torch 2.11.0+cu130, and compared with the function's own answer)."""

ARCH_PATTERN = r"sm_\d+[af]?(?: (?:sm|compute)_\d+[af]?)*(?=\0)"
"""The literal beginning keeps the search at 35 ms for 32 MB."""

ARCH_MATCHES = 20


@frozen
class TorchBuild:
    """An installed torch."""

    version: str
    cuda: str | None
    """The CUDA it was built for ("13.0"); None for a build without CUDA."""
    source: str
    """The file that says so."""
    folder: str = ""
    """Its package folder."""
    hip: str | None = None
    xpu: str | None = None

    @property
    def kind(self) -> str:
        """ "cuda", "rocm", "xpu" or "cpu"."""
        if self.cuda:
            return "cuda"
        return "rocm" if self.hip else "xpu" if self.xpu else "cpu"


@frozen
class TorchArchs:
    """What this torch has machine code (sm_90) or PTX (compute_90) for."""

    archs: tuple[str, ...]
    source: str


@frozen
class Companion:
    """A package with libraries for one torch. `kind` is None when its version does not say it."""

    name: str
    version: str
    kind: str | None
    cuda: tuple[int, int] | None
    requires: str | None
    """What its metadata wants of torch, such as "torch==2.13.0"."""
    source: str


@frozen
class TorchCompanions:
    """The companions that are installed."""

    rows: tuple[Companion, ...]
    gaps: tuple[str, ...] = ()


@probe
def torch_build(
    host: Host, interpreter: Interpreter, distributions: Distributions | None
) -> TorchBuild:
    """Parse torch/version.py; Absent when no folder of the interpreter has a torch."""
    folder = package_folder(host, interpreter, distributions, "torch")
    if folder is None:
        if interpreter.gaps:
            raise Unavailable(interpreter.gaps[0])
        raise Absent(f"no torch in {interpreter.prefix}")
    source = f"{folder}/version.py"
    return parse_version(host.read(source), source)


def parse_version(text: str, source: str) -> TorchBuild:
    """Raises Unavailable when the text names no version (torch's setup.py writes it)."""
    version = _value(text, "__version__")
    if version is None:
        raise Unavailable(f"{source} names no version")
    return TorchBuild(
        version=version,
        cuda=_value(text, "cuda"),
        source=source,
        folder=source.removesuffix("/version.py"),
        hip=_value(text, "hip"),
        xpu=_value(text, "xpu"),
    )


def _value(text: str, name: str) -> str | None:
    """The string that a line `name = '...'` or `name: type = '...'` assigns, not computed ones."""
    found = re.search(rf"^{name}(?::[^=\n]*)? *= *['\"]([^'\"\n]+)['\"]", text, re.M)
    return found[1] if found else None


@probe
def torch_archs(host: Host, torch: TorchBuild) -> TorchArchs:
    """Search the library for the list that torch.cuda.get_arch_list() returns."""
    if torch.cuda is None:
        raise Absent(f"torch {torch.version} is not built for CUDA")
    path = f"{torch.folder}/{ARCH_LIBRARY}"
    try:
        answer = host.ask("find", path=path, pattern=ARCH_PATTERN, limit=ARCH_MATCHES)
    except Unavailable as error:
        raise Unavailable(f"{path}: {error.reason}", error.code) from None
    if not answer["matches"]:
        raise Unavailable(f"{path} holds no list of architectures")
    longest = max(answer["matches"], key=len)
    return TorchArchs(archs=tuple(longest.split()), source=path)


@probe
def torch_companions(
    host: Host, interpreter: Interpreter, distributions: Distributions
) -> TorchCompanions:
    """Each one's version.py, which has the build's mark that the metadata often lacks."""
    rows = []
    gaps = list(distributions.gaps)
    for name in COMPANIONS:
        folder = package_folder(host, interpreter, distributions, name)
        if folder is None:
            continue
        metadata = distributions.by_name.get(name)
        source = f"{folder}/version.py"
        try:
            version = _value(host.read(source), "__version__")
        except Unavailable as error:
            version = None
            if error.code != "ENOENT":
                gaps.append(error.reason)
        if version is None and metadata is not None:
            version, source = metadata.version, metadata.metadata
        if version is None:
            gaps.append(f"{folder}: its version cannot be told")
        else:
            rows.append(companion(name, version, source, metadata))
    return TorchCompanions(rows=tuple(rows), gaps=tuple(gaps))


def companion(
    name: str, version: str, source: str, metadata: Distribution | None = None
) -> Companion:
    """Read the build off the local part of a version: +cpu, +cu130, +rocm6.4, +xpu."""
    local = version.partition("+")[2]
    cuda = re.match(r"cu(\d{2})(\d)\b", local)
    known = re.match(r"cpu\b|rocm|xpu", local)
    wanted = [row for row in (metadata.requires if metadata else ()) if re.match(r"torch\b", row)]
    return Companion(
        name=name,
        version=version,
        kind="cuda" if cuda else known[0] if known else None,
        cuda=(int(cuda[1]), int(cuda[2])) if cuda else None,
        requires=next((row for row in wanted if "extra" not in row), None),
        source=source,
    )
