"""A task of SkyPilot -> the engines that its `run` starts.

Read: `envs`, `secrets`, `resources`, `num_nodes`, `setup` and `run` (docs.skypilot.co, "Task YAML"); the
variables that SkyPilot gives to `run` are those of its page "Environment variables".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from infer_doctor.launch.command import Around, launches, with_installs
from infer_doctor.launch.document import Node
from infer_doctor.launch.images import engine_release
from infer_doctor.launch.installs import of_commands, requirements
from infer_doctor.launch.model import Launch, Variable, Word
from infer_doctor.launch.script import named

BESIDE = ("resources", "setup", "envs", "secrets", "num_nodes", "service", "file_mounts", "workdir")
"""Keys of which a task has at least one beside `run`."""

ON_NODES = ("SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS", "SKYPILOT_TASK_ID")


def is_task(node: Node) -> bool:
    """A text `run` and what it needs."""
    return bool(node.text("run")) and any(node.get(key) is not None for key in BESIDE)


def read(node: Node, file: str) -> list[Launch]:
    """Each engine that `run` starts, in the order written."""
    from infer_doctor.launch.shell import commands

    run = node.get("run")
    if run is None:
        return []
    given = tuple(_environment(node))
    setup = node.get("setup")
    installs = list(_image(node))
    if setup is not None and not setup.is_map:
        texts = commands(setup.string, setup.first(), given=given)
        installs += of_commands(command.words for command in texts)
    found: list[Launch] = []
    for command in commands(run.string, run.first(), given=given):
        around = Around(
            name=file,
            kind="skypilot",
            machine="another",
            folder=command.folder,
            gaps=command.gaps,
        )
        installs += requirements(command.words)
        started = launches(command.words, around, command.environment)
        found += [with_installs(row, installs) for row in started if row.engine is not None]
    return named(found, file)


def _environment(node: Node) -> Iterator[Variable]:
    """What is set when `run` begins."""
    for key, source in (("envs", "sky launch --env"), ("secrets", "sky launch --secret")):
        rows = node.get(key)
        for name, row in rows.items() if rows else []:
            value = None if row.value is None or key == "secrets" else row.string
            yield Variable(
                name=name,
                value=value,
                place=row.place(key=True),
                source=source if value is None else None,
            )
    gpus = _gpus(node.get("resources", "accelerators"))
    nodes = node.text("num_nodes") or "1"
    for name, value in (("SKYPILOT_NUM_GPUS_PER_NODE", gpus), ("SKYPILOT_NUM_NODES", nodes)):
        yield Variable(
            name=name, value=value, place=node.place(), source=None if value else "accelerators"
        )
    for name in ON_NODES:
        yield Variable(name=name, value=None, place=node.place(), source="SkyPilot")


def _gpus(node: Node | None) -> str | None:
    """How many GPUs a node has; None where several numbers are offered."""
    if node is None:
        return None
    if node.is_map:
        counts = {  # {L4: 4} and, without the blank, {L4:4}
            name.partition(":")[2] or ("1" if row.value is None else row.string)
            for name, row in node.items()
        }
    else:
        rows = [row.string for row in node.value] if node.is_list else [node.string]
        counts = {row.partition(":")[2] or "1" for row in rows}
    count = counts.pop() if len(counts) == 1 else None
    return count if count and re.fullmatch(r"\d+", count) else None


def _image(node: Node) -> Iterator[Word]:
    """The vLLM that the image of the task holds, as pip would name it."""
    image = node.get("resources", "image_id")
    if image is None or image.is_map or image.is_list:
        return
    release = engine_release(image.string.removeprefix("docker:"))
    if release is not None:
        yield Word(text=f"vllm=={release}", place=image.place())
