"""Ports and shared memory: small answers with the numbers of the case."""

from __future__ import annotations

import math
from collections.abc import Callable

from infer_doctor.facts.memory import SHM
from infer_doctor.fixes.log import cure
from infer_doctor.logs.answers import Answer, number
from infer_doctor.logs.figures import count
from infer_doctor.logs.story import Hit, Start

LAST_PORT = 65_535

SHM_FLOOR_GIB = 1
"""NVIDIA's images recommend at least 1 GiB."""


def port(hit: Hit, start: Start) -> Answer:
    """Which port, and whether it is the server's own: the engine also uses others between ranks."""
    found = hit.match.groupdict().get("port")
    if not 0 < count(found) <= LAST_PORT:
        found = None
    served = start.values.get("port")
    if not found:
        return Answer(
            message="a port that the engine wants is taken by another process",
            fixes=(
                cure(
                    "find-port-holder",
                    "Find who listens, and end it or choose another --port",
                    "ss -ltnp",
                ),
            ),
        )
    other = int(found) + 1 if int(found) < LAST_PORT else int(found) - 1
    end = cure(
        "find-port-holder",
        f"Find who holds port {found} and end it if it is an old server",
        f"ss -ltnp 'sport = :{found}'",
    )
    service = (hit.match.groupdict().get("service") or "").lower()
    if not service and "chttp2_server" in hit.text:
        service = "grpc"
    change = cure("other-port", f"Or start with --{service + '-' if service else ''}port {other}")
    if "already allocated" in hit.text:
        change = cure("other-port", f"Or publish another port of the host: -p {other}:PORT")
    if served and served != found:
        change = cure(
            "other-port",
            "Or set MASTER_PORT or VLLM_PORT to a free range: this is no port of "
            f"the API, which is {served}",
        )
    return Answer(
        message=f"port {found} is taken by another process",
        fixes=(end, change),
        values={"port": found},
    )


def shm(hit: Hit, start: Start) -> Answer:
    """The size that the engine names, else what NVIDIA recommends."""
    need, free, size = (number(hit, name) for name in ("need", "free", "size"))
    ranks = int(start.number_of("tensor_parallel_size") or 1)
    wanted = max(SHM_FLOOR_GIB, math.ceil((need or 0) * (ranks + 1) / 1024))
    if need is None:
        fix = cure(
            "enlarge-shm",
            "Start the container with --ipc=host, or with a --shm-size above what df -h /dev/shm shows now",
            text="in Kubernetes: an emptyDir with medium: Memory at /dev/shm, without a sizeLimit of 64Mi",
        )
    else:
        fix = cure(
            "enlarge-shm",
            f"Start the container with --shm-size={wanted}g or --ipc=host",
            text=f"in Kubernetes: an emptyDir with medium: Memory and sizeLimit {wanted}Gi at /dev/shm",
        )
    message = None
    if need is not None and free is not None:
        message = f"{SHM} has {free:g} MiB free; {need:g} MiB are needed"
    elif size:
        message = f"NCCL could not make a segment of {size / (1 << 20):.1f} MiB in {SHM}"
    return Answer(message=message, fixes=(fix,))


FUNCTIONS: dict[str, Callable[[Hit, Start], Answer]] = {
    "port": port,
    "shm": shm,
}
