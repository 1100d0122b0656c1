"""A Docker Compose file -> one Launch for each service that starts an engine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace

from infer_doctor.host import Unavailable
from infer_doctor.launch.command import Around, launches
from infer_doctor.launch.docker_run import docker_probe
from infer_doctor.launch.document import Broken, Node, documents
from infer_doctor.launch.images import entrypoint
from infer_doctor.launch.inside import Read, assignment, bound, env_file, mount, port
from infer_doctor.launch.model import (
    Container,
    HealthProbe,
    Launch,
    Place,
    Port,
    Unknown,
    Variable,
    Volume,
    Word,
)
from infer_doctor.launch.quantities import docker_size, go_time, quantity
from infer_doctor.launch.shell import env_lines

EXPRESSION = re.compile(
    r"\$(?:(\$)|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-+?])((?:[^{}]|\{[^{}]*\})*))?\})"
)
DEEPEST = 8
"""Services that extend one another."""


def is_compose(node: Node) -> bool:
    """`services` holds mappings of which one has an image, a build or something to extend."""
    services = node.get("services")
    return bool(services) and any(
        row.get(key) is not None
        for _, row in (services.items() if services else [])
        for key in ("image", "build", "extends")
    )


def read(node: Node, file: str, beside: Read | None = None) -> list[Launch]:
    """The services that start an engine; raises Broken."""
    return _File(node, file, beside).launches()


class _File:
    def __init__(self, node: Node, file: str, beside: Read | None) -> None:
        self._node = node
        self._file = file
        self._read = beside
        self._known: dict[str, str] = {}
        try:
            if beside is not None:
                self._known = {name: value for name, value, _ in env_lines(beside(".env"))}
        except Unavailable:
            pass

    def launches(self) -> list[Launch]:
        found: list[Launch] = []
        services = self._node.get("services")
        for name, service in services.items() if services else []:
            found += self._service(name, self._extended(name, service, 0))
        return found

    def _extended(self, name: str, service: Node, depth: int) -> Node:
        """The service over the one that it extends; lists of options add up, all else replaces."""
        extends = service.get("extends")
        if extends is None or not service.is_map:
            return service
        if depth > DEEPEST:
            raise Broken(f"{self._file}:{service.line}: {name} extends itself")
        base_name = extends.text("service") or (extends.string if not extends.is_map else "")
        other = extends.text("file")
        services = self._node.get("services")
        try:
            if other is not None:
                text = self._read(other) if self._read else ""
                roots = documents(text, other)
                services = roots[0].get("services") if roots else None
            base = services.get(base_name) if services else None
            base = self._extended(base_name, base, depth + 1) if base else None
        except Unavailable:
            base = None
        if base is None or not base.is_map:
            return service
        merged = Node(_over(base, service), service.file, service.line)
        merged.key_line = service.key_line
        return merged

    def _put_in(self, text: str) -> tuple[str, str | None]:
        """Variables put in; and the first expression whose value is not known."""
        unknown: list[str] = []

        def value(match: re.Match[str]) -> str:
            if match[1]:
                return "$"
            name, operator, rest = match[2] or match[3], match[4] or "", match[5] or ""
            known = self._known.get(name)
            if operator.endswith("-") and (known is None or (not known and operator[0] == ":")):
                if not rest:  # ${NAME:-}: left to the shell that starts it
                    unknown.append(match[0])
                    return match[0]
                return self._put_in(rest)[0] if "$" in rest else rest
            if operator.endswith("+"):
                return rest if known else ""
            if known is None:
                unknown.append(match[0])
                return match[0]
            return known

        done = EXPRESSION.sub(value, text)
        return done, unknown[0] if unknown else None

    def _words(self, node: Node | None) -> tuple[Word, ...] | None:
        """A list as it is; a text cut like a command line, without a shell. None: not there."""
        if node is None or node.is_map:
            return None
        if node.is_list:
            return tuple(self._word(item, item.first()) for item in node.value if not item.is_map)
        text = node.string
        try:
            pieces = shlex.split(text)
        except ValueError:
            raise Broken(f"{node.file}:{node.line}: a quotation mark is not closed") from None
        return tuple(
            self._word(Node(piece, node.file, place.line or 1), place)
            for piece, place in zip(pieces, node.lines(pieces), strict=True)
        )

    def _word(self, node: Node, place: Place) -> Word:
        text, unknown = self._put_in(node.string)
        return Word(text=text, place=place, unknown=unknown or node.unknown)

    def _text(self, node: Node, *path: str) -> str | None:
        found = node.text(*path)
        return None if found is None else self._put_in(found)[0]

    def _service(self, name: str, service: Node) -> list[Launch]:
        if not service.is_map:
            return []
        place = service.place(key=True)
        image = self._text(service, "image")
        own, command = self._words(service.get("entrypoint")), self._words(service.get("command"))
        arguments = command or ()
        if own is None:
            image_node = service.get("image")
            own = entrypoint(image, arguments, image_node.place() if image_node else place)
        container = self._container(name, service, image, place)
        around = Around(
            name=f"{self._file}: {name}",
            kind="compose",
            machine="another",
            container=container,
            folder=self._text(service, "working_dir"),
            read=bound(self._read, container.volumes),
        )
        found = launches((*own, *arguments), around, tuple(self._environment(service)))
        return [replace(row, place=place) for row in found if row.engine is not None]

    def _environment(self, service: Node) -> list[Variable]:
        found: list[Variable] = []
        files = service.get("env_file")
        rows = files.value if files and files.is_list else [files] if files else []
        for row in rows:
            path = row.text("path") if row.is_map else row.string
            if path:
                found += env_file(self._put_in(path)[0], self._read, row.place())
        given = service.get("environment")
        for item in service.list("environment"):
            text, unknown = self._put_in(item.string)
            found.append(assignment(text, item.place(), unknown))
        for name, node in given.items() if given else []:
            if node.value is None:
                found.append(
                    Variable(name=name, value=None, place=node.place(key=True), source="shell")
                )
                continue
            text, unknown = self._put_in(node.string)
            unknown = unknown or node.unknown
            found.append(
                Variable(
                    name=name,
                    value=None if unknown else text,
                    place=node.place(key=True),
                    source=unknown,
                )
            )
        return found

    def _container(self, name: str, service: Node, image: str | None, place: Place) -> Container:
        gpus, gpu_place, devices = self._gpus(service)
        memory = service.get("deploy", "resources", "limits", "memory") or service.get("mem_limit")
        cpu = service.get("deploy", "resources", "limits", "cpus") or service.get("cpus")
        shm = service.get("shm_size")
        image_node = service.get("image")
        ulimits = service.get("ulimits")
        replicas = self._text(service, "deploy", "replicas") or self._text(service, "scale")
        return Container(
            platform="compose",
            name=self._text(service, "container_name") or name,
            image=image,
            image_place=image_node.place() if image_node else None,
            gpus=gpus,
            gpu_place=gpu_place,
            gpu_devices=devices,
            other_devices=tuple(
                row.string for row in service.list("devices") if not row.is_map and not row.is_list
            ),
            memory_limit=docker_size(self._put_in(memory.string)[0]) if memory else None,
            memory_place=memory.place() if memory else None,
            cpu_limit=quantity(self._put_in(cpu.string)[0]) if cpu else None,
            cpu_place=cpu.place() if cpu else None,
            shm_size=docker_size(self._put_in(shm.string)[0]) if shm else None,
            shm_place=shm.place() if shm else None,
            ipc=self._text(service, "ipc"),
            network=self._text(service, "network_mode"),
            privileged=self._text(service, "privileged") == "true",
            user=self._text(service, "user"),
            restart=self._text(service, "restart"),
            runtime=self._text(service, "runtime"),
            volumes=tuple(self._volumes(service)),
            ports=tuple(self._ports(service)),
            probes=tuple(self._health(service)),
            ulimits=tuple(
                (key, node.text("hard") or node.text("soft") or "" if node.is_map else node.string)
                for key, node in (ulimits.items() if ulimits else [])
            ),
            replicas=int(replicas) if replicas and replicas.isdigit() else None,
            termination_grace_s=go_time(self._text(service, "stop_grace_period")),
            place=place,
        )

    def _gpus(
        self, service: Node
    ) -> tuple[int | str | Unknown | None, Place | None, tuple[str, ...]]:
        """deploy.resources.reservations.devices, and `gpus` of newer versions."""
        short = service.get("gpus")
        rows = service.list("deploy", "resources", "reservations", "devices")
        rows += service.list("gpus")
        if short is not None and not short.is_list:
            return self._count(short), short.place(key=True), ()
        for row in rows:
            kinds = [item.string for item in row.list("capabilities")]
            driver = row.text("driver") or "nvidia"
            if "gpu" not in kinds and row.get("driver") is None:
                continue
            if not driver.startswith(("nvidia", "cdi")):
                continue
            ids = tuple(self._put_in(item.string)[0] for item in row.list("device_ids"))
            if ids:
                single = {part.strip() for one in ids for part in one.split(",")}
                known: int | str | Unknown = len(single)  # a GPU that is named twice is one GPU
                if any("$" in one for one in ids):
                    known = Unknown(", ".join(ids))
                elif "all" in single:
                    known = "all"
                return known, row.place(), ids
            count = row.get("count")
            return ("all" if count is None else self._count(count)), row.place(), ()
        return None, None, ()

    def _count(self, node: Node) -> int | str | Unknown:
        text, unknown = self._put_in(node.string)
        if unknown or node.unknown:
            return Unknown(text)
        return "all" if text in ("all", "-1") else int(text) if text.isdigit() else Unknown(text)

    def _volumes(self, service: Node) -> list[Volume]:
        rows: list[Volume | None] = []
        for node in service.list("volumes"):
            if not node.is_map:
                rows.append(mount(self._put_in(node.string)[0], node.place()))
                continue
            if target := self._text(node, "target"):
                rows.append(
                    Volume(
                        kind=node.text("type") or "volume",
                        target=target,
                        source=self._text(node, "source"),
                        size=docker_size(self._text(node, "tmpfs", "size")),
                        read_only=node.text("read_only") == "true",
                        place=node.place(),
                    )
                )
        tmpfs = service.get("tmpfs")
        for node in service.list("tmpfs") or ([tmpfs] if tmpfs and not tmpfs.is_list else []):
            target, _, rest = node.string.partition(":")
            size = re.search(r"size=(\w+)", rest)
            rows.append(
                Volume(
                    kind="tmpfs",
                    target=target,
                    size=docker_size(size[1]) if size else None,
                    place=node.place(),
                )
            )
        return [row for row in rows if row is not None]

    def _ports(self, service: Node) -> list[Port]:
        rows: list[Port | None] = []
        for node in service.list("ports"):
            if not node.is_map:
                row = port(self._put_in(node.string)[0], node.place())
                rows.append(replace(row, written=node.string) if row else None)
                continue
            target, published = self._text(node, "target"), self._text(node, "published")
            if target and target.isdigit():
                rows.append(
                    Port(
                        container=int(target),
                        host=int(published) if published and published.isdigit() else None,
                        address=self._text(node, "host_ip"),
                        place=node.place(),
                    )
                )
        return [row for row in rows if row is not None]

    def _health(self, service: Node) -> list[HealthProbe]:
        node = service.get("healthcheck")
        if node is None or node.text("disable") == "true":
            return []
        test = node.get("test")
        words = [row.string for row in test.value] if test and test.is_list else []
        text = " ".join(words[1:]) if words else test.string if test else ""
        if not text or words[:1] == ["NONE"]:
            return []
        names = ("interval", "timeout", "retries")
        fields: dict[str, str] = {key: node.text(key) or "" for key in names}
        fields["start-period"] = node.text("start_period") or ""
        return [docker_probe(text, fields, node.place(key=True))]


def _over(base: Node, own: Node) -> Mapping[str, Node]:
    merged = dict(base.value)
    for name, node in own.items():
        under = merged.get(name)
        if name == "environment" and under is not None:
            node = Node(_pairs(under) | _pairs(node), node.file, node.line)
        elif name in ("volumes", "ports") and under is not None and under.is_list and node.is_list:
            node = Node([*under.value, *node.value], node.file, node.line)
        merged[name] = node
    merged.pop("extends", None)
    return merged


def _pairs(node: Node) -> dict[str, Node]:
    """An environment as a mapping, whichever of its two forms it has."""
    if node.is_map:
        return dict(node.value)
    rows: dict[str, Node] = {}
    for item in node.value if node.is_list else []:
        name, equals, value = item.string.partition("=")
        rows[name] = Node(value if equals else None, item.file, item.line)
    return rows
