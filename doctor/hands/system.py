"""The running system: who and where we are, limits, environment variables, processes, PCI, commands."""

from __future__ import annotations

import os
import resource
import select
import subprocess
import sys
import time
from typing import Any

from .files import read_bytes

Json = dict[str, Any]

OUTPUT_LIMIT = 4 << 20
"""Bytes kept of each stream of a command."""

VARIABLES = (
    "CC",
    "CONDA_",
    "CUBLAS",
    "CUDA",
    "CUDNN",
    "CXX",
    "FLASHINFER_",
    "GLOO_",
    "GOMP_",
    "HF_",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "HUGGINGFACE_",
    "HUGGING_FACE_",
    "INFER_DOCTOR_",
    "KUBERNETES_SERVICE_HOST",
    "LOGNAME",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MASTER_",
    "MKL_",
    "MODELSCOPE_",
    "NCCL_",
    "NO_PROXY",
    "NVIDIA_",
    "OMP_",
    "OMPI_",
    "PATH",
    "PYENV_",
    "PYTHON",
    "PYTORCH",
    "RANK",
    "RAY_",
    "SLURM_",
    "TENSORRT_LLM_",
    "TLLM_",
    "TMPDIR",
    "TORCH",
    "TRANSFORMERS_",
    "TRITON_",
    "TRTLLM_",
    "UCX_",
    "USER",
    "VIRTUAL_ENV",
    "VLLM_",
    "WORLD_SIZE",
    "XDG_CACHE_HOME",
    "ALL_PROXY",
)
"""Beginnings of the names of environment variables that an engine or its libraries read (any case)."""


def identity() -> Json:
    """Host name, kernel, user id and name spaces; PID 1's name; the marks of containers."""
    name = os.uname()
    return {
        "hostname": name.nodename,
        "system": name.sysname,
        "kernel": name.release,
        "machine": name.machine,
        "uid": os.getuid(),
        "pid_namespace": _link("/proc/self/ns/pid"),
        "mount_namespace": _link("/proc/self/ns/mnt"),
        "pid1": _line("/proc/1/comm"),
        "dockerenv": os.path.exists("/.dockerenv"),
        "containerenv": os.path.exists("/run/.containerenv"),
        "cgroup": _line("/proc/1/cgroup"),
        "root_type": _root_type(),
        "devices": sorted(
            entry
            for entry in os.listdir("/dev")
            if entry.startswith(("nvidia", "nvhost", "nvgpu", "dxg"))
        ),
    }


def own() -> Json:
    """The interpreter that runs the doctor (this child is started with it) and its working folder."""
    try:
        folder = os.getcwd()
    except OSError:  # it was deleted
        folder = None
    return {"executable": sys.executable, "folder": folder}


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _line(path: str) -> str | None:
    try:
        data, _ = read_bytes(path, 4096)
    except OSError:
        return None
    return data.decode("utf-8", "backslashreplace").strip()


def _root_type() -> str | None:
    try:
        data, _ = read_bytes("/proc/self/mounts", 4 << 20)
    except OSError:
        return None
    for line in data.decode("utf-8", "backslashreplace").splitlines():
        fields = line.split(" ")
        if len(fields) > 2 and fields[1] == "/":
            return fields[2]
    return None


def environ() -> Json:
    """The environment variables that an engine or its libraries read."""
    kept = {
        name: value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        for name, value in sorted(os.environ.items())
        if name.upper().startswith(VARIABLES)
    }
    return {"variables": kept}


def limits() -> Json:
    """Resource limits that an engine started from here would inherit: [soft, hard], -1 unlimited."""
    names = ("MEMLOCK", "NOFILE", "NPROC", "AS", "STACK", "CORE")
    return {
        name.lower(): [*resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))] for name in names
    }


def processes(pids: list[int]) -> Json:
    """What /proc says of each process; null for those that are not there."""
    return {
        "clock_ticks": os.sysconf("SC_CLK_TCK"),
        "uptime": _line("/proc/uptime"),
        "processes": {str(pid): _process(pid) for pid in pids},
    }


def _process(pid: int) -> Json | None:
    status = _line(f"/proc/{pid}/status")
    stat = _line(f"/proc/{pid}/stat")
    if status is None or stat is None:
        return None
    command, _ = _quiet_bytes(f"/proc/{pid}/cmdline")
    words = command.decode("utf-8", "backslashreplace").split("\0")[:64]
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    after_name = stat.rpartition(")")[2].split()
    return {
        "name": fields.get("Name", "").strip(),
        "ppid": int(fields.get("PPid", "0")),
        "uid": int(fields.get("Uid", "0").split()[0]),
        "state": fields.get("State", "").strip()[:1],
        "start_ticks": int(after_name[19]),
        # Arguments may hold keys: only the program and what it runs stay.
        "command": [word[:200] for word in words[:3] if word],
        "holds_gpu": _holds_gpu(pid),
    }


def _quiet_bytes(path: str) -> tuple[bytes, bool]:
    try:
        return read_bytes(path, 65_536)
    except OSError:
        return b"", False


def _holds_gpu(pid: int) -> bool | None:
    """Whether the process has a /dev/nvidia* open; null when that may not be read."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return None
    links = (_link(f"/proc/{pid}/fd/{number}") or "" for number in descriptors)
    return any(link.startswith("/dev/nvidia") for link in links)


def pci() -> Json:
    """The NVIDIA devices on the PCI bus, and how many devices of any kind there are."""
    root = "/sys/bus/pci/devices"
    addresses = sorted(os.listdir(root))
    found = []
    for address in addresses:
        folder = f"{root}/{address}"
        if _line(f"{folder}/vendor") != "0x10de":
            continue
        driver = _link(f"{folder}/driver")
        names = ("class", "device", "numa_node", "current_link_speed", "current_link_width")
        found.append(
            {
                "address": address,
                "driver": os.path.basename(driver) if driver else None,
                **{name: _line(f"{folder}/{name}") for name in names},
                "max_link_speed": _line(f"{folder}/max_link_speed"),
                "max_link_width": _line(f"{folder}/max_link_width"),
            }
        )
    return {"devices": len(addresses), "nvidia": found}


def run(command: list[str], limit_s: float, input: str) -> Json:
    """Run a command without a shell; it is killed when time is up.

    It stays in the process group of this child, which the parent kills as a whole in the end.
    """
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
    assert child.stdin and child.stdout and child.stderr
    try:
        child.stdin.write(input.encode())
        child.stdin.close()
    except BrokenPipeError:
        pass
    streams = {child.stdout.fileno(): bytearray(), child.stderr.fileno(): bytearray()}
    out, err = list(streams)
    still_open = set(streams)
    deadline = time.monotonic() + limit_s
    try:
        while still_open and (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select(list(still_open), [], [], left)
            for descriptor in ready:
                part = os.read(descriptor, 65_536)
                if not part:
                    still_open.discard(descriptor)
                elif len(streams[descriptor]) < OUTPUT_LIMIT:
                    streams[descriptor] += part
        exit_status = child.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        child.kill()  # not waited for: in the D state it does not die
        raise TimeoutError(f"{command[0]} did not end within {limit_s:g} s") from None
    return {
        "exit_status": exit_status,
        "stdout": streams[out][:OUTPUT_LIMIT].decode("utf-8", "backslashreplace"),
        "stderr": streams[err][:OUTPUT_LIMIT].decode("utf-8", "backslashreplace"),
    }
