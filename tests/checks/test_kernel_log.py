"""The checks of what the kernel log tells."""

from __future__ import annotations

import pytest

from infer_doctor.catalog.xid import XIDS, xid
from infer_doctor.checks.kernel_log import oom_killed, xid_logged
from infer_doctor.facts.chosen import ChosenGpus
from infer_doctor.facts.gpu import EccRow, Gpu, GpuEcc, Gpus
from infer_doctor.facts.gpu_health import GpuRecovery
from infer_doctor.facts.kernel_log import LogLine, MemoryKills, XidEvents, parse_kills, parse_xids
from infer_doctor.facts.machine import Identity
from infer_doctor.facts.pci import PciBus, PciDevice
from infer_doctor.model import Finding
from infer_doctor.testing import contract, examine

NOW = 200_000.0


def log(*texts: str, address: str = "0000:00:06", apart_s: float = 60.0) -> XidEvents:
    """Messages of one GPU, the last of them a minute ago."""
    start = NOW - apart_s * len(texts)
    lines = [
        LogLine(seconds=start + apart_s * n, text=f"NVRM: Xid (PCI:{address}): {text}")
        for n, text in enumerate(texts)
    ]
    return XidEvents(events=tuple(parse_xids(lines, NOW)), source="/dev/kmsg")


def gpus(*places: str, gaps: tuple[str, ...] = ()) -> Gpus:
    found = tuple(
        Gpu(index=index, name="NVIDIA H200", uuid=f"GPU-{index}", bus_id=f"0000:00:0{place}.0")
        for index, place in enumerate(places)
    )
    return Gpus(gpus=found, source="NVML", gaps=gaps)


def machine(container: str | None) -> Identity:
    return Identity(
        hostname="node",
        kernel="6.8",
        machine="x86_64",
        uid=0,
        container=container,
        initial_pid_namespace=True,
        devices=(),
    )


def bus(*places: str, driver: str | None = "nvidia") -> PciBus:
    devices = tuple(
        PciDevice(
            address=f"0000:00:0{place}.0",
            driver=driver,
            class_code="0x030200",
            device_id="0x2335",
            link=(None, None, None, None),
        )
        for place in places
    )
    return PciBus(devices=9, nvidia=devices)


def one(*facts: object) -> Finding:
    (finding,) = examine(xid_logged, *facts).findings
    return finding


LOST = "79, GPU has fallen off the bus."
DOUBLE_BIT = "48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE)"


def test_xid() -> None:
    contract(xid_logged, fires=[log(LOST)], passes=[log()])


@pytest.mark.parametrize(
    ("text", "severity", "words"),
    [
        (LOST, "error", "Xid 79, GPU has fallen off the bus, 60 s ago"),
        (DOUBLE_BIT, "error", "Xid 48, double-bit (uncorrectable) ECC error, 60 s ago"),
        ("119, pid=430, name=nv_queue, Timeout", "error", "60 s ago, by PID 430 (nv_queue)"),
        ("63, pid=1896, Row Remapper: New row", "warning", "marked to be replaced"),
        ("94, pid=7194, Contained: CE", "warning", "one process lost, 60 s ago, by PID 7194"),
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 02", "warning", "Xid 145, NVLink error (RLW)"),
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09", "error", "NVLink error (NETIR)"),
        ("31, pid=1942, name=llama-bench, MMU Fault", "info", "by PID 1942 (llama-bench)"),
        ("13, Graphics SM Warp Exception", "info", "mostly an access out of bounds"),
        ("43, Ch 00000020, engmask 00000101", "info", "the GPU is healthy"),
        ("999, what is that", "warning", "a code that is not in the catalogue"),
    ],
)
def test_severity_is_by_what_the_code_asks_for(text: str, severity: str, words: str) -> None:
    finding = one(log(text), gpus("6"))
    assert finding.severity == severity
    assert finding.message.startswith("GPU 0: Xid ")
    assert words in finding.message
    assert finding.evidence[0].excerpt.endswith(" ".join(text.split()))


def test_events_of_one_gpu_are_one_finding_the_worst_first() -> None:
    found = log("45, pid=9, name=python3, Ch 1", DOUBLE_BIT, DOUBLE_BIT, "63, pid=9, Row Remapper")
    finding = one(found, gpus("6"))
    assert finding.message == (
        "GPU 0: Xid 48, double-bit (uncorrectable) ECC error, 2 times, the first 3 min ago, the last "
        "2 min ago; also Xid 45, 63"
    )
    assert len(finding.evidence) == 3
    assert [fix.id for fix in finding.fixes] == ["reset-gpu-0"]


def test_each_gpu_has_its_own() -> None:
    events = log(LOST).events + log("31, pid=1, name=python3, MMU", address="0000:00:07").events
    found = examine(
        xid_logged, XidEvents(events=events, source="/dev/kmsg"), gpus("6", "7")
    ).findings
    assert [(finding.about, finding.severity) for finding in found] == [
        ("GPU 0", "error"),
        ("GPU 1", "info"),
    ]


class TestNoSecondError:
    """What another check reports as an error, and what is over, is only a warning here."""

    def test_the_driver_asks_for_nothing_any_more(self) -> None:
        recovery = GpuRecovery(actions={0: 0}, source="NVML")
        finding = one(log("62, 0 0 0"), gpus("6"), recovery)
        assert finding.severity == "warning"
        assert finding.message.endswith("(the driver asks for nothing now)")

    def test_the_driver_says_what_it_wants(self) -> None:
        recovery = GpuRecovery(actions={0: 1}, source="NVML")
        finding = one(log("62, 0 0 0"), gpus("6"), recovery)
        assert finding.severity == "warning"
        assert finding.message.endswith("(gpu-reset-needed says what is to be done)")

    def test_the_last_recovery_action_counts_where_nvml_does_not_tell(self) -> None:
        asked = "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
        done = "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
        assert one(log("62, 0 0 0", asked), gpus("6")).severity == "error"
        assert one(log("62, 0 0 0", asked, done), gpus("6")).severity == "warning"

    def test_a_memory_error_that_is_counted(self) -> None:
        ecc = GpuEcc(rows=(EccRow(index=0, uncorrected=1),), source="NVML")
        assert one(log(DOUBLE_BIT), gpus("6"), ecc).severity == "warning"
        assert one(log("62, 0 0 0"), gpus("6"), ecc).severity == "error"

    def test_a_lost_gpu_that_is_missed(self) -> None:
        finding = one(log(LOST), gpus("7"), bus("6", "7"), machine(None))
        assert finding.severity == "warning"
        assert finding.message.startswith("GPU at 0000:00:06: Xid 79")
        left = one(log(LOST), gpus("7"), bus("6", "7", driver=None), machine(None))
        assert left.severity == "error"  # gpu-fewer-than-bus counts only those bound to the driver

    def test_a_gpu_that_the_engine_does_not_take(self) -> None:
        finding = one(log("62, 0 0 0"), gpus("6", "7"), ChosenGpus(indices=(1,)))
        assert finding.severity == "warning"
        assert finding.message.endswith("(the engine does not take this GPU)")

    def test_before_the_driver_was_loaded_again(self) -> None:
        lines = [
            LogLine(seconds=100.0, text="NVRM: Xid (PCI:0000:00:06): 62, 0 0 0"),
            LogLine(seconds=9000.0, text="NVRM: loading NVIDIA UNIX Open Kernel Module"),
        ]
        found = XidEvents(events=tuple(parse_xids(lines, NOW)), source="/dev/kmsg")
        finding = one(found, gpus("6"))
        assert finding.severity == "warning"
        assert finding.message.endswith("2 days ago (the driver was loaded again since)")


def test_gpus_of_others_do_not_count_in_a_container() -> None:
    mine = gpus("7")
    assert examine(xid_logged, log(LOST), mine, machine("docker")).outcome == "passed"
    lost = gpus("7", gaps=("GPU 1: lost",))
    assert examine(xid_logged, log(LOST), lost, machine("docker")).outcome == "failed"


def test_every_code_has_words_and_a_fix_that_fits() -> None:
    for code, known in XIDS.items():
        assert known.words
        finding = one(log(f"{code}, text"), gpus("6"))
        assert bool(finding.fixes) == (known.action != "none")
        if known.severity == "error":
            assert known.action in ("reset", "reboot", "power", "update")


def test_nonfatal_is_not_fatal() -> None:
    assert xid(149, "NETIR_BER_EVENT Nonfatal XC0").severity == "warning"
    assert xid(149, "Non-fatal, Link 46").severity == "warning"


def kills(*texts: str) -> MemoryKills:
    lines = [LogLine(seconds=NOW - 600, text=text) for text in texts]
    return MemoryKills(kills=tuple(parse_kills(lines, NOW)), source="/dev/kmsg")


ENGINE = (
    "Out of memory: Killed process 4704 (VLLM::EngineCor) total-vm:98231460kB, "
    "anon-rss:64422400kB, file-rss:81920kB"
)


def test_killed() -> None:
    other = ENGINE.replace("VLLM::EngineCor", "mysqld")
    contract(oom_killed, fires=[kills(ENGINE)], passes=[kills(other)])


def test_a_killed_engine_is_named_with_its_size_and_bound() -> None:
    (finding,) = examine(oom_killed, kills(ENGINE, ENGINE)).findings
    assert finding.severity == "warning"
    assert finding.message == (
        "the kernel killed VLLM::EngineCor (PID 4704) with 61.4 GiB 10 min ago: the host's memory "
        "was used up"
    )
    group = ENGINE.replace("Out of", "Memory cgroup out of").replace("VLLM::EngineCor", "python3")
    (finding,) = examine(oom_killed, kills(group)).findings
    assert (finding.severity, finding.confidence) == ("info", "possible")
    assert "its control group's limit was used up" in finding.message
