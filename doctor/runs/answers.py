"""Asks an endpoint all prompts greedily, and keeps what is needed to compare two of them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.redact import mask_line
from infer_doctor.runs.endpoint import (
    NO_SUCH_API,
    WRONG_BODY,
    Endpoint,
    NoServer,
    open_endpoint,
)
from infer_doctor.runs.prompts import Prompt
from infer_doctor.runs.typed import typed
from infer_doctor.server.dialect import Dialect
from infer_doctor.server.http import Answer as Answered
from infer_doctor.server.sse import error_text

TOP = 5
"""Log probabilities of a position: what OpenAI's API and vLLM's default (max_logprobs 20) both give."""

OF_VLLM = ("return_token_ids", "return_tokens_as_token_ids")
"""Since 0.10.2 and 0.5: bytes that are no whole character all look alike as text."""

BY_ID = "token_id:"
"""How vLLM writes a token that is asked for by its id."""

TOO_MANY = 429
PASSING = (408, 425, TOO_MANY, 502, 503, 504)
"""Answers of a server or proxy that is busy or away; they say nothing about its answers."""

PATIENCE_S = 60.0
"""How long a server that says so (429, Retry-After) is waited for, in all."""

BACK_OFF_S = 1.0
LONGEST_S = 16.0
"""Where it does not say for how long: doubled from the one to the other."""

AT_ONCE = 8
ANSWER_S = 300.0
FORM = 1

Progress = Callable[[int, int], None]


class BadAnswers(Exception):
    """The file holds no recorded answers."""


@frozen
class Answer:
    """One answer. `top` has the most likely tokens of each position with their log probabilities.

    `scored` are the log probabilities that this endpoint gives to the tokens of the other's answer.
    `thought` is what a reasoning model wrote before the text. `passing` is an error that says nothing
    about the model: the server was busy or away.
    """

    prompt: str
    text: str = ""
    finish: str = ""
    error: str = ""
    tokens: tuple[str, ...] = ()
    logprobs: tuple[float, ...] = ()
    top: tuple[Mapping[str, float], ...] = ()
    prompt_ids: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    scored: tuple[float, ...] = ()
    thought: str = ""
    passing: bool = False

    @property
    def whole(self) -> str:
        """All that was written."""
        return self.thought + self.text


@frozen
class Answers:
    """All answers of one endpoint, by prompt; `chat` and `tokens` (what was asked for) are None where
    they were not kept."""

    name: str
    model: str
    rows: Mapping[str, Answer]
    chat: bool | None = None
    tokens: int | None = None


def ask(
    url: str,
    prompts: Sequence[Prompt],
    *,
    name: str = "",
    model: str = "",
    tokens: int = 64,
    score: Answers | None = None,
    progress: Progress | None = None,
) -> Answers:
    """Ask all of them; `score` also asks how likely the other's answers are here. Raises NoServer.

    Completions are asked where there is no chat, or where the other was asked so.
    """
    return asyncio.run(_ask(url, prompts, name, model, tokens, score, progress))


async def _ask(
    url: str,
    prompts: Sequence[Prompt],
    name: str,
    model: str,
    tokens: int,
    score: Answers | None,
    progress: Progress | None,
) -> Answers:
    endpoint = await open_endpoint(url, model)
    asker = _Asker(endpoint, tokens)
    await asker.settle(completions=score is not None and score.chat is False)
    where = endpoint.route.address.url
    rows: dict[str, Answer] = {}
    waiting = iter(prompts)

    async def worker() -> None:
        for prompt in waiting:
            answer = await asker.answer(prompt)
            if score is not None and prompt.id in score.rows and not answer.error:
                answer = await asker.scored(answer, score.rows[prompt.id])
            rows[prompt.id] = answer
            if progress is not None:
                progress(len(rows), len(prompts))

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    if all(row.error for row in rows.values()):
        first = next(iter(rows.values()))
        raise NoServer(f"{where} answered none of {len(rows)} prompts: {first.error}")
    return Answers(
        name=name or where, model=endpoint.model, rows=rows, chat=asker.chat, tokens=tokens
    )


class _Asker:
    """Requests to one endpoint."""

    def __init__(self, endpoint: Endpoint, tokens: int) -> None:
        self._endpoint = endpoint
        self._tokens = tokens
        self._dialect = Dialect()
        self._extra: dict[str, Any] = {}
        """What the endpoint takes beyond the prompt."""
        self.chat = True
        self._free = 0.0
        """When the server may be asked again."""
        self._waits = 0
        """Since it answered last."""
        self._patience = PATIENCE_S

    def _is_busy(self, answer: Answered) -> bool:
        """Whether it wants to be asked again later, and there is patience left: all wait together."""
        told = answer.headers.get("retry-after", "")
        if answer.status != TOO_MANY and not (answer.status in PASSING and told):
            self._waits = 0
            return False
        wait = float(told) if told.isdecimal() else min(BACK_OFF_S * 2.0**self._waits, LONGEST_S)
        now = time.monotonic()
        until = now + max(wait, BACK_OFF_S)
        more = until - max(now, self._free)
        if more <= 0:  # another one waits longer already
            return True
        if more > self._patience:
            return False
        self._patience -= more
        self._free = until
        self._waits += 1
        return True

    async def _post(self, path: str, body: dict[str, Any]) -> tuple[int | None, Any, str]:
        whole = {"model": self._endpoint.model, **body}
        while True:
            await asyncio.sleep(max(0.0, self._free - time.monotonic()))
            spoken = self._dialect.spoken(whole)
            answer = await self._endpoint.post(path, spoken, ANSWER_S)
            if self._is_busy(answer):
                continue
            try:
                found = json.loads(answer.body) if answer.body else None
            except (ValueError, RecursionError):
                found = None
            said = error_text(found) or answer.said or f"HTTP {answer.status}"
            if not self._dialect.learn(spoken, answer.status, said):
                status = None if answer.error else answer.status  # cut off, it is none
                return status, found, mask_line(said)[:200]

    async def settle(self, *, completions: bool) -> None:
        """Chats or completions, and what may be asked for beside the text: once, for all prompts.

        A base model has no template and answers 400. What fails in another way is not asked in another
        way, or the two sides would answer different prompts.
        """
        said = ""
        for self.chat in (False,) if completions else (True, False):
            logprobs = {"logprobs": True, "top_logprobs": TOP} if self.chat else {"logprobs": TOP}
            for self._extra in ({**logprobs, **dict.fromkeys(OF_VLLM, True)}, logprobs, {}):
                status, _, said = await self._ask("Hi", 1)
                if status in NO_SUCH_API:
                    break
                if status not in WRONG_BODY:
                    return
        raise NoServer(
            f"{self._endpoint.route.address.url} takes neither chats nor prompts: {said}"
        )

    async def _ask(self, text: str, tokens: int) -> tuple[int | None, Any, str]:
        body: dict[str, Any] = {"max_tokens": tokens, "temperature": 0, "seed": 0, **self._extra}
        if self.chat:
            messages = [{"role": "user", "content": text}]
            return await self._post("/chat/completions", {**body, "messages": messages})
        return await self._post("/completions", {**body, "prompt": text})

    async def answer(self, prompt: Prompt) -> Answer:
        """One prompt, greedily."""
        status, found, said = await self._ask(prompt.text, self._tokens)
        if status != 200 or not isinstance(found, dict) or not found.get("choices"):
            passing = status is None or status in PASSING
            return Answer(prompt=prompt.id, error=said, passing=passing)
        try:
            return _read(prompt.id, found, chat=self.chat)
        except (AttributeError, KeyError, TypeError, ValueError):
            return Answer(prompt=prompt.id, error="the answer has not the form of OpenAI's API")

    async def scored(self, answer: Answer, other: Answer) -> Answer:
        """The same with what this endpoint thinks of the other's tokens after the same prompt."""
        if not other.ids or not other.prompt_ids or other.prompt_ids != answer.prompt_ids:
            return answer
        body = {
            "prompt": [*other.prompt_ids, *other.ids],
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": 0,
        }
        status, found, _ = await self._post("/completions", body)
        try:
            rows = found["choices"][0]["prompt_logprobs"] if status == 200 else None
            tail = rows[-len(other.ids) :] if rows else []
            values = [
                float(row[str(id)]["logprob"]) for row, id in zip(tail, other.ids, strict=True)
            ]
        except (KeyError, TypeError, ValueError, IndexError):
            return answer
        return dataclasses.replace(answer, scored=tuple(values))


def _read(id: str, found: dict[str, Any], *, chat: bool) -> Answer:
    choice = found["choices"][0]
    message = choice.get("message") or {}
    text = message.get("content") if chat else choice.get("text")
    thought = message.get("reasoning_content") or message.get("reasoning")
    logprobs = choice.get("logprobs") or {}
    tokens: list[str] = []
    values: list[float] = []
    top: list[dict[str, float]] = []
    if chat:
        for row in logprobs.get("content") or ():
            tokens.append(_token(row))
            values.append(float(row["logprob"]))
            top.append({_token(one): float(one["logprob"]) for one in row.get("top_logprobs", ())})
    else:
        tokens = [str(word) for word in logprobs.get("tokens") or ()]
        values = [float(value) for value in logprobs.get("token_logprobs") or ()]
        top = [dict(row or {}) for row in logprobs.get("top_logprobs") or ()]
    prompt_ids = choice.get("prompt_token_ids") or found.get("prompt_token_ids") or ()
    return Answer(
        prompt=id,
        text=text or "",
        finish=str(choice.get("finish_reason") or ""),
        tokens=tuple(tokens),
        logprobs=tuple(values),
        top=tuple(top),
        prompt_ids=tuple(prompt_ids),
        ids=tuple(choice.get("token_ids") or ()),
        thought=str(thought or ""),
    )


def _token(row: dict[str, Any]) -> str:
    """A token by its bytes where they are told: several that are no whole character look alike."""
    word, known = str(row.get("token")), row.get("bytes")
    return bytes(known).hex() if known and not word.startswith(BY_ID) else word


def write(answers: Answers, path: str) -> None:
    """As a file that `compare` takes instead of an endpoint."""
    rows = {id: dataclasses.asdict(row) for id, row in answers.rows.items()}
    whole = {"form": FORM, "name": answers.name, "model": answers.model, "chat": answers.chat}
    whole |= {"tokens": answers.tokens, "answers": rows}
    Path(path).write_text(json.dumps(whole) + "\n", encoding="utf-8")


def keep(folder: str, found: Mapping[str, Answers | None], note: Callable[[str], None]) -> None:
    """Each in a file of its name; what cannot be written is told, and the comparison stands."""
    for name, answers in found.items():
        if answers is None:
            continue
        path = str(Path(folder, f"{name}.json"))
        try:
            write(answers, path)
        except OSError as error:
            note(f"{path} was not kept: {error.strerror}")


def read(path: str) -> Answers:
    """Raises BadAnswers."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        if found["form"] != FORM:
            raise BadAnswers(f"{path} was written in another form by another version")
        rows = {id: typed(Answer, row) for id, row in found["answers"].items()}
        shown = [len(row.tokens) for row in rows.values() if row.finish == "length" and row.tokens]
        found.setdefault("tokens", max(shown, default=None))  # an earlier version did not write it
        whole = {name: found.get(name) for name in ("name", "model", "chat", "tokens")}
        return dataclasses.replace(typed(Answers, {**whole, "rows": {}}), rows=rows)
    except (OSError, UnicodeDecodeError) as error:
        raise BadAnswers(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadAnswers(f"{path} holds no recorded answers: {error}") from None
