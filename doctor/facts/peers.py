"""Whether a node reaches the others by TCP; in its snapshot after `snapshot --to DIR --deep`."""

from __future__ import annotations

from infer_doctor.frozen import frozen
from infer_doctor.host import Host
from infer_doctor.registry import probe


@frozen
class PeerLink:
    """To one other node: `error` in the kernel's words, else the time to connect.

    `bytes_per_s` only to the next node of the ring.
    """

    index: int
    error: str | None
    connect_ms: float | None
    bytes_per_s: float | None


@frozen
class PeerLinks:
    """`own` is the number of this node; `met` of the `count` nodes came to the meeting."""

    own: int
    count: int
    met: int
    rows: tuple[PeerLink, ...]


@probe
def peer_links(host: Host) -> PeerLinks:
    """What `hands/links.py` found while all nodes were there."""
    found = host.ask("links")
    return PeerLinks(
        own=found["own"],
        count=found["count"],
        met=found["met"],
        rows=tuple(
            PeerLink(
                index=row["index"],
                error=row["error"],
                connect_ms=row["connect_ms"],
                bytes_per_s=row["bytes_per_s"],
            )
            for row in found["rows"]
        ),
    )
