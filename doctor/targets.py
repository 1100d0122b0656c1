"""TARGET: a file that somebody already has, told apart by what it holds."""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from infer_doctor.frozen import frozen
from infer_doctor.host import Unavailable
from infer_doctor.launch.command import read as read_command
from infer_doctor.launch.model import Launch
from infer_doctor.live import require_answer

if TYPE_CHECKING:
    from infer_doctor.facts.client_code import ClientCode
    from infer_doctor.foreign.text import Facts

FILE_LIMIT = 64 << 20
"""Bytes; a snapshot of a machine with 300 distributions has 2 MB."""

PACKED = (b"\x1f\x8b", b"\xfd7zXZ\0")
"""How gzip (RFC 1952) and xz begin."""

XZ_MEMORY = 128 << 20
"""Bytes: `xz -9` needs 65 MiB to unpack (xz(1))."""

OUTPUT_LIMIT = 4 << 20
"""Characters; `nvidia-smi -q -x` of a GPU with many clocks has 122,000, so 16 GPUs 2 million."""

BESIDE_LIMIT = 4 << 20
"""Bytes of a file that a launch names: an .env file, a configuration."""

STANDARD_INPUT = "-"

PIPE_S = 20.0
"""Seconds that a writer into a pipe may be silent, as long as a whole report may take."""

MODEL_FILE = re.compile(r"config\.json|params\.json|.+\.safetensors|.+\.gguf|adapter_config\.json")
ENGINE_FILE = re.compile(r"(?:.+_)?rank\d+\.engine")
CHECKPOINT_FILE = re.compile(r"rank\d+\.safetensors")
ENGINE_KEYS = ('"pretrained_config"', '"builder_config"')
TRITON_CONFIG = "config.pbtxt"
TRITON_LIMIT = 256
"""Models of a repository that are looked at."""

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
FILE_NAME = re.compile(
    r"\.(?:ya?ml|json|sh|py|txt|log|service|env|toml|cfg|conf|md|xml|zip|gz)$", re.I
)

JSON_START = re.compile(r"\{\s*[\"}]|\{\s*$")
"""{% of a template and { config, pkgs }: of Nix are no JSON."""

LOG_NAME = re.compile(r"\.log(?:[.-]\d+)?(?:\.gz)?$", re.I)
LOG_LINE = re.compile(
    r"^(?:\S+ )*?(?:\([A-Z]\w+ pid=\d+\) )?(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d "
    r"|^\[TensorRT-LLM\]|\] \[TRT-LLM\] \[[IWE]\]|^Traceback \(most recent call last\):",
    re.M,
)
"""vLLM's, TensorRT-LLM's and Python's own first words of a line."""

UNKNOWN = (
    "is no file that infer-doctor knows (vllm collect-env, torch collect_env, nvidia-smi, "
    "nvidia-smi -q, nvidia-smi -q -x, a snapshot, a log; of launches a shell script, Markdown, a Makefile, a "
    "Dockerfile, a unit of systemd or Podman, Python, and YAML of Docker Compose, Kubernetes, Helm values, Ray "
    "Serve, SkyPilot, vLLM's --config or with shell steps)"
)

SMI_FAILURE = re.compile(
    r"NVIDIA-SMI has failed because[^\n]{0,80}|Failed to initialize NVML: [^\n]{1,80}"
    r"|No devices were found"
)
"""What nvidia-smi prints instead of its output (docs.nvidia.com/deploy/nvidia-smi, exit codes)."""


class NoTarget(Exception):
    """The target cannot be examined; the text says why."""


def snapshot_text(path: str) -> str:
    """The text of a snapshot, also of the one in a bundle; raises NoTarget."""
    if path != STANDARD_INPUT and path.endswith(".zip"):
        from infer_doctor.bundle import NoBundle, snapshot_in

        try:
            return snapshot_in(_file(path))
        except NoBundle as error:
            raise NoTarget(f"{path}: {error}") from None
    return read_text(path)


def read_text(path: str) -> str:
    """The text of a file, a pipe or (`-`) standard input, of at most FILE_LIMIT.

    Raises NoTarget with one clear sentence.
    """
    data = _standard_input() if path == STANDARD_INPUT else _file(path)
    if data.startswith(PACKED):
        data = _unpacked(data, path)
    if len(data) > FILE_LIMIT:
        raise NoTarget(f"{path}: more than {FILE_LIMIT:,} bytes are too many")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # PowerShell's ">"
        text = data.decode("utf-16", "replace")
    else:
        text = data.decode("utf-8", "backslashreplace")
    if "\0" in text:
        raise NoTarget(f"{path}: is binary, not text")
    if not text.strip("\ufeff \t\r\n"):
        raise NoTarget(f"{path}: is empty")
    return text


def _unpacked(data: bytes, path: str) -> bytes:
    """What gzip or xz packed, no more of it than is read at all."""
    import lzma
    import zlib

    try:
        if data.startswith(PACKED[0]):
            unpacker = zlib.decompressobj(wbits=31)
            text, whole = unpacker.decompress(data, FILE_LIMIT + 1), unpacker.eof
        else:
            packed = lzma.LZMADecompressor(memlimit=XZ_MEMORY)
            text, whole = packed.decompress(data, FILE_LIMIT + 1), packed.eof
    except (zlib.error, lzma.LZMAError, EOFError) as error:
        raise NoTarget(f"{path}: cannot be unpacked: {error}") from None
    if not whole and len(text) <= FILE_LIMIT:
        raise NoTarget(f"{path}: cannot be unpacked: it ends too early")
    return text


def _file(path: str) -> bytes:
    try:
        require_answer(path)
    except Unavailable as error:
        raise NoTarget(error.reason) from None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise NoTarget(f"{path}: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise NoTarget(f"{path}: is a folder")
        if stat.S_ISFIFO(found.st_mode):
            return _pipe(descriptor, path)
        if not stat.S_ISREG(found.st_mode):
            raise NoTarget(f"{path}: is no regular file")
        if found.st_size > FILE_LIMIT:
            raise NoTarget(f"{path}: {found.st_size:,} bytes are too many (at most {FILE_LIMIT:,})")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(FILE_LIMIT + 1) or b""
    except OSError as error:
        raise NoTarget(f"{path}: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _standard_input() -> bytes:
    if os.isatty(0):
        raise NoTarget("-: standard input is a terminal; give a file or a pipe")
    try:
        return _pipe(0, STANDARD_INPUT)
    except OSError as error:
        raise NoTarget(f"-: {error.strerror}") from None


def _pipe(descriptor: int, path: str) -> bytes:
    """Everything that is written into a pipe; a writer who is silent too long is not waited for."""
    import select

    parts: list[bytes] = []
    size = 0
    waits = path == STANDARD_INPUT
    while size <= FILE_LIMIT:
        if waits and not select.select([descriptor], [], [], PIPE_S)[0]:
            raise NoTarget(f"{path}: nothing came within {PIPE_S:g} s")
        waits = path == STANDARD_INPUT
        try:
            part = os.read(descriptor, 1 << 20)
        except BlockingIOError:
            waits = True
            continue
        if not part:
            break
        parts.append(part)
        size += len(part)
    if not parts and path != STANDARD_INPUT:
        raise NoTarget(f"{path}: is a pipe that nobody writes into")
    return b"".join(parts)


@frozen
class Found:
    """What a target is: a snapshot's text, facts of a machine, launches, Python code, or a log."""

    target: str
    snapshot: str | None = None
    facts: Facts | None = None
    launches: tuple[Launch, ...] = ()
    code: ClientCode | None = None
    log: Facts | None = None

    @property
    def machine(self) -> bool:
        """Whether it tells of a machine."""
        return self.snapshot is not None or self.facts is not None


def look(target: str) -> Found:
    """What a target is; raises NoTarget."""
    if target != STANDARD_INPUT:
        _require_place(target)
        if os.path.basename(target) == TRITON_CONFIG and os.path.isfile(target):
            target = os.path.dirname(os.path.dirname(os.path.abspath(target)))
        if (words := _model(target)) is not None:
            launch = replace(read_command(words), name=target)
            return Found(target=target, launches=(launch,))
        if os.path.isdir(target):
            raise NoTarget(
                f"{target}: is a folder without a model (config.json, *.safetensors, *.gguf), "
                "TensorRT-LLM engine (rank0.engine) or model repository of Triton (config.pbtxt)"
            )
    if LOG_NAME.search(target):
        return _log(target)
    text = read_text(target)
    if _is_snapshot(text) and not target.endswith(".ipynb"):
        return Found(target=target, snapshot=text)
    from infer_doctor.foreign.text import Unreadable, clean

    source = "standard input" if target == STANDARD_INPUT else os.path.basename(target)
    try:
        return Found(target=target, facts=facts_in(clean(text), source))
    except Unreadable as error:
        if error.known:
            raise NoTarget(f"{target}: {error}") from None
    return _launched(target, text.lstrip("\ufeff"))


def _launched(target: str, text: str) -> Found:
    from infer_doctor.launch.document import Broken
    from infer_doctor.launch.recognise import NoLaunch, launches
    from infer_doctor.launch.secrets import masked

    file = "standard input" if target == STANDARD_INPUT else target
    try:
        found = launches(text, file, beside(target))
    except Broken as error:
        raise NoTarget(str(error)) from None
    except NoLaunch as error:
        raise NoTarget(f"{target}: {error}") from None
    if found is None and is_log(text):
        from infer_doctor.logs.read import read_texts

        return Found(target=target, log=read_texts(text.splitlines(), file))
    if found is None:
        raise NoTarget(f"{target}: {UNKNOWN}")
    rows, code = found
    return Found(target=target, launches=tuple(masked(row) for row in rows), code=code)


def _log(target: str) -> Found:
    from infer_doctor.logs.read import read
    from infer_doctor.logs.source import NotALog, order

    try:
        return Found(target=target, log=read(order([target])[0]))
    except NotALog as error:
        raise NoTarget(str(error)) from None


def is_log(text: str) -> bool:
    """Whether an engine wrote the text: a line with its time and level, or a traceback."""
    return LOG_LINE.search(text) is not None


def beside(target: str) -> Callable[[str], str]:
    """A reader of files that a target names, relative to its folder; at most BESIDE_LIMIT."""
    folder = "." if target == STANDARD_INPUT else os.path.dirname(target) or "."

    def read(path: str) -> str:
        place = os.path.join(folder, os.path.expanduser(path))
        try:
            if os.path.getsize(place) > BESIDE_LIMIT:
                raise Unavailable(f"{path}: is larger than {BESIDE_LIMIT:,} bytes")
            return read_text(place)
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror}") from None
        except NoTarget as error:
            raise Unavailable(str(error)) from None

    return read


def _require_place(target: str) -> None:
    """Raise NoTarget when it lies on a mount that does not answer."""
    try:
        require_answer(target)
    except Unavailable as error:
        raise NoTarget(error.reason) from None


def _model(target: str) -> list[str] | None:
    """The command that serves a target which is a model or engine folder, or the id of a model."""
    if os.path.isdir(target):
        try:
            names = os.listdir(target)
        except OSError as error:
            raise NoTarget(f"{target}: {error.strerror}") from None
        if any(ENGINE_FILE.fullmatch(name) for name in names) or _is_engine(target, names):
            return ["trtllm-serve", target]
        if any(CHECKPOINT_FILE.fullmatch(name) for name in names):
            return ["trtllm-build", "--checkpoint_dir", target]
        if _is_triton(target, names):
            return ["tritonserver", "--model-repository", target]
        if any(MODEL_FILE.fullmatch(name) for name in names):
            return ["vllm", "serve", target]
        return None
    if HUB_ID.fullmatch(target) and not os.path.lexists(target):
        folder = target.partition("/")[0]
        if not os.path.isdir(folder) and not FILE_NAME.search(target):
            return ["vllm", "serve", target]
    return None


def _is_engine(target: str, names: Sequence[str]) -> bool:
    """The folder of a TensorRT-LLM engine whose plans are missing: its config.json tells it."""
    if "config.json" not in names or any(name.endswith(".safetensors") for name in names):
        return False
    try:
        text = beside(os.path.join(target, "config.json"))("config.json")
    except Unavailable:
        return False
    return any(key in text for key in ENGINE_KEYS)


def _is_triton(target: str, names: Sequence[str]) -> bool:
    """A model repository of Triton: folders with a config.pbtxt."""
    folders = (os.path.join(target, name, TRITON_CONFIG) for name in names[:TRITON_LIMIT])
    return any(os.path.isfile(path) for path in folders)


def _is_snapshot(text: str) -> bool:
    """JSON that is no manifest: of the files that are known, snapshots and manifests are JSON."""
    head = text.lstrip("\ufeff \t\r\n")
    return JSON_START.match(head) is not None and not ('"apiVersion"' in head and '"kind"' in head)


def facts_of(path: str) -> Facts:
    """The facts that a foreign file holds; raises NoTarget."""
    from infer_doctor.foreign.text import Unreadable, clean

    try:
        return facts_in(clean(read_text(path)), os.path.basename(path))
    except Unreadable as error:
        raise NoTarget(f"{path}: {error}") from None


def facts_in(text: str, source: str) -> Facts:
    """The facts that a text holds; raises Unreadable with words that complete "FILE: ..."."""
    from infer_doctor.foreign.text import Unreadable

    if len(text) > OUTPUT_LIMIT and not any(recognise(text) for recognise, _ in _readers()):
        raise Unreadable(UNKNOWN, known=False)
    if len(text) > OUTPUT_LIMIT:
        raise Unreadable(
            f"{len(text):,} characters are too many for an output of nvidia-smi or collect_env "
            f"(at most {OUTPUT_LIMIT:,})"
        )
    for recognise, parse in _readers():
        if recognise(text):
            return parse(text, source)
    if failure := SMI_FAILURE.search(text):
        raise Unreadable(
            f"nvidia-smi failed there ({failure[0].strip()}); "
            "`infer-doctor check` on that machine says why"
        )
    raise Unreadable(UNKNOWN, known=False)


def _readers() -> Sequence[tuple[Callable[[str], bool], Callable[[str, str], Facts]]]:
    """(recognises the text, facts of the text and its file name), the surest first."""
    from infer_doctor.foreign import collect_env, smi_query, smi_table

    return (
        (smi_query.is_xml, smi_query.read_xml),
        (collect_env.is_collect_env, collect_env.read_collect_env),
        (smi_query.is_text, smi_query.read_text),
        (smi_table.is_table, smi_table.read_table),
    )
