"""The catalogue against the real parsers of seven versions."""

from __future__ import annotations

import pytest
import vllm_parsers
from vllm_parsers import LATE_CHOICES, NOT_READ, VERSIONS, by_name, kind_of, ours, real

from infer_doctor.vllm_arguments.table import catalogue


def test_there_are_dumps_of_at_least_three_versions() -> None:
    assert len(VERSIONS) >= 3


@pytest.mark.parametrize("version", VERSIONS)
def test_precision_and_recall_of_names_are_one(version: str) -> None:
    real_names, names = by_name(real(version)).keys(), ours(catalogue().table(version)).keys()
    assert names - real_names == set(), "precision"
    assert real_names - names == set(), "recall"


@pytest.mark.parametrize("version", VERSIONS)
def test_option_strings_fields_and_numbers_of_values(version: str) -> None:
    rows = ours(catalogue().table(version))
    for name, action in by_name(real(version)).items():
        row = rows[name]
        assert sorted(row["options"]) == sorted(action["options"] or [action["dest"]])
        assert row["dest"] == action["dest"]
        assert row.get("nargs") == (action["nargs"] or None), name
        assert row.get("action") == vllm_parsers.ACTIONS.get(action["action"]), name


@pytest.mark.parametrize("version", VERSIONS)
def test_choices(version: str) -> None:
    rows = ours(catalogue().table(version))
    for name, action in by_name(real(version)).items():
        if (version, name) in LATE_CHOICES:
            continue
        assert rows[name].get("choices") == action["choices"], name


@pytest.mark.parametrize("version", VERSIONS)
def test_kinds_of_values(version: str) -> None:
    rows = ours(catalogue().table(version))
    for name, action in by_name(real(version)).items():
        row = rows[name]
        if (version, name) in NOT_READ or "type" not in row:
            continue
        kind = row["type"].rstrip("?").replace("human-g", "human").replace("pairs", "json")
        wanted = kind_of(action)
        assert kind in wanted.split("|") or kind == wanted, (name, row["type"], action["type"])


@pytest.mark.parametrize("version", VERSIONS)
def test_precision_and_recall_of_variables_are_one(version: str) -> None:
    assert set(catalogue().table(version).variables) == set(real(version)["variables"])


@pytest.mark.parametrize("version", VERSIONS)
def test_defaults_that_are_told_are_true(version: str) -> None:
    table = catalogue().table(version)
    wrong = {}
    for name, action in by_name(real(version)).items():
        told = table.defaults.get(action["dest"])
        if told is not None and told != action["default"] and name != "model_tag":
            wrong[name] = (told, action["default"])
    assert wrong == {}
