"""`--engine NAME==VERSION` on the command line, and which version judges a container's launch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from doctor_process import Run

from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.engine_options import EngineQuestion
from infer_doctor.facts.vllm_options import VllmTable, vllm_hash, vllm_sources, vllm_table
from infer_doctor.host import Capture, Host
from infer_doctor.launch.command import read
from infer_doctor.launch.images import engine_release
from infer_doctor.launch.model import Container, Launch, Place
from infer_doctor.vllm_arguments.table import catalogue

IDS = "launch-argument-*"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(home=tmp_path)


def checked(run: Run, *words: str) -> dict[str, Any]:
    done = run("check", "--format", "json", "--select", IDS, *words)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_version_that_is_asked_for_judges(run: Run) -> None:
    line = ["--", "vllm", "serve", "m", "--guided-decoding-backend", "xgrammar"]
    assert checked(run, "--engine", "vllm==0.10.0", *line)["verdict"] == "pass"
    report = checked(run, "--engine", "vllm==0.32.0", *line)
    assert report["verdict"] == "fail"
    assert report["primary"]["check"] == "launch-argument-removed"
    assert report["primary"]["confidence"] == "certain"


@pytest.mark.parametrize("words", ["vlm==1.0", "vllm", "vllm>=0.9", "vllm==", "vllm==latest"])
def test_what_is_no_version_is_wrong_usage(run: Run, words: str) -> None:
    done = run("check", "--engine", words, "--", "vllm", "serve", "m")
    assert done.returncode == 2
    assert "is not like vllm==" in done.stderr


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.9.2", "0.9.2"),
        ("registry.example:5000/team/vllm-openai:v0.8.5.post1-cu118", "0.8.5.post1"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai@sha256:00", None),
        ("python:3.12", None),
        ("myvllm/server:2024.01", None),
        ("vllm/vllm-openai-cpu:v0.20.1-arm64", "0.20.1"),
        ("nvcr.io/nvidia/vllm:25.09-py3", None),
        ("lmcache/vllm-openai:v0.4.3", None),
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.4.1", None),
        ("someone/vllm-router:0.7.2", None),
    ],
)
def test_tags_of_images(image: str, version: str | None) -> None:
    assert engine_release(image) == version


def table(launch: Launch, **given: Any) -> VllmTable:
    host, engine = given.get("host"), given.get("engine")
    sources = vllm_sources(host, engine, vllm_hash(host, engine)) if host and engine else None
    return vllm_table(launch, sources, engine, given.get("question"))


def elsewhere(image: str | None) -> Launch:
    place = Place(file="compose.yaml", line=3)
    return Launch(
        name="compose.yaml: vllm",
        kind="compose",
        machine="another",
        engine="vllm",
        entry="serve",
        place=place,
        container=Container(platform="compose", name="vllm", image=image, place=place),
    )


HERE = EngineFact(
    name="vllm", version="0.32.0", distribution="vllm", package="/site/vllm", build="cuda"
)


def answers(digest: str | None) -> Host:
    value = None if digest is None else {"sha256": digest, "files": 44}
    error = {"code": "EACCES", "message": "Permission denied"} if digest is None else None
    arguments = {"package": "/site/vllm"}
    capture = Capture(
        operation="vllm_digest", arguments=arguments, version=1, value=value, error=error
    )
    return Host([capture])


def test_this_machine_s_engine_never_judges_another_s_launch() -> None:
    found = table(elsewhere("vllm/vllm-openai:v0.9.2"), engine=HERE, host=answers("00"))
    assert (found.version, found.exact) == ("0.9.2", True)
    unknown = table(elsewhere(None), engine=HERE, host=answers("00"))
    assert (unknown.version, unknown.exact) == (catalogue().versions[-1], False)
    assert "its version is not known" in unknown.basis


def test_the_question_comes_before_all() -> None:
    question = EngineQuestion(name="vllm", version="0.10.0")
    found = table(elsewhere("vllm/vllm-openai:v0.9.2"), question=question)
    assert (found.version, found.basis) == ("0.10.0", "vLLM 0.10.0, as --engine says")


def test_the_older_neighbour_is_said() -> None:
    found = table(elsewhere("vllm/vllm-openai:v0.9.9"))
    assert (found.version, found.release, found.exact) == ("0.9.9", "0.9.2", False)
    assert found.basis.startswith("vLLM 0.9.2, the nearest known for 0.9.9")


def test_sources_that_cannot_be_read_leave_the_version() -> None:
    found = table(read(["vllm", "serve", "m"]), engine=HERE, host=answers(None))
    assert (found.release, found.exact) == ("0.32.0", False)
    assert "its sources were not read: Permission denied" in found.basis


def test_a_hash_of_the_catalogue_is_enough() -> None:
    index = catalogue().versions.index("0.32.0")
    digest = next(k for k, v in catalogue().digests.items() if v == catalogue().versions[index])
    found = table(read(["vllm", "serve", "m"]), engine=HERE, host=answers(digest))
    assert (found.release, found.exact, found.read) == ("0.32.0", True, None)


def test_a_snapshot_without_the_hash_leaves_the_version() -> None:
    found = table(read(["vllm", "serve", "m"]), engine=HERE, host=Host())
    assert (found.release, found.exact) == ("0.32.0", False)
    assert "not in this snapshot" in found.basis
