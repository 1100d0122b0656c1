"""Tokenizers, drafts and adapters that a launch names, as real folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import model_folder
import pytest
from launches import options

from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_files import model_files
from infer_doctor.facts.model_parts import draft_model, lora_adapters, tokenizer_files
from infer_doctor.host import Absent
from infer_doctor.live import LiveHost

NOTHING = Environ(variables={})


@pytest.fixture
def host() -> Iterator[LiveHost]:
    with LiveHost() as live:
        yield live


def test_tokenizer(host: LiveHost, tmp_path: Path) -> None:
    model = model_folder.folder(tmp_path / "m")
    other = model_folder.folder(tmp_path / "t", None, shards=0)
    asked = options(str(model))
    own = model_files(host, asked, None, NOTHING)
    assert tokenizer_files(host, asked, own, None, NOTHING).files is own
    asked = options(str(model), tokenizer=str(other))
    found = tokenizer_files(host, asked, own, None, NOTHING)
    assert (found.named, found.files.folder) == (True, str(other))


def test_draft(host: LiveHost, tmp_path: Path) -> None:
    draft = model_folder.folder(tmp_path / "d")
    for given in (
        {"speculative_config": {"model": str(draft), "num_speculative_tokens": 3}},
        {"spec_model": str(draft)},
        {"speculative_model": str(draft)},
    ):
        found = draft_model(host, options(**given), None, NOTHING)
        assert found.files.config == model_folder.TINY
    with pytest.raises(Absent):
        draft_model(host, options(speculative_model="[ngram]"), None, NOTHING)


def test_adapters(host: LiveHost, tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.mkdir()
    model_folder.write_json(good / "adapter_config.json", {"r": 8})
    model_folder.safetensors(good / "adapter_model.safetensors", {"a": ("BF16", (2, 2))})
    bare = tmp_path / "bare"
    bare.mkdir()
    given = [f"a={good}", f'{{"name": "b", "path": "{bare}"}}', f"c={tmp_path}/gone", "d=org/x"]
    found = lora_adapters(host, options(lora_modules=given), None, NOTHING)
    assert [(row.name, row.problem) for row in found.adapters] == [
        ("a", None),
        ("b", f"{bare} has no adapter_config.json"),
        ("c", f"{tmp_path}/gone does not exist"),
        ("d", None),
    ]
    assert found.adapters[0].config == {"r": 8}
    assert [row.here for row in found.adapters] == [True, True, False, False]
