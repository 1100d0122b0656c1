"""The time-outs that are set where it can be seen, from the client to the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from infer_doctor.catalog.clients import HTTPX_READ_S, OPENAI_READ_S
from infer_doctor.catalog.gateways import VLLM_EXECUTE, VLLM_EXECUTE_S
from infer_doctor.facts.client_code import Call, ClientCode
from infer_doctor.facts.server_limits import Buffering, Limit, TimeoutChain
from infer_doctor.launch.model import Launch
from infer_doctor.model import Evidence
from infer_doctor.server.probe import Found

ORDER = ("client", "proxy", "gateway", "server", "engine", "probe")


def of_launch(launch: Launch) -> Iterator[Limit]:
    """The engine's own limit and the probes of the platform."""
    if launch.engine == "vllm":
        given = next(
            (row for row in reversed(launch.environment) if row.name == VLLM_EXECUTE), None
        )
        value = _number(given.value if given is not None else None)
        place = given.place if given is not None else launch.place
        excerpt = f"{VLLM_EXECUTE}={given.value}" if given else f"{VLLM_EXECUTE}: 300 (default)"
        yield Limit(
            who="engine",
            name=VLLM_EXECUTE,
            seconds=value or VLLM_EXECUTE_S,
            what="one step",
            default=value is None,
            evidence=Evidence(source=place.file, line=place.line, excerpt=excerpt),
        )
    for probe in launch.container.probes if launch.container is not None else ():
        if probe.kind == "startup":
            continue
        yield Limit(
            who="probe",
            name=f"{probe.kind} probe",
            seconds=probe.timeout_s,
            what="health",
            default=False,
            evidence=Evidence(
                source=probe.place.file,
                line=probe.place.line,
                excerpt=f"{probe.kind} {probe.action}, {probe.timeout_s:g} s, "
                f"{probe.failures} times every {probe.period_s:g} s",
            ),
        )


def of_code(code: ClientCode) -> Iterator[Limit]:
    """What clients wait for, as far as the code says."""
    for call in code.calls:
        if call.kind not in ("client", "request"):
            continue
        limit = _of_call(call)
        if limit is None:
            continue
        seconds, what, default = limit
        yield Limit(
            who="client",
            name=f"time-out of {call.name.rpartition('.')[2] or call.name}",
            seconds=seconds,
            what=what,
            default=default,
            evidence=Evidence(source=call.place.file, line=call.place.line, excerpt=call.excerpt),
        )


def _of_call(call: Call) -> tuple[float, str, bool] | None:
    """Seconds, what they wait for, whether that is the library's own default."""
    given = call.given("timeout")
    value = given.value if given is not None else None
    if isinstance(value, (list, tuple)) and len(value) == 2:  # requests: (connect, read)
        value = value[1]
    seconds = _number(value)
    whole = "aiohttp" in call.name
    if seconds is not None:
        return seconds, "whole answer" if whole else "next byte", False
    if given is not None or call.unread:
        return None
    if call.kind == "client" and call.name.startswith("openai."):
        return float(OPENAI_READ_S), "next byte", True
    if call.name.startswith("httpx."):
        return float(HTTPX_READ_S), "next byte", True
    return None


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) if value > 0 else None
    if isinstance(value, str):
        try:
            return float(value) if float(value) > 0 else None
        except ValueError:
            return None
    return None


def chain(
    limits: Sequence[Limit],
    buffering: Iterable[Buffering],
    found: Found | None,
    gaps: tuple[str, ...] = (),
) -> TimeoutChain | None:
    """All of it with what a probe measured; None where nothing is known."""
    rows = sorted(limits, key=lambda row: (ORDER.index(row.who), row.seconds))
    buffers = tuple(buffering)
    if not rows and not buffers and not gaps:
        return None
    first = whole = health = None
    ended = True
    one_by_one = False
    if found is not None and found.streamed is not None:
        streamed = found.streamed
        whole = streamed.total_ms / 1000
        first = streamed.first_ms / 1000 if streamed.first_ms is not None else None
        ended = not streamed.error
        one_by_one = streamed.one_by_one
    if found is not None and found.answers is not None:
        row = found.answers.get("health")
        if row is not None and row.answered and row.total_ms is not None:
            health = row.total_ms / 1000
    return TimeoutChain(
        limits=tuple(rows),
        buffering=buffers,
        first_token_s=first,
        whole_s=whole,
        ended=ended,
        health_s=health,
        one_by_one=one_by_one,
        gaps=gaps,
    )
