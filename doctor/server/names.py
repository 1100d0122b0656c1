"""The list of models, and which of them is asked."""

from __future__ import annotations

import re
from typing import Any

from infer_doctor.facts.server import Exchange, Models
from infer_doctor.model import Evidence
from infer_doctor.redact import mask_line

MOST = 1000
LONGEST = 200
SHOWN = 5

OTHER_KIND = re.compile(
    r"embed|rerank|whisper|tts|dall-e|moderation|transcri|diffusion|\bbge\b|\be5\b|\bgte\b|[*]",
    re.I,
)
"""Names of models that make no text, and LiteLLM's wildcards: asked only when there is no other."""


def rows(found: Any) -> dict[str, dict[str, Any]] | None:
    """Name -> row of a list of models, as OpenAI, Together (a bare list) and Ollama write it."""
    listed = found.get("data", found.get("models")) if isinstance(found, dict) else found
    if not isinstance(listed, list):
        return None
    named = {
        row["id"]: row
        for row in listed[:MOST]
        if isinstance(row, dict) and isinstance(row.get("id"), str) and row["id"]
    }
    return named if named or isinstance(found, dict) else None


def wanted(found: Any, asked: str | None) -> str | None:
    """The name to ask for, as the server writes it: the fact `Models` holds it masked."""
    named = rows(found) or {}
    text = next((name for name in named if not OTHER_KIND.search(name)), None)
    return asked or text or next(iter(named), None)


def read(found: Any, asked: str | None, source: str, body: bytes) -> Models | None:
    """Out of the answer of /v1/models; None when it is no list of models."""
    named = rows(found)
    if named is None:
        return None
    models = {_masked(name): row for name, row in named.items()}
    offered = tuple(models)
    name = wanted(found, asked)
    used = _masked(name) if name is not None else None
    asked = _masked(asked) if asked is not None else None
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
        longest=longest if isinstance(longest, int) and longest > 1 else None,
        owner=owner[:80] if isinstance(owner, str) else "",
        evidence=Evidence(source=source, excerpt=shown + more),
    )


def _masked(name: str) -> str:
    return mask_line(name)[:LONGEST]


def given(asked: str, row: Exchange) -> Models:
    """The name of the command line, where there is no list."""
    name = _masked(asked)
    return Models(offered=(), used=name, asked=name, evidence=row.evidence)


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
