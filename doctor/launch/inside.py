"""What docker run and Compose share: mounts, ports, variables, and files seen from the inside."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence

from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Place, Port, Variable, Volume
from infer_doctor.launch.shell import env_lines

Read = Callable[[str], str]

PORT = re.compile(
    r"(?:(?:(?P<address>\[[^]]+\]|[\d.]+):)?(?P<host>\d{1,5}(?:-\d{1,5})?)?:)?"
    r"(?P<container>\d{1,5})(?:-\d{1,5})?(?:/\w+)?"
)


def bound(read: Read | None, volumes: Sequence[Volume]) -> Read | None:
    """A reader of paths inside a container: those that lie in a bind mount."""
    if read is None:
        return None

    def inside(path: str) -> str:
        for volume in volumes:
            if volume.kind != "bind" or not volume.source or "$" in volume.source:
                continue
            rest = posixpath.relpath(path, volume.target) if path.startswith("/") else ".."
            if not rest.startswith(".."):
                return read(volume.source if rest == "." else f"{volume.source}/{rest}")
        raise Unavailable("lies in the image and was not read")

    return inside


def mount(text: str, place: Place) -> Volume | None:
    """SOURCE:TARGET:OPTIONS of -v and Compose's short form."""
    parts = text.split(":")
    if len(parts) == 1:
        return Volume(kind="volume", target=text, place=place) if text else None
    source, target = parts[0], parts[1]
    options = parts[2].split(",") if len(parts) > 2 else []
    kind = "bind" if source.startswith(("/", ".", "~", "$")) else "volume"
    return Volume(kind=kind, target=target, source=source, read_only="ro" in options, place=place)


def port(text: str, place: Place) -> Port | None:
    """ADDRESS:HOST:CONTAINER/tcp."""
    found = PORT.fullmatch(text)
    if found is None:
        return None
    host = found["host"]
    return Port(
        container=int(found["container"]),
        host=int(host.partition("-")[0]) if host else None,
        address=(found["address"] or "").strip("[]") or None,
        place=place,
    )


def assignment(text: str, place: Place, unknown: str | None = None) -> Variable:
    """NAME=value; a name alone takes the value of the shell that starts the container."""
    name, equals, value = text.partition("=")
    if not equals:
        return Variable(name=name, value=None, place=place, source="shell")
    return Variable(name=name, value=None if unknown else value, place=place, source=unknown)


def env_file(path: str, read: Read | None, place: Place) -> list[Variable]:
    """The variables of a file; one that cannot be read may set any."""
    try:
        if read is None or "$" in path:
            raise Unavailable("was not read")
        text = read(path)
    except Unavailable:
        return [Variable(name="*", value=None, place=place, source=path)]
    return [
        Variable(name=name, value=value, place=Place(file=path, line=line))
        for name, value, line in env_lines(text)
    ]
