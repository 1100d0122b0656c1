"""`infer-doctor compare`: are the answers of one those of the other."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

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
    tokens_option,
    wall_option,
)
from infer_doctor.model import EXIT

MODULE = "infer_doctor.checks.run_quality"


@click.command()
@click.argument("left", metavar="BASELINE")  # --baseline is the name of another parameter
@click.argument("right", metavar="CANDIDATE")
@option("--prompts", metavar="FILE", help="A prompt a line, instead of the 110 built-in ones.")
@tokens_option("Tokens of each answer.")
@option("--keep", metavar="DIR", help="Keep the answers; each file is a TARGET again.")
@option("--python", metavar="EXE", help="Interpreter of the engine that serves a model folder.")
@wall_option
@format_option
@output_option
def compare(left: str, right: str, **options: Any) -> None:
    """Output quality: the same prompts, greedily, to BASELINE and CANDIDATE.

    Each is the URL of a server, answers that were kept (.json), a model folder, or a file that starts
    an engine. Of two files, what differs in them is switched one by one where the candidate is worse,
    until its cause is found. Exit codes: 0 the same, 1 the candidate is degraded, 3 not decided by these prompts.
    """
    from infer_doctor.engine import Subject, run
    from infer_doctor.facts.run import Quality
    from infer_doctor.redact import Redactor
    from infer_doctor.report import build
    from infer_doctor.runs import answers, comparing
    from infer_doctor.runs.child import Limits
    from infer_doctor.runs.endpoint import NoServer
    from infer_doctor.runs.prompts import BadPrompts, built_in, of_file
    from infer_doctor.runs.session import logs_in
    from infer_doctor.runs.words import NoRun

    started, started_at = time.monotonic(), now()
    try:
        prompts = of_file(options["prompts"]) if options["prompts"] else built_in()
        with logs_in(options["keep"]) as folder:
            limits = Limits(
                wall_s=options["wall"],
                scratch="" if options["keep"] else folder,
                kept=bool(options["keep"]),
            )
            sides = [
                comparing.side_of(target, folder, limits, options["python"])
                for target in (left, right)
            ]
            found, first, second, again = comparing.judge(
                sides[0], sides[1], prompts, options["tokens"], note
            )
            if options["keep"]:
                kept = {"baseline": first, "candidate": second, "again": again}
                answers.keep(folder, kept, note)
    except (NoRun, NoServer, BadPrompts, answers.BadAnswers) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise failed_system_call(error) from None
    registry = registry_of_checks()
    subject = Subject(right, registry, host=None, whole=True)
    subject.give(Quality, found)
    checks = [row for row in registry.checks.values() if row.function.__module__ == MODULE]
    redactor = Redactor([])
    report = build(
        command="compare",
        version=VERSION,
        started_at=started_at,
        duration_s=round(time.monotonic() - started, 3),
        subjects=[subject],
        results=run(checks, subject),
        fail_on="error",
        required={row.id for row in checks},
        launch=None,
        redactor=redactor,
        redactions=redactor.redactions,
    )
    measured = {"quality": dataclasses.asdict(found)}
    emit(dataclasses.replace(report, measurements=measured), options["format"], options["output"])
    raise click.exceptions.Exit(EXIT[report.verdict])
