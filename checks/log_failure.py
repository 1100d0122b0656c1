"""What ended an engine, by its log; `infer-doctor diagnose` and `check LOG` give the log's facts."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.facts.driver import Driver
from infer_doctor.facts.gpu import GpuMemory
from infer_doctor.facts.log import Cause, EngineLog
from infer_doctor.facts.owners import GpuOwners
from infer_doctor.fixes.gpu import end_process
from infer_doctor.fixes.log import confirm_first
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.registry import check
from infer_doctor.units import GIB, age, gib

MILD_STALLS = 3
"""Messages of a stall below which it is a warning: vLLM repeats "No available shared memory broadcast
block found" each minute (shm_broadcast.py, VLLM_RINGBUFFER_WARNING_INTERVAL), and a long compilation
brings one or two."""

NEARLY_ALL_FREE = 0.9
"""Of the memory that can be used: nobody holds it. The rest is contexts of tools; ours."""

HOLDER_GIB = 1
"""A process with less is no reason for a refused start: CUDA's own context takes 0.5 GiB."""


@check("log-engine-failed", severity="error", category="wrapper_generic", since="0.2")
def engine_failed(
    log: EngineLog, owners: GpuOwners | None, memory: GpuMemory | None, driver: Driver | None
) -> Iterator[Finding]:
    """The engine failed, and its log holds the cause.

    ## Why it matters
    Most failures end in "Engine core initialization failed. See root cause above": the cause stands
    some hundred lines higher, in another process, and its own advice may not fit its numbers.

    ## How it decides
    The log is followed through its starts; the last one counts, or, where that one has not yet come
    to anything, the one before. A line is compared with the formats of the engines' own messages
    (catalog/log_vllm.ini, log_trtllm.ini, log_common.ini, each with its source). A root beats a
    cause, a cause a symptom, among equals the first line of the start counts; wrappers and noise
    are never named, nor what stands before the start became ready, nor what a process said before
    it went on to a later stage, nor a mere remark before an exception that is not known. The category of an out of memory
    follows from the stage. With facts of a machine beside the log, the process that holds a GPU's
    memory and the CUDA that its driver serves join the evidence. Certain: the engine's own message;
    likely: a message that several causes have; possible: one that a healthy engine prints too. When a
    failure shows and its cause does not (only wrappers, an error that the catalogue does not know, a
    log that ends within a start), nothing is guessed: it could not be decided, and the one thing to
    send is named.

    ## Fix safety
    Manual, for the launch is somebody's else: only ending a process that is here can be applied.
    """
    cause = log.cause
    if cause is None and log.unexplained is not None:
        raise Unavailable(log.unexplained)
    if cause is None:
        return
    evidence, fixes, words = _joined(cause, owners, memory, driver)
    where = f" ({cause.stage})" if cause.stage else ""
    message = cause.message + where
    for addition in (words, cause.wrong):
        message += f". {addition}" if addition else ""
    mild = cause.effect == "stall" and cause.count < MILD_STALLS
    yield Finding(
        about=cause.signature,
        message=message,
        severity="warning" if mild else "error",
        confidence=cause.confidence,
        category=cause.category,
        evidence=(*cause.evidence, *evidence),
        fixes=_confirmed(cause, fixes),
    )
    for other in log.others:
        yield Finding(
            about=other.signature,
            message=f"in the same start, and weaker or later: {other.message}",
            severity="info",
            confidence="possible",
            category=other.category,
            evidence=other.evidence,
        )


def _confirmed(cause: Cause, fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """What is not certain is to be confirmed before anything is changed."""
    if cause.confidence == "certain" or not cause.confirm or not fixes:
        return fixes
    return (confirm_first(fixes[0], cause.confirm), *fixes[1:])


def _joined(
    cause: Cause, owners: GpuOwners | None, memory: GpuMemory | None, driver: Driver | None
) -> tuple[tuple[Evidence, ...], tuple[Fix, ...], str]:
    """What the machine beside the log adds: evidence, fixes in their order, and a sentence."""
    if cause.category == "oom_startup_free_mem" and owners is not None:
        return _holders(cause, owners, memory)
    if cause.category == "driver_cuda" and driver is not None and driver.cuda is not None:
        serves = ".".join(map(str, driver.cuda))
        words = f"On the machine beside the log driver {driver.version} serves CUDA {serves}"
        said = cause.numbers.get("cuda")
        if said and said != serves:
            words += f", not the {said} of the log: another machine, or a driver changed since"
        return (driver.evidence,), cause.fixes, words
    return (), cause.fixes, ""


def _holders(
    cause: Cause, owners: GpuOwners, memory: GpuMemory | None
) -> tuple[tuple[Evidence, ...], tuple[Fix, ...], str]:
    named = cause.numbers.get("pid")
    held = [
        owner
        for owner in owners.owners
        if str(owner.pid) == named or (owner.used or 0) >= HOLDER_GIB * GIB
    ]
    if not held:
        rows = memory.rows if memory else ()
        if rows and all(row.free > NEARLY_ALL_FREE * row.usable for row in rows):
            free = ", ".join(f"GPU {row.index} {gib(row.free)}" for row in rows)
            source = memory.source if memory else owners.source
            return (
                (Evidence(source=source, excerpt=f"free: {free}"),),
                cause.fixes,
                "On the machine beside the log nobody holds that memory now: the same start should work",
            )
        return (), cause.fixes, ""
    evidence = []
    fixes: list[Fix] = []
    words = []
    for owner in held:
        name = owner.name or "a process"
        took = gib(owner.used) if owner.used else "memory"
        old = f", {age(owner.age_s)} old" if owner.age_s is not None else ""
        dead = ", no server above it" if owner.orphan else ""
        words.append(f"PID {owner.pid} ({name}{old}{dead}) holds {took} of GPU {owner.gpu}")
        evidence.append(
            Evidence(
                source=owners.source, excerpt=f"GPU {owner.gpu}: PID {owner.pid} {name} {took}"
            )
        )
        if owner.orphan:
            fixes.append(end_process(owner.pid, owner.started, owner.name or "", orphan=True))
    return (
        tuple(evidence),
        (*fixes, *cause.fixes),
        "On the machine beside the log " + "; ".join(words),
    )


@check("log-earlier-failure", severity="info", category="wrapper_generic", since="0.2")
def earlier_failure(log: EngineLog) -> Iterator[Finding]:
    """A start before the last one failed too.

    ## Why it matters
    A restart may hide the first failure: what failed once under load or in a race will come back.

    ## How it decides
    A log may hold several starts; each new one begins with the engine's own first lines. For every
    start before the one that counts, its cause is named, each cause once and at most five.

    ## Fix safety
    There is none.
    """
    for cause in log.earlier:
        again = log.cause is not None and log.cause.signature == cause.signature
        then = "as in the last one" if again else f"the last of {log.starts} starts is {log.state}"
        yield Finding(
            about=cause.signature,
            message=f"an earlier start failed: {cause.message}; {then}",
            confidence=cause.confidence,
            category=cause.category,
            evidence=cause.evidence,
        )


@check("log-warned", severity="warning", category="quality", since="0.2")
def warned(log: EngineLog) -> Iterator[Finding]:
    """The engine runs, but says that answers or speed suffer.

    ## Why it matters
    Such a line comes once, among hundreds, and nobody sees it: an FP8 cache without scales, a
    context that was cut to what the cache holds, requests that are preempted.

    ## How it decides
    The same comparison as for failures, for messages that end nothing (`effect = warning` in the
    catalogue), and errors after which the server went on to answer requests.

    ## Fix safety
    Manual: the launch has to be changed.
    """
    for cause in log.warnings:
        survived = cause.effect == "survived"
        yield Finding(
            about=cause.signature,
            message=f"{cause.message}; the server went on to answer" if survived else cause.message,
            confidence="possible" if survived else cause.confidence,
            category=cause.category,
            evidence=cause.evidence,
            fixes=cause.fixes,
        )
