"""Fixes for the code around an engine.

A person decides what the code should do: all are manual but deadlines and retries, a keyword each,
and those are unsafe: an answer that takes longer than the deadline is lost.
"""

from __future__ import annotations

from infer_doctor.launch.model import Place
from infer_doctor.model import Action, AnyAction, Edit, Fix


def set_timeout(name: str, place: Place, *, retries_given: bool = False) -> Fix:
    """A deadline that suits the longest answer that is still worth having."""
    short = name.rpartition(".")[2]
    edits: tuple[AnyAction, ...] = ()
    if name.startswith("openai."):
        edits = _keyword(short, place, "timeout", "60.0")
        if not retries_given:
            edits += _keyword(short, place, "max_retries", "1")
        add = "timeout=60.0" if retries_given else "timeout=60.0, max_retries=1"
    elif name.startswith("requests."):
        edits = _keyword(short, place, "timeout", "(5, 60)")
        add = "timeout=(5, 60)"
    elif name.startswith("httpx."):
        edits = _keyword(short, place, "timeout", "60.0")
        add = "timeout=60.0"
    else:
        add = "timeout=60"
    return Fix(
        id="set-client-timeout",
        title=f"Give the call in {place.text} a deadline: {add}",
        safety="unsafe" if edits else "manual",
        restarts=False,
        why="60 s stands for the longest answer that its caller still waits for; stream longer ones",
        actions=edits or (Action(kind="text", text=f"in {place.text} add: {add}"),),
    )


def _keyword(call: str, place: Place, name: str, value: str) -> tuple[AnyAction, ...]:
    """A keyword of the call that stands there; not in notebooks, whose lines are those of cells."""
    if not place.file.endswith(".py") or place.line is None:
        return ()
    return (
        Edit(
            text=f"in {place.text} set: {name}={value}",
            file=place.file,
            format="python",
            what="keyword",
            do="set",
            name=name,
            value=value,
            line=place.line,
            anchor=call,
        ),
    )


def retry_once(outer: Place, client: Place | None, tries: int | None) -> Fix:
    """One layer that retries, with a pause that grows."""
    inner = (
        f"in {client.text} set: max_retries=0"
        if client is not None
        else "where the OpenAI client is made set: max_retries=0"
    )
    count = f"the {tries} attempts" if tries else "the attempts"
    edits = _keyword("OpenAI", client, "max_retries", "0") if client is not None else ()
    return Fix(
        id="retry-in-one-layer",
        title=f"Retry in one layer: set max_retries=0 and keep {count} of {outer.text}",
        safety="unsafe" if edits else "manual",
        restarts=False,
        actions=(
            *(edits or (Action(kind="text", text=inner),)),
            Action(
                kind="text",
                text=f"in {outer.text} end after a fixed number of attempts and wait longer before "
                "each: tenacity's wait_random_exponential(max=30)",
            ),
        ),
    )


def answer_with_error(place: Place, form: str) -> Fix:
    """The status that says that it failed."""
    change = (
        'raise HTTPException(status_code=503, detail="inference failed") from e'
        if form != "response"
        else "status_code=503"
    )
    return Fix(
        id="answer-with-error-status",
        title=f"Answer with a status of failure in {place.text}: 503, or 500 for a bug",
        safety="manual",
        restarts=True,
        actions=(
            Action(kind="text", text=f"in {place.text} write: {change}"),
            Action(
                kind="text", text="log the exception itself; do not send its text to the client"
            ),
        ),
    )


def free_the_loop(name: str, place: Place) -> Fix:
    """Let something else compute while the loop goes on."""
    if name.startswith(("vllm.", "tensorrt_llm.")):
        server = "vllm serve" if name.startswith("vllm.") else "trtllm-serve"
        return Fix(
            id="serve-instead-of-blocking",
            title=f"Let {server} serve the model and ask it over HTTP",
            safety="manual",
            restarts=True,
            why="it batches the requests of all clients; LLM computes one call after the other",
            actions=(
                Action(kind="command", text=f"{server} MODEL"),
                Action(
                    kind="text",
                    text=f"in {place.text}: await AsyncOpenAI(base_url=..., timeout=60).chat."
                    "completions.create(...)",
                ),
                Action(
                    kind="text",
                    text="to stay in one process: vLLM's AsyncLLM.from_engine_args(...), "
                    "TensorRT-LLM's generate_async(...)",
                ),
            ),
        )
    instead = {
        "time": "await asyncio.sleep(...)",
        "openai": "AsyncOpenAI and await",
        "requests": "httpx.AsyncClient and await",
        "httpx": "httpx.AsyncClient and await",
    }.get(name.partition(".")[0], "await asyncio.to_thread(...)")
    return Fix(
        id="free-event-loop",
        title=f"Do not block the event loop in {place.text}: use {instead}",
        safety="manual",
        restarts=True,
        actions=(
            Action(kind="text", text=f"in {place.text} use {instead}"),
            Action(kind="text", text="or make the handler a plain `def`: it then runs in a thread"),
        ),
    )


def budget_start(place: Place, seconds: int) -> Fix:
    """A start-up probe that waits for the load."""
    failures = -(-seconds // 10)
    return Fix(
        id="budget-the-start",
        title=f"Give the server a start-up probe of {seconds} s: it answers nothing before",
        safety="manual",
        restarts=True,
        actions=(
            Action(
                kind="text",
                text="in the container: startupProbe: {httpGet: {path: /health, port: 8000}, "
                f"periodSeconds: 10, failureThreshold: {failures}}}",
            ),
            Action(
                kind="text",
                text=f"or load in the background in {place.text} and answer 503 until it is done",
            ),
        ),
    )


def make_client_once(name: str, place: Place) -> Fix:
    """One client for the life of the process."""
    short = name.rpartition(".")[2]
    return Fix(
        id="make-client-once",
        title=f"Make {short} once, when the process starts, instead of in {place.text}",
        safety="manual",
        restarts=False,
        actions=(
            Action(kind="text", text=f"move {short}(...) from {place.text} to the module's level"),
        ),
    )


def bound_requests(place: Place) -> Fix:
    """At most as many at once as the engine runs at once."""
    return Fix(
        id="bound-requests",
        title="Ask for at most 64 answers at once",
        safety="manual",
        restarts=False,
        why="64 is a start: raise it until the time to the first token grows "
        "(vllm:num_requests_waiting above 0)",
        actions=(
            Action(
                kind="text",
                text=f"around the call in {place.text}: async with semaphore:, with "
                "semaphore = asyncio.Semaphore(64)",
            ),
        ),
    )


def take_key_from_environment(name: str, place: Place) -> Fix:
    """The key out of the source, and another one in its place."""
    variable = name.upper() if name.isidentifier() and "key" in name.lower() else "API_KEY"
    return Fix(
        id="take-key-from-environment",
        title=f"Take the key in {place.text} from the environment and revoke this one",
        safety="manual",
        restarts=False,
        why="whoever can read the repository, now or in its history, has the key",
        actions=(
            Action(kind="text", text=f'in {place.text} write: os.environ["{variable}"]'),
            Action(kind="text", text="revoke the key where it was issued and make a new one"),
        ),
    )


def import_name(name: str, package: str, place: Place) -> Fix:
    """The import that is missing."""
    return Fix(
        id="import-missing-name",
        title=f"Import {name}: from {package} import {name}",
        safety="manual",
        restarts=True,
        actions=(
            Action(
                kind="text", text=f"at the top of {place.file} add: from {package} import {name}"
            ),
        ),
    )


def drop_import(name: str, place: Place, instead: str | None) -> Fix:
    """An import of what is not there."""
    return Fix(
        id="drop-import",
        title=f"Take {name} out of the import in {place.text}"
        + (f"; {instead}" if instead else ""),
        safety="manual",
        restarts=True,
        actions=(Action(kind="text", text=f"in {place.text} remove: {name}"),),
    )
