"""Length, class and code of a model against engine and launch."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from launches import config, files, launch, options

from infer_doctor.checks.launch_model import (
    architecture_unknown,
    context_too_long,
    model_type_unknown,
    remote_code_needed,
    remote_code_needless,
)
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_config import ModelConfig
from infer_doctor.facts.model_support import ModelSupport, relatives
from infer_doctor.launch.model import Variable
from infer_doctor.testing import contract, examine

QWEN = "Qwen--Qwen2.5-7B-Instruct"
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def support(**more: Any) -> ModelSupport:
    rows: dict[str, Any] = {
        "architectures": ("Qwen2ForCausalLM",),
        "known": ("Qwen2ForCausalLM",),
        "removed": {},
        "plugins": {},
        "in_transformers": (),
        "model_type": "qwen2",
        "type_known": True,
        "basis": "installed source",
        "exact": True,
        "source": "/v/registry.py",
        "transformers": "5.19.0",
    }
    return ModelSupport(**{**rows, **more})


def length(wanted: Any, name: str = QWEN, version: str = "0.32.0", **changed: Any) -> str | None:
    facts = (launch(), options(version=version, max_model_len=wanted), config(name, **changed))
    findings = examine(context_too_long, *facts).findings
    return findings[0].message if findings else None


def test_length_contract() -> None:
    contract(
        context_too_long,
        fires=[launch(), options(max_model_len=131072), config(QWEN)],
        passes=[launch(), options(max_model_len=32768), config(QWEN)],
    )


def test_length_names_the_limit() -> None:
    assert length(40000) == "--max-model-len 40000, but the model goes up to 32,768 tokens"


def test_length_and_rope_as_the_real_engine_decides() -> None:
    """Each line was tried with vLLM 0.32.0."""
    assert length(131072, rope_scaling={"type": "linear", "factor": 4.0}) is None
    assert length(65536, rope_scaling={"type": "dynamic", "factor": 2.0}) is None
    assert length(65537, rope_scaling={"type": "dynamic", "factor": 2.0}) is not None
    assert length(131072, rope_scaling=YARN) is not None
    assert length(131072, rope_scaling=YARN, max_position_embeddings=131072) is None
    assert length(8192, "microsoft--Phi-3-mini-4k-instruct") is not None
    assert length(131072, "google--gemma-3-27b-it") is None
    assert length(999_999, "bigscience--bloom-7b1") is None


def test_length_with_yarn_in_older_versions_counts_the_factor() -> None:
    assert length(131072, version="0.10.0", rope_scaling=YARN) is None
    assert length(131073, version="0.10.0", rope_scaling=YARN) is not None


@pytest.mark.parametrize("wanted", ["auto", -1])
def test_length_of_the_model(wanted: Any) -> None:
    result = examine(context_too_long, launch(), options(max_model_len=wanted), config(QWEN))
    assert result.outcome == "not_applicable"


def test_length_allowed_by_a_variable_is_a_warning() -> None:
    facts = (launch(VLLM_ALLOW_LONG_MAX_MODEL_LEN="1"), options(max_model_len=40000), config(QWEN))
    (finding,) = examine(context_too_long, *facts).findings
    assert finding.severity == "warning"


@pytest.mark.parametrize("value", ["YES", "on", "0", ""])
def test_a_word_that_vllm_does_not_take_allows_nothing(value: str) -> None:
    own = launch(VLLM_ALLOW_LONG_MAX_MODEL_LEN=value)
    facts = (own, options(max_model_len=40000), config(QWEN))
    assert [f.severity for f in examine(context_too_long, *facts).findings] == ["error"]


def test_a_variable_that_the_launch_does_not_tell_is_not_that_of_this_machine() -> None:
    name = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
    here = Environ(variables={name: "1"})
    facts = (options(max_model_len=40000), config(QWEN), here)
    (finding,) = examine(context_too_long, launch(), *facts).findings
    assert finding.severity == "warning"
    hidden = Variable(name=name, value=None, place=launch().place, source="shell")
    own = dataclasses.replace(launch(), environment=(hidden,))
    assert examine(context_too_long, own, *facts).outcome == "blocked"


def unknown(**more: Any) -> list[Any]:
    names = ("NopeForCausalLM",)
    return [support(architectures=names, known=(), **more)]


def test_architecture_contract() -> None:
    model = config(QWEN, architectures=["NopeForCausalLM"])
    contract(
        architecture_unknown,
        fires=[launch(), options(), model, *unknown()],
        passes=[launch(), options(), config(QWEN), support()],
    )


def test_a_model_without_architectures_is_undecided() -> None:
    facts = (launch(), options(), config(QWEN), support(architectures=(), known=()))
    result = examine(architecture_unknown, *facts)
    assert (result.outcome, result.reason) == ("blocked", "config.json names no architectures")


def test_architecture_removed() -> None:
    name = "MPTForCausalLM"
    facts = support(architectures=(name,), known=(), removed={name: "0.28.0"})
    model = config("mosaicml--mpt-7b")
    (finding,) = examine(architecture_unknown, launch(), options(), model, facts).findings
    assert finding.message == (
        "MPTForCausalLM was part of vLLM until 0.28.0; 0.32.0 has it no more"
    )


def test_architecture_of_transformers_may_run() -> None:
    facts = unknown(in_transformers=("NopeForCausalLM",))
    result = examine(architecture_unknown, launch(), options(), config(QWEN), *facts)
    assert result.outcome == "passed"


def test_architecture_for_another_task_is_the_same_model() -> None:
    assert "Qwen2ForCausalLM" in relatives("Qwen2ForSequenceClassification")
    assert relatives("Whatever") == ("Whatever",)


def test_model_type() -> None:
    """qwen3_moe with transformers 4.46: vllm-project/vllm issue 19793."""
    old = support(model_type="qwen3_moe", type_known=False, transformers="4.46.0")
    model = config("Qwen--Qwen3-30B-A3B")
    contract(
        model_type_unknown,
        fires=[launch(), options(), model, old],
        passes=[launch(), options(), model, support()],
    )
    (finding,) = examine(model_type_unknown, launch(), options(), model, old).findings
    assert "transformers 4.46.0 knows no model type 'qwen3_moe'" in finding.message


def custom(**more: Any) -> ModelConfig:
    own = {"AutoConfig": "configuration_nope.NopeConfig"}
    return config(QWEN, model_type="nope", auto_map=own, **more)


def test_remote_code_needed() -> None:
    missing = support(model_type="nope", type_known=False)
    contract(
        remote_code_needed,
        fires=[launch(), options(), custom(), missing],
        passes=[launch(), options(trust_remote_code=True), custom(), missing],
    )
    # transformers has the type: the code in the model is not used
    facts = (launch(), options(), custom(), support())
    assert examine(remote_code_needed, *facts).outcome == "passed"


def test_remote_code_needless() -> None:
    trusting = options(trust_remote_code=True)
    contract(
        remote_code_needless,
        fires=[launch(), trusting, files(QWEN), config(QWEN), support()],
        passes=[launch(), trusting, files(QWEN), custom(), support()],
    )
    coded = files(
        QWEN, tokenizer_config={"auto_map": {"AutoTokenizer": ["tokenization_x.T", None]}}
    )
    facts = (launch(), trusting, coded, config(QWEN), support())
    assert examine(remote_code_needless, *facts).outcome == "passed"
    facts = (launch(), trusting, files(QWEN), config(QWEN), support(type_known=None))
    assert examine(remote_code_needless, *facts).outcome == "blocked"
