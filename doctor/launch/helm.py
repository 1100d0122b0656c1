"""Plain Helm values -> a Launch, where they hold an image and the arguments of an engine.

Charts differ; what is read is the form that most have: a mapping with `image` (a text, or repository
and tag) and `command` or `args`, beside `env` and `resources`. The values of vLLM's own chart
(examples/online_serving/chart-helm) have `image.command`; those of its production stack name a model
(`modelURL`) and settings, of which the chart makes the command (deployment-vllm-multi.yaml).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from infer_doctor.launch.command import Around, launches
from infer_doctor.launch.document import Node
from infer_doctor.launch.images import entrypoint
from infer_doctor.launch.kubernetes_pod import Pod, container_of
from infer_doctor.launch.model import Launch, Variable, Word

DEEPEST = 6

STACK = (
    ("tensorParallelSize", "--tensor-parallel-size"),
    ("pipelineParallelSize", "--pipeline-parallel-size"),
    ("maxModelLen", "--max-model-len"),
    ("dtype", "--dtype"),
    ("maxNumSeqs", "--max-num-seqs"),
    ("maxNumBatchedTokens", "--max-num-batched-tokens"),
    ("gpuMemoryUtilization", "--gpu-memory-utilization"),
    ("maxLoras", "--max-loras"),
)
STACK_FLAGS = (
    ("enablePrefixCaching", "--enable-prefix-caching"),
    ("enableChunkedPrefill", "--enable-chunked-prefill"),
)
"""Settings of `vllmConfig` -> options; what else is there is not read."""


def is_values(node: Node) -> bool:
    return any(True for _ in _parts(node, "", 0))


def read(node: Node, file: str) -> list[Launch]:
    """Every part of the values that starts an engine."""
    found: list[Launch] = []
    for name, part in _parts(node, "", 0):
        found += _launch(name, part, file)
    return found


def _parts(node: Node, name: str, depth: int) -> Iterator[tuple[str, Node]]:
    """The mappings that hold an image and a command or arguments."""
    if depth > DEEPEST:
        return
    if node.is_map:
        if node.text("modelURL") and node.text("repository"):
            yield name, _stack(node)
            return
        image = node.get("image")
        inside = image is not None and image.get("command") is not None
        if image is not None and (inside or any(node.list(key) for key in ("command", "args"))):
            yield name, node
            return
        for key, row in node.items():
            yield from _parts(row, f"{name}.{key}" if name else key, depth + 1)
    elif node.is_list:
        for index, row in enumerate(node.value):
            yield from _parts(row, f"{name}[{index}]", depth + 1)


def _stack(node: Node) -> Node:
    """A model of the production stack as a mapping with `image`, `command` and `args`."""

    def text(value: str, at: Node = node) -> Node:
        return Node(value, at.file, at.line)

    model, repository = node.value["modelURL"], node.value["repository"]
    settings = node.get("vllmConfig") or Node({}, node.file, node.line)
    words: list[Node] = []
    for key, option in STACK:
        row = settings.get(key)
        if row is not None:
            words += [text(option, row), row]
    for key, option in STACK_FLAGS:
        row = settings.get(key)
        if row is not None:
            words.append(text(option if row.string == "true" else f"--no-{option[2:]}", row))
    words += settings.list("extraArgs") or node.list("extraArgs")
    image = {"repository": repository, "tag": node.get("tag") or text("latest")}
    merged = {
        "name": node.get("name") or text("model"),
        "image": Node(image, repository.file, repository.line),
        "command": Node([text("vllm"), text("serve"), model], node.file, model.line),
        "args": Node(words, node.file, node.line),
        "env": node.get("env") or Node([], node.file, node.line),
    }
    return Node(merged, node.file, node.line)


def _launch(name: str, node: Node, file: str) -> list[Launch]:
    image = node.get("image")
    assert image is not None  # _parts
    repository, tag = image.text("repository"), image.text("tag")
    whole = image.string if not image.is_map else repository and f"{repository}:{tag or 'latest'}"
    arguments = _words(node, "args")
    command = _words(node, "command") or _words(image, "command")
    own = command or entrypoint(whole or None, arguments, image.place())
    container = container_of(node, Pod(node=node, kind="values"), name or file)
    container = replace(container, image=whole or None, image_place=image.place())
    around = Around(
        name=f"{file}: {name}" if name else file,
        kind="helm",
        machine="another",
        container=container,
    )
    found = launches((*own, *arguments), around, tuple(_environment(node)))
    return [replace(row, place=node.place()) for row in found if row.engine is not None]


def _words(node: Node, key: str) -> tuple[Word, ...]:
    return tuple(
        Word(text=item.string, place=item.first(), unknown=item.unknown)
        for item in node.list(key)
        if not item.is_map and not item.is_list
    )


def _environment(node: Node) -> Iterator[Variable]:
    env = node.get("env")
    for name, row in env.items() if env else []:
        if not row.is_map and not row.is_list:
            yield Variable(name=name, value=row.string, place=row.place(key=True))
    for row in node.list("env"):
        written, value = row.text("name"), row.text("value")
        if written is not None:
            known = row.get("valueFrom") is None
            yield Variable(
                name=written,
                value=value if known else None,
                place=row.place(),
                source=None if known else "a secret or config map",
            )
