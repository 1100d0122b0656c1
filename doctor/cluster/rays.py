"""All nodes of a Ray cluster as snapshots; a node that hangs or dies is one that answers nothing."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from infer_doctor.cluster.collect import keep
from infer_doctor.cluster.reading import Reader, ReadNode, silent
from infer_doctor.facts.ray import RayNode
from infer_doctor.frozen import frozen
from infer_doctor.live import DEATH_S
from infer_doctor.snapshot import BadSnapshot

RESERVE_S = 2.0
"""Kept of the time limit for judging and the report; ending a driver takes no time, it is killed."""

SHARE, DEEP_SHARE = 0.6, 0.45
"""What a node may use of the time that is left when its task is sent: the start of a worker with the
shipped doctor takes 3 to 5 s of it. With `--deep` the links and the sum come after it."""


class NoRay(Exception):
    """The cluster cannot be asked at all; the text says why."""


@frozen
class RayAnswer:
    """The nodes, and who they are: real names stay out of the report."""

    nodes: tuple[ReadNode, ...]
    people: tuple[str, ...]
    """"ray-3f2a9c1d is gpu-07 (10.0.0.7)", for the terminal only."""


def ask(
    address: str,
    timeout_s: float,
    *,
    command: Sequence[str],
    python: str | None,
    deep: bool,
    created_at: str,
) -> RayAnswer:
    """Ask every node; raises NoRay."""
    if address == "local":
        raise NoRay('"local" is no cluster: Ray would start a new one of this machine alone')
    given = os.environ.get("RAY_ADDRESS") if address == "auto" else None
    where = f"{given} (RAY_ADDRESS)" if given else address
    limit_s = max(1.0, timeout_s - RESERVE_S)
    with tempfile.TemporaryDirectory(prefix="infer-doctor-") as folder:
        settings = {
            "address": address,
            "limit_s": limit_s,
            "share": DEEP_SHARE if deep else SHARE,
            "folder": folder,
            "command": list(command),
            "python": python,
            "deep": deep,
            "created_at": created_at,
            "key": secrets.token_hex(16),
        }
        ends = time.monotonic() + limit_s
        lines = list(_lines(settings, ends))
        early = time.monotonic() < ends
    head = next((row for row in lines if "nodes" in row), None)
    failed = next((row["failed"] for row in lines if "failed" in row), None)
    if failed is not None:
        raise NoRay(" ".join(failed.split())[:500])
    if head is None and early:
        raise NoRay(f"the process that asks Ray at {where} ended without a word ({sys.executable})")
    if head is None:
        raise NoRay(f"Ray at {where} did not list its nodes within {limit_s:g} s")
    answers: dict[str, dict[str, Any]] = {}
    for row in lines:
        if "node" in row:
            answers.setdefault(row["node"], {}).update(row)
    reader = Reader()
    return RayAnswer(
        nodes=tuple(_node(row, answers.get(row["id"]), reader, limit_s) for row in head["nodes"]),
        people=tuple(f"{_name(row)} is {row['host']} ({row['address']})" for row in head["nodes"]),
    )


def _name(row: dict[str, Any]) -> str:
    return f"ray-{row['id'][:8]}"


def _node(
    row: dict[str, Any], answer: dict[str, Any] | None, reader: Reader, limit_s: float
) -> ReadNode:
    silence = None
    snapshot = None
    if not row["alive"]:
        silence = "Ray lists the node as dead"
    elif answer is None:
        silence = f"no answer within {limit_s:g} s"
    elif "error" in answer:
        silence = f"its task failed: {answer['error']}"
    else:
        try:
            snapshot = reader.read(answer["snapshot"])
        except BadSnapshot as error:
            silence = f"its snapshot cannot be read: {error}"
    if snapshot is None:
        snapshot = silent(_name(row), silence or "").snapshot
    elif answer is not None:
        if "links" in answer:
            keep(snapshot.host, "links", value=answer["links"])
        if "allreduce" in answer:
            keep(snapshot.host, "allreduce", **answer["allreduce"])
    gpus = row["resources"].get("GPU", 0)
    return ReadNode(
        name=_name(row),
        snapshot=snapshot,
        silence=silence,
        given=(RayNode(id=row["id"], alive=row["alive"], gpus=float(gpus)),),
    )


def _lines(settings: dict[str, Any], deadline: float) -> Iterator[dict[str, Any]]:
    """What the driver says until it ends or the time is over; then it is killed."""
    child = subprocess.Popen(
        [sys.executable, "-m", "infer_doctor.cluster.ray_driver"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert child.stdin is not None and child.stdout is not None
    buffer = b""
    try:
        with contextlib.suppress(
            BrokenPipeError
        ):  # it ended at once: what it said, if anything, counts
            child.stdin.write(json.dumps(settings).encode() + b"\n")
            child.stdin.flush()
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
                return
            part = os.read(child.stdout.fileno(), 1 << 20)
            if not part:
                return
            buffer += part
            *whole, buffer = buffer.split(b"\n")
            for line in whole:
                row: dict[str, Any] = json.loads(line)
                if "ended" in row:
                    return
                yield row
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=DEATH_S * 10)
