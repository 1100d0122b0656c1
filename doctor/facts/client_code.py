"""What Python code does around an engine: clients, requests, handlers, retries, imports.

Made by launch/python.py out of the source alone; nothing is imported or run.
"""

from __future__ import annotations

from typing import Literal

from infer_doctor.frozen import frozen
from infer_doctor.launch.model import Keyword, Place
from infer_doctor.registry import given

Role = Literal["handler", "startup", "function", "module"]
"""handler: answers HTTP requests; startup: the lifespan or start-up event of the server."""


@frozen
class Function:
    """Where a call stands: the innermost function, or the module itself."""

    name: str
    role: Role
    is_async: bool
    served: bool = False
    """It runs for each request: a handler, or called by one through functions of the file."""
    on_loop: bool = False
    """It runs on the event loop of the server: an async handler, or called directly by one."""
    cached: bool = False
    """A decorator such as lru_cache keeps what it returns."""
    place: Place


@frozen
class Attempts:
    """Something that repeats a call when it fails.

    `count` is how often it is tried in all; None where the file does not tell it or there is no end.
    """

    kind: str
    """"tenacity.retry", "backoff.on_exception", "loop"."""
    count: int | None
    endless: bool = False
    place: Place
    excerpt: str


@frozen
class Call:
    """One call that matters. `name` is its dotted name with imports resolved ("openai.OpenAI",
    "openai.OpenAI.chat.completions.create", "vllm.LLM.generate", "time.sleep")."""

    name: str
    kind: Literal["client", "request", "engine", "generate", "sleep"]
    keywords: tuple[Keyword, ...] = ()
    unread: bool = False
    """Some arguments come from **expressions that the file does not tell."""
    url: str | None = None
    """Of a request or a client, as far as it is known; parts that are not stand in braces."""
    function: Function
    attempts: tuple[Attempts, ...] = ()
    """What repeats it, outermost first, also where the function around it is called."""
    deadline: bool = False
    """asyncio.wait_for or asyncio.timeout stands around it."""
    made_by: Place | None = None
    """Of a request: where its client or session is made, when the file tells it."""
    kept: bool = False
    """What it makes is put where it outlives the function: a global, an attribute."""
    gathered: bool = False
    """It is started for each item of a collection by asyncio.gather, without a semaphore."""
    options: tuple[Keyword, ...] = ()
    """Of a request: the arguments of the client that sends it."""
    place: Place
    excerpt: str

    def given(self, name: str) -> Keyword | None:
        """The keyword argument of this name."""
        return next((word for word in self.keywords if word.name == name), None)


@frozen
class HiddenError:
    """An error that a handler answers with a status of success."""

    status: int
    form: Literal["exception", "response", "plain value"]
    handler: Function
    place: Place
    excerpt: str


@frozen
class SourceSecret:
    """A key written in the source. The value itself is not kept."""

    name: str
    place: Place
    excerpt: str
    """The line with the value masked."""


@frozen
class BadName:
    """A name of an engine's package that the file cannot use."""

    name: str
    package: str
    kind: Literal["not exported", "not imported"]
    place: Place
    excerpt: str


@given("no Python code was given")
@frozen
class ClientCode:
    """What one Python file does around an engine."""

    file: str
    serves: bool
    """It has handlers of HTTP requests or makes an application."""
    calls: tuple[Call, ...] = ()
    hidden_errors: tuple[HiddenError, ...] = ()
    secrets: tuple[SourceSecret, ...] = ()
    bad_names: tuple[BadName, ...] = ()
    gaps: tuple[str, ...] = ()
