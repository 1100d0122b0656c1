"""An all-reduce over all GPUs, one process each, as tensor parallelism does it. Only `--deep`.

The engine's interpreter runs `SCRIPT` (`-I -S`, no module of the environment is imported): it forks a
process for each GPU before CUDA is touched, loads the copies of libcudart and libnccl that the
engine's process would load, and sums buffers of known numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from infer_doctor.facts.chosen import ChosenGpus
from infer_doctor.facts.environment import Interpreter
from infer_doctor.facts.gpu import Gpus
from infer_doctor.facts.libraries import LoadedLibraries
from infer_doctor.facts.visible import VisibleDevices
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.registry import probe
from infer_doctor.units import plural

LIMIT_S = 90.0
"""Two contexts, the libraries from a cold disk and NCCL's set-up take some 10 s on two H200."""

RANK_LIMIT_S = 45.0
"""After that a rank counts as hanging: NCCL's own set-up waits for ever."""

SMALL, LARGE = 16 << 10, 256 << 20
"""Bytes: about what one decoded token of a 70B model sums in a layer (8,192 x 2), and what fills the
links."""

SCRIPT = r"""
import ctypes, json, os, select, signal, sys, time
runtime_path, nccl_path, count, small, large, limit, extra = json.loads(sys.argv[1])
os.environ.update(extra)
os.environ.update({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,ENV,NET"})
os.environ.pop("NCCL_DEBUG_FILE", None)
pointer, size = ctypes.c_void_p, ctypes.c_size_t
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]
def rank_main(rank, say, first):
    say(step="loading libraries")
    runtime = ctypes.CDLL(runtime_path)
    nccl = ctypes.CDLL(nccl_path)
    nccl.ncclGetErrorString.restype = runtime.cudaGetErrorString.restype = ctypes.c_char_p
    if hasattr(nccl, "ncclGetLastError"):
        nccl.ncclGetLastError.restype = ctypes.c_char_p
    nccl.ncclGetLastError.argtypes = [pointer]
    nccl.ncclCommInitRank.argtypes = [pointer, ctypes.c_int, Id, ctypes.c_int]
    nccl.ncclAllReduce.argtypes = [pointer, pointer, size, ctypes.c_int, ctypes.c_int, pointer, pointer]
    def cuda(function, *arguments):
        code = getattr(runtime, function)(*arguments)
        if code:
            raise RuntimeError(f"{function}: {runtime.cudaGetErrorString(code).decode()} ({code})")
    def net(function, *arguments):
        code = getattr(nccl, function)(*arguments)
        if code:
            last = nccl.ncclGetLastError(None) or b""
            words = nccl.ncclGetErrorString(code).decode()
            raise RuntimeError(f"{function}: {words} ({code}) {last.decode(errors='replace').strip()}")
    say(step="the CUDA context")
    cuda("cudaSetDevice", rank)
    cuda("cudaFree", None)
    able = []
    for other in range(count):
        answer = ctypes.c_int(1)
        if other != rank:
            cuda("cudaDeviceCanAccessPeer", ctypes.byref(answer), rank, other)
        able.append(bool(answer.value))
    say(peers=able)
    unique = Id()
    if rank == 0:
        net("ncclGetUniqueId", ctypes.byref(unique))
        say(id=bytes(unique).hex())
    else:
        text = b""
        while len(text) < 256:
            text += os.read(first, 256 - len(text)) or os._exit(1)
        ctypes.memmove(ctypes.byref(unique), bytes.fromhex(text.decode()), 128)
    say(step="ncclCommInitRank")
    communicator, stream = pointer(), pointer()
    net("ncclCommInitRank", ctypes.byref(communicator), count, unique, rank)
    cuda("cudaStreamCreate", ctypes.byref(stream))
    say(step="ncclAllReduce")
    buffer = pointer()
    cuda("cudaMalloc", ctypes.byref(buffer), size(large))
    numbers = (ctypes.c_float * 1024)(*([float(rank + 1)] * 1024))
    cuda("cudaMemset", buffer, 0, size(large))
    cuda("cudaMemcpy", buffer, numbers, size(4096), 1)
    def reduce(length, times):
        began = time.perf_counter()
        for _ in range(times):  # ncclFloat32 7, ncclSum 0
            net("ncclAllReduce", buffer, buffer, length // 4, 7, 0, communicator, stream)
        cuda("cudaStreamSynchronize", stream)
        return (time.perf_counter() - began) / times
    reduce(4096, 1)
    found = (ctypes.c_float * 1024)()
    cuda("cudaMemcpy", found, buffer, size(4096), 2)
    right = count * (count + 1) / 2
    wrong = sum(1 for value in found if value != right)
    cuda("cudaMemset", buffer, 0, size(large))
    reduce(large, 2)
    say(wrong=wrong, large_s=reduce(large, 5), small_s=min(reduce(small, 20) for _ in range(5)))
    say(step="the end")
ranks, pipes = {}, []
for rank in range(count):
    lines_in, lines_out = os.pipe()
    text_in, text_out = os.pipe()
    id_in, id_out = os.pipe()
    child = os.fork()
    if child == 0:
        for other in pipes:
            for end in other:
                os.close(end)
        os.dup2(text_out, 1)
        os.dup2(text_out, 2)
        def say(**values):
            os.write(lines_out, json.dumps(values).encode() + b"\n")
        try:
            os.setpgid(0, 0)
            signal.alarm(int(limit) + 5)
            rank_main(rank, say, id_in)
        except BaseException as error:
            say(error=f"{type(error).__name__}: {error}"[:2000])
        os._exit(0)
    os.close(lines_out)
    os.close(text_out)
    os.close(id_in)
    pipes.append((lines_in, text_in, id_out))
    ranks[rank] = {"pid": child, "step": "the start", "text": b"", "rest": b""}
owners = {}
for rank, (lines_in, text_in, _) in enumerate(pipes):
    owners[lines_in], owners[text_in] = (rank, "rest"), (rank, "text")
deadline, stopped = time.monotonic() + limit, None
while owners and time.monotonic() < deadline:
    ready, _, _ = select.select(list(owners), [], [], max(0.0, deadline - time.monotonic()))
    for descriptor in ready:
        rank, kind = owners[descriptor]
        part = os.read(descriptor, 65536)
        if not part:
            del owners[descriptor]
            continue
        row = ranks[rank]
        row[kind] = (row[kind] + part)[-1_000_000:]
        while kind == "rest" and b"\n" in row["rest"]:
            line, _, row["rest"] = row["rest"].partition(b"\n")
            row.update(json.loads(line))
            if "id" in row:
                for _, _, id_out in pipes[1:]:
                    os.write(id_out, row["id"].encode())
                del row["id"]
            if "error" in row:  # the others now wait for this one: half a second for their words
                deadline = min(deadline, time.monotonic() + 2)
for row in ranks.values():
    try:
        os.killpg(row["pid"], signal.SIGKILL)
    except OSError:
        pass
for row in ranks.values():
    text = row.pop("text").decode("utf-8", "backslashreplace")
    row["via"] = sorted({part.split()[0] for part in text.split(" via ")[1:] if part.split()})
    row["warnings"] = [line[:300] for line in text.splitlines() if "NCCL WARN" in line][:5]
    row["set"] = sorted({line.partition(" set by environment to ")[0].split()[-1]
                         + "=" + line.partition(" set by environment to ")[2].rstrip(".")
                         for line in text.splitlines() if " set by environment to " in line})
    del row["rest"], row["pid"]
print(json.dumps({"ranks": [ranks[rank] for rank in sorted(ranks)]}), flush=True)
os._exit(0)
"""

NCCL_VARIABLES = re.compile(r"NCCL_[A-Z0-9_]+|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER")


@frozen
class LinkRank:
    """One GPU's part: `step` is the last one begun; `via` the transports that NCCL chose."""

    rank: int
    step: str
    error: str | None
    warnings: tuple[str, ...]
    via: tuple[str, ...]
    peers: tuple[bool, ...]
    """cudaDeviceCanAccessPeer to each GPU, the own one included."""
    wrong: int | None
    """How many of 1,024 sums were not what they must be."""
    large_s: float | None
    small_s: float | None
    settings: tuple[str, ...] = ()
    """NCCL's variables that were in force, as NCCL tells them."""


@frozen
class LinkRun:
    """An all-reduce over `len(ranks)` GPUs."""

    ranks: tuple[LinkRank, ...]
    source: str
    large_bytes: int = LARGE
    small_bytes: int = SMALL

    @property
    def bus_bytes_per_s(self) -> float | None:
        """2 (n - 1) / n x size / time of the slowest rank, as nccl-tests count the bus bandwidth."""
        times = [row.large_s for row in self.ranks]
        if not times or None in times:
            return None
        count = len(times)
        return 2 * (count - 1) / count * self.large_bytes / max(t for t in times if t)


@probe(deep=True)
def link_run(
    host: Host,
    interpreter: Interpreter,
    loaded: LoadedLibraries,
    gpus: Gpus,
    visible: VisibleDevices | None,
    chosen: ChosenGpus | None,
    launch: Launch | None,
) -> LinkRun:
    """Sum over the GPUs that the engine would take; some 800 MiB on each for seconds."""
    count = len(visible.entries) if visible else len(gpus.gpus)
    count = len(chosen.indices) if chosen else count
    if count < 2:
        raise Absent(f"{plural(count, 'GPU')} would be taken: a sum over links needs two")
    paths = {row.copy.library: row.path for row in loaded.rows}
    for library in ("cudart", "nccl"):
        if library not in paths:
            raise Unavailable(f"the engine's process would load no lib{library}")
    question = [paths["cudart"], paths["nccl"], count, SMALL, LARGE, RANK_LIMIT_S]
    argument = json.dumps([*question, _variables(launch)])
    command = [interpreter.executable, "-I", "-S", "-c", SCRIPT, argument]
    answer = host.ask("run", command=command, limit_s=LIMIT_S, input="")
    lines = [line for line in answer["stdout"].splitlines() if line.startswith("{")]
    if not lines:
        last = (answer["stderr"].strip().splitlines() or ["no output"])[-1]
        raise Unavailable(f"the probe ended with status {answer['exit_status']}: {last}")
    rows = json.loads(lines[-1])["ranks"]
    return LinkRun(
        ranks=tuple(_rank(number, row) for number, row in enumerate(rows)),
        source=f"{interpreter.executable} -c 'ncclAllReduce ...'",
    )


def _variables(launch: Launch | None) -> Mapping[str, str]:
    """What the launch itself sets for NCCL and for the choice of GPUs."""
    if launch is None:
        return {}
    return {
        row.name: row.value
        for row in launch.environment
        if row.value is not None and NCCL_VARIABLES.fullmatch(row.name)
    }


def _rank(number: int, row: Mapping[str, Any]) -> LinkRank:
    return LinkRank(
        rank=number,
        step=row["step"],
        error=row.get("error"),
        warnings=tuple(row["warnings"]),
        via=tuple(row["via"]),
        peers=tuple(row.get("peers", ())),
        wrong=row.get("wrong"),
        large_s=row.get("large_s"),
        small_s=row.get("small_s"),
        settings=tuple(row.get("set", ())),
    )
