"""The catalogue of what logs say: signatures of failures, and the marks of a start's stages."""

from __future__ import annotations

import configparser
import os
import re
import typing
from collections.abc import Mapping
from functools import cache
from typing import Literal

from infer_doctor.frozen import frozen
from infer_doctor.logs.patterns import Patterns
from infer_doctor.model import Category

FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "catalog")
FILES = ("log_vllm.ini", "log_trtllm.ini", "log_common.ini")
STAGES_FILE = "log_stages.ini"

Effect = Literal["fatal", "stall", "request", "abort", "warning", "note", "wrapper", "noise"]
"""fatal: ends a start or engine; stall: it may hang; request: one request is refused; abort: a
client left; warning: it runs on, worse; note: explains; wrapper: another process failed; noise."""

Strength = Literal["root", "cause", "symptom"]
"""root beats a cause that stands before it, a cause a symptom."""

STRENGTHS: tuple[Strength, ...] = ("symptom", "cause", "root")


@frozen
class Signature:
    """One thing that a log may say; see docs/log-signatures.md."""

    id: str
    engine: str
    category: Category
    effect: Effect
    strength: Strength
    patterns: tuple[str, ...]
    by_stage: Mapping[str, str]
    numbers: str
    option: str
    cause: str
    confirm: str
    fix: str
    wrong: str
    send: str
    """Of a wrapper: the one thing that would tell what it stands for."""
    source: str
    versions: str
    example: str
    strong: re.Pattern[str] | None
    unless: tuple[str, ...]
    remark: bool
    """A healthy process prints it too: a cause only where a failure without another one follows."""
    begins: re.Pattern[str] | None
    """Found in the text: a new process said it before any mark of a start."""


@frozen
class Mark:
    """A line by which a start is followed."""

    id: str
    stage: str
    phase: str
    begins: bool
    engine: bool
    ends: bool
    ready: str
    patterns: tuple[str, ...]


def _read(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(
        interpolation=None, delimiters=("=",), comment_prefixes=(";",)
    )
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(os.path.join(FOLDER, name), encoding="utf-8")
    return parser


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


@cache
def signatures() -> tuple[Signature, ...]:
    """All signatures; raises ValueError for an entry that is not as it has to be."""
    found: list[Signature] = []
    for name in FILES:
        parser = _read(name)
        engine = name.removeprefix("log_").removesuffix(".ini")
        bases = dict(parser["catalogue"])
        for id in parser.sections():
            if id != "catalogue":
                found.append(_signature(id, engine, parser[id], bases))
    return tuple(found)


def _signature(id: str, engine: str, row: Mapping[str, str], bases: Mapping[str, str]) -> Signature:
    effect = row.get("effect", "fatal")
    category = row.get("category", "wrapper_generic")
    strength = row.get("strength", "cause")
    for value, kind in ((effect, Effect), (category, Category), (strength, Strength)):
        if value not in typing.get_args(kind):
            raise ValueError(f"signature {id}: {value!r} is none of its closed list")
    base, colon, rest = row.get("source", "").partition(":")
    by_stage = dict(pair.split(":") for pair in row.get("by-stage", "").split())
    return Signature(
        id=id,
        engine=engine,
        category=typing.cast(Category, category),
        effect=typing.cast(Effect, effect),
        strength=typing.cast(Strength, strength),
        patterns=_lines(row["pattern"]),
        by_stage=by_stage,
        numbers=row.get("numbers", ""),
        option=row.get("option", ""),
        cause=row["cause"],
        confirm=row.get("confirm", ""),
        fix=row.get("fix", ""),
        wrong=row.get("not", ""),
        send=row.get("send", ""),
        source=bases[base] + rest if colon and base in bases else row.get("source", ""),
        versions=row.get("versions", ""),
        example=row.get("example", ""),
        strong=re.compile(row["strong"]) if "strong" in row else None,
        unless=_lines(row.get("not-at", "")),
        remark=row.get("remark") == "yes",
        begins=re.compile(row["begins"]) if "begins" in row else None,
    )


@cache
def marks() -> tuple[Mark, ...]:
    """The marks of the stages."""
    parser = _read(STAGES_FILE)
    return tuple(
        Mark(
            id=id,
            stage=row["stage"],
            phase=row.get("phase", ""),
            begins=row.get("begins") == "yes",
            engine=row.get("engine") == "yes",
            ends=row.get("ends") == "yes",
            ready=row.get("ready", ""),
            patterns=_lines(row["pattern"]),
        )
        for id, row in parser.items()
        if id != "DEFAULT"
    )


@cache
def patterns() -> Patterns[Signature | Mark]:
    """Everything that a line is compared with."""
    rows: list[tuple[str, Signature | Mark]] = []
    for mark in marks():
        rows += [(pattern, mark) for pattern in mark.patterns]
    for signature in signatures():
        rows += [(pattern, signature) for pattern in signature.patterns]
    return Patterns(rows)
