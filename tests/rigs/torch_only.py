"""The torch of a real engine in an environment without the engine, which takes longer to import."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "INFER_DOCTOR_TEST_ENGINE"


def missing() -> str | None:
    """Why there is none, if there is none."""
    return None if os.environ.get(VARIABLE) else f"{VARIABLE} names no environment with torch"


def interpreter(folder: Path) -> Path:
    """An environment of links in the folder; its interpreter."""
    engine = Path(os.environ[VARIABLE]).resolve()
    (packages,) = engine.glob("lib/python3*/site-packages")
    site = folder / packages.relative_to(engine)
    site.mkdir(parents=True)
    for path in packages.iterdir():
        if not path.name.startswith("vllm"):
            (site / path.name).symlink_to(path)
    (folder / "pyvenv.cfg").write_text((engine / "pyvenv.cfg").read_text())
    (folder / "bin").mkdir()
    found = folder / "bin" / "python"
    found.symlink_to((engine / "bin" / "python").resolve())
    return found
