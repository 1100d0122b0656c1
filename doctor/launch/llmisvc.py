"""KServe's LLMInferenceService and its Hugging Face runtime -> the engine that they start.

The object names a model and parallel sizes; the command is that of an LLMInferenceServiceConfig of
the cluster (KServe's own: config/llmisvcconfig): `vllm serve /mnt/models`, then what
VLLM_ADDITIONAL_ARGS and `args` hold. Image, probes and volumes may come from there too: what is not
in the file is not known.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from infer_doctor.frozen import frozen
from infer_doctor.launch.document import Node
from infer_doctor.launch.model import Volume

KIND = "LLMInferenceService"
MAIN = "main"
ADDITIONAL = "VLLM_ADDITIONAL_ARGS"
MOUNTED = "/mnt/models"
HUB = "hf://"

SIZES = (
    ("tensor", "--tensor-parallel-size"),
    ("pipeline", "--pipeline-parallel-size"),
    ("data", "--data-parallel-size"),
    ("dataLocal", "--data-parallel-size-local"),
)

RENAMED = {"model-name": "--served-model-name", "model-id": "--model"}
SERVER_ONLY = (
    "backend",
    "task",
    "max-length",
    "model-dir",
    "http-port",
    "grpc-port",
    "workers",
    "enable-docs-url",
    "predictor-protocol",
    "return-token-type-ids",
    "return-probabilities",
    "disable-lower-case",
    "disable-special-tokens",
)
"""Options of KServe's huggingfaceserver that vLLM does not have (python/huggingfaceserver/__main__.py);
all others go to vLLM."""


def is_hugging_face(model: Node) -> bool:
    """spec.predictor.model of the runtime that serves text models with vLLM."""
    own = model.get("image") is not None or model.get("command") is not None
    return model.text("modelFormat", "name") == "huggingface" and not own


def hugging_face(model: Node) -> Node:
    """Its container: `vllm serve` with the options that reach vLLM."""
    uri = model.get("storageUri")
    local = uri is None or uri.unknown is not None or not uri.string.startswith(HUB)
    words = [_text("vllm", model), _text("serve", model)]
    name = MOUNTED if local or uri is None else uri.string.removeprefix(HUB)
    more: list[Node] = []
    rows = model.list("args")
    place = 0
    while place < len(rows):
        row = rows[place]
        place += 1
        option, equals, value = row.string.partition("=")
        bare = option.removeprefix("--").replace("_", "-")
        values = [_text(value, row)] if equals else []
        while not equals and place < len(rows) and not rows[place].string.startswith("--"):
            values.append(rows[place])
            place += 1
        if bare == "model-id" and values:
            name = values[0].string
        elif bare in RENAMED:
            more += [_text(RENAMED[bare], row), *values]
        elif bare not in SERVER_ONLY:
            more += [row] if equals else [row, *values]
    words.append(_text(name, uri or model))
    merged = {**model.value, "command": Node(words, model.file, model.line)}
    merged["args"] = Node(more, model.file, model.line)
    return Node(merged, model.file, model.line)


@frozen
class Workload:
    """The decode or the prefill part of a service: `node` is its container, command put in."""

    part: str
    pod: Node
    node: Node
    group_size: int | None


def workloads(service: Node) -> Iterator[Workload]:
    """The parts whose container has no command of its own; with one they are pods as others."""
    for part, path in (("", ("spec",)), ("prefill", ("spec", "prefill"))):
        spec = service.get(*path)
        if spec is None:
            continue
        pod = spec.get("template") or Node({}, spec.file, spec.line)
        rows = [row for row in pod.list("containers") if row.is_map]
        main = next((row for row in rows if row.text("name") == MAIN), None)
        if main is None:
            main = Node({}, pod.file, pod.line)
        if main.get("command") is None:
            yield Workload(
                part=part, pod=pod, node=_container(service, spec, main), group_size=_group(spec)
            )


def shared_memory(node: Node) -> Volume:
    """The controller's configuration mounts one (1 GiB and more)."""
    return Volume(kind="emptyDir-memory", target="/dev/shm", place=node.place())  # noqa: S108


def _container(service: Node, spec: Node, main: Node) -> Node:
    """The container with the command that the controller writes."""
    uri = service.get("spec", "model", "uri")
    words = [_text("vllm", main), _text("serve", main)]
    if uri is not None and uri.unknown is None and uri.string.startswith(HUB):
        words.append(Node(uri.string.removeprefix(HUB), uri.file, uri.line))
    else:
        words.append(_text(MOUNTED, uri or main))
    for name in (service.get("spec", "model", "name"),):
        if name is not None:
            words += [_text("--served-model-name", name), name]
    sizes = spec.get("parallelism")
    for key, option in SIZES:
        row = sizes.get(key) if sizes else None
        if row is not None:
            words += [_text(option, row), row]
    if sizes is not None and sizes.text("expert") == "true":
        words.append(_text("--enable-expert-parallel", sizes))
    merged = dict(main.value)
    merged["name"] = _text(MAIN, main)
    merged["command"] = Node(words, main.file, main.line)
    more = [*_additional(main), *_arguments(main)]
    merged["args"] = Node(more, main.file, main.line)
    if main.get("startupProbe") is None:
        merged.pop("livenessProbe", None)  # the configuration's startup probe comes before it
    return Node(merged, main.file, main.line)


def _text(text: str, at: Node) -> Node:
    return Node(text, at.file, at.line)


def _additional(main: Node) -> list[Node]:
    """The words of VLLM_ADDITIONAL_ARGS, which a shell splits."""
    for row in main.list("env"):
        value = row.get("value")
        if row.text("name") != ADDITIONAL or value is None or value.unknown is not None:
            continue
        try:
            words = shlex.split(value.string)
        except ValueError:
            return []
        return [_text(word, value) for word in words]
    return []


def _arguments(main: Node) -> list[Node]:
    """`args` after the command; a shell text among them is none."""
    rows = main.list("args")
    return rows if rows and rows[0].string.startswith("--") else []


def _group(spec: Node) -> int | None:
    """Pods of one engine: the controller makes a LeaderWorkerSet where a worker is described."""
    if spec.get("worker") is None:
        return None
    sizes = [spec.text("parallelism", key) for key in ("pipeline", "data", "dataLocal")]
    pipeline, data, local = (int(s) if s and s.isdigit() else 0 for s in sizes)
    if pipeline > 1:
        return pipeline
    return data // local if local and data % local == 0 else None
