"""What is no cause: remarks, what a process outlived, another program's end."""

from __future__ import annotations

import pytest

from tests.logs.test_choice import ECHO, READY, log_of, start

REMARKS = (
    "No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'",
    "WARNING 03-11 02:47:04 _custom_ops.py:21] Failed to import from vllm._C with "
    "ModuleNotFoundError(\"No module named 'vllm._C'\")",
)


@pytest.mark.parametrize("remark", REMARKS)
def test_what_a_healthy_process_prints_too_needs_a_failure_without_another_cause(
    remark: str,
) -> None:
    assert log_of([remark]).cause is None
    assert log_of([remark, *start(0)]).cause is None
    followed = log_of([remark, "RuntimeError: Failed to infer device type"]).cause
    assert followed is not None
    assert followed.confidence != "certain"
    other = log_of([remark, *start(0, "TypeError: 'NoneType' object is not callable", ECHO)])
    assert other.cause is None
    assert "NoneType" in (other.unexplained or "")


def test_what_a_process_outlived_is_no_cause() -> None:
    """The same worker went on to measure the peak: it did not end of the error before it."""
    error = "ERROR 11-30 10:00:15 [x.py:1] ImportError: libGL.so.1: cannot open shared object file"
    load = "INFO 11-30 10:00:15 [gpu_model_runner.py:1] Starting to load model /models/m..."
    loaded = (
        "INFO 11-30 10:00:16 [gpu_model_runner.py:1] Model loading took 4.20 GiB and 3.1 seconds"
    )
    ended = log_of(start(0, load, error, ECHO)).cause
    assert ended is not None
    assert ended.signature == "lib-other"
    log = log_of(start(0, load, error, loaded, "IndexError: pop from an empty deque", ECHO))
    assert log.cause is None
    assert "empty deque" in (log.unexplained or "")


def test_another_programs_end_is_not_the_engines() -> None:
    killed = "kernel: Out of memory: Killed process 4711 ({}) total-vm:1kB, anon-rss:1kB"
    assert log_of([killed.format("postgres")]).cause is None
    both = log_of([killed.format("postgres"), killed.format("python3")]).cause
    assert both is not None
    assert both.count == 1
    assert "python3" in both.message
    engine = log_of([killed.format("VLLM::EngineCor")]).cause
    assert engine is not None
    assert "VLLM::EngineCor (PID 4711)" in engine.message


def test_a_training_traceback_is_not_the_engines() -> None:
    frames = [
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/v/transformers/trainer.py", line 9, in training_step',
        '[rank1]:   File "/v/torch/autograd/graph.py", line 9, in _engine_run_backward',
    ]
    error = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert log_of([*frames, error]).cause is None
    assert log_of([error]).cause is not None


def test_a_plugin_that_is_not_loaded_is_no_start_that_failed() -> None:
    plugin = [
        "ERROR 11-30 09:59:59 [__init__.py:72] Failed to load plugin p",
        "ERROR 11-30 09:59:59 [__init__.py:72] ModuleNotFoundError: No module named 'p'",
    ]
    log = log_of([*plugin, *start(0, *READY)])
    assert (log.starts, log.state, log.earlier) == (1, "ready", ())


def test_an_attribute_error_is_no_refusal_of_a_setting() -> None:
    def said(error: str) -> str | None:
        frames = [
            "Traceback (most recent call last):",
            '  File "/v/site-packages/vllm/config/model.py", line 9, in verify',
        ]
        cause = log_of(start(0, *frames, error)).cause
        return cause.category if cause else None

    assert said("AttributeError: 'X' object has no attribute 'y'") is None
    assert said("RuntimeError: shape mismatch: 3 and 4") is None
    assert said("ValueError: the moon is not full yet") == "launch_argument"


@pytest.mark.parametrize(
    "line",
    [
        "ggml_cuda_init: found 1 CUDA devices:",
        '  File "/srv/app/main.py", line 3, in <module>',
        "[2026-01-01 10:00:00 TP0] sglang is ready",
    ],
)
def test_a_log_of_another_program_is_told(line: str) -> None:
    log = log_of([line, "RuntimeError: CUDA-capable device(s) is/are busy or unavailable"])
    assert log.cause is None
    assert "engine's own output" in (log.unexplained or "")


def test_a_stall_is_no_cause_where_another_error_follows() -> None:
    waits = (
        "(EngineCore_DP1 pid=12) INFO 12-29 13:13:22 [shm_broadcast.py:542] No available shared "
        "memory broadcast block found in 60 seconds."
    )
    failed = "(Worker_DP0 pid=35) ERROR 12-29 13:22:33 [w.py:824] launch failed for Slice, errno:1."
    timed_out = (
        "(Worker_DP0 pid=35) ERROR 12-29 13:22:33 [w.py:824] TimeoutError: RPC call timed out."
    )
    assert log_of([waits, waits, failed]).cause is None
    assert log_of([waits, waits, timed_out]).cause is not None


def test_an_argument_error_that_no_signature_knows_is_no_healthy_log() -> None:
    for program in ("vllm serve", "vllm", "api_server.py"):
        log = log_of([f"usage: {program} [-h]", f"{program}: error: the sky is too low"])
        assert log.cause is None
        assert "the sky is too low" in (log.unexplained or "")
