"""Asks a server one thing after the other and keeps every exchange, within the bounds of a probe."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from infer_doctor._version import VERSION
from infer_doctor.facts.server import Exchange, Streamed
from infer_doctor.redact import mask_line
from infer_doctor.server.connect import Route
from infer_doctor.server.dialect import RENAMED
from infer_doctor.server.http import Answer
from infer_doctor.server.key import Key
from infer_doctor.server.message import request, shown
from infer_doctor.server.sse import Events, error_text

MOST_REQUESTS = 8
"""That a probe sends by itself; what an option asks for comes on top."""

REFUSED = (401, 403)
SAID_LIMIT = 240
PADDING = 1 << 16
"""Bytes of blanks that may stand before JSON: DeepSeek and OpenRouter keep connections alive by them."""

MALFORMED, NO_REQUEST = "malformed", b"!\r\n\r\n"
"""nginx and HAProxy answer 400 at once with a backend that answers nothing (measured, 1.22 and 2.6)."""

TICK_S = 0.005
FOLLOW_S = 0.02


class Ticker:
    """How late our own event loop is: what happens within that time cannot be told apart."""

    def __init__(self) -> None:
        self.longest = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Ticker]:
        """Watch while the block runs."""
        task = asyncio.create_task(self._tick())
        try:
            yield self
        finally:
            task.cancel()

    async def _tick(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            self.longest = max(self.longest, now - last - TICK_S)
            last = now

    def take(self) -> float:
        """The longest lateness in ms since the last call."""
        found, self.longest = self.longest, 0.0
        return round(found * 1000, 2)


@dataclass
class Asker:
    """The exchanges of one probe."""

    route: Route
    key: Key | None
    deadline: float
    keyed: bool = False
    exchanges: list[Exchange] = field(default_factory=list)
    prompt_bytes: int = 0
    lag_ms: float = 0.0
    extra: int = 0
    other_header: bool = False
    ticker: Ticker = field(default_factory=Ticker)

    @property
    def left(self) -> int:
        """Requests that may still be sent."""
        return MOST_REQUESTS + self.extra - len(self.exchanges)

    def note_lag(self) -> float:
        """The lateness since the last call; the longest of the probe is kept."""
        lag = self.ticker.take()
        self.lag_ms = max(self.lag_ms, lag)
        return lag

    def _headers(self, *, keyed: bool) -> dict[str, str]:
        headers = {"User-Agent": f"infer-doctor/{VERSION}", "Accept": "*/*"}
        return {**headers, **self.key.headers} if keyed and self.key is not None else headers

    def give_key(self, row: Exchange) -> bool:
        """Whether the key, or another header for it, may change this refusal: then it is sent."""
        if row.status not in REFUSED or self.key is None:
            return False
        if not self.keyed:
            self.keyed = True
            return True
        other = self.key.otherwise(row.said) if not self.other_header else None
        if other is None:
            return False
        self.key, self.other_header = other, True
        return True

    async def get(
        self, name: str, path: str, limit_s: float, *, route: Route | None = None
    ) -> tuple[Exchange, bytes]:
        """A GET and its body; the key goes only to the server that was named for it."""
        keyed = self.keyed and route is None
        way = route or self.route
        target = path + way.address.query
        wire = request("GET", target, way.address.authority, headers=self._headers(keyed=keyed))
        answer = await way.ask(wire, min(time.monotonic() + limit_s, self.deadline))
        return self._keep(name, "GET", path, answer, keyed=keyed), answer.body

    async def malformed(self, limit_s: float) -> Exchange:
        """A line that is no request: a proxy refuses it itself, without the engine behind it."""
        until = min(time.monotonic() + limit_s, self.deadline)
        return self._keep(MALFORMED, "?", "/", await self.route.ask(NO_REQUEST, until), keyed=False)

    async def post(
        self, name: str, path: str, body: dict[str, Any], limit_s: float
    ) -> tuple[Exchange, Any]:
        """A POST and its answer as JSON; None when it is none."""
        data = json.dumps(body, separators=(",", ":")).encode()
        self.prompt_bytes += _prompt_size(body)
        keyed = self.keyed
        wire = request(
            "POST",
            path + self.route.address.query,
            self.route.address.authority,
            body=data,
            headers=self._headers(keyed=keyed),
        )
        answer = await self.route.ask(wire, min(time.monotonic() + limit_s, self.deadline))
        return self._keep(name, "POST", path, answer, keyed=keyed), parsed(answer.body)

    async def stream(
        self,
        path: str,
        body: dict[str, Any],
        first_s: float,
        *,
        enough_s: float | None = None,
    ) -> tuple[Exchange, Streamed]:
        """A stream; given up when no token came within `first_s`, cut `enough_s` after the first."""
        data = json.dumps(body, separators=(",", ":")).encode()
        self.prompt_bytes += _prompt_size(body)
        keyed = self.keyed
        authority = self.route.address.authority
        headers = self._headers(keyed=keyed)
        target = path + self.route.address.query
        wire = request("POST", target, authority, body=data, headers=headers)
        events = Events()
        self.note_lag()
        began = time.monotonic()
        answer = Answer(sent=began)
        asked = asyncio.ensure_future(
            self.route.ask(
                wire,
                self.deadline,
                sink=events.take,
                into=answer,
                late_acks=enough_s is not None,
            )
        )
        cut = await _follow(asked, events, began + first_s, enough_s)
        if asked.cancelled():
            answer.end = answer.end or time.monotonic()
            if not cut:
                answer.error, answer.said = "timeout", "no token"
        else:
            answer = asked.result()
            if answer.error == "slow" and not events.times:  # the headers are no token
                answer.error, answer.said = "timeout", "no token"
        if not answer.error:
            events.end(answer.end or time.monotonic())
        lag = self.note_lag()
        exchange = self._keep("stream", "POST", path, answer, keyed=keyed, events=events)
        tokens = int(body.get("max_tokens") or body.get(RENAMED) or 0)
        return exchange, _streamed(path, tokens, answer, events, lag, cut=cut)

    def _keep(
        self,
        name: str,
        method: str,
        path: str,
        answer: Answer,
        *,
        keyed: bool,
        events: Events | None = None,
    ) -> Exchange:
        self.note_lag()
        body = answer.body if events is None else events.other
        said, hidden = _said(
            answer, body, wants_json=events is None and (method == "POST" or name == "models")
        )
        if events is not None and events.error:
            said, hidden = mask_line(events.error)[:SAID_LIMIT], answer.status == 200
        headers = answer.headers
        row = Exchange(
            name=name,
            method=method,
            path=path,
            status=answer.status,
            first_ms=_round(answer.first_ms),
            total_ms=_round(answer.total_ms),
            error=answer.error,
            said=said,
            server=mask_line(headers.get("server", ""))[:80],
            via=mask_line(headers.get("via", ""))[:80],
            location=mask_line(headers.get("location", ""))[:200],
            content_type=headers.get("content-type", "")[:80],
            size=answer.received,
            keyed=keyed,
            hidden_error=hidden,
            challenge=mask_line(headers.get("www-authenticate", ""))[:120],
            key_header=self.key.header if keyed and self.key is not None else "",
        )
        self.exchanges.append(row)
        return row


async def _follow(
    asked: asyncio.Future[Answer], events: Events, first_until: float, enough_s: float | None
) -> bool:
    """Wait for a stream; whether it was ended because it had shown enough."""
    while not asked.done():
        await asyncio.wait({asked}, timeout=FOLLOW_S)
        now = time.monotonic()
        late = not events.times and now >= first_until
        enough = enough_s is not None and bool(events.times) and now - events.times[0] >= enough_s
        if (late or enough) and not asked.done():
            asked.cancel()
            await asyncio.wait({asked})
            return enough
    return False


def _streamed(
    path: str, tokens: int, answer: Answer, events: Events, lag: float, *, cut: bool
) -> Streamed:
    times = [(moment - answer.sent) * 1000 for moment in events.times]
    counted = events.tokens if events.tokens is not None else len(times)
    mean = (times[-1] - times[0]) / (counted - 1) if len(times) > 1 and counted > 1 else None
    return Streamed(
        path=path,
        asked_tokens=tokens,
        status=answer.status,
        first_ms=_round(times[0]) if times else None,
        last_ms=_round(times[-1]) if times else None,
        total_ms=_round(answer.total_ms) or 0.0,
        events=len(times),
        segments=answer.segments,
        size=answer.received,
        tokens=events.tokens,
        finish=events.finish,
        done=events.done,
        cut=cut,
        error=answer.error or _wrong(answer, events),
        said=mask_line(events.error or answer.said or _begin(events))[:SAID_LIMIT],
        lag_ms=lag,
        content_type=answer.headers.get("content-type", "")[:80],
        encoding=answer.headers.get("content-encoding", "")[:40],
        mean_ms=round(mean, 3) if mean is not None else None,
    )


def _wrong(answer: Answer, events: Events) -> str:
    """What is wrong with a stream that came to its end."""
    if events.error:
        return "error-event"
    if events.times or events.done or answer.status is None or not 200 <= answer.status < 300:
        return ""
    if events.bad:
        return "bad-events"
    return "not-streamed" if b'"choices"' in events.other else "no-events"


def _begin(events: Events) -> str:
    """The first bytes of what was no event."""
    return "" if events.times or events.done else shown(events.example or events.other)


def parsed(body: bytes) -> Any:
    """JSON, or None."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _said(answer: Answer, body: bytes, *, wants_json: bool) -> tuple[str, bool]:
    """What an answer says when it is no success, and whether an error hides behind a success."""
    if answer.status is None or answer.error:
        return mask_line(answer.said)[:SAID_LIMIT], False
    failed = not 200 <= answer.status < 300
    begin = body[:PADDING].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    found = parsed(body) if begin in (b"{", b"[") else None
    told = error_text(found)
    hidden = not failed and bool(told) and not (isinstance(found, dict) and found.get("choices"))
    if failed and not told:
        text = body[: 4 * SAID_LIMIT].decode("utf-8", "backslashreplace")
        told = " ".join(_without_tags(text).split())
    if not failed and wants_json and found is None and body:
        told = "no JSON: " + " ".join(
            _without_tags(body[:400].decode("utf-8", "backslashreplace")).split()
        )
        hidden = True
    return (mask_line(told)[:SAID_LIMIT], hidden) if failed or hidden else ("", False)


def _without_tags(text: str) -> str:
    import re

    return re.sub(r"<[^<>]{0,200}>", " ", text)


def _prompt_size(body: dict[str, Any]) -> int:
    names = ("prompt", "messages", "text_input", "input")
    parts = [body.get(name, "") for name in names]
    return sum(len(json.dumps(part)) for part in parts if part)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
