"""Whether the engine takes the arguments of the launch as they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from infer_doctor.checks.launch_arguments import (
    argument_deprecated,
    argument_removed,
    argument_repeated,
    argument_too_new,
    argument_unknown,
    argument_value,
    config_ignored,
    model_unnamed,
)
from infer_doctor.checks.launch_conflicts import argument_conflict, command_missing
from infer_doctor.checks.launch_environment import variable_unread
from infer_doctor.facts.engine_options import EngineOptions, EngineQuestion
from infer_doctor.facts.vllm_options import engine_options, vllm_table
from infer_doctor.launch.command import read
from infer_doctor.launch.model import Launch
from infer_doctor.model import CheckResult
from infer_doctor.testing import contract, examine


def facts(line: str, version: str = "0.32.0") -> tuple[Launch, EngineOptions, Any]:
    launch = read(line.split())
    question = EngineQuestion(name="vllm", version=version)
    table = vllm_table(launch, None, None, question)
    return launch, engine_options(launch, table), table


def result(check: Callable[..., Any], line: str, version: str = "0.32.0") -> CheckResult:
    return examine(check, *facts(line, version))


GOOD = "vllm serve org/model --max-model-len 32k -tp 2 --gpu-mem 0.9"


def test_contract() -> None:
    good = facts(GOOD)[:2]
    contract(argument_unknown, fires=facts("vllm serve m --auto-warmup")[:2], passes=good)
    contract(argument_removed, fires=facts("vllm serve m --swap-space 4")[:2], passes=good)
    contract(argument_value, fires=facts("vllm serve m --max-num-seqs many")[:2], passes=good)
    contract(
        argument_deprecated, fires=facts("vllm serve m --disable-cascade-attn")[:2], passes=good
    )
    contract(
        argument_repeated,
        fires=facts("vllm serve m --max-num-seqs 4 --max-num-seqs 8")[:2],
        passes=good,
    )
    contract(model_unnamed, fires=facts("vllm serve --port 8000")[:2], passes=good)
    contract(config_ignored, fires=facts("vllm serve m --config=serve.yaml")[:2], passes=good)
    contract(
        argument_conflict,
        fires=facts("vllm serve m --max-num-seqs 512 --max-num-batched-tokens 256")[:2],
        passes=good,
    )


def test_contract_of_a_program_without_a_command() -> None:
    contract(command_missing, fires=[read(["vllm"])], passes=[read(GOOD.split())])
    unread = examine(command_missing, read(["vllm", "--version"]))
    assert unread.outcome == "blocked"
    (finding,) = examine(command_missing, read(["vllm", "server", "m"])).findings
    assert finding.message.startswith("vllm has no command server")
    for line in ("vllm bench serve --model m", "python -m vllm.entrypoints.openai.api_server"):
        assert examine(command_missing, read(line.split())).outcome == "passed"


@pytest.mark.parametrize("dash", ["\u2014", "\u2013-", "\u2212\u2212"])
def test_a_dash_out_of_a_web_page(dash: str) -> None:
    line = f"vllm serve m {dash}max-model-len 512"
    (finding,) = result(argument_value, line).findings
    assert f"U+{ord(dash[0]):04X}" in finding.message
    assert finding.fixes[0].title.startswith("Write --max-model-len instead of")
    assert result(argument_unknown, line).outcome == "passed"


def test_contract_of_arguments_that_come_later() -> None:
    old = "vllm serve m --enable-log-requests"
    contract(argument_too_new, fires=facts(old, "0.8.5")[:2], passes=facts(GOOD)[:2])


def test_contract_of_variables() -> None:
    fires = facts("VLLM_ATTENTION_BACKEND=FLASH_ATTN vllm serve m")
    contract(variable_unread, fires=fires, passes=facts(f"VLLM_LOGGING_LEVEL=DEBUG {GOOD}"))


def test_a_slip_of_the_pen_offers_the_name() -> None:
    (finding,) = result(argument_unknown, "vllm serve m --gpu-memory-utilisation 0.9").findings
    assert finding.fixes[0].title.startswith("Write --gpu-memory-utilization")
    assert finding.fixes[0].safety == "unsafe"
    assert finding.evidence[0].excerpt == "--gpu-memory-utilisation 0.9"


def test_an_option_of_another_engine_is_not_renamed_with_its_value() -> None:
    (finding,) = result(argument_unknown, "vllm serve m --mem-fraction-static 0.8").findings
    assert "SGLang" in finding.message
    assert finding.fixes[0].safety == "manual"


def test_a_renamed_option_is_written_with_this_case_s_value() -> None:
    (finding,) = result(argument_removed, "vllm serve m --task embed").findings
    assert finding.message == "vLLM 0.32.0 has no --task: gone since 0.13.0"
    assert (
        finding.fixes[0].title == "Write --runner pooling --convert embed instead of --task embed"
    )


def test_what_is_known_of_another_version_is_likely() -> None:
    (finding,) = result(argument_unknown, "vllm serve m --monokernels 1", "0.34.0").findings
    assert finding.confidence == "likely"
    assert "the nearest known for 0.34.0" in finding.evidence[1].excerpt


def test_the_list_swallows_the_model() -> None:
    (finding,) = result(model_unnamed, "vllm serve --api-key sk-1 org/model").findings
    assert finding.message.endswith("it stands behind --api-key")  # no word for the masks to eat
    assert "sk-1" not in finding.message
    (finding,) = result(
        model_unnamed, "vllm serve --served-model-name chat org/model", "0.12.0"
    ).findings
    assert finding.message.startswith("org/model is taken for one more value")


def test_the_module_ignores_a_word() -> None:
    line = "python -m vllm.entrypoints.openai.api_server org/model"
    (finding,) = result(model_unnamed, line).findings
    assert finding.message.startswith("org/model is not taken as the model")
    assert result(model_unnamed, f"{line[:-9]} --model m").outcome == "passed"


def test_no_model_is_a_warning() -> None:
    (finding,) = result(model_unnamed, "vllm serve").findings
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    ("line", "version", "severity", "part"),
    [
        ("--enable-auto-tool-choice", "0.32.0", "error", "requires --tool-call-parser"),
        ("--hf-overrides '{}'", "0.32.0", "error", "quotes around it are part of it"),
        ("--enable-lora --max-lora-rank 48", "0.10.0", "error", "--max-lora-rank 48 is none of"),
        ("--enable-log-outputs", "0.12.0", "error", "requires --enable-log-requests"),
        ("--enable-eplb", "0.12.0", "error", "enable_expert_parallel must be True"),
        ("--max-loras 4 --max-cpu-loras 2 --enable-lora", "0.32.0", "error", "refuses"),
        ("--speculative-config.num_speculative_tokens 3", "0.32.0", "error", "nothing can guess"),
        ("--speculative-config.method ngram --spec-method ngram", "0.32.0", "error", "exclude"),
        ("--headless --api-server-count 2", "0.32.0", "error", "headless"),
        ("--nnodes 2 --distributed-executor-backend ray", "0.32.0", "error", "executor mp"),
        ("--lora-modules a=/b", "0.32.0", "error", "LoRA is not enabled"),
        ("--kv-transfer-config.kv_connector X", "0.32.0", "error", "kv_role"),
        (
            '--kv-transfer-config {"kv_connector":"X","kv_role":"producer"}',
            "0.32.0",
            "error",
            "has kv_role producer",
        ),
        (
            '--speculative-config {"method":"eagle3","num_speculative_tokens":3}',
            "0.32.0",
            "error",
            "has the method eagle3, but no model",
        ),
        ("--data-parallel-external-lb -dp 4", "0.32.0", "error", "is told its rank"),
        ("--nnodes 2 --node-rank 1 --headless", "0.32.0", "warning", "without --master-addr"),
        ("--host http://0.0.0.0", "0.32.0", "error", "is a URL"),
        ("--enable-chunked-prefill --enable-lora", "0.6.3", "error", "not supported with chunked"),
        ("--gpu-memory-utilization 1.5", "0.9.2", "error", "less than 1.0"),
        ("--swap-space 4", "0.12.0", "warning", "never swaps"),
        ("--enforce-eager --max-cudagraph-capture-size 64", "0.32.0", "warning", "no graphs"),
        ("--uds /s --port 8000", "0.32.0", "info", "socket alone"),
        ("--kv-cache-memory-bytes 8G --gpu-memory-utilization 0.8", "0.32.0", "info", "ignores"),
        ("--no-enable-chunked-prefill --max-model-len 8192 --max-num-batched-tokens 2048",
         "0.32.0", "error", "must fit into one batch"),
    ],
)  # fmt: skip
def test_rules(line: str, version: str, severity: str, part: str) -> None:
    (finding,) = result(argument_conflict, f"vllm serve m {line}", version).findings
    assert finding.severity == severity
    assert part in finding.message


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("--enable-auto-tool-choice --tool-call-parser hermes", "0.32.0"),
        ("--enable-lora --max-lora-rank 64", "0.10.0"),
        ("--hf-overrides {}", "0.32.0"),
        ("--max-lora-rank 48", "0.10.0"),
        ('--kv-transfer-config {"kv_connector":"X","kv_role":"kv_both"}', "0.32.0"),
        ('--speculative-config {"method":"mtp","num_speculative_tokens":1}', "0.32.0"),
        ("--data-parallel-external-lb -dp 4 --data-parallel-rank 1", "0.32.0"),
        ("--nnodes 2 --node-rank 1 --headless --master-addr 10.0.0.1", "0.32.0"),
        ("--host ::1", "0.32.0"),
        ("--enable-chunked-prefill --enable-lora", "0.32.0"),
        ("--max-num-batched-tokens 256", "0.32.0"),
        ("--max-model-len 8192 --max-num-batched-tokens 2048", "0.32.0"),
        (
            "--speculative-config.method ngram --speculative-config.num_speculative_tokens 3",
            "0.32.0",
        ),
    ],
)
def test_what_the_engine_takes_is_no_conflict(line: str, version: str) -> None:
    assert result(argument_conflict, f"vllm serve m {line}", version).outcome == "passed"


@pytest.mark.parametrize(
    ("variables", "version", "severity", "part"),
    [
        ("VLLM_ATTENTION_BACKEND=FLASHINFER", "0.32.0", "warning", "gone since 0.15.0"),
        ("VLLM_USE_V1=1", "0.32.0", "info", "gone since"),
        ("VLLM_ATENTION_BACKEND=X", "0.12.0", "warning", "knows VLLM_ATTENTION_BACKEND"),
        ("VLLM_ENABLE_STARTUP_PLAN=1", "0.12.0", "warning", "does not read it yet"),
        ("VLLM_FLOAT32_MATMUL_PRECISION=fast", "0.32.0", "error", "is none of"),
    ],
)
def test_variables(variables: str, version: str, severity: str, part: str) -> None:
    (finding,) = result(variable_unread, f"{variables} vllm serve m", version).findings
    assert finding.severity == severity
    assert part in finding.message


@pytest.mark.parametrize(
    ("variables", "title", "safety"),
    [
        (
            "VLLM_ATTENTION_BACKEND=FLASHINFER",
            "Take VLLM_ATTENTION_BACKEND out and add --attention-backend FLASHINFER",
            "safe",
        ),
        (
            "VLLM_ATTENTION_BACKEND=XFORMERS",
            "Take VLLM_ATTENTION_BACKEND out; --attention-backend does it now",
            "manual",
        ),
        (
            "VLLM_USE_FLASHINFER_MOE_FP4=1",
            "Take VLLM_USE_FLASHINFER_MOE_FP4 out; --moe-backend does it now",
            "manual",
        ),
        (
            "VLLM_TORCH_PROFILER_DIR=/mnt",
            "Take VLLM_TORCH_PROFILER_DIR out; --profiler-config does it now",
            "manual",
        ),
        ("VLLM_USE_V1=1", "Take VLLM_USE_V1 out", "safe"),
    ],
)
def test_a_value_goes_to_the_option_only_where_it_is_one_of_it(
    variables: str, title: str, safety: str
) -> None:
    (finding,) = result(variable_unread, f"{variables} vllm serve m", "0.32.0").findings
    assert [(fix.title, fix.safety) for fix in finding.fixes] == [(title, safety)]


@pytest.mark.parametrize(
    "variables",
    ["VLLM_SERVICE_HOST=10.0.0.1", "VLLM_MY_OWN_THING=1", "OTHER=1", "VLLM_PORT=8000"],
)
def test_variables_that_are_nobody_s_fault(variables: str) -> None:
    assert result(variable_unread, f"{variables} vllm serve m").outcome == "passed"


def test_other_engines_have_other_arguments() -> None:
    launch = read(["trtllm-serve", "m"])
    question = EngineQuestion(name="vllm", version="0.32.0")
    from infer_doctor.host import Absent

    with pytest.raises(Absent, match="tensorrt-llm"):
        vllm_table(launch, None, None, question)
