"""What ended an engine, by its log."""

from __future__ import annotations

from dataclasses import replace

from infer_doctor.checks.log_failure import earlier_failure, engine_failed, warned
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.gpu import GpuMemory, MemoryRow
from infer_doctor.facts.log import Cause, EngineLog
from infer_doctor.facts.owners import GpuOwners, Owner
from infer_doctor.model import Evidence, Fix
from infer_doctor.testing import contract, examine

GIB = 1 << 30
CAUSE = Cause(
    signature="free-memory",
    category="oom_startup_free_mem",
    confidence="certain",
    effect="fatal",
    stage="starting the workers",
    process="EngineCore",
    message="cuda:0 has 7.76 of 139.8 GiB free",
    evidence=(Evidence(source="serve.log", line=40, excerpt="ValueError: Free memory"),),
    fixes=(Fix(id="log-x", title="Free the GPU", safety="manual", restarts=True),),
    confirm="nvidia-smi",
)
HEALTHY = EngineLog(
    source="serve.log", lines=90, engine="vllm", version="0.26.0", starts=1, state="ready", stage=""
)
FAILED = replace(HEALTHY, state="failed", cause=CAUSE)
OWNERS = GpuOwners(
    owners=(
        Owner(gpu=0, pid=4704, used=132 * GIB, name="VLLM::EngineCore", age_s=240, orphan=True),
    ),
    source="nvml",
)
NOBODY = GpuOwners(owners=(), source="nvml")
FREE = GpuMemory(
    rows=(MemoryRow(index=0, total=140 * GIB, usable=139 * GIB, used=GIB, free=138 * GIB),),
    source="nvml",
)
DRIVER = Driver(version="535.54.03", cuda=(12, 2), evidence=Evidence(source="nvml"))


def test_contract() -> None:
    contract(engine_failed, fires=[FAILED, OWNERS, FREE, DRIVER], passes=[HEALTHY, OWNERS])
    contract(
        earlier_failure,
        fires=[replace(HEALTHY, starts=2, earlier=(CAUSE,))],
        passes=[HEALTHY],
    )
    contract(warned, fires=[replace(HEALTHY, warnings=(CAUSE,))], passes=[HEALTHY])


def test_the_process_that_is_alive_here_is_named_and_can_be_ended() -> None:
    (finding,) = examine(engine_failed, FAILED, OWNERS).findings
    assert "PID 4704 (VLLM::EngineCore, 4 min old, no server above it) holds 132.0 GiB" in (
        finding.message
    )
    assert finding.fixes[0].id == "end-pid-4704"
    assert finding.fixes[0].safety == "unsafe"


def test_memory_that_is_free_again_is_said() -> None:
    (finding,) = examine(engine_failed, FAILED, NOBODY, FREE).findings
    assert "nobody holds that memory now" in finding.message
    assert finding.evidence[-1].excerpt == "free: GPU 0 138.0 GiB"


def test_a_driver_of_another_machine_is_not_taken_for_the_logs() -> None:
    cause = replace(CAUSE, category="driver_cuda", numbers={"cuda": "12.8"})
    (finding,) = examine(engine_failed, replace(FAILED, cause=cause), DRIVER).findings
    assert "serves CUDA 12.2, not the 12.8 of the log" in finding.message


def test_what_is_not_certain_is_confirmed_first() -> None:
    cause = replace(CAUSE, confidence="likely")
    (finding,) = examine(engine_failed, replace(FAILED, cause=cause)).findings
    assert finding.fixes[0].actions[0].text == "confirm first: nvidia-smi"


def test_a_stall_that_came_once_is_a_warning() -> None:
    once = replace(CAUSE, effect="stall", count=1)
    often = replace(CAUSE, effect="stall", count=3)
    assert examine(engine_failed, replace(FAILED, cause=once)).findings[0].severity == "warning"
    assert examine(engine_failed, replace(FAILED, cause=often)).findings[0].severity == "error"


def test_the_other_candidates_are_notes() -> None:
    other = replace(CAUSE, signature="nccl-timeout", message="a collective did not end")
    result = examine(engine_failed, replace(FAILED, others=(other,)))
    assert [finding.severity for finding in result.findings] == ["error", "info"]


def test_a_cause_that_is_not_in_the_log_is_undecided() -> None:
    lost = replace(HEALTHY, state="failed", unexplained="serve.log:9 is only the echo: send dmesg")
    result = examine(engine_failed, lost)
    assert (result.outcome, result.reason) == ("blocked", lost.unexplained)


def test_an_error_that_was_survived_is_a_possible_warning() -> None:
    survived = replace(CAUSE, effect="survived")
    (finding,) = examine(warned, replace(HEALTHY, warnings=(survived,))).findings
    assert finding.confidence == "possible"
    assert finding.message.endswith("the server went on to answer")
