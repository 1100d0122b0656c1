"""A command line -> Launch: wrappers are taken off, variables taken over, nothing is executed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from infer_doctor.frozen import frozen
from infer_doctor.launch.holders import HOLDERS, held
from infer_doctor.launch.model import (
    COMMAND_LINE,
    Container,
    Kind,
    Launch,
    Place,
    Variable,
    Word,
)
from infer_doctor.launch.wrappers import OURSELVES, OWN_ARGUMENTS, RUNNERS, TWO_VALUES, WRAPPERS

Engine = Literal["vllm", "tensorrt-llm"]

ENGINES: Mapping[str, Engine] = {
    "vllm": "vllm",
    "trtllm-serve": "tensorrt-llm",
    "trtllm-bench": "tensorrt-llm",
    "trtllm-build": "tensorrt-llm",
    "trtllm-eval": "tensorrt-llm",
    "tritonserver": "tensorrt-llm",
    "launch_triton_server.py": "tensorrt-llm",
}
"""Program -> engine. Triton has other backends too: facts/triton.py looks into the repository."""

MODULES: Mapping[str, tuple[Engine, str]] = {
    "vllm.entrypoints.openai.api_server": ("vllm", "api_server"),
    "vllm.entrypoints.api_server": ("vllm", "demo_server"),
    "vllm.entrypoints.openai.run_batch": ("vllm", "run-batch"),
    "vllm.entrypoints.cli.main": ("vllm", ""),
    "vllm": ("vllm", ""),
    "tensorrt_llm.commands.serve": ("tensorrt-llm", "trtllm-serve"),
    "tensorrt_llm.commands.bench": ("tensorrt-llm", "trtllm-bench"),
    "tensorrt_llm.commands.build": ("tensorrt-llm", "trtllm-build"),
    "tensorrt_llm.commands.eval": ("tensorrt-llm", "trtllm-eval"),
}
"""What `python -m` starts -> engine and entry; an empty entry is the next word."""

SHELLS = ("sh", "bash", "dash", "zsh", "ash", "ksh")
CONTAINERS = ("docker", "podman", "nerdctl")

WHICH = re.compile(r"\$\((?:which|command -v) ([\w-]+)\)")
"""$(which vllm): the path of a program whose name is told."""

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.S)
PYTHON = re.compile(r"python(3(\.\d+)?t?)?")
PYTHON_VALUES = ("-X", "-W", "--check-hash-based-pycs")


class Start:
    """What a command line starts, wrappers taken off: `words` follow `program`."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.all = tuple(words)
        self.environment: list[Variable] = []
        self.executable: str | None = None
        self.engine: Engine | None = None
        self.entry = ""
        self.allocated = False
        """srun asks Slurm for a machine of its own choice."""
        self._at = 0
        self._peel()

    @property
    def program(self) -> tuple[Word, ...]:
        return self.all[: self._at]

    @property
    def words(self) -> tuple[Word, ...]:
        return self.all[self._at :]

    def _text(self, ahead: int = 0) -> str | None:
        place = self._at + ahead
        return self.all[place].text if place < len(self.all) else None

    def _peel(self) -> None:
        while (text := self._text()) is not None:
            assignment = ASSIGNMENT.fullmatch(text)
            name = posixpath.basename(WHICH.sub(r"\1", text))
            if assignment is not None:
                self._assign(self.all[self._at])
                self._at += 1
            elif name in WRAPPERS:
                self._at += 1
                first = self._at
                self._options(name, WRAPPERS[name])
                options = self.all[first : self._at]
                self.allocated |= name == "srun" and any(ALLOCATES.match(o.text) for o in options)
                self._at += OWN_ARGUMENTS.get(name, 0) if not self._listed(name) else 0
                if name == "torchrun":
                    self._python(text, [])
                    return
            elif (name, self._text(1) or "") in RUNNERS:
                runner = (name, self._text(1) or "")
                self._at += 2
                self._options(name, RUNNERS[runner])
            elif ahead := self._ourselves(name):
                self._at += ahead
            else:
                self._program(name, text)
                return

    def _ourselves(self, name: str) -> int:
        """The words before the doctor's own name: `python3 infer-doctor.pyz`, `python -m infer_doctor`."""
        if not PYTHON.fullmatch(name):
            return 0
        ahead = 2 if self._text(1) == "-m" else 1
        script = posixpath.basename(self._text(ahead) or "")
        return ahead if script in OURSELVES and self._text(ahead + 1) == "preflight" else 0

    def _listed(self, name: str) -> bool:
        """taskset -c LIST: the list was the option's."""
        return name == "taskset" and any(word.text in ("-c", "-cp") for word in self.program[-2:-1])

    def _assign(self, word: Word) -> None:
        found = ASSIGNMENT.fullmatch(word.text)
        if found is not None:
            value = None if word.unknown else found[3]
            self.environment.append(
                Variable(name=found[1], value=value, place=word.place, source=word.unknown)
            )

    def _options(self, name: str, with_value: frozenset[str]) -> None:
        """Skip the options of a wrapper; those that set variables are taken over."""
        while (text := self._text()) is not None and text.startswith("-"):
            if name == "torchrun" and text in ("-m", "--module"):
                return
            self._at += 1
            if text == "--":
                return
            if name == "taskset" and text == "-c":
                self._at += 1
            elif text in TWO_VALUES and name.startswith("mpi"):
                self._at += 2
            elif text in with_value:
                if name.startswith("mpi") and text == "-x" and self._at < len(self.all):
                    self._assign(self.all[self._at])
                self._at += 1
        self._at = min(self._at, len(self.all))

    def _program(self, name: str, text: str) -> None:
        """The program itself."""
        self.executable = text
        if PYTHON.fullmatch(name):
            self._at += 1
            self._python(text, list(PYTHON_VALUES))
            return
        self._at += 1
        self.engine = ENGINES.get(name)
        if self.engine == "vllm":
            self._sub_command()
        elif self.engine is not None:
            self.entry = name
            if name == "trtllm-serve":
                self._trtllm_serve()

    def _python(self, text: str, with_value: list[str]) -> None:
        """`-m MODULE` after the options of Python or torchrun."""
        self.executable = text
        while (word := self._text()) is not None and word.startswith("-"):
            self._at += 1
            if word in ("-m", "--module"):
                self.engine, self.entry = MODULES.get(self._text() or "", (None, ""))
                self._at = min(self._at + 1, len(self.all))
                if self.engine == "vllm" and not self.entry:
                    self._sub_command()
                elif self.entry == "trtllm-serve":
                    self._trtllm_serve()
                return
            if word == "-c":
                return
            if word in with_value:
                self._at += 1
        self._at = min(self._at, len(self.all))
        script = posixpath.basename(WHICH.sub(r"\1", self._text() or ""))
        if script in ENGINES:  # `python /opt/venv/bin/vllm serve`
            self._program(script, text)

    def _sub_command(self) -> None:
        """`vllm serve`, `vllm bench serve`."""
        text = self._text()
        if text is not None and not text.startswith("-"):
            self.entry = text
            self._at += 1

    def _trtllm_serve(self) -> None:
        """`serve` is the command that trtllm-serve takes when none is named."""
        text = self._text()
        if text == "serve":
            self._at += 1
        elif text in ("disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve"):
            self.entry = f"trtllm-serve {text}"
            self._at += 1


@frozen
class Around:
    """What surrounds a command line: whose it is, what is known of its container, how to read the
    files that it names."""

    name: str
    kind: Kind
    machine: Literal["local", "another"]
    container: Container | None = None
    folder: str | None = None
    gaps: tuple[str, ...] = ()
    read: Callable[[str], str] | None = None


ALLOCATES = re.compile(r"-[pwG]|--(?:partition|nodelist|gres|gpus[\w-]*)(?:=|$)")
"""Options of srun that choose where it runs (slurm.schedmd.com/srun.html)."""

LOCAL = Around(name=COMMAND_LINE, kind="command", machine="local")

DEEPEST = 4
"""Shells within shells: `sh -c "bash -c '...'"`."""


def read(
    words: Sequence[str | Word],
    *,
    place: Place | None = None,
    name: str = COMMAND_LINE,
    kind: Kind = "command",
    machine: Literal["local", "another"] = "local",
    environment: Sequence[Variable] = (),
    read: Callable[[str], str] | None = None,
) -> Launch:
    """A command line as one Launch: the first engine that it starts, else one without an engine."""
    around = Around(name=name, kind=kind, machine=machine, read=read)
    return _found(words, place or Place(file=COMMAND_LINE), around, environment)[0]


def _found(
    words: Sequence[str | Word], place: Place, around: Around, environment: Sequence[Variable]
) -> list[Launch]:
    whole = [word if isinstance(word, Word) else Word(text=word, place=place) for word in words]
    started = [row for row in launches(whole, around, environment) if row.engine is not None]
    return started or [_launch(Start(whole), around, place, environment)]


def all_of(words: Sequence[str], read: Callable[[str], str] | None = None) -> list[Launch]:
    """What stands after `--`: every engine that it starts; one Launch when it starts none."""
    found = _found(words, Place(file=COMMAND_LINE), replace(LOCAL, read=read), ())
    if len(found) == 1:
        return found
    return [replace(row, name=f"{row.name} {number}") for number, row in enumerate(found, start=1)]


def launches(
    words: Sequence[Word],
    around: Around,
    environment: Sequence[Variable] = (),
    depth: int = 0,
) -> list[Launch]:
    """What a command line starts: itself, what its shell starts, or what is in its container."""
    place = words[0].place if words else Place(file=around.name)
    start = Start(words)
    program = posixpath.basename(start.executable or "")
    if program in SHELLS and depth < DEEPEST:
        return _nested(start, around, environment, depth)
    inside = program in CONTAINERS and start.words and start.words[0].text in ("exec", "compose")
    if program in CONTAINERS and not inside:
        from infer_doctor.launch.docker_run import launches as contained

        return contained(start, around, environment, place)
    if (inside or program in HOLDERS) and start.words and depth < DEEPEST:
        known = (*environment, *start.environment)
        if found := held(program, start.words, around, known, depth, launches):
            return found
    return [_launch(start, around, place, environment)]


def _nested(
    start: Start, around: Around, environment: Sequence[Variable], depth: int
) -> list[Launch]:
    """`sh -c TEXT ARGUMENT...`: the commands of the text; `sh FILE` is left as it is."""
    from infer_doctor.launch.shell import commands

    known = (*environment, *start.environment)
    words, index = start.words, 0
    for index, word in enumerate(words):  # noqa: B007
        if word.text.startswith("-") and "c" in word.text and not word.text.startswith("--"):
            break
        if not word.text.startswith("-") or word.text == "--":
            return [_launch(start, around, word.place, environment)]
    else:
        return []
    rest = words[index + 1 :]
    if rest[:1] and rest[0].text == "--":
        rest = rest[1:]
    if not rest:
        return []
    if rest[0].unknown is not None and not rest[0].text.strip().count(" "):
        return [_launch(start, around, rest[0].place, environment)]
    from infer_doctor.launch.installs import requirements

    found: list[Launch] = []
    installs: list[Word] = []
    for command in commands(
        rest[0].text, rest[0].place, given=known, arguments=rest[1:], read=around.read
    ):
        inner = replace(around, folder=command.folder or around.folder)
        installs += requirements(command.words)
        started = launches(command.words, inner, command.environment, depth + 1)
        found += [with_installs(row, installs) for row in started]
    return found


def with_installs(launch: Launch, installs: Sequence[Word]) -> Launch:
    """The launch with what pip installs before it."""
    return replace(launch, installs=(*installs, *launch.installs)) if installs else launch


def _launch(start: Start, around: Around, place: Place, environment: Sequence[Variable]) -> Launch:
    launch = Launch(
        name=around.name,
        kind=around.kind,
        machine="another" if start.allocated else around.machine,
        engine=start.engine,
        entry=start.entry,
        executable=start.executable,
        place=place,
        program=start.program,
        words=start.words,
        environment=(*environment, *start.environment),
        container=around.container,
        working_folder=around.folder,
        gaps=around.gaps,
    )
    if launch.engine is None:
        return launch
    from infer_doctor.launch.config import with_config

    return with_config(launch, around.read)
