"""Two sets of greedy answers to the same prompts -> degraded, same, or cannot tell.

All statistics are over prompts, which are independent of each other; tokens of one answer are not.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from infer_doctor.facts.run import Bounds, Quality
from infer_doctor.frozen import frozen
from infer_doctor.runs.answers import BY_ID, Answer, Answers
from infer_doctor.runs.prompts import Prompt

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

FEWEST = 20
"""Prompts with fewer no bound of a mean says much."""

RESAMPLES = 1000
SURE = 0.01
"""Of the sign test for broken answers: one in a hundred by chance."""

SHORTEST_LOOP = 3
LOOP_TOKENS = 24
"""A period that fills the last 24 tokens at least three times is a loop."""

MARKS = re.compile(r"(?:!\s*){8,}")
"""What an fp16 overflow or a wrong kernel makes of every answer: token 0 of many tokenizers is "!"."""

TIE = 1e-3
"""Log probabilities that differ by less are printed the same, or were computed in another order."""

CJK = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
LATIN = re.compile(r"[A-Za-z]")
LETTERS = 12
"""Fewer letters tell no language."""


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


def pair(baseline: Answer, candidate: Answer) -> Pair:
    """Positions count until the first difference: after it the contexts are others."""
    if _form(baseline) != _form(candidate):  # another API, that names tokens otherwise
        baseline, candidate = (
            dataclasses.replace(row, tokens=(), top=()) for row in (baseline, candidate)
        )
    one = baseline.tokens or tuple(baseline.text)
    other = candidate.tokens or tuple(candidate.text)
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
    pairs = [pair(one, other) for _, one, other in good]
    noise = _noise(baseline, again)
    divergences = _enough([row.divergence for row in pairs if row.divergence is not None])
    perplexity = _enough([row.worse for row in pairs if row.worse is not None])
    broken = _broken(good)
    reasons = _reasons(divergences, perplexity, noise, broken)
    failed = [row for row in rows if row[2].error and not row[1].error]
    spared = sum(bool(row[1].error) and not row[2].error for row in rows)
    lost = False
    if baseline.chat and candidate.chat is False:
        lost = True
        reasons.append("the candidate takes no chats, as a model without a chat template")
    if _more(spared, len(failed)):
        lost = True
        reasons.append(f"{len(failed)} of {len(rows)} prompts failed: {failed[0][2].error}")
    first = [row.first for row in pairs if row.first is not None]
    worst = sorted(pairs, key=lambda row: -(row.divergence or 0.0))[:3]
    names = {prompt.id: prompt.name for prompt in prompts}
    return Quality(
        baseline=baseline.name,
        candidate=candidate.name,
        prompts=len(prompts),
        compared=len(good),
        verdict="degraded" if lost else _verdict(reasons, divergences, perplexity, pairs),
        reasons=tuple(reasons),
        agreement=bounds([row.agreement for row in pairs]),
        first_difference=sorted(first)[len(first) // 2] if first else None,
        divergence=divergences,
        noise=noise,
        perplexity=perplexity,
        **broken,  # type: ignore[arg-type]
        distinct=(_distinct([r[1] for r in good]), _distinct([r[2] for r in good])),
        worst=tuple(names[row.prompt] for row in worst if row.divergence),
    )


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
        return "same" if all(row.first is None for row in pairs) else "cannot-tell"
    near = (
        divergences.high > DIVERGENCE
    )  # a larger limit comes of noise, which hides what is below it
    worse = perplexity is not None and perplexity.high > PERPLEXITY
    return "cannot-tell" if near or worse else "same"


def _broken(rows: Sequence[tuple[Prompt, Answer, Answer]]) -> dict[str, tuple[int, int]]:
    """How many answers of each side are broken in each way."""
    tests: dict[str, Callable[[Prompt, Answer], bool]] = {
        "empty": lambda _, answer: not answer.text.strip(),
        "loops": lambda _, answer: loops(answer),
        "marks": lambda _, answer: bool(MARKS.search(answer.text)),
        "language": _switched,
        "format": _no_json,
        "sampled": lambda _, answer: _sampled(answer),
    }
    return {
        name: (sum(test(p, one) for p, one, _ in rows), sum(test(p, two) for p, _, two in rows))
        for name, test in tests.items()
    }


def loops(answer: Answer) -> bool:
    """Whether the end of the answer repeats one piece at least three times."""
    words = answer.tokens or tuple(answer.text)
    if len(words) < LOOP_TOKENS:
        return False
    for period in range(1, LOOP_TOKENS // SHORTEST_LOOP + 1):
        tail = words[-LOOP_TOKENS:]
        if all(tail[i] == tail[i + period] for i in range(len(tail) - period)):
            return True
    return False


def _switched(prompt: Prompt, answer: Answer) -> bool:
    chinese, latin = len(CJK.findall(answer.text)), len(LATIN.findall(answer.text))
    if chinese + latin < LETTERS:
        return False
    if prompt.language == "cjk":
        return chinese < latin / 4
    return prompt.language == "latin" and chinese > latin


def _sampled(answer: Answer) -> bool:
    """Whether a token was not the likeliest of its own list: temperature 0 alone never does that."""
    rows = zip(answer.logprobs, answer.top, strict=False)
    return any(top and value < max(top.values()) - TIE for value, top in rows)


def _no_json(prompt: Prompt, answer: Answer) -> bool:
    if prompt.format != "json" or answer.finish == "length":
        return False
    text = answer.text.strip()
    fenced = re.fullmatch(r"```(?:json)?\s*(.*?)\s*```", text, re.S)
    try:
        json.loads(fenced[1] if fenced else text)
    except ValueError:
        return True
    return False


def _distinct(answers: Sequence[Answer]) -> float:
    """distinct-2: different pairs of neighbours over all pairs, the mean of the answers."""
    found = []
    for answer in answers:
        words = answer.tokens or tuple(answer.text)
        neighbours = list(pairwise(words))
        if neighbours:
            found.append(len(set(neighbours)) / len(neighbours))
    return round(sum(found) / len(found), 4) if found else 0.0
