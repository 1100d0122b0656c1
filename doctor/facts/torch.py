"""The torch of the examined environment, read from its own files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """An installed torch. checks/driver.py uses `version`, `cuda` and `source`."""

    version: str
    cuda: str | None
    """The CUDA it was built for ("13.0"); None for a build without CUDA."""
    source: str
    """The file that says so."""
