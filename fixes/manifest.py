"""Fixes for what a container platform gives to an engine: the lines to write, and where.

All are manual here: they take effect with the next deployment, which is the owner's decision.
"""

from __future__ import annotations

from infer_doctor.launch.model import Container, Place
from infer_doctor.model import Action, Fix
from infer_doctor.units import plural


def _at(place: Place) -> str:
    return f"{place.file}:{place.line}" if place.line else place.file


def _fix(name: str, title: str, *lines: str, why: str | None = None) -> Fix:
    return Fix(
        id=name,
        title=title,
        safety="manual",
        restarts=True,
        why=why,
        actions=tuple(Action(kind="text", text=line) for line in lines),
    )


def ask_for_gpus(container: Container, count: int) -> Fix:
    """As many GPUs as the parallel sizes need."""
    at = _at(container.gpu_place or container.place)
    if container.platform == "kubernetes":
        return _fix(
            "ask-for-gpus",
            f"Ask for {plural(count, 'GPU')}: nvidia.com/gpu: {count}",
            f"in {at}: resources: {{limits: {{nvidia.com/gpu: {count}}}}}",
        )
    if container.platform == "compose":
        return _fix(
            "ask-for-gpus",
            f"Reserve {plural(count, 'GPU')} for the service",
            f"in {at}: deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, "
            f"count: {count}, capabilities: [gpu]}}]}}}}}}",
        )
    return _fix(
        "ask-for-gpus",
        f"Start the container with {plural(count, 'GPU')}: --gpus {count}",
        f"in {at}: docker run --gpus {count} ...",
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


def enlarge_manifest_shm(container: Container, gibibytes: int) -> Fix:
    """A /dev/shm that holds the rings of all ranks."""
    at = _at(container.shm_place or container.place)
    if container.platform == "kubernetes":
        return _fix(
            "enlarge-manifest-shm",
            f"Mount a memory volume of {gibibytes} GiB at /dev/shm",
            f"in the pod's volumes: {{name: shm, emptyDir: {{medium: Memory, sizeLimit: {gibibytes}Gi}}}}",
            f"in {at}: volumeMounts: [{{name: shm, mountPath: /dev/shm}}]",
            why="what is written there counts to the memory limit of the container",
        )
    line = (
        f"shm_size: {gibibytes}gb"
        if container.platform == "compose"
        else f"--shm-size={gibibytes}g"
    )
    return _fix(
        "enlarge-manifest-shm", f"Give the container {line} (or ipc=host)", f"in {at}: {line}"
    )


def raise_memory_limit(container: Container, gibibytes: int) -> Fix:
    """Room for the weights as they pass through the page cache."""
    at = _at(container.memory_place or container.place)
    unit = "Gi" if container.platform == "kubernetes" else "g"
    return _fix(
        "raise-memory-limit",
        f"Raise the memory limit to {gibibytes}{unit}",
        f"in {at}: memory: {gibibytes}{unit}",
    )


def raise_cpu_limit(container: Container, cores: int) -> Fix:
    """A core for each process that is always busy."""
    at = _at(container.cpu_place or container.place)
    return _fix(
        "raise-cpu-limit",
        f"Raise the CPU limit to {cores}, or leave it out",
        f"in {at}: cpu: {cores}",
        why="twice that where a CPU is a hyper-thread",
    )


def add_startup_probe(place: Place, path: str, port: int | str, seconds: int) -> Fix:
    """A probe that waits as long as the start takes, and only then lets the others begin."""
    failures = -(-seconds // 10)
    return _fix(
        "wait-for-start",
        f"Wait {seconds} s for the start: startupProbe with failureThreshold {failures}, every 10 s",
        f"in {_at(place)}: startupProbe: {{httpGet: {{path: {path}, port: {port}}}, "
        f"periodSeconds: 10, failureThreshold: {failures}}}",
        why="liveness and readiness begin when it has succeeded once",
    )


def lengthen_healthcheck(place: Place, seconds: int) -> Fix:
    """Failures before that do not count."""
    return _fix(
        "lengthen-healthcheck",
        f"Do not count failures of the first {seconds} s: start_period: {seconds}s",
        f"in {_at(place)}: start_period: {seconds}s",
    )


def add_readiness_probe(place: Place, port: int | str) -> Fix:
    """No traffic before the model is loaded."""
    return _fix(
        "add-readiness-probe",
        f"Let traffic come when the model is loaded: readinessProbe on /health, port {port}",
        f"in {_at(place)}: readinessProbe: {{httpGet: {{path: /health, port: {port}}}, "
        "periodSeconds: 5, failureThreshold: 3}",
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


def lengthen_grace(place: Place, seconds: int) -> Fix:
    """Time to end what runs."""
    return _fix(
        "lengthen-grace",
        f"Give the pod {seconds} s to end: terminationGracePeriodSeconds: {seconds}",
        f"in the spec of the pod in {place.file}: terminationGracePeriodSeconds: {seconds}",
    )


def restart_when_it_ends(container: Container) -> Fix:
    """The platform starts it again."""
    line = (
        "restartPolicy: Always" if container.platform == "kubernetes" else "restart: unless-stopped"
    )
    return _fix(
        "restart-when-it-ends",
        f"Start it again when it ends: {line}",
        f"in {_at(container.place)}: {line}",
    )


def pin_image(image: str, place: Place) -> Fix:
    """One version, always the same."""
    name = image.partition("@")[0].removesuffix(":latest")
    return _fix(
        "pin-image",
        f"Name the version of {name} that was tested, such as {name}:vX.Y.Z",
        f"in {_at(place)}: image: {name}:vX.Y.Z",
    )


def keep_cache(container: Container, folder: str) -> Fix:
    """The downloads outlive the container."""
    at = _at(container.place)
    if container.platform == "kubernetes":
        return _fix(
            "keep-model-cache",
            f"Keep {folder} on a persistent volume",
            "in the pod's volumes: {name: models, persistentVolumeClaim: {claimName: models}}",
            f"in {at}: volumeMounts: [{{name: models, mountPath: {folder}}}]",
        )
    line = f"models:{folder}"
    return _fix(
        "keep-model-cache",
        f"Keep {folder} on a volume: {line}",
        f"in {at}: {'volumes: [' + line + ']' if container.platform == 'compose' else '-v ' + line}",
    )
