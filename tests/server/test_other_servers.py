"""Engines, gateways and services that answer otherwise than vLLM: healthy ones stay healthy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from doctor_process import Run
from other_servers import HEALTHY, SICK, Api
from sick_server import Handler, serve

KEY = "sk-own-0123456789abcdef"


def probed(folder: Path, handler: Handler, *words: str) -> tuple[dict[str, Any], int]:
    """The report and the exit code; a key is there when the server wants one."""
    keyed = isinstance(handler, Api) and handler.key is not None
    prefix = handler.prefix.removesuffix("/v1") if isinstance(handler, Api) else ""
    with serve(handler) as port:
        run = Run(folder, {"OPENAI_API_KEY": KEY} if keyed else {})
        url = f"http://127.0.0.1:{port}{prefix}"
        done = run("probe", "--format", "json", "--timeout", "5", url, *words)
    assert KEY not in done.stdout
    report = json.loads(done.stdout)
    assert not [row for row in report["results"] if row["outcome"] == "crashed"]
    return report, done.returncode


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy(name: str, tmp_path: Path) -> None:
    report, code = probed(tmp_path, HEALTHY[name])
    counts = report["counts"]
    assert (counts["error"], counts["warning"], code) == (0, 0, 0), report["primary"]
    (facts,) = report["facts"].values()
    assert len(facts["Answers"]["exchanges"]) <= 8


@pytest.mark.parametrize("name", SICK)
def test_sick(name: str, tmp_path: Path) -> None:
    handler, check, words = SICK[name]
    report, code = probed(tmp_path, handler)
    if check is None:
        assert (report["verdict"], code, report["primary"]) == ("unknown", 3, None)
        return
    assert (report["primary"]["check"], code) == (check, 1)
    assert words in report["primary"]["message"]


def test_a_measurement_speaks_as_the_probe_learned(tmp_path: Path) -> None:
    report, code = probed(tmp_path, HEALTHY["newer openai"], "--requests", "3")
    (level,) = report["measurements"]["load"]["levels"]
    assert (level["failed"], code) == ({}, 0)
