"""A real machine (two H200, vLLM 0.26) with one thing changed as it would look for real: all checks
run, and what is broken is the only finding of severity error.

The machine of driver, GPUs and CUDA is broken in `tests/checks/test_cuda_machines.py`, the engine's
environment in `tests/test_broken_environments.py`.
"""

from __future__ import annotations

import pytest
from machine import ENGINE, SITE, Change, Machine

TP_TWO = ("vllm", "serve", "/models/llama-3.1-8b", "-tp", "2")


def no_driver(machine: Machine) -> None:
    machine.value("identity")["devices"] = []
    for device in machine.value("pci")["nvidia"]:
        device["driver"] = None
    machine.gone("read", path="/proc/driver/nvidia/version")
    machine.rows("nvml")[0]["value"] = {"error": {"code": 9, "message": "Driver Not Loaded"}}
    machine.value("device_nodes")["nodes"] = []
    machine.rows("cuda")[0]["value"] = {"missing": ["/dev/nvidiactl", "/dev/nvidia0"]}


def old_driver(machine: Machine) -> None:
    machine.text("/proc/driver/nvidia/version", "580.159.04", "535.183.01")
    machine.value("nvml").update(driver="535.183.01", cuda_driver=12020)
    for name in ("libcuda", "libnvidia-ml"):
        path = f"/usr/local/nvidia/lib64/{name}.so"
        machine.value("real", path=f"{path}.1")["path"] = f"{path}.535.183.01"
    machine.value("cuda").update(
        library="/usr/local/nvidia/lib64/libcuda.so.535.183.01", version=12020
    )


def no_gpus_in_the_container(machine: Machine) -> None:
    machine.value("identity")["devices"] = []
    machine.value("device_nodes")["nodes"] = []
    machine.variable("NVIDIA_VISIBLE_DEVICES", "void")
    machine.gone("real", path="/usr/local/nvidia/lib64/libcuda.so.1")
    machine.gone("real", path="/usr/local/nvidia/lib64/libnvidia-ml.so.1")
    for row in machine.rows("find", path="/etc/ld.so.cache"):
        row["value"]["matches"] = []
    machine.rows("nvml")[0]["value"] = {"error": {"code": 12, "message": "NVML Not Found"}}
    machine.rows("cuda")[0]["value"] = {"missing": ["/dev/nvidiactl", "/dev/nvidia0"]}


def volta(machine: Machine) -> None:
    for gpu in machine.value("nvml")["gpus"]:
        gpu.update(Name="Tesla V100-SXM2-32GB", CudaComputeCapability=[7, 0])


def vision_for_cuda_12(machine: Machine) -> None:
    machine.text(f"{SITE}/torchvision/version.py", "+cu130", "+cu128")


def torch_for_the_cpu(machine: Machine) -> None:
    machine.text(f"{SITE}/torch/version.py", "2.11.0+cu130", "2.11.0+cpu")
    machine.text(f"{SITE}/torch/version.py", "= '13.0'", "= None")
    for name in ("torchvision", "torchaudio"):
        machine.text(f"{SITE}/{name}/version.py", "+cu130", "+cpu")


def other_torch(machine: Machine) -> None:
    machine.distribution("torch")["version"] = "2.10.0"
    machine.text(f"{SITE}/torch/version.py", "2.11.0+cu130", "2.10.0+cu130")
    for name in ("torchvision", "torchaudio"):  # they came with it
        own = machine.distribution(name)
        own["requires"] = [line.replace("2.11.0", "2.10.0") for line in own["requires"]]
    machine.text(f"{SITE}/torchaudio/version.py", "2.11.0", "2.10.0")


def no_transformers(machine: Machine) -> None:
    machine.uninstall("transformers")


def no_metadata(machine: Machine) -> None:
    machine.uninstall("vllm")


def no_compiler(machine: Machine) -> None:
    for name in ("CC", "CXX"):
        machine.variable(name, None)
    path = machine.value("environ")["variables"]["PATH"]
    for program in ("gcc", "clang", "cc", "g++", "clang++", "c++"):
        machine.document["captures"].append(
            {
                "operation": "which",
                "arguments": {"name": program, "path": path},
                "version": 1,
                "value": {"path": None},
                "duration_ms": 0.1,
            }
        )


def no_headers(machine: Machine) -> None:
    machine.gone("stat", path="/usr/include/python3.12/Python.h")


def small_shared_memory(machine: Machine) -> None:
    machine.value("space", path="/dev/shm").update(total=64 << 20, free=64 << 20)
    vllm = machine.distribution("vllm")
    vllm.update(version="0.27.0", info="vllm-0.27.0.dist-info")  # the first that refuses to start


def full_disk(machine: Machine) -> None:
    for row in machine.rows("space"):
        if row["value"].get("device") == 65024:
            row["value"].update(free=0)


def read_only_home(machine: Machine) -> None:
    for row in machine.rows("space"):
        if row["arguments"]["path"].startswith("/root"):
            row["value"].update(writable=False, read_only=True, device=99)


def hidden_gpus(machine: Machine) -> None:
    machine.variable("CUDA_VISIBLE_DEVICES", "")
    machine.value("cuda").update(code=100, step="cuInit", count=None)
    machine.document["captures"].append(
        {
            "operation": "cuda",
            "arguments": {"without": ["CUDA_VISIBLE_DEVICES"]},
            "version": machine.rows("cuda")[0]["version"],
            "value": {**machine.value("cuda"), "code": 0, "step": "the end", "count": 2},
            "duration_ms": 0.1,
        }
    )


def uuid_for_an_old_vllm(machine: Machine) -> None:
    machine.variable("CUDA_VISIBLE_DEVICES", "GPU-00000001-0000-0000-0000-000000000001")
    source = machine.value("read", path=f"{ENGINE}/vllm/platforms/cuda.py")
    source["text"] = source["text"].replace("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetHandle")


def uncorrected_memory(machine: Machine) -> None:
    machine.value("nvml")["gpus"][1]["ecc_uncorrected_volatile"] = 3


@pytest.mark.parametrize(
    ("change", "check", "words", "launch"),
    [
        (no_driver, "driver-missing", "2 NVIDIA GPUs on the PCI bus", ()),
        (old_driver, "driver-too-old", "driver 535.183.01 (CUDA 12.2) is too old", ()),
        (no_gpus_in_the_container, "container-without-gpu", "", ()),
        (volta, "torch-arch-missing", "7.0", ()),
        (vision_for_cuda_12, "torch-companion-mismatch", "torchvision 0.26.0+cu128", ()),
        (torch_for_the_cpu, "torch-cpu-only", "torch 2.11.0+cpu", ()),
        (other_torch, "env-requirement-broken", "torch==2.11.0; 2.10.0", ()),
        (no_transformers, "env-requirement-broken", "transformers", ()),
        (no_metadata, "engine-metadata-missing", "no distribution is called vllm", ()),
        (no_compiler, "toolchain-compiler-missing", "", ()),
        (no_headers, "toolchain-headers-missing", "Python.h", ()),
        (small_shared_memory, "container-shm-small", "64 MiB", TP_TWO),
        (full_disk, "cache-disk-low", "0 ", ()),
        (read_only_home, "cache-not-writable", "/root", ()),
        (hidden_gpus, "gpu-visible-devices-wrong", "hides all 2 GPUs", ()),
        (uuid_for_an_old_vllm, "gpu-visible-devices-wrong", "is a UUID", ()),
        (uncorrected_memory, "gpu-ecc-uncorrected", "3 uncorrected memory errors", ()),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_broken_is_the_only_error(
    change: Change, check: str, words: str, launch: tuple[str, ...]
) -> None:
    machine = Machine()
    change(machine)
    errors = machine.errors(launch)
    assert list(errors) == [check], errors
    assert words in errors[check]


def test_the_machine_itself_has_no_error() -> None:
    assert Machine().errors() == {}
    assert Machine().errors(TP_TWO) == {}
