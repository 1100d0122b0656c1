"""Whether the arguments of the launch go together, by the engine's own rules."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from infer_doctor.catalog.vllm_rules import RULES, Rule
from infer_doctor.checks.launch_arguments import known_values, sureness
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.fixes.models import advise, drop_option
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import CALLS, evidence, require_vllm
from infer_doctor.launch.model import Launch
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.vllm_arguments.table import ordered

COMMANDS = (
    "serve",
    "bench",
    "chat",
    "collect-env",
    "complete",
    "download-kernels",
    "launch",
    "preload",
    "render",
    "run-batch",
    "snapshot",
)
"""Of vLLM 0.6 to 0.33 (entrypoints/cli)."""

OPTION = re.compile(r"--([a-z][a-z0-9-]*)")


@check("launch-argument-conflict", severity="error", category="launch_argument", since="0.2")
def argument_conflict(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """Two arguments of the launch exclude each other, or one makes the other idle.

    ## Why it matters
    The engine checks most of this after it has read the model's configuration, some of it after the
    weights are loaded; where it merely ignores one of them, nothing is said at all.

    ## How it decides
    A table of the engine's own rules with the releases that have them (catalog/vllm_rules.py).
    Only what the launch gives is judged, never a default, and a value that the launch does
    not tell is left out. Refusals are errors; what is ignored is a warning or info.

    ## Fix safety
    Safe: it changes how the next start is called.
    """
    require_vllm(options)
    refused = {name for name, given in options.given.items() if given.flag in _refused(options)}
    values = {key: value for key, value in known_values(options).items() if key not in refused}
    unknown = options.given.keys() - values.keys()
    for rule in RULES:
        if not _in_force(rule, options.version) or unknown.intersection(rule.options):
            continue
        words = rule.test(values)
        if words is None:
            continue
        given = [name for name in rule.options if name in options.given]
        written = f"{words}: vLLM {options.version or ''} {rule.effect}".replace("  ", " ")
        if options.entry in CALLS:
            written = OPTION.sub(lambda found: found[1].replace("-", "_"), written)
        yield Finding(
            about=rule.name,
            message=written,
            severity=rule.severity,
            confidence=sureness(options),
            evidence=evidence(options, *given),
            fixes=(drop_option(launch, options, given[0]),) if rule.cure == "drop" else (),
        )


@check("launch-command-missing", severity="error", category="launch_argument", since="0.3")
def command_missing(launch: Launch) -> Iterator[Finding]:
    """The launch runs `vllm` without a command, or with one that it does not have.

    ## Why it matters
    `vllm` then prints its help and ends; a container of it restarts for ever. It is easily done in
    Python: of a list that `shell=True` goes with, the shell gets the first word alone (subprocess,
    "args").

    ## How it decides
    The program is `vllm` and no word follows it, or one that no release from 0.6 to 0.33 has as a
    command (entrypoints/cli). Nothing is told when words are not known.

    ## Fix safety
    Manual: what was meant stands around it.
    """
    if launch.engine != "vllm":
        raise NotApplicable(f"the launch starts {launch.engine or 'no engine that is known'}")
    if launch.entry in COMMANDS:
        return
    if launch.entry:
        yield from _no_command(launch)
        return
    if launch.words or launch.gaps:
        raise Unavailable("what follows vllm could not be read")
    listed = launch.kind == "python"
    title = "Give subprocess the list without shell=True" if listed else "Add serve and the model"
    yield Finding(
        about="vllm",
        message="vllm runs alone, prints its help and starts no server"
        + (": with shell=True the shell gets the first word of the list" if listed else ""),
        evidence=(
            Evidence(
                source=launch.place.file,
                line=launch.place.line,
                excerpt=" ".join(launch.command)[:200],
            ),
        ),
        fixes=(advise("name-the-command", title, "vllm serve MODEL"),),
    )


def _no_command(launch: Launch) -> Iterator[Finding]:
    """A command that `vllm` refuses."""
    word = launch.program[-1] if launch.program else None
    called = [posixpath.basename(row.text) for row in launch.program[-2:-1]]
    if word is None or word.text != launch.entry or called != ["vllm"]:
        return  # a module of Python, or LLM(...)
    if word.unknown is not None:
        raise Unavailable(f"the command is {word.unknown}, which the launch does not tell")
    yield Finding(
        about="vllm",
        message=f"vllm has no command {word.text}: it prints its usage and starts nothing",
        confidence="likely",
        evidence=(
            Evidence(
                source=word.place.file,
                line=word.place.line,
                excerpt=" ".join(launch.command)[:200],
            ),
        ),
        fixes=(advise("name-the-command", f"Write vllm serve instead of vllm {word.text}"),),
    )


def _refused(options: EngineOptions) -> set[str]:
    """The flags whose value is refused by itself: launch-argument-value tells that."""
    kinds = ("range", "choice", "type")
    return {problem.flag for problem in options.problems if problem.kind in kinds}


def _in_force(rule: Rule, version: str | None) -> bool:
    if version is None:
        return rule.until is None
    here = ordered(version)
    return ordered(rule.since) <= here and (rule.until is None or here <= ordered(rule.until))
