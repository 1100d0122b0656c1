"""Fixes for arguments that the engine does not take as they are written."""

from __future__ import annotations

from infer_doctor.facts.engine_options import EngineOptions, OptionProblem
from infer_doctor.fixes.launching import remove_option, rename_option
from infer_doctor.launch.model import Launch
from infer_doctor.model import Action, Fix


def write_instead(launch: Launch, problem: OptionProblem, successor: str) -> Fix:
    """Write the successor, or another value, in place of what stands there."""
    old = shown(problem)
    actions = rename_option(
        launch, problem.flag, successor, problem.place, value=problem.text or None
    )
    return Fix(
        id=f"write-{_slug(problem)}",
        title=f"Write {successor} instead of {old}",
        safety="safe",
        restarts=True,
        actions=actions,
    )


def write_name(launch: Launch, problem: OptionProblem, name: str) -> Fix:
    """The name that was probably meant; the value stays."""
    actions = rename_option(launch, problem.flag, name, problem.place, value=problem.text or None)
    return Fix(
        id=f"rename-{_slug(problem)}",
        title=f"Write {name}, if that is what {problem.flag} means",
        safety="unsafe",
        restarts=True,
        why="nobody but you knows which option was meant",
        actions=actions,
    )


def look_at(problem: OptionProblem, name: str) -> Fix:
    """What comes nearest in this engine; its value may be counted otherwise."""
    return Fix(
        id=f"replace-{_slug(problem)}",
        title=f"Take {shown(problem)} out; {name} is what comes nearest here, in its own units",
        safety="manual",
        restarts=True,
        actions=(Action(kind="text", text=f"vllm serve --help={name.lstrip('-')}"),),
    )


def drop(launch: Launch, problem: OptionProblem, *, safe: bool = True) -> Fix:
    """Take it out."""
    return Fix(
        id=f"drop-{_slug(problem)}",
        title=f"Start without {shown(problem)}",
        safety="safe" if safe else "unsafe",
        restarts=True,
        why=None if safe else "what it was meant to do is then not done",
        actions=remove_option(launch, problem.flag, problem.place, value=problem.text or None),
    )


def continue_line(problem: OptionProblem) -> Fix:
    """A backslash continues a line only as its last character."""
    place = problem.place
    at = place.text
    return Fix(
        id="continue-line",
        title="Let the backslash be the last character of the line: no blank, no comment after it",
        safety="manual",
        restarts=True,
        actions=(Action(kind="text", text=f"{at}: take out what stands after the backslash"),),
    )


def before_image(problem: OptionProblem) -> Fix:
    """An option of docker belongs to docker."""
    place = problem.place
    at = place.text
    return Fix(
        id=f"move-{_slug(problem)}",
        title=f"Write {problem.flag} and its value before the image",
        safety="manual",
        restarts=True,
        actions=(Action(kind="text", text=f"{at}: docker run [its options] IMAGE [vLLM's]"),),
    )


def own_entry_point(option: str) -> Fix:
    """The image's own entry point takes words; another one runs a shell."""
    program = option.partition(" ")[2]
    return Fix(
        id="own-entry-point",
        title=f"Make {program} the entry point instead of an argument",
        safety="manual",
        restarts=True,
        actions=(
            Action(kind="text", text=f"docker run: {option}, before the image"),
            Action(kind="text", text=f"Compose: entrypoint: [{program}]; Kubernetes: command:"),
        ),
    )


def newer_engine(options: EngineOptions, problem: OptionProblem, version: str) -> Fix:
    """The version that has it."""
    return Fix(
        id=f"upgrade-for-{_slug(problem)}",
        title=f"Start without {shown(problem)}, or use vLLM {version} or newer",
        safety="manual",
        restarts=True,
        actions=(Action(kind="text", text=f"vLLM {options.version} does not know it"),),
    )


def shown(problem: OptionProblem) -> str:
    """The option and its value as they are written."""
    if not problem.text or problem.flag == problem.text:
        return problem.flag
    joint = " " if problem.flag.startswith("-") else "="
    return f"{problem.flag}{joint}{problem.text}"[:120]


def _slug(problem: OptionProblem) -> str:
    return problem.flag.lstrip("-").replace("_", "-").replace(".", "-").lower() or "word"
