"""What the engine's own numbers say: stalled, queueing, out of KV cache, slow at the front."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infer_doctor.checks.server_answer import gave_up
from infer_doctor.checks.server_frontend import frontend_slow
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.server import Answers, EngineState, ServerMetrics, Streamed, ms
from infer_doctor.fixes.server import (
    enlarge_kv_cache,
    restart_engine,
    shorten_prefill,
    shorten_queue,
    wake_engine,
)
from infer_doctor.host import Unavailable
from infer_doctor.model import Confidence, Evidence, Finding, Severity
from infer_doctor.registry import check
from infer_doctor.server.progress import counts_steps, nothing_moved, progress, same, stuck

STALL_S = 2.0
"""Seconds without any progress: a step of vLLM takes milliseconds, with chunked prefill at most a few
hundred; log lines of vLLM come every 10 s, so nothing shorter shows there."""

SLOW_FIRST_S = 2.0
"""MLPerf Inference, server scenario of Llama-2-70B: the first token within 2 s."""

QUEUE_SHARE = 0.5
QUEUE_S = 0.5
KV_FULL = 0.95
"""vLLM's log and metrics round to a tenth of a percent, and a block that is not whole is used."""


def numbers(metrics: ServerMetrics) -> tuple[Evidence, ...]:
    """The gauges and counters of both scrapes, a line each."""
    rows = [Evidence(source=metrics.source, excerpt=_words(metrics, "first"))]
    if metrics.second:
        after = f" {metrics.seconds:.1f} s later" if metrics.seconds is not None else ""
        rows.append(Evidence(source=f"{metrics.source}{after}", excerpt=_words(metrics, "second")))
    return tuple(rows)


def _words(metrics: ServerMetrics, scrape: str) -> str:
    words = []
    for name, label in (
        ("running", "running"),
        ("waiting", "waiting"),
        ("tokens", "tokens made"),
        ("prompt_tokens", "prompt tokens"),
        ("preemptions", "preemptions"),
    ):
        value = metrics.total(name, scrape)
        if value is not None:
            words.append(f"{label} {value:,.0f}")
    kv = _kv(metrics, scrape)
    if kv is not None:
        words.append(f"KV cache {kv:.0%}")
    return ", ".join(words) or "no numbers of requests"


def _kv(metrics: ServerMetrics, scrape: str = "last") -> float | None:
    states: Mapping[str, EngineState] = getattr(metrics, scrape)
    return max((state.kv for state in states.values() if state.kv is not None), default=None)


def _two(metrics: ServerMetrics) -> float:
    if not metrics.second:
        raise Unavailable("one scrape cannot tell it: two are needed")
    if metrics.seconds is None:
        raise Unavailable("the time between the two scrapes is not known")
    return metrics.seconds


@check("server-engine-stalled", severity="error", category="engine_stalled", since="0.2")
def engine_stalled(metrics: ServerMetrics, answers: Answers | None) -> Iterator[Finding]:
    """The engine makes no progress while requests are in it; its front end lives.

    ## Why it matters
    /health answers 200 and the platform calls the server healthy, while every request waits until
    its client gives up. Reasons: a hung collective operation, a dead worker, a kernel that does not
    return, an engine process that was stopped. The first request after a start may also compile for
    a minute.

    ## How it decides
    Two scrapes of /metrics at least 2 s apart. An engine has requests running in both and its
    counters of made tokens, prompt tokens and steps and its use of the KV cache are the same: certain.
    Or none of them moved although a request of the doctor itself waited all that time. With data
    parallelism every engine is judged alone; one that stands still and has got a request since is
    told as likely when the doctor's own request waited. Where only finished requests are counted (TensorRT-LLM's Prometheus path, Triton
    without the TensorRT-LLM backend) long answers look the same, and nothing is told. When even answers without tokens are slow, the front end is the cause
    (server-frontend-slow) and nothing is told here.

    ## Fix safety
    Manual: the engine has to be started again, after its stacks were kept.
    """
    seconds = _two(metrics)
    if seconds < STALL_S:
        if metrics.own_request == "tokens":
            return
        raise Unavailable(f"the scrapes are only {seconds:.1f} s apart")
    if frontend_slow(answers):
        return
    if not any(
        counts_steps(first, metrics.second.get(name)) for name, first in metrics.first.items()
    ):
        if metrics.own_request == "tokens":
            return
        raise Unavailable(f"{metrics.source} counts finished requests and no steps of the engine")
    stalled = [name for name, first in metrics.first.items() if stuck(metrics, name, first)]
    health = answers.get("health") if answers is not None else None
    said = (
        f"; GET {health.path} says {health.status}" if health is not None and health.status else ""
    )
    if stalled:
        running = sum(metrics.second[name].running or 0 for name in stalled)
        which = f"engine {', '.join(stalled)}" if len(metrics.first) > 1 else "the engine"
        yield Finding(
            about=which,
            message=f"{which} made no token in {seconds:.1f} s with {running:.0f} requests "
            f"running{said}",
            evidence=(*numbers(metrics), *((health.evidence,) if health is not None else ())),
            fixes=(restart_engine(),),
        )
    elif metrics.own_request == "no token" and nothing_moved(metrics):
        yield Finding(
            about="the engine",
            message=f"the engine made no token in {seconds:.1f} s while a request of ours waited"
            + said,
            evidence=(*numbers(metrics), *((health.evidence,) if health is not None else ())),
            fixes=(restart_engine(),),
        )
    elif metrics.own_request == "no token" and (ours := took(metrics)):
        yield Finding(
            about=f"engine {ours[0]}",
            message=f"engine {', '.join(ours)} of {len(metrics.first)} made no token in "
            f"{seconds:.1f} s and has got a request; ours waited" + said,
            confidence="likely",
            evidence=(*numbers(metrics), *((health.evidence,) if health is not None else ())),
            fixes=(restart_engine(),),
        )
    elif metrics.own_request == "refused" and nothing_moved(metrics):
        raise Unavailable("our request was refused, and nothing else was asked of the engine")


def took(metrics: ServerMetrics) -> list[str]:
    """Engines that have a request since the first scrape and made no step."""
    return [
        name
        for name, first in metrics.first.items()
        if not first.running
        and name in metrics.second
        and metrics.second[name].running
        and same(first, metrics.second[name])
    ]


@check("server-engine-asleep", severity="error", category="engine_stalled", since="0.2")
def engine_asleep(metrics: ServerMetrics) -> Iterator[Finding]:
    """The engine sleeps: its weights or its KV cache are not on the GPU.

    ## Why it matters
    Somebody has called POST /sleep, for a training step or another model; requests fail or wait until
    POST /wake_up.

    ## How it decides
    vllm:engine_sleep_state{sleep_state="awake"} is 0 (since 0.11.1, --enable-sleep-mode).

    ## Fix safety
    Manual: whoever sent it to sleep counts on it.
    """
    if all(state.asleep is None for state in metrics.last.values()):
        raise NotApplicable(f"{metrics.source} does not tell whether the engine sleeps")
    asleep = [name for name, state in metrics.last.items() if state.asleep]
    if not asleep:
        return
    yield Finding(
        about="the engine",
        message=f"engine {', '.join(asleep)} sleeps: it answers no request until it is woken",
        evidence=(
            Evidence(
                source=metrics.source,
                excerpt='vllm:engine_sleep_state{sleep_state="awake"} 0',
            ),
        ),
        fixes=(wake_engine(),),
    )


@check("server-queueing", severity="warning", category="queueing", since="0.2")
def queueing(
    metrics: ServerMetrics, streamed: Streamed | None, answers: Answers | None
) -> Iterator[Finding]:
    """Requests wait in the engine's queue before they are begun.

    ## Why it matters
    The first token comes after everybody who came earlier; clients give up at a round number of
    seconds, ask again, and the queue grows.

    ## How it decides
    Tokens are made, so the engine lives, and: a request of the doctor got no token within 8 s while
    others waited with it (error); or by the engine's own histograms at least half of the time to the
    first token is the queue, and that is 0.5 s or more; or the number waiting grew between two
    scrapes, or is that of those running or more (likely). When the doctor's own first token came
    within 0.5 s both are told as info: the queue was before, or of others. With a full KV cache the
    finding is server-kv-full.

    ## Fix safety
    Manual.
    """
    waiting = metrics.total("waiting")
    if waiting is None and "queue" not in metrics.paces:
        raise Unavailable(f"{metrics.source} does not tell how many requests wait")
    running, made = metrics.total("running"), metrics.gained("tokens")
    if is_full(metrics, streamed):
        raise NotApplicable("the KV cache is full: server-kv-full")
    queue, ttft = metrics.paces.get("queue"), metrics.paces.get("ttft")
    severity: Severity | None = None
    confidence: Confidence = "certain"
    if metrics.own_request == "no token":
        if not waiting or not progress(metrics):
            return
        others = f"others got {made:,.0f}" if made else "the engine worked on others"
        severity, confidence = "error", _after_a_proxy(answers)
        message = (
            f"{waiting:.0f} requests wait behind {running or 0:.0f} that run: ours got no token in "
            f"{ms(streamed.total_ms) if streamed else 'time'}, while {others}"
        )
    elif queue and ttft and queue.mean >= QUEUE_S and _mostly(queue.mean, ttft.mean):
        since = "" if metrics.second else " since its start"
        severity = "info" if quick(streamed) else None
        message = (
            f"the queue takes {queue.mean:.1f} of the {ttft.mean:.1f} s to the first token "
            f"(mean of {queue.count:.0f} requests{since})"
        )
    elif waiting and _grows(metrics, waiting, running):
        severity, confidence = "info" if quick(streamed) else None, "likely"
        message = f"{waiting:.0f} requests wait behind {running or 0:.0f} that run"
    else:
        return
    yield Finding(
        about="queue",
        message=message,
        severity=severity,
        confidence=confidence,
        evidence=numbers(metrics),
        fixes=(shorten_queue(running, waiting, metrics.kind),),
    )


def _after_a_proxy(answers: Answers | None) -> Confidence:
    """A step below server-proxy-timeout, where a proxy has ended our request before the queue did."""
    if answers is None or not any(gave_up(answers, row) for row in answers.heavy):
        return "certain"
    return "likely" if answers.gateway else "possible"


def _mostly(part: float, whole: float) -> bool:
    return whole > 0 and part >= QUEUE_SHARE * whole


def _grows(metrics: ServerMetrics, waiting: float, running: float | None) -> bool:
    before = metrics.total("waiting", "first")
    if metrics.second and before is not None:
        return waiting > before > 0 or (before > 0 and waiting >= max(running or 0, 1))
    return waiting >= max(running or 0, 1)


def quick(streamed: Streamed | None) -> bool:
    """Whether our own first token came so early that there was no queue before it."""
    first = streamed.first_ms if streamed is not None else None
    return first is not None and first < QUEUE_S * 1000


def is_full(metrics: ServerMetrics, streamed: Streamed | None) -> bool:
    """vLLM preempts only when it finds no free block (v1/core/sched/scheduler.py)."""
    if metrics.gained("preemptions"):
        return True
    scrapes = (
        ("first", "last") if quick(streamed) else ("last",)
    )  # one that waits may just have come
    return all(
        (_kv(metrics, scrape) or 0) >= KV_FULL and bool(metrics.total("waiting", scrape))
        for scrape in scrapes
    )


@check("server-kv-full", severity="warning", category="queueing", since="0.2")
def kv_full(metrics: ServerMetrics, streamed: Streamed | None) -> Iterator[Finding]:
    """The KV cache is full: requests wait for it, or are thrown out and computed again.

    ## Why it matters
    A preempted request loses what was computed and starts again; with many the engine works and
    nobody gets an answer. More requests at once make it worse.

    ## How it decides
    Requests were preempted between the scrapes: vLLM does that only when it finds no free block. Or
    the cache is used to 95 % or more and requests wait, in both scrapes when the doctor's own first
    token came within 0.5 s. Preemptions before the first scrape prove
    nothing about now.

    ## Fix safety
    Manual.
    """
    kv = _kv(metrics)
    if kv is None:
        raise Unavailable(f"{metrics.source} does not tell how full the KV cache is")
    if not is_full(metrics, streamed):
        return
    preempted, waiting = metrics.gained("preemptions"), metrics.total("waiting") or 0
    if preempted:
        span = f" in {metrics.seconds:.1f} s" if metrics.seconds is not None else ""
        message = f"the KV cache is too small: {preempted:.0f} requests were thrown out of it{span}"
    else:
        message = f"the KV cache is {kv:.0%} full and {waiting:.0f} requests wait for it"
    yield Finding(
        about="KV cache",
        message=message,
        severity="error" if metrics.own_request == "no token" else None,
        confidence="certain" if preempted else "likely",
        evidence=numbers(metrics),
        fixes=(enlarge_kv_cache(metrics.total("running"), metrics.kind),),
    )


@check("server-first-token-slow", severity="warning", category="request_timeout", since="0.2")
def first_token_slow(
    metrics: ServerMetrics, streamed: Streamed, answers: Answers | None
) -> Iterator[Finding]:
    """The first token comes late although nothing waits in the queue; the others are quick.

    ## Why it matters
    The prompts are computed slowly: long ones beside ours, a prefix cache that does not help, too
    many tokens a step, or compilation at the first request.

    ## How it decides
    Our first token took 2 s or more, ten times the time of a later one, and by the engine's own
    histograms the queue is less than half of that. 2 s is the bound of MLPerf Inference for a 70B.

    ## Fix safety
    Manual.
    """
    first = (streamed.first_ms or 0) / 1000
    ttft, queue = metrics.paces.get("ttft"), metrics.paces.get("queue")
    itl = metrics.paces.get("itl")
    if first < SLOW_FIRST_S or frontend_slow(answers) or ttft is None:
        return
    if queue is not None and _mostly(queue.mean, ttft.mean):
        return
    if ttft.mean < SLOW_FIRST_S or (itl is not None and ttft.mean < 10 * itl.mean):
        return
    parts = [f"server {ttft.mean:.1f} s"]
    parts += [f"queue {queue.mean:.1f} s"] if queue else []
    prefill = metrics.paces.get("prefill")
    parts += [f"prefill {prefill.mean:.1f} s"] if prefill else []
    yield Finding(
        about="prefill",
        message=f"the first token took {first:.1f} s and does not wait in the queue "
        f"({', '.join(parts)})",
        evidence=numbers(metrics),
        fixes=(shorten_prefill(),),
    )
