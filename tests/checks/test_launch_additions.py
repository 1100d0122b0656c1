"""Tasks, adapters and draft models."""

from __future__ import annotations

from typing import Any

from launches import config, files, launch, options

from infer_doctor.checks.launch_additions import (
    draft_vocabulary,
    lora_refused,
    model_cannot,
    pooling_model_chat,
)
from infer_doctor.facts.model_parts import Adapter, DraftModel, LoraAdapters
from infer_doctor.facts.model_support import ModelSupport
from infer_doctor.testing import contract, examine

QWEN = "Qwen--Qwen2.5-7B-Instruct"


def test_pooling() -> None:
    model = config("BAAI--bge-m3")
    contract(
        pooling_model_chat,
        fires=[launch(), options(runner="generate"), model],
        passes=[launch(), options(runner="generate"), config(QWEN)],
    )
    tools = options(tool_call_parser="hermes", enable_auto_tool_choice=True)
    (finding,) = examine(pooling_model_chat, launch(), tools, model).findings
    assert finding.severity == "warning"


def adapters(**config: Any) -> LoraAdapters:
    return LoraAdapters(adapters=(Adapter(name="sql", path="/a/sql", config=config),))


def test_lora() -> None:
    given = {"enable_lora": True, "lora_modules": ["sql=/a/sql"]}
    contract(
        lora_refused,
        fires=[launch(), options(**given), files(), adapters(r=64)],
        passes=[launch(), options(**given, max_lora_rank=64), files(), adapters(r=64)],
    )
    facts = (launch(), options(**given), files(), adapters(r=40))
    (finding,) = examine(lora_refused, *facts).findings
    assert finding.message == "adapter sql has rank 40; the launch allows 16"
    assert finding.fixes[0].title == "Start with --max-lora-rank 64"


def test_lora_without_the_option_and_without_a_folder() -> None:
    gone = Adapter(name="x", path="/a/x", problem="/a/x does not exist", here=False)
    facts = (launch(), options(lora_modules=["x=/a/x"]), files(), LoraAdapters(adapters=(gone,)))
    messages = [finding.message for finding in examine(lora_refused, *facts).findings]
    assert messages == [
        "--lora-modules is given, but --enable-lora is not",
        "adapter x: /a/x does not exist",
    ]


def test_lora_for_another_model() -> None:
    served = files(model="Qwen/Qwen2.5-7B-Instruct", origin="cache")
    other = adapters(r=8, base_model_name_or_path="meta-llama/Llama-3.1-8B")
    facts = (launch(), options(enable_lora=True, lora_modules=["sql=/a/sql"]), served, other)
    (finding,) = examine(lora_refused, *facts).findings
    assert (finding.severity, finding.category) == ("warning", "quality")


def draft(name: str) -> DraftModel:
    return DraftModel(files=files(name, model="draft"), method=None)


def test_draft() -> None:
    given = options(speculative_config={"model": "draft", "num_speculative_tokens": 3})
    contract(
        draft_vocabulary,
        fires=[launch(), given, config(QWEN), draft("Qwen--Qwen3-0.6B")],
        passes=[launch(), given, config("Qwen--Qwen3-8B"), draft("Qwen--Qwen3-0.6B")],
    )


def supporting(*bases: str) -> ModelSupport:
    return ModelSupport(
        architectures=("FalconForCausalLM",),
        known=("FalconForCausalLM",),
        removed={},
        plugins={},
        in_transformers=(),
        model_type="falcon",
        type_known=True,
        basis="installed source",
        exact=True,
        source="/v/registry.py",
        transformers="5.19.0",
        bases=bases,
        class_source="/v/falcon.py",
    )


def test_model_cannot() -> None:
    staged = options(pipeline_parallel_size=2)
    contract(
        model_cannot,
        fires=[launch(), staged, supporting("nn.Module", "SupportsLoRA")],
        passes=[launch(), staged, supporting("nn.Module", "SupportsPP")],
    )
    asked = options(enable_lora=True)
    (finding,) = examine(
        model_cannot, launch(), asked, supporting("nn.Module", "SupportsPP")
    ).findings
    assert finding.message == "FalconForCausalLM of vLLM 0.32.0 cannot take LoRA adapters"
    parent = supporting("LlamaForCausalLM", "SupportsPP")
    assert examine(model_cannot, launch(), staged, parent).outcome == "passed"
    assert examine(model_cannot, launch(), asked, parent).outcome == "blocked"
