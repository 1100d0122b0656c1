"""Logs that want to mislead: quoted errors, several engines in one, mangled and absurd numbers."""

from __future__ import annotations

import re

import pytest

from infer_doctor.facts.log import EngineLog
from infer_doctor.logs.figures import figure
from infer_doctor.logs.read import read_texts
from infer_doctor.logs.signatures import Signature, signatures

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB"
KV = "ValueError: No available memory for the cache blocks."
HTTP_OK = 'INFO:     10.0.0.9:32107 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
BEGUN = (
    "INFO 11-30 10:00:00 [api_utils.py:273] non-default args: {'model': '/models/m'}",
    "(EngineCore pid=700) INFO 11-30 10:00:09 [core.py:116] Initializing a V1 LLM engine (v0.26.0) "
    "with config: model='/models/m', tensor_parallel_size=1",
)
READY = (
    "(EngineCore pid=700) INFO 11-30 10:00:40 [core.py:340] init engine (profile, create kv cache, "
    "warmup model) took 20.49 s",
    "INFO:     Application startup complete.",
)
ECHO = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
)


def log_of(*lines: str) -> EngineLog:
    found = read_texts(lines)[EngineLog]
    assert isinstance(found, EngineLog)
    return found


QUOTES = (
    f"DEBUG 11-30 10:01:00 [request_logger.py:55] Request chatcmpl-1 details: prompt: '{OOM}', prompt",
    f"DEBUG 11-30 10:01:00 [request_logger.py:74] Request chatcmpl-1 JSON body: {{'prompt': '{KV}'}}",
    f"INFO 11-30 10:01:00 [logger.py:43] Received request cmpl-1: prompt: '{OOM}', params: None",
    f"INFO 11-30 10:01:00 [logger.py:90] Generated response chatcmpl-1: output: '{KV}', output_token",
    f"INFO 11-30 10:01:00 [log_response.py:141] response_body={{'text': '{OOM}'}}",
    '10.0.0.1 - - [30/Nov/2026:10:00:00] "GET /?q=Segmentation fault HTTP/1.1" 200 12',
    f"messages.0.content  Input should be a string [type=string_type, input_value='{OOM}', input_type=",
)


@pytest.mark.parametrize("quote", QUOTES)
@pytest.mark.parametrize("head", [(), (*BEGUN, *READY)])
def test_what_a_user_wrote_is_no_failure(quote: str, head: tuple[str, ...]) -> None:
    if "input_value" in quote and not head:
        return  # before a server is up this form is about a setting
    log = log_of(*head, quote, HTTP_OK)
    assert (log.cause, log.unexplained, log.warnings) == (None, None, ())


def named(service: str, *lines: str) -> list[str]:
    return [f"{service}  | {line}" for line in lines]


@pytest.mark.parametrize("form", ["{}  | ", "[pod/{}/vllm] "])
def test_an_engine_that_fails_beside_one_that_starts(form: str) -> None:
    well = [form.format("vllm-a-1") + line for line in (*BEGUN, *READY, HTTP_OK, HTTP_OK)]
    ill = [form.format("vllm-b-1") + line for line in (*BEGUN, KV, ECHO)]
    mixed = [well[0], ill[0], well[1], ill[1], ill[2], ill[3], *well[2:]]
    for lines in (mixed, [*well, *ill, well[-1]], [*ill, *well]):
        log = log_of(*lines)
        assert log.cause and log.cause.signature == "kv-no-blocks"
        assert lines[(log.cause.evidence[0].line or 0) - 1] == ill[2]


def test_an_exit_without_a_prefix_belongs_to_the_service_before_it() -> None:
    log = log_of(*named("vllm-1", *BEGUN, KV, ECHO), "vllm-1 exited with code 137")
    assert log.cause and log.cause.signature == "kv-no-blocks"


def test_the_cause_may_stand_after_the_wrapper() -> None:
    log = log_of(*BEGUN, ECHO, f"(EngineCore pid=700) ERROR 11-30 10:00:20 [core.py:1] {KV}")
    assert log.cause and log.cause.signature == "kv-no-blocks"


ABSURD = ("0", "9" * 400, "1.2.3", "-5")


@pytest.mark.parametrize("value", ABSURD)
@pytest.mark.parametrize(
    "signature", [row for row in signatures() if row.example], ids=lambda row: str(row.id)
)
def test_absurd_numbers_are_survived(signature: Signature, value: str) -> None:
    line = re.sub(r"\d[\d.]*", value, signature.example)
    log = log_of(
        f"INFO 11-30 10:00:00 [a.py:1] non-default args: {{'tensor_parallel_size': {value}, "
        f"'gpu_memory_utilization': {value}}}",
        f"(EngineCore pid=7) INFO 11-30 10:00:10 [m.py:1] Model loading took {value} GiB and {value} s",
        f"(EngineCore pid=7) INFO 11-30 10:00:11 [w.py:1] Available KV cache memory: {value} GiB",
        line,
    )
    if log.cause is not None:
        assert len(log.cause.message) < 2000


def test_a_mangled_statistics_line_is_skipped() -> None:
    line = (
        "INFO 11-30 10:0{n}:00 [loggers.py:1] Engine 000: Avg prompt throughput: 3.73.7 tokens/s, "
        "Avg generation throughput: 0.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs"
    )
    assert log_of(*BEGUN, *READY, *(line.format(n=n) for n in range(9))).cause is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234", 1234.0),
        ("12.", 12.0),
        (".", None),
        ("1.2.3", None),
        ("9" * 400, None),
        (None, None),
    ],
)
def test_figure(text: str | None, value: float | None) -> None:
    assert figure(text) == value


def test_a_server_that_answers_only_with_errors_is_not_healthy() -> None:
    line = (
        'INFO:     10.0.0.9:{}2107 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error'
    )
    log = log_of(*BEGUN, *READY, *(line.format(n) for n in range(1, 6)))
    assert log.cause is None
    assert "5 answers have status 500" in (log.unexplained or "")
    well = log_of(*BEGUN, *READY, line.format(1), *[HTTP_OK] * 3)
    assert well.unexplained is None


def test_the_port_of_the_ras_service_is_no_failure() -> None:
    log = log_of(
        "host-1:25:25 [0] ras/client_support.cc:160 NCCL WARN Call to bind failed: Address already in use"
    )
    assert log.cause is None


def test_what_a_server_survived_is_no_failure() -> None:
    for line in (
        "host-1:25:25 [0] NCCL WARN Cuda failure 801 'operation not supported'",
        "Warning  BackOff  2m  kubelet  Back-off restarting failed container metrics in pod vllm-0",
    ):
        log = log_of(*BEGUN, *READY, line, HTTP_OK, HTTP_OK)
        assert (log.cause, log.unexplained) == (None, None)
