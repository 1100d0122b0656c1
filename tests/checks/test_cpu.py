"""The check of the processor, and the reading of /proc/cpuinfo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from environment_facts import HERE, dist, engine

from infer_doctor.checks.cpu import cpu_instructions
from infer_doctor.facts.cpu import CpuFeatures, cpu_features, parse_cpuinfo
from infer_doctor.facts.engine_parts import EngineParts
from infer_doctor.host import Absent, Unavailable
from infer_doctor.live import LiveHost
from infer_doctor.testing import contract, examine

VLLM = engine(dist("vllm", "0.32.0+cpu"), build="cpu")
SPLIT = EngineParts(
    libraries=("_C.abi3.so", "_C_AVX2.abi3.so", "_C_AVX512.abi3.so"), pythons=(), own_nvml=True
)
ONE = replace(SPLIT, libraries=("_C.abi3.so",))
ARM = replace(HERE, machine="aarch64")

AVX = ("avx512f", "avx512vl", "avx512bw", "avx512dq")


def cpu(*features: str) -> CpuFeatures:
    return CpuFeatures(model="AMD EPYC 7763", features=frozenset(("sse2", *features)))


def test_cpu_instructions() -> None:
    contract(
        cpu_instructions,
        fires=[VLLM, cpu("f16c"), SPLIT, HERE],
        passes=[VLLM, cpu("avx2", "f16c"), SPLIT, HERE],
    )


@pytest.mark.parametrize(
    ("features", "missing"),
    [
        (("avx2", "f16c"), None),
        (("avx2",), "f16c"),
        ((), "avx2, f16c"),
        ((*AVX, "avx2", "f16c"), None),
        (("avx512f", "avx2", "f16c"), "avx512vl, avx512bw, avx512dq"),
        ((*AVX, "avx512_bf16", "avx2", "f16c"), None),
    ],
)
def test_each_library_of_x86(features: tuple[str, ...], missing: str | None) -> None:
    found = examine(cpu_instructions, VLLM, cpu(*features), SPLIT, HERE)
    told = [row.message.partition(";")[0] for row in found.findings]
    assert told == ([f"AMD EPYC 7763 has no {missing}"] if missing else [])


def test_arm() -> None:
    old, new = cpu("asimd"), cpu("asimd", "asimddp", "asimdhp")
    assert examine(cpu_instructions, VLLM, old, ONE, ARM).outcome == "failed"
    assert examine(cpu_instructions, VLLM, new, ONE, ARM).outcome == "passed"


def test_what_is_not_known() -> None:
    assert examine(cpu_instructions, VLLM, cpu(), ONE, HERE).outcome == "blocked"
    other = replace(HERE, machine="ppc64le")
    assert examine(cpu_instructions, VLLM, cpu(), SPLIT, other).outcome == "blocked"


X86_TEXT = """processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC 7763 64-Core Processor
flags\t\t: fpu sse2 avx2 f16c

processor\t: 1
flags\t\t: fpu avx512f
"""
ARM_TEXT = "processor\t: 0\nFeatures\t: fp asimd asimddp\nCPU part\t: 0xd4f\n"


def test_the_first_processor_counts() -> None:
    found = parse_cpuinfo(X86_TEXT)
    assert found.model == "AMD EPYC 7763 64-Core Processor"
    assert found.features == {"fpu", "sse2", "avx2", "f16c"}
    assert parse_cpuinfo(ARM_TEXT).features == {"fp", "asimd", "asimddp"}


@pytest.mark.parametrize(
    "text", ["", "processor\t: 0\n", "flags\t\t:\n", "\x00\\xff", "\n\nflags: a"]
)
def test_broken_text(text: str) -> None:
    with pytest.raises(Unavailable):
        parse_cpuinfo(text)


@pytest.fixture
def host() -> Iterator[LiveHost]:
    found = LiveHost()
    yield found
    found.close()


def test_this_machine(host: LiveHost) -> None:
    assert len(cpu_features(host, VLLM).features) > 3
    with pytest.raises(Absent):
        cpu_features(host, replace(VLLM, build="cuda"))
    with pytest.raises(Unavailable):
        cpu_features(host, replace(VLLM, build=None))
