"""Where an edit lands in text that is easily misread: other commands, blocks, strings, other formats."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infer_doctor.fixes.launching import (
    remove_option,
    rename_option,
    set_docker_option,
    set_option,
    set_variable,
)
from infer_doctor.fixing.drafts import Drafts
from infer_doctor.fixing.edits import edited
from infer_doctor.fixing.edits.common import CannotEdit
from infer_doctor.fixing.files import Refused
from infer_doctor.launch.model import Launch
from infer_doctor.model import AnyAction, Edit
from infer_doctor.targets import look

Make = Callable[[Launch], tuple[AnyAction, ...]]


def length(launch: Launch) -> tuple[AnyAction, ...]:
    return set_option(launch, "--max-model-len", 9)


def variable(launch: Launch) -> tuple[AnyAction, ...]:
    return set_variable(launch, "NEW", "1")


def without_home(launch: Launch) -> tuple[AnyAction, ...]:
    return set_variable(launch, "HF_HOME", None)


def another_home(launch: Launch) -> tuple[AnyAction, ...]:
    return set_variable(launch, "HF_HOME", "/a b")


def shared_memory(launch: Launch) -> tuple[AnyAction, ...]:
    return set_docker_option(launch, "--shm-size", "8g")


def renamed(launch: Launch) -> tuple[AnyAction, ...]:
    return rename_option(launch, "--guided-decoding-backend", "--structured")


def made(path: Path, text: str, make: Make, number: int = 0) -> str:
    path.write_bytes(text.encode())
    launch = look(str(path)).launches[number]
    edits = [action for action in make(launch) if isinstance(action, Edit)]
    (new,) = Drafts().after(edits).values()
    return new


@pytest.mark.parametrize(
    ("text", "make", "wanted"),
    [
        (
            "vllm serve m --max-num-seqs 8 & tail --lines 8\n",
            length,
            "vllm serve m --max-num-seqs 8 --max-model-len 9 & tail --lines 8\n",
        ),
        (
            "vllm serve m --port 80 > vllm 2>&1 & echo on 80\n",
            length,
            "vllm serve m --port 80 --max-model-len 9 > vllm 2>&1 & echo on 80\n",
        ),
        ("vllm serve m && echo m\n", length, "vllm serve m --max-model-len 9 && echo m\n"),
        (
            'ARGS="--port 80"\nvllm serve m $ARGS 2>&1\n',
            length,
            'ARGS="--port 80"\nvllm serve m $ARGS --max-model-len 9 2>&1\n',
        ),
        (
            "cat > x <<EOF\nit's\nEOF\nvllm serve m --port 80\n",
            length,
            "cat > x <<EOF\nit's\nEOF\nvllm serve m --port 80 --max-model-len 9\n",
        ),
        (
            "vllm serve m --a $'x\\'y' --port 80 # it's\n",
            length,
            "vllm serve m --a $'x\\'y' --port 80 --max-model-len 9 # it's\n",
        ),
        (
            "vllm serve m --guided-decoding-backend=$BACK\n",
            renamed,
            "vllm serve m --structured=$BACK\n",
        ),
        (
            "docker run --name run vllm/vllm-openai:v0.11.0 --model m --served-model-name run\n",
            shared_memory,
            "docker run --shm-size 8g --name run vllm/vllm-openai:v0.11.0 --model m "
            "--served-model-name run\n",
        ),
        (
            'case "$1" in\n  serve) vllm serve m ;;\nesac\n',
            variable,
            'case "$1" in\n  serve) NEW=1 vllm serve m ;;\nesac\n',
        ),
        (
            "if x; then\n  y\nelse vllm serve m\nfi\n",
            variable,
            "if x; then\n  y\nelse NEW=1 vllm serve m\nfi\n",
        ),
        (
            "for i in 1 2\ndo vllm serve m\ndone\n",
            variable,
            "for i in 1 2\ndo NEW=1 vllm serve m\ndone\n",
        ),
        ("cd /x &&\n  vllm serve m\n", variable, "cd /x &&\n  NEW=1 vllm serve m\n"),
        (
            "if x; then\n  export HF_HOME=/y\nfi\nvllm serve m\n",
            without_home,
            "if x; then\n  unset HF_HOME\nfi\nvllm serve m\n",
        ),
        (
            'exec vllm serve "$MODEL" \\\n  --name "$(basename "$MODEL")" \\\n  "$@"\n',
            length,
            'exec vllm serve --max-model-len 9 "$MODEL" \\\n  --name "$(basename "$MODEL")" \\\n'
            '  "$@"\n',
        ),
        (
            'vllm serve "$MODEL" \\\n  --api-key abc-123 \\\n  --gpu-memory-utilization=0.8 \\\n'
            "  $MORE &\n",
            length,
            'vllm serve "$MODEL" \\\n  --api-key abc-123 \\\n  --gpu-memory-utilization=0.8 \\\n'
            "  --max-model-len 9 \\\n  $MORE &\n",
        ),
        ("HF_HOME=/y vllm serve m\n", another_home, "HF_HOME='/a b' vllm serve m\n"),
    ],
)
def test_script(text: str, make: Make, wanted: str, tmp_path: Path) -> None:
    assert made(tmp_path / "run.sh", text, make) == wanted
    subprocess.run(["bash", "-n"], input=wanted, text=True, check=True)


@pytest.mark.parametrize(
    ("text", "make", "wanted"),
    [
        (
            "HEALTHCHECK --interval=5s \\\n  CMD curl localhost\n",
            variable,
            "HEALTHCHECK --interval=5s \\\n  CMD curl localhost\nENV NEW=1\n",
        ),
        (
            "RUN <<EOF\nCMD x\nEOF\n# a comment\n",
            variable,
            "RUN <<EOF\nCMD x\nEOF\n# a comment\nENV NEW=1\n",
        ),
        ("ENV HF_HOME /x y\n", another_home, "ENV HF_HOME='/a b'\n"),
        ("ENV A=1 HF_HOME=/x\n", without_home, "ENV A=1\n"),
    ],
)
def test_dockerfile(text: str, make: Make, wanted: str, tmp_path: Path) -> None:
    head, tail = "FROM vllm/vllm-openai:v0.11.0\n", 'ENTRYPOINT ["vllm", "serve", "m"]\n'
    assert made(tmp_path / "Dockerfile", head + text + tail, make) == head + wanted + tail


@pytest.mark.parametrize(
    ("text", "make", "wanted"),
    [
        ('Environment="HF_HOME=/x" "A=2"\n', without_home, 'Environment="A=2"\n'),
        ("Environment=HF_HOME=/x A=2\n", without_home, "Environment=A=2\n"),
        ("Environment=HF_HOME=/x A=2\n", another_home, 'Environment="HF_HOME=/a b" A=2\n'),
    ],
)
def test_unit(text: str, make: Make, wanted: str, tmp_path: Path) -> None:
    head, tail = "[Service]\n", "ExecStart=/usr/bin/vllm serve m\n"
    assert made(tmp_path / "vllm.service", head + text + tail, make) == head + wanted + tail


def test_comment_behind_the_item_before(tmp_path: Path) -> None:
    text = (
        "services:\n  a:\n    image: vllm/vllm-openai:v0.11.0\n    command: [\n"
        '      "--model", "m",  # ours\n      "--enforce-eager"\n    ]\n'
    )
    wanted = text.replace('      "--enforce-eager"\n', "")
    make = lambda launch: remove_option(launch, "--enforce-eager")  # noqa: E731
    assert made(tmp_path / "c.yaml", text, make) == wanted


@pytest.mark.parametrize(
    ("name", "text", "make"),
    [
        ("run.sh", "vllm serve a --max-model-len 1 & vllm serve b --max-model-len 2\n", length),
        (
            "Dockerfile",
            'FROM vllm/vllm-openai:v0.11.0\nENV A=1\nENTRYPOINT ["sh", "-c", "vllm serve m -tp 8"]\n',
            length,
        ),
        ("vllm.service", "[Service]\nExecStart=/bin/sh -c 'vllm serve m'\n", length),
    ],
)
def test_refused(name: str, text: str, make: Make, tmp_path: Path) -> None:
    """What cannot be placed is not written at some other place."""
    with pytest.raises(Refused):
        made(tmp_path / name, text, make)


ENV: dict[str, Any] = {"format": "env", "what": "variable", "name": "X", "value": "new"}
KEY: dict[str, Any] = {"format": "yaml", "what": "key", "path": ("a", "b"), "value": '"v"'}


def change(text: str, **settings: Any) -> str:
    return edited(Edit(text="x", file="f", do="set", **settings), text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("X=abc#def\n", "X=new\n"),
        ("X=abc #def\n", "X=new #def\n"),
        ("X= # why\n", "X= new # why\n"),
        ("\ufeffX=1\r\n", "\ufeffX=new\r\n"),
    ],
)
def test_env_file(text: str, wanted: str) -> None:
    assert change(text, **ENV) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{\n\t"a": {\n\t\t"b": 1\n\t}\n}\n', '{\n\t"a": {\n\t\t"b": "v"\n\t}\n}\n'),
        ('{"a": {}}', '{"a": {"b": "v"}}'),
    ],
)
def test_json_stays_json(text: str, wanted: str) -> None:
    assert change(text, **KEY) == wanted
    json.loads(wanted)


def test_byte_order_mark_of_python() -> None:
    edit = {"format": "python", "what": "keyword", "name": "a", "value": "5"}
    assert change("\ufeffLLM(m)\n", **edit, line=1, anchor="LLM") == "\ufeffLLM(m, a=5)\n"


def test_yaml_that_unfolds_without_end() -> None:
    rows = [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 9)]
    bomb = "\n".join(["x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1]", *rows, "a: {b: 1}", ""])
    for text in (bomb, "a: &x [*x]\n"):
        with pytest.raises(CannotEdit):
            change(text, **KEY)
