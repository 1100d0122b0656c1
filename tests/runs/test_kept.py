"""A kept run tells the same again, without the engine that made it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from doctor_process import Run

CASE = Path(__file__).parents[1] / "cases" / "runs" / "oom-kv-cpu"


def test_a_boundary_of_a_real_engine(tmp_path: Path) -> None:
    """vLLM 0.32 for the CPU: 1 GiB of cache, 1,500,000 tokens asked for."""
    run = Run(tmp_path)
    report = json.loads(run("reproduce", "oom", "--replay", str(CASE), "--format", "json").stdout)
    rows = {f["check"]: f for result in report["results"] for f in result["findings"]}
    assert report["verdict"] == "fail"
    assert rows["log-engine-failed"]["category"] == "oom_kv_cache"
    assert (
        "starts with 1048448 and not with 1064160, 1.5 % apart, in 3 starts"
        in rows["run-memory-boundary"]["message"]
    )
    assert [row["ready"] for row in report["measurements"]["starts"]] == [False, True, False]


def test_what_it_does_not_hold_is_said(tmp_path: Path) -> None:
    run = Run(tmp_path)
    other = run("reproduce", "timeout", "--replay", str(CASE))
    assert other.returncode == 2 and "holds a run of oom" in other.stderr
    none = run("reproduce", "oom", "--replay", str(tmp_path))
    assert none.returncode == 2 and "run.json" in none.stderr
    less = tmp_path / "less"
    shutil.copytree(CASE, less)
    whole = json.loads((less / "run.json").read_text())
    whole["starts"] = whole["starts"][:1]
    (less / "run.json").write_text(json.dumps(whole))
    cut = run("reproduce", "oom", "--replay", str(less))
    assert cut.returncode == 2
    whole |= {"question": "timeout", "starts": [], "data": {"ramp": {"steps": [{}]}}}
    (less / "run.json").write_text(json.dumps(whole))
    ramp = run("reproduce", "timeout", "--replay", str(less))
    assert ramp.returncode == 2 and "holds no ramp" in ramp.stderr
    assert "--max-model-len 1048448 was not started in this run" in cut.stderr
    (less / "run.json").write_text('{"form": 1}')
    broken = run("reproduce", "oom", "--replay", str(less))
    assert broken.returncode == 2 and "holds no run" in broken.stderr


def test_a_launch_that_nobody_can_start(tmp_path: Path) -> None:
    run = Run(tmp_path)
    nowhere = run("reproduce", "engine-load", "--", "vllm", "serve", "model")
    assert nowhere.returncode == 2 and "vllm is not on PATH" in nowhere.stderr
    other = run("reproduce", "engine-load", "--", "sleep", "1")
    assert other.returncode == 2 and "starts neither vLLM nor TensorRT-LLM" in other.stderr
    url = run("reproduce", "oom", "http://127.0.0.1:1")
    assert url.returncode == 2 and "only timeout takes the URL" in url.stderr
    dead = run("reproduce", "timeout", "http://127.0.0.1:1")
    assert dead.returncode == 2 and "does not answer" in dead.stderr


def test_memory_of_gpus_is_in_the_report(tmp_path: Path) -> None:
    """Indexes as numbers could not be masked: seen on a machine with two GPUs only."""
    folder = tmp_path / "gpus"
    shutil.copytree(CASE, folder)
    whole = json.loads((folder / "run.json").read_text())
    whole["starts"][1]["gpu_peak"] = {"0": 15 << 30, "1": 0}
    (folder / "run.json").write_text(json.dumps(whole))
    run = Run(tmp_path)
    text = run("reproduce", "oom", "--replay", str(folder)).stdout
    assert "7.8 GiB of host memory, 15.0 GiB of GPU 0\n" in text
    report = json.loads(run("reproduce", "oom", "--replay", str(folder), "--format", "json").stdout)
    (facts,) = report["facts"].values()
    assert facts["Starts"]["rows"][1]["gpu_peak"] == {"0": 15 << 30, "1": 0}
