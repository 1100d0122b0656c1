"""The memory of GPUs that people serve on, as the driver and as CUDA report it.

`total` is what nvidia-smi prints, `usable` what CUDA can give ("total capacity" in PyTorch's
out-of-memory messages, "total_gpu_memory" in logs of vLLM): the driver keeps the difference. The
engine takes its share of `usable`.

Sources. "measured": nvidia-smi -q and NVML of that GPU (tests/captures: H200, RTX PRO 6000,
RTX 4090, A100 40 GB), or both figures in one public report. "reports": total of nvidia-smi and
capacity of PyTorch out of different public reports of 2023 to 2026 (issue trackers of vLLM, PyTorch
and llama.cpp). "derived": total of nvidia-smi, less the share that the nearest measured GPU of the
generation keeps. Driver versions differ by up to 0.25 GiB. Read 2026-11-30.
"""

from __future__ import annotations

import re

from infer_doctor.catalog.gpus import capability_of
from infer_doctor.frozen import frozen
from infer_doctor.units import GIB, MIB


@frozen
class GpuModel:
    """A GPU by the name that people write; `driver` is the name that the driver gives it."""

    name: str
    driver: str
    total: int
    usable: int
    source: str

    @property
    def capability(self) -> tuple[int, int] | None:
        return capability_of(self.driver)


def _gpu(name: str, driver: str, total: int, usable: float, source: str) -> GpuModel:
    """total in MiB, usable in GiB."""
    return GpuModel(
        name=name,
        driver=driver,
        total=total * MIB,
        usable=round(usable * GIB),
        source=source,
    )


GPUS: tuple[GpuModel, ...] = (
    _gpu("T4", "Tesla T4", 15360, 14.56, "reports"),
    _gpu("V100-16GB", "Tesla V100-SXM2-16GB", 16384, 15.77, "reports"),
    _gpu("V100-32GB", "Tesla V100-SXM2-32GB", 32768, 31.73, "reports"),
    _gpu("A2", "NVIDIA A2", 15356, 14.53, "derived"),
    _gpu("A10", "NVIDIA A10", 23028, 22.06, "reports"),
    _gpu("A10G", "NVIDIA A10G", 23028, 22.06, "reports"),
    _gpu("A16", "NVIDIA A16", 15356, 14.53, "derived"),
    _gpu("A30", "NVIDIA A30", 24576, 23.50, "reports"),
    _gpu("A40", "NVIDIA A40", 46068, 44.42, "reports"),
    _gpu("A100-40GB", "NVIDIA A100-SXM4-40GB", 40960, 39.49, "measured"),
    _gpu("A100-80GB", "NVIDIA A100-SXM4-80GB", 81920, 79.25, "reports"),
    _gpu("A800-80GB", "NVIDIA A800-SXM4-80GB", 81920, 79.25, "derived"),
    _gpu("L4", "NVIDIA L4", 23034, 22.03, "reports"),
    _gpu("L20", "NVIDIA L20", 46068, 44.52, "measured"),
    _gpu("L40", "NVIDIA L40", 46068, 44.39, "reports"),
    _gpu("L40S", "NVIDIA L40S", 46068, 44.39, "reports"),
    _gpu("H20", "NVIDIA H20", 97871, 95.00, "reports"),
    _gpu("H100-80GB", "NVIDIA H100 80GB HBM3", 81559, 79.18, "reports"),
    _gpu("H100-PCIe", "NVIDIA H100 PCIe", 81559, 79.18, "reports"),
    _gpu("H100-NVL", "NVIDIA H100 NVL", 95830, 93.10, "reports"),
    _gpu("H800", "NVIDIA H800", 81559, 79.18, "derived"),
    _gpu("H200", "NVIDIA H200", 143771, 150109880320 / GIB, "measured"),
    _gpu("H200-NVL", "NVIDIA H200 NVL", 143771, 139.80, "derived"),
    _gpu("GH200-96GB", "NVIDIA GH200 480GB", 97871, 95.00, "reports"),
    _gpu("GH200-144GB", "NVIDIA GH200 144G HBM3e", 147456, 143.2, "derived"),
    _gpu("B200", "NVIDIA B200", 183359, 178.35, "reports"),
    _gpu("GB200", "NVIDIA GB200", 189471, 184.30, "reports"),
    _gpu("B300", "NVIDIA B300 SXM6 AC", 275040, 267.7, "derived"),
    _gpu("GB300", "NVIDIA GB300", 284208, 276.6, "derived"),
    _gpu("RTX-PRO-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, 94.97, "reports"),
    _gpu("RTX-PRO-5000", "NVIDIA RTX PRO 5000 Blackwell", 48935, 47.3, "derived"),
    _gpu("RTX-6000-Ada", "NVIDIA RTX 6000 Ada Generation", 49140, 47.50, "reports"),
    _gpu("RTX-5000-Ada", "NVIDIA RTX 5000 Ada Generation", 32760, 31.60, "derived"),
    _gpu("RTX-4000-Ada", "NVIDIA RTX 4000 Ada Generation", 20475, 19.67, "reports"),
    _gpu("RTX-A6000", "NVIDIA RTX A6000", 49140, 47.53, "reports"),
    _gpu("RTX-A5000", "NVIDIA RTX A5000", 24564, 23.67, "reports"),
    _gpu("RTX-A4000", "NVIDIA RTX A4000", 16376, 15.73, "reports"),
    _gpu("RTX-2080-Ti", "NVIDIA GeForce RTX 2080 Ti", 11264, 10.75, "reports"),
    _gpu("RTX-3060", "NVIDIA GeForce RTX 3060", 12288, 11.76, "reports"),
    _gpu("RTX-3080-10GB", "NVIDIA GeForce RTX 3080", 10240, 9.76, "reports"),
    _gpu("RTX-3090", "NVIDIA GeForce RTX 3090", 24576, 23.58, "measured"),
    _gpu("RTX-3090-Ti", "NVIDIA GeForce RTX 3090 Ti", 24564, 23.58, "derived"),
    _gpu("RTX-4060-Ti-16GB", "NVIDIA GeForce RTX 4060 Ti", 16380, 15.59, "reports"),
    _gpu("RTX-4070-Ti-SUPER", "NVIDIA GeForce RTX 4070 Ti SUPER", 16376, 15.59, "reports"),
    _gpu("RTX-4080", "NVIDIA GeForce RTX 4080", 16376, 15.59, "reports"),
    _gpu("RTX-4090", "NVIDIA GeForce RTX 4090", 24564, 23.65, "measured"),
    _gpu("RTX-5060-Ti-16GB", "NVIDIA GeForce RTX 5060 Ti", 16311, 15.48, "reports"),
    _gpu("RTX-5070-Ti", "NVIDIA GeForce RTX 5070 Ti", 16303, 15.46, "reports"),
    _gpu("RTX-5080", "NVIDIA GeForce RTX 5080", 16303, 15.46, "reports"),
    _gpu("RTX-5090", "NVIDIA GeForce RTX 5090", 32607, 31.36, "reports"),
)

SERVING = (
    "T4",
    "L4",
    "RTX-4090",
    "RTX-5090",
    "L40S",
    "A100-40GB",
    "A100-80GB",
    "H100-80GB",
    "RTX-PRO-6000",
    "H200",
    "B200",
    "B300",
)
"""The kinds that the plan of a model alone counts through."""

COUNTS = (1, 2, 4, 8, 16)
"""Numbers of GPUs that one tries; more than 8 are several machines."""


class UnknownGpu(Exception):
    """No such GPU in the catalogue; the text names the near ones."""


def find(text: str) -> GpuModel:
    """The GPU of a name as people write it: h200, "RTX 4090", A100-80GB; raises UnknownGpu."""
    wanted = _plain(text)
    exact = [gpu for gpu in GPUS if wanted in (_plain(gpu.name), _plain(gpu.driver))]
    if exact:
        return exact[0]
    near = [gpu for gpu in GPUS if wanted and _plain(gpu.name).startswith(wanted)]
    if len(near) == 1:
        return near[0]
    if near:
        raise UnknownGpu(f"{text!r} is one of {', '.join(gpu.name for gpu in near)}: say which")
    from difflib import get_close_matches

    close = get_close_matches(wanted, [_plain(gpu.name) for gpu in GPUS], n=3, cutoff=0.6)
    names = [gpu.name for gpu in GPUS if _plain(gpu.name) in close]
    hint = f"; near: {', '.join(names)}" if names else ""
    raise UnknownGpu(
        f"there is no GPU {text!r} in the catalogue{hint}; give its memory with --gpu-memory"
    )


def _plain(text: str) -> str:
    """Without vendor words, blanks and signs, so that spellings meet."""
    words = re.sub(r"nvidia|geforce|tesla|quadro|generation", "", text.lower())
    return re.sub(r"[^a-z0-9]", "", words).removesuffix("gb")
