"""The checks of environment variables."""

from __future__ import annotations

import pytest

from infer_doctor.checks.variables import debug_left_on, proxy_catches_localhost
from infer_doctor.facts.machine import Environ
from infer_doctor.launch.command import read
from infer_doctor.testing import contract, examine

PROXY = "http://proxy.example.org:3128"


def environ(**variables: str) -> Environ:
    return Environ(variables=variables)


def test_debug_left_on() -> None:
    contract(
        debug_left_on,
        fires=[environ(CUDA_LAUNCH_BLOCKING="1")],
        passes=[environ(CUDA_LAUNCH_BLOCKING="0", NCCL_DEBUG="INFO", VLLM_LOGGING_LEVEL="info")],
    )


def test_each_variable_is_a_finding_of_its_own() -> None:
    result = examine(debug_left_on, environ(NCCL_DEBUG="TRACE", VLLM_LOGGING_LEVEL="DEBUG"))
    assert {finding.about for finding in result.findings} == {"NCCL_DEBUG", "VLLM_LOGGING_LEVEL"}


def test_what_the_launch_sets_goes_before() -> None:
    off = read(["env", "NCCL_DEBUG=WARN", "vllm", "serve", "m"])
    assert examine(debug_left_on, environ(NCCL_DEBUG="TRACE"), off).outcome == "passed"
    on = read(["env", "NCCL_DEBUG=TRACE", "vllm", "serve", "m"])
    (finding,) = examine(debug_left_on, environ(NCCL_DEBUG="WARN"), on).findings
    assert finding.message.startswith("NCCL_DEBUG=TRACE is set")
    shell = read(["docker", "run", "-e", "NCCL_DEBUG", "vllm/vllm-openai:v0.27.0", "--model", "m"])
    assert examine(debug_left_on, environ(), shell).outcome == "blocked"


@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [
        ("CUDA_FORCE_PTX_JIT", "1", "warning"),
        ("VLLM_COMPUTE_NANS_IN_LOGITS", "1", "warning"),
        ("VLLM_COMPUTE_NANS_IN_LOGITS", "0", None),
        ("VLLM_DEBUG_LOG_API_SERVER_RESPONSE", "True", "warning"),
        ("VLLM_DEBUG_LOG_API_SERVER_RESPONSE", "1", None),  # envs.py reads the word alone
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "warning"),
        ("TORCH_DISTRIBUTED_DEBUG", "INFO", None),
        ("TLLM_LOG_LEVEL", "VERBOSE", "warning"),
        ("NCCL_P2P_DISABLE", "1", "info"),
        ("NCCL_P2P_DISABLE", "0", None),
    ],
)
def test_values_that_switch_it_on(name: str, value: str, severity: str | None) -> None:
    found = examine(debug_left_on, environ(**{name: value})).findings
    assert [row.severity for row in found] == ([severity] if severity else [])


def test_proxy() -> None:
    contract(
        proxy_catches_localhost,
        fires=[environ(http_proxy=PROXY)],
        passes=[environ(http_proxy=PROXY, no_proxy="localhost,127.0.0.1,.svc")],
    )


@pytest.mark.parametrize(
    ("no_proxy", "outcome"),
    [
        ("*", "passed"),
        ("localhost, 127.0.0.1", "passed"),
        (".localhost,127.0.0.1", "passed"),
        ("localhost", "failed"),
        ("127.0.0.0/8,localhost", "failed"),
        ("", "failed"),
    ],
)
def test_what_exempts_this_machine(no_proxy: str, outcome: str) -> None:
    result = examine(proxy_catches_localhost, environ(HTTP_PROXY=PROXY, NO_PROXY=no_proxy))
    assert result.outcome == outcome


def test_a_proxy_for_https_alone_does_not_catch_plain_requests() -> None:
    result = examine(proxy_catches_localhost, environ(https_proxy=PROXY))
    assert result.outcome == "not_applicable"
