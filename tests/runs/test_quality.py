"""The statistics of a comparison, on answers made of known distributions."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from infer_doctor.runs.answers import Answer, Answers
from infer_doctor.runs.broken import loops
from infer_doctor.runs.prompts import Prompt, built_in
from infer_doctor.runs.quality import _more, bounds, compare, divergence, pair

TOKENS = 24


def answer(prompt: Prompt, chance: random.Random, error: float, noise: random.Random) -> Answer:
    """Greedy tokens of random logits; `error` is the deviation of what is added to each."""
    tokens, top, values = [], [], []
    for _ in range(TOKENS):
        logits = [chance.gauss(0, 3) for _ in range(50)]
        logits = [value + noise.gauss(0, error) for value in logits]
        total = math.log(sum(map(math.exp, logits)))
        best = sorted(range(50), key=lambda place: -logits[place])[:5]
        tokens.append(str(best[0]))
        values.append(logits[best[0]] - total)
        top.append({str(place): logits[place] - total for place in best})
    return Answer(
        prompt=prompt.id,
        text=" ".join(tokens),
        tokens=tuple(tokens),
        logprobs=tuple(values),
        top=tuple(top),
    )


def answers(name: str, error: float, seed: int, prompts: tuple[Prompt, ...]) -> Answers:
    noise = random.Random(seed)
    rows = {p.id: answer(p, random.Random(p.id), error, noise) for p in prompts}
    return Answers(name=name, model="m", rows=rows)


PROMPTS = built_in()


def test_the_built_in_prompts() -> None:
    kinds = [prompt.kind for prompt in PROMPTS]
    assert len(PROMPTS) >= 100
    assert {"english", "chinese", "code", "arithmetic", "json", "long"} == set(kinds)
    assert len({prompt.id for prompt in PROMPTS}) == len(PROMPTS)
    assert len({prompt.text for prompt in PROMPTS}) == len(PROMPTS)
    assert max(len(prompt.text) for prompt in PROMPTS if prompt.kind == "long") > 5000


def test_divergence_is_that_of_the_whole_where_all_is_listed() -> None:
    one = {"a": math.log(0.5), "b": math.log(0.5 - 1e-9)}
    other = {"a": math.log(0.9), "b": math.log(0.1 - 1e-9)}
    exact = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    assert divergence(one, other) == pytest.approx(exact, rel=1e-4)
    assert divergence(one, one) == pytest.approx(0, abs=1e-9)


def logs(**shares: float) -> dict[str, float]:
    return {token: math.log(share) for token, share in shares.items()}


@pytest.mark.parametrize(
    ("one", "other", "nats"),
    [
        # 0.6 ln 2 - 0.3 ln 2, the rest of 0.1 is equal
        (logs(a=0.6, b=0.3), logs(a=0.3, b=0.6), 0.3 * math.log(2)),
        # 0.9 has at most the other's rest of 0.1, and 0.9 there at most the own rest of 0.1
        (logs(a=0.9), logs(b=0.9), 0.8 * math.log(9)),
        # b and c may have the other's whole rest as they have 0.3 and 0.1 of 0.5 here
        (logs(a=0.5, b=0.3, c=0.1), logs(a=0.5), 0.0),
        # c is below the other's last one: 0.2 and not the rest of 0.4
        (logs(a=0.4, c=0.4), logs(a=0.4, b=0.2), 0.4 * math.log(2) + 0.2 * math.log(0.2 / 0.4)),
        (logs(a=1.0), logs(a=1.0), 0.0),
    ],
)
def test_divergence_by_hand(one: dict[str, float], other: dict[str, float], nats: float) -> None:
    assert divergence(one, other) == pytest.approx(nats, abs=1e-6)


def test_divergence_of_the_top_is_no_more_than_that_of_all() -> None:
    """Random distributions, sharp and flat ones, near and far; lists of different lengths."""
    shares = []
    for seed in range(2000):
        chance = random.Random(seed)
        count, heat = chance.choice([6, 10, 50, 300]), chance.choice([0.3, 1.0, 3.0, 6.0])
        error = chance.choice([0.01, 0.1, 0.5, 2.0, 6.0])
        base = [chance.gauss(0, heat) for _ in range(count)]
        one = normalised(base)
        other = normalised([value + chance.gauss(0, error) for value in base])
        exact = sum(math.exp(p) * (p - q) for p, q in zip(one, other, strict=True))
        found = divergence(top(one, chance.choice([1, 5, 20])), top(other, chance.choice([1, 5])))
        assert found <= exact + 1e-6, seed
        if error <= 0.5 and heat <= 3.0:  # no share below what is told apart
            whole = divergence(top(one, count), top(other, count))
            assert whole == pytest.approx(exact, rel=0.01, abs=1e-4), seed
        if exact > 0.01:
            shares.append(divergence(top(one, 5), top(other, 5)) / exact)
    assert sorted(shares)[len(shares) // 2] > 0.5  # and of use


def normalised(logits: list[float]) -> list[float]:
    total = math.log(sum(map(math.exp, logits)))
    return [value - total for value in logits]


def top(row: list[float], count: int) -> dict[str, float]:
    best = sorted(range(len(row)), key=lambda place: -row[place])[:count]
    return {str(place): row[place] for place in best}


@pytest.mark.parametrize("seed", range(20))
def test_a_perturbed_model_is_told_and_the_same_is_not(seed: int) -> None:
    prompts = tuple(random.Random(seed).sample(PROMPTS, 60))
    first = answers("a", 0.02, 1, prompts)
    again = answers("a", 0.02, 2, prompts)
    same = answers("b", 0.02, seed + 10, prompts)
    worse = answers("b", 0.6, seed + 10, prompts)
    assert compare(prompts, first, same, again=again).verdict == "same"
    found = compare(prompts, first, worse, again=again)
    assert found.verdict == "degraded" and "nats" in found.reasons[0]


def test_a_baseline_that_differs_from_itself_hides_the_candidate() -> None:
    first, again, other = (answers("a", 0.6, seed, PROMPTS) for seed in (1, 2, 3))
    assert compare(PROMPTS, first, other).verdict == "degraded"
    assert compare(PROMPTS, first, other, again=again).verdict == "cannot-tell"


def test_few_prompts_do_not_tell() -> None:
    some = PROMPTS[:8]
    found = compare(some, answers("a", 0.0, 1, some), answers("b", 2.0, 1, some))
    assert found.verdict == "cannot-tell" and found.compared == 8


def test_without_log_probabilities_only_equal_texts_are_the_same() -> None:
    def bare(text: str) -> Answers:
        rows = {p.id: Answer(prompt=p.id, text=f"{p.id} {text}") for p in PROMPTS}
        return Answers(name=text, model="m", rows=rows)

    assert compare(PROMPTS, bare("a"), bare("a")).verdict == "same"
    assert compare(PROMPTS, bare("a"), bare("b")).verdict == "cannot-tell"


def test_log_probabilities_of_few_answers_do_not_stand_for_all() -> None:
    whole = answers("a", 0.0, 1, PROMPTS)
    some = dict.fromkeys([prompt.id for prompt in PROMPTS[:5]])
    rows = {
        id: row if id in some else replace(row, tokens=(), top=(), text=f"{row.text} or not")
        for id, row in whole.rows.items()
    }
    assert compare(PROMPTS, whole, replace(whole, rows=rows)).verdict == "cannot-tell"


def test_broken_answers() -> None:
    sound = Answers(
        name="a",
        model="m",
        rows={p.id: Answer(prompt=p.id, text='{"a": 1}', tokens=("{",)) for p in PROMPTS},
    )

    def all_say(text: str) -> tuple[str, ...]:
        rows = {p.id: Answer(prompt=p.id, text=text, tokens=tuple(text)) for p in PROMPTS}
        return compare(PROMPTS, sound, Answers(name="b", model="m", rows=rows)).reasons

    assert all_say("") == ("110 answers are empty, 0 of the baseline's", *all_say("")[1:])
    assert any("exclamation marks" in row for row in all_say("!" * 40))
    assert any("end in a loop" in row for row in all_say("so on. " * 9))
    assert any("no JSON" in row or "JSON are none" in row for row in all_say("no"))
    assert any("another language" in row for row in all_say("这是一个很长的回答用来测试语言"))


def test_a_loop_needs_three_rounds() -> None:
    assert loops(Answer(prompt="p", tokens=tuple("abc" * 9)))
    assert not loops(Answer(prompt="p", tokens=tuple("abcdefghijklmnopqrstuvwxyz")))
    assert not loops(Answer(prompt="p", tokens=tuple("aaa")))


def test_agreement_ends_at_the_first_difference() -> None:
    one = Answer(prompt="p", tokens=("a", "b", "c", "d"))
    two = Answer(prompt="p", tokens=("a", "b", "x", "d"))
    found = pair(one, two)
    assert found.agreement == 0.5 and found.first == 2
    assert pair(one, one).first is None


def test_bounds_are_those_of_theory() -> None:
    """Of a normal sample: mean and 1.96 standard errors; 95 of 100 such bounds hold the truth."""
    chance = random.Random(1)
    held = 0
    for seed in range(100):
        values = [chance.gauss(0.05, 0.02) for _ in range(60)]
        found = bounds(values, seed)
        assert found is not None
        mean = sum(values) / len(values)
        spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))
        assert found.value == pytest.approx(mean)
        assert found.low == pytest.approx(mean - 1.96 * spread, abs=0.4 * spread)
        assert found.high == pytest.approx(mean + 1.96 * spread, abs=0.4 * spread)
        held += found.low <= 0.05 <= found.high
    assert 89 <= held <= 99


def test_perplexity_by_hand() -> None:
    """Three tokens at -1, -2, -3 that the other gives -1.5, -2.5, -3.5: half a nat a token."""
    one = Answer(prompt="p", tokens=("a", "b", "c"), logprobs=(-1.0, -2.0, -3.0))
    two = replace(one, scored=(-1.5, -2.5, -3.5))
    assert pair(one, two).worse == pytest.approx(0.5)
    assert pair(one, replace(one, scored=(-1.0, -2.0))).worse == pytest.approx(0.0)
    assert pair(one, one).worse is None


def test_distinct_neighbours_by_hand() -> None:
    """a b a b a: 4 pairs, 2 of them different; the second answer has 2 of 2."""
    rows = {
        PROMPTS[0].id: Answer(prompt=PROMPTS[0].id, tokens=tuple("ababa")),
        PROMPTS[1].id: Answer(prompt=PROMPTS[1].id, tokens=tuple("abc")),
    }
    both = Answers(name="a", model="m", rows=rows)
    assert compare(PROMPTS, both, both).distinct == (0.75, 0.75)


@pytest.mark.parametrize(
    ("before", "now", "told"), [(0, 6, False), (0, 7, True), (7, 19, False), (7, 20, True)]
)
def test_the_sign_test_by_hand(before: int, now: int, told: bool) -> None:
    """2^-6 is 1.56 % and 2^-7 0.78 %; 19 or more of 26 are 1.45 %, 20 or more of 27 0.96 %."""
    assert _more(before, now) is told


def test_prompts_that_only_the_candidate_fails() -> None:
    whole = answers("a", 0.0, 1, PROMPTS)

    def failing(count: int) -> Answers:
        lost = {p.id: Answer(prompt=p.id, error="HTTP 500: CUDA error") for p in PROMPTS[:count]}
        return replace(whole, rows={**whole.rows, **lost})

    found = compare(PROMPTS, whole, failing(100))
    assert found.verdict == "degraded" and found.compared == 10
    assert found.reasons == ("100 of 110 prompts failed: HTTP 500: CUDA error",)
    assert compare(PROMPTS, whole, failing(6)).verdict == "same"
    assert compare(PROMPTS, failing(100), failing(100)).verdict == "cannot-tell"


def test_tokens_that_are_not_the_likeliest() -> None:
    """As a repetition penalty makes them: the log probabilities that a server tells are without it."""
    sound = answers("a", 0.0, 1, PROMPTS)
    rows = {}
    for id, row in sound.rows.items():
        second = sorted(row.top[3].values())[-2]
        values = (*row.logprobs[:3], second, *row.logprobs[4:])
        rows[id] = replace(row, logprobs=values, tokens=(*row.tokens[:3], "x", *row.tokens[4:]))
    found = compare(PROMPTS, sound, replace(sound, rows=rows))
    assert found.sampled == (0, 110) and found.verdict == "degraded"
    assert "110 answers hold tokens that were not the most likely" in found.reasons[0]


def test_bounds_hold_the_mean() -> None:
    found = bounds([0.0, 1.0] * 50)
    assert found is not None and found.low < found.value == 0.5 < found.high
    assert bounds([]) is None


def test_bounds_of_many_are_those_of_resampling() -> None:
    chance = random.Random(1)
    values = [chance.expovariate(20.0) for _ in range(4999)]
    few, many = bounds(values), bounds([*values, 0.05])
    assert few is not None and many is not None
    assert many.low == pytest.approx(few.low, rel=0.01)
    assert many.high == pytest.approx(few.high, rel=0.01)
