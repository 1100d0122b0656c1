"""A container unit of Podman (quadlet) -> the engine that its container starts.

Read are the keys of podman-systemd.unit(5), section [Container], as the `podman run` that they become.
"""

from __future__ import annotations

import re

from infer_doctor.launch.command import Around, launches
from infer_doctor.launch.inside import Read
from infer_doctor.launch.model import Launch, Place, Word
from infer_doctor.launch.systemd import lines, split

SECTION = re.compile(r"^\[Container\]\s*$", re.M)
OPTIONS = {
    "AddDevice": "--device",
    "ContainerName": "--name",
    "Entrypoint": "--entrypoint",
    "Environment": "--env",
    "EnvironmentFile": "--env-file",
    "Memory": "--memory",
    "Mount": "--mount",
    "Network": "--network",
    "PublishPort": "--publish",
    "ShmSize": "--shm-size",
    "Tmpfs": "--tmpfs",
    "Ulimit": "--ulimit",
    "User": "--user",
    "Volume": "--volume",
    "WorkingDir": "--workdir",
}


def is_container(text: str) -> bool:
    return SECTION.search(text) is not None and "Image=" in text


def read(text: str, file: str, beside: Read | None = None) -> list[Launch]:
    """What the container starts."""
    options: list[Word] = []
    image: list[Word] = []
    arguments: list[Word] = []
    for section, key, value, line in lines(text):
        place = Place(file=file, line=line)
        if section == "Service" and key == "Restart" and value != "no":
            options += [Word(text=word, place=place) for word in ("--restart", value)]
        if section != "Container":
            continue
        if key == "Image":
            image = [Word(text=value, place=place)]
        elif key == "Exec":
            arguments = list(split(value, place)) if value else []
        elif key == "PodmanArgs":
            options += split(value, place)
        elif key == "Secret":
            options += _secret(value, place)
        elif key in OPTIONS:
            words = split(value, place) if key == "Environment" else [Word(text=value, place=place)]
            for word in words:
                options += [Word(text=OPTIONS[key], place=place), word]
    if not image:
        return []
    start = [Word(text=word, place=image[0].place) for word in ("podman", "run")]
    around = Around(name=file, kind="systemd", machine="another", read=beside)
    found = launches([*start, *options, *image, *arguments], around)
    return [row for row in found if row.engine is not None]


def _secret(value: str, place: Place) -> list[Word]:
    """NAME,type=env,target=VARIABLE: a variable whose value is not here."""
    name, _, rest = value.partition(",")
    fields = dict(part.partition("=")[::2] for part in rest.split(","))
    if fields.get("type") != "env":
        return []
    variable = fields.get("target") or name
    texts = ("--env", f"{variable}=$SECRET")
    return [Word(text=texts[0], place=place), Word(text=texts[1], place=place, unknown=value)]
