"""`infer-doctor diagnose`: the root cause out of a log."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from infer_doctor._version import VERSION
from infer_doctor.commands.common import (
    EXIT,
    emit,
    format_option,
    now,
    option,
    output_option,
    registry_of_checks,
)

if TYPE_CHECKING:
    from infer_doctor.engine import Subject
    from infer_doctor.logs.source import Piece
    from infer_doctor.registry import Check, Registry

AREA = "log-"
CAUSE = "log-engine-failed"


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
    from infer_doctor.logs.source import NotALog, Piece, order
    from infer_doctor.redact import without_secrets
    from infer_doctor.snapshot import BadSnapshot

    if bool(logs) == bool(container):
        raise click.UsageError("name a log (or - for standard input), or --container NAME")
    started, started_at = time.monotonic(), now()
    command = without_secrets(command)
    groups = [[Piece(path="", name=container, container=True)]] if container else order(logs)
    try:
        subjects, checks = _examined(groups, snapshot)
    except (NotALog, BadSnapshot) as error:
        raise click.ClickException(str(error)) from None
    _finish(subjects, checks, format, output, fail_on, command, started, started_at)


def _examined(
    groups: Sequence[Sequence[Piece]], snapshot: str | None
) -> tuple[list[Subject], list[Check]]:
    """A subject for each log, with the facts of a machine where they can add something."""
    from infer_doctor.logs.read import read

    registry = registry_of_checks()
    checks = [check for id, check in registry.checks.items() if id.startswith(AREA)]
    facts = [read(pieces) for pieces in groups]
    subjects = []
    for pieces, found in zip(groups, facts, strict=True):
        subjects.append(_subject(registry, pieces[-1].name, found, snapshot))
    return subjects, checks


def _subject(
    registry: Registry, name: str, facts: Mapping[type, object], snapshot: str | None
) -> Subject:
    from infer_doctor.engine import Subject
    from infer_doctor.logs.subject import give

    host = None
    if snapshot is not None:
        from infer_doctor.examine import load_snapshot

        host = load_snapshot(snapshot).host
    subject = Subject(
        name,
        registry,
        host=host,
        unasked="not in a log; give --snapshot of its machine",
        replayed=host is not None,
    )
    give(subject, facts)
    return subject


def _finish(
    subjects: Sequence[Subject],
    checks: Sequence[Check],
    format: str,
    output: str | None,
    fail_on: Any,
    command: Sequence[str],
    started: float,
    started_at: str,
) -> None:
    from infer_doctor.engine import run
    from infer_doctor.logs.subject import engine_of, measured
    from infer_doctor.redact import Redactor
    from infer_doctor.report import build

    results = [row for subject in subjects for row in run(checks, subject)]
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
    emit(report, format, output)
    raise click.exceptions.Exit(EXIT[report.verdict])
