"""One scrape or two -> what the engine says of itself, whatever the names are in its version."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from infer_doctor.catalog.server_metrics import (
    ASLEEP,
    COUNTERS,
    ENGINE_LABELS,
    GAUGES,
    HISTOGRAMS,
    ITERATION_FIELDS,
    KINDS,
    Name,
)
from infer_doctor.facts.server import EngineState, Pace, ServerMetrics
from infer_doctor.server.exposition import NIM_PREFIX, samples

MOST_ENGINES = 1024
MOST_VALUE = 1e300
"""No number of an engine is larger; NaN is none either."""
PREFIXES = tuple(prefix for prefix, _ in KINDS)
STARTED = re.compile(r"^process_start_time_seconds(?:\{[^}\n]*\})?[ \t]+(\S+)", re.M)
"""Of the client libraries of Prometheus; it is not there with several API servers (multiprocess mode)."""

TWO_PROCESSES = (
    "the two scrapes are of two processes: it was started anew between them, or several replicas "
    "answer at this address"
)


@dataclass
class Histogram:
    """The sum, the count and the buckets: upper bound -> cumulated count."""

    total: float = 0.0
    count: float = 0.0
    buckets: dict[float, float] = field(default_factory=dict)

    def minus(self, earlier: Histogram) -> Histogram:
        """What came between two scrapes; the later one when the server was started meanwhile."""
        if earlier.count > self.count or earlier.total > self.total:
            return self
        return Histogram(
            total=self.total - earlier.total,
            count=self.count - earlier.count,
            buckets={b: n - earlier.buckets.get(b, 0.0) for b, n in self.buckets.items()},
        )

    def quantile(self, share: float) -> float | None:
        """Interpolated; None when it lies in the first bucket, whose width is arbitrary, or the last.

        vLLM's buckets of the time between tokens begin at 10 ms: 5.0 ms would be told for 1.8 ms.
        """
        bounds = sorted(self.buckets)
        if not self.count or len(bounds) < 3:
            return None
        wanted = share * self.count
        if wanted <= self.buckets[bounds[0]]:
            return None
        for low, high in pairwise(bounds):
            below, upto = self.buckets[low], self.buckets[high]
            if wanted <= upto and upto > below:
                if math.isinf(high):
                    return None
                return low + (high - low) * (wanted - below) / (upto - below)
        return None

    def pace(self) -> Pace:
        """As a fact."""
        return Pace(count=self.count, total=self.total, median=self.quantile(0.5))


@dataclass
class Scrape:
    """One answer of /metrics."""

    kind: str
    engines: dict[str, EngineState]
    histograms: dict[str, Histogram] = field(default_factory=dict)
    empty: bool = False
    started: tuple[str, ...] = ()
    """When the processes that it is of were started, as they write it."""


def read(text: str) -> Scrape | None:
    """The scrape that a text is: Prometheus' format or TensorRT-LLM's JSON; None for neither."""
    head = text.lstrip("\ufeff \r\n\t")[:1]
    if head in ("[", "{"):
        return _iterations(text)
    return _exposition(text)


def _exposition(text: str) -> Scrape | None:
    values: dict[str, dict[str, list[tuple[Mapping[str, str], float]]]] = {}
    kind = ""
    for name, labels, value in samples(text, PREFIXES):
        if not kind:
            kind = next(kind for prefix, kind in KINDS if name.startswith(prefix))
        if name.startswith(NIM_PREFIX):
            name = "vllm:" + name.removeprefix(NIM_PREFIX)
        engine = next((labels[key] for key in ENGINE_LABELS if key in labels), "0")
        if len(values) < MOST_ENGINES or engine in values:
            values.setdefault(engine, {}).setdefault(name, []).append((labels, value))
    if not kind:
        return None
    if any("nv_trt_llm_request_metrics" in rows for rows in values.values()):
        kind = "triton"
    engines = {engine: _state(rows) for engine, rows in values.items()}
    real = {
        name: state
        for name, state in engines.items()
        if state.running is not None or state.tokens is not None or state.finished is not None
    }
    merged: dict[str, Histogram] = {}
    for meaning, names in HISTOGRAMS.items():
        for rows in values.values():
            found = _histogram(rows, names)
            if found is not None:
                merged[meaning] = _sum(merged.get(meaning), found)
    return Scrape(
        kind=kind,
        engines=dict(sorted((real or engines).items())),
        histograms=merged,
        started=tuple(sorted(STARTED.findall(text))),
    )


def _state(rows: Mapping[str, list[tuple[Mapping[str, str], float]]]) -> EngineState:
    found: dict[str, Any] = {
        meaning: _value(rows, names) for meaning, names in (*GAUGES.items(), *COUNTERS.items())
    }
    if found["kv"] is None:
        found["kv"] = _block_share(rows)
    awake = _value(rows, (ASLEEP,))
    return EngineState(**found, asleep=None if awake is None else awake == 0)


def _value(
    rows: Mapping[str, list[tuple[Mapping[str, str], float]]], names: Iterable[Name]
) -> float | None:
    for name in names:
        found = [
            value * name.factor
            for labels, value in rows.get(name.metric, ())
            if name.label is None or labels.get(name.label[0]) == name.label[1]
        ]
        if found:
            return sum(found)
    return None


def _block_share(rows: Mapping[str, list[tuple[Mapping[str, str], float]]]) -> float | None:
    """Used blocks over all, where Triton's version has no fraction."""
    kinds = {
        labels.get("kv_cache_block_type"): value
        for labels, value in rows.get("nv_trt_llm_kv_cache_block_metrics", ())
    }
    used, most = kinds.get("used"), kinds.get("max")
    return used / most if used is not None and most else None


def _histogram(
    rows: Mapping[str, list[tuple[Mapping[str, str], float]]], names: Iterable[Name]
) -> Histogram | None:
    for name in names:
        counts = rows.get(f"{name.metric}_count")
        sums = rows.get(f"{name.metric}_sum")
        if not counts or not sums:
            continue
        buckets: dict[float, float] = {}
        for labels, value in rows.get(f"{name.metric}_bucket", ()):
            try:
                bound = float(labels.get("le", ""))
            except ValueError:
                continue
            buckets[bound] = buckets.get(bound, 0.0) + value
        return Histogram(
            total=sum(value for _, value in sums),
            count=sum(value for _, value in counts),
            buckets=buckets,
        )
    return None


def _sum(one: Histogram | None, other: Histogram) -> Histogram:
    if one is None:
        return other
    return Histogram(
        total=one.total + other.total,
        count=one.count + other.count,
        buckets={
            bound: one.buckets.get(bound, 0.0) + other.buckets.get(bound, 0.0)
            for bound in {*one.buckets, *other.buckets}
        },
    )


def _iterations(text: str) -> Scrape | None:
    """The rows of iterations since the last question; the newest one counts."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(rows, list):
        return None
    rows = [row for row in rows if isinstance(row, dict)]
    if not rows:
        return Scrape(kind="tensorrt-llm", engines={}, empty=True)
    if not any(name in rows[-1] for name in ("iter", "numActiveRequests", "kvCacheStats")):
        return None
    newest = rows[-1]
    found: dict[str, Any] = {
        meaning: next((_number(newest.get(name)) for name in names if name in newest), None)
        for meaning, names in ITERATION_FIELDS.items()
    }
    cache = newest.get("kvCacheStats")
    if isinstance(cache, dict):
        used, most = _number(cache.get("usedNumBlocks")), _number(cache.get("maxNumBlocks"))
        found["kv"] = used / most if used is not None and most else None
    found["iterations"] = _number(newest.get("iter"))
    return Scrape(kind="tensorrt-llm", engines={"0": EngineState(**found)})


def _number(value: object) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < MOST_VALUE else None


def other_process(first: Scrape, second: Scrape) -> bool:
    """Whether the second scrape is not of the same process: nothing can be taken from the other."""
    if first.started and second.started and first.started != second.started:
        return True
    for name, state in first.engines.items():
        later = second.engines.get(name)
        for meaning in COUNTERS if later is not None else ():
            before, after = getattr(state, meaning), getattr(later, meaning)
            if before is not None and after is not None and after < before:
                return True
    return any(
        found.count < first.histograms[meaning].count
        for meaning, found in second.histograms.items()
        if meaning in first.histograms
    )


def between(
    source: str,
    first: Scrape,
    second: Scrape | None,
    *,
    seconds: float | None = None,
    scrape_ms: float | None = None,
    own_request: str = "",
    gaps: tuple[str, ...] = (),
) -> ServerMetrics:
    """Two scrapes, or one, as the fact; histograms are those of the time between."""
    if second is not None and other_process(first, second):
        first, second, seconds, gaps = second, None, None, (*gaps, TWO_PROCESSES)
    newest = second or first
    paces = {}
    for meaning, histogram in newest.histograms.items():
        earlier = first.histograms.get(meaning)
        part = histogram.minus(earlier) if second is not None and earlier is not None else histogram
        if part.count > 0:
            paces[meaning] = part.pace()
    return ServerMetrics(
        source=source,
        kind=newest.kind,
        first=first.engines,
        second=second.engines if second is not None else {},
        seconds=seconds,
        paces=paces,
        scrape_ms=scrape_ms,
        own_request=own_request,
        gaps=gaps,
    )
