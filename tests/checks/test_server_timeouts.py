"""Time-outs along the way."""

from __future__ import annotations

from typing import Any

from infer_doctor.checks.server_timeouts import (
    probe_short,
    proxy_buffers,
    timeout_fires,
    timeout_first,
)
from infer_doctor.facts.server_limits import Buffering, Limit, TimeoutChain
from infer_doctor.model import Evidence
from infer_doctor.testing import contract, examine

HERE = Evidence(source="nginx.conf", line=7, excerpt="proxy_read_timeout 5s;")


def limit(seconds: float, who: str = "proxy", what: str = "next byte") -> Limit:
    return Limit(
        who=who, name=f"limit of {who}", seconds=seconds, what=what, default=False, evidence=HERE
    )


def chain(*limits: Limit, **changes: Any) -> TimeoutChain:
    base: dict[str, Any] = {"first_token_s": 0.2, "whole_s": 2.0, "health_s": 0.01}
    return TimeoutChain(limits=limits, **{**base, **changes})


def test_contracts() -> None:
    contract(
        timeout_fires,
        fires=[chain(limit(5.0), first_token_s=6.0)],
        passes=[chain(limit(60.0))],
    )
    contract(timeout_first, fires=[chain(limit(60.0), limit(30.0, "client"))], passes=[chain()])
    on, off = (Buffering(name="nginx", on=value, evidence=HERE) for value in (True, False))
    contract(proxy_buffers, fires=[chain(buffering=(on,))], passes=[chain(buffering=(off,))])
    (finding,) = examine(proxy_buffers, chain(buffering=(on,), one_by_one=True)).findings
    assert finding.severity == "info"
    contract(
        probe_short,
        fires=[chain(limit(1.0, "probe"), health_s=1.4)],
        passes=[chain(limit(1.0, "probe"))],
    )


def test_a_limit_of_the_whole_stands_against_the_whole() -> None:
    whole = limit(15.0, "gateway", "whole answer")
    (finding,) = examine(timeout_fires, chain(whole, whole_s=20.0)).findings
    assert finding.message == "limit of gateway is 15 s; the whole answer took 20.0 s"
    assert examine(timeout_fires, chain(limit(15.0), whole_s=20.0)).outcome == "passed"


def test_what_was_given_up_took_at_least_so_long() -> None:
    facts = chain(limit(5.0), first_token_s=None, whole_s=8.0, ended=False)
    (finding,) = examine(timeout_fires, facts).findings
    assert finding.message == "limit of proxy is 5 s; the first token took at least 8.0 s"


def test_half_of_it_is_a_warning() -> None:
    (finding,) = examine(timeout_fires, chain(limit(5.0), first_token_s=3.0)).findings
    assert finding.severity == "warning"


def test_the_first_one_is_named() -> None:
    (finding,) = examine(timeout_first, chain(limit(60.0), limit(30.0, "client"))).findings
    assert finding.message == (
        "limit of client fires first, after 30 s without the next byte; measured 0.20 s"
    )
