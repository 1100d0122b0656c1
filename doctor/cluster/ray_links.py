"""The links between the nodes of a Ray cluster, and a sum over them: `check --ray --deep`.

An actor on each node listens, connects to the others and runs the engine's interpreter. Each step is
asked of all nodes at once and has a deadline; a node that does not answer is left out of the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from infer_doctor.cluster.collect import Part
from infer_doctor.hands.links import Listener, reach

REACH_S = 15.0
"""At most, for connecting: 2 s for each node that cannot be reached, and a second of sending."""

SPARE_S = 4.0
"""Between the deadline of a sum and that of its answer: its process is ended by force within 3 s."""

LEAST_S = 8.0
"""Less is no time for a sum: `import torch` alone takes seconds."""


class Linker:
    """On a node."""

    def __init__(self) -> None:
        self._listener: Listener | None = None

    def listen(self, part: Part) -> dict[str, Any]:
        """What the others need in order to connect."""
        self._listener = Listener()
        return {**part.offer(), "port": self._listener.port}

    def reach(self, offers: Sequence[dict[str, Any]], own: int, limit_s: float) -> dict[str, Any]:
        """The links of this node to all others."""
        rows = reach(list(offers), own, time.monotonic() + limit_s)
        return {"own": own, "count": len(offers), "met": len(offers), "rows": rows}

    def add_up(
        self, part: Part, offers: Sequence[Mapping[str, Any]], own: int, limit_s: float
    ) -> dict[str, Any]:
        """This node's part of the sum."""
        if self._listener is not None:
            self._listener.close()
        return part.add_up(offers, own, limit_s)


def meet(
    ray: Any,
    linkers: Mapping[str, Any],
    parts: Mapping[str, Part],
    ends: float,
    say: Callable[..., None],
) -> None:
    """Say the links and the sum of each node that has a part; `ends` by time.monotonic()."""

    def all_of(asked: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """The answers that came in time and were none of a failure."""
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=max(0.1, limit_s))
        answers = {}
        for node, reference in asked.items():
            try:
                answers[node] = ray.get(reference, timeout=0)
            except Exception:  # noqa: S112 - it hung, died or failed: the others go on
                continue
        return answers

    def left() -> float:
        return ends - time.monotonic()

    asked = {node: linkers[node].listen.remote(part) for node, part in parts.items()}
    offers = all_of(asked, left() / 3)
    met = list(offers)
    if len(met) < 2:
        return
    rows = [offers[node] for node in met]
    limit_s = min(REACH_S, left() / 3)
    asked = {node: linkers[node].reach.remote(rows, own, limit_s) for own, node in enumerate(met)}
    links = all_of(asked, limit_s + 2)
    for node, found in links.items():
        say(node=node, links=found)
    limit_s = left() - SPARE_S
    if limit_s < LEAST_S:
        for node in links:
            say(node=node, allreduce={"error": "no time was left for a sum (--timeout)"})
        return
    asked = {
        node: linkers[node].add_up.remote(parts[node], rows, own, limit_s)
        for own, node in enumerate(met)
    }
    sums = all_of(asked, left())
    for node in met:
        say(node=node, allreduce=sums.get(node, {"error": f"no answer within {limit_s:.0f} s"}))
