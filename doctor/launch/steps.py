"""YAML whose values are shell texts -> the engines that they start: workflows and actions of GitHub,
.gitlab-ci.yml, playbooks of Ansible, Taskfile and the like."""

from __future__ import annotations

from collections.abc import Sequence

from infer_doctor.launch.command import Around, launches, with_installs
from infer_doctor.launch.document import Node
from infer_doctor.launch.embedded import templated
from infer_doctor.launch.images import engine_release
from infer_doctor.launch.installs import requirements
from infer_doctor.launch.model import Launch, Variable, Word
from infer_doctor.launch.script import named

SHELL_KEYS = frozenset(
    [
        "run",
        "script",
        "before_script",
        "after_script",
        "shell",
        "cmd",
        "cmds",
        "command",
        "commands",
        "ansible.builtin.shell",
        "ansible.builtin.command",
    ]
)
VARIABLES = ("env", "variables", "vars", "environment")
DEEPEST = 16


def read(nodes: Sequence[Node], file: str) -> list[Launch]:
    """Each engine that a shell text starts, in the order written."""
    steps = _Steps(file)
    for node in nodes:
        steps.walk(node, (), ())
    return named(steps.found, file)


class _Steps:
    def __init__(self, file: str) -> None:
        self._file = file
        self.found: list[Launch] = []

    def walk(
        self, node: Node, given: Sequence[Variable], installs: Sequence[Word], depth: int = 0
    ) -> Sequence[Word]:
        """What is installed after the steps of the node."""
        if depth > DEEPEST:
            return installs
        if node.is_list:
            for row in node.value:
                installs = self.walk(row, given, installs, depth + 1)
            return installs
        if not node.is_map:
            return installs
        given = (*given, *_variables(node))
        installs = (*installs, *_image(node))
        for key, row in node.items():
            if key in SHELL_KEYS and row.is_list:
                for item in row.value:
                    installs = self._shell(item, given, installs, depth)
            elif key in SHELL_KEYS:
                installs = self._shell(row, given, installs, depth)
            elif key not in VARIABLES:
                installs = self.walk(row, given, installs, depth + 1)
        return installs

    def _shell(
        self, node: Node, given: Sequence[Variable], installs: Sequence[Word], depth: int
    ) -> Sequence[Word]:
        from infer_doctor.launch.shell import commands

        if node.is_map or node.is_list:
            return self.walk(node, given, installs, depth + 1)
        if node.value is None:
            return installs
        around = Around(name=self._file, kind="script", machine="another")
        for command in commands(templated(node.string), node.first(), given=given):
            inner = Around(
                name=around.name,
                kind=around.kind,
                machine=around.machine,
                folder=command.folder,
                gaps=command.gaps,
            )
            installs = (*installs, *requirements(command.words))
            started = launches(command.words, inner, command.environment)
            self.found += [with_installs(row, installs) for row in started if row.engine]
        return installs


def _variables(node: Node) -> list[Variable]:
    rows = []
    for key in VARIABLES:
        held = node.get(key)
        for name, row in held.items() if held is not None else []:
            if row.is_map or row.is_list:
                continue
            text = row.string
            known = row.value is not None and row.unknown is None and "{{" not in text
            rows.append(
                Variable(
                    name=name,
                    value=text if known else None,
                    place=row.place(key=True),
                    source=None if known else text,
                )
            )
    return rows


def _image(node: Node) -> list[Word]:
    """The vLLM of the image in which a job runs, as pip would name it."""
    for path in (("image",), ("container",), ("image", "name"), ("container", "image")):
        text = node.text(*path)
        release = engine_release(text) if text else None
        place = node.get(*path)
        if release is not None and place is not None:
            return [Word(text=f"vllm=={release}", place=place.place())]
    return []
