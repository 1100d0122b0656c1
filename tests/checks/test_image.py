"""The check of what an image requires of the driver, and its grammar."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from environment_facts import environ

from infer_doctor.checks.image import requirement_unmet
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.gpu import Gpu, GpuCapabilities, Gpus
from infer_doctor.facts.image import ImageRequirements, image_requirements, meets
from infer_doctor.host import Absent
from infer_doctor.model import Evidence
from infer_doctor.testing import contract, examine

REAL = (
    "cuda>=13.0 brand=unknown,driver>=535,driver<536 brand=tesla,driver>=535,driver<536 "
    "brand=nvidia,driver>=570,driver<571"
)
"""The beginning of what an image of CUDA 13.0.2 has; all its exceptions are of this form."""


def driver(version: str, cuda: tuple[int, int] | None) -> Driver:
    return Driver(version=version, cuda=cuda, evidence=Evidence(source="NVML", excerpt=version))


def image(expression: str = REAL) -> ImageRequirements:
    return ImageRequirements(expressions={"NVIDIA_REQUIRE_CUDA": expression})


def gpus(name: str) -> Gpus:
    gpu = Gpu(index=0, name=name, uuid="GPU-0", bus_id="0000:00:06.0")
    return Gpus(gpus=(gpu,), source="NVML")


NEW, OLD = driver("580.159.04", (13, 0)), driver("550.54.15", (12, 4))


def test_requirement_unmet() -> None:
    contract(requirement_unmet, fires=[image(), OLD], passes=[image(), NEW])


def test_message() -> None:
    (finding,) = examine(requirement_unmet, image(), OLD).findings
    assert finding.message == (
        "the image requires cuda>=13.0; the driver is 550.54.15, which speaks CUDA 12.4"
    )


def test_exceptions_by_brand() -> None:
    """Forward compatibility: the image names the branches on which GPUs of data centres may run it."""
    forward = driver("535.183.06", (12, 2))
    assert examine(requirement_unmet, image(), forward).outcome == "blocked"
    h200, rtx = gpus("NVIDIA H200"), gpus("NVIDIA GeForce RTX 4090")
    assert examine(requirement_unmet, image(), forward, h200).outcome == "blocked"
    assert examine(requirement_unmet, image(), forward, rtx).outcome == "failed"


def test_what_is_not_known() -> None:
    newest = driver("700.10", None)
    assert examine(requirement_unmet, image("cuda>=14.0"), newest).outcome == "blocked"
    by_arch = image("arch>=9.0")
    hopper = GpuCapabilities(capabilities={0: (9, 0)}, source="NVML")
    turing = GpuCapabilities(capabilities={0: (7, 5)}, source="NVML")
    assert examine(requirement_unmet, by_arch, NEW).outcome == "blocked"
    assert examine(requirement_unmet, by_arch, NEW, hopper).outcome == "passed"
    assert examine(requirement_unmet, by_arch, NEW, turing).outcome == "failed"


@pytest.mark.parametrize(
    ("version", "outcome"),
    [
        ("580.159.04", "passed"),
        ("580.65.06", "passed"),
        ("575.51.03", "failed"),
        ("700.1", "passed"),
    ],
)
def test_the_driver_alone_tells_its_cuda(version: str, outcome: str) -> None:
    plain = image("cuda>=13.0")
    assert examine(requirement_unmet, plain, driver(version, None)).outcome == outcome


KNOWN = {"cuda": "12.4", "driver": "550.54.15"}


@pytest.mark.parametrize(
    ("expression", "known", "expected"),
    [
        ("cuda>=12.4", KNOWN, True),
        ("cuda>12.4", KNOWN, False),
        ("cuda>=12.10", KNOWN, False),
        ("cuda>=9.0", KNOWN, True),
        ("cuda=12.4", KNOWN, True),
        ("cuda!=12.4", KNOWN, False),
        ("driver>=550,driver<551", KNOWN, True),
        ("driver>=551", KNOWN, False),
        ("driver<=550.54.15", KNOWN, True),
        ("cuda>=13.0 driver>=550", KNOWN, True),
        ("cuda>=13.0 brand=tesla,driver<550", KNOWN, False),
        ("cuda>=13.0 brand=tesla,driver>=550", KNOWN, None),
        ("brand=tesla", {"brand": "geforce"}, False),
        ("brand!=tesla", {"brand": "geforce"}, True),
        ("mig=1,cuda>=12.0", KNOWN, True),
        ("nonsense", KNOWN, None),
        ("cuda", KNOWN, None),
        ("", KNOWN, None),
    ],
)
def test_grammar(expression: str, known: Mapping[str, str], expected: bool | None) -> None:
    assert meets(expression, known) is expected


def test_variables() -> None:
    found = image_requirements(
        environ(
            NVIDIA_REQUIRE_CUDA="cuda>=12.4", NVIDIA_REQUIRE_JETPACK="x", NVIDIA_REQUIRE_ARCH=""
        )
    )
    assert dict(found.expressions) == {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}
    with pytest.raises(Absent):
        image_requirements(environ(NVIDIA_VISIBLE_DEVICES="all"))
