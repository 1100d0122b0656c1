"""For each check whose fix edits a launch: found, fixed on a copy, looked at again, taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from infer_doctor.examine import Examination
from infer_doctor.fixing.apply import Applying
from infer_doctor.fixing.drafts import Drafts
from infer_doctor.fixing.plan import groups
from infer_doctor.fixing.undo import undo
from infer_doctor.model import CheckResult
from infer_doctor.registry import Registry
from infer_doctor.targets import look


def serve(*words: str, model: str = "Qwen/Qwen3-8B", before: str = "") -> str:
    """A start script with a comment, one option a line."""
    lines = [
        f"exec vllm serve {model} \\",
        *(f"    {word} \\" for word in words),
        "    --port 8000",
    ]
    return "\n".join(["#!/bin/bash", "# ours", *([before] if before else []), *lines, ""])


COMPOSE = """\
# stack
services:
  vllm:
    image: vllm/vllm-openai:v0.10.2  # pinned
    command: ["--model", "Qwen/Qwen3-8B", "--tensor-parallel-size", "2"]
    ports: ["127.0.0.1:8000:8000"]   # api
"""

TIGHT = COMPOSE + (
    "    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, "
    "capabilities: [gpu]}]}, limits: {memory: 8g, cpus: '2'}}}  # gpu\n"
)

POD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec:
  template:
    spec:
      containers:
        - name: server   # the engine
          image: vllm/vllm-openai:v0.27.0
          args: [--model, Qwen/Qwen3-32B, --tensor-parallel-size, "2", --shutdown-timeout, "60"]
          resources:
            limits: {nvidia.com/gpu: 1, memory: 8Gi, cpu: "2"}
            requests: {nvidia.com/gpu: 1}   # the same
          livenessProbe: {httpGet: {path: /health, port: 8000}, initialDelaySeconds: 10}
"""

RUN = """\
#!/bin/bash
# the container
docker run --name llm --gpus 1 \\
  -p 127.0.0.1:8000:8000 \\
  vllm/vllm-openai:v0.10.2 --model Qwen/Qwen3-8B -tp 2
"""

CLIENT = """\
from openai import OpenAI  # the sdk

client = OpenAI(
    base_url="http://llm:8000/v1",  # ours
    api_key="EMPTY",
)


def ask(text):
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": text}], max_tokens=100
    )
"""

HTTPX = """\
import httpx

URL = "http://llm:8000/v1/completions"  # ours


async def ask(text):
    async with httpx.AsyncClient() as client:
        return await client.post(URL, json={"model": "m", "prompt": text})  # once
"""

RETRIES = """\
from openai import OpenAI
from tenacity import retry, stop_after_attempt

client = OpenAI(base_url="http://llm:8000/v1", api_key="EMPTY", timeout=60)  # ours


@retry(stop=stop_after_attempt(5))
def ask(text):
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": text}], max_tokens=100
    )
"""

OPEN = COMPOSE.replace("127.0.0.1:", "")

TRT = "# ours\ntrtllm-serve Qwen/Qwen3-8B --backend pytorch"

CASES: list[tuple[str, str, str]] = [
    ("trt-argument-unknown", "start.sh", f"{TRT} --max_bach_size 8\n"),
    (
        "trt-argument-renamed",
        "options.yaml",
        "# options\nbackend: pytorch\nkv_cache_config:\n  free_gpu_mem_fraction: 0.8  # most\n",
    ),
    ("client-timeout-missing", "client.py", CLIENT),
    ("client-timeout-short", "client.py", HTTPX),
    ("client-retries-multiply", "client.py", RETRIES),
    ("security-api-open", "compose.yaml", OPEN),
    ("security-api-open", "run.sh", RUN.replace("127.0.0.1:", "")),
    ("security-api-open", "start.sh", serve("--host 0.0.0.0")),
    (
        "launch-variable-unread",
        "start.sh",
        serve(before="export VLLM_ATTENTION_BACKEND=FLASHINFER  # old"),
    ),
    ("launch-argument-unknown", "start.sh", serve("--enable-prefx-caching")),
    ("launch-argument-unknown", "start.sh", serve("--no-such-thing 7")),
    ("launch-argument-removed", "start.sh", serve("--swap-space 4")),
    ("launch-argument-value", "start.sh", serve("--dtype bflot16")),
    ("launch-config-ignored", "start.sh", "vllm serve --config=a.yaml Qwen/Qwen3-8B\n"),
    ("launch-variable-unread", "start.sh", serve(before="export VLLM_USE_V1=1  # old")),
    ("launch-context-too-long", "start.sh", serve("--max-model-len 200000")),
    ("launch-tp-indivisible", "start.sh", serve("--tensor-parallel-size 3")),
    ("launch-pipeline-too-deep", "start.sh", serve("--pipeline-parallel-size 99")),
    ("launch-expert-parallel-dense", "start.sh", serve("--enable-expert-parallel")),
    ("launch-context-parallel-refused", "start.sh", serve("--decode-context-parallel-size 3")),
    ("launch-quantization-unknown", "start.sh", serve("--quantization awk")),
    ("manifest-gpu-missing", "compose.yaml", COMPOSE),
    ("manifest-shm-small", "compose.yaml", COMPOSE),
    ("manifest-cache-lost", "compose.yaml", COMPOSE),
    ("manifest-restart-missing", "compose.yaml", COMPOSE),
    ("manifest-gpu-count", "compose.yaml", TIGHT),
    ("manifest-memory-small", "compose.yaml", TIGHT),
    ("manifest-cpu-few", "compose.yaml", TIGHT),
    ("manifest-gpu-count", "deploy.yaml", POD),
    ("manifest-memory-small", "deploy.yaml", POD),
    ("manifest-cpu-few", "deploy.yaml", POD),
    ("manifest-shm-small", "deploy.yaml", POD),
    ("manifest-start-short", "deploy.yaml", POD),
    ("manifest-readiness-missing", "deploy.yaml", POD),
    ("manifest-grace-short", "deploy.yaml", POD),
    ("manifest-gpu-count", "run.sh", RUN),
    ("manifest-shm-small", "run.sh", RUN),
    ("manifest-cache-lost", "run.sh", RUN),
]


@pytest.fixture(scope="module")
def registry() -> Registry:
    found = Registry()
    found.add_package("infer_doctor.facts")
    found.add_package("infer_doctor.checks")
    return found


def results(registry: Registry, file: Path, check: str) -> list[CheckResult]:
    return Examination.of(registry, targets=[look(str(file))]).run([registry.checks[check]])


@pytest.mark.parametrize(
    ("check", "name", "text"), CASES, ids=[f"{check}-{name}" for check, name, _ in CASES]
)
def test_cured_and_taken_back(
    check: str, name: str, text: str, registry: Registry, tmp_path: Path
) -> None:
    file = tmp_path / name
    (tmp_path / "a.yaml").write_text("max-model-len: 4096\n")
    file.write_text(text)
    file.chmod(0o750)
    before = file.stat()
    rows = results(registry, file, check)
    found = [finding for row in rows for finding in row.findings]
    assert {finding.check for finding in found} == {check}
    (group,) = groups(found, unsafe=True, here=())
    assert group.state == "ready"
    state = str(tmp_path / "state")
    applying = Applying(state, "2026-01-01T00:00:00Z", [], Drafts())
    applied = applying.do(group)
    assert applied.result == "applied", applied.why
    judged = applying.judge(applied, results(registry, file, check))
    assert judged.result == "cured", file.read_text()
    assert judged.why is None or "has nothing to judge any more" in judged.why
    applying.end()
    assert file.read_text().count("#") == text.count("#") - (check == "launch-variable-unread")
    undo(state, "0001")
    after = file.stat()
    assert file.read_text() == text
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )
