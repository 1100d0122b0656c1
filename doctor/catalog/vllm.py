"""Numbers of vLLM that changed from version to version.

Source: vLLM's config/cache.py; the default went from 0.90 to 0.92 between 0.19.1 and 0.20.0 (source
distributions; the real parser of 0.20.0 has 0.92).
"""

from __future__ import annotations

import json
import pkgutil
from dataclasses import dataclass

from infer_doctor.versions import release

UTILISATION = 0.92
UTILISATION_BEFORE = 0.90
UTILISATION_SINCE = (0, 20)


LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""MaxLoRARanks of vllm/config/lora.py, 0.32."""


def default_utilisation(version: str | None) -> float:
    """gpu_memory_utilization when the launch does not say it; the newest for an unknown version."""
    known = release(version)
    return UTILISATION_BEFORE if known and known < UTILISATION_SINCE else UTILISATION


@dataclass(frozen=True)
class RemovedVariable:
    """An environment variable that vLLM no longer reads."""

    gone: str
    """The first release without it, "about 0.15" when only a snapshot of main between is known."""
    instead: str | None
    """What replaces it: an option or another variable."""
    note: str | None


def removed_variables() -> dict[str, RemovedVariable]:
    """Name -> what is known; `vllm_env_removed.json` says where it comes from."""
    text = pkgutil.get_data("infer_doctor.catalog", "vllm_env_removed.json") or b"{}"
    return {
        name: RemovedVariable(
            gone=f"about {row['gone']}" if row["about"] else row["gone"],
            instead=row.get("instead"),
            note=row.get("note"),
        )
        for name, row in json.loads(text)["removed"].items()
    }
