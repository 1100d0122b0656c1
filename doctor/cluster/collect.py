"""One file a node, written where all ranks can write: `snapshot --to DIR` under mpirun or srun."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
from collections.abc import Mapping

from infer_doctor.engine import Subject
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.facts.network import ClockState, GpuDirect, Interfaces, OwnName
from infer_doctor.facts.vllm_options import VllmSources

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
