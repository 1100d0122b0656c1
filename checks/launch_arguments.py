"""Whether the engine takes the arguments of the launch as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from infer_doctor.catalog.vllm_renamed import HAD_EFFECT, NOTES
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions, OptionProblem
from infer_doctor.fixes.arguments import (
    before_image,
    continue_line,
    drop,
    look_at,
    newer_engine,
    own_entry_point,
    shown,
    write_instead,
    write_name,
)
from infer_doctor.launch.images import another_engine
from infer_doctor.launch.judge import require_vllm
from infer_doctor.launch.model import Launch, Unknown, Word
from infer_doctor.model import Confidence, Evidence, Finding, Fix
from infer_doctor.registry import check

LISTS = ("api_key", "lora_modules", "served_model_name", "allowed_origins", "middleware")
"""Options that take several words, before the model above all these."""

HELP = ("-h", "--help", "-v", "--version")

DEFAULT_MODEL = "Qwen/Qwen3-0.6B"
"""ModelConfig.model, 0.9 to 0.33; facebook/opt-125m before."""


def of_kind(options: EngineOptions, *kinds: str) -> Iterator[OptionProblem]:
    """The problems of these kinds, each written place once."""
    require_vllm(options)
    yield from (problem for problem in options.problems if problem.kind in kinds)


def sureness(options: EngineOptions) -> Confidence:
    """What is only known of another version is likely at most."""
    return "certain" if options.exact else "likely"


def proof(options: EngineOptions, problem: OptionProblem) -> tuple[Evidence, ...]:
    """Where it is written, and whose list of arguments was compared."""
    return (
        Evidence(source=problem.place.file, line=problem.place.line, excerpt=shown(problem)[:200]),
        Evidence(source="arguments of the engine", excerpt=options.basis),
    )


def finding(
    options: EngineOptions, problem: OptionProblem, fixes: Sequence[Fix], **more: Any
) -> Finding:
    """One finding about one word."""
    return Finding(
        about=problem.flag,
        message=problem.message,
        confidence=sureness(options),
        evidence=proof(options, problem),
        fixes=tuple(fixes),
        **more,
    )


@check("launch-argument-unknown", severity="error", category="launch_argument", since="0.2")
def argument_unknown(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The launch has an argument that no version of the engine knows, or that may be any of several.

    ## Why it matters
    vLLM says "unrecognized arguments" after 8 to 30 seconds of imports, LLM(...) raises a TypeError,
    and a container goes round in restarts.

    ## How it decides
    The words are read as the engine's own parser reads them: a prefix counts as the option, "_" as
    "-", nested keys as JSON. The list of arguments is that of the version that will run: from the
    catalogue (every release from 0.6.0 to 0.33.0) where the installed sources have the hash of a
    release, else read from the installed sources; without either, of the version that `--engine`,
    the image's tag or the newest release names, and the finding is then only likely. The nearest
    name is offered when it is similar; options of SGLang, text-generation-inference, llama.cpp and
    TensorRT-LLM and settings of a request are recognised.

    ## Fix safety
    Unsafe: nobody but you knows which option was meant.
    """
    for problem in of_kind(options, "unknown", "ambiguous", "misplaced"):
        fixes: list[Fix] = []
        if not problem.flag.strip():
            fixes.append(continue_line(problem))
        elif problem.kind == "misplaced":
            fixes.append(before_image(problem))
        elif problem.successor is not None:
            fixes.append(own_entry_point(problem.successor))
        elif problem.nearest is not None and "option of" in problem.message:
            fixes.append(look_at(problem, problem.nearest))
        elif problem.nearest is not None:
            fixes.append(write_name(launch, problem, _whole(problem, problem.nearest)))
        else:
            fixes.append(drop(launch, problem, safe=False))
        ignored = problem.message.endswith("refused or ignored")
        yield finding(options, problem, fixes, severity="warning" if ignored else None)


def _whole(problem: OptionProblem, nearest: str) -> str:
    """For a key within JSON, the option and the key."""
    base, dot, _ = problem.flag.partition(".")
    return f"{base}.{nearest}" if dot and not nearest.startswith("--") else nearest


@check("launch-argument-removed", severity="error", category="launch_argument", since="0.2")
def argument_removed(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The launch has an argument that older versions of the engine had.

    ## Why it matters
    The engine refuses to start with it after an upgrade, in most cases with no word about what does
    the same now.

    ## How it decides
    An older release of the catalogue has the argument and the version that will run has not; the
    release that dropped it is named. A successor is offered only when it means the same
    (catalog/vllm_renamed.py), with this case's value; else why there is none. An image whose tag
    tells no version of vLLM may hold one that still has the argument: a warning, possible.

    ## Fix safety
    Safe where a successor means the same or nothing is lost; unsafe where the argument did something
    that is then not done.
    """
    older: dict[str, Any] = {}
    if another_engine(launch, options):
        older = {"severity": "warning"}
    for problem in of_kind(options, "removed", "renamed"):
        if problem.successor is not None:
            cure = write_instead(launch, problem, problem.successor)
        else:
            name = "--" + problem.flag.lstrip("-").replace("_", "-")
            cure = drop(launch, problem, safe=name in NOTES and name not in HAD_EFFECT)
        found = finding(options, problem, (cure,), **older)
        yield replace(found, confidence="possible") if older else found


@check("launch-argument-too-new", severity="error", category="launch_argument", since="0.2")
def argument_too_new(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The launch has an argument that the engine got only in a later version.

    ## Why it matters
    Documentation is read for the newest version, and an image or environment is older: the engine
    refuses to start.

    ## How it decides
    A newer release of the catalogue has the argument; the first one is named.

    ## Fix safety
    Manual: another version of the engine changes more than this.
    """
    for problem in of_kind(options, "not-yet"):
        version = problem.message.rpartition(" ")[2]
        yield finding(options, problem, (newer_engine(options, problem, version),))


@check("launch-argument-value", severity="error", category="launch_argument", since="0.2")
def argument_value(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """An argument has a value that the engine refuses, or none where it needs one.

    ## Why it matters
    The engine stops after its imports: "invalid choice", "invalid int value", "expected one
    argument"; values that only its config classes judge (a memory share above 1) stop it later.

    ## How it decides
    Type, choices, number of values and bounds are those of the version that will run. Whole numbers
    may end in k, m, g or K, M, G where the version reads that. A flag takes no value: `--flag true`
    leaves "true" over. Tool and reasoning parsers are compared with those that the version
    registers, unless a plugin is loaded.

    ## Fix safety
    Safe where the value that was meant is plain; else there is no fix.
    """
    for problem in of_kind(options, "type", "choice", "range", "missing-value"):
        fixes: tuple[Fix, ...] = ()
        if problem.successor is not None:
            fixes = (write_instead(launch, problem, problem.successor),)
        yield finding(options, problem, fixes)


@check("launch-argument-deprecated", severity="warning", category="launch_argument", since="0.2")
def argument_deprecated(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The launch has an argument that a coming version of the engine will not have.

    ## Why it matters
    The next upgrade refuses the launch; some of these have no effect already.

    ## How it decides
    The version that will run declares the argument as deprecated, in `add_argument` or in the first
    words of its help. A later release of the catalogue may lack it: then it is named.

    ## Fix safety
    Safe: it changes how the next start is called.
    """
    for problem in of_kind(options, "deprecated"):
        successor = problem.successor
        cure = write_instead(launch, problem, successor) if successor else drop(launch, problem)
        yield finding(options, problem, (cure,))


@check("launch-argument-repeated", severity="info", category="launch_argument", since="0.2")
def argument_repeated(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The launch gives an argument twice with different values.

    ## Why it matters
    The last one counts and nothing says so: who changes the first sees no effect.

    ## How it decides
    The same option, also under its short or older name, is on the command line more than once with
    different values, or a nested key is. A value of the file that --config names may be overridden
    by the command line: that is not told.

    ## Fix safety
    No fix: nobody but you knows which value was meant.
    """
    for problem in of_kind(options, "duplicate"):
        yield finding(options, problem, ())


@check("launch-model-unnamed", severity="error", category="model_name", since="0.2")
def model_unnamed(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The launch names no model, or names it where the engine does not take it for one.

    ## Why it matters
    vLLM then loads its default model, a small one, and answers with it; clients that ask for the
    model by name get "The model does not exist".

    ## How it decides
    `vllm serve` takes the first word that belongs to no option; an option that takes several words,
    such as --api-key, takes the model too when it stands right before it. `python -m
    vllm.entrypoints.openai.api_server` takes only --model; since 0.10.0 it also accepts a word and
    ignores it. The default is Qwen/Qwen3-0.6B (0.9 and later). Nothing is told when words of the
    launch are not known.

    ## Fix safety
    Manual: which model is meant is not to be guessed.
    """
    require_vllm(options)
    if launch.entry not in ("serve", "api_server"):
        raise NotApplicable(f"{launch.entry} takes the model as its first argument")
    if options.model is not None or options.gaps:
        return
    if any(word.text.partition("=")[0] in HELP for word in launch.words):
        raise NotApplicable("it prints its help and loads nothing")
    if launch.kind == "dockerfile" and not launch.words:
        raise NotApplicable("the arguments come when a container of the image is started")
    if any(problem.kind == "unknown" for problem in options.problems):
        return  # the model may be among the words that were not understood
    for name in LISTS:
        option = options.given.get(name)
        values = option.value if option is not None else None
        if option is None or not isinstance(values, list) or len(values) < 2:
            continue
        last = values[-1]
        if not isinstance(last, str):
            continue
        secret = name == "api_key"
        yield Finding(
            about=option.flag,
            message=f"{'the model' if secret else last} is taken for one more value, and the engine "
            f"loads {DEFAULT_MODEL}: it stands behind {option.flag}",
            evidence=(
                Evidence(
                    source=option.place.file,
                    line=option.place.line,
                    excerpt=f"{option.flag} with {len(values)} values",
                ),
            ),
        )
        return
    ignored = _ignored(launch)
    if ignored is not None:
        yield Finding(
            about="model",
            message=f"{ignored.text} is not taken as the model: this server reads --model alone and "
            f"loads {DEFAULT_MODEL}",
            evidence=(
                Evidence(source=ignored.place.file, line=ignored.place.line, excerpt=ignored.text),
            ),
        )
        return
    yield Finding(
        about="model",
        severity="warning",
        message=f"the launch names no model: the engine loads {DEFAULT_MODEL}",
        evidence=(
            Evidence(
                source=launch.place.file,
                line=launch.place.line,
                excerpt=" ".join(launch.command)[:200],
            ),
        ),
    )


def _ignored(launch: Launch) -> Word | None:
    """The word before all options, where it is no model."""
    if launch.entry != "api_server" or not launch.words:
        return None
    first = launch.words[0]
    return None if first.text.startswith("-") or first.unknown is not None else first


CONFIG_EQUALS = re.compile(r"--config=(.+)", re.S)


@check("launch-config-ignored", severity="error", category="launch_argument", since="0.2")
def config_ignored(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The configuration file of the launch is not read.

    ## Why it matters
    Nothing says so: the engine starts with its defaults, or says that no model is named.

    ## How it decides
    vLLM looks for the word `--config` by itself (FlexibleArgumentParser.parse_args, 0.6 to 0.33);
    `--config=FILE` is accepted and its file never opened.

    ## Fix safety
    Safe: two words instead of one.
    """
    require_vllm(options)
    for word in launch.words:
        found = CONFIG_EQUALS.match(word.text)
        if found is None or launch.entry not in ("serve", "api_server"):
            continue
        problem = OptionProblem(
            kind="type", flag="--config", text=found[1], place=word.place, message=""
        )
        yield Finding(
            about="--config",
            message=f"{word.text}: the engine reads a configuration file only after `--config` and a "
            "space, and takes nothing from this one",
            evidence=(
                Evidence(source=word.place.file, line=word.place.line, excerpt=word.text[:200]),
            ),
            fixes=(write_instead(launch, problem, f"--config {found[1]}"),),
        )


def known_values(options: EngineOptions) -> dict[str, Any]:
    """The given options whose values are known."""
    return {
        name: option.value
        for name, option in options.given.items()
        if not isinstance(option.value, Unknown)
    }
