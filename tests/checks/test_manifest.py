"""What a platform gives to an engine, read from files."""

from __future__ import annotations

from typing import Any

import pytest
from launch_files import facts

from infer_doctor.checks.manifest import (
    cpu_few,
    gpu_count,
    gpu_missing,
    memory_small,
    shm_small,
)
from infer_doctor.model import Finding
from infer_doctor.testing import contract, examine

TAG = "v0.27.0"


def pod(
    arguments: str = "--tensor-parallel-size 2",
    resources: str = "limits: {nvidia.com/gpu: 2}",
    more: str = "",
    model: str = "meta-llama/Llama-3.1-8B",
    image: str = f"vllm/vllm-openai:{TAG}",
    spec: str = "",
) -> list[Any]:
    words = ", ".join(f'"{word}"' for word in ["--model", model, *arguments.split()])
    text = f"""apiVersion: apps/v1
kind: Deployment
metadata: {{name: llm}}
spec:
  template:
    spec:
      {spec or "hostPID: false"}
      containers:
      - name: engine
        image: {image}
        args: [{words}]
        resources: {{{resources}}}
        {more or "stdin: false"}
"""
    return facts(text, "deploy.yaml")


def compose(service: str, arguments: str = "--tensor-parallel-size 2") -> list[Any]:
    text = f"""services:
  llm:
    image: vllm/vllm-openai:{TAG}
    command: --model meta-llama/Llama-3.1-8B {arguments}
{service}"""
    return facts(text, "compose.yaml")


GPUS = """    deploy:
      resources:
        reservations:
          devices: [{driver: nvidia, count: %s, capabilities: [gpu]}]
"""
MOUNTED = "volumeMounts: [{name: shm, mountPath: /dev/shm}]"
MEMORY = "volumes: [{name: shm, emptyDir: {medium: Memory%s}}]"


def only(check: Any, given: list[Any]) -> Finding:
    (finding,) = examine(check, *given).findings
    return finding


def test_contracts() -> None:
    contract(gpu_missing, fires=pod(resources="limits: {cpu: 8}"), passes=pod())
    contract(gpu_count, fires=pod(resources="limits: {nvidia.com/gpu: 1}"), passes=pod())
    contract(
        shm_small,
        fires=pod(),
        passes=pod(more=MOUNTED, spec=MEMORY % ", sizeLimit: 2Gi"),
    )
    contract(
        memory_small,
        fires=pod(resources="limits: {nvidia.com/gpu: 2, memory: 8Gi}"),
        passes=pod(resources="limits: {nvidia.com/gpu: 2, memory: 64Gi}"),
    )
    contract(
        cpu_few,
        fires=pod(resources="limits: {nvidia.com/gpu: 2, cpu: 2}"),
        passes=pod(resources="limits: {nvidia.com/gpu: 2, cpu: 8}"),
    )


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (pod(resources="claims: [{name: gpu}]"), "passed"),
        (pod(resources="limits: {nvidia.com/mig-1g.10gb: 2}"), "passed"),
        (
            pod(resources="requests: {cpu: 1}", image="vllm/vllm-openai-cpu:v0.27.0"),
            "not_applicable",
        ),
        (pod(resources="requests: {cpu: 1}", image="rocm/vllm:v0.27.0"), "not_applicable"),
        (
            pod(
                resources="requests: {cpu: 1}",
                more="env: [{name: VLLM_CPU_KVCACHE_SPACE, value: '4'}]",
            ),
            "not_applicable",
        ),
        (pod(resources="requests: {cpu: 1}", spec="runtimeClassName: nvidia"), "passed"),
        (compose(""), "failed"),
        (compose(GPUS % 2), "passed"),
        (compose(GPUS % "all"), "passed"),
        (compose("    runtime: nvidia\n"), "passed"),
        (compose("    gpus: all\n"), "passed"),
    ],
)
def test_gpu_missing(given: list[Any], outcome: str) -> None:
    assert examine(gpu_missing, *given).outcome == outcome


def test_gpu_missing_message() -> None:
    finding = only(gpu_missing, pod(resources="limits: {cpu: 8}"))
    assert finding.message == "engine asks for no GPU; the engine needs 2"
    assert finding.fixes[0].title == "Ask for 2 GPUs: nvidia.com/gpu: 2"


@pytest.mark.parametrize(
    ("given", "severity"),
    [
        (pod(), None),
        (pod("", "limits: {nvidia.com/gpu: 1}"), None),
        (pod("", "limits: {nvidia.com/gpu: 8}"), "warning"),
        (pod("-tp 2 -pp 2", "limits: {nvidia.com/gpu: 4}"), None),
        (pod("-tp 2 --data-parallel-size 4", "limits: {nvidia.com/gpu: 8}"), None),
        (pod("-tp 2 --data-parallel-size 4", "limits: {nvidia.com/gpu: 2}"), "error"),
        (
            pod("-tp 2 -dp 4 --data-parallel-size-local 2", "limits: {nvidia.com/gpu: 4}"),
            None,
        ),
        (pod("-tp 16 --nnodes 2", "limits: {nvidia.com/gpu: 8}"), None),
        (compose(GPUS % 1), "error"),
        (
            compose(
                "    deploy:\n      resources:\n        reservations:\n          devices: [{driver: "
                "nvidia, device_ids: ['0', '1'], capabilities: [gpu]}]\n"
            ),
            None,
        ),
    ],
)
def test_gpu_count(given: list[Any], severity: str | None) -> None:
    result = examine(gpu_count, *given)
    assert [row.severity for row in result.findings] == ([severity] if severity else [])
    assert result.outcome == ("failed" if severity else "passed")


@pytest.mark.parametrize(
    "given",
    [
        pod(resources="claims: [{name: gpu}]"),
        pod("--tensor-parallel-size two"),
        pod("--tensor-parallel-size $(TP)", more="envFrom: [{secretRef: {name: s}}]"),
        pod("-tp 16 --distributed-executor-backend ray"),
        pod("$(ARGS)", more="envFrom: [{secretRef: {name: s}}]"),
        compose(GPUS % "all"),
    ],
)
def test_gpu_count_is_blocked_by_what_is_not_known(given: list[Any]) -> None:
    assert examine(gpu_count, *given).outcome == "blocked"


def group(size: int, gpus: int) -> list[Any]:
    text = f"""apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: llm}}
spec:
  leaderWorkerTemplate:
    size: {size}
    leaderTemplate:
      spec:
        containers:
        - name: leader
          image: vllm/vllm-openai:{TAG}
          command: [sh, -c, "vllm serve m/m-405B --tensor-parallel-size 8 --pipeline-parallel-size 2"]
          resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}
    workerTemplate:
      spec:
        containers:
        - {{name: worker, image: "vllm/vllm-openai:{TAG}", command: [sleep, infinity]}}
"""
    return facts(text, "lws.yaml")


def test_a_group_divides_the_ranks() -> None:
    assert examine(gpu_count, *group(2, 8)).outcome == "passed"
    assert only(gpu_count, group(2, 4)).message == (
        "leader asks for 4 GPUs; tensor parallel size 8 and pipeline parallel size 2 need 8 in each "
        "of 2 pods"
    )
    assert examine(gpu_count, *group(3, 8)).outcome == "blocked"


def test_gpu_count_names_its_lines() -> None:
    finding = only(gpu_count, pod(resources="limits: {nvidia.com/gpu: 1}"))
    assert finding.message == "engine asks for 1 GPU; tensor parallel size 2 needs 2"
    assert [(row.source, row.line) for row in finding.evidence] == [
        ("deploy.yaml", 12),
        ("deploy.yaml", 11),
    ]


@pytest.mark.parametrize(
    ("given", "severity"),
    [
        (pod(), "error"),
        (pod(image="vllm/vllm-openai:v0.20.0"), "warning"),
        (pod(image="vllm/vllm-openai:latest"), "warning"),
        (pod(spec="hostIPC: true"), None),
        (pod(more=MOUNTED, spec=MEMORY % ""), None),
        (pod(more=MOUNTED, spec=MEMORY % ", sizeLimit: 64Mi"), "error"),
        (compose("    ipc: host\n"), None),
        (compose("    shm_size: 2gb\n"), None),
        (compose("    shm_size: 128m\n"), "error"),
        (compose(""), "error"),
    ],
)
def test_shm(given: list[Any], severity: str | None) -> None:
    findings = examine(shm_small, *given).findings
    assert [row.severity for row in findings] == ([severity] if severity else [])


def test_shm_of_one_rank() -> None:
    assert examine(shm_small, *pod("")).outcome == "not_applicable"


def test_shm_message() -> None:
    finding = only(shm_small, pod())
    assert finding.message == (
        "engine gets 64 MiB of /dev/shm, the platform's default; 2 ranks want 160 MiB and 240 MiB"
    )
    assert finding.fixes[0].title == "Mount a memory volume of 1 GiB at /dev/shm"


@pytest.mark.parametrize(
    ("arguments", "limit", "model", "outcome", "severity"),
    [
        ("", "8Gi", "meta-llama/Llama-3.1-8B", "failed", "warning"),
        ("", "16Gi", "meta-llama/Llama-3.1-8B", "passed", None),
        ("", "8Gi", "meta-llama/Llama-3.1-8B-Instruct-FP8", "passed", None),
        ("", "1Gi", "unsized/model", "blocked", None),
        ("--cpu-offload-gb 10 -tp 2", "16Gi", "unsized/model", "failed", "error"),
        ("--load-format runai_streamer", "8Gi", "meta-llama/Llama-3.1-8B", "passed", None),
    ],
)
def test_memory(arguments: str, limit: str, model: str, outcome: str, severity: str | None) -> None:
    given = pod(arguments, f"limits: {{nvidia.com/gpu: 1, memory: {limit}}}", model=model)
    result = examine(memory_small, *given)
    assert result.outcome == outcome
    assert [row.severity for row in result.findings] == ([severity] if severity else [])


def test_memory_message() -> None:
    given = pod(resources="limits: {nvidia.com/gpu: 2, memory: 8Gi}")
    assert only(memory_small, given).message == (
        "the memory limit of engine is 8.0 GiB; the weights of meta-llama/Llama-3.1-8B are 14.9 GiB "
        "by its name"
    )


@pytest.mark.parametrize(
    ("arguments", "cpu", "outcome"),
    [
        ("", "3", "passed"),
        ("", "2500m", "failed"),
        ("-tp 8", "10", "passed"),
        ("-tp 8", "8", "failed"),
        ("-tp 2 -dp 4", "17", "passed"),
        ("-tp 2 -dp 4", "16", "failed"),
    ],
)
def test_cpu(arguments: str, cpu: str, outcome: str) -> None:
    given = pod(arguments, f"limits: {{nvidia.com/gpu: 1, cpu: {cpu}}}")
    assert examine(cpu_few, *given).outcome == outcome


def test_a_command_has_no_container() -> None:
    given = facts("#!/bin/sh\nvllm serve m/m -tp 2\n", "run.sh")
    for check in (gpu_missing, gpu_count, shm_small, memory_small, cpu_few):
        assert examine(check, *given).outcome == "not_applicable"
