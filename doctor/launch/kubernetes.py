"""Kubernetes manifests -> one Launch for each container that starts an engine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from infer_doctor.frozen import frozen
from infer_doctor.host import Unavailable
from infer_doctor.launch import llmisvc
from infer_doctor.launch.command import Around, launches
from infer_doctor.launch.document import Node
from infer_doctor.launch.images import entrypoint
from infer_doctor.launch.inside import Read
from infer_doctor.launch.kubernetes_pod import Pod, container_of, services_of
from infer_doctor.launch.model import Launch, Variable, Word

REFERENCE = re.compile(r"\$(\$)?\(([A-Za-z_][\w.-]*)\)")
"""$(NAME); $$(NAME) stays as it is (kubernetes.io/docs/tasks/inject-data-application)."""

SUBSTITUTED = re.compile(r"\$\{[A-Za-z_]\w*\}")
"""${NAME} is nothing to Kubernetes: envsubst or the like puts it in before, or a shell inside."""

TEMPLATES: dict[str, tuple[tuple[str, ...], ...]] = {
    "Pod": ((),),
    "CronJob": (("spec", "jobTemplate", "spec", "template"),),
    "LeaderWorkerSet": (
        ("spec", "leaderWorkerTemplate", "leaderTemplate"),
        ("spec", "leaderWorkerTemplate", "workerTemplate"),
    ),
    "InferenceService": (("spec", "predictor"), ("spec", "predictor", "workerSpec")),
    "LLMInferenceService": (("spec", "template"), ("spec", "worker")),
    "ServingRuntime": (("spec",), ("spec", "workerSpec")),
    "ClusterServingRuntime": (("spec",), ("spec", "workerSpec")),
}
"""Where the pods of a kind are described; for all others in spec.template, or wherever an object of
the kind has `containers` (RayCluster, ModelServing, DisaggregatedSet and other resources)."""

DEEPEST = 12


def is_kubernetes(node: Node) -> bool:
    return node.text("apiVersion") is not None and node.text("kind") is not None


def read(nodes: Sequence[Node], file: str) -> list[Launch]:
    """The containers of all documents of a file that start an engine."""
    objects = [row for node in nodes for row in _listed(node)]
    found: list[Launch] = []
    for row in objects:
        found += _Object(row, file, objects).launches()
    return found


def _pods(node: Node | None, name: str, depth: int) -> Iterator[tuple[str, Node]]:
    """The specifications of pods anywhere in an object, each with the name of its part."""
    if node is None or depth > DEEPEST:
        return
    if node.is_map:
        if any(row.is_map for row in node.list("containers")):
            yield name, node
            return
        one = node.get("container")
        if one is not None and one.is_map and one.text("image") is not None:  # a template of Argo
            rows = {**node.value, "containers": Node([one], node.file, node.line)}
            yield node.text("name") or name, Node(rows, node.file, node.line)
            return
        own = node.text("name") or node.text("groupName") or name
        for key, row in node.items():
            yield from _pods(row, own or key, depth + 1)
    elif node.is_list:
        for row in node.value:
            yield from _pods(row, name, depth + 1)


def _labels(template: Node) -> dict[str, str]:
    found = template.get("metadata", "labels")
    return {key: row.string for key, row in (found.items() if found else [])}


def _listed(node: Node) -> Iterator[Node]:
    """A List stands for its items."""
    if (node.text("kind") or "").endswith("List") and node.get("items") is not None:
        yield from (row for row in node.list("items") if row.is_map)
    else:
        yield node


@frozen
class _Named:
    """A container with what its object adds to it."""

    node: Node
    pod: Pod
    part: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    configured: bool = False
    """The controller adds variables and volumes that are not in the file."""


class _Object:
    """One manifest; `objects` are all of its file, among them its ConfigMaps."""

    def __init__(self, node: Node, file: str, objects: Sequence[Node]) -> None:
        self._node = node
        self._file = file
        self._objects = objects
        self._kind = node.text("kind") or ""

    def launches(self) -> list[Launch]:
        found: list[Launch] = []
        for named in self._containers():
            found += self._launch(named)
        return found

    def _containers(self) -> Iterator[_Named]:
        replicas = _number(self._node.text("spec", "replicas"))
        size = _number(self._node.text("spec", "leaderWorkerTemplate", "size"))
        if self._kind == "InferenceService":
            replicas = _number(self._node.text("spec", "predictor", "minReplicas"))
            yield from self._model(replicas)
        if self._kind == llmisvc.KIND:
            for load in llmisvc.workloads(self._node):
                pod = Pod(node=load.pod, kind=self._kind, group_size=load.group_size)
                yield _Named(node=load.node, pod=pod, part=load.part, configured=True)
        templates = [
            (path, template)
            for path in TEMPLATES.get(self._kind, (("spec", "template"),))
            if (template := self._node.get(*path)) is not None
        ]
        for path, template in templates:
            inner = template.get("spec") or template
            pod = Pod(node=inner, kind=self._kind, replicas=replicas, group_size=size)
            part = path[-1].removesuffix("Template") if self._kind == "LeaderWorkerSet" else ""
            rows = inner.list("containers")
            for row in (row for row in rows if row.is_map):
                yield _Named(node=row, pod=pod, part=part, labels=_labels(template))
        if self._kind not in TEMPLATES and not any(
            (template.get("spec") or template).list("containers") for _, template in templates
        ):
            for part, spec in _pods(self._node.get("spec"), "", 0):
                for row in (row for row in spec.list("containers") if row.is_map):
                    yield _Named(node=row, pod=Pod(node=spec, kind=self._kind), part=part)

    def _model(self, replicas: int | None) -> Iterator[_Named]:
        """spec.predictor.model: the runtime's container, if it is in the file, with these arguments."""
        model = self._node.get("spec", "predictor", "model")
        predictor = self._node.get("spec", "predictor")
        if model is None or predictor is None:
            return
        wanted = model.text("runtime")
        for row in self._objects:
            known = (row.text("kind") or "").endswith("ServingRuntime")
            if not known or row.text("metadata", "name") != wanted:
                continue
            for base in row.list("spec", "containers"):
                if base.is_map and base.text("name") == "kserve-container":
                    merged = dict(base.value)
                    for key in ("env", "args"):
                        own, under = model.list(key), base.list(key)
                        if own:
                            merged[key] = Node([*under, *own], model.file, model.line)
                    for key in ("resources", "image", "livenessProbe", "readinessProbe"):
                        if (own_node := model.get(key)) is not None:
                            merged[key] = own_node
                    node = Node(merged, model.file, model.line)
                    pod = Pod(node=row.get("spec") or row, kind=self._kind, replicas=replicas)
                    yield _Named(node=node, pod=pod)
                    return
        if llmisvc.is_hugging_face(model):
            node = llmisvc.hugging_face(model)
            pod = Pod(node=predictor, kind=self._kind, replicas=replicas)
            yield _Named(node=node, pod=pod, configured=True)
            return
        if model.get("args") is not None or model.get("image") is not None:
            yield _Named(node=model, pod=Pod(node=predictor, kind=self._kind, replicas=replicas))

    def _launch(self, named: _Named) -> list[Launch]:
        node = named.node
        environment = list(self._environment(node))
        known = {row.name: row for row in environment}
        others = any(row.name == "*" for row in environment)
        arguments = _words(node.get("args"), known, others)
        program = _words(node.get("command"), known, others)
        image = node.text("image")
        image_node = node.get("image")
        place = node.place()
        own = program
        if node.get("command") is None:
            own = entrypoint(image, arguments, image_node.place() if image_node else place)
        name = node.text("name") or "container"
        whole = f"{self._kind}/{self._node.text('metadata', 'name') or '?'}"
        parts = [self._file, whole, *([named.part] if named.part else []), name]
        container = replace(
            container_of(node, named.pod, name),
            services=services_of(self._objects, named.labels),
        )
        if named.configured:
            environment.append(
                Variable(name="*", value=None, place=place, source="the controller's configuration")
            )
            volumes = (*container.volumes, llmisvc.shared_memory(node))
            container = replace(container, volumes=volumes)
        around = Around(
            name=": ".join(parts),
            kind="kubernetes",
            machine="another",
            container=container,
            folder=node.text("workingDir"),
            read=self._mounted(node, named.pod),
        )
        found = launches((*own, *arguments), around, environment)
        return [replace(row, place=place) for row in found if row.engine is not None]

    def _environment(self, node: Node) -> Iterator[Variable]:
        """envFrom before env, as Kubernetes orders them; $(NAME) put in."""
        for row in node.list("envFrom"):
            prefix = row.text("prefix") or ""
            config = row.text("configMapRef", "name")
            data = self._config_map(config)
            if data is None:
                kind = "config map" if config else "secret"
                source = f"{kind} {config or row.text('secretRef', 'name')}"
                yield Variable(name="*", value=None, place=row.place(), source=source)
                continue
            for key, entry in data.items():
                yield Variable(
                    name=f"{prefix}{key}", value=entry.string, place=entry.place(key=True)
                )
        known: dict[str, Variable] = {}
        for row in node.list("env"):
            name = row.text("name")
            if name is None:
                continue
            value, unknown = self._value(row, known)
            made = Variable(name=name, value=value, place=row.place(), source=unknown)
            known[name] = made
            yield made

    def _value(self, row: Node, known: dict[str, Variable]) -> tuple[str | None, str | None]:
        value = row.get("value")
        if value is not None:
            if value.unknown:
                return None, value.unknown
            text, unknown = _put_in(value.string, known, False)
            return (None, unknown) if unknown else (text, None)
        if row.get("valueFrom") is None:
            return "", None
        for key, words in (("secretKeyRef", "secret"), ("configMapKeyRef", "config map")):
            name = row.text("valueFrom", key, "name")
            if name is None:
                continue
            entry = row.text("valueFrom", key, "key") or ""
            data = self._config_map(name) if words == "config map" else None
            found = data.get(entry) if data else None
            return (found.string, None) if found else (None, f"{words} {name}")
        return None, "the pod"

    def _config_map(self, name: str | None) -> Node | None:
        for row in self._objects:
            if row.text("kind") == "ConfigMap" and row.text("metadata", "name") == name:
                return row.get("data")
        return None

    def _mounted(self, node: Node, pod: Pod) -> Read:
        """Reads what a ConfigMap of the same file mounts into the container."""

        def inside(path: str) -> str:
            for mount in node.list("volumeMounts"):
                folder, sub = mount.text("mountPath") or "", mount.text("subPath")
                if not folder or not (path == folder or path.startswith(folder.rstrip("/") + "/")):
                    continue
                entry = sub if path == folder else path[len(folder.rstrip("/")) + 1 :]
                for volume in pod.node.list("volumes"):
                    name = volume.text("configMap", "name")
                    if volume.text("name") != mount.text("name") or name is None:
                        continue
                    data = self._config_map(name)
                    if data is not None and entry and (found := data.text(entry)) is not None:
                        return found
            raise Unavailable("lies in the container and was not read")

        return inside


def _words(node: Node | None, known: dict[str, Variable], others: bool) -> tuple[Word, ...]:
    rows = []
    for item in node.value if node is not None and node.is_list else []:
        if item.is_map or item.is_list:
            continue
        text, unknown = _put_in(item.string, known, others)
        rows.append(Word(text=text, place=item.first(), unknown=item.unknown or unknown))
    return tuple(rows)


def _put_in(text: str, known: dict[str, Variable], others: bool) -> tuple[str, str | None]:
    """The references that the container's own variables answer; others stay as they are."""
    unknown: list[str] = []

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        row = known.get(match[2])
        if row is not None and row.value is not None:
            return row.value
        if row is not None or others:
            unknown.append(match[0])
        return match[0]

    done = REFERENCE.sub(value, text)
    if not unknown and " " not in done and (left := SUBSTITUTED.search(done)):
        unknown.append(left[0])
    return done, unknown[0] if unknown else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None
