"""Reads nginx's configuration as far as it decides over a request of the API: time-outs, buffering."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from infer_doctor.catalog.gateways import API_PATH, NGINX_BUFFERS, NGINX_READ_S
from infer_doctor.facts.server_limits import Buffering, Limit
from infer_doctor.model import Evidence

TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<comment>#[^\n]*)|(?P<mark>[;{}])"
    r"|(?P<quoted>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|(?P<word>(?:\$\{\w*\}|[^\s;{}\"'#])[^\s;{}]*)"
)
TIME = re.compile(r"(\d+)(ms|[smhdwMy]?)")
UNITS = {"ms": 0.001, "s": 1, "": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
DEEPEST = 20
MOST = 100_000


@dataclass
class Block:
    """A block, its own directives (name -> arguments and line) and the one around it."""

    name: str
    arguments: tuple[str, ...]
    line: int
    outer: Block | None = None
    directives: dict[str, tuple[tuple[str, ...], int]] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)

    def find(self, name: str) -> tuple[tuple[str, ...], int] | None:
        """A directive here or further out, as nginx inherits them."""
        block: Block | None = self
        while block is not None:
            if name in block.directives:
                return block.directives[name]
            block = block.outer
        return None

    def all(self) -> Iterator[Block]:
        """This block and all within."""
        yield self
        for block in self.blocks:
            yield from block.all()


def is_nginx(text: str) -> bool:
    """Whether a text is a configuration that passes requests on."""
    return bool(
        re.search(r"^\s*proxy_pass\s+\S+\s*;", text, re.M)
        and re.search(r"^\s*(?:server|location\s[^{;]*|http)\s*\{", text, re.M)
    )


def parse(text: str) -> Block:
    """The tree of blocks; what is malformed ends it there."""
    block = root = Block("", (), 1)
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
            block.directives[words[0]] = (tuple(words[1:]), start)
            words = []
        elif part == "{" and words and depth < DEEPEST:
            inner = Block(words[0], tuple(words[1:]), start, outer=block)
            block.blocks.append(inner)
            block, words, depth = inner, [], depth + 1
        elif part == "}" and block.outer is not None:
            block, words, depth = block.outer, [], depth - 1
        line += part.count("\n")
    return root


def limits(text: str, file: str) -> tuple[tuple[Limit, ...], tuple[Buffering, ...]]:
    """What the location of the API lets pass: of each server that passes it on."""
    found: list[Limit] = []
    buffers: list[Buffering] = []
    for location in _of_api(parse(text)):
        name = f"nginx {' '.join((location.name, *location.arguments))}".strip()
        read = location.find("proxy_read_timeout")
        seconds = duration(read[0]) if read else NGINX_READ_S
        if seconds is not None:
            found.append(
                Limit(
                    who="proxy",
                    name=f"proxy_read_timeout of {name}",
                    seconds=seconds,
                    what="next byte",
                    default=read is None,
                    evidence=_evidence(file, location, "proxy_read_timeout", "60s (default)"),
                )
            )
        on = location.find("proxy_buffering")
        buffers.append(
            Buffering(
                name=name,
                on=on[0] != ("off",) if on else NGINX_BUFFERS,
                evidence=_evidence(file, location, "proxy_buffering", "on (default)"),
            )
        )
    return tuple(found), tuple(buffers)


def _of_api(root: Block) -> Iterator[Block]:
    """The location that takes a request of the API, for each server; nginx's own order of choice."""
    servers = [block for block in root.all() if block.name == "server"] or [root]
    for server in servers:
        locations = [block for block in server.all() if block.name == "location"]
        passing = [block for block in locations if "proxy_pass" in block.directives]
        chosen = _chosen(locations)
        if chosen is not None and "proxy_pass" in chosen.directives:
            yield chosen
        elif chosen is None and passing:
            yield passing[0]
        elif "proxy_pass" in server.directives:
            yield server


def _chosen(locations: list[Block]) -> Block | None:
    prefixes: list[tuple[int, Block]] = []
    for block in locations:
        words = block.arguments
        if words[:1] == ("=",) and words[1:] == (API_PATH,):
            return block
        plain = words[-1] if words else ""
        if (len(words) == 1 or words[0] == "^~") and API_PATH.startswith(plain):
            prefixes.append((len(plain), block))
    best = max(prefixes, key=lambda row: row[0], default=None)
    if best is not None and best[1].arguments[0] == "^~":
        return best[1]
    for block in locations:
        if block.arguments[:1] in (("~",), ("~*",)) and _matches(block.arguments):
            return block
    return best[1] if best is not None else None


def _matches(arguments: tuple[str, ...]) -> bool:
    pattern = arguments[-1]
    if len(pattern) > 200 or re.search(r"[*+}]\)*[*+{]", pattern):  # may take for ever
        return False
    try:
        return re.search(pattern, API_PATH, re.I if arguments[0] == "~*" else 0) is not None
    except re.error:
        return False


def duration(words: tuple[str, ...]) -> float | None:
    """5s, 1m, 1h 30m, 300; None for a variable."""
    text = "".join(words)
    parts = TIME.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    if any(unit not in UNITS for _, unit in parts):
        return None
    return float(sum(int(number) * UNITS[unit] for number, unit in parts))


def _evidence(file: str, location: Block, name: str, default: str) -> Evidence:
    found = location.find(name)
    if found is None:
        return Evidence(source=file, line=location.line, excerpt=f"{name}: {default}")
    return Evidence(source=file, line=found[1], excerpt=f"{name} {' '.join(found[0])};")
