"""Which line is the cause: wrappers, after-effects, several starts, older engines, cut logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from infer_doctor.facts.log import ColdStart, EngineLog, Serving
from infer_doctor.logs.read import read_texts

CAPTURES = Path(__file__).parent.parent / "captures" / "logs"
ENGINE = "(EngineCore pid={pid}) "
ARGUMENTS = "INFO 11-30 10:0{n}:00 [api_utils.py:273] non-default args: {{'model': '/models/m'}}"
CONFIG = (
    "(EngineCore pid={pid}) INFO 11-30 10:0{n}:09 [core.py:116] Initializing a V1 LLM engine "
    "(v0.26.0) with config: model='/models/m', tensor_parallel_size=1"
)
ECHO = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
)
FREE = (
    "ValueError: Free memory on device cuda:0 (7.76/139.8 GiB) on startup is less than desired GPU "
    "memory utilization (0.92, 128.62 GiB)."
)
HEADS = "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8)."
READY = [
    "(EngineCore pid={pid}) INFO 11-30 10:0{n}:40 [core.py:340] init engine (profile, create kv cache,"
    " warmup model) took 20.49 s",
    "INFO:     Application startup complete.",
]


def start(n: int, *lines: str) -> list[str]:
    rows = [ARGUMENTS, CONFIG, *lines]
    return [
        row.replace("{n}", str(n))
        .replace("{pid}", str(700 + n))
        .replace("{{", "{")
        .replace("}}", "}")
        for row in rows
    ]


def log_of(lines: list[str]) -> EngineLog:
    found = read_texts(lines)[EngineLog]
    assert isinstance(found, EngineLog)
    return found


def test_the_last_start_counts_and_the_others_are_listed() -> None:
    log = log_of([*start(0, FREE, ECHO), *start(1, HEADS, ECHO)])
    assert log.starts == 2
    assert log.cause is not None
    assert log.cause.category == "tp_divisibility"
    assert [cause.category for cause in log.earlier] == ["oom_startup_free_mem"]


def test_a_last_start_without_a_result_leaves_the_one_before() -> None:
    log = log_of([*start(0, FREE, ECHO), *start(1)])
    assert log.cause is not None
    assert log.cause.category == "oom_startup_free_mem"


def test_a_restart_that_worked_cures() -> None:
    log = log_of([*start(0, FREE, ECHO), *start(1, *READY)])
    assert log.state == "ready"
    assert log.cause is None
    assert len(log.earlier) == 1


def test_the_first_cause_wins_over_what_follows() -> None:
    log = log_of(
        start(
            0,
            FREE,
            *["Process EngineCore:"] * 4,
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            ECHO,
        )
    )
    assert log.cause is not None
    assert log.cause.signature == "free-memory"
    assert [cause.signature for cause in log.others] == ["cuda-illegal-access"]


def test_a_root_wins_over_a_symptom_before_it() -> None:
    log = log_of(
        [
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, unhandled system error",
            "node:1:1 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Ab (size 7340384)",
        ]
    )
    assert log.cause is not None
    assert log.cause.category == "nccl_shm"


@pytest.mark.parametrize(
    "lines",
    [
        [ECHO],
        ["EngineCore failed to start.", ECHO],
        ["AsyncEngineDeadError: Background loop has errored already."],
        [
            "ERROR 06-01 10:00:00 engine.py:366] Exception: WorkerProc initialization failed due to an exception in a background process."
        ],
        start(0, "TypeError: 'NoneType' object is not subscriptable", ECHO),
        start(0),
        [
            "[rank0]:[W ProcessGroupNCCL.cpp:1496] Warning: destroy_process_group() was not called",
            ECHO,
        ],
    ],
)
def test_what_is_not_in_the_log_is_not_guessed(lines: list[str]) -> None:
    log = log_of(lines)
    assert log.cause is None
    assert "send" in (log.unexplained or "")


THIN = {
    "SYSTEM_ERROR": "The actor is dead because its worker process has died. Worker exit type: "
    "SYSTEM_ERROR Worker exit detail: There are some potential root causes. (1) The process is killed "
    "by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called.",
    "worker-": "The actor died unexpectedly before finishing this task. class_name: RayWorkerVllm",
    "PYTHONFAULTHANDLER": "worker exited with exit code 136",
    "platform": "RuntimeError: Failed to infer device type",
    "--previous": "Warning  BackOff  2m  kubelet  Back-off restarting failed container vllm in pod vllm-0",
    "NCCL_DEBUG=INFO": "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    "NCCL WARN": "Failed, NCCL error sendPlugin.cpp:129 'invalid usage (run with NCCL_DEBUG=WARN for details)'",
    "nvidia-smi of a hanging run": "[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=158046, OpType=GATHER, NumelIn=2867200, NumelOut=0, "
    "Timeout(ms)=600000) ran for 600027 milliseconds before timing out.",
    "--enforce-eager": "RuntimeError: CUDA error: operation failed due to a previous error during capture",
}
"""What to send -> a line that several causes have, and that names none."""


@pytest.mark.parametrize("wanted", THIN)
def test_thin_evidence_names_no_cause_and_what_to_send(wanted: str) -> None:
    log = log_of([THIN[wanted]])
    assert log.cause is None
    assert wanted in (log.unexplained or "")


def test_a_worker_of_another_node_tells_of_the_network() -> None:
    late = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=31, OpType=ALLREDUCE, NumelIn=8)"
    first = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1)"
    far = log_of(
        [f"(RayWorkerWrapper pid=27, ip=10.1.0.9) [rank3]:[E219 08:58:32.6 P.cpp:6] {late}"]
    )
    near = log_of([f"[rank1]:[E219 08:58:32.6 P.cpp:6] {first}"])
    assert far.cause and far.cause.category == "nccl_network"
    assert near.cause and near.cause.category == "p2p_allreduce"


PREFIXES = (
    "(VllmWorker TP0 pid=302) ERROR 09-07 11:25:28 [multiproc_executor.py:596] ",
    "(APIServer pid=32) (EngineCore_0 pid=296) (VllmWorker PP0_TP1 pid=302) ERROR 09-07 11:25:28 [m.py:5] ",
    "(vllm-test, pid=2150) (EngineCore_0 pid=3966) ERROR 08-21 07:45:43 [core.py:700] ",
    "(ServeReplica:default:org/m:org--m pid=529) ERROR 08-21 07:45:43 [core.py:700] ",
    "[rank0]: ",
    "2024-07-01 07:28:04.488 1 kserve ERROR [__main__.py:<module>():254] ",
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_an_error_without_a_signature_is_seen_behind_every_prefix(prefix: str) -> None:
    log = log_of([prefix + "RuntimeError: BAD_STATUS"])
    assert log.state == "failed"
    assert "BAD_STATUS" in (log.unexplained or "")


def test_errors_of_one_letter_are_seen() -> None:
    for line in (
        "[TRT-LLM] [E] [_torch][RANK 7] Executor loop crashed on this rank",
        "E1103 02:59:01.152656 81041 backend_model.cc:553] Something broke",
    ):
        assert log_of([line]).state == "failed"


def test_workers_of_one_name_do_not_share_a_traceback() -> None:
    one, two = (f"(VllmWorkerProcess pid={pid}) ERROR 02-10 05:41:10 m.py:2] " for pid in (1, 2))
    log = log_of(
        [
            one + "Traceback (most recent call last):",
            two + "Traceback (most recent call last):",
            one + '  File "/v/vllm/worker/model_runner.py", line 9, in capture_model',
            two + '  File "/v/vllm/worker/worker.py", line 9, in load_model',
            two + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
        ]
    )
    assert log.cause and log.cause.category == "oom_load"


def test_noise_alone_is_nothing() -> None:
    log = log_of(
        [
            "resource_tracker: There appear to be 1 leaked shared_memory objects to clean up at shutdown",
            "EOFError",
            "[W ProcessGroupNCCL.cpp:1496] Warning: destroy_process_group() was not called",
        ]
    )
    assert (log.cause, log.unexplained) == (None, None)


OLD = {
    "0.4.2 fork": (
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess.",
        "multiproc_fork",
    ),
    "0.5.4 kv": (
        "[rank0]: ValueError: The model's max seq len (32768) is larger than the maximum number of "
        "tokens that can be stored in KV cache (7344).",
        "oom_kv_cache",
    ),
    "0.6.3 blocks": (
        "ERROR 06-01 10:00:00 engine.py:366] ValueError: No available memory for the cache blocks.",
        "oom_kv_cache",
    ),
    "0.8.5 sampler": (
        "ERROR 04-17 10:00:00 [core.py:396] RuntimeError: CUDA out of memory occurred when warming up "
        "sampler with 1024 dummy requests.",
        "oom_graph_warmup",
    ),
    "0.9.2 kv": (
        "ERROR 07-01 10:00:00 [core.py:519] ValueError: To serve at least one request with the models's "
        "max seq len (40960), (5.62 GiB KV cache is needed, which is larger than the available KV cache "
        "memory (3.10 GiB).",
        "oom_kv_cache",
    ),
    "0.12 driver": (
        "(EngineCore_DP0 pid=9) RuntimeError: The NVIDIA driver on your system is too old (found "
        "version 12040).",
        "driver_cuda",
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_wordings_of_older_engines(name: str) -> None:
    line, category = OLD[name]
    cause = log_of([line]).cause
    assert cause is not None
    assert cause.category == category


def test_stage_gives_the_same_message_its_meaning() -> None:
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    capture = "INFO 11-30 10:00:20 [gpu_model_runner.py:1] Capturing the model for CUDA graphs."
    load = "INFO 11-30 10:00:15 [gpu_model_runner.py:1] Starting to load model /models/m..."
    said = [
        log_of(start(0, *lines)).cause
        for lines in ([load, oom], [load, capture, oom], [*READY, oom])
    ]
    assert [cause.category for cause in said if cause] == [
        "oom_load",
        "oom_graph_warmup",
        "oom_runtime",
    ]


def test_an_error_in_the_engines_own_words_is_placed_by_its_file() -> None:
    log = log_of(
        start(
            0,
            "Traceback (most recent call last):",
            '  File "/opt/venv/lib/python3.12/site-packages/vllm/config/scheduler.py", line 9, in verify',
            "    raise ValueError(",
            "ValueError: long_prefill_token_threshold must be below the moon",
        )
    )
    assert log.cause is not None
    assert (log.cause.category, log.cause.confidence) == ("launch_argument", "possible")


def test_an_abort_burst_has_its_number_of_seconds() -> None:
    lines = []
    for n in range(5):
        lines.append(f"INFO 11-30 10:00:{n:02} [async_llm.py:261] Added request chatcmpl-{n}.")
    for n in range(5):
        lines.append(f"INFO 11-30 10:01:{n:02} [async_llm.py:431] Aborted request chatcmpl-{n}.")
    serving = read_texts(lines)[Serving]
    assert isinstance(serving, Serving)
    assert serving.aborts is not None
    assert (serving.aborts.count, serving.aborts.seconds) == (5, 60)


def statistics(running: int, waiting: int, generation: float, kv: float, second: int) -> str:
    return (
        f"INFO 11-30 10:{second // 60:02}:{second % 60:02} [loggers.py:248] Engine 000: Avg prompt "
        f"throughput: 0.0 tokens/s, Avg generation throughput: {generation} tokens/s, Running: "
        f"{running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: {kv}%, Prefix cache hit rate: 0.0%"
    )


def serving_of(lines: list[str]) -> Serving:
    found = read_texts(lines)[Serving]
    assert isinstance(found, Serving)
    return found


def test_an_engine_that_stands_still() -> None:
    serving = serving_of([statistics(8, 3, 0.0, 40.0, 10 * n) for n in range(9)])
    assert serving.stalled is not None
    assert (serving.stalled_s, serving.stalled_at_end) == (80.0, True)


def test_a_queue_that_grows_and_a_full_cache() -> None:
    serving = serving_of([statistics(64, 5 * n, 900.0, 99.8, 10 * n) for n in range(12)])
    assert serving.queue_from is not None
    assert serving.queue_to is not None
    assert (serving.queue_from.waiting, serving.queue_to.waiting) == (0, 55)
    assert serving.kv_full_samples == 11


def test_a_queue_that_comes_and_goes_is_none() -> None:
    serving = serving_of([statistics(64, n % 4 * 9, 900.0, 60.0, 10 * n) for n in range(12)])
    assert serving.queue_to is None


def test_a_slow_phase_is_told_even_when_the_start_is_not_whole() -> None:
    lines = [
        "INFO 11-30 10:00:00 [weight_utils.py:869] Filesystem type for checkpoints: NFS. Checkpoint size: "
        "140.00 GiB. Available RAM: 121.11 GiB.",
        "INFO 11-30 10:12:00 [default_loader.py:384] Loading weights took 711.20 seconds",
    ]
    start = read_texts(lines)[ColdStart]
    assert isinstance(start, ColdStart)
    assert (start.complete, start.filesystem) == (False, "NFS")
    assert start.weights_per_second == pytest.approx(0.21, abs=0.01)


@pytest.mark.parametrize("name", [path.stem for path in CAPTURES.glob("fail-*.log")])
def test_a_log_cut_before_its_cause_names_no_other(name: str) -> None:
    lines = (CAPTURES / f"{name}.log").read_text(errors="replace").splitlines()
    whole = read_texts(lines)[EngineLog]
    assert isinstance(whole, EngineLog) and whole.cause
    first = whole.cause.evidence[0].line or 1
    for kept in range(2, first, max(1, first // 12)):
        cut = read_texts(lines[:kept])[EngineLog]
        assert isinstance(cut, EngineLog)
        assert cut.cause is None or cut.cause.category == whole.cause.category, kept
        assert cut.state != "ready"
        if any("Traceback" in line for line in lines[:kept]):
            assert cut.cause or cut.unexplained, kept


@pytest.mark.parametrize("first", ["fit-1b", "fail-8b-len-kv", "fail-unknown-arch"])
def test_a_restart_that_fails_before_its_first_mark_counts(first: str) -> None:
    lines = [
        line
        for name in (first, "fail-unknown-arg")
        for line in (CAPTURES / f"{name}.log").read_text(errors="replace").splitlines()
    ]
    log = read_texts(lines)[EngineLog]
    assert isinstance(log, EngineLog) and log.cause
    assert log.starts == 2
    assert log.cause.category == "launch_argument"


@pytest.mark.parametrize(
    "line",
    [
        "+ vllm serve org/model --trust-remote-code --tensor-parallel-size 8",
        '            "OOMKilled": false,',
    ],
)
def test_what_the_shell_or_docker_prints_is_no_failure(line: str) -> None:
    assert log_of([line, *start(0)]).state == "incomplete"
    assert log_of([*start(0), line]).state == "incomplete"


@pytest.mark.parametrize(
    "line",
    [
        "AttributeError: 'NoneType' object has no attribute 'lower'",
        "RuntimeError: key 'image' not found",
        "FileNotFoundError: File does not exist: /srv/template.jinja",
        "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded",
    ],
)
def test_words_of_any_program_name_no_cause(line: str) -> None:
    log = log_of(start(0, line, ECHO))
    assert log.cause is None
    assert log.unexplained is not None and line.split(":")[0] in log.unexplained


@pytest.mark.parametrize(
    ("line", "signature"),
    [
        ("Bus error (core dumped)", "bus-error"),
        (
            "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
            "device-busy",
        ),
        (
            "RuntimeError: The size of tensor a (576) must match the size of tensor b (577) at "
            "non-singleton dimension 1",
            "tensor-sizes",
        ),
        ("[1700.12] [h:1] ucp_context.c:7 UCX  ERROR exceeded transports/devices limit", "trt-ucx"),
        ("UserWarning: Failed to initialize NumPy: _ARRAY_API not found", "numpy-abi"),
    ],
)
def test_a_message_of_several_causes_is_not_certain(line: str, signature: str) -> None:
    log = log_of(start(0, line))
    assert log.cause is not None
    assert (log.cause.signature, log.cause.confidence) == (signature, "likely")
    beaten = log_of(start(0, line, "foo", HEADS)).cause
    assert beaten is not None and beaten.category == "tp_divisibility"


def test_memory_that_may_not_be_locked_is_not_main_memory_that_ran_out() -> None:
    call = "h:1:2 [0] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory"
    log = log_of(start(0, call, "RuntimeError: NCCL error: unhandled system error"))
    assert log.cause is not None
    assert log.cause.category == "nccl_network"


def test_a_field_that_a_request_may_not_have_is_no_setting_of_the_launch() -> None:
    field = "  Extra inputs are not permitted [type=extra_forbidden, input_value=1, input_type=int]"
    assert log_of(start(0, *READY, field)).cause is None
    refused = log_of(start(0, field)).cause
    assert refused is not None and refused.category == "launch_argument"
