"""What two launches have otherwise, and which of it is the cause."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import standin_engine
from doctor_process import Run

from infer_doctor.facts.run import Quality
from infer_doctor.runs.starting import Plan
from infer_doctor.runs.switching import MOST, differences, find_cause, parts, removable, taken_out
from infer_doctor.runs.words import NoRun

WORSE = Quality(
    baseline="a", candidate="b", prompts=110, compared=110, verdict="degraded", reasons=("worse",)
)


def plan(line: str, **variables: str) -> Plan:
    return Plan(words=tuple(line.split()), variables=variables, folder="/", logs="/")


@pytest.mark.parametrize(
    ("baseline", "candidate", "cause", "cure", "undone"),
    [
        (
            "vllm serve m --port 1",
            "vllm serve m --dtype float16 --port 2",
            "--dtype float16 (baseline: not given)",
            "without --dtype float16",
            "vllm serve m --port 2",
        ),
        (
            "vllm serve m --dtype=bfloat16",
            "vllm serve m --dtype float16",
            "--dtype float16 (baseline: --dtype bfloat16)",
            "with --dtype bfloat16 instead of --dtype float16",
            "vllm serve m --dtype bfloat16",
        ),
        (
            "vllm serve m --chat-template t.jinja --seed -1",
            "vllm serve m --seed -1",
            "the lack of --chat-template t.jinja",
            "with --chat-template t.jinja",
            "vllm serve m --seed -1 --chat-template t.jinja",
        ),
        (
            "vllm serve m -q fp8",
            "vllm serve m-awq --quantization fp8 -tp 2",
            "the model m-awq (baseline: the model m)",
            "with the model m instead of m-awq",
            "vllm serve m --quantization fp8 -tp 2",
        ),
        (
            "/old/bin/python -m vllm.entrypoints.openai.api_server --model m",
            "/new/bin/python -m vllm.entrypoints.openai.api_server --model m",
            "the program /new/bin/python -m vllm.entrypoints.openai.api_server (baseline: "
            "the program /old/bin/python -m vllm.entrypoints.openai.api_server)",
            "with the program /old/bin/python -m vllm.entrypoints.openai.api_server instead of "
            "/new/bin/python -m vllm.entrypoints.openai.api_server",
            "/old/bin/python -m vllm.entrypoints.openai.api_server --model m",
        ),
        (
            "vllm serve m --enable-prefix-caching",
            "vllm serve m --no-enable-prefix-caching",
            "--no-enable-prefix-caching (baseline: --enable-prefix-caching)",
            "with --enable-prefix-caching instead of --no-enable-prefix-caching",
            "vllm serve m --enable-prefix-caching",
        ),
        (
            "vllm serve --enforce-eager m",
            "vllm serve --enforce-eager n",
            "--enforce-eager n (baseline: --enforce-eager m)",
            "with --enforce-eager m instead of --enforce-eager n",
            "vllm serve --enforce-eager m",
        ),
    ],
)
def test_a_difference(baseline: str, candidate: str, cause: str, cure: str, undone: str) -> None:
    found = differences(plan(baseline), plan(candidate))[0]
    assert (found.text, found.switched) == (cause, cure)
    assert " ".join(found.undone(plan(candidate)).words) == undone
    assert differences(plan(candidate), plan(candidate)) == []


def test_the_gravest_stands_first_and_secrets_nowhere() -> None:
    one = plan("vllm serve m --dtype auto", HF_TOKEN="hf_before12345", A="1")
    other = plan(
        "vllm serve n --max-num-seqs 4 --hf-overrides.rope_theta 9 --kv-cache-dtype fp8 "
        "--hf-token hf_abcdefgh1234 --api-key sk-1 sk-2",
        HF_TOKEN="hf_after123456",
        A="1",
        VLLM_USE_V1="0",
    )
    found = differences(one, other)
    names = [row.name for row in found]
    assert names[:4] == ["model", "kv-cache-dtype", "dtype", "hf-overrides.rope_theta"]
    assert set(names[4:]) == {"max-num-seqs", "hf-token", "HF_TOKEN", "VLLM_USE_V1"}
    told = " ".join(row.text + row.switched for row in found)
    assert "hf_" not in told.replace("hf_token", "") and "VLLM_USE_V1=0" in told
    back = found[-1].undone(other)
    assert "VLLM_USE_V1" not in back.variables and back.variables["A"] == "1"


@pytest.mark.parametrize("baseline", [True, False])
def test_the_cause_is_what_the_difference_goes_with(baseline: bool) -> None:
    """Of three differences the second is it, and the first cannot be undone."""
    one = plan("vllm serve m --max-num-seqs 8") if baseline else None
    other = plan("vllm serve m --max-num-seqs 8 --quantization fp8 --kv-cache-dtype fp8 --dtype x")
    started: list[str] = []

    def judge(name: str, tried: Plan) -> Quality:
        started.append(name)
        if "quantization" not in parts(tried.words):
            raise NoRun("the weights are of 8 bits")
        bad = "kv-cache-dtype" in parts(tried.words)
        return WORSE if bad else replace(WORSE, verdict="same", reasons=())

    found = find_cause(WORSE, one, other, judge, started.append)
    assert found.cause == "--kv-cache-dtype fp8 (baseline: not given)"
    assert found.cure == "without --kv-cache-dtype fp8"
    assert started[::2] == [
        "switching one thing: without --quantization fp8",
        "switching one thing: without --kv-cache-dtype fp8",
    ]
    assert found.tried == (
        "without --quantization fp8: the weights are of 8 bits",
        "without --kv-cache-dtype fp8: same",
    )


def ended(home: Path, *words: str) -> tuple[int, dict[str, Any]]:
    run = Run(home, {"PATH": f"{standin_engine.program(home / 'bin')}:/usr/bin:/bin"})
    done = run(words[0], "--format", "json", *words[1:])
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_both_commands_name_it(tmp_path: Path) -> None:
    """Answers without log probabilities, of a program that answers "!!!!" with an 8-bit cache."""
    launch = "vllm serve m --max-num-seqs 4 --dtype half --kv-cache-dtype fp8"
    (tmp_path / "one.sh").write_text("vllm serve m --max-num-seqs 8\n")
    (tmp_path / "other.sh").write_text(f"{launch}\n")
    code, report = ended(tmp_path, "compare", "one.sh", "other.sh", "--tokens", "2")
    quality = report["measurements"]["quality"]
    assert code == 1 and quality["cause"] == "--kv-cache-dtype fp8 (baseline: not given)"
    assert quality["tried"] == ["without --kv-cache-dtype fp8: same"]
    assert report["fixes"][0]["title"] == "Start without --kv-cache-dtype fp8"
    words = ("reproduce", "quality", "--tokens", "2")
    code, report = ended(tmp_path, *words, "--", *launch.split())
    assert code == 1 and report["measurements"]["quality"]["cure"] == "without --kv-cache-dtype fp8"
    code, report = ended(tmp_path, *words, "--", *launch.split()[:7])
    assert code == 0 and report["measurements"]["quality"]["verdict"] == "same"


def test_a_single_difference_needs_no_start_where_the_baseline_is_a_launch() -> None:
    def judge(name: str, tried: Plan) -> Quality:
        raise AssertionError(name)

    one, other = plan("vllm serve m"), plan("vllm serve m --dtype float16")
    found = find_cause(WORSE, one, other, judge, lambda text: None)
    assert found.cause.startswith("--dtype float16") and found.tried == ()


def test_only_so_many_starts() -> None:
    other = plan("vllm serve m " + " ".join(f"--option-{n} 1" for n in range(MOST + 3)))
    found = find_cause(WORSE, plan("vllm serve m"), other, lambda *_: WORSE, lambda text: None)
    assert found.cause == "" and len(found.tried) == MOST + 1
    assert found.tried[-1] == "3 more differences were not switched"


def test_what_can_be_taken_out() -> None:
    launch = plan("vllm serve m --dtype x --hf-overrides.a 1 --max-model-len 9 --enforce-eager")
    names = removable(launch)
    assert names == ["dtype", "hf-overrides.a"]
    left = taken_out(launch, names).words
    assert " ".join(left) == "vllm serve m --max-model-len 9 --enforce-eager"
