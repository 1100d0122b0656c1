"""Which of the hits of a start is the cause.

A root beats a cause, a cause a symptom; among equals the first one counts, for what a process prints
later is the consequence. Wrappers and noise are never chosen. A message on the side (INFO, WARNING)
is weaker than an exception, and what stands before the start became ready was survived.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from infer_doctor.facts.log import Cause
from infer_doctor.fixes.log import cure
from infer_doctor.logs.answers import Answer
from infer_doctor.logs.frames import TRAINING
from infer_doctor.logs.numbers import answer
from infer_doctor.logs.outlived import after_ready, fails_after, overcome, stopping, unproven
from infer_doctor.logs.story import Hit, Start, Unknown, in_order
from infer_doctor.model import Category, Confidence, Evidence
from infer_doctor.redact import mask_line

OTHERS_KEPT = 3
SAME_ERROR = 3
"""Lines: pydantic's head, torch's notes and the like stand around one error."""

SUPPORT_KEPT = 2

VALUE = 160
"""Characters of a line's value that a sentence repeats."""

RAISED_IN: tuple[tuple[str, Category], ...] = (
    ("vllm/config", "launch_argument"),
    ("vllm/engine/arg_utils.py", "launch_argument"),
    ("vllm/entrypoints/cli/", "launch_argument"),
    ("vllm/lora/", "launch_argument"),
    ("/spec_decode/", "launch_argument"),
    ("/tool_parsers/", "launch_argument"),
    ("vllm/reasoning/", "launch_argument"),
    ("/kv_connector/factory.py", "launch_argument"),
    ("tensorrt_llm/models/modeling_utils.py", "model_files"),
    ("/layers/quantization/", "quantization"),
    ("vllm/attention/", "attention_backend"),
    ("vllm/v1/attention/", "attention_backend"),
    ("/model_loader/", "model_files"),
    ("/site-packages/transformers/", "transformers_version"),
    ("/dist-packages/transformers/", "transformers_version"),
)
"""File of the innermost frame -> what an error raised there is about; only where no signature fits."""

OPTION = re.compile(r"(?<!\S)[\"'`(]?--[a-z][\w-]+")

REFUSAL = re.compile(r"(?:[\w.]*\.)?(?:ValueError|AssertionError|OSError|ValidationError): \S+ \S")
"""What an engine raises to refuse something, with a reason in words; a TypeError is no refusal."""

BARE = re.compile(r"KeyError: |AssertionError$")

ONE_PURPOSE = (
    "/spec_decode/",
    "/tool_parsers/",
    "/kv_connector/factory.py",
    "tensorrt_llm/models/modeling_utils.py",
)
"""Files that do nothing but take a setting or a checkpoint: there a bare assertion refuses it."""

STAGES = {
    "arguments": "reading arguments",
    "config": "reading the model's configuration",
    "workers": "starting the workers",
    "pinned": "pinning main memory",
    "weights": "loading weights",
    "profile": "measuring the memory peak",
    "kv": "making the KV cache",
    "compile": "compiling",
    "graphs": "capturing CUDA graphs",
    "warmup": "warming up",
    "server": "starting the server",
    "serving": "serving",
    "shutdown": "shutting down",
}
"""Stage -> in words."""


def causes(start: Start, alive: int) -> list[Cause]:
    """The candidates of one start, the best first; `alive` is the last line that shows it serving."""
    ready = start.ready.place if start.ready else None
    kept: dict[str, list[Hit]] = {}
    for hit in in_order(start.hits):
        if ready and hit.place.source == ready.source and hit.place.line < ready.line:
            continue  # it became ready after it
        if hit.signature.remark and not fails_after(start, hit):
            continue
        if stopping(start, hit.place) or hit.stage == TRAINING or overcome(start, hit):
            continue
        kept.setdefault(hit.signature.id, []).append(hit)
    ranked = []
    for hits in kept.values():
        told = [(hit, found) for hit in hits if not (found := answer(hit, start)).drop]
        if not told:
            continue
        best, found = max(told, key=lambda row: _loudness(row[0]))
        if unproven(start, best):
            continue
        ranked.append((_weight(best), -best.place.line, best, found, len(told)))
    ranked.sort(key=lambda row: (row[0], row[1]), reverse=True)
    known = [
        explain(hit, found, start, weight=weight, count=count, alive=alive)
        for weight, _, hit, found, count in ranked
    ]
    return known or list(_by_file(start))


def tells(start: Start) -> bool:
    """Whether a hit of this start is an engine's, as far as its numbers tell."""
    return any(not answer(hit, start).drop for hit in start.hits)


def _by_file(start: Start) -> Iterator[Cause]:
    """An error in the engine's own words that no signature knows: its file tells what it is about."""
    for row in start.unknown:
        category = _raised_in(row)
        if category is None or after_ready(start, row.place.line):
            continue
        said = mask_line(row.text.strip())[:200]
        yield Cause(
            signature="raised-in-" + category.replace("_", "-"),
            category=category,
            confidence="possible",
            effect="fatal",
            stage=STAGES.get(row.stage, ""),
            process=row.process,
            message=f"the engine refused to go on, in its own words: {said}",
            evidence=(row.place.evidence(row.text),),
            fixes=(
                cure(
                    "own-words",
                    "Change what the line names",
                    why=f"it was raised in {row.file.rpartition('site-packages/')[2]}",
                ),
            ),
            confirm="the traceback above the line",
        )
        return


def _raised_in(row: Unknown) -> Category | None:
    """What an error is about by the option it names, else by the file that raised it."""
    if "NotImplementedError" in row.text:
        return "launch_argument" if OPTION.search(row.text) else None
    if not REFUSAL.match(row.text):
        narrow = BARE.match(row.text) and row.stage != "serving"
        if not narrow or not any(part in row.file for part in ONE_PURPOSE):
            return None  # a fault of the program, or of a library below it
    return next((found for part, found in RAISED_IN if part in row.file), None)


def others(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """The candidates after the first that are not the same error on its next lines."""
    first = causes[0].evidence[0]
    apart = [
        cause
        for cause in causes[1:]
        if cause.evidence[0].source != first.source
        or abs((cause.evidence[0].line or 0) - (first.line or 0)) > SAME_ERROR
    ]
    return tuple(apart[:OTHERS_KEPT])


def _loudness(hit: Hit) -> tuple[bool, int]:
    return (hit.loud, -hit.place.line)


def _weight(hit: Hit) -> int:
    """Higher is nearer to the cause."""
    signature = hit.signature
    weight = {"symptom": 1, "cause": 2, "root": 3}[signature.strength]
    if signature.strong is not None and signature.strong.search(hit.text):
        weight = max(weight, 2)
    if signature.effect == "stall":
        return 0  # an error that ended it says more
    return weight if hit.loud or weight == 3 else min(weight, 1)


def explain(
    hit: Hit, found: Answer, start: Start, *, weight: int, count: int, alive: int = 0
) -> Cause:
    """A hit as a cause with its evidence and fixes."""
    signature = hit.signature
    stage = hit.stage
    category = found.category or signature.by_stage.get(stage, signature.category)
    message = found.message or filled(signature.cause, hit)
    fixes = found.fixes
    if not fixes and signature.fix:
        fixes = (cure(signature.id, filled(signature.fix, hit)),)
    confidence: Confidence = "certain" if weight >= 2 else "likely"
    if weight < 2 and not hit.loud:
        confidence = "possible"
    if found.unsure and confidence == "certain":
        confidence = "likely"
    lines = [hit.place.evidence(hit.shown)]
    for name in found.support[:SUPPORT_KEPT]:
        place, text = start.lines[name]
        lines.append(place.evidence(text))
    effect: str = signature.effect
    if effect == "fatal" and alive > hit.place.line:
        effect = "survived"
    return Cause(
        signature=signature.id,
        category=category,  # type: ignore[arg-type]
        confidence=confidence,
        effect=effect,
        stage=STAGES.get(stage, ""),
        process=hit.tag,
        message=message[:1].lower() + message[1:] if message[1:2].islower() else message,
        evidence=tuple(lines),
        fixes=fixes,
        confirm=filled(signature.confirm, hit),
        wrong=found.wrong if found.wrong is not None else signature.wrong,
        count=count,
        numbers=dict(found.values),
    )


def filled(template: str, hit: Hit) -> str:
    """A sentence with the values of the match; what was not in the line is left out."""
    groups = {name: value[:VALUE] for name, value in hit.match.groupdict().items() if value}
    template = re.sub(
        r" ?\(((?:[a-z]+:? )?)\{(\w+)\}\)",
        lambda m: f" ({m[1]}{groups[m[2]]})" if m[2] in groups else "",
        template,
    )
    text = re.sub(r"\{(\w+)\}", lambda m: groups.get(m[1], "..."), template)
    return mask_line(" ".join(text.split()))


def side(start: Start, effects: Iterable[str]) -> list[Cause]:
    """What is no failure of a start: warnings, notes, refused requests; each once."""
    wanted = set(effects)
    first: dict[str, Hit] = {}
    counts: dict[str, int] = {}
    for hit in start.hits:
        if hit.signature.effect not in wanted:
            continue
        first.setdefault(hit.signature.id, hit)
        counts[hit.signature.id] = counts.get(hit.signature.id, 0) + 1
    return [
        explain(hit, answer(hit, start), start, weight=2, count=counts[id])
        for id, hit in first.items()
    ]


def echo(start: Start) -> Evidence | None:
    """The last wrapper line: where the failure shows without its cause."""
    for hit in reversed(start.hits):
        if hit.signature.effect == "wrapper" and "Engine core init" in hit.text:
            return hit.place.evidence(hit.shown)
    return next(
        (
            h.place.evidence(h.shown)
            for h in reversed(start.hits)
            if h.signature.effect == "wrapper"
        ),
        None,
    )


def to_send(start: Start, alive: int) -> str | None:
    """The one thing that would settle it, when a failure shows and no cause was found.

    `alive` is the last line that shows it serving: what a server survived ended nothing.
    """
    training = next((hit for hit in start.hits if hit.stage == TRAINING), None)
    if training is not None and start.engine is None:
        said = mask_line(training.text.strip())[:100]
        return (
            f'{training.place.source}:{training.place.line} "{said}" was raised in a program that trains: '
            "send the engine's own log"
        )
    known = [
        row
        for row in start.unknown
        if not after_ready(start, row.place.line) and not stopping(start, row.place)
    ]
    fatal = [row for row in known if row.file] or known
    wrapper = next(
        (
            hit
            for hit in start.hits
            if hit.signature.effect == "wrapper" and hit.loud and not stopping(start, hit.place)
            if not hit.signature.send or hit.place.line > alive
        ),
        None,
    )
    clue = next(
        (
            hit
            for hit in start.hits
            if hit.signature.send and hit.loud and hit.place.line > alive
            if not stopping(start, hit.place) and not after_ready(start, hit.place.line)
        ),
        None,
    )
    if clue is not None and not (fatal and fatal[0].place.line < clue.place.line):
        words = clue.text.strip()
        said = mask_line(words if len(words) <= 100 else clue.match[0][:100])
        return f'{clue.place.source}:{clue.place.line} "{said}": {clue.signature.send}'
    if wrapper is None and start.ready is not None:
        return None
    if fatal:
        row = fatal[0]
        who = f" of {row.process}" if row.process else ""
        return (
            f'{row.place.source}:{row.place.line} "{mask_line(row.text.strip())[:160]}"{who} is not in the '
            "catalogue: send the traceback above it and the engine's version"
        )
    if wrapper is None:
        return None
    where = f'{wrapper.place.source}:{wrapper.place.line} "{mask_line(wrapper.text.strip())[:100]}"'
    if re.search(r"Failed core proc\(s\): \{\}", wrapper.text):
        return (
            f"{where} is only the echo, and the child died without a word: send the lines of "
            "(EngineCore ...) and (Worker ...) above it, and dmesg of that second"
        )
    if "died unexpectedly" in wrapper.text or "died, exit code" in wrapper.text:
        return (
            f"{where} is only the echo: send dmesg of that second and the worker's lines above it"
        )
    if start.stage == "serving" or re.search("Background loop|EngineDead|MQEngine", wrapper.text):
        return f"{where} is only the echo: send the log from the first error on, above this line"
    return (
        f"{where} is only the echo: send the whole log from its first line, with the lines of the "
        "engine's and workers' processes above this one"
    )
