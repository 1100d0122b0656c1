"""Numbers of vLLM that changed from version to version.

Source: vLLM's config/cache.py; the default went from 0.90 to 0.92 on main on 2026-04-21 (commit
96a85c5750), after 0.20 was cut; 0.26 and 0.32 print 0.92.
"""

from __future__ import annotations

UTILISATION = 0.92
UTILISATION_BEFORE = 0.90
UTILISATION_SINCE = (0, 21)


def default_utilisation(version: str | None) -> float:
    """gpu_memory_utilization when the launch does not say it; the newest for an unknown version."""
    parts = (version or "").split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return UTILISATION
    known = (int(parts[0]), int(parts[1]))
    return UTILISATION if known >= UTILISATION_SINCE else UTILISATION_BEFORE
