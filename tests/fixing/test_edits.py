"""Edits: a text and a change in, the new text out, nothing else moved."""

from __future__ import annotations

from typing import Any

import pytest

from infer_doctor.fixing.edits import edited
from infer_doctor.fixing.edits.common import CannotEdit
from infer_doctor.model import Edit


def edit(**more: Any) -> Edit:
    settings: dict[str, Any] = {"text": "the change", "file": "f", "what": "option", "do": "set"}
    return Edit(**{**settings, **more})


def difference(old: str, new: str) -> tuple[list[str], list[str]]:
    """The lines that went and that came."""
    import difflib

    rows = list(difflib.ndiff(old.splitlines(), new.splitlines()))
    return [row[2:] for row in rows if row[0] == "-"], [row[2:] for row in rows if row[0] == "+"]


SCRIPT = """\
#!/bin/bash
# starts the engine: --swap-space 4 is for the old one
export VLLM_LOGGING_LEVEL=DEBUG  # while testing
export CUDA_VISIBLE_DEVICES=0,1 OMP_NUM_THREADS=4
exec vllm serve "/models/my model" \\
    --swap-space 4 \\
    --tensor-parallel-size=3 \\
    --enforce-eager \\
    --port 8000 2>&1 | tee 'serve log'
"""


@pytest.mark.parametrize(
    ("change", "gone", "came"),
    [
        (
            {"do": "remove", "name": "--swap-space", "old": "4", "line": 6},
            ["    --swap-space 4 \\"],
            [],
        ),
        (
            {"name": "--tensor-parallel-size", "value": "2", "line": 7},
            ["    --tensor-parallel-size=3 \\"],
            ["    --tensor-parallel-size=2 \\"],
        ),
        (
            {"name": "--port", "value": "9000", "line": 9},
            ["    --port 8000 2>&1 | tee 'serve log'"],
            ["    --port 9000 2>&1 | tee 'serve log'"],
        ),
        (
            {"do": "remove", "name": "--enforce-eager", "line": 8},
            ["    --enforce-eager \\"],
            [],
        ),
        (
            {"do": "remove", "name": "--port", "old": "8000", "line": 9},
            ["    --enforce-eager \\", "    --port 8000 2>&1 | tee 'serve log'"],
            ["    --enforce-eager 2>&1 | tee 'serve log'"],
        ),
        (
            {"name": "--max-model-len", "value": "4096", "line": 9, "anchor": "8000"},
            ["    --port 8000 2>&1 | tee 'serve log'"],
            ["    --port 8000 \\", "    --max-model-len 4096 2>&1 | tee 'serve log'"],
        ),
        (
            {"do": "rename", "name": "--swap-space", "value": "--kv-offloading-size", "line": 6},
            ["    --swap-space 4 \\"],
            ["    --kv-offloading-size 4 \\"],
        ),
        (
            {"do": "rename", "name": "--enforce-eager", "value": "-cc.level 0", "line": 8},
            ["    --enforce-eager \\"],
            ["    -cc.level 0 \\"],
        ),
        (
            {"do": "remove", "what": "variable", "name": "VLLM_LOGGING_LEVEL", "line": 3},
            ["export VLLM_LOGGING_LEVEL=DEBUG  # while testing"],
            [],
        ),
        (
            {"do": "remove", "what": "variable", "name": "CUDA_VISIBLE_DEVICES", "line": 4},
            ["export CUDA_VISIBLE_DEVICES=0,1 OMP_NUM_THREADS=4"],
            ["export OMP_NUM_THREADS=4"],
        ),
        (
            {"what": "variable", "name": "OMP_NUM_THREADS", "value": "8 9", "line": 4},
            ["export CUDA_VISIBLE_DEVICES=0,1 OMP_NUM_THREADS=4"],
            ["export CUDA_VISIBLE_DEVICES=0,1 OMP_NUM_THREADS='8 9'"],
        ),
        (
            {"what": "variable", "name": "X", "value": "1", "line": 5, "anchor": "vllm"},
            [],
            ["export X=1"],
        ),
    ],
)
def test_script(change: dict[str, Any], gone: list[str], came: list[str]) -> None:
    new = edited(edit(format="shell", **change), SCRIPT)
    assert difference(SCRIPT, new) == (gone, came)


COMPOSE = """\
# our stack
x-common: &common
  restart: always   # keep

services:
  vllm:
    <<: *common
    image: "vllm/vllm-openai:v0.26.0"   # pinned
    command: ["--model", "/models/a", "--swap-space", "4", "--port", "8000"]
    environment:
      - HF_HOME=/cache    # volume below
      - CUDA_VISIBLE_DEVICES=7
    ports: ["8000:8000"]

    # shared memory
    shm_size: 64mb  # too small
  proxy:
      image: nginx
      environment: {A: "1", B: '2'}
      command:
      - --flag
      - "9"   # nine
      # tail
      - last
  other:
    image: x
    command: >-
      vllm serve m
      --swap-space 4
      --port 80
    entrypoint: |
      # why
      exec vllm serve n \\
        --swap-space 8 \\
        --port 81
volumes:
    data:
"""


@pytest.mark.parametrize(
    ("change", "gone", "came"),
    [
        (
            {"do": "remove", "name": "--swap-space", "old": "4", "line": 9},
            ['    command: ["--model", "/models/a", "--swap-space", "4", "--port", "8000"]'],
            ['    command: ["--model", "/models/a", "--port", "8000"]'],
        ),
        (
            {"do": "remove", "name": "--port", "old": "8000", "line": 9},
            ['    command: ["--model", "/models/a", "--swap-space", "4", "--port", "8000"]'],
            ['    command: ["--model", "/models/a", "--swap-space", "4"]'],
        ),
        (
            {"name": "--max-model-len", "value": "4096", "line": 9, "anchor": "8000"},
            ['    command: ["--model", "/models/a", "--swap-space", "4", "--port", "8000"]'],
            [
                '    command: ["--model", "/models/a", "--swap-space", "4", "--port", "8000", '
                '"--max-model-len", "4096"]'
            ],
        ),
        (
            {"name": "--flag", "value": "true", "line": 21},
            ['      - "9"   # nine'],
            ['      - "true"   # nine'],
        ),
        (
            {"do": "remove", "name": "--flag", "old": "9", "line": 21},
            ["      - --flag", '      - "9"   # nine'],
            [],
        ),
        (
            {"name": "--more", "value": "77", "line": 24, "anchor": "last"},
            [],
            ["      - --more", '      - "77"'],
        ),
        (
            {"do": "remove", "name": "--swap-space", "old": "4", "line": 29},
            ["      --swap-space 4"],
            [],
        ),
        (
            {"do": "remove", "name": "--swap-space", "old": "8", "line": 34},
            ["        --swap-space 8 \\"],
            [],
        ),
        (
            {"what": "variable", "do": "remove", "name": "CUDA_VISIBLE_DEVICES", "line": 12},
            ["      - CUDA_VISIBLE_DEVICES=7"],
            [],
        ),
        (
            {"what": "variable", "name": "HF_HOME", "value": "/x y", "line": 11},
            ["      - HF_HOME=/cache    # volume below"],
            ['      - "HF_HOME=/x y"    # volume below'],
        ),
        (
            {"what": "variable", "name": "B", "value": "it's", "line": 19},
            ["      environment: {A: \"1\", B: '2'}"],
            ["      environment: {A: \"1\", B: 'it''s'}"],
        ),
        (
            {"what": "variable", "do": "remove", "name": "A", "line": 19},
            ["      environment: {A: \"1\", B: '2'}"],
            ["      environment: {B: '2'}"],
        ),
        (
            {"what": "variable", "name": "NUM", "value": "1", "line": 6, "anchor": "vllm"},
            [],
            ["      - NUM=1"],
        ),
        (
            {"what": "variable", "name": "NUM", "value": "on", "line": 25, "anchor": "other"},
            [],
            ["    environment:", '      NUM: "on"'],
        ),
        (
            {"what": "key", "path": ("shm_size",), "value": '"8gb"', "line": 6, "anchor": "vllm"},
            ["    shm_size: 64mb  # too small"],
            ['    shm_size: "8gb"  # too small'],
        ),
        (
            {
                "what": "key",
                "do": "remove",
                "path": ("shm_size",),
                "line": 6,
                "anchor": "vllm",
            },
            ["    shm_size: 64mb  # too small"],
            [],
        ),
        (
            {"what": "key", "path": ("ipc",), "value": '"host"', "line": 17, "anchor": "proxy"},
            [],
            ["      ipc: host"],
        ),
        (
            {
                "what": "key",
                "do": "append",
                "path": ("volumes",),
                "value": '"data:/cache"',
                "line": 6,
                "anchor": "vllm",
            },
            [],
            ["    volumes:", "      - data:/cache"],
        ),
        (
            {"what": "key", "path": ("volumes", "data"), "value": '{"external": true}'},
            [],
            ["      external: true"],
        ),
    ],
)
def test_compose(change: dict[str, Any], gone: list[str], came: list[str]) -> None:
    new = edited(edit(format="yaml", **change), COMPOSE)
    assert difference(COMPOSE, new) == (gone, came)


POD = """\
apiVersion: v1
kind: Service
metadata: {name: s}
---
apiVersion: apps/v1
kind: Deployment   # one
spec:
  template:
    spec:
      containers:
      - name: server        # the engine
        image: vllm/vllm-openai
        args:
        - --model=/m
        env:
        - {name: HF_HOME, value: /cache}
        - name: TOKEN
          valueFrom: {secretKeyRef: {name: hf, key: token}}
        resources:
          limits:
            nvidia.com/gpu: 1
      volumes:
      - name: cache
        emptyDir: {}
"""


@pytest.mark.parametrize(
    ("change", "gone", "came"),
    [
        (
            {
                "what": "key",
                "path": ("resources", "limits", "nvidia.com/gpu"),
                "value": "2",
                "line": 11,
                "anchor": "server",
            },
            ["            nvidia.com/gpu: 1"],
            ["            nvidia.com/gpu: 2"],
        ),
        (
            {
                "what": "key",
                "do": "append",
                "path": ("..", "..", "volumes"),
                "value": '{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}',
                "line": 11,
                "anchor": "server",
            },
            [],
            [
                "      - name: dshm",
                "        emptyDir:",
                "          medium: Memory",
                '          sizeLimit: "8Gi"',
            ],
        ),
        (
            {
                "what": "key",
                "do": "append",
                "path": ("volumeMounts",),
                "value": '{"name": "dshm", "mountPath": "/dev/shm"}',
                "line": 11,
                "anchor": "server",
            },
            [],
            ["        volumeMounts:", "        - name: dshm", "          mountPath: /dev/shm"],
        ),
        (
            {
                "what": "key",
                "path": ("startupProbe",),
                "value": '{"httpGet": {"path": "/health", "port": 8000}, "failureThreshold": 60}',
                "line": 11,
                "anchor": "server",
            },
            [],
            [
                "        startupProbe:",
                "          httpGet:",
                "            path: /health",
                "            port: 8000",
                "          failureThreshold: 60",
            ],
        ),
        (
            {"what": "variable", "name": "HF_HOME", "value": "/data", "line": 16},
            ["        - {name: HF_HOME, value: /cache}"],
            ["        - {name: HF_HOME, value: /data}"],
        ),
        (
            {"what": "variable", "do": "remove", "name": "TOKEN", "line": 17},
            [
                "        - name: TOKEN",
                "          valueFrom: {secretKeyRef: {name: hf, key: token}}",
            ],
            [],
        ),
        (
            {"what": "variable", "name": "NUM", "value": "1", "line": 11, "anchor": "server"},
            [],
            ["        - name: NUM", '          value: "1"'],
        ),
    ],
)
def test_pod(change: dict[str, Any], gone: list[str], came: list[str]) -> None:
    new = edited(edit(format="yaml", **change), POD)
    assert difference(POD, new) == (gone, came)


@pytest.mark.parametrize(
    ("format", "text", "change", "new"),
    [
        (
            "json",
            '{\n    "a": 1,\n    "b": [1, 2]\n}\n',
            {"what": "key", "path": ("c",), "value": '{"d": true}'},
            '{\n    "a": 1,\n    "b": [1, 2],\n    "c": {"d": true}\n}\n',
        ),
        (
            "json",
            '{"torch_dtype": "float32", "x": 1}',
            {"what": "key", "path": ("torch_dtype",), "value": '"bfloat16"'},
            '{"torch_dtype": "bfloat16", "x": 1}',
        ),
        (
            "toml",
            "# why\n[a]\nb = 1  # one\nc = 2\n",
            {"what": "key", "path": ("a", "b"), "value": "3"},
            "# why\n[a]\nb = 3  # one\nc = 2\n",
        ),
        (
            "env",
            "# tokens\nA=1 # one\nexport B='x y'\n",
            {"what": "variable", "name": "B", "value": "z"},
            "# tokens\nA=1 # one\nexport B=z\n",
        ),
        (
            "env",
            "A=1 # one\nB=2",
            {"what": "variable", "name": "A", "do": "remove", "line": 1},
            "B=2",
        ),
        (
            "metadata",
            "Name: vllm\nVersion: 0.32.0\n\nVersion: of the text\n",
            {"what": "key", "name": "Version", "value": "0.32.0+cpu", "old": "0.32.0"},
            "Name: vllm\nVersion: 0.32.0+cpu\n\nVersion: of the text\n",
        ),
        ("env", "A=1", {"what": "variable", "name": "C", "value": "3"}, "A=1\nC=3\n"),
        (
            "dockerfile",
            'FROM vllm/vllm-openai\n# why\nENV A=1 B=2\nENV C 3\nCMD ["--model", "m", "--x", "1"]\n',
            {"do": "remove", "name": "--x", "old": "1", "line": 5},
            'FROM vllm/vllm-openai\n# why\nENV A=1 B=2\nENV C 3\nCMD ["--model", "m"]\n',
        ),
        (
            "dockerfile",
            "FROM x\nENV A=1 B=2\nENV C 3\nCMD vllm serve m\n",
            {"what": "variable", "do": "remove", "name": "C", "line": 3},
            "FROM x\nENV A=1 B=2\nCMD vllm serve m\n",
        ),
        (
            "dockerfile",
            "FROM x\nENV A=1 B=2\nCMD vllm serve m\n",
            {"what": "variable", "name": "D", "value": "4", "line": 3, "anchor": "vllm"},
            "FROM x\nENV A=1 B=2\nENV D=4\nCMD vllm serve m\n",
        ),
        (
            "systemd",
            "[Service]\nEnvironment=A=1\nExecStart=/opt/vllm serve m \\\n  --x 1 \\\n  --y 2\n# end\n",
            {"do": "remove", "name": "--y", "old": "2", "line": 5},
            "[Service]\nEnvironment=A=1\nExecStart=/opt/vllm serve m \\\n  --x 1\n# end\n",
        ),
        (
            "systemd",
            "[Service]\nEnvironment=A=1\nExecStart=/opt/vllm serve m\n",
            {"what": "variable", "do": "remove", "name": "A", "line": 2},
            "[Service]\nExecStart=/opt/vllm serve m\n",
        ),
        (
            "python",
            "from vllm import LLM\nllm = LLM(\n    model='m',  # big\n    swap_space=4,  # old\n)\n",
            {"what": "keyword", "do": "remove", "name": "swap_space", "line": 4},
            "from vllm import LLM\nllm = LLM(\n    model='m',  # big\n)\n",
        ),
        (
            "python",
            "llm = LLM(\n    model='m',  # big\n    swap_space=4,  # old\n)\n",
            {"what": "keyword", "name": "swap_space", "value": "8", "line": 3},
            "llm = LLM(\n    model='m',  # big\n    swap_space=8,  # old\n)\n",
        ),
        (
            "python",
            "llm = LLM(\n    model='m',  # big\n    tp=1  # one\n)\n",
            {"what": "keyword", "name": "x", "value": "8", "line": 1, "anchor": "LLM"},
            "llm = LLM(\n    model='m',  # big\n    tp=1,  # one\n    x=8\n)\n",
        ),
        (
            "python",
            "llm = vllm.LLM('m', tp=1)\n",
            {"what": "keyword", "name": "x", "value": "8", "line": 1, "anchor": "LLM"},
            "llm = vllm.LLM('m', tp=1, x=8)\n",
        ),
        (
            "python",
            "llm = LLM(\n    'm',\n    tp=1,\n)\n",
            {"what": "keyword", "name": "x", "value": "8", "line": 1, "anchor": "LLM"},
            "llm = LLM(\n    'm',\n    tp=1,\n    x=8,\n)\n",
        ),
        (
            "python",
            "import os\nos.environ['X'] = '1'  # why\nos.environ['Y'] = '2'\n",
            {"what": "variable", "do": "remove", "name": "X", "line": 2},
            "import os\nos.environ['Y'] = '2'\n",
        ),
        (
            "command",
            "vllm serve m --port 8000",
            {"name": "--host", "value": "::1", "anchor": "gone"},
            "vllm serve m --port 8000 --host ::1",
        ),
        (
            "shell",
            "echo a\nvllm serve m \\\n  --port 8000\n",
            {"name": "--host", "value": "::1", "anchor": "gone", "line": 3},
            "echo a\nvllm serve m \\\n  --port 8000 \\\n  --host ::1\n",
        ),
        (
            "command",
            "vllm serve m --swap-space 4 --port 8000",
            {"do": "remove", "name": "--swap-space", "old": "4"},
            "vllm serve m --port 8000",
        ),
        (
            "shell",
            "docker run \\\n  -e A=1 \\\n  --env=B=2 -p 80:80 \\\n  vllm/vllm-openai --model m\n",
            {"what": "variable", "do": "remove", "name": "A", "line": 2},
            "docker run \\\n  --env=B=2 -p 80:80 \\\n  vllm/vllm-openai --model m\n",
        ),
        (
            "shell",
            "docker run \\\n  -e A=1 \\\n  --env=B=2 -p 80:80 \\\n  vllm/vllm-openai --model m\n",
            {"what": "variable", "name": "B", "value": "3", "line": 3},
            "docker run \\\n  -e A=1 \\\n  --env=B=3 -p 80:80 \\\n  vllm/vllm-openai --model m\n",
        ),
        (
            "shell",
            "docker run -it vllm/vllm-openai --model m\n",
            {"do": "append", "name": "--shm-size", "value": "8g", "line": 1, "anchor": "run"},
            "docker run --shm-size 8g -it vllm/vllm-openai --model m\n",
        ),
        (
            "yaml",
            "# config\nmodel: m\nswap-space: 4  # old\n",
            {"what": "key", "do": "remove", "path": ("swap-space",)},
            "# config\nmodel: m\n",
        ),
        (
            "yaml",
            "model: m\nold-name: 4  # why\n",
            {"what": "key", "do": "rename", "path": ("old-name",), "value": "new-name 5"},
            "model: m\nnew-name: 5  # why\n",
        ),
    ],
)
def test_other_formats(format: Any, text: str, change: dict[str, Any], new: str) -> None:
    assert edited(edit(format=format, **change), text) == new


@pytest.mark.parametrize(
    ("format", "text", "change", "why"),
    [
        (
            "yaml",
            "a: {{ .Values.x }}\nb: {{- if y }}\n",
            {"what": "key", "path": ("a",)},
            "template",
        ),
        (
            "yaml",
            "a: &x {k: 1}\nb: *x\n",
            {"what": "key", "path": ("b", "k"), "value": "2"},
            "anchor",
        ),
        ("shell", "vllm serve m\n", {"name": "--x", "do": "remove", "line": 1}, "no longer stands"),
        (
            "shell",
            "vllm serve m --x 5\n",
            {"name": "--x", "do": "remove", "old": "4", "line": 1},
            "no longer has the value 4",
        ),
        ("shell", "vllm serve m --x 5\n", {"name": "--x", "value": "5", "line": 1}, "already"),
        ("shell", "a\r\nb\n", {"name": "--x", "value": "5", "line": 1}, "two different ways"),
        ("python", "LLM(", {"what": "keyword", "name": "x", "line": 1}, "not valid Python"),
        ("toml", "a = = 1", {"what": "key", "path": ("a",), "value": "1"}, "not valid TOML"),
    ],
)
def test_refused(format: Any, text: str, change: dict[str, Any], why: str) -> None:
    with pytest.raises(CannotEdit, match=why):
        edited(edit(format=format, **change), text)


def test_line_ends_stay() -> None:
    text = "services:\r\n  a:\r\n    image: x\r\n"
    change = edit(format="yaml", what="key", path=("shm_size",), value='"8gb"', line=2, anchor="a")
    assert edited(change, text) == text + '    shm_size: "8gb"\r\n'
