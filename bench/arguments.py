"""A wrong argument: `infer-doctor check -- vllm serve ...` beside the engine's own refusal.

INFER_DOCTOR_TEST_ENGINE_FIXED names the folder of a real vLLM for the CPU that starts. The first row
examines it (its sources are a release of the catalogue), the second a copy of links whose envs.py
has one line more, so that the arguments are read from the sources. The rival runs three times.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from measure import DOCTOR, head, medians, row, seconds

RIVAL_RUNS = 3
LINE = ["vllm", "serve", "m", "--gpu-memory-utilisation", "0.9"]


def changed_copy(engine: Path, folder: Path) -> Path:
    """The same environment as links, one source file of vLLM changed."""
    (site,) = engine.glob("lib/python3*/site-packages")
    place = folder / site.relative_to(engine)
    place.mkdir(parents=True)
    (folder / "bin").mkdir()
    for file in engine.glob("bin/python*"):
        (folder / "bin" / file.name).symlink_to(file)
    (folder / "pyvenv.cfg").write_text((engine / "pyvenv.cfg").read_text())
    for entry in site.iterdir():
        if entry.name != "vllm":
            (place / entry.name).symlink_to(entry)
    for root, _, names in os.walk(site / "vllm"):
        here = place / Path(root).relative_to(site)
        here.mkdir()
        for name in names:
            (here / name).symlink_to(Path(root) / name)
    envs = place / "vllm" / "envs.py"
    text = envs.read_text()
    envs.unlink()
    envs.write_text(text + "\n# changed\n")
    return folder


def refusal(engine: Path) -> float:
    """Seconds until the engine itself refuses the line; raises when it does not."""
    import subprocess
    import time

    began = time.perf_counter()
    words = [f"{engine}/bin/python", f"{engine}/bin/vllm", *LINE[1:]]
    done = subprocess.run(words, capture_output=True, text=True)
    if "unrecognized arguments" not in done.stderr:
        raise SystemExit(f"the engine did not refuse: {done.stderr[-400:]}")
    return time.perf_counter() - began


def main() -> None:
    """A row for a known version and one for an unknown one."""
    head()
    named = os.environ.get("INFER_DOCTOR_TEST_ENGINE_FIXED")
    if not named:
        raise SystemExit("INFER_DOCTOR_TEST_ENGINE_FIXED names no folder")
    engine = Path(named).resolve()
    with tempfile.TemporaryDirectory() as work:
        changed = changed_copy(engine, Path(work) / "env")
        commands = [
            [DOCTOR, "check", "--python", f"{folder}/bin/python", "--", *LINE]
            for folder in (engine, changed)
        ]
        refusal(engine)  # warms the caches
        taken = []
        for _ in range(RIVAL_RUNS):
            taken.append(refusal(engine))
            for command in commands:
                seconds(command)
        rival = statistics.median(taken)
        known, unknown = medians(*commands, runs=11)
    row("a wrong argument, catalogued version", known, rival, "at most 0.4 s, 18x")
    row("the same, sources of an unknown version", unknown, rival, "at most 0.9 s, 18x")


if __name__ == "__main__":
    main()
