"""The plan and its outcome for a person: 80 columns, readable without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from infer_doctor import secret_forms
from infer_doctor.fixing.apply import Outcome
from infer_doctor.fixing.drafts import Drafts
from infer_doctor.fixing.files import Refused, real
from infer_doctor.fixing.plan import Group, State
from infer_doctor.fixing.preview import preview, spoken
from infer_doctor.launch.model import Launch
from infer_doctor.model import Edit, Finding, Fix

NOTES: dict[State, str] = {
    "ready": "",
    "held": "held back: --unsafe",
    "start": "for the next start",
    "manual": "for you",
}

INDENT = " " * 4

KEYS = ("credentials", "key", "token")


def plan(groups: Sequence[Group], drafts: Drafts, width: int) -> tuple[list[str], list[str]]:
    """Every group with its exact preview, and the counts; drafts go on from group to group."""
    lines: list[str] = []
    able = []
    for number, group in enumerate(groups, 1):
        shown, why = body(group, drafts)
        lines += [*head(number, group, width), *shown, *_after(group, width)]
        if why is None:
            able.append(group)
    tail = list(counts(able))
    if len(able) < len(groups):
        tail.append(f"{len(groups) - len(able)} cannot be done as the files are now")
    return lines, tail


def _after(group: Group, width: int) -> Iterator[str]:
    """The alternatives."""
    for other in group.others:
        yield from _wrap(_alternative(other), width)
    yield ""


def _alternative(fix: Fix) -> str:
    safety = "" if fix.safety == "safe" else f" ({fix.safety})"
    title = fix.title.removeprefix("Or ")
    return f"or: {title}{safety}"


def alone(fix: Fix) -> str:
    """The title where no alternative stands before it."""
    title = fix.title.removeprefix("Or ")
    return title[:1].upper() + title[1:]


def head(number: int, group: Group, width: int) -> Iterator[str]:
    """Title, safety, what it cures, why."""
    fix = group.fix
    notes: list[str] = [] if group.state == "manual" else [fix.safety]
    notes += [NOTES[group.state]] if NOTES[group.state] else []
    notes += ["takes a restart"] if fix.restarts else []
    mark = f"{number:<4}"
    title = f"{alone(fix)}  [{', '.join(notes)}]"
    for line in textwrap.wrap(title, width - 4, break_on_hyphens=False, break_long_words=False):
        yield mark + line
        mark = INDENT
    count = len(group.findings)
    about = f" ({count} findings)" if count > 1 else ""
    yield from _wrap(f"cures {', '.join(group.checks)}{about}", width)
    yield from _wrap(group.findings[0].message, width)
    if fix.why:
        yield from _wrap(f"note: {fix.why}", width)


def body(group: Group, drafts: Drafts) -> tuple[list[str], str | None]:
    """The exact preview, or why there is none."""
    why = None
    try:
        lines = preview(group.fix.actions, drafts)
        if group.state == "ready":
            drafts.take(drafts.after(_edits(group)))
    except Refused as error:
        why = str(error)
        lines = [f"cannot be done: {error}"]
    return [f"{INDENT}  {line}" for line in lines], why


def _edits(group: Group) -> list[Edit]:
    return [action for action in group.fix.actions if isinstance(action, Edit)]


def counts(groups: Sequence[Group]) -> Iterator[str]:
    """What comes next, with the numbers."""
    number = {state: sum(group.state == state for group in groups) for state in NOTES}
    rows = []
    if number["ready"]:
        rows.append(f"{number['ready']} can be applied: infer-doctor fix --apply")
    if number["held"]:
        rows.append(f"{number['held']} held back as unsafe: --unsafe releases them")
    if number["start"]:
        rows.append(f"{number['start']} for the next start: --emit command or --emit sh")
    if number["manual"]:
        rows.append(f"{number['manual']} for you: nothing here can do them")
    yield from rows


def outcome(row: Outcome, width: int) -> Iterator[str]:
    """One line for what came of a group, and why."""
    files = dict.fromkeys(spoken(real(edit.file)) for edit in _edits(row.group))
    where = (
        f" (in {', '.join(files)})" if files and row.result not in ("refused", "declined") else ""
    )
    text = f"{row.result}: {alone(row.group.fix)}{where}"
    yield from textwrap.wrap(
        text, width, subsequent_indent=INDENT, break_on_hyphens=False, break_long_words=False
    )
    if row.why:
        yield from _wrap(row.why, width)


RESTART = {
    "compose": "docker compose up -d",
    "kubernetes": "kubectl apply -f FILE",
    "systemd": "systemctl daemon-reload && systemctl restart UNIT",
    "dockerfile": "build the image and start it",
}


def restart(groups: Iterable[Group], launches: Iterable[Launch], width: int) -> Iterator[str]:
    """What must still happen before the changes do anything."""
    if not any(group.fix.restarts for group in groups):
        return
    how = dict.fromkeys(RESTART[launch.kind] for launch in launches if launch.kind in RESTART)
    text = "the engine runs on as before until it is started again"
    yield from textwrap.wrap(
        f"{text}: {'; '.join(how)}" if how else text,
        width,
        break_on_hyphens=False,
        break_long_words=False,
    )


def came_up(findings: Iterable[Finding], width: int) -> Iterator[str]:
    """What the second look found that the first did not: a launch that now gets further."""
    for row in findings:
        if row.severity != "info":
            text = f"found now: {row.severity} {row.check}: {row.message}"
            yield from textwrap.wrap(
                text,
                width,
                subsequent_indent=INDENT,
                break_on_hyphens=False,
                break_long_words=False,
            )


def _wrap(text: str, width: int) -> Iterator[str]:
    for line in textwrap.wrap(text, width - 4, break_on_hyphens=False, break_long_words=False):
        yield INDENT + line


def without_keys(line: str) -> str:
    """A line of a file as it may be shown: keys and passwords that show by their form are masked."""
    return secret_forms.mask(line, lambda kind, value: f"<{kind}>" if kind in KEYS else value)
