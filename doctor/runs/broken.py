"""Answers that are broken by themselves: empty, loops, exclamation marks, another language, no JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from infer_doctor.runs.answers import Answer
from infer_doctor.runs.prompts import Prompt

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


Row = tuple[Prompt, Answer, Answer]
"""A prompt, the baseline's answer, the candidate's."""


def counts(rows: Sequence[Row]) -> dict[str, tuple[int, int]]:
    """How many answers of each side are broken in each way."""
    tests: dict[str, Callable[[Prompt, Answer], bool]] = {
        "empty": lambda _, answer: not _end(answer).strip(),
        "loops": lambda _, answer: loops(answer),
        "marks": lambda _, answer: bool(MARKS.search(answer.whole)),
        "language": _switched,
        "format": _no_json,
        "sampled": lambda _, answer: _sampled(answer),
    }
    return {
        name: (sum(test(p, one) for p, one, _ in rows), sum(test(p, two) for p, _, two in rows))
        for name, test in tests.items()
    }


def _end(answer: Answer) -> str:
    """What was to be read; thoughts that were cut off are an answer still."""
    return answer.whole if answer.finish == "length" else answer.text


def loops(answer: Answer) -> bool:
    """Whether the end of the answer repeats one piece at least three times."""
    words = answer.tokens or tuple(answer.whole)
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


def distinct(answers: Sequence[Answer]) -> float:
    """distinct-2: different pairs of neighbours over all pairs, the mean of the answers."""
    found = []
    for answer in answers:
        words = answer.tokens or tuple(answer.whole)
        neighbours = list(pairwise(words))
        if neighbours:
            found.append(len(set(neighbours)) / len(neighbours))
    return round(sum(found) / len(found), 4) if found else 0.0
