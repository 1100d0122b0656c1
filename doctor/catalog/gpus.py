"""The compute capability of a GPU by the name that the driver gives it.

Sources, read 2026-11-30:
- https://developer.nvidia.com/cuda-gpus and https://developer.nvidia.com/cuda-legacy-gpus
- for models that those pages leave out (A10G, A800, H20, H800, L20) the chip that pci.ids names
  (https://pci-ids.ucw.cz/v2.2/pci.ids): GA100 is 8.0, GA102 8.6, AD102 8.9, GH100 9.0

A name with a word that is not known here (vGPU profiles, cut names of nvidia-smi's table, laptop
parts of another generation) has no entry: unknown before a guess.
"""

from __future__ import annotations

import re

SOURCE = "developer.nvidia.com/cuda-gpus"

_VENDOR = r"(?:NVIDIA )?(?:Tesla )?"
_FORM = r"(?:[ -](?:SXM\d?|PCIE|PCIe|NVL\d*|FHHL|DGXS|AC|HBM\d[a-z]?|CEM|\d{1,3}GB?|MaxQ|Max-Q))*"
_GEFORCE = r"(?: Ti)?(?: SUPER)?(?: D)?(?: \d{1,2}GB)?(?: Laptop GPU| with Max-Q Design)?"

MODELS: tuple[tuple[str, tuple[int, int]], ...] = (
    (rf"{_VENDOR}(?:P40|P4){_FORM}", (6, 1)),
    (rf"{_VENDOR}P100{_FORM}", (6, 0)),
    (rf"{_VENDOR}(?:V100S?|TITAN V){_FORM}", (7, 0)),
    (rf"{_VENDOR}(?:T4|TITAN RTX){_FORM}", (7, 5)),
    (rf"{_VENDOR}(?:A100X?|A30|A800){_FORM}", (8, 0)),
    (rf"{_VENDOR}(?:A40|A10G?|A16|A2){_FORM}", (8, 6)),
    (rf"{_VENDOR}(?:L4|L20|L40S?){_FORM}", (8, 9)),
    (rf"{_VENDOR}(?:H100|H20|H200|H800|GH200){_FORM}", (9, 0)),
    (rf"{_VENDOR}(?:B200|GB200){_FORM}", (10, 0)),
    (rf"{_VENDOR}(?:B300|GB300){_FORM}", (10, 3)),
    (rf"{_VENDOR}GB10", (12, 1)),
    (r"(?:NVIDIA )?Quadro RTX [34568]000", (7, 5)),
    (r"(?:NVIDIA )?RTX A(?:2000|3000|4000|5000|6000)(?: 12GB)?", (8, 6)),
    (r"(?:NVIDIA )?RTX (?:2000|4000|4000 SFF|4500|5000|6000) Ada(?: Generation)?", (8, 9)),
    (
        r"(?:NVIDIA )?RTX PRO (?:2000|4000|4500|5000|6000) Blackwell"
        r"(?: SFF Edition| Server Edition| Workstation Edition| Max-Q Workstation Edition)?",
        (12, 0),
    ),
    (rf"(?:NVIDIA )?GeForce GTX 10(?:50|60|70|80){_GEFORCE}", (6, 1)),
    (rf"(?:NVIDIA )?GeForce GTX 16(?:50|60){_GEFORCE}", (7, 5)),
    (rf"(?:NVIDIA )?GeForce RTX 20(?:60|70|80){_GEFORCE}", (7, 5)),
    (rf"(?:NVIDIA )?GeForce RTX 30(?:50|60|70|80|90){_GEFORCE}", (8, 6)),
    (rf"(?:NVIDIA )?GeForce RTX 40(?:50|60|70|80|90){_GEFORCE}", (8, 9)),
    (rf"(?:NVIDIA )?GeForce RTX 50(?:50|60|70|80|90){_GEFORCE}", (12, 0)),
)
"""Pattern of the whole name -> compute capability."""


def capability_of(name: str) -> tuple[int, int] | None:
    """(9, 0) for "NVIDIA H200"; None when the name is not surely known."""
    return next((found for model, found in MODELS if re.fullmatch(model, name)), None)
