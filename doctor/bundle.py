"""What a support ticket needs, in one zip: snapshot, report, ends of logs, configurations, manifest.

Everything is masked before it is written, by the same masks: what stands under a secret's name in one
file is masked in all. `check --snapshot FILE.zip` replays the machine elsewhere.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import posixpath
import re
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.host import Unavailable
from infer_doctor.live import LiveHost, require_answer
from infer_doctor.redact import Redactor

KIND = "infer-doctor-bundle"
SCHEMA_VERSION = 1
SNAPSHOT = "snapshot.json"
MANIFEST = "manifest.json"

TAIL = 4 << 20
"""Bytes of the end of a log: one start of vLLM is 100 KB, a day of requests some MB."""

LEAST_TAIL = 4 << 10
"""Below this the end of a log tells nothing; then it stays out."""

CONFIG_LIMIT = 1 << 20
"""Bytes of a configuration; tokenizer.json of a large vocabulary has 10 MB and helps nobody."""

UNPACKED_LIMIT = 1 << 30
"""Bytes that a .gz is read up to."""

MEMBER_LIMIT = 64 << 20
"""Bytes of the snapshot in a bundle that is read."""

CONFIG = re.compile(
    r"(?:.*\.(?:ya?ml|json|toml|env|conf|cfg|ini|service|sh|py)|(?:.*\.)?Dockerfile.*|\.env.*|Modelfile)",
    re.I,
)
MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "hf_quant_config.json",
)

ENGINE = re.compile(r"(?:^|/)(?:vllm|trtllm-serve|tritonserver)$|^vllm\.entrypoints|^VLLM::")
CONFIG_OPTIONS = (
    "--config",
    "--extra_llm_api_options",
    "--extra-llm-api-options",
    "--chat-template",
)


@frozen
class Part:
    """A file of the bundle before it is masked. `text` is the end of it where it was cut."""

    name: str
    source: str
    text: str
    cut: bool = False


@frozen
class LeftOut:
    """What was named or found and is not in the bundle."""

    source: str
    reason: str


def named(targets: Sequence[str]) -> tuple[list[Part], list[LeftOut]]:
    """The files that were named: configurations whole, model folders by their small files, logs cut."""
    parts: list[Part] = []
    left: list[LeftOut] = []
    for target in dict.fromkeys(targets):
        paths = [target]
        if os.path.isdir(target):
            paths = [
                path for name in MODEL_FILES if os.path.isfile(path := os.path.join(target, name))
            ]
            if not paths:
                left.append(LeftOut(source=target, reason="is a folder without a config.json"))
        for path in paths:
            found = _part(path)
            if (
                path != target
                and isinstance(found, Part)
                and not found.text.lstrip().startswith("{")
            ):
                found = LeftOut(source=path, reason="is no JSON")  # a link may lead anywhere
            (parts if isinstance(found, Part) else left).append(found)  # type: ignore[arg-type]
    return parts, left


def _part(path: str) -> Part | LeftOut:
    is_config = CONFIG.fullmatch(os.path.basename(path)) is not None
    try:
        require_answer(path)
        data, cut = read_tail(path, CONFIG_LIMIT if is_config else TAIL)
    except Unavailable as error:
        return LeftOut(source=path, reason=error.reason)
    except OSError as error:
        return LeftOut(source=path, reason=str(error.strerror or error))
    if b"\0" in data:
        return LeftOut(source=path, reason="is binary")
    if is_config and cut:
        return LeftOut(source=path, reason=f"is larger than {CONFIG_LIMIT:,} bytes")
    folder = "configs" if is_config else "logs"
    return Part(
        name=f"{folder}/{os.path.basename(path).removesuffix('.gz')}",
        source=path,
        text=data.decode("utf-8", "backslashreplace"),
        cut=cut,
    )


def read_tail(path: str, limit: int) -> tuple[bytes, bool]:
    """At most `limit` bytes of the end of a regular file, from a line's start on; whether it was cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "is no regular file")
        if path.endswith(".gz"):
            return _unpacked_tail(file, limit)
        cut = found.st_size > limit
        if cut:
            file.seek(found.st_size - limit)
        data = file.read(limit)
    return (_from_line(data) if cut else data), cut


def _unpacked_tail(file: Any, limit: int) -> tuple[bytes, bool]:
    kept, total = b"", 0
    try:
        with gzip.GzipFile(fileobj=file) as unpacked:
            while (block := unpacked.read(1 << 20)) and total < UNPACKED_LIMIT:
                total += len(block)
                kept = (kept + block)[-limit:]
    except (EOFError, gzip.BadGzipFile) as error:
        if not kept:
            raise OSError(0, f"is no gzip file: {error}") from None
    return (_from_line(kept) if total > limit else kept), total > limit


def _from_line(data: bytes) -> bytes:
    return data[data.find(b"\n") + 1 :]


def running(host: LiveHost) -> tuple[list[Part], list[LeftOut]]:
    """Logs and configurations of engines that run here: where their output goes, what they name."""
    paths: list[str] = []
    try:
        numbers = [name for name in host.list("/proc") if name.isdigit()]
    except Unavailable:
        return [], []
    for number in numbers:
        try:
            words = host.read(f"/proc/{number}/cmdline").split("\0")
            if not any(ENGINE.search(word) for word in words[:4]):
                continue
            found = [host.real(f"/proc/{number}/fd/{stream}") for stream in (1, 2)]
            folder = host.real(f"/proc/{number}/cwd") or "/"
        except Unavailable:  # it ended, or is another user's
            continue
        paths += [path for path in found if path and os.path.isfile(path)]
        paths += [path for path in _configs(words, folder) if _may_read(number, path)]
    return named(paths)


def _may_read(number: str, path: str) -> bool:
    """Whether the process's user may read the file: anybody can write a path into a command line."""
    try:
        owner, file = os.stat(f"/proc/{number}").st_uid, os.stat(path)
    except OSError:
        return False
    return owner in (0, file.st_uid) or bool(file.st_mode & stat.S_IROTH)


def _configs(words: Sequence[str], folder: str) -> Iterator[str]:
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in CONFIG_OPTIONS:
            value = value if equals else "".join(words[place + 1 : place + 2])
            path = posixpath.join(folder, value)
            if value and os.path.isfile(path):
                yield path


def pack(
    fixed: dict[str, str],
    parts: Iterable[Part],
    left: Iterable[LeftOut],
    redactor: Redactor,
    max_bytes: int,
    head: dict[str, Any],
) -> tuple[bytes, dict[str, Any]]:
    """The zip and its manifest. `fixed` is masked already; ends of logs are cut until all fits."""
    kept = _unique(list(parts))
    for part in kept:
        redactor.learn(part.text)
    masked = [(part, redactor.text(part.text)) for part in kept]
    missing = list(left)
    limit = TAIL
    while True:
        files, dropped = _files(fixed, masked, limit)
        manifest = _manifest(head, files, [*missing, *dropped], redactor)
        data = _zip(files, manifest)
        if len(data) <= max_bytes or limit < LEAST_TAIL:
            return data, manifest
        limit //= 2


def _unique(parts: Sequence[Part]) -> list[Part]:
    """Each source once, names made different."""
    found: dict[str, Part] = {}
    names: set[str] = set()
    for part in parts:
        if part.source in found:
            continue
        name, number = part.name, 2
        while name in names:
            stem, dot, end = part.name.rpartition(".")
            name = f"{stem}-{number}.{end}" if dot and "/" not in end else f"{part.name}-{number}"
            number += 1
        names.add(name)
        found[part.source] = Part(name=name, source=part.source, text=part.text, cut=part.cut)
    return list(found.values())


Files = dict[str, tuple[str, str | None, bool]]
"""Name -> text, source, whether it was cut."""


def _files(
    fixed: dict[str, str], masked: Sequence[tuple[Part, str]], limit: int
) -> tuple[Files, list[LeftOut]]:
    files: Files = {name: (text, None, False) for name, text in fixed.items()}
    dropped = []
    for part, text in masked:
        if limit < LEAST_TAIL:
            dropped.append(LeftOut(source=part.source, reason="the bundle would be too large"))
            continue
        cut = part.cut
        if part.name.startswith("logs/") and len(text) > limit:
            text, cut = text[-limit:].partition("\n")[2], True
        files[part.name] = (text, part.source, cut)
    return files, dropped


def _manifest(
    head: dict[str, Any], files: Files, left: Sequence[LeftOut], redactor: Redactor
) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        **head,
        "files": [
            {
                "name": redactor.text(name),
                "bytes": len(text.encode("utf-8", "backslashreplace")),
                "sha256": hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest(),
                "source": None if source is None else redactor.text(source),
                "cut": cut,
            }
            for name, (text, source, cut) in files.items()
        ],
        "left_out": [
            {"source": redactor.text(row.source), "reason": redactor.text(row.reason)}
            for row in left
        ],
        "redactions": [{"kind": row.kind, "count": row.count} for row in redactor.redactions],
    }


def _zip(files: Files, manifest: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for row, (text, _, _) in zip(manifest["files"], files.values(), strict=True):
            archive.writestr(row["name"], text.encode("utf-8", "backslashreplace"))
        archive.writestr(MANIFEST, json.dumps(manifest, indent=1) + "\n")
    return target.getvalue()


class NoBundle(Exception):
    """The file is none that can be read; the text completes "FILE: ..."."""


def snapshot_in(data: bytes) -> str:
    """The snapshot of a bundle; raises NoBundle."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            info = archive.getinfo(SNAPSHOT)
            if info.file_size > MEMBER_LIMIT:
                raise NoBundle(f"its {SNAPSHOT} has {info.file_size:,} bytes: too many")
            with archive.open(info) as member:
                return member.read(MEMBER_LIMIT).decode("utf-8", "backslashreplace")
    except KeyError:
        raise NoBundle(f"is a zip without a {SNAPSHOT}") from None
    except NoBundle:
        raise
    except Exception as error:  # zipfile raises what it likes for a crafted or damaged archive
        raise NoBundle(f"is no zip that can be read: {error}") from None
