"""Reads HAProxy's configuration as far as it ends an answer or keeps it back.

An answer is ended by `timeout server` of the backend.
`timeout client` does not run while the server is waited for, `tunnel` holds after an upgrade only,
`connect`, `queue` and `http-request` are over before the first byte (docs.haproxy.org, section 4.2;
seen with 2.6). Without `timeout server` HAProxy waits for ever.

Without `option http-no-delay` it waits for full segments (MSG_MORE): 61 tokens 10 ms apart came in 3
bursts 200 ms apart, the first token after 202 instead of 0.7 ms (HAProxy 2.6.12, measured 2026-12).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from infer_doctor.catalog.gateways import API_PATH
from infer_doctor.facts.server_limits import Buffering, Limit
from infer_doctor.model import Evidence
from infer_doctor.server import durations

SECTION = re.compile(r"^(defaults|frontend|backend|listen)\b", re.M)
BARE_S = 0.001
"""Times without a unit are milliseconds (section 2.5)."""

KINDS = ("global", "defaults", "frontend", "backend", "listen")
NO_DELAY = ("option", "http-no-delay")
MOST_LINES = 50_000
LONGEST_LINE = 2048
"""HAProxy's own limit (section 2.1, LINESIZE)."""
Line = tuple[int, list[str]]


@dataclass
class Section:
    """One section, its lines, and the defaults that it takes."""

    kind: str
    name: str
    line: int
    lines: list[Line] = field(default_factory=list)
    defaults: Section | None = None

    def last(self, *words: str) -> Line | None:
        """The last line that begins with these words, here or in the defaults."""
        own = [row for row in self.lines if tuple(row[1][: len(words)]) == words]
        if own:
            return own[-1]
        return self.defaults.last(*words) if self.defaults is not None else None


def is_haproxy(text: str) -> bool:
    """Whether a text is a configuration of HAProxy."""
    own = re.search(r"^\s*(?:timeout\s+(?:server|client|connect)|default_backend)\s+\S", text, re.M)
    return bool(own and SECTION.search(text))


def parse(text: str) -> list[Section]:
    """The sections in their order."""
    found: list[Section] = []
    defaults: list[Section] = []
    for number, line in enumerate(text.splitlines()[:MOST_LINES], 1):
        words = _words(line)
        if not words:
            continue
        if words[0] not in KINDS:
            if found:
                found[-1].lines.append((number, words))
            continue
        named = [row for row in defaults if "from" in words and row.name == words[-1]]
        section = Section(
            kind=words[0],
            name=words[1] if len(words) > 1 else "",
            line=number,
            defaults=(named or defaults)[-1] if named or defaults else None,
        )
        if section.kind == "defaults":
            section.defaults = named[-1] if named else None  # unnamed ones begin anew
            defaults.append(section)
        found.append(section)
    return found


def _words(line: str) -> list[str]:
    if len(line) > LONGEST_LINE:
        return []
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split("#")[0].split()


def limits(
    text: str, file: str, path: str = API_PATH, gaps: list[str] | None = None
) -> tuple[tuple[Limit, ...], tuple[Buffering, ...]]:
    """What ends a request of this path and what keeps its tokens back, by backend."""
    found: list[Limit] = []
    buffers: list[Buffering] = []
    for front, backend in _of_path(parse(text), path, gaps):
        name = f"haproxy {backend.kind} {backend.name}"
        given = backend.last("timeout", "server")
        seconds = duration(given[1][2]) if given is not None and len(given[1]) > 2 else None
        if given is not None and seconds:
            found.append(
                Limit(
                    who="proxy",
                    name=f"timeout server of {name}",
                    seconds=seconds,
                    what="next byte",
                    default=False,
                    evidence=Evidence(source=file, line=given[0], excerpt=" ".join(given[1])),
                )
            )
        elif given is not None and seconds is None and gaps is not None:
            gaps.append(f"timeout server of {name} is {' '.join(given[1][2:])}")
        if _mode(backend) == "http":
            off = backend.last(*NO_DELAY) or (front.last(*NO_DELAY) if front is not None else None)
            line, said = (
                (off[0], " ".join(off[1])) if off else (backend.line, "no option http-no-delay")
            )
            buffers.append(
                Buffering(
                    name=name,
                    on=off is None,
                    evidence=Evidence(source=file, line=line, excerpt=said),
                )
            )
    return tuple(found), tuple(buffers)


def _of_path(
    sections: list[Section], path: str, gaps: list[str] | None
) -> list[tuple[Section | None, Section]]:
    """Frontend and backend that a request of this path may come to; all backends without a frontend."""
    backends = {row.name: row for row in sections if row.kind in ("backend", "listen")}
    fronts = [row for row in sections if row.kind in ("frontend", "listen")]
    if not fronts:
        return [(None, row) for row in backends.values()]
    fronts = [row for row in fronts if not _is_statistics(row)]
    of_http = [row for row in fronts if _mode(row) == "http"]
    found: dict[str, Section] = {}
    for front in of_http or fronts:
        for name in _chosen(front, path, gaps):
            found.setdefault(name, front)
    return [(front, backends[name]) for name, front in found.items() if name in backends]


def _mode(section: Section) -> str:
    """http or tcp, which is what HAProxy takes when nothing is said."""
    given = section.last("mode")
    return given[1][1] if given is not None and len(given[1]) > 1 else "tcp"


def _is_statistics(front: Section) -> bool:
    words = {row[1][0] for row in front.lines}
    return "stats" in words and not words & {
        "server",
        "server-template",
        "use_backend",
        "default_backend",
    }


def _chosen(front: Section, path: str, gaps: list[str] | None) -> Iterator[str]:
    """Names of backends in the order of the rules, up to the first that surely holds."""
    if front.kind == "listen":
        yield front.name
    acls: dict[str, bool | None] = {}
    for _, words in front.lines:
        if words[0] == "acl" and len(words) > 2:
            value = _holds(words[2:], path)
            known = acls.get(words[1], False)
            acls[words[1]] = (
                True if True in (known, value) else None if None in (known, value) else False
            )
        elif words[0] == "use_backend" and len(words) > 1:
            if "%[" in words[1]:
                if gaps is not None:
                    gaps.append(f"use_backend of {front.kind} {front.name} is {words[1]}")
                return
            taken = _condition(words[2:], acls, path)
            if taken is not False:
                yield words[1]
            if taken:
                return
    default = front.last("default_backend")
    if default is not None and len(default[1]) > 1:
        yield default[1][1]


def _condition(words: list[str], acls: dict[str, bool | None], path: str) -> bool | None:
    """if A B or C, unless A, if { path_beg /v1 }; None when it cannot be told."""
    if not words:
        return True
    if words[0] not in ("if", "unless"):
        return None
    any_of: list[bool | None] = []
    all_of: list[bool | None] = []
    rest = iter(words[1:])
    for word in rest:
        if word in ("or", "||"):
            any_of.append(_all(all_of))
            all_of = []
            continue
        negated = word.startswith("!")
        word = word.removeprefix("!")
        if word == "{":
            inner = []
            for part in rest:
                if part == "}":
                    break
                inner.append(part)
            value = _holds(inner, path)
        else:
            value = acls.get(word)
        all_of.append(None if value is None else value != negated)
    any_of.append(_all(all_of))
    whole = True if True in any_of else None if None in any_of else False
    return whole if words[0] == "if" or whole is None else not whole


def _all(values: list[bool | None]) -> bool | None:
    return False if False in values else None if None in values else True


def _holds(words: list[str], path: str) -> bool | None:
    """A test of the path; None for one of anything else."""
    flags, values = words[1:], words[1:]
    while values and values[0].startswith("-"):
        values = values[1:]
    if not words or any(flag in ("-f", "-M") for flag in flags) or not values:
        return None
    tests: dict[str, Callable[[str], bool]] = {
        "path": lambda value: path == value,
        "path_beg": lambda value: path.startswith(value),
        "path_end": lambda value: path.endswith(value),
        "path_sub": lambda value: value in path,
        "path_dir": lambda value: f"/{value.strip('/')}/" in f"{path}/",
    }
    test = tests.get(words[0])
    return None if test is None else any(test(value) for value in values)


def duration(text: str) -> float | None:
    """Seconds of 30s, 5m or 5000; None for anything else."""
    return durations.seconds(text, BARE_S)
