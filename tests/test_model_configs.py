"""Public models: what is read of their config.json, and that valid launches of them are not accused.

tests/cases/configs-engine.json holds what the real vLLM 0.32.0 made of the same files.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launches import capabilities, config, files, gpus, launch, options, values

from infer_doctor.catalog.models import published
from infer_doctor.checks.launch_parallel import tp_indivisible
from infer_doctor.engine import Subject, run_check
from infer_doctor.facts.model_config import ModelConfig
from infer_doctor.facts.model_files import ModelFile
from infer_doctor.facts.model_parts import TokenizerFiles
from infer_doctor.facts.model_support import _catalogued
from infer_doctor.models import config as read
from infer_doctor.models import parallel
from infer_doctor.registry import Check, Registry
from infer_doctor.testing import examine

CASES = Path(__file__).parent / "cases"
NAMES = sorted(path.stem for path in (CASES / "configs").glob("*.json"))
ENGINE: dict[str, dict[str, Any]] = json.loads((CASES / "configs-engine.json").read_text())[
    "models"
]

MODULES = (
    "launch_additions",
    "launch_attention",
    "launch_gpus",
    "launch_model",
    "launch_parallel",
    "launch_quantization",
    "model_files",
    "model_formats",
    "model_tokenizer",
)

REMOVED = ("mosaicml--mpt-7b",)
"""Of these only: vLLM had its architecture until 0.28."""

CLASS_DEFAULTS = {
    ("nvidia--Nemotron-H-56B-Base-8K", "experts"),
    ("state-spaces--mamba-2.8b-hf", "heads"),
    ("state-spaces--mamba-2.8b-hf", "head"),
}
"""Numbers that the engine has from transformers' classes, not from the file."""


def own_checks() -> list[Check]:
    found = []
    for name in MODULES:
        module = importlib.import_module(f"infer_doctor.checks.{name}")
        found += [
            v.infer_doctor_check for v in vars(module).values() if hasattr(v, "infer_doctor_check")
        ]
    return found


CHECKS = own_checks()


def test_there_are_enough_models() -> None:
    assert len(NAMES) >= 60
    assert len(ENGINE) >= 50
    assert len(CHECKS) >= 25


@pytest.mark.parametrize("name", sorted(ENGINE))
def test_a_config_is_read_as_the_engine_reads_it(name: str) -> None:
    found, expected = values(name), ENGINE[name]
    limit, _ = read.longest(found)
    mine = {
        "heads": read.size(found, "heads"),
        "kv": read.kv_heads(found),
        "head": read.head_size(found),
        "layers": read.size(found, "layers"),
        "hidden": read.size(found, "hidden"),
        "vocab": read.size(found, "vocabulary"),
        "experts": read.experts(found),
        "mla": read.is_mla(found),
        "max": expected["max"] if limit is None and expected["unlimited"] else limit,
    }
    wrong = {
        key: (value, expected[key])
        for key, value in mine.items()
        if value != expected[key] and (name, key) not in CLASS_DEFAULTS
    }
    assert wrong == {}


def largest(name: str) -> int:
    """The largest tensor parallel size on a machine of eight GPUs."""
    found = values(name)
    sizes = parallel.sizes(found, found.get("quantization_config"))
    return max(size for size in sizes if size <= 8)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gpu", [(9, 0), (10, 0)], ids=["h200", "b200"])
def test_a_valid_launch_gets_no_warning(name: str, gpu: tuple[int, int]) -> None:
    found = values(name)
    own = isinstance(found.get("auto_map"), dict)
    given: dict[str, Any] = {"tensor_parallel_size": largest(name)}
    if (limit := read.longest(found)[0]) is not None:
        given["max_model_len"] = limit
    if own:
        given["trust_remote_code"] = True
    more = {"files": (*files(name).files, ModelFile(name="preprocessor_config.json", size=900))}
    whole = files(name, **more)
    facts = [
        launch(),
        options(model=name.replace("--", "/"), **given),
        whole,
        config(name),
        gpus(8),
        capabilities(*[gpu] * 8),
        TokenizerFiles(files=whole, named=False),
        _catalogued("0.32.0", read.architectures(found), read.model_type(found)),
    ]
    subject = Subject("test", Registry(), host=None, given=facts, unasked="not given")
    findings = [f for check in CHECKS for f in run_check(check, subject).findings]
    bad = [(f.check, f.message) for f in findings if f.severity != "info"]
    if name in REMOVED:
        assert [check for check, _ in bad] == ["launch-architecture-unknown"]
    else:
        assert bad == []
    crashed = [check.id for check in CHECKS if run_check(check, subject).outcome == "crashed"]
    assert crashed == []


@pytest.mark.parametrize("name", NAMES)
def test_a_size_that_no_number_of_heads_allows_is_found(name: str) -> None:
    """97 ranks: prime, and above every number of heads but not above every vocabulary."""
    facts = (launch(), options(tensor_parallel_size=97), files(name), config(name))
    assert examine(tp_indivisible, *facts).outcome == "failed"


def test_a_length_above_the_limit_is_found_as_by_the_engine() -> None:
    from infer_doctor.checks.launch_model import context_too_long

    for name, expected in ENGINE.items():
        if expected["unlimited"]:
            continue
        for more, outcome in ((0, "passed"), (1, "failed")):
            asked = options(max_model_len=expected["max"] + more)
            result = examine(context_too_long, launch(), asked, config(name))
            assert result.outcome == outcome, name


WEIRD: list[Any] = [None, [], {}, "x", -1, 0, 1.5, True, {"a": []}, [[]], 10**30, {"factor": "x"}]


def test_a_config_of_any_form_crashes_no_check() -> None:
    """Every key in turn takes values of another kind than it should have."""
    base = values("Qwen--Qwen3-VL-8B-Instruct")
    spots = [(key,) for key in (*base, "quantization_config", "auto_map", "rope_parameters")]
    spots += [("text_config", key) for key in base["text_config"]]
    asked = options(
        tensor_parallel_size=4,
        pipeline_parallel_size=2,
        decode_context_parallel_size=2,
        max_model_len=99_999_999,
        quantization="awq",
        kv_cache_dtype="fp8",
        attention_backend="FLASHINFER",
        trust_remote_code=True,
        enable_expert_parallel=True,
        runner="generate",
    )
    crashed = []
    for spot in spots:
        for weird in WEIRD:
            found = json.loads(json.dumps(base))
            part = found if len(spot) == 1 else found[spot[0]]
            part[spot[-1]] = weird
            own = found.get("quantization_config")
            whole = files(
                "Qwen--Qwen3-8B", config=found, quantization=own if isinstance(own, dict) else None
            )
            facts = [
                launch(),
                asked,
                whole,
                ModelConfig(values=found, source="config.json"),
                gpus(2),
                capabilities((7, 5), (7, 5)),
                TokenizerFiles(files=whole, named=False),
                _catalogued("0.33.0", read.architectures(found), read.model_type(found)),
            ]
            subject = Subject("test", Registry(), host=None, given=facts, unasked="not given")
            rows = [run_check(check, subject) for check in CHECKS]
            crashed += [(spot, weird, r.reason) for r in rows if r.outcome == "crashed"]
    assert crashed == []


def test_the_catalogue_of_models_is_made_of_these_files() -> None:
    root = Path(__file__).parent.parent
    made = subprocess.run(
        [sys.executable, str(root / "scripts" / "make_models.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == (root / "doctor" / "catalog" / "models.json").read_text()


def test_base_and_instruct_of_a_family_have_their_own_length() -> None:
    def limit(name: str) -> int | None:
        found = published(name)
        assert found is not None
        return read.longest(found)[0]

    assert limit("Qwen/Qwen2.5-32B") == 131072
    assert limit("Qwen/Qwen2.5-32B-Instruct") == 32768
    assert limit("Qwen/Qwen2.5-1.5B") == 32768
