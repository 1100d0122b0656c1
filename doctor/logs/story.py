"""Follows a log through its starts: the stage of each process, and every hit of a signature."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from infer_doctor.frozen import frozen
from infer_doctor.logs.figures import figure
from infer_doctor.logs.frames import FRAMES
from infer_doctor.logs.line import Line
from infer_doctor.logs.signatures import Mark, Signature, patterns
from infer_doctor.model import Evidence
from infer_doctor.redact import mask_line

EXCERPT = 240
HITS_KEPT = 400
"""Of one start: a crash loop repeats the same few lines; the first of each are what counts."""

EVENTS_KEPT = 600

FRAME = re.compile(r'^\s*File "([^"]*)", line \d+,? in (\S+)')
"""Without the comma in the stacks of faulthandler and Ray."""
QUOTED = re.compile(
    r"Received request [^:]+:|Request \S+ (?:details|JSON body):|response_body=|"
    r"Generated response [^:]+:|.*?, input_value=|"
    r'.*?"(?=(?:GET|POST|PUT|HEAD|OPTIONS|DELETE|PATCH) [^"]* HTTP/)'
)
"""What follows is a user's: a prompt, an answer, an address may quote any error.

vllm/entrypoints/logger.py of 0.4 to 0.32; pydantic; the access lines of uvicorn and proxies."""

WORKER_HEAD = re.compile(
    r"Exception in worker \S+ while processing method (?P<method>\w+)(?:: .+?|\.)?"
    r"(?P<tail>,? Traceback \(most recent call last\):?)?$"
)
"""vLLM 0.5 to 0.7 puts the exception's text into the head of the worker's traceback; the method tells the
stage (executor/multiproc_worker_utils.py)."""

ASSERTION = re.compile(r"^\s*(?P<said>assert [^#]+)")
"""The source line above a bare AssertionError is all that it says."""

GRAPH_CALL = re.compile(r"\btorch\.cuda\.graph\(|capture_model\b")
EXCEPTION = re.compile(
    r"^(?:E\s+)?(?P<name>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Timeout|"
    r"Killed|Failure|NotFound|Denied|IsEnabled|OutOfResources|Unsupported))(?:: ?(?P<text>.*))?$"
)
BARE_ERRORS = re.compile(
    r"^(?:Killed|Segmentation fault|Aborted|Bus error|terminate called|Fatal Python error|"
    r"\S+: error: |fatal error: |nvcc fatal|docker: Error|Error: |ERROR: |panic: |UNAVAILABLE: )"
)
IN_SERVING = "EngineCore encountered a fatal error"
"""Said of an engine that was set up; before that it is \"failed to start\"."""

SAID_PLAINLY = re.compile(
    r"(?:Error|ERROR|Exception|panic|fatal error|"
    r"(?:vllm(?: [a-z-]+)?|trtllm-\w+|(?:api_server|convert_checkpoint)\.py): error): \S"
)
"""The last kind is argparse's, which names the program and ends it."""
CONFIG_VALUES = re.compile(
    r"\b(?P<key>tensor_parallel_size|pipeline_parallel_size|data_parallel_size|max_seq_len|"
    r"max_model_len|gpu_memory_utilization|quantization|kv_cache_dtype|dtype|model|max_num_seqs|"
    r"max_num_batched_tokens|enforce_eager|load_format|port|host|cpu_offload_gb|"
    r"device_config|served_model_name|enable_expert_parallel)'?[=:] ?(?P<value>'[^']*'|[^,)}\s]+)"
)


@frozen
class Place:
    """A line of a log."""

    source: str
    line: int

    def evidence(self, text: str) -> Evidence:
        """The masked line as evidence, or the beginning of it."""
        part = mask_line(text[: 4 * EXCERPT])[:EXCERPT].strip()
        return Evidence(source=self.source, line=self.line, excerpt=part)


@frozen
class Hit:
    """A signature found in a line."""

    signature: Signature
    match: re.Match[str]
    place: Place
    text: str
    shown: str
    """The part of the line that is evidence."""
    tag: str
    pid: str
    level: str
    stage: str
    loud: bool
    """An exception or an error, not a message on the side."""
    time: float | None
    node: str = ""
    """Address of the other node that said it."""
    raised: bool = True
    """In the form of an exception, or of an error of the shell's or the loader's."""


@frozen
class Event:
    """A mark found in a line."""

    mark: Mark
    values: dict[str, str]
    place: Place
    text: str
    tag: str
    time: float | None
    pid: str = ""


@frozen
class Unknown:
    """An error that no signature knows; `file` is the innermost frame's when it ended a traceback."""

    place: Place
    text: str
    process: str
    stage: str
    file: str


class Start:
    """One start of an engine, as far as the log shows it."""

    def __init__(self, number: int, place: Place | None, time: float | None) -> None:
        self.number = number
        self.place = place
        self.time = time
        self.stage = ""
        self.stages: dict[str, str] = {}
        self.engine_pids: dict[str, str] = {}
        self.ready: Event | None = None
        self.stopped: Place | None = None
        self.hits: list[Hit] = []
        self.unknown: list[Unknown] = []
        """Errors that no signature knows."""
        self.events: list[Event] = []
        self.values: dict[str, str] = {}
        self.lines: dict[str, tuple[Place, str]] = {}
        self.version: str | None = None
        self.engine: str | None = None
        self.marked = False
        self.old = False
        """Its lines are written as before vLLM 0.8."""
        self.running = False
        """The log begins when the server was already serving."""

    @property
    def served(self) -> bool:
        """Whether it came as far as to answer requests."""
        return self.ready is not None or self.running

    @property
    def failed(self) -> bool:
        return any(hit.signature.effect in ("fatal", "wrapper") and hit.loud for hit in self.hits)

    @property
    def over(self) -> bool:
        """Whether its process is known to have ended: before its first mark, what it only logged at
        ERROR (a plugin that is not loaded) it outlived."""
        return self.failed and (
            self.marked or any(hit.raised and not hit.level for hit in self.hits)
        )

    def number_of(self, name: str) -> float | None:
        """A value that the log printed, as a number."""
        return figure(self.values.get(name))


class Story:
    """Takes the lines of one log in order."""

    def __init__(self) -> None:
        self.starts = [Start(1, None, None)]
        self._frames: dict[str, list[str]] = {}
        self._files: dict[str, str] = {}
        self._asserts: dict[str, tuple[Place, str]] = {}
        self._inside: set[str] = set()
        self.said = False
        self.first_time: float | None = None
        self.last_time: float | None = None

    @property
    def now(self) -> Start:
        return self.starts[-1]

    @property
    def in_traceback(self) -> bool:
        """Whether the log ends inside a traceback, before the error's own line."""
        return bool(self._inside)

    def serves(self) -> None:
        """Statistics or an arrival were printed: a log that begins after the start is one of a running server."""
        if not self.now.marked and not self.now.stage:
            self.now.stage = "serving"
            self.now.running = self.said = True

    def see(self, place: Place, line: Line) -> None:
        """Take one line."""
        self.said = True
        self.now.old = self.now.old or line.old
        if line.time is not None:
            self.first_time = line.time if self.first_time is None else self.first_time
            self.last_time = line.time
        key = line.process
        if (own := QUOTED.match(line.text)) is not None:
            line = replace(line, text=own[0])
        if head := WORKER_HEAD.search(line.text):
            self._frames[key] = [head["method"]]
            if head["tail"]:
                self._inside.add(key)
                line = replace(line, text=line.text[: head.start("tail")])
        elif self._in_traceback(key, line.text):
            if stated := ASSERTION.match(line.text):
                self._asserts[key] = (place, stated["said"])
            return
        found = False
        if line.text.strip() == "AssertionError" and key in self._asserts:
            above, said = self._asserts.pop(key)
            for owner, match in patterns().search(said):
                if isinstance(owner, Signature):
                    found = self._hit(owner, match, above, replace(line, text=said)) or found
        for owner, match in patterns().search(line.text):
            if isinstance(owner, Mark):
                self._mark(owner, match, place, line)
                continue
            found = self._hit(owner, match, place, line) or found
        if not found:
            self._unknown(place, line, key in self._inside)
        self._inside.discard(key)

    def _in_traceback(self, key: str, text: str) -> bool:
        """Whether the line is a traceback's own: its head, a frame, or the source under one."""
        if "Traceback (most recent call last)" in text:
            self._inside.add(key)
            self._frames[key] = []
            self._asserts.pop(key, None)
            return True
        if match := FRAME.match(text):
            self._inside.add(key)
            self._frames.setdefault(key, []).append(match[2])
            self._files[key] = match[1]
            return True
        if "pin_memory=" in text and key in self._inside:
            self._frames.setdefault(key, []).append("pin_memory")
        if GRAPH_CALL.search(text):
            self._frames.setdefault(key, []).append("capture_model")
        return key in self._inside and (text.startswith("    ") or not text.strip(" ^~"))

    def _stage(self, line: Line) -> str:
        names = set(self._frames.get(line.process, ()))
        for stage, known in FRAMES:
            if names & known:
                if stage == "serving!":  # no profile asks for logprobs
                    return "serving"
                return stage if stage != "serving" or self.now.ready else self._own(line)
        return self._own(line)

    def _own(self, line: Line) -> str:
        if self.now.served or self.now.stage == "serving":
            return "serving"
        if not line.tag:  # the parent prints what its workers raised
            return self.now.stage
        return self.now.stages.get(line.tag) or self.now.stage

    def _hit(self, signature: Signature, match: re.Match[str], place: Place, line: Line) -> bool:
        """Keep a hit; whether it explains the line."""
        text = line.text
        raised = bool(EXCEPTION.match(text) or BARE_ERRORS.match(text))
        for word in signature.unless:
            if word == line.level or word in text[: match.start()] + text[match.end() :]:
                return False
        if signature.begins is not None and self._anew(signature.begins, text):
            self._start(place, line.time)
        if match[0] == IN_SERVING:
            self.serves()
        if len(self.now.hits) < HITS_KEPT:
            start, stop = match.span()
            piece = (
                text if len(text) <= 4 * EXCERPT else text[max(0, start - EXCERPT) : stop + EXCERPT]
            )
            self.now.hits.append(
                Hit(
                    signature=signature,
                    match=match,
                    place=place,
                    text=piece,
                    shown=text
                    if len(text) <= EXCERPT
                    else text[max(0, start - EXCERPT // 3) :][: 4 * EXCERPT],
                    tag=line.tag,
                    pid=line.pid,
                    level=line.level,
                    stage=self._stage(line),
                    loud=raised or line.level in ("", "ERROR", "CRITICAL"),
                    time=line.time,
                    node=line.node,
                    raised=raised,
                )
            )
        return signature.effect != "noise" or "Error" not in text[: match.start()]

    def _unknown(self, place: Place, line: Line, ended: bool) -> None:
        """Remember an error that the catalogue does not know."""
        match = EXCEPTION.match(line.text)
        loud = line.level in ("ERROR", "CRITICAL") and bool(line.text.strip())
        loud = loud or SAID_PLAINLY.match(line.text) is not None
        if (match or (loud and not line.text.startswith(" "))) and len(self.now.unknown) < 50:
            self.now.unknown.append(
                Unknown(
                    place=place,
                    text=line.text,
                    process=line.tag,
                    stage=self._stage(line),
                    file=self._files.get(line.process, "") if match and ended else "",
                )
            )

    def _mark(self, mark: Mark, match: re.Match[str], place: Place, line: Line) -> None:
        values = {name: value for name, value in match.groupdict().items() if value is not None}
        if self._begins(mark, line):
            self._start(place, line.time)
        start = self.now
        start.marked = True
        if start.time is None:
            start.time = line.time
        if mark.engine:
            start.engine_pids[line.tag] = line.pid
        event = Event(
            mark=mark,
            values=values,
            place=place,
            text=line.text,
            tag=line.tag,
            time=line.time if line.time is not None else self.last_time,
            pid=line.pid,
        )
        if len(start.events) < EVENTS_KEPT:
            start.events.append(event)
        if mark.ready and (start.ready is None or mark.ready == "server"):
            start.ready = (
                start.ready if start.ready and start.ready.mark.ready == "server" else event
            )
        if mark.ends:
            start.stopped = place
        start.stages[line.tag] = start.stage = mark.stage
        for name, value in values.items():
            start.values[name] = value
            start.lines[name] = (place, line.text)
        start.version = values.get("version") or values.get("trt") or start.version
        if mark.id.startswith("trt-"):
            start.engine = "tensorrt-llm"
        elif mark.engine or mark.id in ("process", "arguments", "architecture", "loaded"):
            start.engine = start.engine or "vllm"
        if "arguments" in values or "config" in values:
            self._settings(values.get("arguments") or values["config"])

    def _anew(self, begins: re.Pattern[str], text: str) -> bool:
        """Whether a process that printed no mark of a start yet says this after another start."""
        over = self.now.failed or self.now.stage not in ("", "arguments")
        return over and begins.search(text) is not None

    def _start(self, place: Place, time: float | None) -> None:
        self.starts.append(Start(len(self.starts) + 1, place, time))
        self._frames.clear()

    def _begins(self, mark: Mark, line: Line) -> bool:
        start = self.now
        if mark.begins:
            child = re.match(r"EngineCore|Worker|VllmWorker|Ray|ApiServer_[1-9]", line.tag)
            later = start.stage not in ("", "arguments")
            return not child and (later or start.over)
        if mark.engine and line.tag in start.engine_pids:
            return start.over or start.engine_pids[line.tag] != line.pid
        return False

    def _settings(self, text: str) -> None:
        for match in CONFIG_VALUES.finditer(text):
            name, value = match["key"], match["value"].strip("'\"")
            if value not in ("None", ""):
                self.now.values.setdefault(name, value)


def in_order(hits: list[Hit]) -> Iterator[Hit]:
    """The hits that may be a cause."""
    return (hit for hit in hits if hit.signature.effect in ("fatal", "stall"))
