"""Files that start an engine, read as `check FILE` reads them, without a machine."""

from typing import Any

from infer_doctor.facts.vllm_options import engine_options, vllm_table
from infer_doctor.launch.model import Launch
from infer_doctor.launch.recognise import launches


def launches_in(text: str, file: str) -> list[Launch]:
    """The launches of a text."""
    found = launches(text, file, None)
    assert found is not None, "no file that is known"
    return found[0]


def facts(text: str, file: str) -> list[Any]:
    """The Launch of a text with one engine, and its EngineOptions."""
    (launch,) = launches_in(text, file)
    return facts_of(launch)


def facts_of(launch: Launch) -> list[Any]:
    """The Launch and its EngineOptions."""
    return [launch, engine_options(launch, vllm_table(launch, None, None, None))]
