"""Packages with kernels of their own that are compiled for one torch."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote

from infer_doctor.facts.environment import Distribution, Distributions
from infer_doctor.frozen import frozen
from infer_doctor.host import Host, Unavailable
from infer_doctor.registry import probe

EXTENSIONS = ("flash-attn", "flash-attn-3", "xformers", "causal-conv1d", "mamba-ssm")
"""vLLM and transformers import them where they find them."""

MARK = re.compile(
    r"cu(?P<cuda>\d\d)\d*torch(?P<torch>\d+\.\d+)(?:cxx11abi(?P<abi>true|false))?", re.I
)
"""flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-...whl: how the projects of Dao-AILab and
state-spaces name their wheels; pip keeps it in the version or, for an address, in direct_url.json."""

NONE = ("ENOENT", "ENOTDIR")


@frozen
class TorchExtension:
    """What one of them says it is compiled for; None where it says nothing."""

    name: str
    version: str
    cuda: str | None
    """The CUDA major."""
    torch: str | None
    """Major and minor of torch."""
    abi: bool | None
    """Whether for the new ABI of libstdc++."""
    pin: str | None
    """What its metadata want of torch, if one version alone."""
    source: str


@frozen
class TorchExtensions:
    """Those that are installed."""

    rows: tuple[TorchExtension, ...]
    gaps: tuple[str, ...] = ()


@probe
def torch_extensions(host: Host, distributions: Distributions) -> TorchExtensions:
    """Metadata, and the address that pip was given."""
    rows = []
    for name in EXTENSIONS:
        known = distributions.by_name.get(name)
        if known is not None:
            rows.append(extension(known, _address(host, known)))
    return TorchExtensions(rows=tuple(rows), gaps=distributions.gaps)


def _address(host: Host, row: Distribution) -> str:
    """The address of a wheel that was installed from one (PEP 610)."""
    try:
        found = json.loads(host.read(f"{row.metadata}/direct_url.json"))
    except Unavailable as error:
        if error.code in NONE:
            return ""
        raise
    except ValueError:
        return ""
    address = found.get("url") if isinstance(found, dict) else None
    return unquote(address) if isinstance(address, str) else ""


def extension(row: Distribution, address: str = "") -> TorchExtension:
    """Read the mark off the version or the address, and the pin off the requirements."""
    mark = MARK.search(row.version.partition("+")[2]) or MARK.search(address.rpartition("/")[2])
    lines = [line for line in row.requires if "extra" not in line]
    pin = next((line for line in lines if re.match(r"torch *\(?==[^,]*$", line)), None)
    return TorchExtension(
        name=row.name,
        version=row.version,
        cuda=mark["cuda"] if mark else None,
        torch=mark["torch"] if mark else None,
        abi=mark["abi"].lower() == "true" if mark and mark["abi"] else None,
        pin=pin,
        source=row.metadata,
    )
