"""A node's part in a sum over the ranks of all nodes; in its snapshot after `--deep` with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host
from infer_doctor.registry import probe

END = "the end"
"""The step of a rank that has done everything."""

STORE = "the store of rank 0"
"""The step in which a rank connects to the first one."""

STEPS = ("the start", STORE, "the roll call", "init_process_group", "all_reduce")
"""What a rank begins, in this order, until END."""


@frozen
class SumRank:
    """One rank: the last step it began, and what came of it."""

    rank: int
    step: str
    error: str | None
    failed_s: float | None
    """After the roll call, which all ranks leave at one time: who failed first is the cause."""
    tried_s: float | None
    """How long it had for reaching rank 0; short when its interpreter came late."""
    absent: tuple[int, ...]
    """The ranks that had not come to the roll call when its time was over."""
    wrong: int | None
    """How many of 1,024 sums were not what they must be."""
    seconds: float | None
    """Of one sum over `NodeSum.bytes`."""
    via: tuple[str, ...]
    """The transports that NCCL chose, in its words: "P2P/CUMEM", "NET/IB/0/GDRDMA", "NET/Socket/0"."""
    networks: tuple[str, ...]
    """What NCCL uses between nodes: "IB", "Socket", or a plugin's name."""
    warnings: tuple[str, ...]
    settings: tuple[str, ...]
    """NCCL's variables that were in force, as NCCL tells them."""

    @property
    def done(self) -> bool:
        return self.step == END and self.error is None


@frozen
class NodeSum:
    """`own` is the number of this node at the meeting; `counts`: the ranks of each node, by number.

    In texts {node 2} stands for an address of node number 2.
    """

    own: int
    backend: str
    counts: tuple[int, ...]
    bytes: int
    patience_s: float
    """How long was waited at least for a rank's end, once all had come."""
    ranks: tuple[SumRank, ...]
    """Those of this node; none where it has no GPU and others have some."""


@probe
def node_sum(host: Host) -> NodeSum:
    """What `hands/allreduce.py` found while all nodes were there."""
    found = host.ask("allreduce")
    if found["counts"] is None:
        raise Absent("all nodes together have fewer than two ranks")
    return NodeSum(
        own=found["own"],
        backend=found["backend"],
        counts=tuple(found["counts"]),
        bytes=found["bytes"],
        patience_s=found["patience_s"],
        ranks=tuple(_rank(row) for row in found["ranks"]),
    )


def _rank(row: Mapping[str, Any]) -> SumRank:
    return SumRank(
        rank=row["rank"],
        step=row["step"],
        error=row.get("error"),
        failed_s=row.get("failed_s"),
        tried_s=row.get("tried_s"),
        absent=tuple(row.get("absent", ())),
        wrong=row.get("wrong"),
        seconds=row.get("seconds"),
        via=tuple(row["via"]),
        networks=tuple(row["networks"]),
        warnings=tuple(row["warnings"]),
        settings=tuple(row["set"]),
    )
