"""Options of `docker run` that stand behind the image, where docker gives them to the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from infer_doctor.facts.engine_options import OptionProblem
from infer_doctor.launch.model import Launch
from infer_doctor.vllm_arguments.table import Table

DOCKER = {
    *(
        "-d",
        "-e",
        "-it",
        "-p",
        "-ti",
        "-v",
        "--cap-add",
        "--device",
        "--env",
        "--env-file",
        "--gpus",
    ),
    *("--ipc", "--mount", "--name", "--network", "--privileged", "--publish", "--restart", "--rm"),
    *("--runtime", "--shm-size", "--ulimit", "--volume"),
}
"""docs.docker.com/reference/cli/docker/container/run; vLLM 0.33 has none of these names, and
0.6 to 0.9 a --device of its own."""


def misplaced(
    launch: Launch, problems: Sequence[OptionProblem], table: Table
) -> list[OptionProblem]:
    """The problems with docker's options said as what they are; their values are no problem."""
    if launch.kind != "docker-run":
        return list(problems)
    docker = DOCKER.difference(table.by_option)
    return [*_said(launch, docker), *_others(launch, problems, docker)]


def _said(launch: Launch, docker: set[str]) -> Iterator[OptionProblem]:
    for word in launch.words:
        flag = word.text.partition("=")[0]
        if flag in docker and word.unknown is None:
            yield OptionProblem(
                kind="misplaced",
                flag=flag,
                text=None,
                place=word.place,
                message=f"{flag} stands behind the image: docker gives it to vLLM, which has no such "
                "option",
            )


def _others(
    launch: Launch, problems: Sequence[OptionProblem], docker: set[str]
) -> Iterator[OptionProblem]:
    texts = [word.text for word in launch.words]
    values = {text for before, text in pairwise(texts) if before in docker}
    written = {text.partition("=")[0] for text in texts if text.startswith("-")}
    for problem in problems:
        of_value = problem.text in values and problem.flag not in written
        if problem.flag not in docker and problem.flag not in values and not of_value:
            yield problem
