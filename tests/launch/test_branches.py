"""Two branches that start the same container: what holds for the container is said once."""

from __future__ import annotations

import json
from pathlib import Path

from doctor_process import Run

TEXT = """apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec:
  template:
    spec:
      containers:
      - name: engine
        image: vllm/vllm-openai:v0.20.0
        command: [/bin/bash, -c]
        args:
        - |
          if [ -n "$SMALL" ]; then
            exec vllm serve /models/m --max-model-len 4096
          else
            exec vllm serve /models/m --max-model-len 8192 --no-such-option
          fi
        resources: {limits: {nvidia.com/gpu: 1}}
"""


def test_one_container_two_starts(tmp_path: Path) -> None:
    (tmp_path / "deploy.yaml").write_text(TEXT)
    done = Run(home=tmp_path)("check", "--format", "json", str(tmp_path / "deploy.yaml"))
    report = json.loads(done.stdout)
    found = [f["check"] for row in report["results"] for f in row["findings"]]
    assert found.count("manifest-readiness-missing") == 1
    assert found.count("launch-argument-unknown") == 1
    assert report["counts"]["warning"] == found.count("manifest-readiness-missing")
