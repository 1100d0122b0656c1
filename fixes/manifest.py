"""Fixes for what a container platform gives to an engine: edits of its file, or lines to write.

An edit of a file is reversible and takes effect with the next deployment, which stays its owner's
decision. What asks the platform for more (GPUs, memory, cores) is unsafe: it may find no node.
"""

from __future__ import annotations

from collections.abc import Sequence

from infer_doctor.fixes.launching import set_docker_option, set_field
from infer_doctor.launch.model import Container, HealthProbe, Launch, Place
from infer_doctor.model import Action, AnyAction, Edit, Fix, Safety
from infer_doctor.units import plural

POD = ("..", "..")
"""From a container up to the spec of its pod; from a service of Compose up to the document."""


def _fix(
    name: str,
    title: str,
    *lines: str,
    why: str | None = None,
    edits: Sequence[AnyAction] = (),
    safety: Safety = "safe",
) -> Fix:
    """With edits where the file can be edited, else the lines for a person."""
    can = bool(edits) and all(isinstance(edit, Edit) for edit in edits)
    return Fix(
        id=name,
        title=title,
        safety=safety if can else "manual",
        restarts=True,
        why=why,
        actions=tuple(edits) if can else tuple(Action(kind="text", text=line) for line in lines),
    )


def _container(launch: Launch) -> Container:
    assert launch.container is not None
    return launch.container


def ask_for_gpus(launch: Launch, count: int) -> Fix:
    """As many GPUs as the parallel sizes need."""
    container = _container(launch)
    at = (container.gpu_place or container.place).text
    if container.platform == "kubernetes":
        return _fix(
            "ask-for-gpus",
            f"Ask for {plural(count, 'GPU')}: nvidia.com/gpu: {count}",
            f"in {at}: resources: {{limits: {{nvidia.com/gpu: {count}}}}}",
            safety="unsafe",
            edits=(
                *set_field(launch, ("resources", "limits", "nvidia.com/gpu"), count),
                *set_field(launch, ("resources", "requests", "nvidia.com/gpu"), count, "replace"),
            ),
        )
    if container.platform == "compose":
        devices = ("deploy", "resources", "reservations", "devices")
        device = {"driver": "nvidia", "count": count, "capabilities": ["gpu"]}
        return _fix(
            "ask-for-gpus",
            f"Reserve {plural(count, 'GPU')} for the service",
            f"in {at}: deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, "
            f"count: {count}, capabilities: [gpu]}}]}}}}}}",
            safety="unsafe",
            edits=()
            if container.gpu_devices  # which ones is not to be guessed
            else set_field(launch, devices, [device])
            if container.gpus is None
            else set_field(launch, (*devices, 0, "count"), count, "replace"),
        )
    return _fix(
        "ask-for-gpus",
        f"Start the container with {plural(count, 'GPU')}: --gpus {count}",
        f"in {at}: docker run --gpus {count} ...",
        safety="unsafe",
        edits=set_docker_option(launch, "--gpus", str(count)),
    )


def match_parallel_size(ranks: int, gpus: int, pods: int) -> Fix:
    """All GPUs in use, or no more than needed."""
    return _fix(
        "match-parallel-size",
        f"Use all {gpus} GPUs: --data-parallel-size {gpus // ranks}, or ask for {ranks}"
        if gpus % ranks == 0
        else f"Ask for {ranks} GPUs" + (" in each pod" if pods > 1 else ""),
        "more replicas of the model take more requests; more tensor parallelism leaves more room "
        "for the KV cache of each",
    )


def enlarge_manifest_shm(launch: Launch, gibibytes: int) -> Fix:
    """A /dev/shm that holds the rings of all ranks."""
    container = _container(launch)
    at = (container.shm_place or container.place).text
    if container.platform == "kubernetes":
        volume = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{gibibytes}Gi"}}
        mount = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108
        return _fix(
            "enlarge-manifest-shm",
            f"Mount a memory volume of {gibibytes} GiB at /dev/shm",
            f"in the pod's volumes: {{name: shm, emptyDir: {{medium: Memory, sizeLimit: {gibibytes}Gi}}}}",
            f"in {at}: volumeMounts: [{{name: shm, mountPath: /dev/shm}}]",
            why="what is written there counts to the memory limit of the container",
            edits=()
            if container.shm_size is not None
            else (
                *set_field(launch, (*POD, "volumes"), volume, "append"),
                *set_field(launch, ("volumeMounts",), mount, "append"),
            ),
        )
    if container.platform == "compose":
        line, edits = f"shm_size: {gibibytes}gb", set_field(launch, ("shm_size",), f"{gibibytes}gb")
    else:
        line = f"--shm-size={gibibytes}g"
        edits = set_docker_option(launch, "--shm-size", f"{gibibytes}g")
    title = f"Give the container {line} (or ipc=host)"
    return _fix("enlarge-manifest-shm", title, f"in {at}: {line}", edits=edits)


def raise_memory_limit(launch: Launch, gibibytes: int) -> Fix:
    """Room for the weights as they pass through the page cache."""
    container = _container(launch)
    at = (container.memory_place or container.place).text
    value = f"{gibibytes}{'Gi' if container.platform == 'kubernetes' else 'g'}"
    fields: tuple[tuple[str, ...], ...] = (
        (("resources", "limits", "memory"),)
        if container.platform == "kubernetes"
        else (("deploy", "resources", "limits", "memory"), ("mem_limit",))
    )
    return _fix(
        "raise-memory-limit",
        f"Raise the memory limit to {value}",
        f"in {at}: memory: {value}",
        safety="unsafe",
        edits=_limits(launch, fields, value) or set_docker_option(launch, "--memory", value),
    )


def raise_cpu_limit(launch: Launch, cores: int) -> Fix:
    """A core for each process that is always busy."""
    container = _container(launch)
    at = (container.cpu_place or container.place).text
    fields: tuple[tuple[str, ...], ...] = (
        (("resources", "limits", "cpu"),)
        if container.platform == "kubernetes"
        else (("deploy", "resources", "limits", "cpus"), ("cpus",))
    )
    return _fix(
        "raise-cpu-limit",
        f"Raise the CPU limit to {cores}, or leave it out",
        f"in {at}: cpu: {cores}",
        why="twice that where a CPU is a hyper-thread",
        safety="unsafe",
        edits=_limits(launch, fields, str(cores))
        or set_docker_option(launch, "--cpus", str(cores)),
    )


def _limits(launch: Launch, fields: Sequence[tuple[str, ...]], value: str) -> tuple[AnyAction, ...]:
    """Whichever of the fields is there."""
    return tuple(edit for field in fields for edit in set_field(launch, field, value, "replace"))


def add_startup_probe(
    launch: Launch, probe: HealthProbe, path: str, port: int | str, seconds: int
) -> Fix:
    """A probe that waits as long as the start takes, and only then lets the others begin."""
    failures = -(-seconds // 10)
    times = {"periodSeconds": 10, "failureThreshold": failures}
    if probe.kind == "startup":
        edits = tuple(
            edit
            for name, value in times.items()
            for edit in set_field(launch, ("startupProbe", name), value)
        )
    else:
        wanted = {"httpGet": {"path": path, "port": port}, **times}
        edits = set_field(launch, ("startupProbe",), wanted)
    return _fix(
        "wait-for-start",
        f"Wait {seconds} s for the start: startupProbe with failureThreshold {failures}, every 10 s",
        f"in {probe.place.text}: startupProbe: {{httpGet: {{path: {path}, port: {port}}}, "
        f"periodSeconds: 10, failureThreshold: {failures}}}",
        why="liveness and readiness begin when it has succeeded once",
        edits=edits,
    )


def lengthen_healthcheck(launch: Launch, place: Place, seconds: int) -> Fix:
    """Failures before that do not count."""
    return _fix(
        "lengthen-healthcheck",
        f"Do not count failures of the first {seconds} s: start_period: {seconds}s",
        f"in {place.text}: start_period: {seconds}s",
        edits=set_field(launch, ("healthcheck", "start_period"), f"{seconds}s")
        or set_docker_option(launch, "--health-start-period", f"{seconds}s"),
    )


def add_readiness_probe(launch: Launch, port: int | str) -> Fix:
    """No traffic before the model is loaded."""
    place = _container(launch).place
    wanted = {
        "httpGet": {"path": "/health", "port": port},
        "periodSeconds": 5,
        "failureThreshold": 3,
    }
    return _fix(
        "add-readiness-probe",
        f"Let traffic come when the model is loaded: readinessProbe on /health, port {port}",
        f"in {place.text}: readinessProbe: {{httpGet: {{path: /health, port: {port}}}, "
        "periodSeconds: 5, failureThreshold: 3}",
        edits=set_field(launch, ("readinessProbe",), wanted),
    )


def watch_tokens(port: int | str) -> Fix:
    """Something that asks for a token."""
    return _fix(
        "watch-tokens",
        "Watch that tokens come: ask for one token each minute, from outside the pod",
        f'curl -m 30 localhost:{port}/v1/completions -d \'{{"model": "MODEL", "prompt": "1", '
        '"max_tokens": 1}\'',
        "or alert when vllm:generation_tokens_total stands still while vllm:num_requests_running "
        "is above 0",
    )


def lengthen_grace(launch: Launch, seconds: int) -> Fix:
    """Time to end what runs."""
    place = _container(launch).place
    return _fix(
        "lengthen-grace",
        f"Give the pod {seconds} s to end: terminationGracePeriodSeconds: {seconds}",
        f"in the spec of the pod in {place.file}: terminationGracePeriodSeconds: {seconds}",
        edits=set_field(launch, (*POD, "terminationGracePeriodSeconds"), seconds),
    )


def restart_when_it_ends(launch: Launch) -> Fix:
    """The platform starts it again."""
    container = _container(launch)
    if container.platform == "kubernetes":
        line, edits = "restartPolicy: Always", set_field(launch, (*POD, "restartPolicy"), "Always")
    else:
        line = "restart: unless-stopped"
        edits = set_field(launch, ("restart",), "unless-stopped")
    return _fix(
        "restart-when-it-ends",
        f"Start it again when it ends: {line}",
        f"in {container.place.text}: {line}",
        edits=edits,
    )


def pin_image(image: str, place: Place) -> Fix:
    """One version, always the same."""
    name = image.partition("@")[0].removesuffix(":latest")
    return _fix(
        "pin-image",
        f"Name the version of {name} that was tested, such as {name}:vX.Y.Z",
        f"in {place.text}: image: {name}:vX.Y.Z",
    )


def keep_cache(launch: Launch, folder: str) -> Fix:
    """The downloads outlive the container. A claim of Kubernetes has to be made by somebody."""
    container = _container(launch)
    at = container.place.text
    if container.platform == "kubernetes":
        return _fix(
            "keep-model-cache",
            f"Keep {folder} on a persistent volume",
            "in the pod's volumes: {name: models, persistentVolumeClaim: {claimName: models}}",
            f"in {at}: volumeMounts: [{{name: models, mountPath: {folder}}}]",
        )
    line = f"models:{folder}"
    if container.platform == "compose":
        edits: tuple[AnyAction, ...] = (
            *set_field(launch, ("volumes",), line, "append"),
            *set_field(launch, (*POD, "volumes", "models"), {}, "ensure"),
        )
    else:
        edits = set_docker_option(launch, "-v", line, more=True)
    return _fix(
        "keep-model-cache",
        f"Keep {folder} on a volume: {line}",
        f"in {at}: {'volumes: [' + line + ']' if container.platform == 'compose' else '-v ' + line}",
        edits=edits,
    )
