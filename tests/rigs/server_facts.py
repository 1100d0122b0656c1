"""Facts of a healthy server, to be changed in one thing by each test."""

from __future__ import annotations

from typing import Any

from infer_doctor.facts.server import (
    Answers,
    EngineState,
    Exchange,
    Load,
    LoadLevel,
    Models,
    Pace,
    Reach,
    ServerMetrics,
    Streamed,
    Summary,
    Tls,
    Tried,
)
from infer_doctor.model import Evidence

URL = "http://llm.example:8000"
HERE = Evidence(source="GET /v1/models", excerpt="tiny")


def reach(**changes: Any) -> Reach:
    base: dict[str, Any] = {
        "url": URL,
        "scheme": "http",
        "host": "llm.example",
        "port": 8000,
        "addresses": ("192.0.2.7",),
        "tried": (Tried(address="192.0.2.7", ms=0.4),),
    }
    return Reach(**{**base, **changes})


def secure(error: str = "", **changes: Any) -> Reach:
    base: dict[str, Any] = {
        "ms": 3.0,
        "error": error,
        "said": "certificate verify failed" if error else "",
        "names": ("llm.example",),
        "issuer": "Test Root",
        "begins": "2026-01-01",
        "ends": "2027-01-01",
        "days_left": 200.0,
    }
    return reach(scheme="https", tls=Tls(**{**base, **changes}))


def row(name: str, status: int | None = 200, **changes: Any) -> Exchange:
    path = {
        "health": "/health",
        "models": "/v1/models",
        "metrics": "/metrics",
        "completion": "/v1/completions",
    }.get(name, "/v1/chat/completions")
    method = "GET" if name in ("health", "models", "metrics", "models-bare") else "POST"
    base: dict[str, Any] = {"first_ms": 2.0, "total_ms": 3.0, "server": "uvicorn"}
    values = {**base, **changes}
    return Exchange(name=name, method=method, path=path, status=status, **values)


def answers(*changed: Exchange, **changes: Any) -> Answers:
    """All exchanges of a healthy probe, with these instead of those of the same name."""
    usual = [row(name) for name in ("health", "models", "metrics", "stream", "chat", "completion")]
    usual.append(row("wrong", 400, said="temperature must be non-negative"))
    instead = {one.name: one for one in changed}
    rows = [instead.pop(one.name, one) for one in usual]
    return Answers(url=URL, exchanges=(*rows, *instead.values()), connect_ms=0.3, **changes)


def only(*rows: Exchange, **changes: Any) -> Answers:
    """These exchanges and no others."""
    return Answers(url=URL, exchanges=rows, connect_ms=0.3, **changes)


def models(**changes: Any) -> Models:
    base: dict[str, Any] = {"offered": ("tiny",), "used": "tiny", "evidence": HERE}
    return Models(**{**base, **changes})


def streamed(**changes: Any) -> Streamed:
    base: dict[str, Any] = {
        "path": "/v1/chat/completions",
        "asked_tokens": 32,
        "status": 200,
        "first_ms": 12.0,
        "last_ms": 400.0,
        "total_ms": 401.0,
        "events": 32,
        "segments": 34,
        "size": 7000,
        "tokens": 32,
        "finish": "length",
        "done": True,
    }
    return Streamed(**{**base, **changes})


STALE = streamed(
    first_ms=None, last_ms=None, total_ms=8000.0, events=0, finish="", done=False, error="timeout"
)


def state(**values: Any) -> EngineState:
    base: dict[str, Any] = {
        "running": 0.0,
        "waiting": 0.0,
        "kv": 0.1,
        "preemptions": 0.0,
        "prompt_tokens": 100.0,
        "tokens": 500.0,
        "iterations": 400.0,
    }
    return EngineState(**{**base, **values})


def metrics(
    first: EngineState | None = None,
    second: EngineState | None = None,
    seconds: float | None = 5.0,
    own_request: str = "tokens",
    **paces: Pace,
) -> ServerMetrics:
    return ServerMetrics(
        source="GET /metrics",
        kind="vllm",
        first={"0": first or state()},
        second={"0": second or state(tokens=560.0, iterations=440.0)},
        seconds=seconds,
        own_request=own_request,
        paces=paces or {"queue": Pace(count=3, total=0.001)},
    )


def summary(mean: float) -> Summary:
    return Summary(count=10, mean=mean, p50=mean, p90=mean, p99=mean, most=mean)


def level(concurrency: int = 4, **changes: Any) -> LoadLevel:
    base: dict[str, Any] = {
        "requests": 10,
        "seconds": 2.0,
        "ttft": summary(20.0),
        "tokens": 640,
        "mean_token_ms": 2.0,
    }
    return LoadLevel(concurrency=concurrency, **{**base, **changes})


def load(*levels: LoadLevel, **changes: Any) -> Load:
    return Load(levels=levels or (level(),), **changes)
