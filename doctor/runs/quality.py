"""Two sets of greedy answers to the same prompts -> degraded, same, or cannot tell.

All statistics are over prompts, which are independent of each other; tokens of one answer are not.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from infer_doctor.facts.run import Bounds, Quality
from infer_doctor.frozen import frozen
from infer_doctor.runs.answers import BY_ID, Answer, Answers
from infer_doctor.runs.broken import Row, counts, distinct
from infer_doctor.runs.prompts import Prompt
from infer_doctor.units import plural

DIVERGENCE = 0.03
"""Mean KL divergence in nats that counts as degraded: what 4-bit weights cost and 8-bit ones do not.
Of Llama 3 8B against fp16: 0.0014 with q8_0, 0.0055 with q6_K, 0.0108 with q5_K_M, 0.0313 with q4_K_M
(llama.cpp, examples/perplexity/README.md, revision f364eb6f)."""

PERPLEXITY = 0.03
"""Mean log ratio of the perplexity of the baseline's own text: by the same table 0.0004 with q8_0,
0.0035 with q6_K, 0.0278 with q4_K_M, 0.45 with q2_K."""

NOISE_FACTOR = 3.0
"""Two runs of one server differ too (other batches, other kernels): what is not three times as much is
not told apart from that."""

UNANSWERED = 0.1
"""Of the prompts: where more got no answer because a server was busy or away, nothing is called the
same; ours."""

ALIKE = 4
"""Characters with which two answers begin alike; if their first tokens differ all the same, then tokens
are cut or named otherwise."""

FEWEST_ALIKE = 3
"""Answers that show it; one alone may be spelled with other tokens by chance."""

FEWEST = 20
"""Prompts with fewer no bound of a mean says much."""

RESAMPLES = 1000
NORMAL = 5000
"""Prompts from which the mean is normal enough: a thousand samples of a hundred thousand take minutes."""

NORMAL_95 = 1.96
SURE = 0.01
"""Of the sign test for broken answers: one in a hundred by chance."""


@frozen
class Pair:
    """The measures of one prompt."""

    prompt: str
    agreement: float
    """Share of the baseline's tokens until the first difference."""
    first: int | None
    divergence: float | None
    worse: float | None
    """Mean log probability that the candidate takes from the baseline's own tokens."""
    length: int = 0
    """Of the longer answer, in tokens or characters."""


def pair(baseline: Answer, candidate: Answer) -> Pair:
    """Positions count until the first difference: after it the contexts are others."""
    if _form(baseline) != _form(candidate):  # another API, that names tokens otherwise
        baseline, candidate = (
            dataclasses.replace(row, tokens=(), top=()) for row in (baseline, candidate)
        )
    one = baseline.tokens or tuple(baseline.whole)
    other = candidate.tokens or tuple(candidate.whole)
    same = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        same += 1
    longest = max(len(one), len(other))
    first = same if same < longest else None
    tops = list(zip(baseline.top, candidate.top, strict=False))[: same + 1]
    values = [divergence(left, right) for left, right in tops if left and right]
    worse = None
    if candidate.scored and len(candidate.scored) <= len(baseline.logprobs):
        count = len(candidate.scored)
        worse = sum(baseline.logprobs[:count]) - sum(candidate.scored)
        worse /= count
    return Pair(
        prompt=baseline.prompt,
        agreement=same / longest if longest else 1.0,
        first=first,
        divergence=sum(values) / len(values) if values else None,
        worse=worse,
        length=longest,
    )


def _form(answer: Answer) -> tuple[bool, bool]:
    """Whether it has tokens, and those by their ids."""
    return bool(answer.tokens), any(token.startswith(BY_ID) for token in answer.tokens)


def divergence(baseline: Mapping[str, float], candidate: Mapping[str, float]) -> float:
    """KL divergence in nats, as small as the two lists of top tokens allow: never more than the true one.

    Known are the shares of the tokens that both list, of those that one lists alone (each has at most
    the other's last one there), and what is left. How the unknown shares divide is chosen so that the
    sum, which is convex in them, is least.
    """
    own = {token: math.exp(value) for token, value in baseline.items()}
    other = {token: math.exp(value) for token, value in candidate.items()}
    both = own.keys() & other.keys()
    total = sum(_part(own[token], other[token]) for token in both)
    missing = [share for token, share in own.items() if token not in both]
    added = [share for token, share in other.items() if token not in both]
    gone, come = sum(missing), sum(added)
    left, rest = (max(0.0, 1.0 - sum(row.values())) for row in (own, other))
    most_gone = len(missing) * min(other.values(), default=1.0)
    most_come = min(left, len(added) * min(own.values(), default=1.0))
    share = min(most_come, _ratio((gone + left) * come, come + rest))
    taken = rest * _ratio(gone, gone + left - share)
    if taken > most_gone:
        taken = most_gone
        share = min(most_come, _ratio(left * come, come + rest - taken))
    total += _part(share, come) + _part(gone, taken) + _part(left - share, rest - taken)
    return max(0.0, total)


LEAST = 1e-6
"""Of a probability: engines compute log probabilities in 32 bits, and print some digits of them."""


def _part(share: float, other: float) -> float:
    return share * math.log(share / max(other, LEAST)) if share > 0 else 0.0


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def bounds(values: Sequence[float], seed: int = 0) -> Bounds | None:
    """The mean and its 95 % by resampling prompts."""
    if not values:
        return None
    if len(values) >= NORMAL:
        mean = statistics.fmean(values)
        half = NORMAL_95 * statistics.stdev(values, mean) / math.sqrt(len(values))
        return Bounds(value=mean, low=mean - half, high=mean + half)
    chance = random.Random(seed)  # noqa: S311
    count = len(values)
    means = sorted(sum(chance.choices(values, k=count)) / count for _ in range(RESAMPLES))
    return Bounds(
        value=sum(values) / count,
        low=means[int(RESAMPLES * 0.025)],
        high=means[int(RESAMPLES * 0.975) - 1],
    )


def compare(
    prompts: Sequence[Prompt],
    baseline: Answers,
    candidate: Answers,
    *,
    again: Answers | None = None,
) -> Quality:
    """The verdict; `again` is the baseline asked a second time, for what differs by itself."""
    rows = [
        (prompt, baseline.rows[prompt.id], candidate.rows[prompt.id])
        for prompt in prompts
        if prompt.id in baseline.rows and prompt.id in candidate.rows
    ]
    good = [row for row in rows if not row[1].error and not row[2].error]
    gaps = _gaps(rows)
    if _are_cut_otherwise(good):
        good = [(prompt, _as_text(one), _as_text(other)) for prompt, one, other in good]
        gaps.append(
            "the two cut or name tokens otherwise (another tokenizer, or another engine): only equal "
            "texts can be told"
        )
    pairs = [pair(one, other) for _, one, other in good]
    noise = _noise(baseline, again)
    divergences = _enough([row.divergence for row in pairs if row.divergence is not None])
    perplexity = _enough([row.worse for row in pairs if row.worse is not None])
    broken = counts(good)
    reasons = _reasons(divergences, perplexity, noise, broken)
    failed = [r for r in rows if r[2].error and not r[2].passing and not r[1].error]
    spared = sum(bool(r[1].error) and not r[1].passing and not r[2].error for r in rows)
    lost = False
    if baseline.chat and candidate.chat is False:
        lost = True
        reasons.append("the candidate takes no chats, as a model without a chat template")
    if _more(spared, len(failed)):
        lost = True
        reasons.append(f"{len(failed)} of {len(rows)} prompts failed: {failed[0][2].error}")
    first = [row.first for row in pairs if row.first is not None]
    verdict = "degraded" if lost else _verdict(reasons, divergences, perplexity, pairs)
    if verdict == "same" and _passed(rows) > UNANSWERED * len(rows):
        verdict = "cannot-tell"
    if verdict == "cannot-tell" and divergences is None and len(pairs) >= FEWEST and not gaps:
        gaps.append(
            "the texts differ, and without log probabilities of both nothing tells whether they are worse"
        )
    worst = sorted(pairs, key=lambda row: -(row.divergence or 0.0))[:3]
    names = {prompt.id: prompt.name for prompt in prompts}
    return Quality(
        baseline=baseline.name,
        candidate=candidate.name,
        prompts=len(prompts),
        compared=len(good),
        verdict=verdict,
        reasons=tuple(reasons),
        agreement=bounds([row.agreement for row in pairs]),
        first_difference=sorted(first)[len(first) // 2] if first else None,
        divergence=divergences,
        noise=noise,
        perplexity=perplexity,
        **broken,  # type: ignore[arg-type]
        distinct=(distinct([r[1] for r in good]), distinct([r[2] for r in good])),
        worst=tuple(names[row.prompt] for row in worst if row.divergence),
        models=(baseline.model, candidate.model),
        refused=sum(bool(row[1].error) and bool(row[2].error) for row in rows),
        gaps=tuple(gaps) if verdict == "cannot-tell" else (),
    )


def _passed(rows: Sequence[Row]) -> int:
    """Prompts that got no answer for a reason that says nothing about the model."""
    return sum(one.passing or other.passing for _, one, other in rows)


def _gaps(rows: Sequence[Row]) -> list[str]:
    said = Counter(side.error for row in rows for side in row[1:] if side.passing)
    if not said:
        return []
    told = said.most_common(1)[0][0]
    return [f"{_passed(rows)} of {plural(len(rows), 'prompt')} got no answer: {told}"]


def _are_cut_otherwise(rows: Sequence[Row]) -> bool:
    """Whether answers that begin alike differ in their first tokens: those cannot be compared."""
    alike = [
        one.tokens[0] != other.tokens[0]
        for _, one, other in rows
        if one.tokens
        and other.tokens
        and _form(one) == _form(other)
        and one.whole[:ALIKE] == other.whole[:ALIKE] != ""
    ]
    return sum(alike) >= max(FEWEST_ALIKE, len(alike) / 2)


def _as_text(answer: Answer) -> Answer:
    return dataclasses.replace(answer, tokens=(), top=(), logprobs=(), scored=())


def _enough(values: Sequence[float]) -> Bounds | None:
    """Log probabilities that came for few of the prompts stand for none: their bounds are no bounds."""
    return bounds(values) if len(values) >= FEWEST else None


def _noise(baseline: Answers, again: Answers | None) -> Bounds | None:
    if again is None:
        return None
    found = [
        pair(baseline.rows[id], row)
        for id, row in again.rows.items()
        if id in baseline.rows and not row.error and not baseline.rows[id].error
    ]
    return bounds([row.divergence for row in found if row.divergence is not None])


def limit(noise: Bounds | None) -> float:
    """From which divergence on the answers are others."""
    return max(DIVERGENCE, NOISE_FACTOR * noise.high) if noise is not None else DIVERGENCE


def _reasons(
    divergences: Bounds | None,
    perplexity: Bounds | None,
    noise: Bounds | None,
    broken: Mapping[str, tuple[int, int]],
) -> list[str]:
    found = []
    most = limit(noise)
    if divergences is not None and divergences.low > most:
        found.append(
            f"the distributions of the next token differ by {divergences.value:.3f} nats "
            f"({divergences.low:.3f} to {divergences.high:.3f}; bound {most:.3f})"
        )
    if perplexity is not None and perplexity.low > PERPLEXITY:
        found.append(
            f"the baseline's text is {(math.exp(perplexity.value) - 1) * 100:.1f} % less likely a "
            f"token (bound {(math.exp(PERPLEXITY) - 1) * 100:.0f} %)"
        )
    words = {
        "empty": "answers are empty",
        "loops": "answers end in a loop",
        "marks": "answers are rows of exclamation marks",
        "language": "answers are in another language",
        "format": "answers that should be JSON are none",
        "sampled": "answers hold tokens that were not the most likely: a penalty or a sampling "
        "default is in force",
    }
    for name, (before, now) in broken.items():
        if _more(before, now):
            found.append(f"{now} {words[name]}, {before} of the baseline's")
    return found


def _more(before: int, now: int) -> bool:
    """Sign test on answers that only one side has broken (at most as sharp as on discordant pairs)."""
    if now <= before:
        return False
    total = now + before
    chance: float = sum(math.comb(total, k) for k in range(now, total + 1)) / 2.0**total
    return chance < SURE


def _verdict(
    reasons: Sequence[str],
    divergences: Bounds | None,
    perplexity: Bounds | None,
    pairs: Sequence[Pair],
) -> Literal["degraded", "same", "cannot-tell"]:
    if len(pairs) < FEWEST:
        return "cannot-tell"
    if reasons:
        return "degraded"
    if divergences is None:  # no log probabilities: only equal texts prove sameness
        told = sum(row.length > 0 for row in pairs)
        alike = told >= FEWEST and all(row.first is None for row in pairs)
        return "same" if alike else "cannot-tell"
    near = (
        divergences.high > DIVERGENCE
    )  # a larger limit comes of noise, which hides what is below it
    worse = perplexity is not None and perplexity.high > PERPLEXITY
    return "cannot-tell" if near or worse else "same"
