"""What a live server shows to a client: how it is reached, what it answers, its own metrics.

These facts are given by `server.subject`; no probe of a machine makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from infer_doctor.catalog.gateways import GATEWAY_ONLY, GATEWAY_WORDS, GATEWAYS
from infer_doctor.frozen import frozen
from infer_doctor.model import Evidence
from infer_doctor.registry import given


@frozen
class Tried:
    """One address of the name and what came of connecting to it.

    `error`: "" (connected), "refused", "timeout", "unreachable", "other".
    """

    address: str
    ms: float
    error: str = ""
    said: str = ""


@frozen
class Tls:
    """The handshake. `error`: "" or "expired", "not-yet", "name", "self-signed", "untrusted",
    "plain" (the port speaks no TLS), "timeout", "other"."""

    ms: float
    error: str = ""
    said: str = ""
    version: str = ""
    names: tuple[str, ...] = ()
    issuer: str = ""
    begins: str | None = None
    ends: str | None = None
    days_left: float | None = None


@given("no server was asked")
@frozen
class Reach:
    """The way to the server, layer by layer, each with its time.

    `proxy` is the variable and the proxy that a client would take which heeds the environment.
    """

    url: str
    scheme: str
    host: str
    port: int
    names_ms: float = 0.0
    addresses: tuple[str, ...] = ()
    name_error: str = ""
    tried: tuple[Tried, ...] = ()
    tls: Tls | None = None
    proxy: tuple[str, str] | None = None

    @property
    def connected(self) -> Tried | None:
        """The first address that took the connection."""
        return next((row for row in self.tried if not row.error), None)

    @property
    def open(self) -> bool:
        """A request can be sent."""
        return self.connected is not None and (self.tls is None or not self.tls.error)


@frozen
class Exchange:
    """One request and its answer.

    `error` is one of http.Answer's words, or "" when the answer is complete; `said` is what the
    error body or the failure says. Times in milliseconds.
    """

    name: str
    method: str
    path: str
    status: int | None = None
    first_ms: float | None = None
    total_ms: float | None = None
    error: str = ""
    said: str = ""
    server: str = ""
    via: str = ""
    location: str = ""
    content_type: str = ""
    size: int = 0
    keyed: bool = False
    hidden_error: bool = False
    """Status 200 with an error as its body."""
    problem: str = ""
    """What is wrong with the content of an answer of success."""
    challenge: str = ""
    """WWW-Authenticate of a refusal: which kind of key is wanted."""
    key_header: str = ""
    """The header in which the key was sent."""

    @property
    def fine(self) -> bool:
        """A complete answer of success that holds no error."""
        return (
            not self.error
            and self.status is not None
            and 200 <= self.status < 300
            and not self.hidden_error
        )

    @property
    def answered(self) -> bool:
        """Some HTTP status came."""
        return self.status is not None

    @property
    def evidence(self) -> Evidence:
        """The exchange in a line."""
        words = [str(self.status)] if self.status is not None else []
        words += [self.error] if self.error else []
        words += [f"after {ms(self.total_ms)}"] if self.total_ms is not None else []
        words += [f"Server: {self.server}"] if self.server and not self.fine else []
        words += [self.said] if self.said else []
        return Evidence(source=f"{self.method} {self.path}", excerpt=" ".join(words))


@given("no server was asked")
@frozen
class Answers:
    """Every request that was sent, in order, and what our own process was late by meanwhile."""

    url: str
    exchanges: tuple[Exchange, ...]
    prompt_bytes: int = 0
    key_source: str | None = None
    """Where a key was found: "VLLM_API_KEY", "--key-file"; None without one."""
    lag_ms: float = 0.0
    """The longest time that our own event loop did not run: what is shorter was not measured."""
    connect_ms: float = 0.0
    skipped: tuple[str, ...] = ()
    """Requests that were not sent, with the reason."""

    def get(self, name: str) -> Exchange | None:
        """The last exchange of this name."""
        return next((row for row in reversed(self.exchanges) if row.name == name), None)

    @property
    def light(self) -> tuple[Exchange, ...]:
        """Requests that no forward pass stands behind."""
        return tuple(row for row in self.exchanges if row.method == "GET")

    @property
    def heavy(self) -> tuple[Exchange, ...]:
        """Requests for which tokens are made."""
        return tuple(
            row
            for row in self.exchanges
            if row.name in ("stream", "chat", "completion", "generate", "embedding")
        )

    @property
    def gateway(self) -> str:
        """The name of what stands before the engine, as far as its headers tell."""
        return gateway_of(self.exchanges)


def gateway_of(exchanges: Iterable[Exchange]) -> str:
    """What stands before the engine: the header Via, or a Server that is no engine's."""
    rows = list(exchanges)
    for row in rows:
        if row.via:
            return row.via
    named = (row.server for row in rows if row.server.lower().split("/")[0] in GATEWAYS)
    return next(named, "") or next(filter(None, map(unnamed_gateway, rows)), "")


def unnamed_gateway(row: Exchange) -> str:
    """Who wrote an error that bears no name: by its words, else by its status."""
    if row.status is None or row.status < 400:
        return ""
    known = (name for words, name in GATEWAY_WORDS.items() if words in row.said)
    return next(known, "a gateway" if row.status in GATEWAY_ONLY else "")


@given("no server was asked")
@frozen
class Models:
    """The names that are offered, and the one that is asked for."""

    offered: tuple[str, ...]
    used: str | None
    asked: str | None = None
    nearest: str | None = None
    longest: int | None = None
    """max_model_len of the model that is used, in tokens."""
    owner: str = ""
    evidence: Evidence


ENOUGH_EVENTS = 8
"""Fewer show nothing of how they come."""


@given("no server was asked")
@frozen
class Streamed:
    """One stream, event by event. Times in milliseconds after the request."""

    path: str
    asked_tokens: int
    status: int | None = None
    first_ms: float | None = None
    last_ms: float | None = None
    total_ms: float = 0.0
    events: int = 0
    """That brought tokens."""
    segments: int | None = None
    """TCP segments in which the answer came, as the kernel counted them."""
    size: int = 0
    tokens: int | None = None
    finish: str = ""
    done: bool = False
    cut: bool = False
    """The doctor ended it, as it had shown enough."""
    error: str = ""
    said: str = ""
    lag_ms: float = 0.0
    content_type: str = ""
    encoding: str = ""
    """Content-Encoding: what was compressed on the way."""
    mean_ms: float | None = None
    """Per token after the first."""

    @property
    def merged(self) -> bool:
        """Whether something has put tokens together: three or more in each TCP segment.

        A server that writes each token by itself sends a segment for each (TCP_NODELAY, which asyncio
        sets, and nginx for what it does not buffer).
        """
        few = self.segments is not None and self.segments * 3 <= self.events
        return few and self.events >= ENOUGH_EVENTS

    @property
    def one_by_one(self) -> bool:
        """Whether nearly every token came in a segment of its own: nothing keeps them back."""
        known = self.segments is not None and self.events >= ENOUGH_EVENTS
        return known and not self.encoding and (self.segments or 0) >= 0.9 * self.events


@frozen
class Pace:
    """A histogram as its sum and count say; quantiles only where the buckets can tell them."""

    count: float
    total: float
    median: float | None = None
    """Seconds; None when it lies in the first or the last bucket."""

    @property
    def mean(self) -> float:
        """Seconds."""
        return self.total / self.count if self.count else 0.0


@frozen
class EngineState:
    """The gauges and counters of one engine in one scrape; None is "not in there"."""

    running: float | None = None
    waiting: float | None = None
    kv: float | None = None
    preemptions: float | None = None
    prompt_tokens: float | None = None
    tokens: float | None = None
    iterations: float | None = None
    finished: float | None = None
    errors: float | None = None
    asleep: bool | None = None


@given("no server was asked")
@frozen
class ServerMetrics:
    """Two scrapes, or one; `paces` are of the time between them, else since the server's start."""

    source: str
    kind: str
    """"vllm", "tensorrt-llm", "triton", "nim"."""
    first: Mapping[str, EngineState]
    """By engine: several with data parallelism."""
    second: Mapping[str, EngineState] = field(default_factory=dict)
    seconds: float | None = None
    """Between the scrapes."""
    paces: Mapping[str, Pace] = field(default_factory=dict)
    """"ttft", "itl", "queue", "prefill", "decode", "e2e"."""
    scrape_ms: float | None = None
    own_request: str = ""
    """What became of our request between the scrapes: "none", "tokens", "no token" (it waited), "refused"."""
    gaps: tuple[str, ...] = ()

    @property
    def last(self) -> Mapping[str, EngineState]:
        """The newest scrape."""
        return self.second or self.first

    def total(self, name: str, scrape: str = "last") -> float | None:
        """The sum of one value over the engines."""
        states: Mapping[str, EngineState] = getattr(self, scrape)
        values = [getattr(state, name) for state in states.values()]
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    def gained(self, name: str) -> float | None:
        """How much a counter grew between the scrapes; None when it fell: a new process counts anew."""
        before, after = self.total(name, "first"), self.total(name, "second")
        return None if before is None or after is None or after < before else after - before


@frozen
class Summary:
    """Quantiles of one measure, in milliseconds."""

    count: int
    mean: float
    p50: float
    p90: float | None
    p99: float | None
    """None where fewer values were measured than tell one: 10 for p90, 100 for p99."""
    most: float


@frozen
class LoadLevel:
    """What a number of requests at once gave."""

    concurrency: int
    requests: int
    seconds: float
    failed: Mapping[str, int] = field(default_factory=dict)
    """Kind of error -> how many."""
    examples: Mapping[str, str] = field(default_factory=dict)
    ttft: Summary | None = None
    per_token: Summary | None = None
    whole: Summary | None = None
    tokens: int = 0
    exact: bool = True
    """The server itself counted the tokens."""
    mean_token_ms: float | None = None
    """All times between tokens over all tokens after the first."""
    histogram: tuple[tuple[float, int], ...] = ()
    """TTFT: upper bound in milliseconds -> how many."""

    @property
    def tokens_per_s(self) -> float:
        """Of all requests together."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def answered(self) -> int:
        """Requests that came to their end."""
        return self.requests - sum(self.failed.values())


@given("no server was asked")
@frozen
class Load:
    """A short measurement, or the steps of a ramp."""

    levels: tuple[LoadLevel, ...]
    knee: int | None = None
    stopped: str = ""
    server_ttft: Pace | None = None
    server_itl: Pace | None = None
    lag_ms: float = 0.0


def ms(value: float | None) -> str:
    """0.4 ms, 42 ms, 5.0 s."""
    if value is None:
        return "no time"
    if value >= 1000:
        return f"{value / 1000:.1f} s"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"
