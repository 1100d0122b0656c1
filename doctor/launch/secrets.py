"""A launch without its secrets: what was set stays known, the value does not."""

from __future__ import annotations

import re
from dataclasses import replace

from infer_doctor.launch.model import Keyword, Launch, Variable, Word
from infer_doctor.redact import SECRET_NAME, SECRET_OPTION, without_secrets
from infer_doctor.secrets import may_be_shown

MASK = "<token>"

EXPRESSION = re.compile(r"[${`]")
"""A source that is an expression of the file, not the name of a secret or config map."""


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
    return tuple(_word(word, text) for word, text in zip(words, shown, strict=True))


def _word(word: Word, shown: str) -> Word:
    name, equals, value = word.text.partition("=")
    if equals and " " not in name and SECRET_OPTION.fullmatch(name):
        shown = word.text if may_be_shown(value) else f"{name}={MASK}"
    if not word.text or word.text == shown:
        return word
    if word.unknown is None:
        return word if may_be_shown(word.text) else replace(word, text=shown)
    return replace(word, text=shown, unknown=MASK) if _holds_default(word.text) else word


def _holds_default(expression: str) -> bool:
    """Whether an expression brings a value of its own: ${A:-KEY}, {{ .Values.a | default "KEY" }}."""
    return any(mark in expression for mark in (":-", "-", '"', "'", "`", "$("))


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
    if not SECRET_NAME.search(variable.name):
        return variable
    if variable.value and not may_be_shown(variable.value):
        return replace(variable, value=MASK)
    if variable.value is None and variable.source and EXPRESSION.search(variable.source):
        return replace(variable, source=MASK) if _holds_default(variable.source) else variable
    return variable
