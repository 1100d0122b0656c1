"""One line of a log without what surrounds it: who wrote it, when, how loud, and the text.

Peels JSON lines, Docker's and Kubernetes' prefixes, journald, docker compose, mpirun, ANSI colours,
and the engines' own prefixes, in any order they come in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from infer_doctor.frozen import frozen

ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_])")

OUTER = (
    # Kubernetes' and containerd's files: 2026-11-30T12:00:00.123456789Z stderr F text
    re.compile(r"(?P<time>\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)) (?:stdout|stderr) [FP] "),
    # kubectl logs --timestamps, docker logs -t
    re.compile(r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:?\d\d)) "),
    # kubectl logs --prefix
    re.compile(r"\[(?P<stream>pod/[^\]\s]+)\] "),
    # journald: short and short-iso
    re.compile(r"(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) \S+ [\w@.:\\/-]+\[\d+\]: "),
    re.compile(r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:?\d\d) \S+ [\w@.:\\/-]+\[\d+\]: "),
    # docker compose: vllm-1  | text
    re.compile(r"(?P<stream>[\w.-]+)\s*\| "),
    # mpirun --tag-output: [1,0]<stderr>: text
    re.compile(r"\[\d+,\d+\]<std(?:out|err)>: ?"),
    # the text of a C++ exception that nobody caught
    re.compile(r" +what\(\): +"),
)

TAG = re.compile(
    r"\((?P<tag>[A-Za-z][\w.:/-]*?(?: rank=\d+| [A-Z]{2}\d+(?:_[A-Z]{2}\d+)*)?)"
    r"(?:,? pid=(?P<pid>\d+))?(?:, ip=(?P<ip>[^)]*))?\) ?"
    r"|\((?P<only>)pid=(?P<opid>\d+)(?:, ip=[^)]*)?\) ?|\((?P<raylet>raylet)(?:, [^)]*)?\) ?"
    r"|\[(?P<rank>rank\d+)\]: ?(?!\[[IWEF]\d)"
)
"""EngineCore_DP0, VllmWorker rank=0, VllmWorker TP0, Worker_TP0_EP0, RayWorkerWrapper, a pod's name before
", pid=", and torch's "[rank0]: " before each line of a traceback."""
KSERVE = re.compile(
    r"(?:\d+ )?[\w.]+ (?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)[ :]+(?:\[[^\]]*\] ?)?"
)
"""After the time: 1 kserve ERROR [__main__.py:<module>():254] text."""
LEVELS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
WORDS = "Debug|Info|Warn|Warning|Error|Critical|Fatal"
"""As the servers around an engine write them, in brackets."""
VLLM = re.compile(
    rf"(?P<level>{LEVELS}) (?P<time>\d\d-\d\d(?:-\d{{4}})? \d\d:\d\d:\d\d(?:\.\d+)?) "
    r"(?:\[(?P<file>[^\]\s]+)\]|(?P<old>[\w./]+:\d+)\])\s?"
)
ISO = re.compile(
    r"\[?(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)(?:Z|[+-]\d\d:?\d\d)?\]?[ ,:-]*"
    rf"(?:\[?(?P<level>{LEVELS})\]?[ :-]*|\[(?P<word>{WORDS})\] )?"
)
TRT = re.compile(
    r"\[(?P<time>\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\] \[TRT(?:-LLM)?\] \[(?P<letter>[A-Z])\] ?"
    rf"|\[TensorRT-LLM\]\[(?P<level>{LEVELS})\] ?|\[TRT(?:-LLM)?\] \[(?P<bare>[A-Z])\] ?"
)
GLOG = re.compile(
    r"\[?(?:rank\d+\]:)?\[?(?P<letter>[IWEF])(?P<time>\d{4} \d\d:\d\d:\d\d(?:\.\d+)?) (?:\d+ )?"
    r"(?P<file>[\w./+-]+:\d+)\]\s?"
)
NCCL = re.compile(r"(?P<host>[\w.-]+):\d+:\d+ \[\d+\] (?:[\w./]+:\d+ )?NCCL (?P<level>INFO) ?")
"""Its news tells of libraries that are not there and of calls that failed, and goes on."""
UVICORN = re.compile(rf"(?P<level>{LEVELS}):\s+")
LETTERS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL", "V": "DEBUG", "D": "DEBUG"}

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
YEAR_S = 365 * 86_400

MESSAGE_KEYS = ("message", "msg", "log", "MESSAGE", "textPayload", "text", "event", "body")
TIME_KEYS = ("timestamp", "time", "ts", "asctime", "@timestamp", "__REALTIME_TIMESTAMP")
LEVEL_KEYS = ("level", "levelname", "severity", "log.level")
TRACE_KEYS = ("exc_info", "exception", "stack_trace", "traceback", "stack")

LONGEST_TEXT = 64 << 10


@frozen
class Line:
    """What a line says. `time` in seconds of the year; `outer` when a prefix brought it."""

    text: str
    tag: str = ""
    pid: str = ""
    level: str = ""
    time: float | None = None
    outer: bool = False
    node: str = ""
    """Address of the other node, which Ray puts beside a worker that is not here."""
    old: bool = False
    """Written as vLLM did before 0.8: file.py:12] without the first bracket."""
    stream: str = ""
    """The pod or compose service, where one log holds several."""

    @property
    def process(self) -> str:
        """Who wrote it; workers of the same name have numbers of their own."""
        return f"{self.tag} {self.pid} {self.node}"


def read(raw: bytes) -> Iterator[Line]:
    """The lines that stand in one line of a file: a bar's parts, the lines within JSON."""
    if len(raw) > LONGEST_TEXT:
        raw = raw[: LONGEST_TEXT // 2] + b" ... " + raw[-LONGEST_TEXT // 2 :]
    text = raw.replace(b"\0", b"").decode("utf-8", "replace")
    if "\x1b" in text:
        text = ANSI.sub("", text)
    for part in text.split("\r"):
        if part.strip():
            yield from _peel(part.strip("\ufeff"), 0)


def _peel(text: str, depth: int) -> Iterator[Line]:
    time = None
    stream = ""
    stripped = text.strip()
    if depth < 4 and stripped.startswith("{") and stripped.endswith("}"):
        inner = _from_json(stripped)
        if inner is not None:
            yield from _inner(*inner, depth)
            return
    for _ in range(4):
        for form in OUTER:
            if match := form.match(text):
                time = time or match.groupdict().get("time")
                stream = match.groupdict().get("stream") or stream
                text = text[match.end() :]
                break
        else:
            break
        if depth < 4 and text.startswith("{") and text.rstrip().endswith("}"):
            inner = _from_json(text.strip())
            if inner is not None:
                parts, own, level = inner
                for line in _inner(parts, own or time, level, depth):
                    yield replace(line, stream=stream) if stream else line
                return
    line = _line(text, time)
    yield replace(line, stream=stream) if stream else line


def _inner(parts: list[str], time: str | None, level: str, depth: int) -> Iterator[Line]:
    for part in parts:
        for line in _peel(part, depth + 1):
            seconds = line.time if line.time is not None else seconds_of(time)
            outer = line.outer or line.time is None
            yield replace(line, level=line.level or level, time=seconds, outer=outer)


def _from_json(text: str) -> tuple[list[str], str | None, str] | None:
    """Lines, time and level of a JSON line; None when it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    nested = found.get("log") if isinstance(found.get("log"), dict) else {}
    message = next(
        (found[key] for key in MESSAGE_KEYS if isinstance(found.get(key), str)),
        nested.get("message") if isinstance(nested, dict) else None,
    )
    if not isinstance(message, str):
        return None
    if ANSI.search(message):
        message = ANSI.sub("", message)
    lines = message.splitlines()
    for key in TRACE_KEYS:
        if isinstance(trace := found.get(key), str):
            lines += trace.splitlines()
    time = next((str(found[key]) for key in TIME_KEYS if found.get(key)), None)
    level = next((str(found[key]).upper() for key in LEVEL_KEYS if found.get(key)), "")
    return [line for line in lines if line.strip()], time, level


def _line(text: str, outer: str | None) -> Line:
    tag = pid = level = node = ""
    time, old = None, False
    for _ in range(5):
        if match := TAG.match(text):
            tag = match["tag"] or match["raylet"] or tag or match["rank"] or ""
            pid = match["pid"] or match["opid"] or pid
            node = match["ip"] or node
        elif match := VLLM.match(text) or ISO.match(text) or TRT.match(text) or GLOG.match(text):
            groups = match.groupdict()
            letter = groups.get("letter") or groups.get("bare")
            level = (
                groups.get("level")
                or (groups.get("word") or "").upper()
                or (LETTERS.get(letter, "") if letter else "")
                or level
            )
            time = time or groups.get("time")
            old = old or bool(groups.get("old"))
            if match.re is ISO and not level and (kserve := KSERVE.match(text, match.end())):
                level, match = kserve["level"], kserve
        elif match := UVICORN.match(text) or NCCL.match(text):
            level = match["level"] or level
        else:
            break
        text = text[match.end() :]
    seconds = seconds_of(time)
    from_outside = seconds is None
    return Line(
        text=text.rstrip(),
        tag=tag,
        pid=pid,
        level={"WARN": "WARNING", "FATAL": "CRITICAL"}.get(level, level),
        time=seconds_of(outer) if from_outside else seconds,
        outer=from_outside,
        node=node,
        old=old,
    )


DATES = (
    re.compile(r"(?P<y>\d{4})-(?P<mo>\d\d)-(?P<d>\d\d)[T ](?P<t>[\d:.,]+)"),
    re.compile(r"(?P<mo>\d\d)-(?P<d>\d\d)(?:-\d{4})? (?P<t>[\d:.]+)"),
    re.compile(r"(?P<mo>\d\d)/(?P<d>\d\d)/\d{4}-(?P<t>[\d:.]+)"),
    re.compile(r"(?P<mo>\d\d)(?P<d>\d\d) (?P<t>\d\d:[\d:.]+)"),
    re.compile(r"(?P<name>[A-Z][a-z]{2}) +(?P<d>\d+) (?P<t>[\d:]+)"),
)


def seconds_of(text: str | None) -> float | None:
    """A time as seconds of the year; the year itself is not written by vLLM."""
    if not text:
        return None
    for form in DATES:
        if match := form.match(text):
            groups = match.groupdict()
            name = groups.get("name")
            try:
                month = MONTHS.index(name) + 1 if name else int(groups["mo"])
                hours, minutes, seconds = match["t"].replace(",", ".").rstrip(".").split(":")
                days = BEFORE[month - 1] + int(match["d"]) - 1
                return days * 86_400 + int(hours) * 3600 + int(minutes) * 60 + float(seconds)
            except (ValueError, IndexError):
                return None
    return None


def elapsed(earlier: float | None, later: float | None) -> float | None:
    """Seconds between two times; over the turn of the year too."""
    if earlier is None or later is None:
        return None
    gone = later - earlier
    return gone + YEAR_S if gone < -YEAR_S / 2 else gone
