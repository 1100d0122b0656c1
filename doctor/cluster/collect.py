"""One file a node, written where all ranks can write: `snapshot --to DIR` under mpirun or srun."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import replace

from infer_doctor.engine import Subject
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.facts.network import ClockState, GpuDirect, Interfaces, OwnName, leading
from infer_doctor.facts.vllm_options import VllmSources
from infer_doctor.hands import VERSIONS
from infer_doctor.hands.links import links
from infer_doctor.host import Capture, Host
from infer_doctor.model import Missing

FACTS = (VllmSources, ModelFiles)
"""What checks ask for only with a launch, for one that the snapshot is judged with later."""

CLUSTER_FACTS = (Interfaces, ClockState, GpuDirect, OwnName)
"""What only checks over many machines ask for; for the name libc may ask a name server."""

LOCAL_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "SLURM_LOCALID",
    "LOCAL_RANK",
)
"""Open MPI, Intel MPI and MPICH, MVAPICH, PALS, Slurm, torchrun: a rank's number on its node. MPI's go
first: mpirun within a Slurm job has the variables of both."""

RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK")

NODES = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE")
LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE")

MEETING = ".links"
"""The folder below DIR where nodes find each other."""

BOOT = "/proc/sys/kernel/random/boot_id"


def local_rank(variables: Mapping[str, str]) -> int | None:
    """The number of this process on its node; None when nobody says so."""
    return _first(variables, LOCAL_RANKS)


def rank(variables: Mapping[str, str]) -> int | None:
    """The number of this process among all."""
    return _first(variables, RANKS)


def _first(variables: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    return next((int(variables[n]) for n in names if variables.get(n, "").isdigit()), None)


def look(subject: Subject, *, cluster: bool) -> None:
    """Ask for what a later judgement needs, over many machines too."""
    for kind in (*FACTS, *(CLUSTER_FACTS if cluster else ())):
        subject.get(kind)


def nodes(variables: Mapping[str, str]) -> int | None:
    """How many nodes were started together; None when nobody says so."""
    if count := _first(variables, NODES):
        return count
    every, local = _first(variables, SIZES), _first(variables, LOCAL_SIZES)
    return every // local if every and local else every


def meet(host: Host, folder: str, count: int, limit_s: float, subject: Subject) -> None:
    """Try the links to all other nodes, and keep what came of it as an answer of this host."""
    meeting = os.path.join(folder, MEETING)
    os.makedirs(meeting, exist_ok=True)
    rows = subject.get(Interfaces)
    values = subject.get(Environ)
    capture = Capture(operation="links", arguments={}, version=VERSIONS["links"])
    if isinstance(rows, Missing):
        error = {"code": "failed", "message": f"the interfaces are not known: {rows.reason}"}
        capture = replace(capture, error=error)
    else:
        variables = {} if isinstance(values, Missing) else values.variables
        addresses = [
            row.address
            for interface in leading(rows, variables)
            for row in interface.addresses
            if ":" not in row.address
        ]
        try:
            found = links(meeting, socket.gethostname(), addresses, count, limit_s)
            capture = replace(capture, value=found)
        except (OSError, ValueError) as error:
            capture = replace(capture, error={"code": "failed", "message": str(error)})
    host.captures[capture.key] = capture


def machine_mark() -> str | None:
    """A mark of this running kernel, which tells nothing of it."""
    try:
        with open(BOOT, "rb") as file:
            return hashlib.sha256(file.read().strip()).hexdigest()[:12]
    except OSError:
        return None


def write(text: str, folder: str, machine: str | None, number: int | None) -> str:
    """Write the snapshot under the host's name; the path. A file is whole or not there.

    A file of another machine with the same host name is kept, and this one gets its rank's number.
    """
    os.makedirs(folder, exist_ok=True)
    name = re.sub(r"[^\w.-]", "_", socket.gethostname()).lstrip(".") or "node"
    path = os.path.join(folder, f"{name}.json")
    other = _machine_of(path)
    if other is not None and machine is not None and other != machine:
        path = os.path.join(folder, f"{name}-{number if number is not None else machine}.json")
    part = os.path.join(folder, f".{os.path.basename(path)}.{os.getpid()}")
    try:
        with open(part, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.replace(part, path)
    except OSError:
        if os.path.lexists(part):
            os.unlink(part)
        raise
    return path


def _machine_of(path: str) -> str | None:
    """The mark in a snapshot that is there already."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = re.search(r'"machine": ("[0-9a-f]+")', file.read(4096))
    except OSError:
        return None
    return str(json.loads(found[1])) if found else None
