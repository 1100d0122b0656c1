"""One file a node, written where all ranks can write: `snapshot --to DIR` under mpirun or srun."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from infer_doctor.engine import Subject
from infer_doctor.facts.chosen import ChosenGpus, left_out
from infer_doctor.facts.environment import Interpreter
from infer_doctor.facts.gpu import GpuMemory, GpuProcesses, Gpus
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.facts.network import (
    ClockState,
    GpuDirect,
    Interfaces,
    OwnName,
    RdmaRates,
    leading,
)
from infer_doctor.facts.visible import VisibleDevices
from infer_doctor.facts.vllm_options import VllmSources
from infer_doctor.frozen import frozen
from infer_doctor.hands import VERSIONS
from infer_doctor.hands.allreduce import allreduce, offer, plan
from infer_doctor.hands.links import links
from infer_doctor.host import Capture, Host
from infer_doctor.launch.model import Launch
from infer_doctor.model import Missing
from infer_doctor.units import gib

FACTS = (VllmSources, ModelFiles)
"""What checks ask for only with a launch, for one that the snapshot is judged with later."""

CLUSTER_FACTS = (Interfaces, ClockState, GpuDirect, OwnName, RdmaRates)
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

NETWORK_VARIABLE = re.compile(r"(?:NCCL|GLOO|UCX)_\w+|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER")
"""What a launch sets itself and that decides how ranks reach each other."""

IDLE_BYTES = 1 << 30
"""More is no monitor and no display: an H200 without work holds nothing, a bare CUDA context half a GiB,
an engine its weights."""

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
    """Try the links to all other nodes and a sum with them; what came of it are answers of this host."""
    meeting = os.path.join(folder, MEETING)
    os.makedirs(meeting, exist_ok=True)
    part = part_of(subject)
    if isinstance(part, Missing):
        for operation in ("links", "allreduce"):
            keep(host, operation, error=f"the interfaces are not known: {part.reason}")
        return
    try:
        name = f"{socket.gethostname()}.{machine_mark()}"  # host names may be equal
        found, offers = links(meeting, name, part.offer(), count, limit_s)
    except (OSError, ValueError) as error:
        keep(host, "links", error=str(error))
        keep(host, "allreduce", error="the nodes did not meet")
        return
    keep(host, "links", value=found)
    if found["met"] < count:
        late = f"{found['met']} of {count} nodes met: the others came too late"
        keep(host, "allreduce", error=late)
        return
    keep(host, "allreduce", **part.add_up(offers, found["own"], limit_s))


def keep(
    host: Host, operation: str, *, value: dict[str, Any] | None = None, error: str | None = None
) -> None:
    """An answer that no question to the host gave."""
    wrong = {"code": "failed", "message": error} if error is not None else None
    capture = Capture(
        operation=operation, arguments={}, version=VERSIONS[operation], value=value, error=wrong
    )
    host.captures[capture.key] = capture


@frozen
class Part:
    """What a node brings to a meeting; the engine's interpreter, unless `lacking` says why not."""

    addresses: tuple[str, ...]
    gpus: int
    python: str
    folders: tuple[str, ...]
    variables: Mapping[str, str]
    """What the launch itself sets for its network."""
    lacking: str | None

    def offer(self) -> dict[str, Any]:
        """What it tells the others, with a port that is free now."""
        addresses = list(self.addresses)
        return {"addresses": addresses, **offer(self.gpus, able=self.lacking is None)}

    def add_up(
        self, offers: Sequence[Mapping[str, Any]], own: int, limit_s: float
    ) -> dict[str, Any]:
        """Its part in the sum over all: {"value": ...}, or {"error": why there is none}."""
        if self.lacking is not None:
            return {"error": self.lacking}
        part = plan(offers, own)
        if part is None:
            return {"value": {"counts": None}}
        addresses = [row["addresses"] for row in offers]
        try:
            found = allreduce(part, self.python, self.folders, self.variables, addresses, limit_s)
        except (OSError, ValueError) as error:
            return {"error": str(error)}
        return {"value": found}


def part_of(subject: Subject) -> Part | Missing:
    """What this node brings to a meeting; Missing when its interfaces are not known."""
    rows: Interfaces | Missing = subject.get(Interfaces)
    if isinstance(rows, Missing):
        return rows
    values, launch = subject.get(Environ), subject.get(Launch)
    variables = {} if isinstance(values, Missing) else dict(values.variables)
    given = () if isinstance(launch, Missing) else launch.environment
    own = {row.name: row.value for row in given if row.value is not None}
    addresses = [
        row.address
        for interface in leading(rows, variables | own)
        for row in interface.addresses
        if ":" not in row.address
    ]
    python: Interpreter | Missing = subject.get(Interpreter)
    return Part(
        addresses=tuple(addresses),
        gpus=_gpus(subject),
        python="" if isinstance(python, Missing) else python.executable,
        folders=() if isinstance(python, Missing) else python.folders,
        variables={name: value for name, value in own.items() if NETWORK_VARIABLE.fullmatch(name)},
        lacking=f"the engine's interpreter is not known: {python.reason}"
        if isinstance(python, Missing)
        else _busy(subject),
    )


def _busy(subject: Subject) -> str | None:
    """Why a sum would disturb an engine that runs: on the GPUs that would be taken somebody works.

    A container sees no processes of others, so the memory counts too; one that is not known may be in
    use.
    """
    found, memory, chosen = (subject.get(kind) for kind in (GpuProcesses, GpuMemory, ChosenGpus))
    processes = () if isinstance(found, Missing) else found.processes
    holders = {row.gpu: row.pid for row in processes}
    if isinstance(memory, Missing):
        return (
            None if memory.kind == "absent" else f"what the GPUs hold is not known: {memory.reason}"
        )
    for row in memory.rows:
        if left_out(row.index, None if isinstance(chosen, Missing) else chosen):
            continue
        if row.used > IDLE_BYTES:
            pid = f" by process {holders[row.index]}" if row.index in holders else ""
            return (
                f"GPU {row.index} holds {gib(row.used)}{pid}: a sum would disturb what runs there"
            )
    return None


def _gpus(subject: Subject) -> int:
    """How many GPUs the engine would take on this node."""
    found, visible, chosen = (subject.get(kind) for kind in (Gpus, VisibleDevices, ChosenGpus))
    if not isinstance(chosen, Missing):
        return len(chosen.indices)
    if not isinstance(visible, Missing):
        return len(visible.entries)
    return 0 if isinstance(found, Missing) else len(found.gpus)


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
    part = os.path.join(folder, f".{os.path.basename(path)}.{machine}.{os.getpid()}")
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
