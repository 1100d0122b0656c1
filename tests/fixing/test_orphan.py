"""A dead engine's process that holds a GPU, played by a library: found, ended, and only it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import nvml_library
import pytest
from doctor_process import Run

CAPTURE = Path(__file__).parent.parent / "captures" / "h200" / "nvml.json"

LEFT = """
import os, subprocess, sys
words, null = ["VLLM::EngineCore", "300"], subprocess.DEVNULL
child = subprocess.Popen(words, executable="/bin/sleep", stdout=null, stderr=null, stdin=null)
print(child.pid, flush=True)
os._exit(0)
"""
"""Starts it and ends: then nobody stands above it but the first process of the machine."""


@pytest.fixture
def orphan() -> Iterator[int]:
    made = subprocess.run(["python3", "-c", LEFT], capture_output=True, text=True, check=True)
    pid = int(made.stdout)
    yield pid
    if alive(pid):
        os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("gives_back", [True, False])
def test_ended_and_looked_at_again(orphan: int, gives_back: bool, tmp_path: Path) -> None:
    """The GPU gives the memory back, or a driver that hangs goes on saying that it is held."""
    machine = json.loads(CAPTURE.read_text())
    gpu = machine["gpus"][0]
    held = 131 << 30
    gpu["ComputeRunningProcesses"] = [{"pid": orphan, "usedGpuMemory": held}]
    for row in (gpu["MemoryInfo"], gpu["MemoryInfo_v2"]):
        row["used"], row["free"] = row["used"] + held, row["free"] - held
    library = nvml_library.build(machine, tmp_path)
    holder = {"FAKE_NVML_HOLDER": f"{orphan},{held}"} if gives_back else {}
    run = Run(tmp_path, {"LD_LIBRARY_PATH": str(library), **holder})
    words = ["--select", "gpu-memory-held"]
    shown = run("fix", *words)
    if f"End PID {orphan}" not in shown.stdout or "for you" in shown.stdout:
        print(shown.stdout)
        pytest.skip("the first process of this machine may itself be a launcher")
    assert f"$ kill {orphan}" in shown.stdout
    assert alive(orphan)
    done = run("fix", *words, "--apply", "--yes", "--unsafe")
    for _ in range(100):  # whoever inherited it has to take it
        if not alive(orphan):
            break
        time.sleep(0.05)
    assert not alive(orphan)
    assert done.stdout.startswith("cured: End PID" if gives_back else "not cured: End PID")
    assert f"as after the fix: end PID {orphan}" in run("history").stdout
    undone = run("undo", "--yes")
    assert "cannot be taken back" in undone.stdout
