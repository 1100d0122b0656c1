"""Tokenizer, chat template and sampling defaults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from launches import config, files, launch, options

from infer_doctor.checks.model_tokenizer import (
    chat_template_missing,
    processor_missing,
    sampling_limited,
    sentencepiece_missing,
    tokenizer_missing,
)
from infer_doctor.facts.environment import Distribution, Distributions
from infer_doctor.facts.model_files import ModelFile
from infer_doctor.facts.model_parts import TokenizerFiles
from infer_doctor.models.gguf import Gguf
from infer_doctor.testing import contract, examine


def names(*found: str) -> tuple[ModelFile, ...]:
    return tuple(ModelFile(name=name, size=1000) for name in found)


def tokenizer(**more: Any) -> TokenizerFiles:
    return TokenizerFiles(files=files(**more), named=False)


def packages(*found: str) -> Distributions:
    rows = {
        name: Distribution(
            name=name,
            written_name=name,
            version="1.0",
            requires=(),
            requires_python=None,
            installer=None,
            project=None,
            record=True,
            metadata=f"/v/{name}.dist-info",
        )
        for name in found
    }
    return Distributions(by_name=rows, shadowed=(), shared=(), source="/v")


def test_tokenizer() -> None:
    bare = {"files": names("config.json", "model.safetensors")}
    contract(
        tokenizer_missing,
        fires=[launch(), options(), tokenizer(**bare)],
        passes=[launch(), options(), tokenizer()],
    )


def test_tokenizer_that_is_a_pointer() -> None:
    broken = {"broken": {"tokenizer.json": "is a Git LFS pointer"}}
    (finding,) = examine(tokenizer_missing, launch(), options(), tokenizer(**broken)).findings
    assert finding.message == "/models/m has no tokenizer: tokenizer.json is a Git LFS pointer"


def test_tokenizer_of_a_gguf_file() -> None:
    def gguf(**arrays: int) -> dict[str, Any]:
        header = Gguf(
            version=3, keys={}, arrays={k.replace("_", "."): v for k, v in arrays.items()}
        )
        return {"origin": "gguf", "config": None, "gguf": header}

    without, with_one = gguf(), gguf(tokenizer_ggml_tokens=3)
    facts = (launch(), options())
    fired = examine(tokenizer_missing, *facts, tokenizer(**without))
    assert "its header has no tokenizer.ggml.tokens" in fired.findings[0].message
    passed = examine(tokenizer_missing, *facts, tokenizer(**with_one))
    assert passed.outcome == "passed"


def test_sentencepiece() -> None:
    slow = tokenizer(files=names("config.json", "tokenizer.model"))
    contract(
        sentencepiece_missing,
        fires=[launch(), options(), slow, packages("vllm")],
        passes=[launch(), options(), slow, packages("vllm", "sentencepiece")],
    )
    facts = (launch(), options(), tokenizer(), packages("vllm"))
    assert examine(sentencepiece_missing, *facts).outcome == "passed"
    partly = replace(packages("vllm"), gaps=("/site-packages: Permission denied",))
    found = examine(sentencepiece_missing, launch(), options(), slow, partly)
    assert (found.outcome, found.reason) == ("blocked", "/site-packages: Permission denied")


MODEL = config("Qwen--Qwen3-8B")


def test_chat_template() -> None:
    contract(
        chat_template_missing,
        fires=[launch(), options(), tokenizer(tokenizer_config={}), MODEL],
        passes=[launch(), options(), tokenizer(), MODEL],
    )


def test_chat_template_in_other_places() -> None:
    def outcome(**more: Any) -> str:
        found = tokenizer(tokenizer_config={}, **more)
        return examine(chat_template_missing, launch(), options(), found, MODEL).outcome

    assert outcome(files=names("chat_template.jinja")) == "passed"
    assert outcome(files=names("additional_chat_templates/tools.jinja")) == "passed"
    assert outcome(files=names("template.jinja")) == "failed"  # nobody reads that name
    assert outcome(files=names("tekken.json")) == "passed"
    assert outcome(documents={"processor_config.json": {"chat_template": "x"}}) == "passed"
    assert outcome(left_out={"tokenizer_config.json": ("chat_template",)}) == "passed"
    assert outcome() == "failed"


def test_a_template_that_can_be_given() -> None:
    def fixes(**more: Any) -> list[tuple[str, str]]:
        found = tokenizer(**{"tokenizer_config": {}, "origin": "folder", "folder": "/m", **more})
        (finding,) = examine(chat_template_missing, launch(), options(), found, MODEL).findings
        return [(fix.title, fix.safety) for fix in finding.fixes[:-1]]

    assert fixes() == []
    one = fixes(files=names("chat.jinja"))
    assert one == [("Start with --chat-template /m/chat.jinja", "unsafe")]
    assert fixes(files=names("a.jinja", "b.jinja")) == []
    for token in ("<|im_end|>", {"content": "<|im_end|>"}):
        ((title, safety),) = fixes(tokenizer_config={"eos_token": token})
        assert (title[:48], safety) == (
            "Write the template of ChatML to /m/chat_template",
            "unsafe",
        )
    assert fixes(tokenizer_config={"eos_token": "</s>"}) == []


def test_chat_template_is_not_asked_of_everything() -> None:
    bare = tokenizer(tokenizer_config={})
    for asked, model in (
        (options(entry="LLM"), MODEL),
        (options(chat_template="t.jinja"), MODEL),
        (options(), config("BAAI--bge-m3")),
        (options(), config("deepseek-ai--DeepSeek-V3.2")),
        (options(runner="pooling"), MODEL),
    ):
        result = examine(chat_template_missing, launch(), asked, bare, model)
        assert result.outcome == "not_applicable"


def test_tools_without_a_template_are_an_error() -> None:
    asked = options(enable_auto_tool_choice=True, tool_call_parser="hermes")
    bare = tokenizer(tokenizer_config={})
    (finding,) = examine(chat_template_missing, launch(), asked, bare, MODEL).findings
    assert finding.severity == "error"


def test_sampling() -> None:
    contract(
        sampling_limited,
        fires=[launch(), options(), files(generation_config={"max_new_tokens": 512})],
        passes=[launch(), options(), files(generation_config={"temperature": 0.6})],
    )
    facts = (options(generation_config="vllm"), files(generation_config={"max_new_tokens": 512}))
    assert examine(sampling_limited, launch(), *facts).outcome == "not_applicable"


def test_processor() -> None:
    seeing = config("Qwen--Qwen3-VL-8B-Instruct")
    whole = files(files=names("config.json", "preprocessor_config.json"))
    contract(
        processor_missing,
        fires=[launch(), options(), files(), seeing],
        passes=[launch(), options(), whole, seeing],
    )
    facts = (launch(), options(language_model_only=True), files(), seeing)
    assert examine(processor_missing, *facts).outcome == "not_applicable"


def test_what_a_cache_lacks_is_downloaded_unless_that_is_forbidden() -> None:
    part = {"origin": "cache", "model": "org/m", "files": names("config.json", "model.safetensors")}
    seeing = config("Qwen--Qwen3-VL-8B-Instruct")
    offline = launch(HF_HUB_OFFLINE="1")
    for check, facts in (
        (tokenizer_missing, (options("org/m"), tokenizer(**part))),
        (processor_missing, (options("org/m"), files(**part), seeing)),
    ):
        assert examine(check, launch(), *facts).outcome == "not_applicable"
        (finding,) = examine(check, offline, *facts).findings
        assert finding.message.startswith("org/m in the cache has ")
