"""What the checks of TensorRT-LLM share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from infer_doctor.catalog.trtllm_releases import PYTORCH_DEFAULT_SINCE, reaches
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.trt_release import TrtRelease
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch, Unknown
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.trtllm.folder import TrtEngine

RANK_OPTIONS = {
    "mpirun": ("-n", "-np", "--np", "-c"),
    "mpiexec": ("-n", "-np", "--np"),
    "srun": ("-n", "--ntasks"),
}
NODE_OPTIONS = ("-N", "--nodes", "-H", "-host", "--host", "-hostfile", "--hostfile")


def require_trtllm(options: EngineOptions) -> None:
    """The rules of TensorRT-LLM say nothing about other engines."""
    if options.engine != "tensorrt-llm":
        raise NotApplicable(f"the launch starts {options.engine}")


def settled(rows: Iterable[Finding | str]) -> Iterator[Finding]:
    """The findings; a reason why one thing could not be decided counts where there are none."""
    reason: str | None = None
    told = False
    for row in rows:
        if isinstance(row, str):
            reason = reason or row
        else:
            told = True
            yield row
    if reason is not None and not told:
        raise Unavailable(reason)


def is_bare(launch: Launch) -> bool:
    """Whether the launch was made up for a folder that was given: nobody wrote its options."""
    texts = [word.text for word in launch.words]
    return launch.kind == "command" and launch.name in texts


def backend_of(launch: Launch, options: EngineOptions, release: TrtRelease) -> str | None:
    """ "tensorrt", "pytorch" or "_autodeploy": what will load the model; None where it is not known."""
    written = options.get("backend")
    if isinstance(written, Unknown):
        return None
    if isinstance(written, str):
        return "tensorrt" if written in ("trt", "tensorrt") else written
    origin = launch.origin or ""
    if "_tensorrt_engine" in origin or "hlapi" in origin:
        return "tensorrt"
    if "._torch" in origin:
        return "_autodeploy" if "auto_deploy" in origin else "pytorch"
    if release.version and reaches(release.version, PYTORCH_DEFAULT_SINCE) is None:
        return None
    if release.era in ("pytorch-first", "pytorch-only"):
        return "pytorch"
    return "tensorrt" if release.era in ("engine", "engine-first") else None


def ranks_started(launch: Launch) -> tuple[int, str] | None:
    """The ranks that mpirun or srun starts, and the words that say so.

    `mpirun -n 1 A : -n 1 A` starts the sum; of a part that does not say how many nothing is known.
    """
    words = [word.text for word in launch.program]
    place = next((at for at, text in enumerate(words) if _name(text) in RANK_OPTIONS), None)
    if place is None:
        return None
    starter = _name(words[place])
    options = RANK_OPTIONS[starter]
    found = _ranks_of(words[place + 1 :], options)
    parts = list(_parts([word.text for word in launch.words])) if starter != "srun" else []
    if found is None:
        return None
    if not parts:
        return found[0], f"{starter} {found[1]}"
    counts = [found, *(_ranks_of(part, options) for part in parts)]
    if any(row is None for row in counts):
        return None
    return (
        sum(row[0] for row in counts if row is not None),
        f"{starter} {' : '.join(row[1] for row in counts if row is not None)}",
    )


def has_starter(launch: Launch) -> bool:
    """Whether mpirun or srun stands before the engine."""
    return any(_name(word.text) in RANK_OPTIONS for word in launch.program)


def _name(text: str) -> str:
    return text.rpartition("/")[2]


def _parts(words: Sequence[str]) -> Iterator[list[str]]:
    """What stands after each ":" of mpirun."""
    part: list[str] | None = None
    for text in (*words, ":"):
        if text != ":":
            if part is not None:
                part.append(text)
            continue
        if part:
            yield part
        part = []


def _ranks_of(words: Sequence[str], options: Sequence[str]) -> tuple[int, str] | None:
    for place, text in enumerate(words):
        name, equals, value = text.partition("=")
        if name in options:
            value = value if equals else (words[place + 1] if place + 1 < len(words) else "")
            return (int(value), f"{name} {value}") if value.isdecimal() else None
        glued = re.fullmatch(r"-n(\d+)", text)
        if glued is not None:
            return int(glued[1]), text
    return None


def spans_machines(launch: Launch) -> bool:
    """Whether ranks may stand on several machines."""
    return any(word.text.partition("=")[0] in NODE_OPTIONS for word in launch.program)


def of_config(engine: TrtEngine, excerpt: str) -> Evidence:
    """A line of evidence out of the engine's config.json."""
    return Evidence(source=engine.config_path, excerpt=excerpt)


def of_release(release: TrtRelease) -> Evidence:
    """What the version rests on."""
    if release.evidence:
        return release.evidence[0]
    return Evidence(source="version", excerpt=release.basis)


def given(options: EngineOptions, name: str) -> Evidence | None:
    """Where an option stands."""
    row = options.given.get(name)
    if row is None:
        return None
    joint = " " if row.flag.startswith("-") else ": "
    text = f"{row.flag}{joint}{row.text}".strip()
    return Evidence(source=row.place.file, line=row.place.line, excerpt=text[:200])


def present(*rows: Evidence | None) -> tuple[Evidence, ...]:
    return tuple(row for row in rows if row is not None)


def numbers(values: Sequence[int]) -> str:
    """1, 2 and 5; 0 to 3 for a run."""
    rows = sorted(values)
    if len(rows) > 2 and rows[-1] - rows[0] == len(rows) - 1:
        return f"{rows[0]} to {rows[-1]}"
    if len(rows) > 1:
        return f"{', '.join(map(str, rows[:-1]))} and {rows[-1]}"
    return str(rows[0]) if rows else "none"


def fixes(*rows: Fix | None) -> tuple[Fix, ...]:
    return tuple(row for row in rows if row is not None)
