"""Baseline and candidate, whatever they are: endpoints, recorded answers, launches, model folders."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from infer_doctor.facts.run import Quality
from infer_doctor.frozen import frozen
from infer_doctor.runs import answers as asking
from infer_doctor.runs.answers import Answers
from infer_doctor.runs.endpoint import NoServer
from infer_doctor.runs.prompts import Prompt
from infer_doctor.runs.quality import compare
from infer_doctor.runs.starting import DYING_S, Plan, Running, Seen, ended_under, judged, running
from infer_doctor.runs.switching import find_cause
from infer_doctor.runs.words import NoRun, model_of_words, of_config, program_of
from infer_doctor.server.address import is_url

if TYPE_CHECKING:
    from infer_doctor.runs.child import Limits

TWICE = 30
"""Prompts that the baseline is asked a second time, for what differs by itself."""


@frozen
class Side:
    """One of the two: a URL, recorded answers, or a plan to start."""

    name: str
    url: str = ""
    recorded: Answers | None = None
    plan: Plan | None = None
    model: str = ""


@contextlib.contextmanager
def served(side: Side) -> Iterator[str]:
    """The URL of a side; it is started for the block when it has to be."""
    if side.url:
        yield side.url
        return
    assert side.plan is not None
    with running(side.plan, why=side.name) as (seen, server):
        if server is None:
            raise NoRun(f"{side.name} did not come up: {seen.start.why_not}")
        try:
            yield server.url
        except NoServer:
            _lives(side, seen, server, DYING_S)
            raise
        _lives(side, seen, server, 0.0)


def _lives(side: Side, seen: Seen, server: Running, wait_s: float) -> None:
    """Answers of an engine that died between them are none to compare; raises NoRun."""
    ended = ended_under(server, seen, wait_s)
    if ended is not None:
        assert side.plan is not None
        told = judged(ended, side.plan.words).start.why_not
        raise NoRun(f"{side.name} came up and ended while it was asked: {told}")


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
    baseline: Side,
    candidate: Side,
    prompts: Sequence[Prompt],
    tokens: int,
    note: Callable[[str], None],
) -> tuple[Quality, Answers, Answers, Answers | None]:
    """Ask both and compare; where the candidate is a launch and degraded, switch one thing at a time."""
    tokens = _length(baseline, candidate, prompts, tokens, note)
    first, again = baseline_of(baseline, prompts, tokens)
    second = answers_of(candidate, prompts, tokens, score=first)
    found = compare(prompts, first, second, again=again)
    if found.verdict != "degraded" or candidate.plan is None:
        return found, first, second, again

    def one(name: str, plan: Plan) -> Quality:
        side = Side(name=name, plan=plan, model=model_of_words(plan.words))
        there = answers_of(side, prompts, tokens, score=first)
        return compare(prompts, first, there, again=again)

    found = find_cause(found, baseline.plan, candidate.plan, one, note)
    return found, first, second, again


def _length(
    baseline: Side,
    candidate: Side,
    prompts: Sequence[Prompt],
    tokens: int,
    note: Callable[[str], None],
) -> int:
    """Tokens to ask for: those of the answers that are there already, or longer ones would loop more often.

    Raises BadAnswers.
    """
    kept = [side for side in (baseline, candidate) if side.recorded is not None]
    lengths = set()
    for side in kept:
        assert side.recorded is not None
        if not any(prompt.id in side.recorded.rows for prompt in prompts):
            raise asking.BadAnswers(
                f"{side.name} answers none of these prompts: give those of then (--prompts FILE)"
            )
        lengths.add(side.recorded.tokens)
    if len(lengths - {None}) > 1:
        one, other = sorted(value for value in lengths if value is not None)
        raise asking.BadAnswers(
            f"answers of at most {one} and of at most {other} tokens are not compared: "
            f"record both with the same --tokens"
        )
    found = next((value for value in lengths if value is not None), tokens)
    if found != tokens and len(kept) < 2:
        note(f"asks for {found} tokens, as the recorded answers have")
    return found


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
    written = of_config(launches[0]) if launches[0].engine == "vllm" else ()
    count = len(launches)
    name = target if count == 1 else f"{target} (the first of its {count} launches)"
    given = {row.name: row.value for row in launches[0].environment if row.value is not None}
    plan = _plan(words, folder, limits, given)
    return Side(name=name, plan=plan, model=model_of_words((*written, *words)))


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
