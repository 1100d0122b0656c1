"""`infer-doctor check FILE`: what a report of a file says, and that a snapshot is a target too."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infer_doctor._version import VERSION
from infer_doctor.cli import run
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.machine import Environ
from infer_doctor.host import Capture
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.snapshot import write
from infer_doctor.testing import examine

CAPTURES = Path(__file__).parent.parent / "captures"
H200 = (
    "h200/nvidia-smi-q.txt",
    "h200/nvidia-smi-q.xml",
    "h200/nvidia-smi.txt",
    "h200/torch-collect-env.txt",
    "h200/vllm-collect-env.txt",
    "h200-x2/nvidia-smi-q.txt",
    "h200-x2/nvidia-smi-q.xml",
    "h200-x2/torch-collect-env.txt",
    "cpu/vllm-collect-env.txt",
)


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    run(["check", "--format", "json", *words])
    captured = capsys.readouterr()
    assert captured.err == ""
    found: dict[str, Any] = json.loads(captured.out)
    return found


@pytest.mark.parametrize("name", H200)
def test_a_healthy_machine(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, str(CAPTURES / name))
    assert found["counts"]["error"] == 0
    assert found["counts"]["warning"] == 0
    assert found["counts"]["crashed"] == 0
    for row in found["results"]:
        if row["outcome"] == "blocked":
            assert row["reason"].endswith("not in this file") or any(
                word in row["reason"]
                for word in ("does not say", "shows only some", "lists only", "cannot be told")
            ), row


def test_a_dead_engine_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(CAPTURES / "h200/nvidia-smi-orphan-process.txt")
    found = report(capsys, file, "--select", "gpu-memory-held")
    (finding,) = found["results"][0]["findings"]
    assert finding["severity"] == "warning"
    assert "131.5 GiB of 140.4 GiB are held by VLLM::EngineCore (PID 4704)" in finding["message"]
    assert "about 129.2 GiB" in finding["message"]
    assert "at most 8.9 GiB are" in finding["message"]
    assert found["fixes"] == []
    run(["check", file, "--", "vllm", "serve", "m"])
    assert "FAIL" in capsys.readouterr().out


def test_a_share_that_the_table_cannot_tell(capsys: pytest.CaptureFixture[str]) -> None:
    """The same numbers with what is reserved give a share; out of the table it could be too big."""
    exact = report(capsys, str(CAPTURES / "foreign/q-535-4090-processes.txt"))
    assert [fix["id"] for fix in exact["fixes"]] == ["lower-utilisation"]
    table = report(capsys, str(CAPTURES / "foreign/table-510-a100-mig.txt"))
    assert table["counts"]["warning"] == 1
    assert table["fixes"] == []


def test_uncorrected_errors(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, str(CAPTURES / "foreign/table-610-b200.txt"))
    assert found["primary"]["check"] == "gpu-ecc-uncorrected"
    assert found["primary"]["evidence"][0]["source"] == "table-610-b200.txt"


def test_identifiers_that_a_report_does_not_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """UUIDs in CUDA_VISIBLE_DEVICES cannot be compared with a list that has none."""
    text = (CAPTURES / "h200/vllm-collect-env.txt").read_text()
    path = tmp_path / "env.txt"
    path.write_text(text.rstrip("\n") + "\nCUDA_VISIBLE_DEVICES=GPU-00000001\n\n")
    found = report(capsys, str(path), "--select", "gpu-visible-devices-wrong")
    assert found["results"][0]["outcome"] == "blocked"
    path.write_text(text.rstrip("\n") + "\nCUDA_VISIBLE_DEVICES=0,7\n\n")
    found = report(capsys, str(path), "--select", "gpu-visible-devices-wrong")
    assert found["results"][0]["outcome"] == "failed"


def test_an_absence_that_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A variable that is not in the report may be set: no check says that it cannot apply."""
    file = str(CAPTURES / "h200/vllm-collect-env.txt")
    found = report(capsys, file, "--select", "gpu-visible-devices-wrong")
    (row,) = found["results"]
    assert (row["outcome"], row["reason"]) == (
        "blocked",
        "vllm collect-env shows only some environment variables",
    )


@check("env-example-unset", severity="info", category="environment", since="0.1")
def _unset(environ: Environ) -> Iterator[Finding]:
    """An example.

    ## Why it matters
    ## How it decides
    ## Fix safety
    """
    if "EXAMPLE" not in environ.variables:
        raise NotApplicable("EXAMPLE is not set")
    yield Finding(about="EXAMPLE", message="set", evidence=(Evidence(source="environment"),))


def test_what_is_read_in_part_proves_no_absence() -> None:
    assert examine(_unset, Environ(variables={})).outcome == "not_applicable"
    part = Environ(variables={}, gaps=("only some are shown",))
    result = examine(_unset, part)
    assert (result.outcome, result.reason) == ("blocked", "only some are shown")


def test_a_snapshot_is_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variables = {"CUDA_VISIBLE_DEVICES": "0", "HF_TOKEN": "hf_abcdefghijklmnop"}
    captures = [
        Capture(operation="environ", arguments={}, version=1, value={"variables": variables})
    ]
    path = tmp_path / "host.json"
    path.write_text(
        write(captures, version=VERSION, created_at="2026-11-30T03:00:00Z", python=None)
    )
    as_target = report(capsys, str(path))
    as_option = report(capsys, "--snapshot", str(path))
    for found in (as_target, as_option):
        for key in ("started_at", "duration_s"):
            del found[key]
        for row in found["results"]:
            del row["duration_ms"]
    assert as_target == as_option
    assert as_target["redactions"] == [{"kind": "token", "count": 1}]
    assert as_target["target"]["host"]["subject"] == "host"
    smi = str(CAPTURES / "h200/nvidia-smi-q.txt")
    both = report(capsys, str(path), smi)
    assert set(both["facts"]) == {str(path), smi}
    assert both["redactions"] == [{"kind": "token", "count": 1}]
