"""For checks whose cure is a variable of the next start: found on a recorded machine, cured by what
the fix sets there, and nothing else of the machine changes."""

from __future__ import annotations

import copy
import json

import pytest
from machine import ENGINE, Change, Machine

from infer_doctor.engine import Subject, run
from infer_doctor.facts.environment import Question
from infer_doctor.fixing.apply import Applying, Outcome
from infer_doctor.fixing.drafts import Drafts
from infer_doctor.fixing.plan import groups
from infer_doctor.launch.command import read as launch_of
from infer_doctor.model import CheckResult, SetVariable
from infer_doctor.registry import load
from infer_doctor.snapshot import read

FILE = {"kind": "file", "mode": 420, "uid": 0, "size": 1, "writable": True, "executable": False}
SERVE = ("vllm", "serve", "/models/llama-3.1-8b")
TP_TWO = (*SERVE, "-tp", "2")


def variables(**values: str) -> Change:
    """A machine where these are set."""

    def change(machine: Machine) -> None:
        for name, value in values.items():
            machine.variable(name, value)

    return change


def no_nvcc(machine: Machine) -> None:
    machine.variable("VLLM_USE_FLASHINFER_SAMPLER", None)
    machine.gone("stat", path="/usr/local/cuda/bin/nvcc")


def ninja_beside(machine: Machine) -> None:
    """It lies in the environment, which is not on PATH; with it there it is found."""
    machine.variable("VLLM_USE_FLASHINFER_SAMPLER", None)
    path = machine.value("environ")["variables"]["PATH"]
    machine.say("which", {"path": None}, name="ninja", path=path)
    for row in list(machine.rows("which", path=path)):
        there = {
            **row["value"],
            **({"path": "/opt/venv/bin/ninja"} if row["arguments"]["name"] == "ninja" else {}),
        }
        machine.say("which", there, **{**row["arguments"], "path": f"/opt/venv/bin:{path}"})


def uuid_for_an_old_vllm(machine: Machine) -> None:
    machine.variable("CUDA_VISIBLE_DEVICES", "GPU-00000001-0000-0000-0000-000000000001")
    source = machine.value("read", path=f"{ENGINE}/vllm/platforms/cuda.py")
    source["text"] = source["text"].replace("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetHandle")


def two_models(machine: Machine) -> None:
    """The first one is the slower, which CUDA puts last unless it is told to keep the bus order."""
    machine.value("nvml")["gpus"][0]["Name"] = "NVIDIA A100-SXM4-80GB"


def compiler_elsewhere(machine: Machine) -> None:
    machine.variable("CC", "/opt/none/gcc")
    machine.say("stat", None, path="/opt/none/gcc")
    path = machine.value("environ")["variables"]["PATH"]
    machine.say("which", {"path": "/usr/bin/gcc"}, name="gcc", path=path)


CASES: list[tuple[str, Change, tuple[str, ...]]] = [
    ("engine-env-removed", variables(VLLM_ATTENTION_BACKEND="FLASHINFER"), ()),
    ("engine-env-removed", variables(VLLM_LOGING_LEVEL="DEBUG"), ()),
    ("env-debug-left-on", variables(CUDA_LAUNCH_BLOCKING="1"), ()),
    ("env-proxy-catches-localhost", variables(http_proxy="http://proxy:3128"), ()),
    ("gpu-visible-devices-wrong", uuid_for_an_old_vllm, ()),
    ("gpu-visible-devices-wrong", variables(CUDA_VISIBLE_DEVICES="0,5"), ()),
    ("gpu-models-mixed", two_models, ()),
    ("toolchain-compiler-missing", compiler_elsewhere, ()),
    ("toolchain-nvcc-missing", no_nvcc, ()),
    ("toolchain-nvcc-missing", ninja_beside, ()),
]


def results(machine: Machine, check: str, launch: tuple[str, ...]) -> list[CheckResult]:
    registry = load()
    given: list[object] = [Question(python=None), *([launch_of(launch)] if launch else [])]
    host = read(json.dumps(machine.document)).host
    return run([registry.checks[check]], Subject("host", registry, host=host, given=given))


@pytest.mark.parametrize(
    ("check", "change", "launch"),
    CASES,
    ids=[f"{check}-{number}" for number, (check, _, _) in enumerate(CASES)],
)
def test_cured_by_the_next_start(
    check: str, change: Change, launch: tuple[str, ...], tmp_path: object
) -> None:
    machine = Machine()
    change(machine)
    before = copy.deepcopy(machine.value("environ")["variables"])
    findings = [finding for row in results(machine, check, launch) for finding in row.findings]
    (group,) = groups(findings, unsafe=True, here=())
    assert group.state == "start"
    actions = [action for action in group.fix.actions if isinstance(action, SetVariable)]
    assert len(actions) == len(group.fix.actions)
    for action in actions:
        machine.variable(action.name, action.value)
    again = results(machine, check, launch)
    applying = Applying(str(tmp_path), "2026-01-01T00:00:00Z", [], Drafts())
    judged = applying.judge(Outcome(group=group, result="applied"), again)
    assert (judged.result, judged.why) == ("cured", None)
    assert {row.outcome for row in again} == {"passed"}
    names = {action.name for action in actions}
    after = machine.value("environ")["variables"]
    assert {n: v for n, v in after.items() if n not in names} == {
        n: v for n, v in before.items() if n not in names
    }


def test_cuda_starts_without_the_variable() -> None:
    """cuda-init-failed: what the driver answers then is recorded beside what it answers now."""
    machine = Machine()
    machine.variable("CUDA_VISIBLE_DEVICES", "0")
    whole = machine.value("cuda")
    machine.say("cuda", {**whole, "code": 0, "step": "the end"}, without=["CUDA_VISIBLE_DEVICES"])
    whole.update(code=100, step="cuInit", count=None)
    (row,) = results(machine, "cuda-init-failed", ())
    (group,) = groups(row.findings, unsafe=True, here=())
    assert (group.state, group.fix.id) == ("start", "unset-visible-devices")
    machine.variable("CUDA_VISIBLE_DEVICES", None)
    whole.update(code=0, step="the end", count=2)
    (row,) = results(machine, "cuda-init-failed", ())
    assert (row.outcome, row.findings) == ("passed", ())
