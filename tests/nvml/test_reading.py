"""The real nvidia-ml-py in the real worker against a library that plays a captured machine."""

import copy
import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nvml_library
import pytest

from infer_doctor.hands.nvml import ECC, GETTERS
from infer_doctor.host import Unavailable
from infer_doctor.live import LiveHost

CAPTURES = Path(__file__).parent.parent / "captures"

Read = Callable[..., dict[str, Any]]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Read]:
    """Reads NVML through the library in a folder, with a plan for FAKE_NVML."""
    hosts: list[LiveHost] = []

    def once(folder: Path, plan: str = "") -> dict[str, Any]:
        monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
        monkeypatch.setenv("FAKE_NVML", plan)
        hosts.append(LiveHost(timeout_s=5))
        answer: dict[str, Any] = hosts[-1].ask("nvml")
        return answer

    yield once
    for host in hosts:
        host.close()


def capture(machine: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CAPTURES / machine / "nvml.json").read_text())
    return found


@pytest.mark.parametrize(("machine", "library"), [("h200", "one_gpu"), ("h200-x2", "two_gpus")])
def test_reading_is_what_was_captured(
    machine: str, library: str, request: pytest.FixtureRequest, read: Read
) -> None:
    captured = capture(machine)
    answer = read(request.getfixturevalue(library))
    assert {key: answer[key] for key in ("driver", "nvml", "cuda_driver")} == {
        key: captured[key] for key in ("driver", "nvml", "cuda_driver")
    }
    assert len(answer["gpus"]) == len(captured["gpus"])
    for gpu, real in zip(answer["gpus"], captured["gpus"], strict=True):
        compared = gpu.keys() & real.keys() - {"nvlink"}
        assert {key: gpu[key] for key in compared} == {key: real[key] for key in compared}
        assert compared >= {*GETTERS, "MemoryInfo_v2", "fabric", "ecc_uncorrected_volatile"}
        known = len(real["nvlink"])  # newer nvidia-ml-py asks for links that an H200 has not
        assert gpu["nvlink"][:known] == real["nvlink"]
        assert all("error" in link for link in gpu["nvlink"][known:])


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (3, "NotSupported"),
        (4, "NoPermission"),
        (9, "DriverNotLoaded"),
        (15, "GpuIsLost"),
        (18, "LibRmVersionMismatch"),
        (999, "Unknown"),
    ],
)
class TestErrors:
    def test_of_the_start(self, code: int, name: str, two_gpus: Path, read: Read) -> None:
        error = read(two_gpus, f"nvmlInitWithFlags={code}")["error"]
        assert error["code"] == code
        assert error["message"].startswith(f"NVMLError_{name}: ")

    def test_of_one_getter_on_one_gpu(
        self, code: int, name: str, two_gpus: Path, read: Read
    ) -> None:
        healthy = read(two_gpus)
        answer = read(two_gpus, f"nvmlDeviceGetUUID@1={code}")
        assert answer["gpus"][1]["UUID"]["error"].startswith(f"NVMLError_{name}: ")
        answer["gpus"][1]["UUID"] = healthy["gpus"][1]["UUID"]
        assert answer == healthy

    def test_of_a_whole_gpu(self, code: int, name: str, two_gpus: Path, read: Read) -> None:
        healthy = read(two_gpus)
        answer = read(two_gpus, f"nvmlDeviceGetHandleByIndex_v2@0={code}")
        assert answer["gpus"][0].keys() == {"error"}
        assert answer["gpus"][0]["error"].startswith(f"NVMLError_{name}: ")
        assert answer["gpus"][1] == healthy["gpus"][1]

    def test_of_the_count(self, code: int, name: str, two_gpus: Path, read: Read) -> None:
        message = read(two_gpus, f"nvmlDeviceGetCount_v2={code}")["error"]["message"]
        assert message.startswith(f"nvmlDeviceGetCount: NVMLError_{name}: ")


GETTER_AND_KEY = [
    ("nvmlDeviceGetMemoryInfo_v2", "MemoryInfo_v2"),
    ("nvmlDeviceGetGpuFabricInfoV", "fabric"),
    ("nvmlDeviceGetComputeRunningProcesses_v3", "ComputeRunningProcesses"),
    ("nvmlDeviceGetGspFirmwareVersion", "GspFirmwareVersion"),
    ("nvmlDeviceGetRemappedRows", "RemappedRows"),
]


@pytest.mark.parametrize(("symbol", "key"), GETTER_AND_KEY)
def test_function_that_an_old_driver_has_not(
    symbol: str, key: str, tmp_path: Path, two_gpus: Path, read: Read
) -> None:
    machine = capture("h200-x2")
    answer = read(nvml_library.build(machine, tmp_path, without=frozenset({symbol})))
    healthy = read(two_gpus)
    for gpu, whole in zip(answer["gpus"], healthy["gpus"], strict=True):
        assert gpu.pop(key)["error"]
        whole.pop(key)
    assert answer == healthy


def test_errors_of_the_capture_are_errors_again(tmp_path: Path, read: Read) -> None:
    machine = capture("h200")
    gpu = machine["gpus"][0]
    errors = {
        key: {"error": f"NVMLError_{name}: {words}"}
        for key, name, words in (
            ("Name", "Unknown", "Unknown Error"),
            ("PciInfo", "GpuIsLost", "GPU is lost"),
            ("MemoryInfo_v2", "NotSupported", "Not Supported"),
            ("ecc_uncorrected_aggregate", "NoPermission", "Insufficient Permissions"),
            ("fabric", "NotSupported", "Not Supported"),
            ("ComputeRunningProcesses", "NoPermission", "Insufficient Permissions"),
        )
    }
    gpu |= copy.deepcopy(errors)
    answer = read(nvml_library.build(machine, tmp_path))
    assert {key: answer["gpus"][0][key] for key in errors} == errors
    assert answer["gpus"][0]["UUID"] == gpu["UUID"]


def test_processes_and_counters(tmp_path: Path, read: Read) -> None:
    machine = capture("h200")
    processes = [
        {"pid": 4704, "usedGpuMemory": 141218021376, "gpuInstanceId": 1, "computeInstanceId": 0},
        {"pid": 4705, "usedGpuMemory": None, "gpuInstanceId": 2, "computeInstanceId": 0},
    ]
    machine["gpus"][0] |= {
        "ComputeRunningProcesses": processes,
        "GraphicsRunningProcesses": processes[:1],
        "ecc_corrected_volatile": 7,
        "ecc_uncorrected_volatile": 2**40,
        "ecc_uncorrected_aggregate": 3,
        "RemappedRows": [4, 5, 1, 0],
    }
    gpu = read(nvml_library.build(machine, tmp_path))["gpus"][0]
    assert gpu["ComputeRunningProcesses"] == processes
    assert gpu["GraphicsRunningProcesses"] == processes[:1]
    assert [gpu[key] for key in ECC] == [2**40, 7, 3]
    assert gpu["RemappedRows"] == [4, 5, 1, 0]


def test_no_gpus(tmp_path: Path, read: Read) -> None:
    machine = capture("h200") | {"gpus": []}
    assert read(nvml_library.build(machine, tmp_path))["gpus"] == []


def test_what_the_library_prints_is_no_answer(two_gpus: Path, read: Read) -> None:
    assert read(two_gpus, "nvmlInitWithFlags=noise,nvmlDeviceGetName=noise") == read(two_gpus)


def test_slow_is_no_error(one_gpu: Path, read: Read) -> None:
    assert read(one_gpu, "nvmlInitWithFlags=slow") == read(one_gpu)


def test_file_that_is_no_library(tmp_path: Path, read: Read) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not ELF\n")
    assert read(tmp_path)["error"]["code"] == 12  # NVML_ERROR_LIBRARY_NOT_FOUND


@pytest.mark.parametrize("symbol", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
def test_hanging_start_is_named(symbol: str, one_gpu: Path, read: Read) -> None:
    with pytest.raises(Unavailable, match=r"no return from (nvmlInit|gpus)") as caught:
        read(one_gpu, f"{symbol}=hang")
    assert caught.value.code == "timeout"


def test_hanging_getter_costs_only_what_follows_on_its_gpu(two_gpus: Path, read: Read) -> None:
    healthy = read(two_gpus)
    answer = read(two_gpus, "nvmlDeviceGetMigMode@1=hang")
    assert answer["driver"] == healthy["driver"]
    assert answer["gpus"][0] == healthy["gpus"][0]
    before = GETTERS[: GETTERS.index("MigMode")]
    second = answer["gpus"][1]
    assert {key: second[key] for key in before} == {key: healthy["gpus"][1][key] for key in before}
    for key in second.keys() - set(before):
        assert second[key] == {"error": "TimeoutError: no return from MigMode"}


def test_gpu_that_does_not_open_costs_only_itself(two_gpus: Path, read: Read) -> None:
    healthy = read(two_gpus)
    answer = read(two_gpus, "nvmlDeviceGetHandleByIndex_v2@0=hang")
    assert answer["gpus"][0] == {"error": "TimeoutError: no return from nvmlDeviceGetHandleByIndex"}
    assert answer["gpus"][1] == healthy["gpus"][1]


def test_constructor_that_hangs(one_gpu: Path, read: Read) -> None:
    with pytest.raises(Unavailable, match="no answer within") as caught:
        read(one_gpu, "constructor=hang")
    assert caught.value.code == "timeout"


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("constructor=crash", "signal 11"),
        ("nvmlInitWithFlags=crash", "signal 11"),
        ("nvmlDeviceGetUUID@1=crash", "signal 11"),
        ("nvmlDeviceGetName=exit", "exit status 3"),
    ],
)
def test_crash_is_said_and_leaves_no_core(
    plan: str,
    words: str,
    two_gpus: Path,
    read: Read,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    monkeypatch.chdir(tmp_path)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        with pytest.raises(Unavailable, match=words) as caught:
            read(two_gpus, plan)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert caught.value.code == "died"
    assert list(tmp_path.iterdir()) == []


def test_what_the_driver_wants_done_and_how_hot_it_is(tmp_path: Path, read: Read) -> None:
    machine = capture("h200-x2")
    machine["gpus"][0] |= {"recovery_action": 1, "TemperatureSlowdown": 89}
    first, second = read(nvml_library.build(machine, tmp_path))["gpus"]
    assert (first["recovery_action"], first["TemperatureSlowdown"]) == (1, 89)
    assert first["Temperature"] == machine["gpus"][0]["Temperature"]
    assert second["recovery_action"]["error"].startswith("NVMLError_NotSupported: ")
    assert (first["mig"], second["mig"]) == ([], [])


def test_instances_of_a_partitioned_gpu(tmp_path: Path, read: Read) -> None:
    machine = capture("h200-x2")
    memory = {"total": 18_790_481_920, "free": 18_700_000_000, "used": 90_481_920}
    instances = [
        {"Name": f"NVIDIA H200 MIG 1g.18gb {n}", "UUID": f"MIG-0000{n}", "MemoryInfo": memory}
        for n in range(2)
    ]
    machine["gpus"][1] |= {"MigMode": [1, 1], "mig": instances}
    first, second = read(nvml_library.build(machine, tmp_path))["gpus"]
    assert first["mig"] == []
    assert second["mig"] == instances


def test_a_gpu_that_cannot_be_partitioned(tmp_path: Path, read: Read) -> None:
    machine = capture("h200")
    machine["gpus"][0]["MigMode"] = {"error": "NVMLError_NotSupported: Not Supported"}
    (gpu,) = read(nvml_library.build(machine, tmp_path))["gpus"]
    assert gpu["mig"]["error"].startswith("NVMLError_NotSupported: ")
