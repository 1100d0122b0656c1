"""Builds infer-doctor.pyz, the doctor in one file for images where nothing may be installed.

    python scripts/make_pyz.py [-o build/infer-doctor.pyz]

It runs from the zip with Python 3.10 to 3.13 on any processor: everything in it is pure Python. For
each of these versions that is found on PATH it also holds the compiled modules, without which a start
would compile 300 of them. What only `fix`, `probe` and `check --container` need stays out.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent

VERSIONS = ("3.10", "3.11", "3.12", "3.13")

LEFT_OUT = frozenset(
    ("aiohttp", "docker", "huggingface-hub", "libcst", "prometheus-client", "psutil", "tomlkit")
)
"""Dependencies of commands that do not run from the file, and what is compiled."""

TRANSITIVE = ("markdown-it-py", "mdurl", "pygments", "tomli")
"""What the others need: rich to show Markdown, Python 3.10 to read TOML."""

FOLDERS = {"doctor": "infer_doctor", "checks": "infer_doctor/checks", "fixes": "infer_doctor/fixes"}

UNUSED = re.compile(
    r"\.so$|\.pyi$|/tests?/|^bin/|\.dist-info/|__pycache__|^pygments/(lexers|styles|formatters)/(?!__init__|_mapping)"
)
"""Of the dependencies: compiled parts that each of them can do without, and lexers nobody asks for."""

MAIN = '''\
"""Takes the modules that were compiled for this interpreter, else the sources."""

import os
import sys

archive = os.path.abspath(sys.path[0])
tag = "cp%d%d" % sys.version_info[:2]
if sys.version_info < (3, 10):
    sys.exit("infer-doctor needs Python 3.10 or newer, this is %d.%d" % sys.version_info[:2])
sys.path[0] = archive + "/" + (tag if tag in {tags!r} else "src")

from infer_doctor.__main__ import main

main()
'''

COMPILE = """
import pathlib, py_compile, sys
source, target = map(pathlib.Path, sys.argv[1:])
for path in source.rglob("*.py"):
    name = path.relative_to(source)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(path, target / name.with_suffix(".pyc"), str(name), True, invalidation_mode=mode)
"""

STAMP = (2020, 1, 1, 0, 0, 0)
"""Of every file in the archive."""


def requirements() -> list[str]:
    """What the project depends on and the file brings, with the project's bounds."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = []
    for line in settings["project"]["dependencies"]:
        name = re.split(r"[\s<>=!~;\[]", line, maxsplit=1)[0].lower()
        if name not in (*LEFT_OUT, *TRANSITIVE):
            found.append(line)
    return [*found, *TRANSITIVE]


def collect(folder: Path) -> None:
    """The sources of the project and of what it needs."""
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
    site = folder.with_name("site")
    subprocess.run([*words, "--target", str(site), *requirements()], check=True)
    for path in sorted(site.rglob("*")):
        name = path.relative_to(site).as_posix()
        if path.is_file() and not UNUSED.search(name):
            copy(path, folder / name)
    for source, target in FOLDERS.items():
        for path in sorted((ROOT / source).rglob("*")):
            name = path.relative_to(ROOT / source).as_posix()
            if path.is_file() and "__pycache__" not in name:
                copy(path, folder / target / name)


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def interpreters() -> dict[str, str]:
    """Tag -> command of each version that answers; this one in any case."""
    found = {}
    for version in VERSIONS:
        here = version == f"{sys.version_info[0]}.{sys.version_info[1]}"
        command = sys.executable if here else shutil.which(f"python{version}")
        if command and subprocess.run([command, "-c", ""], capture_output=True).returncode == 0:
            found[f"cp{version.replace('.', '')}"] = command
    return found


def build(output: Path) -> list[str]:
    """Write the file; returns the tags it holds compiled modules for."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        source = work / "src"
        collect(source)
        found = interpreters()
        parts = [source]
        for tag, command in found.items():
            subprocess.run([command, "-I", "-c", COMPILE, str(source), str(work / tag)], check=True)
            for path in source.rglob("*"):
                if path.is_file() and path.suffix != ".py":  # tables
                    copy(path, work / tag / path.relative_to(source))
            parts.append(work / tag)
        output.parent.mkdir(parents=True, exist_ok=True)
        with open(output, "wb") as file:
            file.write(b"#!/usr/bin/env python3\n")
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
                add(archive, "__main__.py", MAIN.format(tags=tuple(found)).encode())
                for part in parts:
                    for path in sorted(part.rglob("*")):
                        if path.is_file():
                            add(archive, path.relative_to(work).as_posix(), path.read_bytes())
        output.chmod(0o755)
        return list(found)


def add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, STAMP)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build" / "infer-doctor.pyz")
    output = parser.parse_args().output
    tags = build(output)
    size = output.stat().st_size / 1e6
    sys.stdout.write(f"{output}: {size:.1f} MB, compiled for {', '.join(tags)}\n")


if __name__ == "__main__":
    main()
