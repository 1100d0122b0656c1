"""The machines of a cluster, as one fact: what each of them knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, TypeVar

from infer_doctor.frozen import frozen
from infer_doctor.model import Missing
from infer_doctor.registry import given

F = TypeVar("F")

Getter = Callable[[type], Any]


@frozen
class Node:
    """One machine: its name in the report, and a getter of its facts."""

    name: str
    get: Getter = field(metadata={"report": False})
    """The fact of a type, or the Missing that stands for it."""
    key: str | None = None
    """The mark of the key of its masks; None where nothing is masked or each file masks alone."""
    machine: str | None = None
    """The mark of its running kernel."""
    silence: str | None = None
    """Why nothing is known of it: it hung, died or was dead."""

    def fact(self, kind: type[F]) -> F | None:
        """The fact where there is one."""
        found = self.get(kind)
        return None if isinstance(found, Missing) else found


@given("one machine was examined, or none with GPUs beside it")
@frozen
class HeadNode:
    """Given to a node that provably has no GPU while others of its cluster have some."""

    others: int


@given("one machine was examined")
@frozen
class Nodes:
    """All machines of one run, two at least; only ever given, to the subject "cluster"."""

    nodes: tuple[Node, ...]

    @property
    def comparable(self) -> bool:
        """Whether equal names and addresses have equal masks: all that spoke have one key."""
        keys = {node.key for node in self.nodes if node.silence is None}
        return len(keys) == 1 and None not in keys

    @property
    def names(self) -> Sequence[str]:
        return [node.name for node in self.nodes]
