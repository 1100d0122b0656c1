"""cuInit in a process of its own: no context, nothing is set.

libcuda may start setuid helpers that load modules and make device nodes when those are missing, so
it is only loaded when they are there. It reads the environment once and may crash or hang, so each
answer comes from a fork; this process never loads it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import time
from typing import Any

Json = dict[str, Any]

LIBRARY = "libcuda.so.1"
DEVICES = "/dev"
NODES = ("nvidiactl", "nvidia-uvm")
"""What every CUDA process opens, beside the node of each GPU (nvidia0, nvidia1, ...)."""


def cuda(without: list[str], limit_s: float) -> Json:
    """What cuInit says without these environment variables; "missing": why it was not asked."""
    missing = _missing(os.listdir(DEVICES))
    if missing:
        return {"missing": missing}
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _run(without, writer)
        finally:
            os._exit(1)  # whatever was raised: the code above belongs to the other process
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text, ended = _all(pipe.fileno(), time.monotonic() + limit_s)
    steps = [json.loads(line) for line in text.split(b"\n")[:-1]]
    if not ended:
        os.kill(child, signal.SIGKILL)  # not waited for: in the D state it does not die
        raise TimeoutError(f"no return from {steps[-1]['step'] if steps else 'the start'}")
    _, status = os.waitpid(child, 0)
    found: Json = {"missing": []}
    for step in steps:
        found |= step
    return {**found, "end": _end(status)}


def _missing(names: list[str]) -> list[str]:
    """The device nodes that are not there."""
    missing = [f"{DEVICES}/{name}" for name in NODES if name not in names]
    if not any(name.startswith("nvidia") and name[6:].isdigit() for name in names):
        missing.append(f"{DEVICES}/nvidia0")
    return missing


def _all(descriptor: int, deadline: float) -> tuple[bytes, bool]:
    """What was written, and whether the other end was closed in time."""
    text = b""
    while True:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([descriptor], [], [], max(0.0, left))
        if not ready:
            return text, False
        part = os.read(descriptor, 65_536)
        if not part:
            return text, True
        text += part


def _run(without: list[str], writer: int) -> None:
    """In the fork: one line of JSON a step, written before it can fail. Does not return."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    for name in without:
        os.environ.pop(name, None)

    def say(**found: Any) -> None:
        os.write(writer, json.dumps(found).encode() + b"\n")

    say(step=f"loading {LIBRARY}")
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        say(load_error=str(error))
        os._exit(0)
    say(step="cuInit", library=_mapped())
    code = library.cuInit(0)
    say(code=code, step="cuDriverGetVersion")
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
        say(version=version.value)
    say(step="cuDeviceGetCount")
    if code == 0 and library.cuDeviceGetCount(ctypes.byref(count)) == 0:
        say(count=count.value)
    say(step="the end")
    os._exit(0)  # no finalisers of the library: they may hang


def _mapped() -> str | None:
    """The file that the loader chose."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="backslashreplace") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")[2]
                if os.path.basename(path).startswith("libcuda.so"):
                    return f"/{path}"
    except OSError:
        pass
    return None


def _end(status: int) -> str | None:
    """How the process ended, when not in order."""
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    code = os.WEXITSTATUS(status)
    return f"exit status {code}" if code else None
