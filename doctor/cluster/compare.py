"""One value on each of many machines: what most have, and who has another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.nodes import Node, Nodes
from infer_doctor.frozen import frozen
from infer_doctor.host import Unavailable
from infer_doctor.model import Action, Confidence, Evidence, Finding, Fix, Missing, Severity
from infer_doctor.units import names as words

MASK = re.compile(r"<[a-z]+:[^>]+>")
"""What the redactor puts for a secret, a name or an address."""

LISTED = 5
"""Packages or files that a sentence names."""

SHOWN = 40
"""Nodes of one group that the evidence names."""

TIED = 12
"""Nodes of a group of a tie up to which all are named: none of them is the odd one."""

WORD = 70
"""Characters of a value in a sentence."""


@frozen
class Value:
    """What one node has: equal texts are equal things. `source` is where it was read there."""

    text: str
    source: str


Reading = Value | Missing
Read = Callable[[Node], Reading]


@frozen
class Group:
    """The nodes with one value."""

    text: str
    source: str
    nodes: tuple[str, ...]


@frozen
class Compared:
    """The groups, the largest first; `tie` when no value is that of most.

    `unknown` are nodes whose value could not be had, `absent` those that provably have none.
    """

    groups: tuple[Group, ...]
    unknown: tuple[tuple[str, str], ...]
    absent: tuple[tuple[str, str], ...]

    @property
    def tie(self) -> bool:
        known = sum(len(group.nodes) for group in self.groups)
        return len(self.groups) > 1 and len(self.groups[0].nodes) * 2 <= known

    @property
    def odd(self) -> tuple[Group, ...]:
        """The groups that do not have what most have; all but one of a tie."""
        return self.groups[1:]


def compared(nodes: Nodes, read: Read) -> Compared:
    """What each node has, grouped."""
    groups: dict[str, list[str]] = {}
    sources: dict[str, str] = {}
    unknown: list[tuple[str, str]] = []
    absent: list[tuple[str, str]] = []
    comparable = nodes.comparable
    for node in nodes.nodes:
        value = read(node)
        if isinstance(value, Missing):
            (absent if value.kind == "absent" else unknown).append((node.name, value.reason))
        elif not comparable and MASK.search(value.text):
            unknown.append((node.name, MASKED))
        else:
            groups.setdefault(value.text, []).append(node.name)
            sources.setdefault(value.text, value.source)
    found = [
        Group(text=text, source=sources[text], nodes=tuple(names)) for text, names in groups.items()
    ]
    return Compared(
        groups=tuple(sorted(found, key=lambda group: -len(group.nodes))),
        unknown=tuple(unknown),
        absent=tuple(absent),
    )


MASKED = (
    "each snapshot masks names and addresses by itself, so they cannot be compared; "
    "write all with the same --redact-key"
)


@frozen
class Quantity:
    """One thing that has to be equal on all nodes.

    `name` completes "NAME is X on ...". `cure` makes the imperative for a node that has `have` and
    should have `want`.
    """

    name: str
    read: Read
    severity: Severity | None = None
    confidence: Confidence = "certain"
    cure: Callable[[str, str], Fix] | None = None
    """(the nodes in words, the value that most have)"""


def judge(
    nodes: Nodes, quantities: Sequence[Quantity], *, together: str | None = None
) -> Iterator[Finding]:
    """A finding for each value that is not that of most; raises when nothing was found or known.

    `together`: what the quantities are ("packages"); those that differ on the same nodes are one
    finding then.
    """
    unknown: list[str] = []
    known = found = 0
    alike: dict[tuple[tuple[str, ...], ...], list[tuple[Quantity, Compared]]] = {}
    for quantity in quantities:
        result = compared(nodes, quantity.read)
        known += sum(len(group.nodes) for group in result.groups) >= 2
        if result.unknown:
            lost = words([name for name, _ in result.unknown])
            unknown.append(f"{quantity.name}: not known of {lost}: {result.unknown[0][1]}")
        if len(result.groups) > 1 and together is not None:
            parts = tuple(group.nodes for group in result.groups)
            alike.setdefault(parts, []).append((quantity, result))
            continue
        for finding in findings(quantity, result):
            found += 1
            yield finding
    for rows in alike.values():
        found += 1
        yield from findings(*rows[0]) if len(rows) == 1 else [_several(together or "", rows)]
    if found:
        return
    if unknown:
        raise Unavailable(unknown[0])
    if not known:
        raise NotApplicable("fewer than two nodes have what is compared")


def _several(what: str, rows: Sequence[tuple[Quantity, Compared]]) -> Finding:
    """One finding for many quantities that differ on the same nodes; the gravest go first."""
    ordered = sorted(rows, key=lambda row: row[0].severity != "error")
    parts = []
    for number, group in enumerate(ordered[0][1].groups[:3]):
        some = [f"{q.name} {_short(r.groups[number].text)}" for q, r in ordered[:LISTED]]
        more = [f"{len(rows) - LISTED} more {what}"] if len(rows) > LISTED and number != 0 else []
        parts.append((", ".join([*some, *more]), group))
    first = ordered[0][1]
    odd = [node for group in first.odd for node in group.nodes]
    texts = [f"{text} on {words(group.nodes)}" for text, group in (*parts[1:], parts[0])]
    lead = "no version is that of most nodes: " if first.tie else ""
    cure = next((quantity.cure for quantity, _ in ordered if quantity.cure), None)
    wanted = " ".join(f"{q.name}=={r.groups[0].text}" for q, r in ordered)
    return Finding(
        about=f"{what} of {' '.join(odd[:SHOWN])}",
        message=f"{len(rows)} {what} differ: {lead}{'; '.join(texts)}",
        severity=ordered[0][0].severity,
        confidence=ordered[0][0].confidence,
        evidence=tuple(
            Evidence(
                source=_sources(group) if number else words(group.nodes),
                excerpt=f"{group.source}: {text}" if group.source else text,
            )
            for number, (text, group) in enumerate(parts)
        ),
        fixes=() if first.tie or cure is None else (cure(words(odd), wanted),),
    )


def findings(quantity: Quantity, result: Compared) -> Iterator[Finding]:
    """One for each group that differs from the largest; a tie is one finding over all groups."""
    if len(result.groups) < 2:
        return
    if result.tie:
        parts = [f"{_short(group.text)} on {words(group.nodes)}" for group in result.groups[:4]]
        more = len(result.groups) - len(parts)
        others = f" and {more} more values" if more else ""
        yield Finding(
            about=quantity.name,
            message=f"{quantity.name} differs, and no value is that of most nodes: "
            f"{'; '.join(parts)}{others}",
            severity=quantity.severity,
            confidence=quantity.confidence,
            evidence=tuple(
                _evidence(group, named=len(group.nodes) <= TIED) for group in result.groups[:4]
            ),
        )
        return
    most = result.groups[0]
    for group in result.odd:
        yield Finding(
            about=f"{quantity.name} of {' '.join(group.nodes[:SHOWN])}",
            message=f"{quantity.name} is {_short(group.text)} on {words(group.nodes)}; "
            f"{_short(most.text)} on {_others(most.nodes)}",
            severity=quantity.severity,
            confidence=quantity.confidence,
            evidence=(_evidence(group), _evidence(most, named=False)),
            fixes=(quantity.cure(words(group.nodes), most.text),) if quantity.cure else (),
        )


def _sources(group: Group) -> str:
    more = len(group.nodes) - SHOWN
    return f"{', '.join(group.nodes[:SHOWN])}{f' and {more} more' if more > 0 else ''}"


def _evidence(group: Group, *, named: bool = True) -> Evidence:
    return Evidence(
        source=_sources(group) if named else words(group.nodes),
        excerpt=f"{group.source}: {_short(group.text)}" if group.source else _short(group.text),
    )


def _others(names: Sequence[str]) -> str:
    """The majority as a number, by name where there are few."""
    if len(names) <= 2:
        return words(names)
    return f"{len(names):,} other nodes"


def _short(text: str) -> str:
    return text if len(text) <= WORD else text[: WORD - 4] + " ..."


def advise(id: str, title: str, command: str | None = None, *, restarts: bool = True) -> Fix:
    """What is done by hand on another machine."""
    actions = (Action(kind="command", text=command),) if command else ()
    return Fix(id=id, title=title, safety="manual", restarts=restarts, actions=actions)


def fact(kind: type, text: Callable[[Any], str | None], source: Callable[[Any], str]) -> Read:
    """A reader of one field of a fact; None in the field is not known."""

    def read(node: Node) -> Reading:
        found = node.get(kind)
        if isinstance(found, Missing):
            return found
        value = text(found)
        if value is None:
            return Missing(fact=kind.__name__, reason="it was not read there", kind="unavailable")
        return Value(text=value, source=source(found))

    return read
