"""What the reports of vLLM's and torch's collect_env hold, and what they do not prove."""

from pathlib import Path
from typing import Any

import pytest

from infer_doctor.facts.driver import Driver
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.gpu import GpuCapabilities, Gpus
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.torch import TorchBuild, TorchCompanions
from infer_doctor.foreign.text import Unreadable
from infer_doctor.model import Missing
from infer_doctor.targets import facts_in

CAPTURES = Path(__file__).parent.parent / "captures"


def read(name: str) -> str:
    return (CAPTURES / name).read_text()


def facts(name: str) -> dict[type, Any]:
    return dict(facts_in(read(name), "file"))


@pytest.mark.parametrize(
    ("name", "torch", "cuda", "kind"),
    [
        ("h200/vllm-collect-env.txt", "2.11.0+cu130", "13.0", "cuda"),
        ("h200/torch-collect-env.txt", "2.11.0+cu130", "13.0", "cuda"),
        ("cpu/vllm-collect-env.txt", "2.13.0+cpu", None, "cpu"),
        ("foreign/vllm-0.7-flat-4090.txt", "2.5.1+cu121", "12.1", "cuda"),
        ("foreign/vllm-0.15-rocm.txt", "2.9.1+git5bc97ba", None, "rocm"),
        ("foreign/torch-a100-mig.txt", "2.5.0.dev20240705+cu121", "12.1", "cuda"),
    ],
)
def test_torch(name: str, torch: str, cuda: str | None, kind: str) -> None:
    found = facts(name)[TorchBuild]
    assert (found.version, found.cuda, found.kind) == (torch, cuda, kind)


def test_an_old_report_of_torch_for_intel() -> None:
    text = read("cpu/vllm-collect-env.txt").replace("2.13.0+cpu", "2.6.0+xpu")
    found = facts_in(text, "file")[TorchBuild]
    assert isinstance(found, TorchBuild)
    assert found.kind == "xpu"


@pytest.mark.parametrize(
    ("name", "driver", "gpus"),
    [
        ("h200/vllm-collect-env.txt", "580.159.04", ["NVIDIA H200"]),
        ("h200-x2/torch-collect-env.txt", "580.159.04", ["NVIDIA H200"] * 2),
        ("foreign/vllm-0.7-flat-4090.txt", "535.183.01", ["NVIDIA GeForce RTX 4090"]),
        ("foreign/vllm-0.6-flat-wsl2.txt", "551.88", ["NVIDIA GeForce RTX 4070 Laptop GPU"]),
        ("foreign/vllm-0.11-5090.txt", "570.172.08", ["NVIDIA GeForce RTX 5090"] * 4),
        ("foreign/torch-a100-mig.txt", "535.161.08", ["NVIDIA A100-SXM4-80GB"]),
    ],
)
def test_gpus_and_driver(name: str, driver: str, gpus: list[str]) -> None:
    found = facts(name)
    assert found[Driver].version == driver
    assert found[Driver].cuda is None, "a report does not say which CUDA the driver speaks"
    assert [gpu.name for gpu in found[Gpus].gpus] == gpus
    assert len(found[GpuCapabilities].capabilities) == len(gpus)


def test_no_gpu_and_other_gpus_are_not_told() -> None:
    for name in ("cpu/vllm-collect-env.txt", "foreign/vllm-0.15-rocm.txt"):
        assert not {Driver, Gpus, GpuCapabilities} & set(facts(name))


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("h200/vllm-collect-env.txt", "0.26.0"),
        ("cpu/vllm-collect-env.txt", "0.32.0"),
        ("foreign/vllm-0.11-5090.txt", "0.11.2.dev320+g1f2e3d4c5"),
        ("foreign/vllm-0.6-flat-wsl2.txt", "0.6.2"),
        ("foreign/vllm-0.7-flat-4090.txt", "0.7.2"),
    ],
)
def test_engine(name: str, version: str) -> None:
    found = facts(name)[EngineFact]
    assert (found.name, found.version, found.build) == ("vllm", version, None)
    assert EngineFact not in facts("h200/torch-collect-env.txt")


@pytest.mark.parametrize(
    ("value", "version", "build"),
    [
        ("0.26.0+cu129", "0.26.0+cu129", "cuda"),
        ("0.33.1.dev1+g0123456.d20261130.cpu", "0.33.1.dev1+g0123456.d20261130.cpu", "cpu"),
        ("N/A (dev)", None, None),
        ("Could not collect", None, None),
    ],
)
def test_engine_and_its_build(value: str, version: str | None, build: str | None) -> None:
    text = read("h200/vllm-collect-env.txt").replace(": 0.26.0\n", f": {value}\n")
    found = facts_in(text, "file").get(EngineFact)
    assert (found.version, found.build) == (version, build) if found else version is None  # type: ignore[attr-defined]


def test_companions_by_their_rows() -> None:
    found = facts("h200/vllm-collect-env.txt")[TorchCompanions]
    assert [(row.name, row.version) for row in found.rows] == [
        ("torchaudio", "2.11.0"),
        ("torchvision", "0.26.0"),
    ]
    assert found.gaps, (
        "what is not listed may be installed, and nothing is known of what is required"
    )
    text = read("h200/vllm-collect-env.txt").replace(
        "torchvision==0.26.0", "torchvision==0.26.0+cpu"
    )
    (row, _) = sorted(
        facts_in(text, "file")[TorchCompanions].rows,  # type: ignore[attr-defined]
        key=lambda row: row.name,
        reverse=True,
    )
    assert (row.name, row.kind) == ("torchvision", "cpu")


def test_a_list_of_gpus_with_a_hole() -> None:
    text = read("foreign/vllm-0.11-5090.txt").replace("GPU 1: NVIDIA GeForce RTX 5090\n", "")
    assert isinstance(facts_in(text, "file")[Gpus], Missing)


def test_a_list_of_gpus_without_an_end() -> None:
    text = read("h200/vllm-collect-env.txt")
    found = facts_in(text[: text.index("Nvidia driver version")], "file")[Gpus]
    assert isinstance(found, Missing)
    assert "does not end" in found.reason


def test_cuda_that_works_on_an_old_driver() -> None:
    """torch says that CUDA works: a forward-compatibility library, so no driver is too old here."""
    text = read("h200/vllm-collect-env.txt").replace("580.159.04", "550.54.14")
    missing = facts_in(text, "file")[Driver]
    assert isinstance(missing, Missing)
    assert "550.54.14 is older than 580.65.06, which CUDA 13 needs" in missing.reason
    broken = text.replace("available            : True", "available            : False")
    assert isinstance(facts_in(broken, "file")[Driver], Driver)


def test_variables() -> None:
    found = facts("h200/vllm-collect-env.txt")[Environ]
    assert found.variables["CUDA_HOME"] == "/usr/local/cuda"
    assert found.variables["NVIDIA_REQUIRE_CUDA"].endswith("driver>=575,driver<576")
    assert found.gaps, "a variable that is not shown may be set all the same"
    assert not {name for name in found.variables if name.startswith("TORCHINDUCTOR_")}


def test_variables_that_the_report_itself_sets() -> None:
    assert dict(facts("cpu/vllm-collect-env.txt")[Environ].variables) == {
        "VLLM_NO_USAGE_STATS": "1"
    }
    assert dict(facts("foreign/vllm-0.7-flat-4090.txt")[Environ].variables) == {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "CUDA_VERSION": "12.1.0",
        "VLLM_USE_V1": "1",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }


@pytest.mark.parametrize(
    ("tail", "known"),
    [
        ("NCCL_DEBUG=INFO\nNCCL_DEBUG=WARN\nCUDA_HOME=/c\n", {"CUDA_HOME": "/c"}),
        ("CUDA_HOME=/c\nTORCH_NOTE=first\nsecond line\nNCCL_DEBUG=INFO\n", {"CUDA_HOME": "/c"}),
        ("CUDA_HOME=/c\n```\n", {}),
        ("CUDA_HOME=/c\n\nNCCL_DEBUG=INFO\n", {"CUDA_HOME": "/c"}),
        ("CUDA_HOME=\n", {"CUDA_HOME": ""}),
    ],
)
def test_values_that_are_not_sure(tail: str, known: dict[str, str]) -> None:
    text = read("foreign/vllm-0.11-5090.txt")
    head = text[: text.index("CUDA_HOME=")]
    found = facts_in(head + tail, "file").get(Environ)
    assert (dict(found.variables) if isinstance(found, Environ) else {}) == known


def test_prefixes_before_every_line() -> None:
    whole = facts("foreign/vllm-0.7-flat-4090.txt")
    for prefix in ("> ", "    ", "2026-11-30T02:59:59.000Z "):
        text = read("foreign/vllm-0.7-flat-4090.txt")
        lines = "".join(f"{prefix}{line}" for line in text.splitlines(keepends=True))
        found = facts_in(lines, "file")
        assert found[TorchBuild] == whole[TorchBuild]
        assert found[Gpus] == whole[Gpus]
        assert found[Environ] == whole[Environ]


def test_two_reports_and_the_script_itself() -> None:
    text = read("foreign/vllm-0.7-flat-4090.txt")
    with pytest.raises(Unreadable, match="several reports"):
        facts_in(text + text, "file")
    script = 'print("Collecting environment information...")\nPyTorch version: {torch_version}\n'
    with pytest.raises(Unreadable, match="is cut off"):
        facts_in(script, "file")
    with pytest.raises(Unreadable, match="no value"):
        facts_in(f"{script}Is debug build: {{is_debug_build}}\n", "file")
