"""Fixes for a server that does not answer as it should. What stands elsewhere is manual."""

from __future__ import annotations

import math

from infer_doctor.facts.server_limits import Buffering, Limit
from infer_doctor.fixes.server_way import command, fix, text
from infer_doctor.model import Fix


def restart_frontend(url: str) -> Fix:
    """The stacks first: they are gone after the start."""
    return fix(
        "restart-frontend",
        "Keep the stacks of the server's process, then start it again",
        command("pgrep -af 'vllm serve|api_server|trtllm-serve'"),
        command("py-spy dump --pid PID"),
        text("state T in ps is a stopped process: kill -CONT PID lets it go on"),
        restarts=True,
    )


def read_server_log(url: str, *, dead: bool = False) -> Fix:
    """The cause is in the log."""
    title = (
        "Keep the log, then start the server again: its engine is dead"
        if dead
        else "Read the server's log of this minute"
    )
    return fix(
        "read-server-log",
        title,
        command("infer-doctor diagnose serve.log"),
        restarts=dead,
    )


def look_behind_gateway(gateway: str, url: str) -> Fix:
    """Ask the engine itself."""
    return fix(
        "look-behind-gateway",
        f"Ask the engine behind {gateway.split('/')[0] or 'the proxy'} directly",
        command("infer-doctor probe http://ENGINE:8000"),
        text("the proxy's error log names the upstream and the reason"),
    )


def follow_by_hand(location: str) -> Fix:
    """The new address, by the user's own decision."""
    return fix(
        "ask-redirect-target",
        "Use the address that the server names, if it is yours",
        text(f"it names {location}"),
    )


def give_key(source: str | None) -> Fix:
    """From a variable or a file."""
    if source is None:
        return fix(
            "give-key",
            "Give the server's key in VLLM_API_KEY or --key-file FILE",
            text("the server has it from VLLM_API_KEY or its own option --api-key"),
        )
    return fix(
        "correct-key",
        f"Put the server's own key into {source}",
        text(
            "compare with VLLM_API_KEY of the server's start, not of this shell, or its --api-key"
        ),
    )


def ask_without_password(gateway: str) -> Fix:
    """A probe sends keys, no user and password."""
    name = gateway.split("/")[0] or "the proxy"
    return fix(
        "ask-without-password",
        f"Ask the engine behind {name} directly, or let {name} pass /v1 on without a password",
        command("infer-doctor probe http://ENGINE:8000"),
        text("nginx: auth_basic off; in the location of /v1, and a key at the engine instead"),
    )


def see_gateway_rules(who: str) -> Fix:
    """Who forbade it."""
    return fix("see-gateway-rules", f"See the rules of {who} for this path, address and key")


def ask_other_path(url: str, path: str, bare: str | None) -> Fix:
    """The right base URL."""
    if bare is not None:
        base = bare.removesuffix("/models") or "/"
        return fix(
            "correct-base-url",
            f"Use the base URL that ends with {base}, or let the proxy keep the prefix /v1",
            text("nginx: proxy_pass http://engine:8000; without a path keeps /v1"),
        )
    return fix(
        "correct-base-url",
        "Find the base URL: the part before /chat/completions, usually ending with /v1",
        command(f"infer-doctor probe {url}/PREFIX"),
    )


def name_model(asked: str, nearest: str | None) -> Fix:
    """The name that is offered, or a further name for the server."""
    if nearest is None:
        return fix("name-model", "Ask for a name of the list, or serve the model under this name")
    return fix(
        "name-model",
        f"Ask for {nearest}, or start the server with --served-model-name {nearest} {asked}",
        restarts=False,
    )


def lengthen_gateway(gateway: str, seconds: float) -> Fix:
    """Its own setting."""
    name = gateway.split("/")[0].lower()
    longer = max(600, 10 * round(seconds))
    setting = {
        "nginx": f"proxy_read_timeout {longer}s;",
        "openresty": f"proxy_read_timeout {longer}s;",
        "envoy": "route: {timeout: 0s, idle_timeout: 600s}",
        "istio-envoy": "VirtualService: http: - timeout: 600s",
        "haproxy": f"timeout server {longer}s",
    }.get(name, f"its time-out for the answer of an upstream: {longer} s")
    return fix(
        "lengthen-proxy-timeout",
        f"Let {name or 'the proxy'} wait longer than the slowest answer: {setting}",
        text("stream answers: the limit then counts from token to token"),
    )


def back_off(status: int) -> Fix:
    """Less, later."""
    return fix(
        "back-off",
        "Send less at once and wait before a retry (Retry-After), or raise the limit that is reached",
    )


def show_errors(path: str) -> Fix:
    """The status that says that it failed."""
    return fix(
        "answer-with-error",
        f"Let what stands before the engine answer {path} with the status of the error",
        text("FastAPI: raise HTTPException(status_code=503), never 200"),
    )


def answer_with_client_error() -> Fix:
    """400 for the client's mistakes."""
    return fix(
        "answer-with-client-error",
        "Answer a wrong request with 400, so that clients do not repeat it",
    )


def set_chat_template() -> Fix:
    """A template, or another model."""
    return fix(
        "set-chat-template",
        "Start the server with --chat-template FILE, or serve the instruct model",
        restarts=True,
    )


def turn_on_feature(name: str) -> Fix:
    """How the server must be started for it."""
    title = (
        "Start the server with --enable-auto-tool-choice --tool-call-parser NAME"
        if name == "tools"
        else "Use a simpler schema, or another backend: --structured-outputs-config.backend"
    )
    return fix(f"turn-on-{name}", title, restarts=True)


NO_DELAY = "option http-no-delay in defaults, frontend or backend"
NO_DELAY_WHY = (
    "without it HAProxy waits up to 200 ms for full segments; Ray Serve's own HAProxy: "
    "RAY_SERVE_HAPROXY_TCP_NODELAY=1; also check compression"
)
"""ray-project/ray #61468 (2026-03): mean TTFT 121 instead of 357 ms, 32 requests at once."""


def stop_buffering(gateway: str) -> Fix:
    """Of a proxy, or of the front end."""
    name = gateway.split("/")[0].lower()
    if name in ("nginx", "openresty"):
        return fix(
            "stop-buffering",
            "Turn buffering off for this location: proxy_buffering off;",
            text("or let the server send the header X-Accel-Buffering: no; also check gzip"),
        )
    if name == "haproxy":
        return fix("stop-buffering", f"Let haproxy write at once: {NO_DELAY}", text(NO_DELAY_WHY))
    return fix(
        "stop-buffering",
        f"Let {name or 'what stands between'} pass chunks on as they come",
        text("ask the engine directly: when its tokens come one by one, it is the way between"),
        text(f"HAProxy, which names itself nowhere, wants {NO_DELAY}; nginx proxy_buffering off;"),
    )


def restart_engine() -> Fix:
    """The stacks of the engine first."""
    return fix(
        "restart-engine",
        "Keep the stacks of the engine's processes, then start the server again",
        command("pgrep -af 'VLLM::|EngineCore|Worker'"),
        command("py-spy dump --pid PID"),
        text("let the platform watch tokens, not /health: a probe that asks for one token"),
        restarts=True,
    )


def wake_engine() -> Fix:
    """POST /wake_up."""
    return fix(
        "wake-engine",
        "Wake the engine, if nobody counts on its sleep: POST /wake_up",
        text("the route is there with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode"),
    )


def shorten_queue(running: float | None, waiting: float | None, kind: str) -> Fix:
    """More at once, more engines, or less load."""
    option = "--max_batch_size" if kind == "tensorrt-llm" else "--max-num-seqs"
    return fix(
        "shorten-queue",
        f"Add a replica or send less at once; {running or 0:.0f} run now: raise {option} only if "
        "the KV cache has room",
        text("let clients fail fast instead of waiting: vLLM's --max-num-queued-reqs"),
    )


def enlarge_kv_cache(running: float | None, kind: str) -> Fix:
    """More room, or fewer at once."""
    return fix(
        "enlarge-kv-cache",
        f"Give the KV cache more room, or lower --max-num-seqs below the {running or 0:.0f} that run",
        command("infer-doctor plan -- vllm serve MODEL"),
        text("the plan tells which flag buys how many tokens"),
        restarts=True,
    )


def shorten_prefill() -> Fix:
    """What makes prompts slow."""
    return fix(
        "shorten-prefill",
        "Lower --max-num-batched-tokens, keep prefix caching on, or part long prompts from short ones",
        restarts=True,
    )


def give_frontend_cpu(kind: str) -> Fix:
    """More front ends or more cores."""
    more = "--api-server-count 4" if kind in ("vllm", "") else "more replicas"
    return fix(
        "give-frontend-cpu",
        f"Give the front end CPU: raise the CPU limit of the container, or {more}",
        command("cat /sys/fs/cgroup/cpu.stat"),
        text("nr_throttled that grows is a CPU limit; top shows a process at 100 %"),
        restarts=True,
    )


def watch_engine(url: str) -> Fix:
    """The numbers that would tell."""
    return fix(
        "watch-engine",
        "Look at the engine's own numbers: name the address of its /metrics beside the URL",
        command(f"infer-doctor probe {url} http://ENGINE:8000/metrics"),
    )


def lengthen_limit(limit: Limit, measured: float) -> Fix:
    """A limit with room for the queue."""
    wanted = max(10 * math.ceil(measured / 5), 60)
    return fix(
        "lengthen-time-out",
        f"Set {limit.name} to {wanted} s, or stream and set it for the next byte",
        text(f"in {limit.evidence.source}:{limit.evidence.line or 1}"),
        why="the outer limit should be the longer one: then the inner one tells what happened",
    )


def lengthen_probe(limit: Limit, measured: float) -> Fix:
    """timeoutSeconds."""
    wanted = max(5, math.ceil(4 * measured))
    return fix(
        "lengthen-probe-time-out",
        f"Set timeoutSeconds of the {limit.name} to {wanted}",
        text(f"in {limit.evidence.source}:{limit.evidence.line or 1}"),
    )


def stop_buffering_of(row: Buffering) -> Fix:
    """Where it is written."""
    place = f"{row.evidence.source}:{row.evidence.line or 1}"
    if row.name.startswith("haproxy "):
        title = f"Let haproxy write at once: {NO_DELAY}, {place}"
        return fix("stop-buffering", title, text(NO_DELAY_WHY))
    return fix(
        "stop-buffering",
        f"Turn buffering off for streams: proxy_buffering off; in {place}",
        text('in an Ingress: nginx.ingress.kubernetes.io/proxy-buffering: "off"'),
    )


def keep_below_knee(knee: int) -> Fix:
    """A limit at the gateway."""
    return fix(
        "keep-below-knee",
        f"Let at most {knee} requests a replica through at once, and queue or refuse the rest",
        text("vLLM: --max-num-queued-reqs refuses with 503 what would only wait"),
    )
