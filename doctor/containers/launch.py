"""`docker inspect` -> the Launch that the container is, as if it stood in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infer_doctor.facts.docker import variables_of, wants_gpus
from infer_doctor.launch.command import Around, launches
from infer_doctor.launch.model import Container, Launch, Place, Port, Variable, Volume, Word

SHM_DEFAULT = 64 << 20


def launch_of(found: Mapping[str, Any], image: Mapping[str, Any]) -> Launch | None:
    """The engine that the container starts; None when it starts none."""
    name = str(found.get("Name", "")).lstrip("/")
    place = Place(file=f"docker inspect {name}")
    words = [str(found.get("Path") or ""), *map(str, found.get("Args") or ())]
    config, host = found.get("Config") or {}, found.get("HostConfig") or {}
    container = _container(name, config, host, found.get("Mounts") or (), place)
    around = Around(
        name=f"container {name}",
        kind="docker-run",
        machine="another",
        container=container,
        folder=config.get("WorkingDir") or None,
    )
    own = variables_of((image.get("Config") or {}).get("Env"))
    given = variables_of(config.get("Env"))
    # What the image brings says nothing of how the container was started: all CUDA images set
    # NVIDIA_VISIBLE_DEVICES.
    variables = [
        Variable(name=key, value=value, place=place)
        for key, value in given.items()
        if own.get(key) != value
    ]
    started = launches([Word(text=word, place=place) for word in words if word], around, variables)
    return next((row for row in started if row.engine is not None), None)


def image_launch_words(image: Mapping[str, Any]) -> list[str]:
    """What the image starts."""
    config = image.get("Config") or {}
    return [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())]


def _container(
    name: str,
    config: Mapping[str, Any],
    host: Mapping[str, Any],
    mounts: Sequence[Mapping[str, Any]],
    place: Place,
) -> Container:
    count, devices = _gpus(host)
    image = str(config.get("Image") or "")
    return Container(
        platform="docker",
        name=name,
        image=image,
        image_place=place,
        gpus=count,
        gpu_place=place if count is not None else None,
        gpu_devices=devices,
        memory_limit=host.get("Memory") or None,
        memory_place=place,
        shm_size=host.get("ShmSize") or SHM_DEFAULT,
        shm_place=place,
        ipc=host.get("IpcMode") or None,
        network=host.get("NetworkMode") or None,
        privileged=bool(host.get("Privileged")),
        user=config.get("User") or None,
        restart=(host.get("RestartPolicy") or {}).get("Name") or None,
        runtime=host.get("Runtime") or None,
        volumes=tuple(_volumes(host, mounts, place)),
        ports=tuple(_ports(host, place)),
        ulimits=tuple(
            (str(row.get("Name")), f"{row.get('Soft')}:{row.get('Hard')}")
            for row in host.get("Ulimits") or ()
        ),
        place=place,
    )


def _gpus(host: Mapping[str, Any]) -> tuple[int | str | None, tuple[str, ...]]:
    for request in host.get("DeviceRequests") or ():
        devices = tuple(str(word) for word in request.get("DeviceIDs") or ())
        count = request.get("Count")
        if devices:
            return len(devices), devices
        if count == -1:
            return "all", ()
        if isinstance(count, int) and count > 0:
            return count, ()
    return ("all", ()) if wants_gpus(host) else (None, ())


def _volumes(
    host: Mapping[str, Any], mounts: Sequence[Mapping[str, Any]], place: Place
) -> list[Volume]:
    rows = [
        Volume(
            kind=str(row.get("Type") or "unknown"),
            target=str(row.get("Destination") or ""),
            source=row.get("Source") or row.get("Name"),
            read_only=row.get("RW") is False,
            place=place,
        )
        for row in mounts
    ]
    rows += [Volume(kind="tmpfs", target=path, place=place) for path in host.get("Tmpfs") or {}]
    return rows


def _ports(host: Mapping[str, Any], place: Place) -> list[Port]:
    rows = []
    for inside, outside in (host.get("PortBindings") or {}).items():
        number = inside.partition("/")[0]
        for row in outside or ():
            if number.isdigit():
                port = str(row.get("HostPort") or "")
                rows.append(
                    Port(
                        container=int(number),
                        host=int(port) if port.isdigit() else None,
                        address=row.get("HostIp") or None,
                        place=place,
                    )
                )
    return rows
