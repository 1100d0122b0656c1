"""What a pod gives to one of its containers: resources, volumes, probes, rights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from infer_doctor.frozen import frozen
from infer_doctor.launch.document import Node
from infer_doctor.launch.model import (
    Container,
    HealthProbe,
    Place,
    Port,
    Service,
    Unknown,
    Volume,
)
from infer_doctor.launch.quantities import kubernetes_size, quantity

GPU_RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
MIG = "nvidia.com/mig-"
SHM = "/dev/shm"  # noqa: S108

PROBES: tuple[tuple[str, Literal["startup", "liveness", "readiness"]], ...] = (
    ("startupProbe", "startup"),
    ("livenessProbe", "liveness"),
    ("readinessProbe", "readiness"),
)


@frozen
class Pod:
    """The pod's specification and what its object says about their number."""

    node: Node
    kind: str
    replicas: int | None = None
    group_size: int | None = None


def container_of(node: Node, pod: Pod, name: str) -> Container:
    """The container with what its pod gives to it."""
    gpus, gpu_place = _gpus(node)
    memory, cpu = node.get("resources", "limits", "memory"), node.get("resources", "limits", "cpu")
    volumes = tuple(_volumes(node, pod.node))
    shm = next((row for row in volumes if row.target == SHM), None)
    image = node.get("image")
    security, pod_security = node.get("securityContext"), pod.node.get("securityContext")
    user = _first(security, pod_security, "runAsUser")
    non_root = _first(security, pod_security, "runAsNonRoot")
    grace = quantity(pod.node.text("terminationGracePeriodSeconds"))
    selector = pod.node.get("nodeSelector")
    claims = tuple(row.text("name") or "" for row in node.list("resources", "claims") if row.is_map)
    return Container(
        platform="kubernetes",
        name=name,
        image=node.text("image"),
        image_place=image.place() if image else None,
        gpus=gpus,
        gpu_place=gpu_place,
        gpu_claims=claims,
        gpu_devices=tuple(_mig(node)),
        other_devices=tuple(
            name
            for name, _ in _resources(node, "limits")
            if "/" in name and not name.startswith("nvidia.com/")
        ),
        memory_limit=kubernetes_size(memory.string) if memory else None,
        memory_place=memory.place() if memory else None,
        cpu_limit=quantity(cpu.string) if cpu else None,
        cpu_place=cpu.place() if cpu else None,
        shm_size=shm.size if shm else None,
        shm_place=shm.place if shm else None,
        ipc="host" if pod.node.text("hostIPC") == "true" else None,
        network="host" if pod.node.text("hostNetwork") == "true" else None,
        privileged=node.text("securityContext", "privileged") == "true",
        user=user,
        run_as_non_root=None if non_root is None else non_root == "true",
        restart=pod.node.text("restartPolicy"),
        runtime=pod.node.text("runtimeClassName"),
        volumes=volumes,
        ports=tuple(_ports(node)),
        probes=tuple(_probes(node)),
        replicas=pod.replicas,
        group_size=pod.group_size,
        termination_grace_s=grace,
        node_selector=tuple(
            (key, row.string) for key, row in (selector.items() if selector else [])
        ),
        place=node.place(),
    )


def services_of(objects: Sequence[Node], labels: Mapping[str, str]) -> tuple[Service, ...]:
    """The services among the objects whose selector chooses pods with these labels."""
    found = []
    for row in objects:
        selector = row.get("spec", "selector") if row.text("kind") == "Service" else None
        wanted = {key: value.string for key, value in (selector.items() if selector else [])}
        if not wanted or any(labels.get(key) != value for key, value in wanted.items()):
            continue
        kind = row.get("spec", "type")
        ports = [port.text("port") for port in row.list("spec", "ports") if port.is_map]
        number = next((port for port in ports if port), None)
        found.append(
            Service(
                name=row.text("metadata", "name") or "?",
                kind=kind.string if kind else "ClusterIP",
                port=int(number) if number and number.isdigit() else None,
                place=kind.place() if kind else row.place(),
            )
        )
    return tuple(found)


def _first(own: Node | None, pod: Node | None, key: str) -> str | None:
    value = own.text(key) if own else None
    return value if value is not None else pod.text(key) if pod else None


def _gpus(node: Node) -> tuple[int | Unknown | None, Place | None]:
    """Whole GPUs; for extended resources a limit is also the request."""
    for part in ("limits", "requests"):
        for name, value in _resources(node, part):
            if name in GPU_RESOURCES or name.startswith(MIG):
                text = value.string
                known = quantity(text) if value.unknown is None else None
                return (int(known) if known is not None else Unknown(text)), value.place()
    return None, None


def _mig(node: Node) -> Iterator[str]:
    for name, value in _resources(node, "limits"):
        if name.startswith(MIG):
            yield f"{name.removeprefix('nvidia.com/')}={value.string}"


def _resources(node: Node, part: str) -> list[tuple[str, Node]]:
    found = node.get("resources", part)
    return [(name, row) for name, row in (found.items() if found else []) if row.value is not None]


def _volumes(node: Node, pod: Node) -> Iterator[Volume]:
    known = {row.text("name"): row for row in pod.list("volumes") if row.is_map}
    for mount in node.list("volumeMounts"):
        target = mount.text("mountPath")
        if target is None:
            continue
        volume = known.get(mount.text("name"))
        kind, source, size = _source(volume)
        yield Volume(
            kind=kind,
            target=target.rstrip("/") or "/",
            source=source,
            size=size,
            read_only=mount.text("readOnly") == "true",
            place=(volume or mount).place(),
        )


def _source(volume: Node | None) -> tuple[str, str | None, int | None]:
    """Kind, name and size of a volume."""
    if volume is None:
        return "unknown", None, None
    name = volume.text("name")
    for key, value in volume.items():
        if key == "emptyDir":
            memory = value.text("medium") == "Memory"
            size = kubernetes_size(value.text("sizeLimit"))
            return "emptyDir-memory" if memory else "emptyDir", name, size
        if key == "persistentVolumeClaim":
            return "pvc", value.text("claimName"), None
        if key == "hostPath":
            return "hostPath", value.text("path"), None
        if key == "secret":
            return "secret", value.text("secretName"), None
        if key == "configMap":
            return "configMap", value.text("name"), None
        if key == "image":
            return "image", value.text("reference"), None
        if key == "ephemeral":
            return "pvc", name, None
    return "unknown", name, None


def _ports(node: Node) -> Iterator[Port]:
    for row in node.list("ports"):
        number, host = row.text("containerPort"), row.text("hostPort")
        if number and number.isdigit():
            yield Port(
                container=int(number),
                host=int(host) if host and host.isdigit() else None,
                address=row.text("hostIP"),
                place=row.place(),
            )


def _probes(node: Node) -> Iterator[HealthProbe]:
    """Times that are not written are those of Kubernetes: 0, 10, 1 and 3."""
    names = {row.text("name"): row.text("containerPort") for row in node.list("ports")}
    for key, kind in PROBES:
        probe = node.get(key)
        if probe is None or not probe.is_map:
            continue

        def number(name: str, default: float, probe: Node = probe) -> float:
            found = quantity(probe.text(name))
            return default if found is None else found

        path, port, action = None, None, "unknown"
        for name, value in probe.items():
            if name in ("httpGet", "tcpSocket", "grpc"):
                written = value.text("port")
                written = names.get(written) or written
                port = int(written) if written and written.isdigit() else written
                path = (value.text("path") or "/") if name == "httpGet" else None
                word = {"httpGet": "http", "tcpSocket": "tcp", "grpc": "grpc"}[name]
                action = " ".join(part for part in (word, path, f":{port}") if part)
            elif name == "exec":
                action = " ".join(["exec", *(row.string for row in value.list("command"))])
        yield HealthProbe(
            kind=kind,
            action=action,
            path=path,
            port=port,
            initial_delay_s=number("initialDelaySeconds", 0),
            period_s=number("periodSeconds", 10),
            timeout_s=number("timeoutSeconds", 1),
            failures=int(number("failureThreshold", 3)),
            place=probe.place(key=True),
        )
