"""TARGETs of `check`: what they are told apart by, whose facts judge them, what is refused."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from doctor_process import COMMAND, Run

from infer_doctor.targets import NoTarget, look

CASES = Path(__file__).parent.parent / "cases"
COMPOSE = str(CASES / "launch" / "compose-anchors.yaml")
SERVICE = str(CASES / "launch" / "vllm.service")
SCRIPT = str(CASES / "launch" / "serve-two-gpus.sh")
SNAPSHOT = str(CASES / "h200-x2" / "snapshot.json")


def report(tmp_path: Path, *words: str) -> dict[str, Any]:
    ended = Run(tmp_path)("check", "--format", "json", *words)
    assert ended.stderr == ""
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def subjects(found: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(row["subject"] for row in found["results"]))


def checks(found: dict[str, Any], subject: str) -> set[str]:
    return {row["check"] for row in found["results"] if row["subject"] == subject}


def test_each_launch_is_a_subject(tmp_path: Path) -> None:
    found = report(tmp_path, COMPOSE, SERVICE, "--", "vllm", "serve", "m")
    names = [f"{COMPOSE}: chat", f"{COMPOSE}: embed", SERVICE]
    assert subjects(found) == ["host", *names]
    assert "driver-missing" in checks(found, "host")
    for name in names:
        assert "driver-missing" not in checks(found, name)
        assert "launch-machine-unknown" in checks(found, name)
    infos = [f for row in found["results"] for f in row["findings"] if f["severity"] == "info"]
    assert sum(f["check"] == "launch-machine-unknown" for f in infos) == 3


def test_a_script_is_for_this_machine(tmp_path: Path) -> None:
    found = report(tmp_path, SCRIPT)
    first, second = subjects(found)
    assert first.endswith(".sh:3")
    assert "driver-missing" in checks(found, first)
    assert "driver-missing" not in checks(found, second)
    assert "container-shm-small" in checks(found, second)


def test_with_a_snapshot_its_gpus_are_those_of_the_launch(tmp_path: Path) -> None:
    found = report(tmp_path, COMPOSE, "--snapshot", SNAPSHOT)
    rows = [r for r in found["results"] if r["check"] == "launch-machine-unknown"]
    assert {row["outcome"] for row in rows if row["subject"] != "host"} == {"passed"}
    assert found["facts"][f"{COMPOSE}: chat"]["Gpus"]["gpus"][0]["name"] == "NVIDIA H200"


def test_checks_asked_for_by_name_run_where_nothing_is_known(tmp_path: Path) -> None:
    ended = Run(tmp_path)("check", "--select", "driver-missing", SERVICE)
    assert ended.returncode == 3
    assert "the machine that will run this launch is not known" in " ".join(ended.stdout.split())


def test_no_secret_of_a_file_leaves(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "services:\n  a:\n    image: vllm/vllm-openai\n    command: --model m --api-key planted-one\n"
        "    environment: {HF_TOKEN: planted-two}\n"
    )
    for form in ("text", "json"):
        said = Run(tmp_path)("check", "--format", form, str(path))
        assert "planted" not in said.stdout + said.stderr


def test_standard_input_and_pipes(tmp_path: Path) -> None:
    environment = Run(tmp_path).environment()
    ended = subprocess.run(
        f"cat {COMPOSE} | {COMMAND} check --format json -; {COMMAND} check <(cat {COMPOSE})",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        env=environment,
    )
    assert ended.stderr == ""
    assert "standard input: chat" in ended.stdout
    assert "/dev/fd/" in ended.stdout


@pytest.mark.parametrize("option", [["--python", "python3"], ["--deep"]])
def test_options_of_a_machine_are_refused_beside_a_file(tmp_path: Path, option: list[str]) -> None:
    facts = str(CASES.parent / "captures" / "h200" / "nvidia-smi-q.txt")
    for target in (SERVICE, facts):
        ended = Run(tmp_path)("check", *option, target)
        assert ended.returncode == 2
        assert ended.stderr.startswith(f"infer-doctor: {option[0]} asks")


def test_the_interpreter_is_used_for_a_script(tmp_path: Path) -> None:
    ended = Run(tmp_path)("check", "--python", "/no/such", SCRIPT)
    assert ended.stderr == "infer-doctor: --python /no/such: no such file\n"


def test_models_are_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "rank0.engine").write_bytes(b"x")
    for target, command in {
        str(tmp_path / "model"): ("vllm", "serve", str(tmp_path / "model")),
        "Qwen/Qwen3-8B": ("vllm", "serve", "Qwen/Qwen3-8B"),
        str(tmp_path / "engine"): ("trtllm-serve", str(tmp_path / "engine")),
    }.items():
        (launch,) = look(target).launches
        assert (launch.command, launch.machine, launch.kind) == (command, "local", "command")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"hello\n", "is no file that infer-doctor knows"),
        ("x.yaml", b"a: 1\n\tb: 2\n", "x.yaml:2: "),
        ("big.yaml", b"services:\n" + b"  # x\n" * 9_000_000, "are too many for YAML"),
        ("x.service", b"[Service]\nExecStart=/bin/true\n", "a systemd unit that starts neither"),
    ],
)
def test_what_cannot_be_examined_is_one_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(NoTarget) as raised:
        look(str(path))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_names_that_are_no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for target in ("configs/engine.yaml", "missing.sh", "a/b/c", os.fspath(tmp_path)):
        with pytest.raises(NoTarget):
            look(target)
