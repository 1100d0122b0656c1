"""Baseline and candidate, whatever they are: endpoints, recorded answers, launches, model folders."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from infer_doctor.facts.run import Quality
from infer_doctor.frozen import frozen
from infer_doctor.runs import answers as asking
from infer_doctor.runs.answers import Answers
from infer_doctor.runs.prompts import Prompt
from infer_doctor.runs.quality import compare
from infer_doctor.runs.starting import Plan, running
from infer_doctor.runs.words import AS_ASKED, Change, NoRun, value_in, with_options
from infer_doctor.server.address import is_url

if TYPE_CHECKING:
    from infer_doctor.runs.child import Limits

TWICE = 30
"""Prompts that the baseline is asked a second time, for what differs by itself."""

SWITCHES: tuple[tuple[str, str], ...] = (
    ("kv-cache-dtype", "an 8-bit KV cache without scales of its own loses most in long contexts"),
    ("quantization", "weights were rounded"),
    ("chat-template", "the prompt is not the one the model was trained with"),
    ("generation-config", "sampling defaults of the model are in force, or not"),
    ("override-generation-config", "sampling defaults were changed"),
    ("dtype", "float16 overflows where bfloat16 does not"),
    ("hf-overrides", "the model is built with other values"),
    ("rope-scaling", "positions are scaled"),
    ("speculative-config", "a draft may be accepted that the model would not say"),
    ("attention-backend", "another kernel computes attention"),
    ("load-format", "weights are not those of the checkpoint"),
)
"""Options that may change what is answered, and how."""


@frozen
class Side:
    """One of the two: a URL, recorded answers, or a plan to start."""

    name: str
    url: str = ""
    recorded: Answers | None = None
    plan: Plan | None = None
    model: str = ""
    change: Change = AS_ASKED


@contextlib.contextmanager
def served(side: Side) -> Iterator[str]:
    """The URL of a side; it is started for the block when it has to be."""
    if side.url:
        yield side.url
        return
    assert side.plan is not None
    with running(side.plan, side.change, side.name) as (seen, server):
        if server is None:
            start = seen.start
            raise NoRun(f"{side.name} did not come up: {start.cause or start.tail}")
        yield server.url


def answers_of(
    side: Side, prompts: Sequence[Prompt], tokens: int, score: Answers | None = None
) -> Answers:
    """The answers of one side."""
    if side.recorded is not None:
        return side.recorded
    with served(side) as url:
        return asking.ask(
            url,
            prompts,
            name=side.name,
            model=side.model,
            tokens=tokens,
            score=score,
            progress=bar(side.name),
        )


def baseline_of(
    side: Side, prompts: Sequence[Prompt], tokens: int
) -> tuple[Answers, Answers | None]:
    """The baseline's answers, and some of them a second time."""
    if side.recorded is not None:
        return side.recorded, None
    some = list(prompts)[:: max(1, len(prompts) // TWICE)]
    with served(side) as url:
        first = asking.ask(
            url,
            prompts,
            name=side.name,
            model=side.model,
            tokens=tokens,
            progress=bar(side.name),
        )
        again = asking.ask(url, some, name=side.name, model=side.model, tokens=tokens)
    return first, again


def judge(
    baseline: Side, candidate: Side, prompts: Sequence[Prompt], tokens: int
) -> tuple[Quality, Answers, Answers, Answers | None]:
    """Ask both and compare."""
    first, again = baseline_of(baseline, prompts, tokens)
    second = answers_of(candidate, prompts, tokens, score=first)
    return compare(prompts, first, second, again=again), first, second, again


def switched(plan: Plan) -> list[str]:
    """The options of a launch that may change its answers."""
    return [name for name, _ in SWITCHES if value_in(plan.words, name) is not None]


def without(plan: Plan, names: Sequence[str]) -> Plan:
    """The launch without these options."""
    words = with_options(plan.words, tuple((name, "") for name in names))
    return dataclasses.replace(plan, words=words)


def find_cause(
    quality: Quality,
    candidate: Side,
    prompts: Sequence[Prompt],
    tokens: int,
    first: Answers,
    again: Answers | None,
) -> Quality:
    """Take the candidate's options out one at a time, until the difference goes."""
    assert candidate.plan is not None
    names = switched(candidate.plan)
    if len(names) == 1:
        return dataclasses.replace(quality, cause=_written(candidate.plan, names[0]))
    tried = []
    for name in names:
        side = dataclasses.replace(
            candidate, name=f"without --{name}", plan=without(candidate.plan, [name])
        )
        one = compare(prompts, first, answers_of(side, prompts, tokens, score=first), again=again)
        value = f", {one.divergence.value:.4f} nats" if one.divergence is not None else ""
        tried.append(f"without --{name}: {one.verdict}{value}")
        if one.verdict == "same":
            written = _written(candidate.plan, name)
            return dataclasses.replace(quality, cause=written, tried=tuple(tried))
    return dataclasses.replace(quality, tried=tuple(tried))


def _written(plan: Plan, name: str) -> str:
    return f"--{name} {value_in(plan.words, name)}"


def side_of(target: str, folder: str, limits: Limits, python: str | None) -> Side:
    """What a word of the command line names; raises NoRun."""
    if is_url(target):
        return Side(name=target, url=target)
    if target.endswith(".json") and os.path.isfile(target):
        return Side(name=target, recorded=asking.read(target))
    if os.path.isfile(os.path.join(target, "config.json")):
        if python is None:
            raise NoRun(f"{target} is a model folder: --python names the engine that serves it")
        words = (python, "-m", "vllm.entrypoints.cli.main", "serve", target)
        return Side(name=target, plan=_plan(words, folder, limits), model=target)
    return _of_launch(target, folder, limits, python)


def _of_launch(target: str, folder: str, limits: Limits, python: str | None) -> Side:
    from infer_doctor.runs.session import model_of_words
    from infer_doctor.runs.words import program_of
    from infer_doctor.targets import NoTarget, look

    try:
        launches = look(target).launches
    except NoTarget as error:
        raise NoRun(str(error)) from None
    if not launches:
        raise NoRun(
            f"{target} is no URL, no recorded answers, no model folder and starts no engine"
        )
    words = program_of(launches[0], python)
    given = {row.name: row.value for row in launches[0].environment if row.value is not None}
    plan = _plan(words, folder, limits, given)
    return Side(name=target, plan=plan, model=model_of_words(words))


def _plan(
    words: tuple[str, ...],
    folder: str,
    limits: Limits,
    variables: dict[str, str] | None = None,
) -> Plan:
    return Plan(
        words=words,
        variables={**os.environ, **(variables or {})},
        folder=os.getcwd(),
        logs=folder,
        limits=limits,
    )


def bar(name: str) -> asking.Progress | None:
    """A line on a terminal."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, whole: int) -> None:
        end = "\n" if done == whole else ""
        sys.stderr.write(f"\r{name}: {done} of {whole} prompts{end}")
        sys.stderr.flush()

    return show
