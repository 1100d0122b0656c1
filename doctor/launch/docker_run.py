"""`docker run`, `podman run`, `nerdctl run`: options, image and arguments -> Launch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from infer_doctor.launch.command import Around, Start
from infer_doctor.launch.command import launches as launches_of
from infer_doctor.launch.images import entrypoint
from infer_doctor.launch.inside import assignment, bound, env_file, mount, port
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
from infer_doctor.launch.quantities import docker_size, go_time

FLAGS = frozenset(
    [
        "--detach",
        "--interactive",
        "--tty",
        "--rm",
        "--init",
        "--privileged",
        "--publish-all",
        "--read-only",
        "--quiet",
        "--no-healthcheck",
        "--oom-kill-disable",
        "--sig-proxy",
        "--disable-content-trust",
        "--replace",
    ]
)
"""Options without a value (docs.docker.com/reference/cli/docker/container/run); all others take the
next word or stand with `=`."""

SHORT_FLAGS = re.compile(r"-[ditPq]+")

SHORT = {
    "-e": "--env",
    "-v": "--volume",
    "-p": "--publish",
    "-u": "--user",
    "-w": "--workdir",
    "-m": "--memory",
    "--net": "--network",
}
SUB_COMMANDS = ("run", "create")


class Options:
    """The options of one `docker run`, short ones by their long names."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.rows: list[tuple[str, Word]] = []
        at = 0
        while at < len(words) and words[at].text.startswith("-"):
            word = words[at]
            at += 1
            if word.text == "--":
                break
            name, equals, value = word.text.partition("=")
            if name in FLAGS or SHORT_FLAGS.fullmatch(word.text):
                self.rows.append((name, replace(word, text=value if equals else "true")))
            elif name[:2] in SHORT and len(name) > 2 and not name.startswith("--"):
                self.rows.append((SHORT[name[:2]], replace(word, text=word.text[2:].lstrip("="))))
            elif equals:
                self.rows.append((SHORT.get(name, name), replace(word, text=value)))
            elif at < len(words):
                self.rows.append((SHORT.get(name, name), words[at]))
                at += 1
        self.rest = tuple(words[at:])

    def all(self, *names: str) -> list[Word]:
        return [word for name, word in self.rows if name in names]

    def last(self, name: str) -> Word | None:
        found = self.all(name)
        return found[-1] if found else None

    def text(self, name: str) -> str | None:
        word = self.last(name)
        return word.text if word else None


def launches(
    start: Start, around: Around, environment: Sequence[Variable], place: Place
) -> list[Launch]:
    """What the container starts; nothing for other sub-commands, such as `docker build`."""
    words = start.words[1:] if [w.text for w in start.words[:1]] == ["container"] else start.words
    if not words or words[0].text not in SUB_COMMANDS:
        return []
    options = Options(words[1:])
    if not options.rest:
        return []
    image, arguments = options.rest[0], options.rest[1:]
    container = _container(options, image, place)
    given = options.last("--entrypoint")
    program = entrypoint(image.text, arguments, image.place)
    if given is not None:
        program = tuple(word for word in (given,) if word.text)
    whole = (*program, *arguments)
    gap = f"what the image {image.text} starts is not known"
    inner = replace(
        around,
        kind="docker-run",
        machine="another",
        container=container,
        folder=options.text("--workdir"),
        gaps=around.gaps if whole else (*around.gaps, gap),
        read=bound(around.read, container.volumes),
    )
    variables: list[Variable] = []
    for word in options.all("--env-file"):
        variables += env_file(word.text, around.read, word.place)
    outer = {row.name: row for row in (*environment, *start.environment)}
    for word in options.all("--env"):
        row = assignment(word.text, word.place, word.unknown)
        shell = outer.get(row.name) if row.source == "shell" else None
        variables.append(replace(row, value=shell.value) if shell else row)
    return launches_of(whole, inner, variables)


def _container(options: Options, image: Word, place: Place) -> Container:
    gpus = options.last("--gpus")
    devices = [word.text for word in options.all("--device")]
    nvidia = [d for d in devices if d.startswith("nvidia.com/gpu")]
    memory, shm = options.last("--memory"), options.last("--shm-size")
    count, chosen = _gpus(gpus)
    if gpus is None and nvidia:
        count = "all" if any(d.endswith("=all") for d in nvidia) else len(nvidia)
    return Container(
        platform="docker",
        name=options.text("--name") or image.text,
        image=image.text,
        image_place=image.place,
        gpus=count,
        gpu_place=gpus.place if gpus else None,
        gpu_devices=chosen,
        other_devices=tuple(d for d in devices if "nvidia" not in d),
        memory_limit=docker_size(memory.text) if memory else None,
        memory_place=memory.place if memory else None,
        shm_size=docker_size(shm.text) if shm else None,
        shm_place=shm.place if shm else None,
        ipc=options.text("--ipc"),
        network=options.text("--network"),
        privileged=options.text("--privileged") in ("true", ""),
        user=options.text("--user"),
        restart=options.text("--restart"),
        runtime=options.text("--runtime"),
        volumes=tuple(_volumes(options)),
        ports=tuple(_ports(options)),
        probes=tuple(_health(options)),
        ulimits=tuple(
            (name, value)
            for word in options.all("--ulimit")
            for name, _, value in (word.text.partition("="),)
        ),
        place=place,
    )


def _gpus(word: Word | None) -> tuple[int | str | Unknown | None, tuple[str, ...]]:
    """all, 2, device=0,1, "device=0,1", capabilities=...,count=2."""
    if word is None:
        return None, ()
    if word.unknown is not None:
        return Unknown(word.text), ()
    text = word.text.strip("\"'")
    if text == "all" or text.isdigit():
        return ("all" if text == "all" else int(text)), ()
    found = re.search(r"device=(.*)", text)
    if found:
        devices = tuple(part for part in found[1].strip("\"'").split(",") if part)
        return "all" if "all" in devices else len(set(devices)), devices
    found = re.search(r"count=(-?\d{1,4}|all)", text)
    if found:
        return ("all" if found[1] in ("-1", "all") else int(found[1])), ()
    return Unknown(word.text), ()


def _volumes(options: Options) -> list[Volume]:
    rows = [mount(word.text, word.place) for word in options.all("--volume")]
    for word in options.all("--mount"):
        parts = [part.partition("=") for part in word.text.split(",")]
        fields = {name: value for name, _, value in parts}
        target = fields.get("target") or fields.get("dst") or fields.get("destination")
        if target:
            rows.append(
                Volume(
                    kind=fields.get("type", "volume"),
                    target=target,
                    source=fields.get("source") or fields.get("src"),
                    size=docker_size(fields.get("tmpfs-size")),
                    read_only="readonly" in fields or "ro" in fields,
                    place=word.place,
                )
            )
    for word in options.all("--tmpfs"):
        target, _, rest = word.text.partition(":")
        size = re.search(r"size=(\w+)", rest)
        rows.append(
            Volume(
                kind="tmpfs",
                target=target,
                size=docker_size(size[1]) if size else None,
                place=word.place,
            )
        )
    return [row for row in rows if row is not None]


def _ports(options: Options) -> list[Port]:
    rows = [port(word.text, word.place) for word in options.all("--publish")]
    return [row for row in rows if row is not None]


def _health(options: Options) -> list[HealthProbe]:
    word = options.last("--health-cmd")
    if word is None or options.last("--no-healthcheck") is not None:
        return []
    return [
        docker_probe(
            word.text, {n.removeprefix("--health-"): w.text for n, w in options.rows}, word.place
        )
    ]


def docker_probe(command: str, fields: dict[str, str], place: Place) -> HealthProbe:
    """A healthcheck with Docker's defaults: 30 s, 30 s, 3 times, no start period."""
    url = re.search(r"https?://[^/\s:\"']+(?::(\d{1,5}))?(/[^\s\"')?]*)?", command)
    kind: Literal["docker"] = "docker"
    return HealthProbe(
        kind=kind,
        action=f"exec {command}",
        path=(url[2] or "/") if url else None,
        port=int(url[1]) if url and url[1] else None,
        initial_delay_s=go_time(fields.get("start-period")) or 0,
        period_s=go_time(fields.get("interval")) or 30,
        timeout_s=go_time(fields.get("timeout")) or 30,
        failures=int(fields["retries"]) if fields.get("retries", "").isdigit() else 3,
        place=place,
    )
