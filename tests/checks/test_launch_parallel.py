"""Sizes of a launch against model and GPUs; cases with a number are public reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from launches import HERE, config, files, gpus, launch, options, values

from infer_doctor.checks.launch_gpus import gpus_too_few
from infer_doctor.checks.launch_parallel import (
    context_parallel_refused,
    expert_parallel_dense,
    pipeline_too_deep,
    tp_indivisible,
)
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.model_config import published_config
from infer_doctor.facts.visible import VisibleDevices
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Variable
from infer_doctor.launch.model_judge import quantization_of
from infer_doctor.models import parallel
from infer_doctor.testing import contract, examine

QWEN = "Qwen--Qwen2.5-7B-Instruct"
LLAMA = "meta-llama--Meta-Llama-3.1-70B"


def split(name: str, size: int, **given: Any) -> list[str]:
    facts = (launch(), options(tensor_parallel_size=size, **given), files(name), config(name))
    return [finding.message for finding in examine(tp_indivisible, *facts).findings]


def test_tp_contract() -> None:
    contract(
        tp_indivisible,
        fires=[launch(), options(tensor_parallel_size=8), files(QWEN), config(QWEN)],
        passes=[launch(), options(tensor_parallel_size=4), files(QWEN), config(QWEN)],
    )


def test_tp_names_the_sizes_that_work() -> None:
    """28 heads on 8 GPUs: THU-KEG/AdaptThink issue 1."""
    (message,) = split(QWEN, 8)
    assert message == (
        "--tensor-parallel-size 8: 28 attention heads cannot be divided over 8 ranks; "
        "sizes that work: 1, 2 or 4"
    )


def test_tp_larger_than_key_value_heads_must_be_a_multiple() -> None:
    """phi-4: 40 heads, 10 key-value heads."""
    (message,) = split("microsoft--phi-4", 4)
    assert "10 key-value heads" in message and message.endswith("1 or 2")
    assert split("Qwen--Qwen3-30B-A3B", 8) == []


def test_tp_cuts_a_group_of_awq() -> None:
    """Width 29,568 with groups of 128: vllm-project/vllm issue 21695."""
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    found = values("Qwen--Qwen2.5-72B-Instruct-AWQ")
    first = {**found, "intermediate_size": 29568}
    problem = list(parallel.problems(first, 2, awq))
    assert problem == ["231 groups of 128 weights (14784 of a width of 29568 each)"]
    assert list(parallel.problems(found, 2, awq)) == []


def test_tp_cuts_a_block_of_fp8_experts_unless_they_are_whole() -> None:
    (message,) = split("MiniMaxAI--MiniMax-M2.5", 8)
    assert "experts in fp8 blocks of 128 (192 of a width of 1536 each)" in message
    assert split("MiniMaxAI--MiniMax-M2.5", 8, enable_expert_parallel=True) == []


def test_tp_prime_number_of_heads() -> None:
    (message,) = split("tiiuae--falcon-7b", 2)
    assert message.endswith("sizes that work: 1")


@pytest.mark.parametrize(("name", "size"), [(LLAMA, 8), (LLAMA, 2), ("openai--gpt-oss-120b", 4)])
def test_tp_of_every_day(name: str, size: int) -> None:
    assert split(name, size) == []


def gpu_facts(count: int, **given: Any) -> list[Any]:
    return [launch(), options(**given), gpus(count), files(LLAMA), config(LLAMA)]


def test_gpus_contract() -> None:
    contract(
        gpus_too_few,
        fires=gpu_facts(2, tensor_parallel_size=4),
        passes=gpu_facts(4, tensor_parallel_size=4),
    )


def test_gpus_named_with_sizes_that_divide() -> None:
    """min(device_count, 4) on three GPUs is no cure."""
    (finding,) = examine(gpus_too_few, *gpu_facts(3, tensor_parallel_size=8)).findings
    assert finding.message == (
        "--tensor-parallel-size 8 needs 8 GPUs; 3 GPUs are visible; "
        "sizes that divide this model: 1, 2, 4, 8 or 16"
    )
    assert finding.fixes[0].title == "Start with --tensor-parallel-size 2"


def test_gpus_of_all_kinds_of_parallelism_multiply() -> None:
    given = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "data_parallel_size": 2}
    (finding,) = examine(gpus_too_few, *gpu_facts(4, **given)).findings
    assert "tensor 2 x pipeline 2 x data parallel 2 needs 8 GPUs" in finding.message
    assert examine(gpus_too_few, *gpu_facts(4, **given, nnodes=2)).outcome == "passed"
    local = gpu_facts(4, **given, data_parallel_size_local=1)
    assert examine(gpus_too_few, *local).outcome == "passed"


def test_gpus_of_one_replica_a_process() -> None:
    given = {"tensor_parallel_size": 2, "data_parallel_size": 8, "data_parallel_rank": 3}
    assert examine(gpus_too_few, *gpu_facts(2, **given)).outcome == "passed"


def test_gpus_before_ray_was_asked_for_by_name() -> None:
    old = gpu_facts(2, tensor_parallel_size=4, version="0.10.0")
    assert examine(gpus_too_few, *old).findings[0].confidence == "likely"


def test_gpus_hidden_by_a_variable() -> None:
    visible = VisibleDevices(value="0", entries=("0",))
    (finding,) = examine(gpus_too_few, *gpu_facts(4, tensor_parallel_size=2), visible).findings
    assert "1 GPU is visible" in finding.message
    assert finding.fixes[0].title == "Start with CUDA_VISIBLE_DEVICES=0,1"


def test_gpus_hidden_by_a_variable_that_is_not_told() -> None:
    hidden = Variable(name="CUDA_VISIBLE_DEVICES", value=None, place=HERE, source="$GPUS")
    start, *others = gpu_facts(4, tensor_parallel_size=4)
    found = examine(gpus_too_few, replace(start, environment=(hidden,)), *others)
    assert (found.outcome, found.reason) == (
        "blocked",
        "the launch sets CUDA_VISIBLE_DEVICES to $GPUS",
    )
    start, *others = gpu_facts(2, tensor_parallel_size=4)  # too few whatever it leaves
    assert examine(gpus_too_few, replace(start, environment=(hidden,)), *others).findings


def test_gpus_unknown_are_said_to_be() -> None:
    facts = [launch("another"), options(tensor_parallel_size=8), files(LLAMA), config(LLAMA)]
    (finding,) = examine(gpus_too_few, *facts).findings
    assert finding.severity == "info"
    assert "not verified; sizes that divide this model: 1, 2, 4, 8 or 16" in finding.message


def test_gpus_of_a_ray_cluster_are_not_judged() -> None:
    given = {"tensor_parallel_size": 8, "distributed_executor_backend": "ray"}
    assert examine(gpus_too_few, *gpu_facts(2, **given)).outcome == "blocked"


def test_cpu_build_has_no_ranks_on_gpus() -> None:
    cpu = EngineFact(name="vllm", version="1", distribution="vllm", package="/v", build="cpu")
    facts = [*gpu_facts(0, tensor_parallel_size=2), cpu]
    assert examine(gpus_too_few, *facts).outcome == "not_applicable"


def test_pipeline() -> None:
    contract(
        pipeline_too_deep,
        fires=[launch(), options(pipeline_parallel_size=32), config(QWEN)],
        passes=[launch(), options(pipeline_parallel_size=28), config(QWEN)],
    )


def test_expert_parallel() -> None:
    asked = options(enable_expert_parallel=True)
    contract(
        expert_parallel_dense,
        fires=[launch(), asked, config(QWEN)],
        passes=[launch(), asked, config("Qwen--Qwen3-30B-A3B")],
    )


def test_context_parallel() -> None:
    model = config("Qwen--Qwen3-235B-A22B")
    given = {"tensor_parallel_size": 8}
    contract(
        context_parallel_refused,
        fires=[launch(), options(**given, decode_context_parallel_size=4), model],
        passes=[launch(), options(**given, decode_context_parallel_size=2), model],
    )
    mla = config("deepseek-ai--DeepSeek-R1")
    facts = [launch(), options(**given, decode_context_parallel_size=8), mla]
    assert examine(context_parallel_refused, *facts).outcome == "passed"


def test_a_well_known_model_that_is_not_here_is_judged_by_its_name() -> None:
    """tensor_parallel_size=3 for a Llama, on a machine without the model."""
    asked = options("meta-llama/Llama-3.1-70B-Instruct", tensor_parallel_size=3)
    published = published_config(asked)
    (finding,) = examine(tp_indivisible, launch(), asked, published).findings
    assert (finding.confidence, finding.severity) == ("likely", "error")
    assert "64 attention heads and 8 key-value heads" in finding.message
    (finding,) = examine(gpus_too_few, launch("another"), asked, published).findings
    assert finding.message.endswith("sizes that divide this model: 1, 2 or 4")
    unreadable = files(folder="/models/m", origin="folder", config=None)
    assert examine(tp_indivisible, launch(), asked, unreadable, published).outcome == "blocked"


def test_published_is_only_what_the_catalogue_has() -> None:
    for wrong in (options("org/private-70b"), options("Qwen/Qwen3-8B", revision="v2")):
        with pytest.raises(Unavailable):
            published_config(wrong)
    assert published_config(options("qwen/qwen3-8b")).values["num_attention_heads"] == 32


def test_overridden_quantization_counts_for_the_division() -> None:
    awq, gptq = {"quant_method": "awq", "group_size": 128}, {"quant_method": "gptq"}
    own = files(QWEN, quantization=awq)
    assert quantization_of(own, config(QWEN, quantization_config=gptq)) == gptq
    assert quantization_of(own, config(QWEN)) == awq
    assert quantization_of(None, config(QWEN)) is None
