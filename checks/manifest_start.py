"""Probes, the end and the start again: whether a platform lets an engine live."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.cold_start import PLAIN_RATE, Start, expected
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.fixes.manifest import (
    add_readiness_probe,
    add_startup_probe,
    lengthen_grace,
    lengthen_healthcheck,
    restart_when_it_ends,
    watch_tokens,
)
from infer_doctor.launch.judge import SERVERS, evidence, value_of
from infer_doctor.launch.model import HealthProbe, Launch
from infer_doctor.launch.surroundings import (
    Weights,
    model_name,
    require_container,
    weights_of,
    written,
)
from infer_doctor.model import Evidence, Finding, Severity
from infer_doctor.registry import check

DEFAULT_PORT = 8000

AFTER_REQUESTS_S = 15
"""What the advised grace period leaves after the requests: the cores get 5 s
(VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS of vllm/envs.py), the interpreter ends after them; ours."""

KUBERNETES_GRACE_S = 30
"""terminationGracePeriodSeconds when it is not written (kubernetes.io, "Pod Lifecycle")."""

SHALLOW = ("/health", "/ping", "/v1/models", "/metrics", "/version", "/load")
"""Paths of vLLM's server that no forward pass stands behind (entrypoints/serve/instrumentator)."""

READY_BY_ITSELF = (
    "InferenceService/",
    "ServingRuntime/",
    "Job/",
    "RayService/",
    "RayCluster/",
    "Workflow/",
)
"""Objects whose controller adds a readiness probe (KServe, Knative) or whose pods serve nobody."""

STREAMERS = ("runai_streamer", "runai_streamer_sharded", "tensorizer", "fastsafetensors", "dummy")


def _source(place_of: HealthProbe) -> Evidence:
    place = place_of.place
    return Evidence(
        source=place.file, line=place.line, excerpt=f"{place_of.kind} {place_of.action}"
    )


def _port(launch: Launch, options: EngineOptions) -> int | str:
    port = options.get("port", DEFAULT_PORT)
    return port if isinstance(port, int) else DEFAULT_PORT


@check("manifest-start-short", severity="warning", category="cold_start", since="0.2")
def start_short(
    launch: Launch, options: EngineOptions, files: ModelFiles | None
) -> Iterator[Finding]:
    """A probe ends the container before the engine can have loaded the model.

    ## Why it matters
    The load begins again from nothing and is killed again: CrashLoopBackOff with no error in the
    log, on the day when the cache is cold or the model is larger than the last one.

    ## How it decides
    The budget is initialDelaySeconds + periodSeconds x failureThreshold of the startup probe, or
    without one that of the liveness probe (Kubernetes' defaults 0, 10, 3). It stands against two
    bounds (catalog/cold_start.py): at best 45 s + weights at 2 GB/s, in a fresh container 105 s +
    weights at 200 MB/s, a network file system or a download. The size comes from the model's
    files, else from its name, else nothing is read. Below the first bound: an error, likely.
    Between the two: a warning, possible. Loaders that stream in parallel are held to the first
    bound only. Docker restarts nothing by a health check: info.

    ## Fix safety
    Safe: an edit of the file, which the next deployment takes up.
    """
    container = require_container(launch, "kubernetes", "compose", "docker-run")
    if launch.entry not in SERVERS:
        raise NotApplicable(f"{launch.entry} is no server")
    by_kind = {probe.kind: probe for probe in container.probes}
    probe = by_kind.get("startup") or by_kind.get("liveness") or by_kind.get("docker")
    if probe is None:
        raise NotApplicable("no probe ends the container")
    budget = probe.initial_delay_s + probe.period_s * probe.failures
    weights = None if options.get("load_format") == "dummy" else weights_of(options, files)
    start = expected(weights.size / (container.group_size or 1) if weights else None)
    sure = budget < start.fast_s
    if budget >= start.slow_s or (not sure and options.get("load_format") in STREAMERS):
        return
    severity: Severity = "error" if sure else "warning"
    path = probe.path or "/health"
    port = probe.port or _port(launch, options)
    yield Finding(
        about=launch.name,
        message=_message(probe, budget, start, weights, model_name(options)),
        severity="info" if probe.kind == "docker" else severity,
        confidence="likely" if sure else "possible",
        evidence=(_source(probe), *evidence(options, "model")),
        fixes=(
            lengthen_healthcheck(launch, probe.place, start.budget_s)
            if probe.kind == "docker"
            else add_startup_probe(launch, probe, path, port, start.budget_s),
        ),
    )


def _message(
    probe: HealthProbe, budget: float, start: Start, weights: Weights | None, model: str
) -> str:
    what = "marks the container unhealthy" if probe.kind == "docker" else "ends the container"
    sum_ = f"{probe.initial_delay_s:g} + {probe.failures} x {probe.period_s:g} s"
    if weights is None:
        size = "the start of any model takes"
    else:
        size = f"{model} ({weights.size / 1e9:.0f} GB {weights.basis}) takes"
    return (
        f"the {probe.kind} probe {what} after {budget:g} s ({sum_}); {size} {start.fast_s:.0f} s "
        f"at best, {start.slow_s:.0f} s in a fresh container at {PLAIN_RATE / 1e6:.0f} MB/s"
    )


@check("manifest-readiness-missing", severity="warning", category="server_unreachable", since="0.2")
def readiness_missing(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The pod gets traffic while the model is still loading.

    ## Why it matters
    Without a readiness or startup probe a pod is ready as soon as its container runs: each rollout
    and each restart sends requests into "connection refused" for the minutes of the load.

    ## How it decides
    A server in a manifest of Kubernetes with neither probe (kubernetes.io, "Pod Lifecycle": the
    default state of readiness without a probe is Success). A single Pod counts only with a Service
    of the same file. Objects of KServe and Knative get one
    from their controller; workers of a group and headless engines serve nobody.

    ## Fix safety
    Safe: an edit of the file, which the next deployment takes up.
    """
    container = require_container(launch, "kubernetes")
    if launch.entry not in SERVERS or options.get("headless") is True:
        raise NotApplicable("it answers no requests")
    if any(word in launch.name for word in READY_BY_ITSELF) or ": worker: " in launch.name:
        raise NotApplicable("its controller decides when it is ready, or it serves nobody")
    if ": Pod/" in launch.name and not container.services:
        raise NotApplicable("no service of the file sends traffic to the pod")
    if any(probe.kind in ("readiness", "startup") for probe in container.probes):
        return
    yield Finding(
        about=launch.name,
        message=f"{container.name} has neither a readiness nor a startup probe: it counts as ready "
        "while the model loads",
        evidence=(written(launch, None, f"{container.name}: no readinessProbe"),),
        fixes=(add_readiness_probe(launch, _port(launch, options)),),
    )


@check("manifest-health-shallow", severity="info", category="engine_stalled", since="0.2")
def health_shallow(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """Every probe only asks whether the server is alive: a stuck engine stays in service.

    ## Why it matters
    /health answers 200 as long as the engine's process has not died. An engine that hangs in a
    collective or a kernel gives no token and yet passes every probe, for hours.

    ## How it decides
    All probes of the server are TCP, gRPC or ask one of /health, /ping, /v1/models, /metrics,
    /version, /load. vLLM's /health answers 503 only for EngineDeadError (0.32,
    entrypoints/serve/instrumentator/health.py). As a liveness probe that is right: one that
    generates would kill a busy engine. Tokens have to be watched from elsewhere, hence info.

    ## Fix safety
    Manual.
    """
    container = require_container(launch)
    if launch.entry not in SERVERS or not container.probes:
        raise NotApplicable("no server with a probe")
    for probe in container.probes:
        if probe.path is not None and probe.path.rstrip("/") not in SHALLOW:
            return
        if probe.action.startswith("exec") and not any(word in probe.action for word in SHALLOW):
            return
    liveness = next((row for row in container.probes if row.kind in ("liveness", "docker")), None)
    if liveness is None:
        return
    yield Finding(
        about=launch.name,
        message=f"all probes of {container.name} ask whether it is alive "
        f"({liveness.path or liveness.action}); none sees an engine that is stuck",
        evidence=tuple(_source(probe) for probe in container.probes),
        fixes=(watch_tokens(_port(launch, options)),),
    )


@check("manifest-grace-short", severity="warning", category="container", since="0.2")
def grace_short(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The pod is killed before the engine has ended its requests.

    ## Why it matters
    After terminationGracePeriodSeconds comes SIGKILL: answers that were under way end in the
    middle, which --shutdown-timeout was to prevent.

    ## How it decides
    --shutdown-timeout (vLLM from 0.18 on: so long running requests may finish after SIGTERM; 0, the
    default, ends them at once) is not below the grace period, 30 s when it is not written.

    ## Fix safety
    Safe: an edit of the file, which the next deployment takes up.
    """
    container = require_container(launch, "kubernetes")
    wanted = value_of(options, "shutdown_timeout", 0)
    if not isinstance(wanted, (int, float)) or wanted <= 0:
        raise NotApplicable("the engine ends its requests at once")
    grace = container.termination_grace_s
    have = KUBERNETES_GRACE_S if grace is None else grace
    if wanted < have:
        return
    said = ", the default" if grace is None else ""
    yield Finding(
        about=launch.name,
        message=f"the grace period of the pod is {have:g} s{said}; --shutdown-timeout lets requests "
        f"run for {wanted:g} s",
        evidence=(
            *evidence(options, "shutdown_timeout"),
            written(launch, None, f"terminationGracePeriodSeconds {have:g}"),
        ),
        fixes=(lengthen_grace(launch, int(wanted) + AFTER_REQUESTS_S),),
    )


@check("manifest-restart-missing", severity="info", category="container", since="0.2")
def restart_missing(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """Nothing starts the engine again when it ends.

    ## Why it matters
    vLLM's server ends itself when its engine has died; without a restart the service stays down
    until somebody sees it.

    ## How it decides
    A server in Compose without `restart` (its default is "no") or with "no", or a pod with
    restartPolicy Never.

    ## Fix safety
    Safe: an edit of the file, which the next deployment takes up.
    """
    container = require_container(launch, "compose", "kubernetes")
    if launch.entry not in SERVERS or "Job/" in launch.name:
        raise NotApplicable("it is no server")
    policy = container.restart
    if launch.kind == "kubernetes":
        if policy != "Never":
            return
        said = "restartPolicy is Never"
    elif policy in (None, "no"):
        said = "restart is not set" if policy is None else 'restart is "no"'
    else:
        return
    yield Finding(
        about=launch.name,
        message=f"{said}: {container.name} stays down when its engine dies",
        evidence=(written(launch, None, said),),
        fixes=(restart_when_it_ends(launch),),
    )
