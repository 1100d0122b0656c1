"""Python read without running it: launches, constants, what stays unknown."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infer_doctor.launch.model import Launch, Place, Unknown
from infer_doctor.launch.python import Broken, read
from infer_doctor.launch.python_tree import SIZE_LIMIT


def launches(text: str) -> tuple[Launch, ...]:
    return read(text, "serve.py").launches


def one(text: str) -> Launch:
    (launch,) = launches(text)
    return launch


def keywords(text: str) -> dict[str, object]:
    return {word.name: word.value for word in one(text).keywords}


VLLM = "from vllm import LLM\n"


@pytest.mark.parametrize(
    ("text", "engine", "entry"),
    [
        ("import vllm\nvllm.LLM('m')", "vllm", "LLM"),
        ("import vllm as v\nv.LLM(model='m')", "vllm", "LLM"),
        ("from vllm import LLM as L\nL('m')", "vllm", "LLM"),
        ("from vllm import *\nLLM('m')", "vllm", "LLM"),
        ("from vllm.entrypoints.llm import LLM\nLLM('m')", "vllm", "LLM"),
        (
            "def f():\n    from vllm import EngineArgs\n    EngineArgs(model='m')",
            "vllm",
            "EngineArgs",
        ),
        (
            "from vllm.engine.arg_utils import AsyncEngineArgs\nAsyncEngineArgs(model='m')",
            "vllm",
            "AsyncEngineArgs",
        ),
        ("from tensorrt_llm import LLM\nLLM('m')", "tensorrt-llm", "LLM"),
        ("import tensorrt_llm\ntensorrt_llm.llmapi.LLM(model='m')", "tensorrt-llm", "LLM"),
    ],
)
def test_what_makes_an_engine(text: str, engine: str, entry: str) -> None:
    launch = one(text)
    assert (launch.engine, launch.entry, launch.kind, launch.machine) == (
        engine,
        entry,
        "python",
        "local",
    )
    assert [(word.name, word.value) for word in launch.keywords] == [("model", "m")]


@pytest.mark.parametrize(
    "text",
    [
        "class LLM: ...\nLLM('m')",
        "from langchain import LLM\nLLM('m')",
        "from vllm import LLM\nx = LLM",
        "'LLM(model=1)'",
    ],
)
def test_what_makes_none(text: str) -> None:
    assert launches(text) == ()


def test_from_engine_args_is_not_counted_twice() -> None:
    text = (
        "from vllm import AsyncEngineArgs, AsyncLLMEngine\n"
        "e = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(model='m', enforce_eager=True))"
    )
    assert keywords(text) == {"model": "m", "enforce_eager": True}


@pytest.mark.parametrize(
    ("before", "expression", "value"),
    [
        ("", "-1", -1),
        ("", "None", None),
        ("", "not True", False),
        ("", "4 * 1024", 4096),
        ("", "32 * 1024 // 2", 16384),
        ("N = 4\n", "N * 2", 8),
        ("A = 'x'\nB = A + '/y'\n", "f'{B}/z'", "x/y/z"),
        ("class C:\n    X = 3\n", "C.X", 3),
        ("def f():\n    y = 1\ny = 2\n", "y", 2),
        ("", "dict(a=1, b=[1, 2])", {"a": 1, "b": [1, 2]}),
        ("", "{'a': {'b': 1.5}}", {"a": {"b": 1.5}}),
        ("D = {'a': 1}\n", "{**D, 'b': 2}", {"a": 1, "b": 2}),
        ("L = [1]\n", "[*L, 2]", [1, 2]),
        ("X: int = 7\n", "X", 7),
        ("X = 1\nX = 1\n", "X", 1),
    ],
)
def test_constants_are_folded(before: str, expression: str, value: object) -> None:
    found = keywords(f"{VLLM}{before}LLM('m', x={expression})")["x"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("before", "expression"),
    [
        ("import os\n", "os.environ['X']"),
        ("import os\n", "os.getenv('X', '4')"),
        ("import sys\n", "int(sys.argv[1])"),
        ("X = 1\nX = 2\n", "X"),
        ("for X in (1, 2): pass\n", "X"),
        ("X = 1\nX += 1\n", "X"),
        ("X = [1]\nX.append(2)\n", "X"),
        ("X = {}\nX['a'] = 1\n", "X"),
        ("X = X\n", "X"),
        ("X = Y\nY = X\n", "X"),
        ("import argparse\nX = argparse.Namespace()\n", "X.size"),
        ("", "4 if flag else 8"),
        ("", "min(torch.cuda.device_count(), 4)"),
        ("", "'x' * 10**9"),
        ("", "2 ** 10 ** 10"),
        ("X, Y = 1, 2\n", "X"),
    ],
)
def test_what_is_not_known_stays_unknown(before: str, expression: str) -> None:
    assert isinstance(keywords(f"{VLLM}{before}LLM('m', x={expression})")["x"], Unknown)


def test_a_parameter_hides_the_constant_of_the_module() -> None:
    found = keywords(f"{VLLM}size = 4\ndef f(size):\n    return LLM('m', x=size)")
    assert found["x"] == Unknown("size")


def test_unpacked_dicts_have_the_lines_of_their_keys() -> None:
    launch = one(f"{VLLM}KW = {{\n    'dtype': 'half',\n    'seed': 0,\n}}\nLLM('m', **KW)")
    assert [(w.name, w.value, w.place.line) for w in launch.keywords] == [
        ("model", "m", 6),
        ("dtype", "half", 3),
        ("seed", 0, 4),
    ]
    assert launch.gaps == ()


def test_unpacked_arguments_that_are_not_known_are_a_gap() -> None:
    assert one(f"{VLLM}LLM('m', **vars(args))").gaps == (
        "serve.py:2: **vars(args) could not be read",
    )
    changed = f"{VLLM}KW = {{}}\nKW['x'] = 1\nLLM('m', **KW)"
    assert one(changed).gaps == ("serve.py:4: **KW could not be read",)
    assert one(f"{VLLM}LLM(*a)").gaps == ("serve.py:2: a positional argument could not be read",)


def words(launch: Launch) -> list[str]:
    return list(launch.command)


@pytest.mark.parametrize(
    "call",
    [
        "subprocess.run(['vllm', 'serve', MODEL, '--port', str(PORT)])",
        "subprocess.Popen(f'vllm serve {MODEL} --port {PORT}', shell=True)",
        "subprocess.check_call(('vllm', 'serve', MODEL, '--port', '8000'))",
        "os.system('vllm serve ' + MODEL + ' --port 8000 > out.log 2>&1 &')",
        "os.execvp('vllm', ['vllm', 'serve', MODEL, '--port', '8000'])",
        "subprocess.run(['bash', '-c', f'cd /tmp && vllm serve {MODEL} --port {PORT}'])",
        "subprocess.run(['vllm', 'serve', *REST])",
        "subprocess.run(['vllm', 'serve'] + REST)",
        "subprocess.run(shlex.split('vllm serve org/m --port 8000'))",
    ],
)
def test_commands(call: str) -> None:
    launch = one(
        "import os, shlex, subprocess\nMODEL = 'org/m'\nPORT = 8000\n"
        f"REST = [MODEL, '--port', '8000']\n{call}"
    )
    assert words(launch) == ["vllm", "serve", "org/m", "--port", "8000"]
    assert (launch.engine, launch.entry, launch.kind) == ("vllm", "serve", "python")


def test_asyncio_and_module_commands() -> None:
    text = (
        "import asyncio, sys\nasync def f():\n    await asyncio.create_subprocess_exec(\n"
        "        sys.executable, '-m', 'vllm.entrypoints.openai.api_server', '--model', 'm')"
    )
    launch = one(text)
    assert launch.entry == "api_server"
    assert [word.text for word in launch.words] == ["--model", "m"]


def test_a_list_that_grows() -> None:
    launch = one(
        "import subprocess\ncmd = ['vllm', 'serve', 'm']\ncmd += ['--port', '1']\n"
        "cmd.append('--enforce-eager')\ncmd.extend(['--seed', '3'])\n"
        "if big:\n    cmd += ['-tp', '8']\nsubprocess.run(cmd)"
    )
    assert words(launch)[3:] == ["--port", "1", "--enforce-eager", "--seed", "3"]
    assert launch.gaps == ("serve.py:7: words are added that could not be read",)


def test_unknown_words_keep_their_expression() -> None:
    launch = one("import os, subprocess\nsubprocess.run(['vllm', 'serve', os.environ['MODEL']])")
    assert launch.words[0].unknown == "os.environ['MODEL']"
    shell = one(
        "import os, subprocess\nsubprocess.run(f\"vllm serve {os.getenv('MODEL')} -tp 2\", shell=True)"
    )
    assert shell.words[0].unknown is not None
    assert words(shell)[-2:] == ["-tp", "2"]


def test_environment() -> None:
    text = (
        "import os\nos.environ['A'] = '1'\nos.environ.setdefault('B', '2')\n"
        "os.environ.update({'C': '3', 'D': name})\nif x:\n    os.environ['E'] = '5'\n"
        "if __name__ == '__main__':\n    os.environ['F'] = '6'\n" + VLLM + "LLM('m')"
    )
    found = {row.name: row.value for row in one(text).environment}
    assert found == {"A": "1", "B": "2", "C": "3", "D": None, "E": None, "F": "6"}
    assert one(text).environment[0].place == Place(file="serve.py", line=2)


def test_environment_of_a_command() -> None:
    launch = one(
        "import os, subprocess\nenv = {**os.environ, 'A': '1'}\n"
        "subprocess.run(['vllm', 'serve', 'm'], env=env)"
    )
    assert [(row.name, row.value) for row in launch.environment] == [("A", "1")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (\n", "serve.py:1: is no Python"),
        ("import vllm\n  LLM()\n", "serve.py:2: is no Python"),
        ("def f(:\n", "serve.py:1: is no Python"),
        ("x = 1\0\n", "serve.py"),
        ("(" * 5000 + ")" * 5000, "serve.py"),
        ("-" * 200_000 + "1", "serve.py"),
        ("x\n" * SIZE_LIMIT, "serve.py: 2,000,000 characters"),
        ("import subprocess\na = [*a]\nsubprocess.run(a)", "serve.py: is defined by itself"),
    ],
)
def test_what_is_no_python_is_one_line(text: str, message: str) -> None:
    with pytest.raises(Broken) as error:
        read(text, "serve.py")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_long_chains_are_read() -> None:
    text = f"{VLLM}X = {' + '.join(['1'] * 900)}\nLLM('m', x=X)"
    assert [launch.engine for launch in launches(text)] == ["vllm"]


def test_names_that_are_bound_again_and_again_are_folded_once() -> None:
    """A model of vLLM took 27 s: each of its bindings led to all others."""
    text = "".join(f"x = y + {n}\ny = x + {n}\n" for n in range(60))
    assert keywords(f"{VLLM}{text}LLM('m', x=x)")["x"] == Unknown("x")


def test_nothing_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    read(f"open({str(mark)!r}, 'w')\n__import__('os').system('touch {mark}')", "x.py")
    assert not mark.exists()


def test_a_notebook() -> None:
    book = {
        "cells": [
            {"cell_type": "markdown", "source": ["LLM('no')"]},
            {"cell_type": "code", "source": ["!pip install vllm\n", "from vllm import LLM\n"]},
            {"cell_type": "code", "source": "%%bash\nvllm serve x"},
            {"cell_type": "code", "source": ["\n", "LLM('m')"]},
        ]
    }
    (launch,) = read(json.dumps(book), "n.ipynb").launches
    assert launch.place == Place(file="n.ipynb cell 4", line=2)
    with pytest.raises(Broken, match=r"^n\.ipynb: is no notebook"):
        read("[]", "n.ipynb")


@settings(deadline=None, max_examples=60)
@given(st.text(alphabet="()[]{}'\"=.,:*xyLM \n\t#\\f0", max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(Broken):
        assert read(VLLM + text, "x.py").code.file == "x.py"
