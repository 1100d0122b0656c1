"""`infer-doctor reproduce`: the failure on purpose, with a run as small as it can be."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from infer_doctor._version import VERSION
from infer_doctor.commands.common import (
    emit,
    failed_system_call,
    format_option,
    note,
    now,
    option,
    output_option,
    registry_of_checks,
    this_machine,
    tokens_option,
    wall_option,
)
from infer_doctor.model import EXIT

if TYPE_CHECKING:
    from infer_doctor.engine import Subject
    from infer_doctor.model import CheckResult
    from infer_doctor.registry import Registry
    from infer_doctor.runs.answering import Answered
    from infer_doctor.runs.keep import Keeper

MACHINE_S = 20.0
"""Seconds for what is looked at before the run."""

QUESTIONS = ("oom", "engine-load", "cold-start", "timeout", "quality")
DECIDES = {
    "oom": ("run-start-failed", "run-memory-boundary", "log-engine-failed"),
    "engine-load": ("run-start-failed", "log-engine-failed"),
    "cold-start": ("run-start-slow",),
    "timeout": ("run-load-late",),
    "quality": ("run-quality-degraded",),
}
"""Checks without which a question has no answer."""

LAYERS = ("driver", "cuda_init", "deep_libraries")
"""Modules of checks for what an engine loads first: a broken layer below it is named before it."""


@click.command()
@click.argument("question", type=click.Choice(QUESTIONS), metavar="|".join(QUESTIONS))
@click.argument("url", required=False, metavar="[URL] [-- COMMAND ...]")
@option(
    "--vary",
    type=click.Choice(
        ["max-model-len", "gpu-memory-utilization", "max-num-seqs", "tensor-parallel-size"]
    ),
    help="oom: the option whose boundary is looked for (default: by what failed).",
)
@option(
    "--at",
    type=click.Choice(["load", "kv", "graphs"]),
    default="kv",
    show_default=True,
    help="oom without a launch: where the memory is to run out.",
)
@option("--real-weights", is_flag=True, help="oom: read the weights instead of random ones.")
@option(
    "--limit",
    type=click.FloatRange(0.01, 86_400),
    metavar="S",
    help="cold-start: what a start may take. timeout: the client's limit of an answer (30).",
)
@option(
    "--first-token",
    type=click.FloatRange(0.001, 86_400),
    metavar="S",
    help="timeout: the client's limit of the first token.",
)
@option(
    "--most",
    type=click.IntRange(1, 1000),
    default=64,
    show_default=True,
    metavar="N",
    help="timeout: requests at once at most.",
)
@tokens_option("Tokens of each answer.")
@option("--against", metavar="TARGET", help="quality: as BASELINE of compare.")
@option("--prompts", metavar="FILE", help="quality: a prompt a line, instead of the built-in ones.")
@option("--share-gpu", is_flag=True, help="Start although others use the GPU.")
@wall_option
@option(
    "--idle",
    type=click.FloatRange(1, 86_400),
    default=600.0,
    show_default=True,
    metavar="S",
    help="Seconds that its log may be silent.",
)
@option("--keep", metavar="DIR", help="Keep logs and what was seen, for --replay.")
@option("--replay", metavar="DIR", help="A kept run instead of an engine.")
@option("--python", metavar="EXE", help="Interpreter of the engine (default: as check finds it).")
@format_option
@output_option
@click.pass_obj
def reproduce(command: Sequence[str], /, question: str, url: str | None, **options: Any) -> None:
    """Start the engine as small as it can be, and watch one failure happen.

    oom: at which stage memory runs out, and the largest value that starts. engine-load: does it come
    up. cold-start: a cold and a warm start, with and without graphs. timeout: how many requests at
    once a client's limit allows. quality: are the answers those of the baseline. Without a COMMAND a
    tiny model is written and served. Nothing is downloaded, and no process is left, also when the
    doctor is killed.
    """
    from infer_doctor.examine import Examination, NoTarget
    from infer_doctor.runs.answers import BadAnswers
    from infer_doctor.runs.child import Limits
    from infer_doctor.runs.endpoint import NoServer
    from infer_doctor.runs.keep import BadRun, Keeper, Kept
    from infer_doctor.runs.prompts import BadPrompts
    from infer_doctor.runs.session import logs_in, prepare, refuse_when_busy
    from infer_doctor.runs.words import NoRun

    started, started_at = time.monotonic(), now()
    below: list[CheckResult] = []
    if url is not None and question != "timeout":
        raise click.UsageError("only timeout takes the URL of a server")
    registry = registry_of_checks()
    replay = options["replay"]
    try:
        with this_machine(MACHINE_S) as host:
            if replay:
                subject = _bare(registry, replay)
                kept = Kept(replay)
                if kept.question != question:
                    raise click.ClickException(f"{replay} holds a run of {kept.question}")
                facts, measured = _replayed(question, kept, options)
            else:
                examination = Examination.of(
                    registry,
                    command=list(command),
                    python=options["python"],
                    deep=question == "engine-load",
                    host=host,
                )
                subject = examination.subjects[0]
                with logs_in(options["keep"]) as folder:
                    limits = Limits(
                        wall_s=options["wall"],
                        idle_s=options["idle"],
                        scratch="" if options["keep"] else folder,
                        kept=bool(options["keep"]),
                    )
                    keeper = Keeper(question, tuple(command), folder if options["keep"] else None)
                    if url is not None:
                        facts, measured = _of_url(url, options, keeper)
                    else:
                        session = prepare(
                            subject,
                            folder,
                            question,
                            limits=limits,
                            at=options["at"],
                            real_weights=options["real_weights"],
                        )
                        if not options["share_gpu"]:
                            refuse_when_busy(subject)
                        if question == "engine-load" and session.gpus:
                            below = _layers(registry, subject)
                        facts, measured = _live(question, session, options, keeper)
                    if options["keep"]:
                        _kept(keeper, question, options["keep"])
                    elif not keeper.is_healthy:
                        note("the logs go with the run; --keep DIR keeps them")
    except (NoRun, NoTarget, BadRun, NoServer, BadPrompts, BadAnswers) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise failed_system_call(error) from None
    _finish(
        registry, subject, facts, measured, question, command, options, started, started_at, below
    )


def _kept(keeper: Keeper, question: str, folder: str) -> None:
    """What cannot be written is told, and the report of the run stands."""
    try:
        keeper.write()
    except OSError as error:
        note(f"{folder} does not hold the run: {error.strerror}")
        return
    note(f"kept in {folder}: infer-doctor reproduce {question} --replay {folder}")


def _layers(registry: Registry, subject: Subject) -> list[CheckResult]:
    """Driver, context and libraries by `check --deep`; an engine above a broken one fails too."""
    from infer_doctor.engine import run

    modules = {f"infer_doctor.checks.{name}" for name in LAYERS}
    results = run(
        [row for row in registry.checks.values() if row.function.__module__ in modules], subject
    )
    for result in results:
        for finding in result.findings:
            if finding.severity == "error":
                note(f"below the engine: {finding.message} [{finding.check}]")
    return results


def _bare(registry: Registry, folder: str) -> Subject:
    from infer_doctor.engine import Subject

    return Subject(
        folder, registry, host=None, unasked="not in a kept run", replayed=True, whole=True
    )


def teller() -> Any:
    """Shows on a terminal what is waited for, and for how long."""
    if not sys.stderr.isatty():
        return None

    def tell(text: str, seconds: float) -> None:
        sys.stderr.write(f"\r\x1b[K{text}: {seconds:.0f} s")
        sys.stderr.flush()

    return tell


def _live(question: str, session: Any, options: dict[str, Any], keeper: Any) -> Answered:
    from infer_doctor.redact import without_secrets
    from infer_doctor.runs import answering
    from infer_doctor.runs.keep import recorded
    from infer_doctor.runs.session import costs
    from infer_doctor.runs.starting import start

    keeper.words = session.written
    note("runs " + " ".join(without_secrets(session.plan.words)))
    for line in costs(session, answering.STARTS[question]):
        note(f"takes {line}")
    tell = teller()

    def one(change: Any, why: str) -> Any:
        note(f"start {len(keeper.starts) + 1}: {change.label} ({why})")
        seen = start(session.plan, change, why, tell)
        if tell:
            sys.stderr.write("\r\x1b[K")
        row = seen.start
        came = f"came up after {row.seconds:.0f} s" if row.ready else "did not come up"
        note(f"        {came}" + ("" if row.ready else f": {row.why_not}"))
        return seen

    return answering.answer(question, session, options, keeper, recorded(one, keeper), note)


def _replayed(question: str, kept: Any, options: dict[str, Any]) -> Answered:
    from infer_doctor.runs import answering

    return answering.replay(question, kept, options)


def _of_url(url: str, options: dict[str, Any], keeper: Any) -> Answered:
    from infer_doctor.runs import answering

    return answering.of_url(url, options, keeper, note)


def _finish(
    registry: Registry,
    subject: Subject,
    facts: dict[type, object],
    measured: dict[str, Any] | None,
    question: str,
    command: Sequence[str],
    options: dict[str, Any],
    started: float,
    started_at: str,
    below: list[CheckResult],
) -> None:
    from infer_doctor.engine import run
    from infer_doctor.redact import Redactor, without_secrets
    from infer_doctor.report import build

    for kind, fact in facts.items():
        subject.give(kind, fact)
    wanted = [
        row for row in registry.checks.values() if any(need.fact in facts for need in row.needs)
    ]
    results = [*below, *run(wanted, subject)]
    redactor = Redactor(list(subject.host.captures.values()) if subject.host else [])
    report = build(
        command="reproduce",
        version=VERSION,
        started_at=started_at,
        duration_s=round(time.monotonic() - started, 3),
        subjects=[subject],
        results=results,
        fail_on="error",
        required=DECIDES[question],
        launch=without_secrets(command),
        redactor=redactor,
        redactions=redactor.redactions,
    )
    report = dataclasses.replace(report, measurements=measured)
    emit(report, options["format"], options["output"])
    raise click.exceptions.Exit(EXIT[report.verdict])
