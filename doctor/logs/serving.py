"""A serving log: statistics, refused and aborted requests, and the last sign of life.

The statistics of a long log are sampled: all of them at first, then ever fewer, and all of the last
megabytes, for what matters stands at the end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from infer_doctor.facts.log import AbortBurst, Sample, Serving
from infer_doctor.logs.figures import count, figure
from infer_doctor.logs.line import Line, elapsed, read, seconds_of
from infer_doctor.logs.scan import Scanner
from infer_doctor.logs.story import Place, Start
from infer_doctor.model import Evidence

STATISTICS = re.compile(
    r"Avg prompt throughput: (?P<prompt>[\d.]+) tokens/s, "
    r"(?:Avg )?generation throughput: (?P<generation>[\d.]+) tokens/s, "
    r"(?:.*?)Running: (?P<running>\d+) reqs, (?:Swapped: \d+ reqs, )?"
    r"(?:Waiting|Pending): (?P<waiting>\d+) reqs"
    r"(?:.*?KV cache usage: (?P<kv>[\d.]+)%)?"
)
STATISTICS_WORD = b"prompt throughput: "
ACCESS = re.compile(rb'"(?P<method>[A-Z]+) [^"]* HTTP/[\d.]+" (?P<status>[1-5]\d\d) [A-Z]')
"""uvicorn's access line; without the words of the status its digits alone would tell 200 from 404,
and shapes have no digits."""

CLOCK = re.compile(rb"\d\d-\d\d \d\d:\d\d:\d\d")

ALL_OF = 5_000
"""Samples before a log is sampled more thinly."""

EVERY_BYTES = 1 << 18
"""Then one in so many bytes."""

TAIL = 4 << 20
"""Bytes at the end of which every sample is read."""

STALL_S = 50
"""vLLM prints statistics every 10 s (VLLM_LOG_STATS_INTERVAL; every 5 s up to 0.4): six of them with
requests and no token span 50 s."""

KV_FULL = 99.0
QUEUE_SAMPLES = 6
ABORTS_KEPT = 10_000
ABORTS_TIMED = 300
"""How many aborts are looked up: each is a search through the last megabytes."""

RECENT = 4 << 20
"""Bytes in which the arrival of an aborted request is looked for."""

BURST = 3
ROUND_S = (10, 15, 20, 30, 45, 50, 60, 75, 90, 100, 120, 180, 240, 300, 600, 900, 1200, 1800, 3600)
"""Seconds at which clients and proxies give up: nginx and AWS load balancers 60, Envoy 15, HAProxy
50, Cloudflare 100, gunicorn 30, OpenAI's client 600."""

ABORTED = re.compile(r"Aborted request(?:\(s\))? (?P<ids>[\w.:,-]+)")


STATISTICS_KIND = "statistics"
ARRIVAL_KIND = "arrival"


def bulk(raw: bytes) -> str | None:
    """What a line is counted as: an answer by method and status, or statistics."""
    if STATISTICS_WORD in raw:
        return STATISTICS_KIND
    if b"Added request " in raw or (b"Received request " in raw and b"prompt: " not in raw):
        return ARRIVAL_KIND
    if (match := ACCESS.search(raw)) and b"Error" not in raw[: match.start()]:
        return f"{match['method'].decode()} {match['status'].decode()}"
    return None


class Statistics:
    """Collects while a log is read."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.bytes = 0
        self._taken = 0
        self._tail: list[tuple[Place, bytes]] = []
        self._tail_bytes = 0
        self._alive: tuple[str, int] = ("", 0)
        self._recent: list[bytes] = []
        self._recent_bytes = 0
        self._untimed: list[tuple[str, float | None, Place]] = []
        self._timed = 0
        self._aborts: list[tuple[float | None, float | None, Place]] = []
        self._abort_text = ""
        self._refused: Counter[str] = Counter()
        self._refused_lines: dict[str, Evidence] = {}
        self._preemptions = 0
        self.served = 0

    def see(self, source: str) -> Callable[[int, bytes, set[str]], None]:
        """A watcher for the blocks of one file."""

        def watch(before: int, block: bytes, kinds: set[str]) -> None:
            self.bytes += len(block)
            if STATISTICS_KIND in kinds:
                self._sample(source, before, block)
            if ARRIVAL_KIND in kinds:
                self._recent.append(block)
                self._recent_bytes += len(block)
                while self._recent_bytes > RECENT and len(self._recent) > 1:
                    self._recent_bytes -= len(self._recent.pop(0))
            if self._untimed:
                self._time_aborts()

        return watch

    def _time_aborts(self) -> None:
        """How long each aborted request had waited, by the line of its arrival."""
        for id, time, place in self._untimed:
            waited = None
            if self._timed < ABORTS_TIMED:
                self._timed += 1
                waited = elapsed(self._arrived(id), time)
            self._aborts.append((time, waited, place))
        self._untimed.clear()

    def _arrived(self, id: str) -> float | None:
        wanted = f"request {id}".encode()
        for block in reversed(self._recent):
            place = block.find(wanted)
            if place < 0:
                continue
            begin = block.rfind(b"\n", 0, place) + 1
            line = block[begin:place]
            if b"Added" in line or b"Received" in line:
                clock = CLOCK.search(line)
                return seconds_of(clock[0].decode()) if clock else None
        return None

    def counted(self, source: str, scanner: Scanner) -> None:
        """Take the answers that the scanner of one file counted."""
        for kind, times in scanner.counts.items():
            method, _, status = kind.partition(" ")
            if status.startswith("2"):
                self.served += times
                if method == "POST":  # /health and /metrics answer without an engine
                    self._alive = (source, scanner.last[kind])
            elif status.startswith(("4", "5")):
                self._refused[status] += times
                if status not in self._refused_lines:
                    line, raw = scanner.first[kind]
                    text = next(read(raw), Line(text="")).text
                    self._refused_lines[status] = Place(source=source, line=line).evidence(text)

    def _sample(self, source: str, before: int, block: bytes) -> None:
        self._tail.append((Place(source=source, line=before), block))
        self._tail_bytes += len(block)
        while self._tail_bytes > TAIL and len(self._tail) > 1:
            place, old = self._tail.pop(0)
            self._tail_bytes -= len(old)
            self._samples_of(place, old, EVERY_BYTES if self._taken > ALL_OF else 1)

    def _samples_of(self, place: Place, block: bytes, step: int) -> None:
        at, line, counted = 0, place.line + 1, 0
        while (found := block.find(STATISTICS_WORD, at)) >= 0:
            begin = block.rfind(b"\n", 0, found) + 1
            end = block.find(b"\n", found)
            end = len(block) if end < 0 else end
            line += block.count(b"\n", counted, begin)
            counted = begin
            self._take(block[begin:end], line)
            at = max(end, found + step)
            self._taken += 1

    def _take(self, raw: bytes, number: int) -> None:
        if match := STATISTICS.search(raw.decode("utf-8", "replace")):
            prompt, generation = figure(match["prompt"]), figure(match["generation"])
            if prompt is None or generation is None:
                return  # two interleaved lines
            clock = CLOCK.search(raw)
            time = seconds_of(clock[0].decode()) if clock else next(read(raw), Line(text="")).time
            self.samples.append(
                Sample(
                    time=time,
                    line=number,
                    prompt=prompt,
                    generation=generation,
                    running=count(match["running"]),
                    waiting=count(match["waiting"]),
                    kv=figure(match["kv"]) or 0.0,
                )
            )

    def line(self, place: Place, line: Line) -> None:
        """A line that means something: requests that come and go."""
        if match := ABORTED.search(line.text):
            for id in match["ids"].rstrip(".,").split(","):
                if len(self._aborts) + len(self._untimed) < ABORTS_KEPT:
                    self._untimed.append((id, line.time, place))
                    self._abort_text = self._abort_text or line.text
        elif "is preempted by" in line.text:
            total = re.search(r"total_num_cumulative_preemption=(\d+)", line.text)
            self._preemptions = max(self._preemptions + 1, count(total[1]) if total else 0)

    def alive(self, start: Start) -> int:
        """The last line at which this start answered a request; 0 for never."""
        source, line = self._alive
        ready = start.ready
        if start.running:
            return line
        if ready is None or (source == ready.place.source and line < ready.place.line):
            return 0
        return line

    @property
    def failing(self) -> int:
        """Answers with status 500, when they are the most."""
        failed = self._refused["500"]
        return failed if failed > self.served else 0

    def fact(self, source: str) -> Serving:
        """What was found."""
        for place, block in self._tail:
            self._samples_of(place, block, 1)
        self._tail.clear()
        rows = self.samples
        stalled = _stall(rows)
        full = [row for row in rows if row.kv >= KV_FULL and row.waiting > 0 and row not in stalled]
        queue = _queue(rows)
        return Serving(
            source=source,
            samples=len(rows),
            queue_from=queue[0] if queue else None,
            queue_to=queue[1] if queue else None,
            kv_full=full[0] if full else None,
            kv_full_samples=len(full),
            preemptions=self._preemptions,
            stalled=stalled[0] if stalled else None,
            stalled_samples=len(stalled),
            stalled_s=elapsed(stalled[0].time, stalled[-1].time) if stalled else None,
            stalled_at_end=bool(stalled) and stalled[-1] is rows[-1],
            aborts=self._burst(),
            refused=dict(self._refused),
            refused_lines=dict(self._refused_lines),
            served=self.served,
        )

    def _burst(self) -> AbortBurst | None:
        """The round number of seconds at which most of the aborted requests were given up."""
        if not self._aborts:
            return None
        groups: dict[int, list[Place]] = {}
        for _, waited, place in self._aborts:
            near = next((s for s in ROUND_S if waited is not None and abs(waited - s) <= 1), None)
            if near is not None:
                groups.setdefault(near, []).append(place)
        if groups:
            seconds, places = max(groups.items(), key=lambda row: len(row[1]))
            if len(places) >= BURST:
                return AbortBurst(
                    count=len(places),
                    seconds=seconds,
                    evidence=places[0].evidence(self._abort_text),
                )
        return AbortBurst(
            count=len(self._aborts),
            seconds=None,
            evidence=self._aborts[0][2].evidence(self._abort_text),
        )


def _stall(rows: list[Sample]) -> list[Sample]:
    """The longest run of samples with requests and no token, at the end or before it moved again."""
    best: list[Sample] = []
    run: list[Sample] = []
    for row in rows:
        if row.running > 0 and row.generation == 0 and row.prompt == 0:
            run.append(row)
            best = run if len(run) > len(best) else best
        else:
            run = []
    long = best and (elapsed(best[0].time, best[-1].time) or 0) >= STALL_S
    return best if long else []


def _queue(rows: list[Sample]) -> tuple[Sample, Sample] | None:
    """Whether the queue only grew over the last samples: its first and its last."""
    last = rows[-60:]
    if len(last) < QUEUE_SAMPLES or last[-1].waiting == 0:
        return None
    begin = len(last) - 1
    while begin > 0 and last[begin - 1].waiting <= last[begin].waiting:
        begin -= 1
    grown = last[begin:]
    if len(grown) < QUEUE_SAMPLES or grown[-1].waiting < grown[0].waiting + QUEUE_SAMPLES:
        return None
    return grown[0], grown[-1]
