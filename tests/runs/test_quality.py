"""The statistics of a comparison, on answers made of known distributions."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from infer_doctor.runs.answers import Answer, Answers
from infer_doctor.runs.prompts import Prompt, built_in
from infer_doctor.runs.quality import bounds, compare, divergence, loops, pair

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


@pytest.mark.parametrize("seed", range(20))
def test_divergence_of_the_top_is_no_more_than_that_of_all(seed: int) -> None:
    chance = random.Random(seed)

    def logs() -> dict[str, float]:
        values = [math.exp(chance.gauss(0, 2)) for _ in range(40)]
        return {str(i): math.log(value / sum(values)) for i, value in enumerate(values)}

    def top(row: dict[str, float]) -> dict[str, float]:
        return dict(sorted(row.items(), key=lambda item: -item[1])[:5])

    one = logs()
    near = {key: value + chance.gauss(0, 0.02) for key, value in one.items()}
    total = math.log(sum(map(math.exp, near.values())))
    near = {key: value - total for key, value in near.items()}
    exact = sum(math.exp(p) * (p - near[key]) for key, p in one.items())
    if set(top(one)) == set(top(near)):
        assert divergence(top(one), top(near)) <= exact + 1e-9


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


def test_bounds_hold_the_mean() -> None:
    found = bounds([0.0, 1.0] * 50)
    assert found is not None and found.low < found.value == 0.5 < found.high
    assert bounds([]) is None
