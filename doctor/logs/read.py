"""A log -> its facts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from infer_doctor.facts.log import Cause, ColdStart, EngineLog, Serving
from infer_doctor.logs import choose, cold
from infer_doctor.logs.line import Line
from infer_doctor.logs.line import read as read_line
from infer_doctor.logs.outlived import ended
from infer_doctor.logs.scan import Scanner
from infer_doctor.logs.serving import ARRIVAL_KIND, STATISTICS_KIND, Statistics, bulk
from infer_doctor.logs.signatures import patterns
from infer_doctor.logs.source import NotALog, Piece, blocks
from infer_doctor.logs.story import Place, Start, Story

EARLIER_KEPT = 5

STREAMS = 64
"""Pods or compose services of one log that are followed apart; the others together."""

LOUD = (
    b"Error",
    b"Exception",
    b"ERROR",
    b"CRITICAL",
    b"Traceback",
    b"Killed",
    b'  File "',
    b'{"',
    b"cuda.graph(",
    b"pin_memory=",
    b"capture_model",
    b"] [E] ",
    b": error: ",
    b"fatal error: ",
    b"panic: ",
)
GLOG_ERROR = re.compile(rb"(?:^|[ \[:])[EF]\d{3,4} \d\d:\d\d:\d\d")
"""Triton, torch and glog: one letter for the level."""

ENGINES_OWN = re.compile(
    rb"(?i:vllm|tensorrt|trt-llm|triton|uvicorn|nccl|\btorch\b)|EngineCore|"
    rb"(?:INFO|WARNING|ERROR|DEBUG|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d|"
    rb"INFO: {5}|ERROR: {4}(?! )|\b[IWE]\d{4} \d\d:\d\d:\d\d\.\d{6}"
)
"""A line that an inference engine, its server or its libraries may have written."""

ANOTHER = re.compile(
    rb"\b(ollama|llama_model_loader|llm_load|ggml_cuda_init|sglang|text[-_]generation[-_]launcher|lmdeploy|mindie|jaxlib)"
)
"""Other engines say much of the same. So does a traceback that touches no library of an engine."""

STRICTLY_OWN = re.compile(
    rb"(?i)vllm|tensorrt|trt-?llm|tritonserver|djl|EngineCore|"
    rb"[/\\](?:transformers|transformers_modules|torch|triton|ray|huggingface_hub|tokenizers|xgrammar|flashinfer)[/\\]|"
    rb"(?:INFO|WARNING|ERROR|DEBUG|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d"
)

FOREIGN = (
    "no line in it is one of vLLM, TensorRT-LLM or Triton: send the engine's own output "
    "(docker logs, kubectl logs -c CONTAINER, journalctl -u UNIT)"
)

CUT = "the log ends inside a traceback: send the rest of it, the error's own line is the next"

Facts = dict[type, object]


def means(raw: bytes) -> bool:
    """Whether a line of this shape is worth a look each time."""
    for word in LOUD:
        if word in raw:
            return True
    if GLOG_ERROR.search(raw):
        return True
    if b"\x1b" in raw:
        return any(patterns().touches(line.text.encode()) for line in read_line(raw))
    return patterns().touches(raw)


def read(pieces: Sequence[Piece], launch: Sequence[str] = ()) -> Facts:
    """The facts of one log, with the command that was started where it is known; raises NotALog."""
    return _read([(piece, blocks(piece)) for piece in pieces], settings(launch))


def settings(launch: Sequence[str]) -> dict[str, str]:
    """The options of a command by the engine's own names: {"tensor_parallel_size": "2"}."""
    found: dict[str, str] = {}
    for word, after in zip(launch, [*launch[1:], ""], strict=False):
        if word.startswith("--"):
            name, equals, value = word.removeprefix("--").partition("=")
            name = name.replace("-", "_")
            found[name] = value if equals else "" if after.startswith("--") else after
    if (place := next((n for n, word in enumerate(launch) if word == "-tp"), None)) is not None:
        found["tensor_parallel_size"] = "".join(launch[place + 1 : place + 2])
    return found


def _read(
    pieces: Sequence[tuple[Piece, Iterable[bytes]]], given: Mapping[str, str] | None = None
) -> Facts:
    stories = {"": Story()}

    current = stories[""]

    def story_of(line: Line) -> Story:
        """Of its pod or service; what has no prefix ("vllm-1 exited with code 1") of the last one."""
        nonlocal current
        if line.stream and line.stream not in stories and len(stories) < STREAMS:
            stories[line.stream] = Story()
        if line.stream:
            current = stories.get(line.stream) or stories[""]
        return current

    statistics = Statistics()
    total = 0
    gaps: list[str] = []

    own = strictly = another = False

    def kind(raw: bytes) -> str | None:
        nonlocal own, strictly, another
        counted = bulk(raw)
        own = own or counted is not None or ENGINES_OWN.search(raw) is not None
        strictly = strictly or STRICTLY_OWN.search(raw) is not None
        another = another or b'  File "' in raw or ANOTHER.search(raw) is not None
        if counted in (STATISTICS_KIND, ARRIVAL_KIND):
            for line in read_line(raw):
                story_of(line).serves()
        return counted

    for piece, content in pieces:
        scanner = Scanner(means, kind)
        try:
            for number, raw in scanner.lines(content, statistics.see(piece.name)):
                place = Place(source=piece.name, line=number)
                for line in read_line(raw):
                    story_of(line).see(place, line)
                    statistics.line(place, line)
        except NotALog as error:
            if total + scanner.line == 0:
                raise
            gaps.append(str(error))
        statistics.counted(piece.name, scanner)
        total += scanner.line
    seen = [story for story in stories.values() if story.said] or [stories[""]]
    starts = [start for story in seen for start in story.starts]
    for start in starts:
        for option, value in (given or {}).items():
            start.values.setdefault(option, value)
    names = [piece.name for piece, _ in pieces]
    if statistics.bytes == 0 and not gaps:
        raise NotALog(f"{names[0]}: is empty")
    own = own or any(start.marked or start.unknown or choose.tells(start) for start in starts)
    own = own and (strictly or not another)
    story = min(seen, key=lambda story: _rank(story, statistics, alone=len(seen) == 1))
    alone = sum(start.marked for start in starts) < 2 or len(seen) == 1
    rest = [start for other in seen if other is not story for start in other.starts]
    return _facts(
        story, statistics, names[-1], max(total, 1), gaps, own=own, alone=alone, rest=rest
    )


def _rank(story: Story, statistics: Statistics, *, alone: bool) -> int:
    """Which of several engines of one log is told of: one that failed and says why comes first."""
    start, _ = _last(story)
    alive = statistics.alive(start) if alone else 0
    found = choose.causes(start, alive)
    if any(cause.effect not in ("survived", "stall") for cause in found):
        return 0
    return 1 if choose.to_send(start, alive) is not None else 2


def read_texts(lines: Iterable[str], name: str = "log") -> Facts:
    """The facts of lines that are at hand; bench/diagnose.py and tests use it."""
    data = "\n".join(lines).encode("utf-8", "replace")
    return _read([(Piece(path=name, name=name), [data])])


def _facts(
    story: Story,
    statistics: Statistics,
    name: str,
    lines: int,
    gaps: Sequence[str],
    *,
    own: bool,
    alone: bool,
    rest: Sequence[Start],
) -> Facts:
    """`rest`: starts of other streams, a proxy's too; what they say of requests counts as well."""
    start, earlier = _last(story)
    alive = statistics.alive(start) if alone else 0  # who answered is not told apart
    found = choose.causes(start, alive)
    fatal = [cause for cause in found if cause.effect != "survived"]
    survived = [cause for cause in found if cause.effect == "survived"]
    cause = fatal[0] if fatal else None
    went_on = cause is not None and alive > _line(cause)
    if cause and cause.effect == "stall" and (went_on or ended(start, _line(cause))):
        cause = None
    unexplained = None if cause else choose.to_send(start, alive)
    if cause is None and unexplained is None and story.in_traceback and not start.served:
        unexplained = CUT
    if cause is None and unexplained is None and statistics.failing:
        unexplained = (
            f"{statistics.failing:,} answers have status 500, and the log holds no error for them: "
            "send the log from before the first of them"
        )
    state = _state(start, cause, unexplained)
    foreign = () if own else (FOREIGN,)
    if not own:
        cause, unexplained = None, FOREIGN
    elif state == "incomplete":
        unexplained = (
            f"the log ends while {choose.STAGES.get(start.stage, start.stage)} and holds no error: "
            "send the rest of it, and how the process ended (its exit code)"
        )
    notes = choose.side(start, ("warning",))
    before = _survived_by(story.starts, start, earlier)
    facts: Facts = {
        EngineLog: EngineLog(
            source=name,
            lines=lines,
            engine=start.engine or story.now.engine,
            version=start.version,
            starts=len(story.starts),
            state=state,
            stage=choose.STAGES.get(start.stage, ""),
            cause=cause,
            others=choose.others(fatal) if cause else (),
            earlier=tuple(before[:EARLIER_KEPT]),
            warnings=tuple(notes + survived),
            requests=tuple(
                cause for one in (start, *rest) for cause in choose.side(one, ("request",))
            ),
            unexplained=unexplained,
            values=dict(start.values),
            gaps=(*gaps, *foreign),
        )
    }
    if (came := cold.of(start)) is not None:
        facts[ColdStart] = came
    facts[Serving] = replace(statistics.fact(name), gaps=foreign)
    return facts


def _line(cause: Cause) -> int:
    return cause.evidence[0].line or 0


def _last(story: Story) -> tuple[Start, list[Start]]:
    """The start that counts, and those before it.

    A last start that neither became ready nor failed tells nothing yet: then the one before counts.
    """
    starts = story.starts
    last = starts[-1]
    if len(starts) > 1 and last.ready is None and not last.failed and not choose.causes(last, 0):
        for number in range(len(starts) - 2, -1, -1):
            if starts[number].failed and starts[number].ready is None:
                return starts[number], starts[:number]
    return last, starts[:-1]


def _survived_by(starts: Sequence[Start], last: Start, earlier: Sequence[Start]) -> list[Cause]:
    """The causes of the starts before the one that counts, each signature once."""
    found: dict[str, Cause] = {}
    for start in earlier:
        for cause in choose.causes(start, 0)[:1]:
            if cause.effect == "fatal":
                found.setdefault(cause.signature, cause)
    return list(found.values())


def _state(start: Start, cause: Cause | None, unexplained: str | None) -> str:
    if cause is not None or unexplained is not None:
        return "failed"
    if start.ready is not None:
        return "ready"
    if not start.marked or start.stage in ("serving", "shutdown"):
        return "quiet"
    return "quiet" if start.stopped else "incomplete"
