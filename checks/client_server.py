"""Code that serves an engine: the event loop, the start, the answers, names and keys."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.cold_start import expected
from infer_doctor.catalog.model_names import bytes_by_name
from infer_doctor.checks.client import seen
from infer_doctor.facts.client_code import Call, ClientCode
from infer_doctor.fixes.client import (
    answer_with_error,
    budget_start,
    drop_import,
    free_the_loop,
    import_name,
    take_key_from_environment,
)
from infer_doctor.model import Finding
from infer_doctor.registry import check

BLOCKING = (
    "requests.",
    "httpx.post",
    "httpx.get",
    "httpx.request",
    "httpx.Client.",
    "openai.OpenAI.",
    "openai.AzureOpenAI.",
    "openai.Client.",
)
"""Requests that do not return to the event loop until the answer is there."""

INSTEAD = {
    "PoolingType": 'vLLM takes the type as a word: PoolerConfig(pooling_type="MEAN")',
    "AsyncLLM": "import it from vllm.v1.engine.async_llm",
    "GuidedDecodingParams": "import it from vllm.sampling_params",
    "StructuredOutputsParams": "import it from vllm.sampling_params",
    "LoRARequest": "import it from vllm.lora.request",
    "destroy_model_parallel": "import it from vllm.distributed.parallel_state",
}
"""Where names really are that are often imported from vllm itself (0.32)."""


@check("client-loop-blocked", severity="warning", category="engine_stalled", since="0.2")
def loop_blocked(code: ClientCode) -> Iterator[Finding]:
    """A call that blocks stands in a function that runs on the server's event loop.

    ## Why it matters
    While it runs no other request is answered, not even the health check: requests run one after
    the other, the engine cannot batch them, and under load the probe kills a server that works.

    ## How it decides
    Calls of vllm.LLM, TensorRT-LLM's LLM (generate_async apart) or a transformers pipeline, requests
    with `requests`, a synchronous OpenAI or httpx client, and time.sleep, in an async handler or in
    a function that one calls directly. What is handed to asyncio.to_thread, run_in_executor or
    run_in_threadpool is no call and is not named; neither is a plain `def` handler, which FastAPI
    runs in a thread (FastAPI, "Concurrency and async / await"). In another async function of a
    file with handlers a model's call is likely.

    ## Fix safety
    Manual.
    """
    for call in code.calls:
        on_loop = call.function.on_loop
        if not _blocks(call) or not (on_loop or (code.serves and call.function.is_async)):
            continue
        if not on_loop and call.kind != "generate":
            continue
        what = "async def" if call.function.is_async else "def"
        yield Finding(
            about=f"{code.file} {call.function.name} {call.name}",
            message=f"{call.name} blocks in `{what} {call.function.name}`, on the server's event "
            "loop: until it returns no other request is answered, not even /health",
            confidence="certain" if on_loop else "likely",
            evidence=(
                seen(call.place, call.excerpt),
                seen(call.function.place, f"{what} {call.function.name}"),
            ),
            fixes=(free_the_loop(call.name, call.place),),
        )


def _blocks(call: Call) -> bool:
    if call.kind == "generate":
        return not call.name.endswith(".generate_async")
    return call.kind == "sleep" or (call.kind == "request" and call.name.startswith(BLOCKING))


@check("client-load-unbudgeted", severity="info", category="cold_start", since="0.2")
def load_unbudgeted(code: ClientCode) -> Iterator[Finding]:
    """The model is loaded before the server answers: every probe has to wait for it.

    ## Why it matters
    Before the lifespan or start-up event is done the server listens to nobody. It is no loading at
    the first request: a liveness probe that begins earlier kills the load, again and again.

    ## How it decides
    LLM(...) or an engine's from_engine_args stands in the function given as FastAPI's `lifespan`,
    in an `on_event("startup")` or the like (ASGI, "Lifespan": the server waits for
    startup.complete). The time follows from the size of the weights when the name of the model
    tells it (catalog/cold_start.py), else from the part that every model has. The manifest is
    another file; it is not seen here, hence only info.

    ## Fix safety
    Manual.
    """
    for call in code.calls:
        if call.kind != "engine" or call.function.role != "startup":
            continue
        given = call.given("model")
        model = given.value if given is not None and isinstance(given.value, str) else None
        size = bytes_by_name(model) if model else None
        start = expected(size)
        about = f", some {start.slow_s:.0f} s with {size / 1e9:.0f} GB at 200 MB/s" if size else ""
        yield Finding(
            about=f"{code.file} {call.function.name} {call.name}",
            message=f"{call.function.name} loads {model or 'the model'} before the server answers"
            f"{about}; a probe that does not wait kills it",
            evidence=(
                seen(call.place, call.excerpt),
                seen(call.function.place, f"def {call.function.name}"),
            ),
            fixes=(budget_start(call.place, start.budget_s),),
        )


@check("client-error-hidden", severity="warning", category="client", since="0.2")
def error_hidden(code: ClientCode) -> Iterator[Finding]:
    """An error is answered with a status that means success.

    ## Why it matters
    Clients, load balancers, retries and monitors look at the status: with 200 a dead engine counts
    as healthy, keeps its traffic, and no alarm is raised.

    ## How it decides
    HTTPException with a status of 200 to 299 anywhere; in a handler's `except`, a JSON response
    about an error without a status (200 is the default) or with one of 200 to 299, and a plain
    dict with the key "error", "errors" or "detail" (likely: the handler may mean it).

    ## Fix safety
    Manual.
    """
    for row in code.hidden_errors:
        what = {
            "exception": f"raises HTTPException with status {row.status}",
            "response": f"answers an error with status {row.status}",
            "plain value": "returns an error as a plain value, which is status 200",
        }[row.form]
        yield Finding(
            about=f"{code.file} {row.handler.name}",
            message=f"{row.handler.name} {what}: no client or monitor sees the failure",
            confidence="likely" if row.form == "plain value" else "certain",
            evidence=(seen(row.place, row.excerpt),),
            fixes=(answer_with_error(row.place, row.form),),
        )


@check("launch-name-missing", severity="error", category="wrapper_generic", since="0.2")
def name_missing(code: ClientCode) -> Iterator[Finding]:
    """The code uses a name of the engine's package that does not exist or was never imported.

    ## Why it matters
    ImportError at the start, or NameError at the first request that comes to that line.

    ## How it decides
    `from vllm import X`, where X is in none of the 68 releases from 0.6.0 to 0.33.0, neither
    exported nor a module (catalog/exports.py); not in a `try`. Or a name such as SamplingParams is
    used, the file imports something of the package, and nothing in it binds that name (no star
    import, no assignment, no parameter); annotations do not count.

    ## Fix safety
    Manual.
    """
    for row in code.bad_names:
        if row.package == "tensorrt_llm" and row.kind == "not exported":
            continue  # trt-name-missing says it
        if row.kind == "not exported":
            message = (
                f"no release of {row.package} from 0.6.0 to 0.33.0 has {row.name}: ImportError"
            )
            fix = drop_import(row.name, row.place, INSTEAD.get(row.name))
        else:
            message = f"{row.name} of {row.package} is used and nowhere imported: NameError"
            fix = import_name(row.name, row.package, row.place)
        yield Finding(
            about=f"{code.file} {row.name}",
            message=message,
            evidence=(seen(row.place, row.excerpt),),
            fixes=(fix,),
        )


@check("security-key-in-source", severity="warning", category="security", since="0.2")
def key_in_source(code: ClientCode) -> Iterator[Finding]:
    """A key is written in the source.

    ## Why it matters
    Whoever can read the repository, its history, an image or a traceback has the key.

    ## How it decides
    A text of the form of a known key (hf_, sk-, nvapi-, ghp_, AKIA and so on), or under the name of
    a key (api_key=, OPENAI_API_KEY, Authorization: Bearer) one of at least 8 characters with
    letters and digits. Words that only stand for a key are left alone: EMPTY, dummy, your-key,
    token-abc123, sk-xxx, ${...}. The report never holds the value.

    ## Fix safety
    Manual: the key has to be revoked, too.
    """
    for row in code.secrets:
        yield Finding(
            about=f"{code.file} {row.name}",
            message=f"{row.name} in {row.place.file} line {row.place.line} holds a key in plain text",
            evidence=(seen(row.place, row.excerpt),),
            fixes=(take_key_from_environment(row.name, row.place),),
        )
