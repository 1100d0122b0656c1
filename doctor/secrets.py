"""Whether a text is a key that somebody wrote down, or only stands where one goes."""

from __future__ import annotations

import re

FORM = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{16,}|sk-(?:[a-z0-9]+-){0,2}[A-Za-z0-9_]{16,}|gh[po]_[A-Za-z0-9]{16,}"
    r"|(?:glpat|nvapi)-[A-Za-z0-9_-]{16,}|xox[abp]-[A-Za-z0-9-]{10,}|AKIA[0-9A-Z]{16})"
)
"""Keys that show by their form what they are, as in secret_tokens.MADE, but stricter: a name of an
algorithm, such as sk-ssh-ed25519, is none."""

PLACEHOLDER = re.compile(
    r"empty|none|null|dummy|fake|example|sample|placeholder|change|replace|insert|redact|masked"
    r"|your|here|todo|test|demo|local|not[-_ ]?(?:needed|used|required)|no[-_]?key|unused|any"
    r"|xxx|\*\*\*|\.\.\.|<|>|\$|\{|\}|%|api[-_]?key|token[-_]abc123|^vllm|^ollama|^lm-studio"
    r"|^sk-?$|^sk-(?:no|local|1234$)|^key$|^token$|^secret$|^password$|^bearer$",
    re.I,
)
"""What stands for a key in examples and for servers that want none."""

STANDS_FOR_KEY = re.compile(
    r"empty|none|null|dummy|fake|placeholder|change[-_]?me|redacted|unused|not[-_]needed"
    r"|no[-_]?key(?:[-_]required)?|sk-no-key-required|token-abc123|vllm|ollama|lm-studio|api[-_]?key"
    r"|key|token|secret|password|<[^<>]*>|\[[^\[\]]*\]|\{[^{}]*\}|\{\{[^{}\"']*\}\}|(?-i:\$[A-Z_][A-Z0-9_]*)"
    r"|\$\{\w+(?::?-|:?\?[^{}]*)?\}|\$\([\w.-]+\)|x+|\*+|\.+|(?:hf_|sk-)?(?:x+|\*+|\.+)"
    r"|(?:your|my|insert|replace|paste)(?:[-_ ](?:own|with|hf|hugging[-_]?face|openai|vllm|secret"
    r"|api|access|actual|real|the|your|here|key|token|value))+[-_ .!]*",
    re.I,
)
"""Texts that surely are no key and may be shown: also references that envsubst, a chart or Kubernetes
puts in, without a default that could be the key. PLACEHOLDER is wider, it only silences."""

SHORTEST = 8
"""Characters of a text that is taken for a key because of its name."""


def is_placeholder(text: str) -> bool:
    """Whether a text only stands where a key goes: EMPTY, sk-xxxx, ${KEY}, a path, a name."""
    if not text.strip() or PLACEHOLDER.search(text):
        return True
    letters = re.sub(r"^(?:sk-(?:proj-)?|hf_|nvapi-)", "", text)
    return len(set(letters.lower())) <= 4 or text.startswith(("/", "~", "./", "file:", "http"))


def may_be_shown(text: str) -> bool:
    """Whether the whole text is one that people write where a key goes."""
    return STANDS_FOR_KEY.fullmatch(text.strip()) is not None


def is_key(text: str, *, named: bool) -> bool:
    """Whether a text is a key: by its form, or, under the name of a key, by its look."""
    if FORM.search(text):
        return True
    return (
        named
        and len(text) >= SHORTEST
        and not re.search(r"\s", text)
        and any(character.isdigit() for character in text)
        and any(character.isalpha() for character in text)
    )
