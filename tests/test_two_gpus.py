"""Two real H200 with planted faults: what is said before the start, and what of the engine's log.

`tests/cases/two-gpus/FAULT` holds the machine's snapshot (taken with --deep while the fault was there)
and the log of the start of vLLM 0.26.0 that followed, with paths and serials replaced.
docs/verified-on.md tells how they were made.
"""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).parent / "cases" / "two-gpus"

LAUNCH = ("vllm", "serve", "/models/llama-3.2-1b", "--enforce-eager", "--max-model-len", "8192")
NO_WEIGHTS = ("--load-format", "dummy", "--skip-tokenizer-init")
"""The model was a configuration alone, its weights made up at load."""

BEFORE = {
    "healthy": ("healthy", 2, set()),
    "p2p-disabled": ("p2p-disabled", 2, {"nccl-not-direct"}),
    "shm-small": ("shm-small", 2, {"container-shm-small"}),
    "gpu-held": ("gpu-held", 2, {"gpu-memory-held"}),
    "visible-one": ("visible-one", 2, {"launch-gpus-too-few"}),
    "too-many-ranks": ("healthy", 3, {"launch-gpus-too-few", "launch-tp-indivisible"}),
}
"""Fault -> whose snapshot, tensor parallel size, the checks that name it."""

OTHERS = {"env-requirement-broken"}
"""True on that machine in each case: numba was of another version than vLLM 0.26.0 pins."""

AFTER = {
    "shm-small": None,
    "p2p-disabled": None,
    "gpu-held": ("oom_startup_free_mem", 43),
    "visible-one": ("gpu_count_ray", 22),
    "too-many-ranks": ("gpu_count_ray", 22),
}
"""Fault -> category and line of the cause; None where the engine came up all the same."""


def doctor(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "infer_doctor", words[0], "--format", "json", *words[1:]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("fault", BEFORE)
def test_before_the_start(fault: str, tmp_path: Path) -> None:
    machine, ranks, wanted = BEFORE[fault]
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_bytes(lzma.decompress((CASES / machine / "snapshot.json.xz").read_bytes()))
    launch = (*LAUNCH, *NO_WEIGHTS, "--tensor-parallel-size", str(ranks))
    report = doctor("check", "--deep", "--snapshot", str(snapshot), "--", *launch)
    findings = [finding for row in report["results"] for finding in row["findings"]]
    serious = {row["check"] for row in findings if row["severity"] in ("error", "warning")}
    assert serious - OTHERS == wanted
    assert not [row for row in report["results"] if row["outcome"] == "crashed"]


@pytest.mark.parametrize("fault", AFTER)
def test_from_the_log(fault: str) -> None:
    report = doctor("diagnose", str(CASES / fault / "engine.log"))
    wanted = AFTER[fault]
    if wanted is None:
        assert report["primary"] is None
        return
    primary = report["primary"]
    assert (primary["category"], primary["evidence"][0]["line"]) == wanted


def test_a_worker_that_was_killed_leaves_no_cause_in_the_log() -> None:
    """Not what the core raised next: the line where the worker was missed, and what to send."""
    report = doctor("diagnose", str(CASES / "worker-killed" / "engine.log"))
    assert report["primary"] is None
    reason = next(r["reason"] for r in report["results"] if r["check"] == "log-engine-failed")
    assert "engine.log:35 " in reason
    assert "dmesg" in reason
