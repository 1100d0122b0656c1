"""Whether TensorRT-LLM takes the flags, keys and variables of the launch as they are written."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from infer_doctor.catalog.trtllm_releases import (
    MAIN_GUARD_SINCE,
    SERVE_SINCE,
    is_candidate,
    numbers,
)
from infer_doctor.catalog.trtllm_variables import ONE_OR_ZERO, ONLY_ONE, TRUE_WORDS, WHOLE
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions, OptionProblem
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.trt_release import TrtRelease
from infer_doctor.fixes.arguments import drop, shown, write_instead, write_name
from infer_doctor.fixes.launching import set_variable
from infer_doctor.fixes.trtllm import advise, serve_checkpoint, slug
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch, Variable
from infer_doctor.model import Category, Confidence, Evidence, Finding, Fix
from infer_doctor.registry import check
from infer_doctor.trtllm import judge


def of_kind(options: EngineOptions, *kinds: str) -> Iterator[OptionProblem]:
    """The problems of these kinds."""
    judge.require_trtllm(options)
    yield from (problem for problem in options.problems if problem.kind in kinds)


def category_of(launch: Launch) -> Category:
    return "trt_build_flags" if launch.entry == "trtllm-build" else "launch_argument"


def finding(
    launch: Launch,
    options: EngineOptions,
    problem: OptionProblem,
    fixes: Sequence[Fix],
    confidence: Confidence = "certain",
) -> Finding:
    """One finding about one word or key."""
    return Finding(
        about=problem.flag,
        message=problem.message,
        category=category_of(launch),
        confidence=confidence,
        evidence=(
            Evidence(
                source=problem.place.file, line=problem.place.line, excerpt=shown(problem)[:200]
            ),
            Evidence(source="arguments of the engine", excerpt=options.basis),
        ),
        fixes=tuple(fixes),
    )


def _is_plain(problem: OptionProblem, name: str) -> bool:
    """Whether one word takes the place of another: a key of a section goes into another place."""
    if problem.flag.startswith("-"):
        return " " not in name.partition("--")[0]
    section = problem.flag.rpartition(".")[0]
    return " " not in name + problem.flag and name.rpartition(".")[0] == section


@check("trt-argument-unknown", severity="error", category="launch_argument", since="0.3")
def argument_unknown(
    launch: Launch, options: EngineOptions, release: TrtRelease
) -> Iterator[Finding]:
    """The launch has a flag, key or keyword that TensorRT-LLM does not have.

    ## Why it matters
    trtllm-build ends with "unrecognized arguments", trtllm-serve with "No such option", the extra
    options and LLM(...) with "Extra inputs are not permitted", after the imports.

    ## How it decides
    By the parsers of trtllm-build (0.14, 0.17, 1.0) and trtllm-serve (0.16 to the newest) and by the
    fields of LlmArgs (0.14, 0.17, 1.2, the newest), read from the sources and not run. A
    version between two of them may have what either has, so only what none of them has is told.
    trtllm-build takes a unique prefix for the option. Words of convert_checkpoint.py, vLLM and Triton
    are recognised.

    ## Fix safety
    Unsafe: nobody but you knows which option was meant.
    """
    for problem in of_kind(options, "unknown"):
        cures: list[Fix] = []
        if problem.nearest is not None and _is_plain(problem, problem.nearest):
            cures.append(write_name(launch, problem, problem.nearest))
        elif problem.nearest is not None:
            cures.append(
                advise(
                    f"replace-{slug(problem.flag)}", f"Instead of {problem.flag}: {problem.nearest}"
                )
            )
        elif problem.flag.startswith("-"):
            cures.append(drop(launch, problem, safe=False))
        else:
            cures.append(advise(f"drop-{slug(problem.flag)}", f"Take {problem.flag} out"))
        build = launch.entry == "trtllm-build"
        yield finding(launch, options, problem, cures, "certain" if build else "likely")


@check("trt-argument-renamed", severity="error", category="launch_argument", since="0.3")
def argument_renamed(
    launch: Launch, options: EngineOptions, release: TrtRelease
) -> Iterator[Finding]:
    """The launch has a flag, key or keyword that the version has under another name, or no more.

    ## Why it matters
    A file that worked with the release before stops the start after an upgrade; some releases ignored
    unknown keys, so the setting is lost without a word.

    ## How it decides
    A table of what earlier releases had and which one dropped it: flags of trtllm-build out of
    plugin.py of 0.10 and the sources of 0.14 to 1.0, keys out of the breaking changes of 0.20, 1.0
    and 1.1. Where the version is not known, or is a candidate of the release that dropped the name,
    nothing is decided.

    ## Fix safety
    Safe where only the name differs; else manual, for the value means something else.
    """
    told = False
    for problem in of_kind(options, "renamed", "removed"):
        if problem.successor is not None and _is_plain(problem, problem.successor):
            cure = write_instead(launch, problem, problem.successor)
        elif problem.successor is not None:
            title = f"Write {problem.successor} instead of {problem.flag}"
            cure = advise(f"write-{slug(problem.flag)}", title)
        elif problem.flag.startswith("-"):
            cure = drop(launch, problem, safe=False)
        else:
            cure = advise(f"replace-{slug(problem.flag)}", f"Take {problem.flag} out")
        told = True
        sure = options.version is not None and not is_candidate(options.version)
        yield finding(launch, options, problem, (cure,), "certain" if sure else "likely")
    undecided = [problem for problem in options.problems if problem.kind == "undecided"]
    if undecided and not told:
        raise Unavailable(undecided[0].message)


@check("trt-argument-new", severity="error", category="launch_argument", since="0.3")
def argument_new(launch: Launch, options: EngineOptions, release: TrtRelease) -> Iterator[Finding]:
    """The launch has a flag that trtllm-serve got in a later release.

    ## Why it matters
    "No such option" at the start: examples are written for the newest release.

    ## How it decides
    A later parser has it (0.16, 0.19, 1.1, 1.2 and the newest are known), those around the version have
    not. Likely: the release that brought it lies between two of them.

    ## Fix safety
    Safe where an older name does the same.
    """
    for problem in of_kind(options, "not-yet"):
        cure = (
            write_instead(launch, problem, problem.successor)
            if problem.successor
            else drop(launch, problem, safe=False)
        )
        yield finding(launch, options, problem, (cure,), "likely")


@check("trt-argument-value", severity="error", category="launch_argument", since="0.3")
def argument_value(
    launch: Launch, options: EngineOptions, release: TrtRelease
) -> Iterator[Finding]:
    """A flag, key or keyword has a value that TensorRT-LLM refuses, or none.

    ## Why it matters
    "invalid choice: 'float' (choose from 'auto', 'float16', ...)", "is not a known backend".

    ## How it decides
    Choices, numbers and shares as the parsers and config classes declare them; what is silently replaced
    (attn_backend) is a warning, and `${...}` that a script is to fill in is not judged.
    Plugins take auto, float16, float32, bfloat16, int32 or disable (0.14), gemm_plugin fp8 too,
    features enable or disable.

    ## Fix safety
    Unsafe: only what was probably meant is known.
    """
    for problem in of_kind(options, "choice", "type", "range", "missing-value", "ignored"):
        cures: tuple[Fix, ...] = ()
        if problem.nearest is not None and problem.flag.startswith("-"):
            cures = (write_name(launch, problem, f"{problem.flag} {problem.nearest}"),)
        elif problem.nearest is not None:
            cures = (
                advise(
                    f"set-{slug(problem.flag)}",
                    f"Write {problem.flag}: {problem.nearest}, if meant",
                ),
            )
        found = finding(launch, options, problem, cures)
        yield replace(found, severity="warning") if problem.kind == "ignored" else found


@check("trt-option-overridden", severity="warning", category="launch_argument", since="0.3")
def option_overridden(
    launch: Launch, options: EngineOptions, release: TrtRelease
) -> Iterator[Finding]:
    """A value stands on the command line and in the extra options, and the other one counts.

    ## Why it matters
    Up to 1.2 the file overwrites what the command line says, later explicit flags win: after an
    upgrade the same start uses other values, and nothing says so.

    ## How it decides
    The same field on the command line and in the file that --extra_llm_api_options or --config names,
    with different values (commands/serve.py of 1.2, update_llm_args_with_extra_dict; release notes of
    1.3 for the reverse).

    ## Fix safety
    Safe: the value without effect is taken out.
    """
    for problem in of_kind(options, "duplicate"):
        cure = (
            drop(launch, problem)
            if problem.flag.startswith("-")
            else advise(
                f"drop-{slug(problem.flag)}", f"Take {problem.flag} out of {problem.place.file}"
            )
        )
        yield finding(launch, options, problem, (cure,))


@check("trt-command-gone", severity="error", category="trt_build_flags", since="0.3")
def command_gone(launch: Launch, release: TrtRelease) -> Iterator[Finding]:
    """The command does not exist in the TensorRT-LLM that will run.

    ## Why it matters
    "trtllm-build: command not found" or "No module named tensorrt_llm.commands.build": engines are no
    longer built, and before 0.15 nothing was served by a command.

    ## How it decides
    trtllm-build and `--backend tensorrt` where the installed modules and scripts, or the version where
    only that is known, have no engine path (late candidates of 1.3.0, 1.4); trtllm-serve before 0.15.

    ## Fix safety
    Manual.
    """
    if launch.engine != "tensorrt-llm":
        raise NotApplicable("the launch starts no TensorRT-LLM")
    words = [word.text for word in launch.words]
    engines = launch.entry == "trtllm-build" or _asks_for_engines(words)
    serves = launch.entry == "trtllm-serve" and not judge.is_bare(launch)
    if not engines and not serves:
        return
    if not release.known:
        raise Unavailable(release.basis)
    said = Evidence(
        source=launch.place.file, line=launch.place.line, excerpt=" ".join(launch.command)[:200]
    )
    version = numbers(release.version)
    if engines and release.engine_path is False:
        what = "trtllm-build" if launch.entry == "trtllm-build" else "--backend tensorrt"
        yield Finding(
            about=what,
            message=f"{release.basis}, has no {what}: engines were removed",
            evidence=(said, judge.of_release(release)),
            fixes=(serve_checkpoint(),),
        )
    elif engines and release.engine_path is None:
        raise Unavailable(f"whether {release.basis} still builds engines is not known")
    elif serves and version is not None and version < SERVE_SINCE:
        yield Finding(
            about="trtllm-serve",
            message=f"{release.basis}, has no trtllm-serve: it came with 0.15",
            evidence=(said, judge.of_release(release)),
            fixes=(
                advise(
                    "serve-with-triton",
                    "Serve with Triton, examples/apps/openai_server.py, or TensorRT-LLM 0.15 or later",
                ),
            ),
        )


def _asks_for_engines(words: Sequence[str]) -> bool:
    pairs = itertools.pairwise(words)
    return any(word in ("--backend=tensorrt", "--backend=trt") for word in words) or any(
        name == "--backend" and value in ("tensorrt", "trt") for name, value in pairs
    )


@check("trt-variable-word", severity="warning", category="environment", since="0.3")
def variable_word(
    launch: Launch, release: TrtRelease, environ: Environ | None
) -> Iterator[Finding]:
    """A switch of TensorRT-LLM is set to a word: only "1" turns it on.

    ## Why it matters
    FORCE_DETERMINISTIC=true leaves everything as it was, without a message; a switch that is read as a
    number ends the process with std::invalid_argument ("stoi").

    ## How it decides
    cpp/tensorrt_llm/common/envUtils.cpp: getBoolEnv is true for "1" alone; TRTLLM_ENABLE_PDL knows "1"
    and "0"; TRTLLM_FORCE_XQA, TRTLLM_ENABLE_XQA_JIT and some sizes are read with std::stoi. What the
    launch sets, and for a launch on this machine what is exported here. "0", "false" and an empty
    value are off as they were meant.

    ## Fix safety
    Safe: the variable becomes 1.
    """
    if launch.engine != "tensorrt-llm":
        raise NotApplicable("the launch starts no TensorRT-LLM")
    rows: dict[str, tuple[str, Evidence]] = {}
    if environ is not None and launch.machine == "local":
        for name, value in environ.variables.items():
            rows[name] = (value, Evidence(source="environment", excerpt=f"{name}={value}"))
    for row in launch.environment:
        if row.value is not None:
            rows[row.name] = (row.value, _written(row))
    for name, (value, source) in sorted(rows.items()):
        word = value.strip().lower()
        if name in WHOLE and not value.strip().lstrip("-").isdigit():
            yield _variable(
                launch, name, value, source, "is read as a number and ends the process", "error"
            )
        elif (name in ONLY_ONE or name in ONE_OR_ZERO) and (
            word in TRUE_WORDS or (word == "1" and value != "1")
        ):
            effect = "is off" if name in ONLY_ONE else "stays at its default"
            yield _variable(launch, name, value, source, f'{effect}: only "1" turns it on', None)


def _variable(
    launch: Launch, name: str, value: str, source: Evidence, effect: str, severity: str | None
) -> Finding:
    return Finding(
        about=name,
        severity="error" if severity else None,
        message=f"{name}={value} {effect}",
        evidence=(source,),
        fixes=(
            Fix(
                id=f"set-{name.lower().replace('_', '-')}",
                title=f"Start with {name}=1",
                safety="safe",
                restarts=True,
                actions=set_variable(launch, name, "1"),
            ),
        ),
    )


def _written(row: Variable) -> Evidence:
    return Evidence(source=row.place.file, line=row.place.line, excerpt=f"{row.name}={row.value}")


@check("trt-main-unguarded", severity="error", category="multiproc_fork", since="0.3")
def main_unguarded(launch: Launch, release: TrtRelease) -> Iterator[Finding]:
    """LLM(...) stands at the top of a script without `if __name__ == "__main__":`.

    ## Why it matters
    The workers import the script again and start the engine again: "An attempt has been made to start
    a new process", a hang, or processes without end.

    ## How it decides
    The call is not inside a function, class or guard (read with ast). TensorRT-LLM asks for the guard
    since 0.16 (executor.py, the text "main guard"; release notes); of an older or unknown version it
    is only possible.

    ## Fix safety
    Manual: the lines have to be moved.
    """
    if launch.kind != "python" or launch.entry != "LLM" or launch.engine != "tensorrt-llm":
        raise NotApplicable("no LLM(...) of TensorRT-LLM in Python code")
    if not launch.at_import:
        return
    version = numbers(release.version)
    if version is not None and version < MAIN_GUARD_SINCE:
        return
    yield Finding(
        about=launch.name,
        severity="error" if version else "warning",
        confidence="likely" if version else "possible",
        message=f"LLM(...) in {launch.place.file}:{launch.place.line} runs when the file is "
        "imported: the worker processes import it again",
        evidence=(
            Evidence(source=launch.place.file, line=launch.place.line, excerpt="LLM(...)"),
            judge.of_release(release),
        ),
        fixes=(
            advise(
                "guard-main",
                'Put it into a function and call that under `if __name__ == "__main__":`',
            ),
        ),
    )
