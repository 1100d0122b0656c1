"""Probes, images, caches: whether a platform lets an engine live."""

from __future__ import annotations

import json
from typing import Any

import pytest
from launch_files import facts

from infer_doctor.checks.manifest_image import cache_lost, image_moving
from infer_doctor.checks.manifest_start import (
    grace_short,
    health_shallow,
    readiness_missing,
    restart_missing,
    start_short,
)
from infer_doctor.model import Edit, Finding
from infer_doctor.testing import contract, examine


def pod(
    container: str = "",
    arguments: str = "",
    model: str = "meta-llama/Llama-3.1-8B",
    image: str = "vllm/vllm-openai:v0.27.0",
    spec: str = "",
    kind: str = "Deployment",
) -> list[Any]:
    words = ", ".join(f'"{word}"' for word in ["--model", model, *arguments.split()])
    lines = "\n".join(f"        {line}" for line in container.splitlines())
    text = f"""apiVersion: apps/v1
kind: {kind}
metadata: {{name: llm}}
spec:
  template:
    spec:
      {spec or "hostPID: false"}
      containers:
      - name: engine
        image: {image}
        args: [{words}]
        resources: {{limits: {{nvidia.com/gpu: 1}}}}
{lines}
"""
    return facts(text, "deploy.yaml")


def compose(service: str = "", image: str = "vllm/vllm-openai:v0.27.0") -> list[Any]:
    text = f"services:\n  llm:\n    image: {image}\n    command: --model m/m-7B\n{service}"
    return facts(text, "compose.yaml")


def probe(kind: str, numbers: str = "", what: str = "httpGet: {path: /health, port: 8000}") -> str:
    return f"{kind}Probe: {{{what}{', ' + numbers if numbers else ''}}}\n"


PATIENT = probe("startup", "periodSeconds: 10, failureThreshold: 120")
CACHE = "volumeMounts: [{name: c, mountPath: /root/.cache/huggingface}]\n"
CLAIM = "volumes: [{name: c, persistentVolumeClaim: {claimName: models}}]"
EMPTY = "volumes: [{name: c, emptyDir: {}}]"


def only(check: Any, given: list[Any]) -> Finding:
    (finding,) = examine(check, *given).findings
    return finding


def test_contracts() -> None:
    contract(start_short, fires=pod(probe("liveness")), passes=pod(PATIENT + probe("liveness")))
    contract(readiness_missing, fires=pod(probe("liveness")), passes=pod(probe("readiness")))
    contract(
        health_shallow,
        fires=pod(probe("liveness")),
        passes=pod(probe("liveness", what="httpGet: {path: /deep, port: 9000}")),
    )
    contract(
        grace_short,
        fires=pod(arguments="--shutdown-timeout 60"),
        passes=pod(arguments="--shutdown-timeout 60", spec="terminationGracePeriodSeconds: 90"),
    )
    contract(restart_missing, fires=compose(), passes=compose("    restart: always\n"))
    contract(
        image_moving,
        fires=pod(image="vllm/vllm-openai:latest"),
        passes=pod(image="vllm/vllm-openai:v0.27.0"),
    )
    contract(cache_lost, fires=pod(CACHE, spec=EMPTY), passes=pod(CACHE, spec=CLAIM))


@pytest.mark.parametrize(
    ("container", "model", "severity"),
    [
        (probe("liveness"), "meta-llama/Llama-3.1-8B", "error"),  # 30 s
        (probe("liveness", "initialDelaySeconds: 120"), "meta-llama/Llama-3.1-8B", "warning"),
        (probe("liveness", "initialDelaySeconds: 300"), "meta-llama/Llama-3.1-8B", None),
        (probe("liveness", "initialDelaySeconds: 300"), "meta-llama/Llama-3.1-70B", "warning"),
        (probe("liveness", "initialDelaySeconds: 60"), "meta-llama/Llama-3.1-405B", "error"),
        (PATIENT + probe("liveness"), "meta-llama/Llama-3.1-70B", None),
        (probe("startup", "failureThreshold: 30"), "meta-llama/Llama-3.1-70B", "warning"),
        (probe("startup", "failureThreshold: 3"), "some/model", "error"),
        (probe("startup", "failureThreshold: 12"), "some/model", None),
        (probe("readiness"), "meta-llama/Llama-3.1-70B", None),
    ],
)
def test_start(container: str, model: str, severity: str | None) -> None:
    findings = examine(start_short, *pod(container, model=model)).findings
    assert [row.severity for row in findings] == ([severity] if severity else [])


def test_start_message_and_fix() -> None:
    given = pod(probe("liveness", "initialDelaySeconds: 60"), model="meta-llama/Llama-3.1-70B")
    finding = only(start_short, given)
    assert finding.message == (
        "the liveness probe ends the container after 90 s (60 + 3 x 10 s); meta-llama/Llama-3.1-70B "
        "(140 GB by its name) takes 115 s at best, 805 s in a fresh container at 200 MB/s"
    )
    (action,) = finding.fixes[0].actions
    assert isinstance(action, Edit)
    assert (action.file, action.path) == ("deploy.yaml", ("startupProbe",))
    assert json.loads(action.value or "") == {
        "httpGet": {"path": "/health", "port": 8000},
        "periodSeconds": 10,
        "failureThreshold": 126,
    }


def test_dockers_health_check_ends_nothing() -> None:
    short = "    healthcheck: {test: curl -f localhost:8000/health, interval: 10s, retries: 3}\n"
    assert only(start_short, compose(short)).severity == "info"
    patient = short.replace("retries: 3", "retries: 3, start_period: 10m")
    assert examine(start_short, *compose(patient)).outcome == "passed"


def test_streamed_weights_are_held_to_the_fast_bound() -> None:
    given = pod(probe("liveness", "initialDelaySeconds: 120"), "--load-format runai_streamer")
    assert examine(start_short, *given).outcome == "passed"


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (pod(), "failed"),
        (pod(PATIENT), "passed"),
        (pod(arguments="--headless"), "not_applicable"),
        (pod(kind="Job"), "not_applicable"),
        (compose(), "not_applicable"),
    ],
)
def test_readiness(given: list[Any], outcome: str) -> None:
    assert examine(readiness_missing, *given).outcome == outcome


def test_shallow_is_info_and_needs_a_liveness_probe() -> None:
    assert only(health_shallow, pod(PATIENT + probe("liveness"))).severity == "info"
    assert examine(health_shallow, *pod(PATIENT)).outcome == "passed"
    assert examine(health_shallow, *pod()).outcome == "not_applicable"


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (pod(), "not_applicable"),
        (pod(arguments="--shutdown-timeout 20"), "passed"),
        (pod(arguments="--shutdown-timeout 30"), "failed"),
    ],
)
def test_grace(given: list[Any], outcome: str) -> None:
    assert examine(grace_short, *given).outcome == outcome


@pytest.mark.parametrize(
    ("image", "outcome"),
    [
        ("vllm/vllm-openai", "failed"),
        ("registry:5000/vllm/vllm-openai", "failed"),
        ("vllm/vllm-openai:nightly", "failed"),
        ("vllm/vllm-openai@sha256:" + "0" * 64, "passed"),
        ("vllm/vllm-openai:v0.27.0-x86_64", "passed"),
    ],
)
def test_image(image: str, outcome: str) -> None:
    assert examine(image_moving, *pod(image=image)).outcome == outcome


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (pod(), "failed"),
        (pod(image="registry.example/team/vllm-model:1", arguments="--max-model-len 9"), "blocked"),
        (pod(model="/models/llama"), "not_applicable"),
        (pod(CACHE.replace("/root/.cache/huggingface", "/root/.cache"), spec=CLAIM), "passed"),
        (
            pod(
                CACHE.replace("/root/.cache/huggingface", "/data")
                + "env: [{name: HF_HOME, value: /data}]\n",
                spec=CLAIM,
            ),
            "passed",
        ),
        (pod(CACHE.replace("/root/.cache/huggingface", "/data"), spec=CLAIM), "failed"),
        (
            pod(
                CACHE.replace("/root/.cache/huggingface", "/data"),
                arguments="--download-dir /data/hub",
                spec=EMPTY,
            ),
            "failed",
        ),
        (pod("envFrom: [{configMapRef: {name: other}}]\n"), "blocked"),
        (compose("    volumes: ['~/.cache/huggingface:/root/.cache/huggingface']\n"), "passed"),
        (compose(), "failed"),
    ],
)
def test_cache(given: list[Any], outcome: str) -> None:
    assert examine(cache_lost, *given).outcome == outcome


def test_cache_message() -> None:
    finding = only(cache_lost, pod(CACHE, spec=EMPTY, model="meta-llama/Llama-3.1-70B"))
    assert finding.message == (
        "/root/.cache/huggingface/hub is on an emptyDir: each new pod downloads "
        "meta-llama/Llama-3.1-70B again: 140 GB by its name, 12 min at 200 MB/s"
    )
