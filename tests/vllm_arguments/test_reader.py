"""The static reader on sources that are no vLLM, broken or hostile, and the hash of the sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from infer_doctor.hands.vllm_arguments import vllm_arguments, vllm_digest
from infer_doctor.hands.vllm_source import TooMuch

SERVE = """
from vllm.engine.arg_utils import EngineArgs, get_kwargs
class ServeSubcommand:
    name = "serve"
    def subparser_init(self, subparsers):
        parser = subparsers.add_parser(self.name)
        EngineArgs.add_cli_args(parser)
        return parser
"""

ARGS = """
from dataclasses import dataclass
from vllm.config import CacheConfig
def get_kwargs(cls): ...
@dataclass
class EngineArgs:
    block_size: int = 16
    @staticmethod
    def add_cli_args(parser):
        kwargs = get_kwargs(CacheConfig)
        group = parser.add_argument_group(title="Cache")
        for name, value in kwargs.items():
            group.add_argument(f"--{name.replace('_', '-')}", **value)
        kwargs["block_size"]["choices"] += [32]
        group.add_argument("--again", **{**kwargs["block_size"], "default": 8})
"""

CONFIG = """
from typing import Literal
from pydantic import Field
def config(cls): return cls
@config
class CacheConfig:
    block_size: Literal[8, 16] | None = 16
    share: float = Field(default=0.9, gt=0, le=1)
    on: bool = False
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in {
        "__init__.py": "",
        "config.py": CONFIG,
        "engine/__init__.py": "",
        "engine/arg_utils.py": ARGS,
        "entrypoints/cli/serve.py": SERVE,
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_fields_become_arguments(package: Path) -> None:
    rows = {row["dest"]: row for row in vllm_arguments(str(package))["arguments"]}
    assert rows["block_size"]["choices"] == [8, 16, "None"]
    assert rows["again"]["choices"] == [8, 16, "None", 32]
    assert rows["block_size"]["type"] == "int?"
    assert rows["share"]["bounds"] == {"gt": 0, "le": 1}
    assert rows["on"]["options"] == ["--on", "--no-on"]
    assert rows["again"]["default"] == 8
    assert rows["again"]["group"] == "Cache"


def test_the_hash_follows_the_sources(package: Path) -> None:
    before = vllm_digest(str(package))
    (package / "engine/arg_utils.py").write_text(ARGS + "\n# changed\n")
    after = vllm_digest(str(package))
    assert before["files"] == after["files"] > 0
    assert before["sha256"] != after["sha256"]


def test_nothing_of_the_package_is_run(package: Path) -> None:
    place = package / "was_run"
    (package / "engine/arg_utils.py").write_text(f"open({str(place)!r}, 'w')\n" + ARGS)
    vllm_arguments(str(package))
    assert not place.exists()


def test_a_source_that_is_no_python_is_said(package: Path) -> None:
    (package / "engine/arg_utils.py").write_text("def broken(:\n")
    with pytest.raises(SyntaxError):
        vllm_arguments(str(package))


def test_no_vllm_has_no_arguments(tmp_path: Path) -> None:
    assert vllm_arguments(str(tmp_path))["arguments"] == []


def test_a_source_that_never_ends_is_given_up(package: Path) -> None:
    loop = "x = [[i for i in range(999)] for j in range(999)]\n        y = x\n"
    endless = ARGS.replace("kwargs = get", f"{loop}        " * 3 + "kwargs = get")
    (package / "engine/arg_utils.py").write_text(endless)
    with pytest.raises(TooMuch):
        vllm_arguments(str(package))


def test_a_name_that_leads_to_itself_is_unknown(package: Path) -> None:
    (package / "config.py").write_text("from vllm.config import CacheConfig\n")
    rows = vllm_arguments(str(package))["arguments"]
    assert [row["dest"] for row in rows] == ["again"]
