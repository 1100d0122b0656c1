"""Why an option is not there: gone since, added in, renamed, another engine's, misspelt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from infer_doctor.catalog.vllm_renamed import (
    DTYPES,
    FOREIGN,
    NOTES,
    REQUEST,
    SUCCESSORS,
    TASKS,
    VALUE,
)
from infer_doctor.facts.engine_options import OptionProblem
from infer_doctor.launch.model import Place
from infer_doctor.vllm_arguments.table import TAKES_NOTHING, Catalogue, Table, ordered

Spans = list[tuple[str, str | None]]

NEAR = 0.72
"""Least similarity of a name that is offered (difflib's ratio; 0.6 offers strangers)."""

CLIENT_NOTE = "is set in the request, not when the server starts"


def missing_option(
    option: str, text: str | None, place: Place, table: Table, known: Catalogue, *, written: str
) -> OptionProblem:
    """What is wrong with an option that the version does not have."""
    base = option.partition(".")[0]
    who = _who(table)
    past = _before(known.spans_of_option(base), table, known)
    if past is not None:
        return _gone(base, text, place, table, known, past, written)
    later = _later(known.spans_of_option(base), table)
    if later is not None:
        return OptionProblem(
            kind="not-yet",
            flag=written,
            text=text,
            place=place,
            message=f"{who} has no {base} yet: it came with vLLM {later}",
        )
    bare = base.lstrip("-").replace("-", "_")
    if bare in REQUEST:
        return OptionProblem(
            kind="unknown",
            flag=written,
            text=text,
            place=place,
            message=f"{who} has no {base}: it {CLIENT_NOTE}",
        )
    foreign = FOREIGN.get(base)
    if foreign is not None:
        owner, own = foreign
        return OptionProblem(
            kind="unknown",
            flag=written,
            text=text,
            place=place,
            message=f"{who} has no {base}: it is an option of {owner}",
            nearest=own if own and own in table.by_option else None,
        )
    return OptionProblem(
        kind="unknown",
        flag=written,
        text=text,
        place=place,
        message=f"{who} has no {base}, nor had any version from {known.versions[0]} on",
        nearest=nearest(base, (one for one in table.by_option if one.startswith("--"))),
    )


def missing_field(
    name: str, text: str | None, place: Place, table: Table, known: Catalogue, *, call: str
) -> OptionProblem:
    """The same for a keyword of a Python call."""
    who = _who(table)
    spans = known.spans_of_field(name)
    past = _before(spans, table, known)
    option = f"--{name.replace('_', '-')}"

    def made(kind: str, message: str, near: str | None = None) -> OptionProblem:
        return OptionProblem(
            kind=kind,  # type: ignore[arg-type]
            flag=name,
            text=text,
            place=place,
            message=message,
            nearest=near,
        )

    if past is not None:
        note = NOTES.get(option)
        reason = f"; {note}" if note else ""
        return made("removed", f"{call} of {who} takes no {name}: gone since {past}{reason}")
    later = _later(spans, table)
    if later is not None:
        return made("not-yet", f"{call} of {who} takes no {name} yet: it came with vLLM {later}")
    near = nearest(name, {*table.fields, *table.llm} - {"*"})
    if name in REQUEST:
        return made("unknown", f"{call} of {who} takes no {name}: it belongs to SamplingParams")
    return made(
        "unknown",
        f"{call} of {who} takes no {name}, nor did any version from {known.versions[0]} on",
        near,
    )


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar name, if it is similar enough."""
    from difflib import get_close_matches

    spelt = name.replace("_", "-") if name.startswith("--") else name
    if spelt.startswith("-") and not spelt.startswith("--") and len(spelt) > 3:
        spelt = f"-{spelt.replace('_', '-')}"
    found = get_close_matches(spelt, sorted(names), n=1, cutoff=NEAR)
    return found[0] if found else None


def best_choice(value: str, choices: Iterable[str]) -> str | None:
    """What was probably meant of a closed list: another case, an everyday name, a beginning."""
    known = list(choices)
    wanted = DTYPES.get(value.lower(), value)
    lowered = {one.lower().replace("-", "_"): one for one in known}
    exact = lowered.get(wanted.lower().replace("-", "_"))
    if exact is not None:
        return exact
    started = [one for one in known if one.lower().startswith(wanted.lower())]
    return started[0] if len(started) == 1 and len(wanted) > 2 else nearest(wanted, known)


def _gone(
    base: str,
    text: str | None,
    place: Place,
    table: Table,
    known: Catalogue,
    since: str,
    written: str,
) -> OptionProblem:
    successor = successor_of(base, text, table, known)
    note = NOTES.get(base)
    reason = f"; {note}" if note and successor is None else ""
    return OptionProblem(
        kind="removed" if successor is None else "renamed",
        flag=written,
        text=text,
        place=place,
        message=f"{_who(table)} has no {base}: gone since {since}{reason}",
        successor=successor,
    )


def successor_of(option: str, text: str | None, table: Table, known: Catalogue) -> str | None:
    """What to write instead, with this case's value; None when nothing means the same."""
    row = known.last_row(option)
    if option.startswith("--no-"):
        return None
    if option == "--task":
        return _present(TASKS.get(text or ""), table)
    if option == "--speculative-model" and text == "[ngram]":
        return _present(_nested("--speculative-config.method ngram", table), table)
    if option == "--cuda-graph-sizes":
        single = (text or "").isdigit()
        name = "--max-cudagraph-capture-size" if single else "--cudagraph-capture-sizes"
        return _present(f"{name} {text}" if text else None, table)
    pattern = SUCCESSORS.get(option)
    if pattern is None:
        return None
    if VALUE in pattern:
        if text is None:
            return None
        pattern = pattern.replace(VALUE, text)
    elif row is not None and row.get("action") not in TAKES_NOTHING and text is not None:
        return None
    return _present(_nested(pattern, table), table)


def _nested(pattern: str, table: Table) -> str:
    """`--a.b v` as `--a '{"b": v}'` where the version has no nested keys yet."""
    name, _, value = pattern.partition(" ")
    base, dot, key = name.partition(".")
    if not dot or "dotted" in table.marks:
        return pattern
    try:
        plain = json.loads(value)
    except ValueError:
        plain = value
    return f"{base} '{json.dumps({key: plain})}'"


def _present(words: str | None, table: Table) -> str | None:
    """Only what the version has."""
    if words is None:
        return None
    names = [word.partition(".")[0] for word in words.split() if word.startswith("--")]
    return words if all(name in table.by_option for name in names) else None


def _who(table: Table) -> str:
    return f"vLLM {table.version}" if table.version else "this vLLM"


def _before(spans: Spans, table: Table, known: Catalogue) -> str | None:
    """The first release without a thing that an older one had."""
    here = ordered(table.version or "999")
    gone = [last for _, last in spans if last is not None and ordered(last) < here]
    return known.after(gone[-1]) if gone else None


def _later(spans: Spans, table: Table) -> str | None:
    here = ordered(table.version or "999")
    return next((first for first, _ in spans if ordered(first) > here), None)


def variable_history(name: str, known: Catalogue, version: str | None) -> Mapping[str, str | None]:
    """{"gone": release, "added": release} of an environment variable."""
    here = ordered(version or "999")
    spans = known.spans_of_variable(name)
    gone = [last for _, last in spans if last is not None and ordered(last) < here]
    added = next((first for first, _ in spans if ordered(first) > here), None)
    return {"gone": known.after(gone[-1]) if gone else None, "added": added}
