"""`infer-doctor preflight -- COMMAND`: check, then become the command."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from infer_doctor._version import VERSION
from infer_doctor.commands.common import (
    FORMATS,
    baseline_option,
    chosen,
    document,
    finite,
    machine_options,
    now,
    option,
    registry_of_checks,
    this_machine,
    write,
)
from infer_doctor.model import EXIT
from infer_doctor.preflight import SKIP_VARIABLE, become, decide, say, skipped

MARGIN_S = 5.0
"""What an examination may take beyond its own limits before it is given up."""

PAUSE_S = 1.0
"""Between two looks under --wait."""


class _Preflight(click.Command):
    """In an emergency a wrong option must not keep the command from starting either."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        command = parent.obj if parent is not None else None
        if command and skipped():
            say(f"skipped by {SKIP_VARIABLE}; starting {command[0]}")
            raise click.exceptions.Exit(become(command))
        return super().make_context(info_name, args, parent, **extra)


@click.command(cls=_Preflight)
@option("--fail-on", type=click.Choice(["error", "warning"]), default="error", show_default=True)
@option("--warn-only", is_flag=True, help="Say what is wrong, and start the command all the same.")
@option("--require", multiple=True, metavar="IDS", help="Refuse if these cannot be decided either.")
@option("--select", multiple=True, metavar="IDS", help="Only these checks (ids or globs).")
@option("--ignore", multiple=True, metavar="IDS", help="Not these checks (ids or globs).")
@option(
    "--wait",
    type=click.FloatRange(min=0, max=86_400),
    default=0.0,
    callback=finite,
    metavar="S",
    help="Look again for so long while what is missing may still come: driver, fabric, mount, port, "
    "model files.",
)
@option(
    "--report", metavar="FILE", help="Write the report to FILE, or to a new file in that folder."
)
@option(
    "--format", type=click.Choice(FORMATS), default="json", show_default=True, help="Of the report."
)
@baseline_option
@machine_options
@click.pass_obj
def preflight(command: Sequence[str], /, **options: Any) -> None:
    """Examine this machine for COMMAND, given after --, then become it: the same PID.

    Findings at or above --fail-on refuse the start with exit code 1, required checks that cannot be
    decided with 3. What is merely undecided never stops the command, nor does a fault of the doctor.
    INFER_DOCTOR_SKIP=1 starts it at once.
    """
    if not command:
        raise click.UsageError("give the command to start after --")
    limit_s = options["wait"] + options["timeout"] + MARGIN_S
    decision = decide(lambda: _examine(command, **options), limit_s)
    if decision.fault:
        say(f"{decision.fault}; starting {command[0]} all the same")
    if decision.code:
        raise click.exceptions.Exit(decision.code)
    raise click.exceptions.Exit(become(command))


def _examine(command: Sequence[str], **options: Any) -> int:
    """The exit code; everything is said on standard error. Runs in a fork."""
    try:
        return _attempts(command, **options)
    except click.ClickException as error:
        say(error.format_message())
        return error.exit_code if isinstance(error, click.UsageError) else 2


def _attempts(
    command: Sequence[str],
    *,
    fail_on: Any,
    warn_only: bool,
    require: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    wait: float,
    report: str | None,
    format: str,
    **machine: Any,
) -> int:
    from infer_doctor import refusal

    registry = registry_of_checks()
    checks = chosen(registry, select, ignore)
    required = {check.id for check in chosen(registry, require, ())} if require else set()
    checks += [registry.checks[id] for id in sorted(required - {check.id for check in checks})]
    end = time.monotonic() + wait
    said = ""
    while True:
        found = _look(command, registry, checks, fail_on, required, **machine)
        if found.verdict == "pass" or not refusal.may_come(found, fail_on, required):
            break
        if time.monotonic() + PAUSE_S > end:
            break
        waiting = ", ".join(refusal.reasons(found, fail_on, required))
        if waiting != said:
            say(f"waiting up to {wait:g} s for: {waiting}")
            said = waiting
        time.sleep(PAUSE_S)
    if report is not None:
        _save(document(found, format, fail_on=fail_on, required=required), report, format)
    if found.verdict == "pass" or warn_only:
        say(refusal.started(found, command[0]))
        return 0
    text = refusal.refused(found, fail_on, required)
    say(text)
    refusal.leave_message(f"infer-doctor: {text}")
    return EXIT[found.verdict]


def _look(
    command: Sequence[str], registry: Any, checks: Any, fail_on: Any, required: Any, **machine: Any
) -> Any:
    from infer_doctor.redact import without_secrets

    started, started_at = time.monotonic(), now()
    shown = without_secrets(command)
    with this_machine(machine["timeout"]) as host:
        from infer_doctor.examine import Examination, NoTarget
        from infer_doctor.report import build

        try:
            examination = Examination.of(
                registry,
                command=shown,
                python=machine["python"],
                deep=machine["deep"],
                host=host,
            )
        except NoTarget as error:
            raise click.ClickException(str(error)) from None
        results = examination.run(checks)
    return build(
        command="preflight",
        version=VERSION,
        started_at=started_at,
        duration_s=round(time.monotonic() - started, 3),
        subjects=examination.subjects,
        results=results,
        fail_on=fail_on,
        required=required,
        launch=shown,
        redactor=examination.redactor,
        redactions=examination.redactions,
    )


def _save(text: str, place: str, format: str) -> None:
    """A report that cannot be written is no reason to keep the engine down."""
    from infer_doctor.refusal import report_path

    try:
        write(text, report_path(place, format))
    except click.ClickException as error:
        say(f"the report was not written: {error.format_message()}")
