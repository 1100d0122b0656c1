"""The facts of a server as a subject's, and its measurements as the report's."""

from __future__ import annotations

from typing import Any

from infer_doctor.engine import Subject
from infer_doctor.facts.server import (
    Answers,
    Load,
    LoadLevel,
    Models,
    Pace,
    Reach,
    ServerMetrics,
    Streamed,
    Summary,
)
from infer_doctor.facts.server_limits import TimeoutChain
from infer_doctor.model import Missing
from infer_doctor.server.probe import Found

KINDS = (Reach, Answers, Models, Streamed, ServerMetrics, TimeoutChain, Load)

NO_URL = "no URL of a server was given"
NO_METRICS = "no URL and no saved /metrics were given"
NOT_ASKED = "no measurement was asked for: --requests or --ramp"
NO_LIMITS = "no time-out is known: no launch, manifest or proxy configuration was given"


def give(
    subject: Subject,
    found: Found | None,
    *,
    metrics: ServerMetrics | None = None,
    chain: TimeoutChain | None = None,
    load: Load | None = None,
    no_load: str = "",
) -> None:
    """Give a subject what a probe and the files beside it told; the rest is missing with a reason."""
    facts: dict[type, object] = {}
    for kind in KINDS:
        facts[kind] = _missing(kind, NO_URL, absent=True)
    facts[ServerMetrics] = _missing(ServerMetrics, NO_METRICS, absent=True)
    facts[TimeoutChain] = chain or _missing(TimeoutChain, NO_LIMITS, absent=True)
    facts[Load] = load or _missing(Load, no_load or NOT_ASKED, absent=not no_load)
    if found is not None:
        facts |= _of_probe(found)
    if metrics is not None:
        facts[ServerMetrics] = metrics
    for given, fact in facts.items():
        subject.give(given, fact)


def _of_probe(found: Found) -> dict[type, object]:
    closed = "the server cannot be reached" if found.answers is None else ""
    listed = "there is no list of models, and --model names none"
    silent = "no request for tokens was sent"
    if found.answers is not None and found.answers.skipped:
        silent = found.answers.skipped[0]
    return {
        Reach: found.reach,
        Answers: found.answers or _missing(Answers, closed),
        Models: found.models or _missing(Models, closed or listed),
        Streamed: found.streamed or _missing(Streamed, closed or silent),
        ServerMetrics: found.metrics
        or _missing(ServerMetrics, closed or found.no_metrics or "no scrape of /metrics"),
    }


def _missing(kind: type, reason: str, *, absent: bool = False) -> Missing:
    return Missing(fact=kind.__name__, reason=reason, kind="absent" if absent else "unavailable")


def engine_of(found: Found | None, metrics: ServerMetrics | None) -> str | None:
    """The engine as far as the server tells."""
    known = metrics or (found.metrics if found is not None else None)
    if known is not None:
        return known.kind
    owner = found.models.owner if found is not None and found.models is not None else ""
    return {"vllm": "vllm", "tensorrt_llm": "tensorrt-llm"}.get(owner)


def measured(found: Found | None, load: Load | None) -> dict[str, Any] | None:
    """What the report shows as measured; seconds for bars, milliseconds in names that say so."""
    values: dict[str, Any] = {}
    if found is not None:
        values["layers"] = layers(found)
        if found.streamed is not None and found.streamed.first_ms is not None:
            values["stream"] = _stream(found)
    if load is not None:
        values["load"] = {
            "levels": [_level(row) for row in load.levels],
            "knee": load.knee,
            "stopped": load.stopped,
            "own_delay_ms": load.lag_ms,
            "server_ttft": _pace(load.server_ttft),
            "server_time_per_token": _pace(load.server_itl),
            "outside_server_ms": _outside(load),
        }
        values["time_to_first_token"] = [
            {"up_to_ms": bound, "count": count} for bound, count in load.levels[-1].histogram
        ]
    return values or None


def layers(found: Found) -> list[dict[str, Any]]:
    """A row for each layer and request, with its own time."""
    reach = found.reach
    rows: list[tuple[str, float | None, str]] = [
        ("name", reach.names_ms, reach.name_error or ", ".join(reach.addresses))
    ]
    rows += [(f"connect {row.address}", row.ms, row.said or "connected") for row in reach.tried]
    if reach.tls is not None:
        rows.append(("TLS", reach.tls.ms, reach.tls.said or reach.tls.version))
    for row in found.answers.exchanges if found.answers is not None else ():
        state = row.error or str(row.status)
        rows.append((f"{row.method} {row.path}", row.total_ms, f"{row.name}: {state}"))
    return [
        {"name": name, "seconds": round((value or 0) / 1000, 5), "state": state}
        for name, value, state in rows
    ]


def _stream(found: Found) -> dict[str, Any]:
    streamed = found.streamed
    assert streamed is not None
    paces = found.metrics.paces if found.metrics is not None else {}
    ttft, itl = paces.get("ttft"), paces.get("itl")
    server_first, counted = None, None
    if ttft is not None and found.metrics is not None and found.metrics.second:
        server_first, counted = round(ttft.mean * 1000, 2), int(ttft.count)
    outside = None
    if server_first is not None and counted == 1 and streamed.first_ms is not None:
        outside = round(streamed.first_ms - server_first, 2)
    return {
        "first_token_ms": streamed.first_ms,
        "server_first_token_ms": server_first,
        "server_first_tokens": counted,
        "outside_server_ms": outside,
        "time_per_token_ms": streamed.mean_ms,
        "server_time_per_token_ms": round(itl.mean * 1000, 3) if itl is not None else None,
        "tokens": streamed.tokens,
        "whole_ms": streamed.total_ms,
        "own_delay_ms": streamed.lag_ms,
    }


def _outside(load: Load) -> float | None:
    """Of the mean first token; None when the server counted other requests than these."""
    level, pace = load.levels[-1], load.server_ttft
    if pace is None or level.ttft is None or len(load.levels) > 1 or pace.count != level.requests:
        return None
    return round(level.ttft.mean - pace.mean * 1000, 2)


def _level(row: LoadLevel) -> dict[str, Any]:
    return {
        "concurrency": row.concurrency,
        "requests": row.requests,
        "seconds": round(row.seconds, 3),
        "failed": dict(row.failed),
        "tokens": row.tokens,
        "tokens_exact": row.exact,
        "tokens_per_s": round(row.tokens_per_s, 2),
        "time_to_first_token_ms": _summary(row.ttft),
        "time_per_token_ms": _summary(row.per_token),
        "mean_time_per_token_ms": row.mean_token_ms,
        "end_to_end_ms": _summary(row.whole),
    }


def _summary(row: Summary | None) -> dict[str, float | None] | None:
    if row is None:
        return None
    names = ("count", "mean", "p50", "p90", "p99", "most")
    return {name: getattr(row, name) for name in names}


def _pace(pace: Pace | None) -> dict[str, float | None] | None:
    if pace is None:
        return None
    return {
        "count": pace.count,
        "mean_ms": round(pace.mean * 1000, 3),
        "median_ms": round(pace.median * 1000, 3) if pace.median is not None else None,
    }
