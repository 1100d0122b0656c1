"""A Dockerfile -> what its last stage starts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from infer_doctor.frozen import frozen
from infer_doctor.launch.command import Around, launches, with_installs
from infer_doctor.launch.docker_run import docker_probe
from infer_doctor.launch.images import entrypoint
from infer_doctor.launch.model import Container, HealthProbe, Launch, Place, Port, Variable, Word

INSTRUCTIONS = [
    "ADD",
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "HEALTHCHECK",
    "LABEL",
    "MAINTAINER",
    "ONBUILD",
    "RUN",
    "SHELL",
    "STOPSIGNAL",
    "USER",
    "VOLUME",
    "WORKDIR",
]
INSTRUCTION = re.compile(rf"\s*({'|'.join(INSTRUCTIONS)})\s+(.*)", re.I | re.S)
FIRST = re.compile(r"^\s*FROM\s+\S+", re.I | re.M)
EXPRESSION = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:[-+])([^{}]*))?\})")
HERE = re.compile(r"<<-?[\"']?(\w+)[\"']?")
PAIR = re.compile(r"""([A-Za-z_]\w*)=("(?:[^"\\]|\\.)*"|'[^']*'|(?:[^\s\\]|\\.)*)""", re.S)


def is_dockerfile(text: str) -> bool:
    """It has a FROM, and every other line that begins one is an instruction."""
    if not FIRST.search(text):
        return False
    rows = [line for line, _ in _lines(text)]
    return bool(rows) and all(INSTRUCTION.match(line) for line in rows[:20])


@frozen
class _Started:
    """ENTRYPOINT or CMD: its words, or the text that a shell gets."""

    words: tuple[str, ...] | None
    text: str
    place: Place


@frozen
class _Stage:
    """What a stage has set so far; the stages on top of it begin with that."""

    image: str
    image_place: Place
    entrypoint: _Started | None = None
    command: _Started | None = None
    environment: tuple[Variable, ...] = ()
    arguments: tuple[tuple[str, str | None], ...] = ()
    user: str | None = None
    folder: str | None = None
    ports: tuple[Port, ...] = ()
    probes: tuple[HealthProbe, ...] = ()
    installs: tuple[Word, ...] = ()


def read(text: str, file: str) -> list[Launch]:
    """The engine that the last stage starts."""
    stages: dict[str, _Stage] = {}
    stage: _Stage | None = None
    name = ""
    outside: dict[str, str | None] = {}
    for line, number in _lines(text):
        found = INSTRUCTION.match(line)
        if found is None:
            continue
        word, rest, place = found[1].upper(), found[2].strip(), Place(file=file, line=number)
        if word == "FROM":
            if stage is not None and name:
                stages[name.lower()] = stage
            rest = re.sub(r"^(--\S+\s+)*", "", rest)
            image, _, after = rest.partition(" ")
            image = _put_in(image, outside)[0]
            name = after.split()[1] if len(after.split()) > 1 else ""
            base = stages.get(image.lower())
            stage = base or _Stage(image=image, image_place=place)
        elif stage is None:
            if word == "ARG":
                key, _, value = rest.partition("=")
                outside[key] = value.strip("\"'") or None
        else:
            stage = _changed(stage, word, rest, place, outside)
    return _launches(stage, file) if stage is not None else []


def _changed(
    stage: _Stage, word: str, rest: str, place: Place, outside: dict[str, str | None]
) -> _Stage:
    known = {**dict(stage.arguments), **{row.name: row.value for row in stage.environment}}
    if word == "ENTRYPOINT":
        return replace(stage, entrypoint=_started(rest, place), command=None)
    if word == "CMD":
        return replace(stage, command=_started(rest, place))
    if word == "ENV":
        return replace(stage, environment=(*stage.environment, *_env(rest, place, known)))
    if word == "ARG":
        key, equals, value = rest.partition("=")
        default = _put_in(value.strip("\"'"), known)[0] if equals else outside.get(key)
        return replace(stage, arguments=(*stage.arguments, (key, default)))
    if word == "USER":
        return replace(stage, user=_put_in(rest, known)[0])
    if word == "RUN" and "pip" in rest:
        from infer_doctor.launch.installs import of_commands
        from infer_doctor.launch.shell import commands

        text = _continued(re.sub(r"^(--\S+\s+)*", "", rest))
        more = of_commands(row.words for row in commands(text, place))
        return replace(stage, installs=(*stage.installs, *more))
    if word == "WORKDIR":
        return replace(stage, folder=_put_in(rest, known)[0])
    if word == "EXPOSE":
        ports = [part.partition("/")[0] for part in _put_in(rest, known)[0].split()]
        rows = tuple(Port(container=int(one), place=place) for one in ports if one.isdigit())
        return replace(stage, ports=(*stage.ports, *rows))
    if word == "HEALTHCHECK":
        fields = dict(re.findall(r"--([\w-]+)=(\S+)", rest))
        command = re.sub(r"^(--\S+\s+)*(CMD\s+)?", "", rest)
        none = command.upper() == "NONE"
        return replace(stage, probes=() if none else (docker_probe(command, fields, place),))
    return stage


def _started(rest: str, place: Place) -> _Started:
    """The exec form is JSON; all else is a text for a shell."""
    if rest.startswith("["):
        try:
            words = json.loads(rest.replace("\n", " "))
        except (ValueError, RecursionError):
            words = None
        if isinstance(words, list) and all(isinstance(word, str) for word in words):
            return _Started(words=tuple(words), text=rest, place=place)
    return _Started(words=None, text=_continued(rest), place=place)


def _continued(text: str) -> str:
    """The text as a shell gets it: Docker joins lines that end with a backslash."""
    return text.replace("\n", "\\\n")


def _env(rest: str, place: Place, known: dict[str, str | None]) -> Iterator[Variable]:
    pairs = PAIR.findall(rest)
    if not pairs or not PAIR.match(rest):  # ENV NAME value
        name, _, value = rest.partition(" ")
        pairs = [(name, value.strip())]
    at = 0
    for name, value in pairs:
        at = max(rest.find(f"{name}=", at), at)
        line = (place.line or 1) + rest.count("\n", 0, at)
        bare = value[1:-1] if value[:1] in ("'", '"') and len(value) > 1 else value
        text, unknown = _put_in(bare, known)
        yield Variable(
            name=name,
            value=None if unknown else text,
            place=Place(file=place.file, line=line),
            source=unknown,
        )


def _put_in(text: str, known: dict[str, str | None]) -> tuple[str, str | None]:
    unknown: list[str] = []

    def value(match: re.Match[str]) -> str:
        found = known.get(match[1] or match[2])
        if match[3] == ":-" and not found:
            return match[4] or ""
        if match[3] == ":+":
            return (match[4] or "") if found else ""
        if found is None:
            unknown.append(match[0])
            return match[0]
        return found

    done = EXPRESSION.sub(value, text)
    return done, unknown[0] if unknown else None


def _launches(stage: _Stage, file: str) -> list[Launch]:
    first, second = stage.entrypoint, stage.command
    words = _as_words(first) if first else ()
    if first is None or first.words is not None:  # a shell's ENTRYPOINT takes no CMD
        arguments = _as_words(second) if second else ()
        if first is None and second is not None and second.words is None:
            words = arguments
        else:
            words = (*words, *arguments)
        if first is None:
            own = () if second and second.words is None else arguments
            words = (*entrypoint(stage.image, own, stage.image_place), *words)
    place = (first or second).place if first or second else stage.image_place  # type: ignore[union-attr]
    container = Container(
        platform="dockerfile",
        name=file,
        image=stage.image,
        image_place=stage.image_place,
        user=stage.user,
        ports=stage.ports,
        probes=stage.probes,
        place=place,
    )
    around = Around(
        name=file, kind="dockerfile", machine="another", container=container, folder=stage.folder
    )
    found = launches(words, around, stage.environment)
    found = [with_installs(row, stage.installs) for row in found if row.engine is not None]
    if len(found) > 1:
        return [replace(row, name=f"{file}:{row.place.line}") for row in found]
    return found


def _as_words(started: _Started) -> tuple[Word, ...]:
    if started.words is None:
        texts: tuple[str, ...] = ("/bin/sh", "-c", started.text)
        return tuple(Word(text=text, place=started.place) for text in texts)
    rows, at = [], 0
    for text in started.words:
        at = max(started.text.find(json.dumps(text)[1:-1], at), at)
        line = (started.place.line or 1) + started.text.count("\n", 0, at)
        rows.append(Word(text=text, place=Place(file=started.place.file, line=line)))
    return tuple(rows)


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """Instructions with their first line; joined lines stay apart, comments and bodies are left out."""
    whole, first, ends = "", 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if ends:
            ends = "" if line.strip() == ends else ends
            continue
        bare = line.strip()
        if bare.startswith("#"):
            whole += "\n" if whole else ""
            continue
        if not bare:
            whole += "\n" if whole else ""
            continue
        first = first if whole else number
        if bare.endswith("\\"):
            whole += bare[:-1] + "\n"
            continue
        whole, done = "", whole + bare
        if (here := HERE.search(done)) and INSTRUCTION.match(done):
            ends = here[1]
        yield done, first
    if whole.strip():
        yield whole, first
