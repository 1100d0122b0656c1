"""`infer-doctor fix`: from advice to a change that can be taken back."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from infer_doctor._version import VERSION
from infer_doctor.commands.common import (
    chosen,
    emit,
    engine_option,
    gpu_options,
    judge_for_gpus,
    machine_options,
    now,
    option,
    output_option,
    registry_of_checks,
    this_machine,
    write,
)
from infer_doctor.model import EXIT

if TYPE_CHECKING:
    from infer_doctor.examine import Examination
    from infer_doctor.fixing.apply import Applying, Outcome
    from infer_doctor.fixing.drafts import Drafts
    from infer_doctor.fixing.plan import Group
    from infer_doctor.fixing.reports import Wanted
    from infer_doctor.launch.model import Launch
    from infer_doctor.model import CheckResult, Finding, Report

WIDTH = 80
NOTHING = "nothing to fix was found"


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET | REPORT.json]... [-- COMMAND ...]")
@click.option("--apply", is_flag=True, help="Carry the fixes out; asks for each one.")
@click.option("--yes", is_flag=True, help="With --apply: do not ask.")
@click.option("--unsafe", is_flag=True, help="Also those that are not safe.")
@click.option(
    "--emit",
    "emitted",
    type=click.Choice(["patch", "sh", "command"]),
    help="Only print the changes: for `git apply`, as a script, or as the corrected command line.",
)
@option("--format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@output_option
@option("--fail-on", type=click.Choice(["error", "warning"]), default="error", show_default=True)
@option("--select", multiple=True, metavar="IDS", help="Only these checks (ids or globs).")
@option("--ignore", multiple=True, metavar="IDS", help="Not these checks (ids or globs).")
@engine_option
@gpu_options
@machine_options
@click.pass_obj
def fix(
    command: Sequence[str],
    targets: tuple[str, ...],
    apply: bool,
    yes: bool,
    unsafe: bool,
    emitted: str | None,
    format: str,
    output: str | None,
    fail_on: Any,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    engine: Any,
    gpu: str | None,
    gpu_memory: str | None,
    python: str | None,
    deep: bool,
    timeout: float,
) -> None:
    """What would cure the findings, exactly; with --apply it is done, and looked at again.

    Each fix is safe (reversible, nothing lost, answers stay), unsafe (held back until --unsafe) or
    manual. `infer-doctor undo` takes a run back; `infer-doctor history` lists them.

    TARGET as for `check`. Of a REPORT.json only the findings count; their fixes are made anew.
    """
    from infer_doctor.fixing.files import Refused
    from infer_doctor.fixing.journal import lock, state_folder

    if apply and emitted:
        raise click.UsageError("--emit only prints: give it without --apply")
    if apply and not yes and not os.isatty(0):
        raise click.UsageError("--apply asks, and nobody can answer here: give --yes")
    session = Session(
        targets=targets,
        command=command,
        select=select,
        ignore=ignore,
        engine=engine,
        gpus=(gpu, gpu_memory),
        python=python,
        deep=deep,
        timeout=timeout,
        fail_on=fail_on,
    )
    try:
        if not apply:
            groups = session.look(unsafe)
            _say(session.origin)
            if emitted is None:
                _say(_stopped())
                _show(session, groups, format, output)
            else:
                _emit(session, groups, emitted, output)
        else:
            with lock(state_folder()):
                _say(_stopped())
                groups = session.look(unsafe)
                _say(session.origin)
                _apply(session, groups, yes, format, output)
    except Refused as error:
        raise click.ClickException(str(error)) from None
    raise click.exceptions.Exit(EXIT[session.report().verdict])


class Session:
    """What is examined, and what was found; it can be looked at again."""

    def __init__(
        self,
        *,
        targets: Sequence[str],
        command: Sequence[str],
        select: Sequence[str],
        ignore: Sequence[str],
        engine: Any,
        gpus: tuple[str | None, str | None],
        python: str | None,
        deep: bool,
        timeout: float,
        fail_on: Any,
    ) -> None:
        from infer_doctor.fixing import reports
        from infer_doctor.redact import without_secrets
        from infer_doctor.targets import NoTarget

        self.started = time.monotonic()
        self.started_at = now()
        self.registry = registry_of_checks()
        self.checks = chosen(self.registry, select, ignore)
        self.required = {check.id for check in self.checks} if select else set()
        self.engine, self.gpus = engine, gpus
        self.python, self.deep, self.timeout, self.fail_on = python, deep, timeout, fail_on
        try:
            read = {target: reports.read(target) for target in targets}
        except NoTarget as error:
            raise click.ClickException(str(error)) from None
        self.wanted: list[Wanted] = [row for row in read.values() if row is not None]
        self.targets = [target for target, row in read.items() if row is None]
        self.origin: list[str] = []
        self.command = list(command)
        if self.wanted and not self.targets and not self.command:
            self.targets = [file for row in self.wanted for file in row.files]
            commands = {row.launch for row in self.wanted if row.launch}
            if len(commands) > 1:
                raise click.UsageError(
                    "the reports are of different commands: give them one by one"
                )
            self.command = list(next(iter(commands), ()))
            what = [shlex.join(without_secrets(self.command))] if commands else self.targets
            if what:  # a report may come from anybody
                self.origin = [f"looked at, as the report says: {', '.join(what)}"]
        self.shown = without_secrets(self.command)
        self.results: list[CheckResult] = []
        self.examination: Examination

    def examine(self) -> None:
        """Run the checks, on what there is now."""
        from infer_doctor.examine import Examination, NoTarget
        from infer_doctor.snapshot import BadSnapshot
        from infer_doctor.targets import look

        try:
            found = [look(target) for target in dict.fromkeys(self.targets)]
        except NoTarget as error:
            raise click.ClickException(str(error)) from None
        here = not any(row.machine for row in found)
        local = any(launch.machine == "local" for row in found for launch in row.launches)
        wanted = here and (local or bool(self.command) or not found)
        with this_machine(self.timeout, wanted=wanted) as host:
            try:
                self.examination = Examination.of(
                    self.registry,
                    targets=found,
                    command=self.shown,
                    python=self.python,
                    deep=self.deep,
                    engine=self.engine,
                    host=host,
                )
            except (NoTarget, BadSnapshot) as error:
                raise click.ClickException(str(error)) from None
            judge_for_gpus(self.examination.subjects, self.registry, *self.gpus)
            self.results = self.examination.run(self.checks, named=bool(self.required))

    def look(self, unsafe: bool) -> list[Group]:
        """The groups of what was found."""
        from infer_doctor.fixing.plan import groups

        self.examine()
        here = {
            subject.name
            for subject in self.examination.subjects
            if subject.host is not None and not subject.replayed
        }
        return groups(self.findings(), unsafe=unsafe, here=here)

    def findings(self, *, everything: bool = False) -> list[Finding]:
        """Those that are meant; `everything` also those that a report did not name."""
        found = [finding for row in self.results for finding in row.findings]
        if everything or not self.wanted:
            return found
        return [finding for finding in found if any(row.holds(finding) for row in self.wanted)]

    def launches(self) -> list[Launch]:
        from infer_doctor.launch.model import Launch

        facts = [subject.facts.get(Launch) for subject in self.examination.subjects]
        return [fact for fact in facts if isinstance(fact, Launch)]

    @property
    def nothing(self) -> str | None:
        """That a report is of another time or machine, else None."""
        named = any(row.findings for row in self.wanted) and not self.findings()
        return "none of what the report found is there now" if named else None

    def report(self) -> Report:
        from infer_doctor.report import build

        return build(
            command="fix",
            version=VERSION,
            started_at=self.started_at,
            duration_s=round(time.monotonic() - self.started, 3),
            subjects=self.examination.subjects,
            results=self.results,
            fail_on=self.fail_on,
            required=self.required,
            launch=self.shown,
            redactor=self.examination.redactor,
            redactions=self.examination.redactions,
        )

    def drafts(self) -> Drafts:
        from infer_doctor.fixing.drafts import Drafts

        return Drafts(self.shown)


def _stopped() -> list[str]:
    """What a run that was killed left behind."""
    from infer_doctor.fixing.journal import runs, state_folder
    from infer_doctor.fixing.tell import stopped

    return [line for run in runs(state_folder()) for line in stopped(run)]


def _say(lines: Sequence[str]) -> None:
    from infer_doctor.render.plain import plain

    for line in lines:
        click.echo(f"infer-doctor: {plain(line)}" if line[:1] != " " else plain(line), err=True)


def _print(lines: Sequence[str], output: str | None) -> None:
    from infer_doctor.fixing.show import without_keys
    from infer_doctor.render.plain import plain

    text = "".join(f"{plain(without_keys(line))}\n" for line in lines)
    write(text, output)


def _show(session: Session, groups: Sequence[Group], format: str, output: str | None) -> None:
    from infer_doctor.fixing import show

    if format == "json":
        emit(session.report(), format, output)
        return
    found = session.findings()
    lines, counts = show.plan(groups, session.drafts(), WIDTH)
    without = [finding for finding in found if not finding.fixes]
    if not found:
        lines = [session.nothing or NOTHING]
        undecided = sum(row.outcome in ("blocked", "crashed") for row in session.results)
        if undecided:
            lines.append(f"{undecided} of {len(session.results)} checks could not be decided")
    elif without:
        ids = ", ".join(dict.fromkeys(finding.check for finding in without))
        lines += [f"no fix is known for {ids}", ""]
    _print([*lines, *counts], output)


def _emit(session: Session, groups: Sequence[Group], kind: str, output: str | None) -> None:
    from infer_doctor.fixing import emit as emitting
    from infer_doctor.fixing.show import without_keys

    held = [group for group in groups if group.state == "held"]
    taken = [group for group in groups if group.state in ("ready", "start")]
    drafts = session.drafts()
    left: list[str] = []
    if kind == "patch":
        text, left = emitting.patch([g for g in taken if g.state == "ready"], drafts)
    elif kind == "sh":
        everything = [group for group in groups if group.state != "held"]
        text = emitting.script(everything, drafts)
    else:
        launch = next(iter(session.launches()), None)
        line = emitting.command(taken, launch, session.shown)
        text = emitting.revealed(line, session.shown, session.command) + "\n"
    if "<token>" in text:
        left.append("the key, which stands as <token>")
    write(text, output)
    if kind != "command" and without_keys(text) != text:
        _say(["the lines around the changes hold keys: show it to nobody"])
    _say([f"not in here: {row}" for row in left])
    if held:
        _say([f"{len(held)} held back as unsafe: --unsafe releases them"])


def _apply(
    session: Session, groups: Sequence[Group], yes: bool, format: str, output: str | None
) -> None:
    from infer_doctor.fixing import show
    from infer_doctor.fixing.apply import Applying, interruptible, moves
    from infer_doctor.fixing.journal import state_folder

    ready = [group for group in groups if group.state == "ready"]
    applying = Applying(state_folder(), session.started_at, session.shown, session.drafts())
    outcomes: list[Outcome] = []
    stopped = False
    for number, group in enumerate(ready, 1):
        try:
            with interruptible():
                outcomes.append(_one(number, group, applying, yes, session.drafts()))
        except (click.Abort, KeyboardInterrupt):  # what was done before is looked at all the same
            stopped = True
            click.echo()
            break
    before = {(row.check, row.fingerprint) for row in session.findings(everything=True)}
    if any(row.result == "applied" for row in outcomes):
        subjects = session.examination.subjects
        try:
            session.examine()
            moved = moves(subjects, session.examination.subjects)
            outcomes = applying.judged(outcomes, session.results, moved)
        except click.ClickException as error:  # nobody can read what stands there now
            outcomes = applying.all_back(outcomes, error.format_message())
        if any(row.result == "taken back" for row in outcomes):
            session.examine()
    applying.end()
    lines = [line for row in outcomes for line in show.outcome(row, WIDTH)]
    now_there = session.findings(everything=True)
    new = [row for row in now_there if (row.check, row.fingerprint) not in before]
    lines += show.came_up(new, WIDTH)
    done = [row.group for row in outcomes if row.result in ("cured", "not cured", "undecided")]
    if applying.journal is not None and done:
        lines += ["", *show.restart(done, session.launches(), WIDTH)]
        lines += [f"infer-doctor undo {applying.journal.id} takes this back"]
    if not ready:
        lines = [session.nothing or "nothing that can be applied was found"]
    left = [group for group in groups if group.state != "ready"]
    lines += list(show.counts(left))
    if format == "json":
        _say(lines)
        emit(session.report(), format, output)
    else:
        _print(lines, output)
    if stopped:
        raise click.Abort


def _one(number: int, group: Group, applying: Applying, yes: bool, drafts: Drafts) -> Outcome:
    """Show, ask, do."""
    from infer_doctor.fixing import show
    from infer_doctor.fixing.apply import Outcome
    from infer_doctor.fixing.files import Refused

    if not yes:
        _print([*show.head(number, group, WIDTH), *show.body(group, drafts)[0]], None)
        try:
            looked = applying.look(group)
        except Refused as error:
            return Outcome(group=group, result="refused", why=str(error))
        _print([f"    {line}" for line in looked], None)
        if not click.confirm("    do it?"):
            return Outcome(group=group, result="declined")
    return applying.do(group)
