"""Nodes with given facts, for checks over many machines."""

from __future__ import annotations

from typing import Any

from infer_doctor.facts.nodes import Node, Nodes
from infer_doctor.model import Missing


def node(
    name: str,
    *facts: object,
    key: str | None = "k",
    silence: str | None = None,
    machine: str | None = None,
) -> Node:
    """A node that has these facts (or Missing ones) and no others."""
    known: dict[str, Any] = {
        fact.fact if isinstance(fact, Missing) else type(fact).__name__: fact for fact in facts
    }

    def get(kind: type) -> Any:
        return known.get(
            kind.__name__,
            Missing(fact=kind.__name__, reason="not in this snapshot", kind="unavailable"),
        )

    return Node(name=name, get=get, key=key, silence=silence, machine=machine)


def nodes(*rows: Node) -> Nodes:
    return Nodes(nodes=rows)


def alike(*facts: object, odd: object = None, count: int = 3) -> Nodes:
    """`count` nodes a, b, c with the facts, and d with the odd ones (one fact or a tuple)."""
    made = [node("abcefghij"[i], *facts) for i in range(count)]
    if odd is not None:
        made.append(node("d", *(odd if isinstance(odd, tuple) else (odd,))))
    return Nodes(nodes=tuple(made))


def silent(kind: type, reason: str = "no answer within 20 s") -> Missing:
    return Missing(fact=kind.__name__, reason=reason, kind="unavailable")


def proven(kind: type, reason: str) -> Missing:
    return Missing(fact=kind.__name__, reason=reason, kind="absent")
