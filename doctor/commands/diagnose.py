"""`infer-doctor diagnose`: the root cause out of a log."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from infer_doctor._version import VERSION
from infer_doctor.commands.common import (
    emit,
    format_option,
    now,
    option,
    output_option,
    this_machine,
)
from infer_doctor.model import EXIT

if TYPE_CHECKING:
    from infer_doctor.engine import Subject
    from infer_doctor.host import Host
    from infer_doctor.live import LiveHost
    from infer_doctor.model import CheckResult
    from infer_doctor.registry import Registry

AREA = "log_"
CAUSE = "log-engine-failed"
JOINED = ("oom_startup_free_mem", "driver_cuda")
"""Categories of a cause to which facts of a machine add something."""

MACHINE_S = 10.0
"""Seconds for this machine's answers, which are a help and not the task."""


@click.command()
@click.argument("logs", nargs=-1, metavar="[LOG | -]... [-- COMMAND ...]")
@option("--container", metavar="NAME", help="The log of a container instead of a file.")
@option("--snapshot", metavar="FILE", help="Facts of the machine that wrote the log.")
@format_option
@output_option
@option("--fail-on", type=click.Choice(["error", "warning"]), default="error", show_default=True)
@click.pass_obj
def diagnose(
    command: Sequence[str],
    logs: tuple[str, ...],
    container: str | None,
    snapshot: str | None,
    format: str,
    output: str | None,
    fail_on: Any,
) -> None:
    """The root cause out of a log of vLLM or TensorRT-LLM.

    LOG is a file as it is: also gzipped, rotated (serve.log.1 and serve.log are one log), with
    journald's, Docker's or Kubernetes' prefixes, JSON lines or colours; - is standard input. After
    `--` stands the command that was started. Exit codes: 0 nothing failed, 1 the cause is named,
    3 it is not in the log.
    """
    from infer_doctor.engine import run
    from infer_doctor.logs.read import read
    from infer_doctor.logs.source import NotALog, Piece, order
    from infer_doctor.redact import without_secrets
    from infer_doctor.snapshot import BadSnapshot

    if bool(logs) == bool(container):
        raise click.UsageError("name a log (or - for standard input), or --container NAME")
    started, started_at = time.monotonic(), now()
    command = without_secrets(command)
    groups = [[Piece(path="", name=container, container=True)]] if container else order(logs)
    try:
        facts = [read(pieces, command) for pieces in groups]
        with this_machine(MACHINE_S, wanted=snapshot is None and _joins(facts)) as host:
            registry = _registry(machine=snapshot is not None or host is not None)
            checks = list(registry.checks.values())
            subjects = [
                _subject(registry, pieces[-1].name, found, snapshot, host)
                for pieces, found in zip(groups, facts, strict=True)
            ]
            results = [row for subject in subjects for row in run(checks, subject)]
    except (NotALog, BadSnapshot) as error:
        raise click.ClickException(str(error)) from None
    _finish(subjects, results, format, output, fail_on, command, started, started_at)


def _joins(facts: Sequence[Mapping[type, object]]) -> bool:
    """Whether this machine is worth a look: only what it may add to a cause is asked."""
    from infer_doctor.facts.log import EngineLog

    logs = [found[EngineLog] for found in facts]
    return any(
        isinstance(log, EngineLog) and log.cause is not None and log.cause.category in JOINED
        for log in logs
    )


def _registry(*, machine: bool) -> Registry:
    """The checks of logs only: loading all of them takes longer than reading most logs."""
    from importlib import import_module
    from pkgutil import iter_modules

    from infer_doctor import checks
    from infer_doctor.registry import Registry

    registry = Registry()
    if machine:
        registry.add_package("infer_doctor.facts")
    for info in iter_modules(checks.__path__):
        if info.name.startswith(AREA):
            registry.add_module(import_module(f"{checks.__name__}.{info.name}"))
    return registry


def _subject(
    registry: Registry,
    name: str,
    facts: Mapping[type, object],
    snapshot: str | None,
    live: LiveHost | None,
) -> Subject:
    from infer_doctor.engine import Subject
    from infer_doctor.logs.subject import give

    host: Host | None = live
    if snapshot is not None:
        from infer_doctor.examine import load_snapshot

        host = load_snapshot(snapshot).host
    subject = Subject(
        name,
        registry,
        host=host,
        unasked="not in a log; give --snapshot of its machine",
        replayed=snapshot is not None,
    )
    give(subject, facts)
    return subject


def _finish(
    subjects: Sequence[Subject],
    results: Sequence[CheckResult],
    format: str,
    output: str | None,
    fail_on: Any,
    command: Sequence[str],
    started: float,
    started_at: str,
) -> None:
    from infer_doctor.logs.subject import engine_of, measured
    from infer_doctor.redact import Redactor
    from infer_doctor.report import build

    hosts = [subject.host for subject in subjects if subject.host is not None]
    redactor = Redactor([capture for host in hosts for capture in host.captures.values()])
    report = build(
        command="diagnose",
        version=VERSION,
        started_at=started_at,
        duration_s=round(time.monotonic() - started, 3),
        subjects=subjects,
        results=results,
        fail_on=fail_on,
        required={CAUSE},
        launch=command,
        redactor=redactor,
        redactions=redactor.redactions,
    )
    target = dataclasses.replace(report.target, engine=engine_of(subjects[0]))
    report = dataclasses.replace(report, target=target, measurements=measured(subjects))
    emit(report, format, output, fail_on=fail_on, required={CAUSE})
    raise click.exceptions.Exit(EXIT[report.verdict])
