"""From a launch to what is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infer_doctor.launch.command import read as read_command
from infer_doctor.launch.python import read as read_python
from infer_doctor.runs import tiny
from infer_doctor.runs.words import NoRun, program_of


def test_a_server_is_started_as_it_is_written() -> None:
    words = ("env", "A=1", "vllm", "serve", "m", "-tp", "2")
    assert program_of(read_command(words), None) == words


def test_a_call_of_llm_is_served_with_its_values() -> None:
    code = (
        "from vllm import LLM\n"
        "LLM(model='m', enforce_eager=True, max_model_len=9, enable_prefix_caching=False,\n"
        "    hf_overrides={'a': 1})\n"
    )
    (launch,) = read_python(code, "x.py").launches
    assert program_of(launch, "/venv/bin/python") == (
        *("/venv/bin/python", "-m", "vllm.entrypoints.cli.main", "serve", "m"),
        *("--enforce-eager", "--max-model-len", "9", "--no-enable-prefix-caching"),
        *("--hf-overrides", '{"a": 1}'),
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("vllm", "bench", "serve"), "a run needs a server"),
        (("echo", "vllm"), "starts neither"),
        (("docker", "run", "vllm/vllm-openai", "--model", "m"), "for another machine"),
    ],
)
def test_what_cannot_be_started_says_why(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(NoRun, match=why):
        program_of(read_command(words), None)


def test_the_tiny_model_is_whole(tmp_path: Path) -> None:
    shape = tiny.Shape(layers=3)
    tiny.write(str(tmp_path), shape)
    data = (tmp_path / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    assert len(data) - 8 - size == shape.weight_bytes
    assert max(row["data_offsets"][1] for row in header.values()) == shape.weight_bytes
    assert len(header) == 3 + 9 * 3
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    assert len(vocabulary) == 259 <= shape.vocabulary
    again = tmp_path / "again"
    tiny.write(str(again), shape)
    assert (again / "model.safetensors").read_bytes() == data
