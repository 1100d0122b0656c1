"""The parts of all nodes in one sum, put together."""

from __future__ import annotations

import re
from collections.abc import Mapping

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.gpu import Gpus
from infer_doctor.facts.node_sum import NodeSum, SumRank
from infer_doctor.facts.nodes import Node, Nodes
from infer_doctor.facts.peers import PeerLinks
from infer_doctor.frozen import frozen
from infer_doctor.host import Unavailable
from infer_doctor.model import Missing

NODE = re.compile(r"\{node (\d+)\}")


@frozen
class Sums:
    """`rows` by node, `lost`: why a node's part is not known."""

    rows: Mapping[str, NodeSum]
    lost: Mapping[str, str]
    names: Mapping[int, str]
    """What the report calls the nodes, by their number at the meeting."""
    ranks: Mapping[int, SumRank]
    taking_part: tuple[Node, ...]

    @property
    def _one(self) -> NodeSum:
        return next(iter(self.rows.values()))

    @property
    def backend(self) -> str:
        return self._one.backend

    @property
    def bytes(self) -> int:
        return self._one.bytes

    @property
    def world(self) -> int:
        return sum(self._one.counts)

    @property
    def absent(self) -> set[int]:
        """The ranks that somebody missed at the roll call."""
        return {rank for row in self.ranks.values() for rank in row.absent}

    @property
    def patience_s(self) -> float:
        """How long the sum was waited for at least, once all had come."""
        return min(row.patience_s for row in self.rows.values())

    @property
    def slowest(self) -> tuple[float, int]:
        """The time of the slowest rank, and its number."""
        return max((row.seconds or 0.0, rank) for rank, row in self.ranks.items())

    @property
    def bus_bytes_per_s(self) -> float | None:
        """As nccl-tests count it; None when a rank did not come to the end."""
        if len(self.ranks) < self.world or any(not row.seconds for row in self.ranks.values()):
            return None
        return 2 * (self.world - 1) / self.world * self.bytes / self.slowest[0]

    def node_of(self, rank: int) -> str:
        """The node that has a rank; by number where it handed nothing back."""
        begin = 0
        for number, count in enumerate(self._one.counts):
            if rank < begin + count:
                return self.name(number)
            begin += count
        return f"rank {rank}"

    def name(self, number: int) -> str:
        """What the report calls node `number` of the meeting."""
        return self.names.get(number, f"node {number}")

    def named(self, text: str) -> str:
        """The text with names of nodes instead of their numbers."""
        return NODE.sub(lambda found: self.name(int(found[1])), text)

    def require_all(self) -> None:
        """Raise Unavailable when the part of a rank is not known."""
        if len(self.ranks) < self.world:
            lost = next(
                (f"{name}: {why}" for name, why in self.lost.items()), "a node said nothing"
            )
            raise Unavailable(f"the part of a node in the sum is not known: {lost}")


def sums_of(nodes: Nodes) -> Sums:
    """What all nodes know of the sum; raises Unavailable when nobody summed."""
    rows: dict[str, NodeSum] = {}
    lost: dict[str, str] = {}
    names: dict[int, str] = {}
    absent = None
    for node in nodes.nodes:
        found = node.get(NodeSum)
        if (met := node.fact(PeerLinks)) is not None:
            names[met.own] = node.name
        if not isinstance(found, Missing):
            rows[node.name] = found
        elif found.kind == "absent":
            absent = found.reason
        else:
            lost[node.name] = found.reason
    if not rows and absent is not None and not lost:
        raise NotApplicable(absent)
    if not rows:
        name, reason = next(iter(lost.items()))
        raise Unavailable(
            f"no sum was made (--deep on all nodes at one time does it); {name}: {reason}"
        )
    alike = len({(row.counts, row.backend) for row in rows.values()}) == 1
    if not alike or len({row.own for row in rows.values()}) < len(rows):
        raise Unavailable("the snapshots are not of one meeting")
    backend = next(iter(rows.values())).backend
    heads = [n.name for n in nodes.nodes if backend == "nccl" and _without_gpus(n)]
    return Sums(
        rows=rows,
        lost={name: reason for name, reason in lost.items() if name not in heads},
        names=names | {row.own: name for name, row in rows.items()},
        ranks={row.rank: row for own in rows.values() for row in own.ranks},
        taking_part=tuple(
            node for node in nodes.nodes if node.name in rows and rows[node.name].ranks
        ),
    )


def _without_gpus(node: Node) -> bool:
    """Provably, as a head node: it has no part in a sum over GPUs."""
    found = node.get(Gpus)
    return isinstance(found, Missing) and found.kind == "absent"
