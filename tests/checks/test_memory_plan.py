"""Findings of the memory plan: real starts that failed, and small changes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memory_starts import H200, STARTS, TRUTH

from infer_doctor.checks.memory_plan import (
    context_too_long,
    does_not_load,
    graphs_too_large,
    no_cache_room,
    sequences_too_many,
    start_refused,
    unused,
)
from infer_doctor.facts.engine_options import EngineOptions, Option
from infer_doctor.facts.memory_plan import Planned
from infer_doctor.launch.model import COMMAND_LINE, Launch, Place, Word
from infer_doctor.memory.inputs import Source, inputs_of
from infer_doctor.memory.parts import Gpu
from infer_doctor.model import Finding
from infer_doctor.testing import contract, examine

GIB = 1 << 30
PLACE = Place(file=COMMAND_LINE)


def facts(
    model: str, gpu: Gpu = H200, gpus: int = 8, entry: str = "LLM", **values: Any
) -> list[object]:
    """All that a check of the plan needs, for `vllm serve MODEL --option value ...`."""
    words = [Word(text=f"/models/{model}", place=PLACE)]
    given = {}
    for name, value in values.items():
        flag = "--" + name.replace("_", "-")
        text = "" if value is True else str(value)
        given[name] = Option(name=name, flag=flag, value=value, text=text, place=PLACE)
        words += [Word(text=word, place=PLACE) for word in (flag, text) if word]
    launch = Launch(
        name=COMMAND_LINE,
        kind="command",
        machine="local",
        engine="vllm",
        entry="serve",
        place=PLACE,
        program=(Word(text="vllm", place=PLACE), Word(text="serve", place=PLACE)),
        words=tuple(words),
    )
    named = Option(
        name="model", flag="", value=f"/models/{model}", text=f"/models/{model}", place=PLACE
    )
    options = EngineOptions(
        engine="vllm",
        version="0.26.0",
        basis="catalogue 0.26.0",
        exact=True,
        entry="serve",
        model=named,
        given=given,
    )
    config = TRUTH["configs"][model]
    inputs = inputs_of(
        Source(config=config, quantization=config.get("quantization_config")),
        values,
        version="0.26.0",
        entry=entry,
    )
    planned = Planned(
        plan=inputs.plan(gpu), inputs=inputs, gpus=gpus, source="NVML", model=f"/models/{model}"
    )
    return [planned, launch, options]


def start(name: str, **values: Any) -> list[object]:
    """A measured start."""
    return facts(STARTS[name]["model"], **{**STARTS[name]["options"], **values})


def only(check: Any, given: list[object]) -> Finding:
    (finding,) = examine(check, *given).findings
    return finding


HEALTHY = start("fit-8b-default")


def test_contracts() -> None:
    contract(
        start_refused,
        fires=start("x2-tp2-8b", gpu_memory_utilization=0.99),
        passes=HEALTHY,
    )
    contract(does_not_load, fires=start("fail-70b-load-oom"), passes=HEALTHY)
    contract(
        no_cache_room, fires=facts("llama-3.1-8b", gpu_memory_utilization=0.11), passes=HEALTHY
    )
    contract(context_too_long, fires=start("fail-8b-len-kv"), passes=HEALTHY)
    contract(
        graphs_too_large,
        fires=start("fit-8b-default", gpu_memory_utilization=0.995),
        passes=HEALTHY,
    )
    contract(sequences_too_many, fires=start("fit-8b-default", max_num_seqs=64), passes=HEALTHY)
    contract(unused, fires=start("fit-8b-util30-len4k"), passes=HEALTHY)


def test_one_limit_is_one_error() -> None:
    """What stops the start is said by exactly one check."""
    errors = (
        does_not_load,
        no_cache_room,
        context_too_long,
        graphs_too_large,
    )
    for name in STARTS:
        found = [check for check in errors if examine(check, *start(name)).findings]
        assert len(found) == (name.startswith("fail-") and name != "fail-orphan-holds-gpu"), name


def test_weights_and_budget_are_in_the_message() -> None:
    finding = only(does_not_load, start("fail-70b-load-oom"))
    assert finding.message == (
        "weights of 131.5 GiB on each GPU against 128.6 GiB that the engine may use "
        "(0.92 x 139.8 GiB)"
    )
    assert finding.confidence == "certain"


def test_a_share_that_the_context_does_not_leave() -> None:
    """On two H200 138.27 of 139.80 GiB were free at the start of the engine."""
    assert not examine(start_refused, *start("fit-8b-eager", gpu_memory_utilization=0.99)).findings
    finding = only(start_refused, start("x2-tp2-8b", gpu_memory_utilization=0.995))
    assert finding.message.endswith("its CUDA context and communicators leave about 138.3 GiB")
    (fix,) = finding.fixes
    assert fix.title == "Start with --gpu-memory-utilization 0.98"


def test_what_others_hold_is_said_by_another_check() -> None:
    from dataclasses import replace

    held = facts("llama-3.2-1b", gpu=replace(H200, used=131 * GIB))
    assert not examine(start_refused, *held).findings


def test_fix_of_a_context_is_a_length_that_starts() -> None:
    finding = only(context_too_long, start("fail-8b-len-kv"))
    titles = [fix.title for fix in finding.fixes]
    length = int(titles[0].removeprefix("Start with --max-model-len "))
    assert 0.97 * 55840 <= length <= 55840
    assert titles[1] == "Start with --gpu-memory-utilization 0.24"
    assert not examine(context_too_long, *start("fail-8b-len-kv", max_model_len=length)).findings
    assert finding.message.startswith(
        "one request of 131,072 tokens needs 16.0 GiB of KV cache; 6.8"
    )


def test_more_gpus_are_offered_only_where_there_are_more() -> None:
    one = only(does_not_load, [*facts("llama-3.1-70b", gpus=1, max_model_len=131072)])
    assert not any("tensor-parallel" in fix.title for fix in one.fixes)
    many = only(does_not_load, [*facts("llama-3.1-70b", gpus=8, max_model_len=131072)])
    assert any("--tensor-parallel-size 2" in fix.title for fix in many.fixes)


def test_python_keywords_are_written_as_keywords() -> None:
    given = start("fail-8b-len-kv")
    planned, launch, options = given
    assert isinstance(launch, Launch) and isinstance(options, EngineOptions)
    from dataclasses import replace

    python = replace(launch, kind="python", entry="LLM")
    finding = only(context_too_long, [planned, python, replace(options, entry="LLM", given={})])
    assert finding.fixes[0].title.startswith("Start with max_model_len=55")


def test_max_model_len_auto_is_fitted_by_the_engine() -> None:
    result = examine(context_too_long, *start("fail-8b-len-kv", max_model_len="auto"))
    assert result.outcome == "passed"


def test_defaults_are_no_finding() -> None:
    assert not examine(sequences_too_many, *HEALTHY).findings
    assert not examine(unused, *HEALTHY).findings


def test_a_published_configuration_is_never_certain() -> None:
    planned, *others = start("fail-70b-load-oom")
    assert isinstance(planned, Planned)
    given = [replace(planned, published=True), *others]
    assert only(does_not_load, given).confidence == "likely"


def test_what_no_change_cures_names_the_gpus_that_it_takes() -> None:
    small = replace(H200, name="NVIDIA A100-SXM4-40GB", usable=int(35.5 * GIB), capability=(8, 0))
    given = facts("llama-3.1-70b", gpu=small, max_model_len=4096, tensor_parallel_size=2, gpus=2)
    (fix,) = only(does_not_load, given).fixes
    assert fix.title.startswith("Take 8 of these GPUs with --tensor-parallel-size 8, or a model ")
    assert fix.safety == "manual"


def test_a_cache_that_is_asked_for_gets_the_size_that_fits() -> None:
    finding = only(no_cache_room, facts("llama-3.1-8b", kv_cache_memory_bytes=500 * GIB))
    (fix,) = finding.fixes
    assert fix.title.startswith("Start with --kv-cache-memory-bytes ")
    size = int(fix.title.rpartition(" ")[2])
    assert 100 * GIB < size < 125 * GIB  # 139.8 GiB less weights, activation and context
