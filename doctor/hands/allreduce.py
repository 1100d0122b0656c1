"""A sum over the ranks of several nodes, as the engine makes it: torch.distributed in its interpreter.

Each node runs `SCRIPT` (`-I -S`, so no .pth file and no sitecustomize of the environment is executed) for
its own ranks. All meet in the store of rank 0 first, so that a rank which never comes is named before a
collective hangs for it. Everything has a deadline, and no address leaves: the nodes of the meeting are
written as {node 2}, by their number.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

GPU_BYTES, CPU_BYTES = 256 << 20, 16 << 20
"""What fills the links: as `facts/deep_links.py` sums over GPUs, and a fit size for Ethernet."""

MEET_SHARE = 0.5
"""Of the time limit: by then all ranks must be in the store. `import torch` from a cold disk and a node
that began later are in it."""

GRACE_S = 3.0
"""Between the deadline of the ranks and the end of the waiting for their process."""

ADDRESS = re.compile(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])|\b[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){3,}\b"
)

SCRIPT = r"""
import datetime, json, os, select, signal, sys, time
plan = json.loads(sys.stdin.readline())
sys.path += plan["folders"]
os.environ.update(plan["variables"])
os.environ.update({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,ENV,NET"})
os.environ.pop("NCCL_DEBUG_FILE", None)
signal.alarm(int(plan["limit_s"]) + 5)
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
began = time.monotonic()
def left():
    return max(0.1, plan["limit_s"] - (time.monotonic() - began))
def answer(**values):
    answers.write(json.dumps(values) + "\n")
    answers.flush()
    os._exit(0)
try:
    import torch
    import torch.distributed as dist
except BaseException as error:
    answer(failed=f"torch.distributed cannot be imported: {type(error).__name__}: {error}"[:500])
world, gpus, clock = plan["world"], plan["backend"] == "nccl", {"met": began}
def rank_main(rank, local, say):
    meet_ends = began + plan["meet_s"]
    tries = max(1.0, meet_ends - time.monotonic())
    say(step="the store of rank 0", tried_s=tries)
    wait = datetime.timedelta(seconds=tries)
    store = dist.TCPStore(plan["address"], plan["port"], world, rank == 0, wait, False)
    store.set(f"here/{rank}", "1")
    say(step="the roll call")
    keys = [f"here/{other}" for other in range(world)]
    while not store.check(keys):
        if time.monotonic() > meet_ends:
            say(absent=[other for other in range(world) if not store.check([keys[other]])])
            time.sleep(min(1.0, left()))  # the others ask the store of rank 0 too
            return
        time.sleep(0.05)
    clock["met"] = time.monotonic()
    def go(step):
        say(step=step)
    go("init_process_group")
    device = torch.device("cpu")
    if gpus:
        torch.cuda.set_device(local)
        device = torch.device("cuda", local)
    limit = datetime.timedelta(seconds=max(1.0, left() - 2))
    where = dist.PrefixStore("sum", store)
    dist.init_process_group(plan["backend"], store=where, rank=rank, world_size=world, timeout=limit)
    go("all_reduce")
    def wait_for_all():
        if gpus:
            torch.cuda.synchronize()
    numbers = torch.full((1024,), float(rank + 1), device=device)
    dist.all_reduce(numbers)
    wait_for_all()
    say(wrong=int((numbers != world * (world + 1) / 2).sum()))
    buffer = torch.zeros(plan["bytes"] // 4, device=device)
    def timed(times):
        started = time.perf_counter()
        for _ in range(times):
            dist.all_reduce(buffer)
        wait_for_all()
        return (time.perf_counter() - started) / times
    timed(1)
    say(seconds=timed(3))
    store.set(f"done/{rank}", "1")
    go("the end")
    ends = time.monotonic() + 3  # the store ends with rank 0
    while rank == 0 and time.monotonic() < ends:
        if store.check([f"done/{other}" for other in range(world)]):
            time.sleep(0.2)
            return
        time.sleep(0.05)
ranks, owners = {}, {}
for local in range(plan["local"]):
    lines_in, lines_out = os.pipe()
    text_in, text_out = os.pipe()
    child = os.fork()
    if child == 0:
        def say(**values):
            os.write(lines_out, json.dumps(values).encode() + b"\n")
        os.dup2(text_out, 1)
        os.dup2(text_out, 2)
        try:
            signal.alarm(int(plan["limit_s"]) + 5)
            rank_main(plan["first"] + local, local, say)
        except BaseException as error:
            say(error=f"{type(error).__name__}: {error}"[:2000], failed_s=time.monotonic() - clock["met"])
        os._exit(0)
    os.close(lines_out)
    os.close(text_out)
    ranks[local] = {"pid": child, "step": "the start", "text": b"", "rest": b""}
    owners[lines_in], owners[text_in] = (local, "rest"), (local, "text")
deadline = began + plan["limit_s"]
while owners and time.monotonic() < deadline:
    ready, _, _ = select.select(list(owners), [], [], max(0.0, deadline - time.monotonic()))
    for descriptor in ready:
        local, kind = owners[descriptor]
        part = os.read(descriptor, 65536)
        if not part:
            del owners[descriptor]
            continue
        row = ranks[local]
        row[kind] = (row[kind] + part)[-4_000_000:]
        while kind == "rest" and b"\n" in row["rest"]:
            line, _, row["rest"] = row["rest"].partition(b"\n")
            row.update(json.loads(line))
for row in ranks.values():
    try:
        os.kill(row.pop("pid"), signal.SIGKILL)
    except OSError:
        pass
for local, row in ranks.items():
    row["text"] = row["text"].decode("utf-8", "backslashreplace")
    del row["rest"]
    row["rank"] = plan["first"] + local
answer(ranks=[ranks[local] for local in sorted(ranks)])
"""


def offer(gpus: int, *, able: bool) -> Json:
    """What a node tells the others before: its GPUs and a free port for the store of rank 0."""
    with socket.create_server(("0.0.0.0", 0)) as free:  # noqa: S104 - closed again at once
        return {"gpus": gpus, "able": able, "store": free.getsockname()[1]}


def plan(offers: Sequence[Mapping[str, Any]], own: int) -> Json | None:
    """The part of node `own` in a sum over all; None when there is nothing to sum over.

    One rank for each GPU, over NCCL; where no node has one, a rank a node over Gloo. A node without
    a GPU among others takes no part, as in the engine.
    """
    able = [row if row["able"] else {**row, "gpus": 0} for row in offers]
    backend = "nccl" if any(row["gpus"] for row in able) else "gloo"
    counts = [row["gpus"] if backend == "nccl" else int(row["able"]) for row in able]
    if sum(counts) < 2:
        return None
    master = next(number for number, count in enumerate(counts) if count)
    return {
        "own": own,
        "backend": backend,
        "counts": counts,
        "first": sum(counts[:own]),
        "local": counts[own],
        "world": sum(counts),
        "address": (list(offers[master]["addresses"]) or [""])[0],
        "port": offers[master]["store"],
        "bytes": GPU_BYTES if backend == "nccl" else CPU_BYTES,
    }


def allreduce(
    part: Json,
    python: str,
    folders: Sequence[str],
    variables: Mapping[str, str],
    nodes: Sequence[Sequence[str]],
    limit_s: float,
) -> Json:
    """Sum, and tell what became of each rank of this node. `nodes`: the addresses of all, by number."""
    known = {address: number for number, row in enumerate(nodes) for address in row}
    head = {key: part[key] for key in ("own", "backend", "counts", "bytes")}
    head["patience_s"] = round(limit_s * (1 - MEET_SHARE) - 2, 1)
    if not part["local"]:
        return {**head, "ranks": []}
    question = {
        **part,
        "folders": list(folders),
        "variables": dict(variables),
        "limit_s": limit_s,
        "meet_s": limit_s * MEET_SHARE,
    }
    child = subprocess.Popen(
        [python, "-I", "-S", "-c", SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
        start_new_session=True,
    )
    try:
        said, errors = child.communicate(json.dumps(question) + "\n", timeout=limit_s + GRACE_S)
    except subprocess.TimeoutExpired:
        said, errors = "", f"no answer within {limit_s:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that a driver holds does not end
            child.wait(timeout=GRACE_S)
    line = next((line for line in said.splitlines() if line.startswith("{")), None)
    if line is None:
        last = (errors.strip().splitlines() or ["no output"])[-1]
        raise ValueError(hidden(f"{python} ended with status {child.returncode}: {last}", known))
    found: Json = json.loads(line)
    if "failed" in found:
        raise ValueError(hidden(found["failed"], known))
    for row in found["ranks"]:
        row |= nccl_says(row.pop("text").splitlines())
        for key in ("error", "warnings", "set", "networks"):
            row[key] = _hidden(row.get(key), known)
    return {**head, **found}


def nccl_says(lines: Sequence[str]) -> Json:
    """What NCCL's log tells of one rank: transports, networks, warnings, variables.

    "Channel 00/02 : 0 1" is a ring, "Channel 00/0 : 0[0] -> 1[0] via NET/IB/0" a transport.
    """
    channels = [line.rpartition(" via ") for line in lines if "NCCL INFO Channel" in line]
    networks = [line.rpartition("Using network ") for line in lines]
    sets = [line.partition(" set by environment to ") for line in lines]
    return {
        "via": sorted({way.split()[0] for _, found, way in channels if found and way.split()}),
        "networks": sorted({name.strip() for _, found, name in networks if found}),
        "warnings": [line[:300] for line in lines if "NCCL WARN" in line][:5],
        "set": sorted(
            {f"{name.split()[-1]}={value.rstrip('.')}" for name, found, value in sets if found}
        ),
    }


def _hidden(value: Any, known: Mapping[str, int]) -> Any:
    if isinstance(value, list):
        return [_hidden(row, known) for row in value]
    return hidden(value, known) if isinstance(value, str) else value


def hidden(text: str, known: Mapping[str, int]) -> str:
    """The text with the numbers of nodes instead of addresses, and without this host's name."""
    name = socket.gethostname()
    text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "this-node", text) if name else text

    def word(found: re.Match[str]) -> str:
        number = known.get(found[0])
        if number is not None:
            return f"{{node {number}}}"
        return found[0] if found[0] in ("127.0.0.1", "0.0.0.0", "::1") else "<address>"  # noqa: S104

    return ADDRESS.sub(word, text)


def unasked() -> Json:
    """One machine alone has nobody to sum with over a network."""
    raise OSError(95, "only between nodes, with --deep")
