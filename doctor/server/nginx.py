"""Reads nginx's configuration as far as it decides over a request of the API: time-outs, buffering.

Files that it includes are read too, from the folder of the configuration and below, or by their
absolute path, as nginx does with its prefix.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from infer_doctor.catalog.gateways import API_PATH, NGINX_BUFFERS, NGINX_READ_S
from infer_doctor.facts.server_limits import Buffering, Limit
from infer_doctor.model import Evidence
from infer_doctor.server.durations import matches

TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<comment>#[^\n]*)|(?P<mark>[;{}])"
    r"|(?P<quoted>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|(?P<word>(?:\$\{\w*\}|[^\s;{}\"'#])[^\s;{}]*)"
)
TIME = re.compile(r"(\d+)(ms|[smhdwMy]?)")
UNITS = {"ms": 0.001, "s": 1, "": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "M": 2592000}
UNITS["y"] = 31536000
DEEPEST = 20
MOST = 100_000
MOST_FILES = 50
MOST_WILD = 2
"""Parts of a path that are patterns: sites/*/*.conf is usual, /*/*/*/* would read the whole disk."""

IGNORED = ("mime.types", "fastcgi_params", "proxy_params", "uwsgi_params")
"""Files of every installation that hold no time-out; Debian's proxy_params sets headers only."""

PASSES = {"proxy_pass": "proxy", "grpc_pass": "grpc"}
"""Directive -> the prefix of its time-outs."""

Directive = tuple[tuple[str, ...], int, str]
"""Arguments, line, file."""


@dataclass
class Block:
    """A block, its own directives and the one around it."""

    name: str
    arguments: tuple[str, ...]
    line: int
    file: str = ""
    outer: Block | None = None
    directives: dict[str, Directive] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    unread: bool = False
    """A file that it includes could not be read: it may hold any directive."""

    @property
    def passes(self) -> str:
        """The prefix of the time-outs that hold here: "proxy", "grpc"; "" when it passes nothing on."""
        return next((kind for name, kind in PASSES.items() if name in self.directives), "")

    def find(self, name: str) -> Directive | None:
        """A directive here or further out, as nginx inherits them."""
        block: Block | None = self
        while block is not None:
            if name in block.directives:
                return block.directives[name]
            block = block.outer
        return None

    def unsure(self, name: str) -> bool:
        """Whether a file that was not read may hold this directive, nearer than what was found."""
        block: Block | None = self
        while block is not None and name not in block.directives:
            if block.unread:
                return True
            block = block.outer
        return False

    def all(self) -> Iterator[Block]:
        """This block and all within."""
        yield self
        for block in self.blocks:
            yield from block.all()


def is_nginx(text: str) -> bool:
    """Whether a text is a configuration that passes requests on."""
    return bool(
        re.search(r"(?:^|[{;])\s*(?:(?:proxy|grpc)_pass\s+\S+|include\s+\S+)\s*;", text, re.M)
        and re.search(r"(?:^|[{;])\s*(?:server|location\s[^{;]*|http)\s*\{", text, re.M)
    )


@dataclass
class Files:
    """The files that includes name, and what of them could not be read."""

    folder: str | None
    gaps: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def texts(self, pattern: str) -> Iterator[tuple[str, str]]:
        """(name, text) of each; nothing for a configuration that is no file."""
        import glob
        import os

        from infer_doctor.targets import NoTarget, read_text

        if self.folder is None:
            self.gaps.append(f"include {pattern}: only a file has files beside it")
            return
        if sum(map(glob.has_magic, pattern.split("/"))) > MOST_WILD:
            self.gaps.append(f"include {pattern}: too many patterns to look through")
            return
        names = sorted(glob.glob(os.path.join(self.folder, pattern)))
        if not names and not glob.has_magic(pattern):
            self.gaps.append(f"include {pattern}: there is no such file")
        for name in names:
            if name in self.read or len(self.read) >= MOST_FILES:
                continue
            self.read.add(name)
            try:
                yield name, read_text(name)
            except NoTarget as error:
                self.gaps.append(str(error))


def parse(text: str, file: str = "", files: Files | None = None) -> Block:
    """The tree of blocks; what is malformed ends it there."""
    root = Block("", (), 1, file)
    _fill(root, text, files)
    return root


def _fill(root: Block, text: str, files: Files | None) -> None:
    block, file = root, root.file
    words: list[str] = []
    line, start, depth = 1, 1, 0
    for number, match in enumerate(TOKEN.finditer(text)):
        if number > MOST:
            break
        kind, part = match.lastgroup, match[0]
        if kind in ("word", "quoted"):
            start = start if words else line
            words.append(part[1:-1] if kind == "quoted" else part)
        elif part == ";" and words:
            if words[0] == "include" and len(words) > 1 and files is not None:
                _include(block, words[1], files)
            else:
                block.directives[words[0]] = (tuple(words[1:]), start, file)
            words = []
        elif part == "{" and words and depth < DEEPEST:
            inner = Block(words[0], tuple(words[1:]), start, file, outer=block)
            block.blocks.append(inner)
            block, words, depth = inner, [], depth + 1
        elif part == "}" and block is not root and block.outer is not None:
            block, words, depth = block.outer, [], depth - 1
        line += part.count("\n")


def _include(block: Block, pattern: str, files: Files) -> None:
    """Read it in place: its directives are those of the block, its blocks stand within."""
    if pattern.endswith(IGNORED):
        return
    known = len(files.gaps)
    for name, text in files.texts(pattern):
        inner = Block(block.name, block.arguments, 1, name, outer=block.outer)
        _fill(inner, text, files)
        block.directives |= inner.directives
        block.unread |= inner.unread
        for child in inner.blocks:
            child.outer = block
        block.blocks += inner.blocks
    block.unread |= len(files.gaps) > known


def limits(
    text: str, file: str, path: str = API_PATH, gaps: list[str] | None = None
) -> tuple[tuple[Limit, ...], tuple[Buffering, ...]]:
    """What the location of the API lets pass: of each server that passes it on."""
    import os

    found: list[Limit] = []
    buffers: list[Buffering] = []
    files = Files(os.path.dirname(file) or "." if os.path.isfile(file) else None)
    root = parse(text, file, files)
    if gaps is not None:
        gaps += files.gaps
    for location in _of_api(root, path):
        name = f"nginx {' '.join((location.name, *location.arguments))}".strip()
        timeout = f"{location.passes}_read_timeout"
        read = location.find(timeout)
        seconds = duration(read[0]) if read else NGINX_READ_S
        if seconds is None and gaps is not None:
            gaps.append(f"{timeout} of {name} is {' '.join(read[0]) if read else ''}")
        elif seconds is not None and not location.unsure(timeout):
            found.append(
                Limit(
                    who="proxy",
                    name=f"{timeout} of {name}",
                    seconds=seconds,
                    what="next byte",
                    default=read is None,
                    evidence=_evidence(location, timeout, "60s (default)"),
                )
            )
        on = location.find("proxy_buffering")
        known = on is None or on[0] in (("on",), ("off",))
        if not known and gaps is not None:
            gaps.append(f"proxy_buffering of {name} is {' '.join(on[0]) if on else ''}")
        if location.passes == "proxy" and known and not location.unsure("proxy_buffering"):
            buffers.append(
                Buffering(
                    name=name,
                    on=on[0] != ("off",) if on else NGINX_BUFFERS,
                    evidence=_evidence(location, "proxy_buffering", "on (default)"),
                )
            )
    return tuple(found), tuple(buffers)


def _of_api(root: Block, path: str) -> Iterator[Block]:
    """The location that takes a request of the API, for each server; nginx's own order of choice.

    Where it passes nothing on, the API may stand under another prefix: then all that do.
    """
    servers = [block for block in root.all() if block.name == "server"] or [root]
    for server in servers:
        locations = [block for block in server.all() if block.name == "location"]
        passing = [block for block in locations if block.passes]
        chosen = _chosen(locations, path)
        if chosen is not None and not chosen.passes:
            chosen = _fallback(chosen, locations)
        if chosen is not None and chosen.passes:
            yield chosen
        elif passing:
            yield from passing
        elif server.passes:
            yield server


def _fallback(location: Block, locations: list[Block]) -> Block | None:
    """Where try_files sends what is no file."""
    tried = location.directives.get("try_files")
    name = tried[0][-1] if tried is not None and tried[0] else ""
    return next((block for block in locations if block.arguments == (name,)), None)


def _chosen(locations: list[Block], path: str) -> Block | None:
    prefixes: list[tuple[int, Block]] = []
    for block in locations:
        words = block.arguments
        if words[:1] == ("=",) and words[1:] == (path,):
            return block
        plain = words[-1] if words else ""
        if words and (len(words) == 1 or words[0] == "^~") and path.startswith(plain):
            prefixes.append((len(plain), block))
    best = max(prefixes, key=lambda row: row[0], default=None)
    if best is not None and best[1].arguments[0] == "^~":
        return best[1]
    for block in locations:
        kind, pattern = block.arguments[:1], block.arguments[-1:]
        if kind in (("~",), ("~*",)) and matches(pattern[0], path, ignore_case=kind == ("~*",)):
            return block
    return best[1] if best is not None else None


def duration(words: tuple[str, ...]) -> float | None:
    """5s, 1m, 1h 30m, 300; None for a variable."""
    text = "".join(words)
    parts = TIME.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    if any(unit not in UNITS for _, unit in parts):
        return None
    value = sum(float(number) * UNITS[unit] for number, unit in parts)
    return value if math.isfinite(value) else None


def _evidence(location: Block, name: str, default: str) -> Evidence:
    found = location.find(name)
    if found is None:
        return Evidence(source=location.file, line=location.line, excerpt=f"{name}: {default}")
    return Evidence(source=found[2], line=found[1], excerpt=f"{name} {' '.join(found[0])};")
