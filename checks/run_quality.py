"""What a comparison of answers showed."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.facts.run import Bounds, Quality
from infer_doctor.fixes.run import cure
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.units import plural


def _bounds(name: str, value: Bounds | None, unit: str = "") -> str:
    if value is None:
        return f"{name}: not told by both"
    return f"{name}: {value.value:.4f}{unit} ({value.low:.4f} to {value.high:.4f})"


def _evidence(quality: Quality) -> tuple[Evidence, ...]:
    refused = f"; both refused {quality.refused}" if quality.refused else ""
    rows = [
        f"{quality.candidate} against {quality.baseline}",
        f"{quality.compared} of {quality.prompts} prompts compared{refused}",
        _bounds("top-1 agreement until the first difference", quality.agreement),
        _bounds("KL of the top tokens", quality.divergence, " nats"),
        _bounds("log perplexity of the baseline's text against itself", quality.perplexity),
    ]
    if quality.models[0] != quality.models[1]:
        rows.append(f"model {quality.models[1]}, the baseline's is {quality.models[0]}")
    if quality.noise is not None:
        rows.append(_bounds("KL of the baseline asked twice", quality.noise, " nats"))
    if quality.worst:
        rows.append(f"most different: {', '.join(quality.worst)}")
    rows += [f"tried: {word}" for word in quality.tried]
    return tuple(Evidence(source="answers", excerpt=row) for row in rows)


@check("run-quality-degraded", severity="error", category="quality", since="0.3")
def quality_degraded(quality: Quality) -> Iterator[Finding]:
    """The candidate's answers are worse than the baseline's, beyond chance.

    ## Why it matters
    An engine that answers nonsense is healthy for every monitor that only looks at times and codes.

    ## How it decides
    The same prompts were answered greedily by both. Degraded is what any of these shows with 95 %:
    a mean KL divergence of the top tokens above 0.03 nats (a bound of ours: what 4-bit weights cost and
    8-bit ones do not, by llama.cpp's table of Llama 3 8B) and above three times that of the baseline
    asked twice; the baseline's own text more than 3 % less likely a token; more answers that are empty,
    loops, exclamation marks, in another language, no JSON, or that hold a token which was not the
    likeliest, and more prompts that fail (sign test, 1 %); no chats where the baseline has them. The
    bounds come from resampling prompts. When they straddle a limit, when noise of the baseline hides
    what is above 0.03 nats, or when fewer than 20 prompts were answered by both, or with log
    probabilities, it is not decided (equal texts are the same without them), nor where a tenth got no
    answer since a server was busy or away, or where tokens are cut otherwise. Of two launches the
    differences are switched one by one, at most five, until the answers are the same: that one is named.

    ## Fix safety
    Manual: the launch has to be changed.
    """
    if quality.verdict == "cannot-tell" and quality.gaps:
        raise Unavailable("; ".join(quality.gaps))
    if quality.verdict == "cannot-tell":
        raise Unavailable(
            f"{plural(quality.compared, 'answered prompt')} cannot tell whether the answers are worse: "
            "give more (--prompts FILE)"
        )
    if quality.verdict == "same":
        return
    fixes = []
    told = ""
    if quality.cause:
        fixes.append(cure("take-out", f"Start {quality.cure}", why="the difference goes with it"))
        told = f"the cause is {quality.cause}: "
        told += (
            f"the same {quality.cure}" if quality.tried else "nothing else of the launches differs"
        )
    elif not quality.tried:
        fixes.append(
            cure(
                "find-cause",
                "Let the doctor switch one thing at a time: give both as files that start an engine",
                "infer-doctor compare BASELINE CANDIDATE",
                restarts=False,
            )
        )
    yield Finding(
        about="answers",
        message="; ".join(quality.reasons) + (f"; {told}" if told else ""),
        evidence=_evidence(quality),
        fixes=tuple(fixes),
    )
