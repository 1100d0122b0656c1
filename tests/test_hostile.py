"""What strangers and accidents hand in: command lines with secrets, odd files, odd values."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from doctor_process import COMMAND, Run
from machine import DOCUMENT, Machine

from infer_doctor.cli import run as command_line
from infer_doctor.engine import Subject
from infer_doctor.launch.command import read as launch_of
from infer_doctor.redact import without_secrets
from infer_doctor.registry import load
from infer_doctor.render.plain import plain
from infer_doctor.versions import release


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (
            "vllm serve m --api-key one two --port 1",
            "vllm serve m --api-key <token> <token> --port 1",
        ),
        (
            "vllm serve m --hf-token=x --max-num-batched-tokens 8192",
            "vllm serve m --hf-token=<token> --max-num-batched-tokens 8192",
        ),
        (
            "docker run -e HF_TOKEN=x --env VLLM_API_KEY=y image",
            "docker run -e HF_TOKEN=<token> --env VLLM_API_KEY=<token> image",
        ),
        ("docker run -eHF_TOKEN=x -eA=b image", "docker run -eHF_TOKEN=<token> -eA=b image"),
        (
            "vllm serve m --ssl-keyfile-password pw --ssl-keyfile f",
            "vllm serve m --ssl-keyfile-password <token> --ssl-keyfile f",
        ),
    ],
)
def test_a_launch_is_shown_without_its_secrets(command: str, shown: str) -> None:
    assert without_secrets(command.split()) == shown.split()


def test_a_nested_command_too() -> None:
    shown = without_secrets(["bash", "-c", "HF_TOKEN=x vllm serve m --api-key y"])
    assert shown[2] == "HF_TOKEN=<token> vllm serve m --api-key <token>"


def test_no_secret_of_a_launch_in_any_report(tmp_path: Path) -> None:
    words = ("--", "env", "HF_TOKEN=tokInLaunch", "vllm", "serve", "m", "--api-key", "keyInLaunch")
    for form in ("text", "json"):
        said = Run(tmp_path)("check", "--select", "driver-missing", "--format", form, *words)
        assert "InLaunch" not in said.stdout + said.stderr
        assert "HF_TOKEN=<token>" in said.stdout or form == "json"


def test_secrets_of_proxies_and_user_names_stay_here(tmp_path: Path) -> None:
    planted = {
        "https_proxy": "joe:p4ssw0rdZ@proxy.corp:3128",
        "VLLM_NO_PROXY_PASS": "p4ssw0rdZZ",
        "VLLM_CACHE_ROOT": "/data/users/joeuser/c",
        "USER": "joeuser",
    }
    run = Run(tmp_path, planted)
    run("snapshot", "-o", "s.json")
    text = (run.home / "s.json").read_text() + run("check", "--format", "json").stdout
    assert "p4ssw0rdZ" not in text
    assert "joeuser" not in text


def visible(machine: Machine, *launch: str) -> dict[str, str]:
    return machine.errors(launch)


def test_the_launch_chooses_its_gpus_itself() -> None:
    gpu0 = Machine()
    first = gpu0.value("nvml")["gpus"][0]["MemoryInfo_v2"]
    first.update(used=first["free"] - (1 << 30), free=1 << 30)
    assert "gpu-memory-held" in visible(gpu0, "vllm", "serve", "m")
    assert visible(gpu0, "env", "CUDA_VISIBLE_DEVICES=1", "vllm", "serve", "m") == {}
    wrong = visible(Machine(), "CUDA_VISIBLE_DEVICES=7", "vllm", "serve", "m")
    assert list(wrong) == ["gpu-visible-devices-wrong"]


def test_a_choice_that_is_not_read_is_undecided(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(DOCUMENT))
    words = ["check", "--snapshot", str(path), "--select", "gpu-visible-devices-wrong"]
    assert command_line([*words, "--", "bash", "-c", "CUDA_VISIBLE_DEVICES=7 vllm serve m"]) == 1
    capsys.readouterr()
    hidden = "export CUDA_VISIBLE_DEVICES=$(cat x); vllm serve m"
    assert command_line([*words, "--", "bash", "-c", hidden]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "the launch sets CUDA_VISIBLE_DEVICES to $(cat x)" in said


def test_a_fifo_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    os.mkfifo(run.home / "ff")
    said = run("check", "--select", "driver-missing", "--output", "ff")
    assert said.returncode == 2
    assert len(said.stderr.splitlines()) == 1


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300", "0", "-1", "x"])
def test_a_time_that_is_none_is_wrong_usage(
    seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["check", "--timeout", seconds]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_message_never_obeys_what_it_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["check", "no\n\x1b[31msuch\u202e"]) == 2
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert plain("\x9b\u2066") == "\\x9b\\u2066"


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": Infinity}'])
def test_a_snapshot_that_is_no_json(text: str, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    assert command_line(["check", "--snapshot", str(path)]) == 2


@pytest.mark.parametrize(
    "value", [None, "xx", 7, [], {}, [None], {"gpus": "xx"}, {"gpus": [7]}, -1.5]
)
@pytest.mark.parametrize("operation", sorted({row["operation"] for row in DOCUMENT["captures"]}))
def test_values_of_another_form_crash_nothing(operation: str, value: Any) -> None:
    machine = Machine()
    for row in machine.rows(operation):
        row["value"] = {**row.get("value", {}), **dict.fromkeys(row.get("value", {}), value)}
    registry = load()
    from infer_doctor.snapshot import read

    host = read(json.dumps(machine.document)).host
    given = [launch_of(["vllm", "serve", "m"])]
    from infer_doctor.engine import run
    from infer_doctor.facts.environment import Question

    subject = Subject(
        "host", registry, host=host, given=[Question(python=None), *given], replayed=True
    )
    results = run(registry.checks.values(), subject)
    assert [(row.check, row.reason) for row in results if row.outcome == "crashed"] == []


def test_a_driver_version_that_is_none_is_undecided() -> None:
    machine = Machine()
    machine.value("nvml")["driver"] = "abc"
    assert "driver-too-old" not in machine.errors()
    assert release("580.65.06-open") == (580, 65, 6)


def test_nothing_to_write_to_keeps_the_code(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [COMMAND, "check", "nope"], stderr=full, env=run.environment(), cwd=run.home
        )
    assert ended.returncode == 2


def test_a_name_that_is_no_utf_8_is_no_fault_of_ours(tmp_path: Path) -> None:
    command = [
        COMMAND,
        "check",
        "--format",
        "json",
        "--",
        b"vllm",
        b"serve",
        b"/m\xff",
        b"--zz\xff=1",
    ]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, timeout=60)
    outcomes = {row["check"]: row["outcome"] for row in json.loads(done.stdout)["results"]}
    assert any(b"zz" in line for line in done.stdout.splitlines())
    assert [id for id, outcome in outcomes.items() if outcome == "crashed"] == []
