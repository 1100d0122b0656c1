"""A launch without its secrets: what was set stays known, the value does not."""

from __future__ import annotations

from dataclasses import replace

from infer_doctor.launch.model import Keyword, Launch, Variable, Word
from infer_doctor.redact import SECRET_NAME, SECRET_OPTION, without_secrets
from infer_doctor.secrets import may_be_shown

MASK = "<token>"


def masked(launch: Launch) -> Launch:
    """Values of secret options, keywords and variables as `<token>`.

    Empty and unknown ones stay, and words that only stand for a key: EMPTY, changeme.
    """
    return replace(
        launch,
        program=_words(launch.program),
        words=_words(launch.words),
        config=tuple(map(_keyword, launch.config)),
        keywords=tuple(map(_keyword, launch.keywords)),
        environment=tuple(map(_variable, launch.environment)),
    )


def _words(words: tuple[Word, ...]) -> tuple[Word, ...]:
    shown = without_secrets([word.text for word in words])
    return tuple(
        word
        if word.unknown or not word.text or word.text == text or may_be_shown(word.text)
        else replace(word, text=text)
        for word, text in zip(words, shown, strict=True)
    )


def _keyword(keyword: Keyword) -> Keyword:
    secret = SECRET_OPTION.fullmatch(f"--{keyword.name}")
    if secret is None or keyword.name.endswith("keyfile") or not keyword.value:
        return keyword
    if isinstance(keyword.value, str):
        return keyword if may_be_shown(keyword.value) else replace(keyword, value=MASK)
    if isinstance(keyword.value, (list, tuple)):
        return replace(keyword, value=[MASK for _ in keyword.value])
    return keyword


def _variable(variable: Variable) -> Variable:
    secret = variable.value and SECRET_NAME.search(variable.name)
    if secret and not may_be_shown(variable.value or ""):
        return replace(variable, value=MASK)
    return variable
