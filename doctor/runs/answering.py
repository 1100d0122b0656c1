"""The five questions: which starts each makes, and which facts come of it."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from typing import Any

from infer_doctor.facts.log import ColdStart, EngineLog
from infer_doctor.facts.run import Boundary, ColdWarm, Quality, Ramp, Starts
from infer_doctor.runs import answers, boundary, cold, comparing, prompts, quality, ramp, switching
from infer_doctor.runs.endpoint import NoServer
from infer_doctor.runs.keep import BadRun, Keeper, Kept
from infer_doctor.runs.session import Session, facts_of
from infer_doctor.runs.starting import Seen, ended_under, judged, running
from infer_doctor.runs.typed import checked, typed
from infer_doctor.runs.words import AS_ASKED, Change, NoRun, value_in

STARTS = {
    "oom": boundary.MOST_STARTS,
    "engine-load": 1,
    "cold-start": 4,
    "timeout": 1,
    "quality": 2 + switching.MOST,
}
"""How many each makes at most."""

Answered = tuple[dict[type, object], "dict[str, Any] | None"]
Starter = Callable[[Change, str], Seen]
Note = Callable[[str], None]


def answer(
    question: str,
    session: Session,
    options: dict[str, Any],
    keeper: Keeper,
    start: Starter,
    note: Note,
) -> Answered:
    """Facts and measurements of a live run."""
    if question == "oom":
        known = facts_of(session)
        own = "VLLM_CPU_KVCACHE_SPACE" in session.plan.variables
        keeper.data = {**known, "gpus": session.gpus, "own_cache": own}
        return _oom(start, session.written, keeper.data, options)
    if question == "cold-start":
        eager = _eager(session.written)
        keeper.data = {"eager": eager}
        return _cold(start, session.plan.logs, session.model, options, eager=eager)
    if question == "timeout":
        return _timeout(session, options, keeper)
    if question == "quality":
        return _quality(session, options, keeper, note)
    return _load(start)


def replay(question: str, kept: Kept, options: dict[str, Any]) -> Answered:
    """The same from a kept run."""
    if question == "oom":
        return _oom(kept.start, kept.words, kept.data, options)
    if question == "cold-start":
        return _cold(kept.start, None, "", options, eager=bool(kept.data.get("eager")))
    if question == "timeout":
        return _of_ramp(kept)
    if question == "quality":
        return _kept_quality(kept, options)
    return _load(kept.start)


def of_url(url: str, options: dict[str, Any], keeper: Keeper, note: Note) -> Answered:
    """A load ramp on a server that runs already."""
    found = ramp.measure(url, _limits(options, "", None), ramp_bar())
    keeper.data = {"ramp": dataclasses.asdict(found)}
    return {Ramp: found}, {"ramp": keeper.data["ramp"]}


def _limits(options: dict[str, Any], model: str, sequences: int | None) -> ramp.Wanted:
    return ramp.Wanted(
        limit_s=options.get("limit") or ramp.LIMIT_S,
        first_token_s=options.get("first_token"),
        most=options["most"],
        tokens=options["tokens"],
        model=model,
        max_num_seqs=sequences,
    )


def _timeout(session: Session, options: dict[str, Any], keeper: Keeper) -> Answered:
    written = value_in(session.written, "max-num-seqs")
    sequences = int(written) if written is not None and written.isdecimal() else None
    with running(session.plan, AS_ASKED, "the server for the load") as (seen, server):
        keeper.add(seen.start)
        facts = _of_starts("timeout", [seen])
        if server is None:
            return facts, _told([seen])
        try:
            found = ramp.measure(server.url, _limits(options, session.model, sequences), ramp_bar())
        except NoServer:
            ended = ended_under(server, seen)
            if ended is None:
                raise
            dead = judged(ended, session.plan.words)
            keeper.starts[-1] = dead.start
            return _of_starts("timeout", [dead]), _told([dead])
        if found.broken is not None and found.broken.failed:
            ended = ended_under(server, seen)
            found = dataclasses.replace(found, died=ended.ending if ended else "")
            facts = _of_starts("timeout", [judged(seen.start, session.plan.words)])
        keeper.data = {"ramp": dataclasses.asdict(found)}
    return {**facts, Ramp: found}, {**_told([seen]), "ramp": keeper.data["ramp"]}


def _quality(session: Session, options: dict[str, Any], keeper: Keeper, note: Note) -> Answered:
    asked = prompts.of_file(options["prompts"]) if options["prompts"] else prompts.built_in()
    candidate = comparing.Side(name="the launch", plan=session.plan, model=session.model)
    names = switching.removable(session.plan)
    if options["against"]:
        baseline = comparing.side_of(
            options["against"], session.plan.logs, session.plan.limits, session.python
        )
    elif names:
        plan = switching.taken_out(session.plan, names)
        note(f"baseline: the launch without {', '.join('--' + name for name in names)}")
        baseline = comparing.Side(name="without them", plan=plan, model=session.model)
    else:
        raise NoRun("nothing in the launch changes answers: --against names a baseline")
    found, first, second, again = comparing.judge(
        baseline, candidate, asked, options["tokens"], note
    )
    keeper.data = {"cause": found.cause, "cure": found.cure, "tried": found.tried}
    if options["keep"]:
        kept = {"baseline": first, "candidate": second, "again": again}
        answers.keep(session.plan.logs, kept, note)
    return {Quality: found}, {"quality": dataclasses.asdict(found)}


def _kept_quality(kept: Kept, options: dict[str, Any]) -> Answered:
    asked = prompts.of_file(options["prompts"]) if options["prompts"] else prompts.built_in()
    twice = os.path.join(kept.folder, "again.json")
    try:
        first, second = (
            answers.read(os.path.join(kept.folder, name))
            for name in ("baseline.json", "candidate.json")
        )
        again = answers.read(twice) if os.path.exists(twice) else None
    except answers.BadAnswers as error:
        raise BadRun(str(error)) from None
    if not any(prompt.id in first.rows for prompt in asked):
        raise BadRun(
            f"{kept.folder} answers none of these prompts: give those of the run (--prompts)"
        )
    found = quality.compare(asked, first, second, again=again)
    if found.verdict == "degraded":
        found = _with_cause(found, kept)
    return {Quality: found}, {"quality": dataclasses.asdict(found)}


def _with_cause(found: Quality, kept: Kept) -> Quality:
    """What was found by starts that a replay does not make."""
    names = ("cause", "cure", "tried")
    values = {**dataclasses.asdict(found), **{n: kept.data[n] for n in names if n in kept.data}}
    try:
        return typed(Quality, values)
    except (AttributeError, TypeError) as error:
        raise BadRun(f"{kept.folder} holds no comparison: {error}") from None


def _of_ramp(kept: Kept) -> Answered:
    facts: dict[type, object] = {}
    if kept.has(AS_ASKED):
        facts = _of_starts("timeout", [kept.start(AS_ASKED, "")])
    if "ramp" in kept.data:
        try:
            facts[Ramp] = typed(Ramp, kept.data["ramp"])
        except (AttributeError, TypeError) as error:
            raise BadRun(f"{kept.folder} holds no ramp: {error}") from None
    return facts, {"ramp": kept.data.get("ramp")}


def ramp_bar() -> ramp.Progress | None:
    """A bar on a terminal."""
    if not sys.stderr.isatty():
        return None

    def show(at_once: int, done: int, whole: int) -> None:
        filled = 30 * done // max(whole, 1)
        bar = "#" * filled + "." * (30 - filled)
        end = "\n" if done >= whole else ""
        sys.stderr.write(f"\r{at_once:>4} at once [{bar}] {done}/{whole}{end}")
        sys.stderr.flush()

    return show


def _oom(
    start: Starter, words: tuple[str, ...], data: dict[str, Any], options: dict[str, Any]
) -> Answered:
    names = ("plan", "default", "gpus", "total", "own_cache")
    try:
        known = checked(boundary.Asked, {name: data[name] for name in names if name in data})
    except (AttributeError, TypeError) as error:
        raise BadRun(f"the kept run holds no such facts: {error}") from None
    seen, found = boundary.search(
        boundary.Asked(
            start=start,
            words=words,
            option=options.get("vary"),
            **known,
        )
    )
    facts = _of_starts("oom", seen)
    if found is not None:
        facts[Boundary] = found
    return facts, _told(seen)


def _load(start: Starter) -> Answered:
    seen = [start(AS_ASKED, "the launch as it is")]
    return _of_starts("engine-load", seen), _told(seen)


def _eager(words: tuple[str, ...]) -> bool:
    """Whether the launch is eager as it is."""
    return "--enforce-eager" in words or "--enforce_eager" in words


def _cold(
    start: Starter, folder: str | None, model: str, options: dict[str, Any], *, eager: bool
) -> Answered:
    seen, found = cold.run(start, folder, model, options.get("limit"), eager_only=eager)
    measured = {
        row.label: {"seconds_to_ready": row.seconds, "phases": dict(row.phases)}
        for row in found.rows
    }
    return {**_of_starts("cold-start", seen), ColdWarm: found}, {"cold_starts": measured}


def _of_starts(question: str, seen: list[Seen]) -> dict[type, object]:
    """The starts, and the log of the first one for the checks of diagnose."""
    first = seen[0]
    facts: dict[type, object] = {Starts: boundary.starts_of(question, seen)}
    if first.log is not None:
        facts[EngineLog] = first.log
    if first.cold is not None:
        facts[ColdStart] = first.cold
    return facts


def _told(seen: list[Seen]) -> dict[str, Any]:
    return {
        "starts": [
            {
                "label": row.start.label,
                "why": row.start.why,
                "ready": row.start.ready,
                "seconds": row.start.seconds,
                "peak_bytes": row.start.peak_bytes,
                "gpu_peak_bytes": dict(row.start.gpu_peak),
                "cause": row.start.cause,
                "stage": row.start.stage,
            }
            for row in seen
        ]
    }
