"""Shebangs and shims: what real installers write, and what is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from infer_doctor.facts.scripts import (
    interpreter_of,
    latest,
    parents,
    path_lines,
    pyenv_root,
    pyenv_versions,
    settings,
)

CAPTURES = Path(__file__).parents[1] / "captures" / "environment"
LONG = "/srv/" + "long" * 40 + "/bin/python"

SCRIPTS = {
    "pip": ("#!/srv/engine/bin/python3\n# -*- coding: utf-8 -*-\n", "/srv/engine/bin/python3"),
    "with an option": ("#!/opt/venv/bin/python -s\nimport sys\n", "/opt/venv/bin/python"),
    "env": ("#!/usr/bin/env python3\n", "env python3"),
    "env -S": ("#!/usr/bin/env -S python3 -I\n", "env python3"),
    "env with a variable": ("#!/usr/bin/env -S A=b python3.12\n", "env python3.12"),
    "pip, long path": (f"#!/bin/sh\n'''exec' {LONG} \"$0\" \"$@\"\n' '''\n", LONG),
    "pip, blank in the path": (
        "#!/bin/sh\n'''exec' \"/srv/my env/bin/python\" \"$0\" \"$@\"\n' '''\n",
        "/srv/my env/bin/python",
    ),
    "uv, long path": (f"#!/bin/sh\n'''exec' '{LONG}' \"$0\" \"$@\"\n' '''\n", LONG),
    "uv, relocatable": (
        "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python' \"$0\" \"$@\"\n' '''\n",
        "/srv/my env/bin/python",
    ),
    "a shell script": ("#!/bin/bash\nexec docker run vllm\n", None),
    "no shebang": ("print(1)\n", None),
    "empty": ("", None),
    "only the mark": ("#!\n", None),
    "env alone": ("#!/usr/bin/env\n", None),
    "an open quotation mark": ('#!/bin/sh\n\'\'\'exec\' "/srv/x "$0" "$@"\n', None),
    "a program": ("\x7fELF\x02\x01", None),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_interpreter_of(name: str) -> None:
    text, wanted = SCRIPTS[name]
    assert interpreter_of(text, "/srv/my env/bin") == wanted


def test_pyenv_shim() -> None:
    text = (CAPTURES / "pyenv-shim.txt").read_text()
    assert pyenv_root(text, "/opt/pyenv/shims/vllm") == "/opt/pyenv"
    assert pyenv_root(text, "/usr/bin/vllm") is None
    assert pyenv_root("#!/bin/sh\nexec python3\n", "/opt/pyenv/shims/vllm") is None


def test_pyenv_versions() -> None:
    assert pyenv_versions("3.11.7\n# a comment\n3.12 system  # more\n") == [
        "3.11.7",
        "3.12",
        "system",
    ]
    assert pyenv_versions("") == []


def test_latest_is_the_highest_by_number() -> None:
    installed = ("3.1.9", "3.11.4", "3.11.10", "3.11.9-dev", "engine")
    assert latest("3.11", installed) == "3.11.10"
    assert latest("engine", installed) == "engine"
    assert latest("3.1", installed) == "3.1.9"
    assert latest("3.13", installed) is None


def test_parents() -> None:
    assert list(parents("/a/b")) == ["/a/b", "/a", "/"]


def test_path_lines_are_never_code() -> None:
    text = "import os; os.system('x')\n# comment\n\n/srv/project\n../relative\nimport\tsys\n"
    assert path_lines(text) == ["/srv/project", "../relative"]


@pytest.mark.parametrize(
    ("file", "version"), [("pyvenv-venv.txt", "3.11.7"), ("pyvenv-uv.txt", None)]
)
def test_settings_of_real_files(file: str, version: str | None) -> None:
    found = settings((CAPTURES / file).read_text())
    assert found["home"] == "/opt/pyenv/versions/3.11.7/bin"
    assert found["include-system-site-packages"] == "false"
    assert found.get("version") == version
    assert (version or found.get("version_info")) == "3.11.7"


def test_settings_of_broken_text() -> None:
    assert settings("") == {}
    assert settings("no equals sign\n=\n\\xff = 1") == {"": "", "\\xff": "1"}
