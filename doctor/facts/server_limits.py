"""The time-outs between a client and an engine, as far as files show them."""

from __future__ import annotations

from infer_doctor.frozen import frozen
from infer_doctor.model import Evidence
from infer_doctor.registry import given


@frozen
class Limit:
    """One time-out of the chain: who gives up, after how long, without what."""

    who: str
    """"client", "proxy", "gateway", "server", "engine", "probe"."""
    name: str
    seconds: float
    what: str
    """"whole answer" or "next byte": what it waits for."""
    default: bool
    evidence: Evidence


@frozen
class Buffering:
    """Whether a proxy keeps back what it gets."""

    name: str
    on: bool
    evidence: Evidence


@given("no server was asked")
@frozen
class TimeoutChain:
    """What is set where it can be seen, from the client to the engine."""

    limits: tuple[Limit, ...]
    buffering: tuple[Buffering, ...] = ()
    first_token_s: float | None = None
    whole_s: float | None = None
    """The longest answer that was measured, or when it was given up."""
    ended: bool = True
    """Whether that answer came to its end."""
    health_s: float | None = None
    one_by_one: bool = False
    """Whether the tokens of the measured stream came each by itself."""
    gaps: tuple[str, ...] = ()
