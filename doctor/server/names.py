"""The list of models, and which of them is asked."""

from __future__ import annotations

from typing import Any

from infer_doctor.facts.server import Exchange, Models
from infer_doctor.model import Evidence
from infer_doctor.redact import mask_line

MOST = 1000
LONGEST = 200
SHOWN = 5


def read(found: Any, asked: str | None, source: str, body: bytes) -> Models | None:
    """Out of the answer of /v1/models; None when it is no list of models."""
    rows = found.get("data") if isinstance(found, dict) else None
    if not isinstance(rows, list):
        return None
    models = {
        mask_line(row["id"])[:LONGEST]: row
        for row in rows[:MOST]
        if isinstance(row, dict) and isinstance(row.get("id"), str) and row["id"]
    }
    offered = tuple(models)
    used = asked or (offered[0] if offered else None)
    row = models.get(used or "", next(iter(models.values()), {}))
    longest = row.get("max_model_len")
    owner = row.get("owned_by")
    shown = ", ".join(offered[:SHOWN]) or body[:80].decode("utf-8", "backslashreplace")
    more = f" and {len(offered) - SHOWN} more" if len(offered) > SHOWN else ""
    return Models(
        offered=offered,
        used=used,
        asked=asked,
        nearest=nearest(asked, offered) if asked and asked not in offered else None,
        longest=longest if isinstance(longest, int) and not isinstance(longest, bool) else None,
        owner=owner[:80] if isinstance(owner, str) else "",
        evidence=Evidence(source=source, excerpt=shown + more),
    )


def given(asked: str, row: Exchange) -> Models:
    """The name of the command line, where there is no list."""
    return Models(offered=(), used=asked, asked=asked, evidence=row.evidence)


def nearest(asked: str, offered: tuple[str, ...]) -> str | None:
    """The offered name that was most likely meant."""
    from difflib import get_close_matches

    def last(name: str) -> str:
        return name.rstrip("/").rpartition("/")[2].lower()

    for name in offered:
        if last(name) == last(asked):
            return name
    by_lower = {name.lower(): name for name in offered}
    near = get_close_matches(asked.lower(), by_lower, n=1, cutoff=0.4)
    if near:
        return by_lower[near[0]]
    return offered[0] if len(offered) == 1 else None
