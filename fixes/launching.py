"""What a fix changes in a launch: options, variables, fields of its container.

Each function returns the actions for wherever the thing stands: the command line, a script, a
manifest, a configuration file, a Python call. What no editor can reach becomes a sentence.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from infer_doctor.facts.engine_options import Option
from infer_doctor.fixes import variables
from infer_doctor.launch.model import COMMAND_LINE, Keyword, Launch, Place, Word
from infer_doctor.model import Action, AnyAction, Edit, Format

FORMATS: dict[str, Format] = {
    "command": "command",
    "script": "shell",
    "docker-run": "shell",
    "compose": "yaml",
    "kubernetes": "yaml",
    "helm": "yaml",
    "systemd": "systemd",
    "dockerfile": "dockerfile",
    "python": "python",
}

SUFFIXES: dict[str, Format] = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".toml": "toml",
    ".env": "env",
    ".py": "python",
    ".service": "systemd",
}


def set_option(
    launch: Launch, name: str, value: Any, given: Option | None = None
) -> tuple[AnyAction, ...]:
    """Give an option a value; `name` is the flag to write ("--max-model-len"), `given` where it
    stands now. None as the value is a flag without one."""
    words = name if value is None else f"{name} {value}"
    if (keyword := _keyword(launch, name, given)) is not None:
        literal = _literal(launch, keyword.place, value)
        return (_key(launch, keyword, "set", literal, f"set {keyword.name} to {literal}"),)
    if launch.kind == "python":
        return _python(launch, name, value)
    written = given.flag if given else name
    if not written.startswith("-"):
        return _new_key(launch, written, value)
    word = _word(launch, given.flag if given else name, given)
    text = None if value is None else str(value)
    if word is not None:
        flag = word.text.partition("=")[0]
        old = _old(word, given.text if given else None)
        return (_option(launch, word.place, "set", flag, text, f"set {flag} {value}", old=old),)
    place, anchor = _end(launch)
    if anchor is None and launch.kind != "command":  # nothing is written there to go behind
        return (Action(kind="text", text=f"add {words}"),)
    return (_option(launch, place, "set", name, text, f"add {words}", anchor),)


def remove_option(
    launch: Launch, option: str, place: Place | None = None, *, value: str | None = None
) -> tuple[AnyAction, ...]:
    """Take an option out; `option` as it is written there, `value` the words of its value.

    None is a flag alone: what follows it stays, for it may be the model.
    """
    if (keyword := _written_keyword(launch, option)) is not None:
        return (_key(launch, keyword, "remove", None, f"take {option} out"),)
    word = _at(launch, option, place)
    if word is None:
        return (Action(kind="text", text=f"take {option} out"),)
    flag = word.text.partition("=")[0]
    return (
        _option(
            launch, word.place, "remove", flag, None, f"take {flag} out", old=_old(word, value)
        ),
    )


def rename_option(
    launch: Launch,
    option: str,
    successor: str,
    place: Place | None = None,
    *,
    value: str | None = None,
) -> tuple[AnyAction, ...]:
    """Write `successor` instead: "--new-name" keeps the value, "--new-name 512" is the whole.

    `value` are the words of the old value, None for a flag alone.
    """
    text = f"write {successor} instead of {option}"
    if (keyword := _written_keyword(launch, option)) is not None:
        name, _, value = successor.partition(" ")
        style = "_" if "_" in option or keyword in launch.keywords else "-"
        new = name.lstrip("-").replace("-", style)
        before = keyword.name.rpartition(".")[0]
        if before:
            if new.rpartition(".")[0] != before:
                return (Action(kind="text", text=text),)  # it moves to another part of the file
            new = new.rpartition(".")[2]
        edit = _key(launch, keyword, "rename", f"{new} {value}".strip(), text)
        return (edit,)
    word = _at(launch, option, place)
    if word is None:
        return (Action(kind="text", text=text),)
    flag = word.text.partition("=")[0]
    return (_option(launch, word.place, "rename", flag, successor, text, old=_old(word, value)),)


def set_variable(launch: Launch | None, name: str, value: str | None) -> tuple[AnyAction, ...]:
    """Set a variable for the engine, or take it out with None.

    Where the launch writes it, the file is edited; else it is a line for the shell that starts.
    """
    here = variables.set_variable(name, value)
    if launch is None or launch.kind == "command":
        return (here,)
    written = [row for row in launch.environment if row.name == name and row.place.line]
    if not written:
        if value is None or launch.kind in ("python", "helm", "config"):
            return (here,)
        if launch.kind == "docker-run":
            written_as = f"{name}={value}"
            return _docker_word(launch, "-e", written_as, f"add -e {written_as}", more=True)
        place, anchor = _start(launch)
        return (_variable(launch, place, name, value, f"set {name}={value}", anchor),)
    words = f"take {name} out" if value is None else f"set {name}={value}"
    return tuple(_variable(launch, row.place, name, value, words) for row in written)


def set_field(
    launch: Launch,
    path: tuple[str | int, ...],
    value: Any,
    do: Literal["set", "append", "replace", "ensure"] = "set",
) -> tuple[AnyAction, ...]:
    """Set a field of the container (None takes it out), or append to a list.

    `path` starts at the container's own mapping (a service of compose, a container of a pod);
    ".." goes up, so that ("..", "..", "volumes") is a field of the pod's spec. "replace" sets only
    what is there, "ensure" only what is not.
    """
    container = launch.container
    if container is None or launch.kind not in ("compose", "kubernetes"):
        return ()
    name = ".".join(str(step) for step in path if step != "..")
    wanted = json.dumps(value)
    verb = "add to" if do == "append" else "set"
    text = f"take {name} out" if value is None else f"{verb} {name}: {wanted}"
    return (
        Edit(
            text=_said(container.place, text),
            file=_file(launch, container.place),
            format="yaml",
            what="key",
            do="remove" if value is None else do,
            path=path,
            value=None if value is None else wanted,
            line=container.place.line,
            anchor=container.name,
        ),
    )


def set_docker_option(
    launch: Launch, flag: str, value: str | None, *, more: bool = False
) -> tuple[AnyAction, ...]:
    """An option of `docker run` itself, such as --shm-size: it stands before the image.

    `more` adds one beside those that are there, as for -v and -e.
    """
    written = f"{flag} {value}" if value is not None else flag
    return _docker_word(launch, flag, value, f"{'add' if more else 'set'} {written}", more=more)


def _docker_word(
    launch: Launch, flag: str, value: str | None, text: str, *, more: bool
) -> tuple[AnyAction, ...]:
    """Words right behind `docker run`, or another value of those that are there."""
    if launch.kind != "docker-run" or launch.container is None:
        return ()
    place, do = launch.container.place, "append" if more else "set"
    return (_option(launch, place, do, flag, value, text, "run"),)


def format_of(launch: Launch, place: Place) -> Format:
    """What the file of a place is written in."""
    if place.file == COMMAND_LINE:
        return "command"
    if place.file == launch.place.file and launch.kind in FORMATS:
        return FORMATS[launch.kind]
    name = os.path.basename(place.file)
    return SUFFIXES.get(".env" if name.startswith(".env") else os.path.splitext(name)[1], "shell")


def _option(
    launch: Launch,
    place: Place,
    do: Any,
    name: str,
    value: str | None,
    text: str,
    anchor: str | None = None,
    *,
    old: str | None = None,
) -> Edit:
    return Edit(
        text=_said(place, text),
        file=_file(launch, place),
        format=format_of(launch, place),
        what="option",
        old=old,
        do=do,
        name=name,
        value=value,
        line=place.line,
        anchor=anchor,
    )


def _variable(
    launch: Launch,
    place: Place,
    name: str,
    value: str | None,
    text: str,
    anchor: str | None = None,
) -> Edit:
    return Edit(
        text=_said(place, text),
        file=_file(launch, place),
        format=format_of(launch, place),
        what="variable",
        do="remove" if value is None else "set",
        name=name,
        value=value,
        line=place.line,
        anchor=anchor,
    )


def _key(launch: Launch, keyword: Keyword, do: Any, value: str | None, text: str) -> Edit:
    """A key of a configuration file, or a keyword of a Python call."""
    python = keyword in launch.keywords
    return Edit(
        text=_said(keyword.place, text),
        file=_file(launch, keyword.place),
        format="python" if python else format_of(launch, keyword.place),
        what="keyword" if python else "key",
        do=do,
        name=keyword.name if python else "",
        path=() if python else tuple(keyword.name.split(".")),
        value=value,
        line=keyword.place.line if python else None,
    )


def _python(launch: Launch, name: str, value: Any) -> tuple[AnyAction, ...]:
    """A keyword that the call does not have yet."""
    keyword = name.lstrip("-").replace("-", "_")
    written = repr(True if value is None else value)
    return (
        Edit(
            text=_said(launch.place, f"add {keyword}={written}"),
            file=launch.place.file,
            format="python",
            what="keyword",
            do="set",
            name=keyword,
            value=written,
            line=launch.place.line,
            anchor=launch.entry,
        ),
    )


def _literal(launch: Launch, place: Place, value: Any) -> str:
    value = True if value is None else value
    return repr(value) if format_of(launch, place) == "python" else json.dumps(value)


def _file(launch: Launch, place: Place) -> str:
    """The file of a place; one that a launch names lies beside the file that names it."""
    own = launch.place.file
    if place.file in (own, COMMAND_LINE) or own == COMMAND_LINE:
        return place.file
    return os.path.join(os.path.dirname(own), os.path.expanduser(place.file))


def _said(place: Place, text: str) -> str:
    """What is done, and where."""
    if place.file == COMMAND_LINE:
        return text
    return f"in {place.file}{f':{place.line}' if place.line else ''}: {text}"


def _new_key(launch: Launch, name: str, value: Any) -> tuple[AnyAction, ...]:
    """A key of the configuration file of the launch; a sentence where there is none."""
    places = {row.place.file: row.place for row in launch.config}
    if len(places) != 1:
        return (Action(kind="text", text=f"write {name}: {value}"),)
    (place,) = places.values()
    row = Keyword(name=name, value=None, place=Place(file=place.file))
    return (_key(launch, row, "set", _literal(launch, place, value), f"set {name}: {value}"),)


def _keyword(launch: Launch, name: str, given: Option | None) -> Keyword | None:
    wanted = given.flag if given else name
    return _written_keyword(launch, wanted)


def _written_keyword(launch: Launch, name: str) -> Keyword | None:
    plain = name.lstrip("-").replace("-", "_")
    for row in (*launch.keywords, *launch.config):
        if row.name.lstrip("-").replace("-", "_") == plain:
            return row
    first, *rest = name.split(".")
    for row in launch.config:
        if rest and row.name == first and _holds(row.value, rest):
            return Keyword(name=name, value=None, place=row.place)
    return None


def _holds(value: Any, keys: Sequence[str]) -> bool:
    """Whether a value of a configuration file has a key in the depth."""
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return True


def _word(launch: Launch, flag: str, given: Option | None) -> Word | None:
    return _at(launch, flag, given.place if given else None)


def _at(launch: Launch, flag: str, place: Place | None) -> Word | None:
    """The last word of that flag: it is the one that counts."""
    flag = flag.partition("=")[0]
    found = [word for word in launch.words if word.text.partition("=")[0] == flag]
    if place is not None:
        found = [word for word in found if word.place == place] or found
    return found[-1] if found else None


def _old(word: Word, value: str | None) -> str | None:
    """The value as a word of its own; that of --x=1 is part of its word."""
    return None if "=" in word.text or not value else value


def _end(launch: Launch) -> tuple[Place, str | None]:
    """Behind which word something new is written: not one that is masked or not known here, nor one
    whose value may follow; else right behind the program."""
    words = launch.words or launch.program
    for number in reversed(range(len(words))):
        word, *following = words[number : number + 2]
        if word.unknown or "<" in word.text:
            continue
        joined = word.text.startswith("-") and "=" in word.text
        if joined or not any(row.unknown or "<" in row.text for row in following):
            return word.place, word.text
    if launch.words and launch.program and launch.program[-1].unknown is None:
        return launch.program[-1].place, launch.program[-1].text
    return launch.place, None


def _start(launch: Launch) -> tuple[Place, str | None]:
    words = launch.program or launch.words
    if launch.kind in ("compose", "kubernetes", "helm") and launch.container is not None:
        return launch.container.place, launch.container.name
    return (words[0].place, words[0].text) if words else (launch.place, None)
