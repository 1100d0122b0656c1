"""The order in which a server is asked: the way to it, light questions, tokens, its own numbers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from infer_doctor.facts.server import (
    Answers,
    Exchange,
    Models,
    Reach,
    ServerMetrics,
    Streamed,
    gateway_of,
)
from infer_doctor.server import connect, features, metrics, names, triton
from infer_doctor.server.address import Address
from infer_doctor.server.ask import Asker, parsed
from infer_doctor.server.dialect import Dialect
from infer_doctor.server.features import Question
from infer_doctor.server.key import Key

LIGHT_SHARE = 0.35
"""Of the time limit that a question without tokens may take."""

FIRST_TOKEN_SHARE = 0.8
"""Of the time limit after which no token is no token: 8 of 10 s. Within them a scheduler of vLLM has
made hundreds of steps, and two scrapes show whether it makes any."""

SMALL_SHARE = 0.3
RESERVE_S = 0.5
"""Seconds kept for the last scrape and the report."""

STREAM_TOKENS = 32
LONG_TOKENS = 512
ENOUGH_S = 1.0
"""Behind a proxy a stream goes on until it shows whether its tokens come in bursts: Linux acknowledges
the first 16 segments at once (TCP_MAX_QUICKACKS), so Nagle's algorithm shows only after them."""

SMALL_TOKENS = 4
OTHER_WAY = (400, 404, 405, 422, 501)
"""Refusals of a chat after which a completion, or an embedding, may still be what the server makes."""

NO_STREAM = ("not-streamed", "no-events", "bad-events")
PROMPT = "Count from one to ten."


@dataclass
class Found:
    """What a probe brought home; None is "it did not come to that"."""

    reach: Reach
    answers: Answers | None = None
    models: Models | None = None
    streamed: Streamed | None = None
    metrics: ServerMetrics | None = None
    no_metrics: str = ""
    asker: Asker | None = field(default=None, repr=False)
    model: str | None = field(default=None, repr=False)
    """The name that is asked for, not masked as in `models`."""
    dialect: Dialect = field(default_factory=Dialect)
    api: str = ""
    """The path under which the API was found."""


async def probe(
    address: Address, question: Question, key: Key | None, variables: Mapping[str, str]
) -> Found:
    """Everything within `timeout_s`, whatever the server does."""
    deadline = time.monotonic() + question.timeout_s - RESERVE_S
    reach, route = await connect.reach(address, variables, deadline)
    found = Found(reach=reach, api=address.api)
    if route is None:
        return found
    asker = Asker(
        route=route,
        key=key,
        deadline=deadline,
        keyed=key is not None and key.eager,
        extra=question.structured + question.tools,
    )
    found.asker = asker
    run = _Run(address, question, asker, found)
    async with asker.ticker.running():
        skipped = await run.all()
    found.answers = Answers(
        url=address.url,
        exchanges=tuple(asker.exchanges),
        prompt_bytes=asker.prompt_bytes,
        key_source=key.source if key is not None else None,
        lag_ms=asker.lag_ms,
        connect_ms=route.connect_ms,
        skipped=tuple(skipped),
    )
    return found


class _Run:
    """One probe of one server."""

    def __init__(self, address: Address, question: Question, asker: Asker, found: Found) -> None:
        self.address = address
        self.question = question
        self.asker = asker
        self.found = found
        self.light_s = question.timeout_s * LIGHT_SHARE
        self.first: metrics.Scrape | None = None
        self.first_at = 0.0
        self.scrape_ms: float | None = None
        self.metrics_path = "/metrics"
        self.skipped: list[str] = []

    async def all(self) -> list[str]:
        """Ask; returns what was not asked, with the reason."""
        models = await self._light()
        if not any(row.answered for row in self.asker.exchanges):
            self.skipped.append("requests for tokens: no light request was answered")
            if all(row.error == "timeout" for row in self.asker.exchanges):
                await self.asker.malformed(min(ENOUGH_S, self.light_s))  # is it a proxy?
            return self.skipped
        if not await self._models(models):
            return self.skipped
        model = self.found.model
        if model is None:
            self.skipped.append("requests for tokens: no model is named")
            await self._measured("none")
            return self.skipped
        await self._tokens(model)
        return self.skipped

    # --- without tokens

    async def _light(self) -> tuple[Exchange, bytes]:
        """Health, models and metrics side by side."""
        place = self.question.metrics
        where = self.asker.get("metrics", self._metrics_target(), self.light_s)
        if place is not None:
            where = self._elsewhere(place)
        _, models, (scraped, body) = await asyncio.gather(
            self.asker.get("health", f"{self.address.root}/health", self.light_s),
            self.asker.get("models", f"{self.found.api}/models", self.light_s),
            where,
        )
        self._take_first(scraped, body)
        return models

    def _metrics_target(self) -> str:
        return f"{self.address.root}{self.metrics_path}"

    async def _elsewhere(self, place: Address) -> tuple[Exchange, bytes]:
        _, route = await connect.reach(place, {}, time.monotonic() + self.light_s)
        if route is None:
            row = Exchange(name="metrics", method="GET", path=place.given, error="refused")
            self.asker.exchanges.append(row)
            return row, b""
        return await self.asker.get("metrics", place.given, self.light_s, route=route)

    def _take_first(self, scraped: Exchange, body: bytes) -> None:
        self.first_at, self.scrape_ms = time.monotonic(), scraped.total_ms
        text = body.decode("utf-8", "replace") if scraped.fine else ""
        self.first = metrics.read(text) if text else None
        if not scraped.fine:
            state = scraped.error or scraped.status
            self.found.no_metrics = f"GET {scraped.path}: {state}"
        elif self.first is None:
            self.found.no_metrics = f"GET {scraped.path} holds no metrics of a known engine"

    async def _models(self, answer: tuple[Exchange, bytes]) -> bool:
        """Which model to ask; False when nothing can be asked."""
        row, body = answer
        while self.asker.give_key(row):
            row, body = await self.asker.get("models", row.path, self.light_s)
        if row.fine:
            self.found.models = names.read(
                parsed(body), self.question.model, f"GET {row.path}", body
            )
            if self.found.models is not None:
                self.found.model = names.wanted(parsed(body), self.question.model)
                return True
            self.skipped.append(f"requests for tokens: GET {row.path} is no list of models")
        if row.status in (404, 405) and not await self._elsewhere_api(row):
            return False
        if row.status in (401, 403):
            self.skipped.append("requests for tokens: the list of models was refused")
            return False
        if row.status is not None and row.status >= 500:
            self.skipped.append(f"requests for tokens: GET {row.path} is {row.status}")
            return False
        if self.found.models is None and self.question.model is not None:
            self.found.models = names.given(self.question.model, row)
            self.found.model = self.question.model
        return self.found.models is not None

    async def _elsewhere_api(self, row: Exchange) -> bool:
        """Where the API may be instead: without /v1, or Triton's own; True when it goes on."""
        root = self.address.root
        other, body = await self.asker.get("models-bare", f"{root}/models", self.light_s)
        if other.fine and names.read(parsed(body), None, "", body) is not None:
            if not root:
                self.skipped.append("requests for tokens: the API is under /, not /v1")
                return False
            # The given path is the base itself: /v1beta/openai, /api/v3
            found = names.read(parsed(body), self.question.model, f"GET {other.path}", body)
            self.found.models = found
            self.found.model = names.wanted(parsed(body), self.question.model)
            self.found.api = root
            return True
        if await triton.probe(self.asker, root, self.question.model, self.light_s):
            await self._measured(
                "tokens"
                if any(e.name == "generate" and e.fine for e in self.asker.exchanges)
                else "no token"
            )
            return False
        return self.question.model is not None

    # --- with tokens

    async def _tokens(self, model: str) -> None:
        await self._other_metrics()
        streamed = await self._stream(model)
        seen = streamed.first_ms is not None
        if not (seen or streamed.done or streamed.error in NO_STREAM):
            await self._without_stream(model, streamed)
            return
        if seen:
            await self._measured("tokens")  # between both scrapes is this stream alone
        busy = seen and self._busy()
        answered = await self._small_ones(model, also_wrong=not busy)
        if not (seen and answered) or (busy and self.asker.left > 0):
            await self._measured("tokens" if answered else "no token")  # of a longer time

    def _busy(self) -> bool:
        """Whether requests of others are in the engine."""
        found = self.found.metrics
        if found is None:
            return False
        return (found.total("running") or 0) > 1 or bool(found.total("waiting"))

    async def _without_stream(self, model: str, streamed: Streamed) -> None:
        """Refused or without a token: perhaps the model makes none and embeds."""
        self.skipped.append("further requests for tokens: the stream brought none")
        if streamed.status in OTHER_WAY and not self._unknown_model():
            path = f"{self.found.api}/embeddings"
            await self._small("embedding", path, {"model": model, "input": PROMPT})
            if self.asker.exchanges[-1].name == "embedding" and self.asker.exchanges[-1].fine:
                await self._measured("tokens")
                return
        if streamed.error in ("timeout", "truncated", "closed", "reset") and self.first is None:
            path = f"{self.found.api}/models"  # does it live?
            await self.asker.get("models", path, self.light_s)
        await self._measured("refused" if refused(streamed.status) else "no token")

    async def _small_ones(self, model: str, *, also_wrong: bool) -> bool:
        """A chat, a completion, what was asked for, a wrong chat; False when one hangs."""
        body: dict[str, Any] = {"model": model, "max_tokens": SMALL_TOKENS}
        chat = {**body, "messages": [{"role": "user", "content": PROMPT}]}
        chats = f"{self.found.api}/chat/completions"
        wanted = [
            ("chat", chats, chat),
            ("completion", f"{self.found.api}/completions", {**body, "prompt": PROMPT}),
        ]
        if self.question.structured:
            wanted.append(("structured", chats, {**chat, **features.STRUCTURED}))
        if self.question.tools:
            wanted.append(("tools", chats, {**chat, **features.TOOLS}))
        if also_wrong and "temperature" not in self.found.dialect.without:
            wanted.append(("wrong", chats, {**chat, "max_tokens": 1, "temperature": -1}))
        for name, path, asked in wanted:
            await self._small(name, path, asked)
            row = self.asker.exchanges[-1]
            if row.name in ("chat", "completion") and row.error == "timeout":
                self.skipped.append(f"what comes after {name}: it hangs")
                return False
        return True

    async def _small(self, name: str, path: str, body: dict[str, Any]) -> None:
        last_scrape = self.first is not None and self.found.metrics is None
        if time.monotonic() > self.asker.deadline - 0.2:
            self.skipped.append(f"{name}: no time left")
            return
        if self.asker.left <= last_scrape:
            self.skipped.append(f"{name}: the requests of a probe are used up")
            return
        limit_s = self.question.timeout_s * SMALL_SHARE
        body = self.found.dialect.spoken(body)
        row, answer = await self.asker.post(name, path, body, limit_s)
        if name == "structured" and row.fine:
            self.asker.exchanges[-1] = replace(row, problem=features.against_schema(answer))

    async def _stream(self, model: str) -> Streamed:
        """A stream of a chat, or of a completion where the server has no chat."""
        models = self.found.models
        behind = bool(gateway_of(self.asker.exchanges))
        tokens = STREAM_TOKENS
        if behind:
            tokens = min(LONG_TOKENS, ((models and models.longest) or LONG_TOKENS) // 2)
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if models is not None and models.owner == "vllm":
            body["ignore_eos"] = True
        chat = {**body, "messages": [{"role": "user", "content": PROMPT}]}
        path = f"{self.found.api}/chat/completions"
        row, streamed = await self._one_stream(path, chat, behind)
        while self.asker.give_key(row) or self._learns(chat, row):
            row, streamed = await self._one_stream(path, chat, behind)
        if row.status in OTHER_WAY and not self._unknown_model():
            path = f"{self.found.api}/completions"
            _, streamed = await self._one_stream(path, {**body, "prompt": PROMPT}, behind)
        elif behind and streamed.merged and streamed.lag_ms > streamed.total_ms / 2:
            _, again = await self._one_stream(path, chat, behind)  # this machine was late
            streamed = again if again.first_ms is not None else streamed
        self.found.streamed = streamed
        return streamed

    async def _one_stream(
        self, path: str, body: dict[str, Any], behind: bool
    ) -> tuple[Exchange, Streamed]:
        first_s = self.question.timeout_s * FIRST_TOKEN_SHARE
        enough_s = ENOUGH_S if behind else None
        spoken = self.found.dialect.spoken(body)
        return await self.asker.stream(path, spoken, first_s, enough_s=enough_s)

    def _learns(self, body: dict[str, Any], row: Exchange) -> bool:
        """Whether the refusal of this request told how to ask instead."""
        return self.asker.left > 2 and self.found.dialect.learn(body, row.status, row.said)

    def _unknown_model(self) -> bool:
        models = self.found.models
        return models is not None and bool(models.offered) and models.used not in models.offered

    # --- its own numbers

    async def _other_metrics(self) -> None:
        """trtllm-serve has JSON at /metrics and Prometheus' format elsewhere if it is told to; NVIDIA's
        NIM has its metrics under /v1 (docs.nvidia.com/nim, "Observability")."""
        owner = self.found.models.owner if self.found.models else ""
        json_there = self.first is not None and self.first.kind == "tensorrt-llm"
        if self.question.metrics is not None:
            return
        if json_there or owner == "tensorrt_llm":
            other = "/prometheus/metrics"
        elif self.first is None and any(
            e.name == "metrics" and e.status == 404 for e in self.asker.exchanges
        ):
            other = "/v1/metrics"
        else:
            return
        usual, self.metrics_path = self.metrics_path, other
        row, body = await self.asker.get("metrics", self._metrics_target(), self.light_s)
        found = metrics.read(body.decode("utf-8", "replace")) if row.fine else None
        if found is not None:
            self.first, self.first_at = found, time.monotonic()
        else:
            self.metrics_path = usual

    async def _measured(self, own_request: str) -> None:
        """The second scrape, and both as a fact."""
        if self.first is None:
            return
        place = self.question.metrics
        source = f"GET {place.given if place is not None else self._metrics_target()}"
        second, seconds = None, None
        gaps: list[str] = []
        if self.asker.left > 0:
            self.asker.deadline = max(self.asker.deadline, time.monotonic() + RESERVE_S / 2)
            if place is not None:
                row, body = await self._elsewhere(place)
            else:
                row, body = await self.asker.get("metrics", self._metrics_target(), self.light_s)
            second = metrics.read(body.decode("utf-8", "replace")) if row.fine else None
            seconds = round(time.monotonic() - self.first_at, 2) if second is not None else None
        if second is None:
            gaps.append("there is no second scrape")
        self.found.metrics = metrics.between(
            source,
            self.first,
            second,
            seconds=seconds,
            scrape_ms=self.scrape_ms,
            own_request=own_request,
            gaps=tuple(gaps),
        )


def refused(status: int | None) -> bool:
    """Whether this answer ended a request that the engine may never have had; 502 and 504 are those of
    a proxy that waited for it."""
    return status is not None and status >= 400 and status not in (502, 504)
