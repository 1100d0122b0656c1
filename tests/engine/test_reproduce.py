"""All five failures on a real vLLM for the CPU, and none where nothing is wrong.

Starts take most of the time, so each is used for all it shows: kept runs are replayed with other limits.
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import perturbed_model
import pytest
from doctor_process import COMMAND, Run

from infer_doctor.runs import answers, tiny
from infer_doctor.runs.prompts import built_in
from infer_doctor.runs.quality import compare

pytestmark = pytest.mark.engine

GIB = 1 << 30
SHAPE = tiny.Shape(context=1 << 22)
LONG = 1_500_000
"""Tokens: 1.4 GiB of the tiny model's cache; one GiB is given."""

HANG_S = 900.0
TOKENS = 24
SMALL = ("--max-model-len", "8192", "--enforce-eager", "--gpu-memory-utilization", "0.3")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    tiny.write(str(folder), SHAPE)
    return folder


def words(engine: Path, model: Path, *more: str) -> list[str]:
    return [f"{engine}/bin/python", "-m", "vllm.entrypoints.cli.main", "serve", str(model), *more]


def run(engine: Path, home: Path) -> Run:
    variables = {
        "PATH": f"{engine}/bin:/usr/bin:/bin",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return Run(home, variables)


def reproduced(run: Run, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [COMMAND, "reproduce", "--format", "json", *arguments],
        env=run.environment(),
        cwd=run.home,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def found(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The first finding of each check, which is the gravest."""
    rows: dict[str, dict[str, Any]] = {}
    for result in report["results"]:
        for row in result["findings"]:
            rows.setdefault(row["check"], row)
    return rows


def test_the_boundary_of_the_context(engine: Path, model: Path, tmp_path: Path) -> None:
    """The truth is the cache's size over the bytes of a token, less the engine's null block."""
    kept = str(tmp_path / "kept")
    launch = words(engine, model, "--max-model-len", str(LONG), *SMALL[2:])
    code, report = reproduced(run(engine, tmp_path), "oom", "--keep", kept, "--", *launch)
    rows = found(report)
    assert code == 1
    assert rows["log-engine-failed"]["category"] == "oom_kv_cache"
    assert rows["run-memory-boundary"]["category"] == "oom_kv_cache"
    starts = report["measurements"]["starts"]
    assert [row["ready"] for row in starts] == [False, True, False]
    works, fails = (int(row["label"].split()[1]) for row in starts[1:])
    truth = GIB // SHAPE.kv_bytes_per_token
    assert works <= truth < fails
    assert (fails - works) / truth <= 0.02 and (truth - works) / truth <= 0.02
    again, replayed = reproduced(Run(tmp_path), "oom", "--replay", kept)
    assert again == 1
    assert {id: row["message"] for id, row in found(replayed).items()} == {
        id: row["message"] for id, row in rows.items()
    }


def test_more_memory_than_the_machine_has(engine: Path, model: Path, tmp_path: Path) -> None:
    runner = run(engine, tmp_path)
    runner = Run(tmp_path, {**runner.variables, "VLLM_CPU_KVCACHE_SPACE": "4000"})
    code, report = reproduced(runner, "oom", "--", *words(engine, model, *SMALL))
    assert code == 1
    cause = found(report)["log-engine-failed"]
    assert cause["category"] == "host_ram" and "4000" in cause["message"].replace(",", "")
    assert len(report["measurements"]["starts"]) == 1


def test_a_broken_checkpoint(engine: Path, model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100_000])
    launch = words(engine, broken, *SMALL)
    code, report = reproduced(run(engine, tmp_path), "engine-load", "--", *launch)
    assert code == 1
    assert found(report)["log-engine-failed"]["category"] in ("weights_corrupt", "model_files")


def test_cold_and_warm(engine: Path, model: Path, tmp_path: Path) -> None:
    """A healthy launch is no failure; the same run against a limit is one."""
    kept = str(tmp_path / "kept")
    launch = words(engine, model, *SMALL)
    code, report = reproduced(run(engine, tmp_path), "cold-start", "--keep", kept, "--", *launch)
    times = report["measurements"]["cold_starts"]
    assert set(times) == {"cold, eager", "warm, eager"}
    assert all(row["seconds_to_ready"] and row["phases"] for row in times.values())
    cold, warm = (row["seconds_to_ready"] for row in times.values())
    saved = cold - warm
    assert code == 0
    assert ("run-start-slow" in found(report)) == (saved >= max(10.0, cold / 10))
    late, judged = reproduced(Run(tmp_path), "cold-start", "--replay", kept, "--limit", "2")
    assert late == 1
    slow = found(judged)["run-start-slow"]
    assert slow["severity"] == "error" and "the limit is 2 s. Most of it:" in slow["message"]


def test_a_queue_and_a_healthy_server(engine: Path, model: Path, tmp_path: Path) -> None:
    """Two at once run; the client's limit lies between what two and what eight at once take."""
    # On one CPU: with all of them its processes keep the client waiting, more than the queue does.
    launch = ["taskset", "-c", "0", *words(engine, model, *SMALL, "--max-num-seqs", "2")]
    kept = str(tmp_path / "kept")
    arguments = ("--tokens", "200", "--most", "32", "--limit", "600", "--first-token", "2.5")
    code, report = reproduced(
        run(engine, tmp_path), "timeout", *arguments, "--keep", kept, "--", *launch
    )
    rows = found(report)
    ramp = report["measurements"]["ramp"]
    assert code == 1, ramp
    assert rows["run-load-late"]["category"] == "queueing", ramp
    assert ramp["safe"] >= 2
    assert ramp["broken"]["queue_mean"] >= 0.3 * ramp["broken"]["ttft_mean"]
    assert any("--max-num-seqs" in fix["title"] for fix in report["fixes"])


PENALTY = '--override-generation-config {"repetition_penalty": 1.3}'


@pytest.mark.parametrize(
    ("options", "cause", "cure", "said"),
    [
        (
            ("--dtype", "bfloat16", *PENALTY.split(" ", 1), "--seed", "3"),
            f"{PENALTY} (baseline: not given)",
            f"without {PENALTY}",
            "tokens that were not the most likely",
        ),
        (
            ("--chat-template", "TEMPLATE", "--dtype", "bfloat16", "--seed", "3"),
            "--chat-template TEMPLATE (baseline: not given)",
            "without --chat-template TEMPLATE",
            "nats",
        ),
    ],
)
def test_the_one_of_three_differences_that_is_the_cause(
    engine: Path,
    model: Path,
    tmp_path: Path,
    options: tuple[str, ...],
    cause: str,
    cure: str,
    said: str,
) -> None:
    """The candidate has a sampling default, or a template of its own, and two options that change nothing."""
    template = tmp_path / "own.jinja"
    template.write_text("{% for m in messages %}<<{{ m['role'] }}>> {{ m['content'] }}{% endfor %}")
    line = words(engine, model, *SMALL, "--max-num-seqs", "8")
    other = [*line, *(word.replace("TEMPLATE", str(template)) for word in options)]
    for name, launch in (("baseline", line), ("candidate", other)):
        (tmp_path / f"{name}.sh").write_text(
            f"export VLLM_CPU_KVCACHE_SPACE=1\n{shlex.join(launch)}\n"
        )
    asked = [prompt for prompt in built_in() if prompt.kind != "long"][::2]
    rows = [json.dumps({"id": prompt.id, "prompt": prompt.text}) for prompt in asked]
    (tmp_path / "prompts.jsonl").write_text("\n".join(rows))
    done = subprocess.run(
        [
            *(COMMAND, "compare", "baseline.sh", "candidate.sh", "--format", "json"),
            *("--prompts", "prompts.jsonl", "--tokens", str(TOKENS)),
        ],
        env=run(engine, tmp_path).environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads(done.stdout)
    quality = report["measurements"]["quality"]
    assert quality["cause"] == cause.replace("TEMPLATE", str(template)), quality
    assert quality["cure"] == cure.replace("TEMPLATE", str(template))
    assert said in found(report)["run-quality-degraded"]["message"]
    assert quality["tried"][-1].startswith(f"{quality['cure']}: same")


@pytest.fixture(scope="module")
def sides(
    engine: Path, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, answers.Answers]:
    """The baseline twice, a perturbed model and one of truncated precision: one start each."""
    home = tmp_path_factory.mktemp("sides")
    perturbed_model.perturbed(model, home / "perturbed", 0.1)
    perturbed_model.truncated(model, home / "truncated", 1)
    for name in ("baseline", "perturbed", "truncated"):
        folder = model if name == "baseline" else home / name
        line = " ".join(words(engine, folder, *SMALL, "--max-num-seqs", "8"))
        (home / f"{name}.sh").write_text(f"export VLLM_CPU_KVCACHE_SPACE=1\n{line}\n")
    codes = {}
    for name in ("perturbed", "truncated"):
        first = "baseline.sh" if name == "perturbed" else "kept-perturbed/baseline.json"
        done = subprocess.run(
            [
                COMMAND,
                "compare",
                first,
                f"{name}.sh",
                "--tokens",
                str(TOKENS),
                "--keep",
                f"kept-{name}",
            ],
            env=run(engine, home).environment(),
            cwd=home,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        codes[name] = done.returncode
        assert done.returncode == 1, done.stdout + done.stderr
        assert "run-quality-degraded" in done.stdout
    kept = home / "kept-perturbed"
    return {
        "baseline": answers.read(str(kept / "baseline.json")),
        "again": answers.read(str(kept / "again.json")),
        "perturbed": answers.read(str(kept / "candidate.json")),
        "truncated": answers.read(str(home / "kept-truncated" / "candidate.json")),
    }


def test_a_perturbed_model_is_told(sides: dict[str, answers.Answers]) -> None:
    """20 seeds choose the prompts; the same servers."""
    for name in ("perturbed", "truncated"):
        told = 0
        for seed in range(20):
            prompts = random.Random(seed).sample(built_in(), 60)
            found = compare(prompts, sides["baseline"], sides[name], again=sides["again"])
            told += found.verdict == "degraded"
        assert told >= 19, name


def test_the_same_model_twice_is_never_degraded(sides: dict[str, answers.Answers]) -> None:
    for seed in range(20):
        prompts = random.Random(seed).sample(built_in(), 60)
        found = compare(prompts, sides["baseline"], sides["again"])
        assert found.verdict != "degraded", found


def test_a_killed_doctor_leaves_no_engine(engine: Path, model: Path, tmp_path: Path) -> None:
    """kill -9 at five moments of a start of the real engine."""
    launch = words(engine, model, *SMALL)
    for number, moment in enumerate((1.0, 4.0, 8.0, 13.0, 20.0)):
        home = tmp_path / str(number)
        home.mkdir()
        runner = run(engine, home)
        doctor = subprocess.Popen(
            [
                COMMAND,
                "reproduce",
                "timeout",
                "--most",
                "64",
                "--tokens",
                "2000",
                "--limit",
                "600",
                "--",
                *launch,
            ],
            env=runner.environment(),
            cwd=home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(moment)
        session = marked(runner.mark)
        doctor.kill()
        doctor.wait()
        began = time.monotonic()
        while left := [pid for pid in marked(runner.mark) | session if lives(pid)]:
            assert time.monotonic() - began < 60, left
            time.sleep(0.1)


def marked(mark: str) -> set[int]:
    """Processes with the mark of a run, and everything below them (a title overwrites the mark)."""
    table: dict[int, int] = {}
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            table[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if mark.encode() in (entry / "environ").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    while more := {pid for pid, parent in table.items() if parent in found} - found:
        found |= more
    return found


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
