"""The image of the container against the driver it runs on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infer_doctor.catalog.cuda import TOOLKIT_DRIVER
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.gpu import GpuCapabilities, Gpus
from infer_doctor.facts.image import ImageRequirements, meets, without_exceptions
from infer_doctor.fixes.driver import update_for_image
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.versions import release

BRANDS = {r"\bGeForce\b": "geforce", r"\bTITAN\b": "titan"}
"""Of NVML's brands those that a name tells; the exceptions in images are for the others."""


def _first_with(driver: str) -> tuple[int, int] | None:
    """The CUDA that a driver speaks at least, by the toolkit that came with it."""
    fitting = (cuda for cuda, first in TOOLKIT_DRIVER.items() if release(first) <= release(driver))
    return max(fitting, default=None)


@check("container-requirement-unmet", severity="warning", category="driver_cuda", since="0.1")
def requirement_unmet(
    image: ImageRequirements,
    driver: Driver,
    gpus: Gpus | None,
    capabilities: GpuCapabilities | None,
) -> Iterator[Finding]:
    """The driver is not one that the container's image was built for.

    ## Why it matters
    The NVIDIA run-time refuses such an image: "requirement error: unsatisfied condition:
    cuda>=13.0". Where it runs all the same, nobody asked: by CDI, under Apptainer or with
    NVIDIA_DISABLE_REQUIRE. Programs for a newer CUDA major than the driver's then fail with "CUDA
    driver version is insufficient".

    ## How it decides
    NVIDIA_REQUIRE_CUDA and other NVIDIA_REQUIRE_* variables, read as nvidia-container-toolkit does
    (internal/requirements): alternatives of conditions on the CUDA that the driver speaks, its
    version, the compute capability and the brand of the GPU. NVML tells the first three (without it
    the driver's version tells its CUDA: catalog/cuda.py), the GPU's name whether its brand is GeForce
    or Titan; where it depends on another brand nothing is said.
    What the installed torch needs is judged by driver-too-old.

    ## Fix safety
    Manual: the driver belongs to the host.
    """
    known = {"driver": driver.version}
    cuda = driver.cuda or _first_with(driver.version)
    if cuda is not None:
        known["cuda"] = ".".join(map(str, cuda))
    newer = driver.cuda is None and cuda == max(TOOLKIT_DRIVER)
    if capabilities and (values := set(capabilities.capabilities.values())) and len(values) == 1:
        known["arch"] = ".".join(map(str, values.pop()))
    names = [gpu.name for gpu in gpus.gpus] if gpus else []
    for pattern, brand in BRANDS.items():
        if names and all(re.search(pattern, name, re.I) for name in names):
            known["brand"] = brand
    unknown = []
    for name, expression in image.expressions.items():
        answer = meets(expression, known)
        if answer is None or (newer and not answer):
            unknown.append(name)
        elif not answer:
            needs = without_exceptions(expression)
            speaks = f", which speaks CUDA {known['cuda']}" if "cuda" in known else ""
            yield Finding(
                about=name,
                message=f"the image requires {needs}; the driver is {driver.version}{speaks}",
                confidence="likely",
                evidence=(
                    Evidence(source="environment", excerpt=f"{name}={expression[:80]}"),
                    driver.evidence,
                ),
                fixes=(update_for_image(needs),),
            )
    if unknown:
        raise Unavailable(f"whether {unknown[0]} is met depends on what is not known of the GPU")
