"""What the file of vLLM's --config sets is in force, below what the command line says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import standin_engine
from doctor_process import Run

LAUNCH = ("--", "vllm", "serve", "--config", "own.yaml")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    path = standin_engine.program(tmp_path / "bin")
    return Run(tmp_path, {"PATH": f"{path}:/usr/bin:/bin"})


def test_an_eager_launch_is_not_measured_as_one_with_graphs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("model: m\nenforce_eager: true\n")
    done = run("reproduce", "cold-start", "--format", "json", *LAUNCH)
    assert set(json.loads(done.stdout)["measurements"]["cold_starts"]) == {
        "cold, eager",
        "warm, eager",
    }


@pytest.mark.parametrize(("line", "added"), [("", True), ("load-format: gguf\n", False)])
def test_the_format_of_its_weights_stays(line: str, added: bool, run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(f"model: m\n{line}")
    run("reproduce", "oom", "--keep", "kept", *LAUNCH)
    (log,) = (tmp_path / "kept").glob("*.log")
    assert ("'--load-format', 'dummy'" in log.read_text()) is added


def test_how_many_run_at_once(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("model: m\nmax-num-seqs: 2\n")
    words = ("reproduce", "timeout", "--most", "1", "--tokens", "2", "--format", "json")
    for more, most in (((), 2), (("--max-num-seqs=3",), 3)):
        done = run(*words, *LAUNCH, *more)
        assert json.loads(done.stdout)["measurements"]["ramp"]["max_num_seqs"] == most


@pytest.mark.parametrize("words", [("reproduce", "engine-load", *LAUNCH), ("compare", "s", "s")])
def test_what_no_option_takes_back(words: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    """With TLS nobody would answer until --wall."""
    (tmp_path / "own.yaml").write_text("model: m\nssl_keyfile: key.pem\n")
    (tmp_path / "s.sh").write_text("vllm serve --config own.yaml\n")
    done = run(*(f"{word}.sh" if word == "s" else word for word in words))
    assert done.returncode == 2 and "sets ssl_keyfile" in done.stderr


def test_a_model_folder_against_a_launch_has_the_engine_of_the_launch(
    run: Run, tmp_path: Path
) -> None:
    """`vllm` itself is no interpreter."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    words = ("reproduce", "quality", "--against", "other", "--python", "/nowhere/python")
    done = run(*words, "--", "vllm", "serve", "m")
    assert done.returncode == 2 and "/nowhere/python" in done.stderr


def test_one_of_several_launches_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.sh").write_text("vllm serve m &\nvllm serve n\n")
    done = run("compare", "s.sh", "s.sh", "--tokens", "2", "--format", "json")
    quality = json.loads(done.stdout)["measurements"]["quality"]
    assert quality["candidate"] == "s.sh (the first of its 2 launches)"
