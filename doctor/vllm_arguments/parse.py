"""A command line of `vllm serve` -> what each word sets, as argparse reads it.

argparse itself stops at the first fault and forgets where a word stood; here every fault is noted
with its place. Rules: Lib/argparse.py of CPython 3.10 to 3.13 (_parse_optional,
_get_option_tuples, consume_optional); tests compare with the real parser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from infer_doctor.frozen import frozen
from infer_doctor.launch.model import Keyword, Unknown, Word
from infer_doctor.vllm_arguments.table import TAKES_NOTHING, Row, Table, catalogue, ordered
from infer_doctor.vllm_arguments.values import (
    BadValue,
    choice_problem,
    convert,
    range_problem,
)
from infer_doctor.vllm_arguments.words import (
    Token,
    from_config,
    joined,
    model_to_front,
    rewritten,
    tokens_of,
    without_config,
)

VALUE_LIKE = re.compile(r"-?[\d.]+\w?|true|false|none|auto|[{\[].*", re.I | re.S)
"""What no model is called."""

SEVERAL = re.compile(
    r"\$[@*]|\[[@*]\]|args?\b|args?_|_args|opts|options|flags|params|extra|:?-\}$", re.I
)
"""An expression that may stand for several words or none: "$@", "${ARGS[@]}", $EXTRA_ARGS, ${X:-}."""

NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")

COUNTS = {"+": (1, 10**6), "*": (0, 10**6), "?": (0, 1)}
"""nargs -> fewest and most values; one value where there is none."""

WORD_SINCE = (0, 10, 0, 0, 0)
"""From here python -m ...api_server takes a word too, and ignores it (make_arg_parser)."""

Fault = Literal[
    "unknown-option",
    "ambiguous",
    "type",
    "choice",
    "range",
    "missing-value",
    "no-value-taken",
    "leftover",
    "one-word",
    "model-option",
    "name-before-model",
]


@frozen
class Setting:
    """One option that was set."""

    row: Row
    option: str
    """The full option string, prefixes completed."""
    token: Token
    texts: tuple[str, ...]
    value: Any


@frozen
class Bad:
    """A word that the parser refuses; `words` completes what is said of it."""

    fault: Fault
    token: Token
    text: str | None = None
    words: str = ""
    row: Row | None = None
    option: str = ""
    candidates: tuple[str, ...] = ()


@frozen
class Parsed:
    """What a command line sets, in the order of its words."""

    settings: tuple[Setting, ...]
    bad: tuple[Bad, ...]
    model: Token | None
    repeated: tuple[Token, ...]
    """Nested keys that were given twice."""
    gaps: tuple[str, ...]


def parse(words: Sequence[Word], config: Sequence[Keyword], table: Table, *, serve: bool) -> Parsed:
    """`serve`: `vllm serve`, which takes the model as a word; else python -m ...api_server."""
    tokens = tokens_of(words)
    bad: list[Bad] = []
    if serve:
        tokens, fault = _model_rules(tokens, table)
        bad += fault
    unread = [token for token in tokens if token.text.startswith("--config=")]
    asked = any(token.text == "--config" for token in tokens)
    keys = from_config(() if unread and not asked else config, table)
    tokens = without_config(tokens)
    first = serve and tokens and not tokens[0].text.startswith("-")
    whole = [*tokens[:1], *keys, *tokens[1:]] if first else [*keys, *tokens]
    ready = joined(rewritten(whole, table.marks), table.marks)
    bad += [
        Bad(fault="missing-value", token=token, option=token.text, words="needs a value")
        for token in ready.valueless
    ]
    here = ordered(table.version or "999")
    reader = _Reader(ready.words, table, takes_word=serve or here >= WORD_SINCE)
    reader.read()
    return Parsed(
        settings=tuple(reader.settings),
        bad=(*bad, *reader.bad),
        model=reader.model,
        repeated=ready.repeated,
        gaps=tuple(reader.gaps),
    )


def _model_rules(tokens: list[Token], table: Table) -> tuple[list[Token], list[Bad]]:
    """What parse_args() does about --model and --served-model-name before anything else."""
    bad: list[Bad] = []
    if "model-moved" in table.marks:
        tokens = model_to_front(tokens)
    else:
        for place, token in enumerate(tokens):
            if token.text == "--model":
                following = tokens[place + 1] if place + 1 < len(tokens) else None
                text = following.text if following else None
                bad.append(Bad(fault="model-option", token=token, text=text))
                moved = [following] if following else []
                tokens = [*moved, *tokens[:place], *tokens[place + 2 :]]
                break
    named = [t for t in tokens if re.match(r"--served[-_]model[-_]name(=.+|$)", t.text)]
    if (
        "name-before-model" in table.marks
        and tokens
        and tokens[0].text.startswith("-")
        and named
        and not any(re.match(r"--config(=.+|$)", token.text) for token in tokens)
    ):
        bad.append(Bad(fault="name-before-model", token=named[0]))
    return tokens, bad


class _Reader:
    """argparse's walk over the words."""

    def __init__(self, tokens: Sequence[Token], table: Table, *, takes_word: bool) -> None:
        self.tokens = tokens
        self.options = table.by_option
        self.settings: list[Setting] = []
        self.bad: list[Bad] = []
        self.gaps: list[str] = []
        self.model: Token | None = None
        self.takes_model = takes_word and "model_tag" in table.by_option
        self.kinds: list[str] = []
        """A: argument, O: option, -: the word "--"."""

    def read(self) -> None:
        """Go through all words."""
        only_arguments = False
        for token in self.tokens:
            if only_arguments:
                self.kinds.append("A")
            elif token.text == "--":
                self.kinds.append("-")
                only_arguments = True
            else:
                self.kinds.append("O" if self._is_option(token) else "A")
        place = 0
        while place < len(self.tokens):
            if self.kinds[place] == "O":
                place = self._option(place)
            elif self.kinds[place] == "A":
                self._argument(self.tokens[place], place)
                place += 1
            else:
                place += 1

    def _is_option(self, token: Token) -> bool:
        text = token.text
        if not text.startswith("-") or text == "-":
            return False
        if text in self.options or text.partition("=")[0] in self.options:
            return True
        if self._prefixed(text):
            return True
        return not NEGATIVE_NUMBER.fullmatch(text) and " " not in text

    def _prefixed(self, text: str) -> list[tuple[str, str | None]]:
        """(option string, explicit value) for every option that the word may abbreviate."""
        name, equals, value = text.partition("=")
        explicit = value if equals else None
        if text.startswith("--"):
            return [(one, explicit) for one in self._all() if one.startswith(name)]
        found: list[tuple[str, str | None]] = []
        for one in self._all():
            if one == text[:2]:
                found.append((one, text[2:]))
            elif one.startswith(text):
                found.append((one, None))
        return found

    def _all(self) -> list[str]:
        return [one for one in (*self.options, "-h", "--help") if one.startswith("-")]

    def _option(self, place: int) -> int:
        """An option and its values; the place of the next word."""
        token = self.tokens[place]
        text = token.text
        name, equals, value = text.partition("=")
        if text in self.options:
            return self._set(place, text, None)
        if equals and name in self.options:
            return self._set(place, name, value)
        found = self._prefixed(text)
        if not found:
            return self._unknown(place)
        if len(found) > 1:
            candidates = tuple(dict.fromkeys(one for one, _ in found))
            self.bad.append(Bad(fault="ambiguous", token=token, candidates=candidates))
            return place + 1
        option, explicit = found[0]
        if option not in self.options:  # --help: the engine prints and stops
            return place + 1
        return self._set(place, option, explicit)

    def _unknown(self, place: int) -> int:
        """An option that is not there; what follows is taken for its value where that is likely."""
        token = self.tokens[place]
        if token.unknown is not None:
            self.gaps.append(f"words that are not in the file: {token.unknown}")
            return place + 1
        name, equals, value = token.text.partition("=")
        text = value if equals else None
        step = 1
        if not equals and self._likely_value(name, place + 1):
            text = self.tokens[place + 1].text
            step = 2
        self.bad.append(Bad(fault="unknown-option", token=token, text=text, option=name))
        return place + step

    def _likely_value(self, name: str, place: int) -> bool:
        """Whether a word after an unknown option belongs to it rather than being the model."""
        if place >= len(self.tokens) or self.kinds[place] != "A":
            return False
        row = catalogue().last_row(name)
        if row is not None:
            return row.get("action") not in TAKES_NOTHING
        if self.model is not None or not self.takes_model:
            return True
        return VALUE_LIKE.fullmatch(self.tokens[place].text) is not None

    def _argument(self, token: Token, place: int) -> None:
        option = token.text.partition(" ")[0]
        if option.startswith("-") and option != token.text and token.unknown is None:
            name = "--" + option[2:].replace("_", "-") if option.startswith("--") else option
            if name in self.options:
                self.bad.append(Bad(fault="one-word", token=token, option=name))
                return
        before = self.model.unknown if self.model is not None else None
        shifted = before is not None and SEVERAL.search(before) and token.unknown is None
        if self.takes_model and (self.model is None or shifted):
            self.model = token
            if token.unknown is not None and SEVERAL.search(token.unknown):
                self.gaps.append(f"words that are not in the file: {token.unknown}")
        elif token.unknown is not None:
            self.gaps.append(f"words that are not in the file: {token.unknown}")
        else:
            last = self.settings[-1] if self.settings else None
            flag = (
                last.option
                if last
                and place
                and self.tokens[place - 1] is last.token
                and last.row.get("action") in TAKES_NOTHING
                else ""
            )
            self.bad.append(Bad(fault="leftover", token=token, text=token.text, option=flag))

    def _set(self, place: int, option: str, explicit: str | None) -> int:
        row = self.options[option]
        token = self.tokens[place]
        if row.get("action") in TAKES_NOTHING:
            return self._flag(place, option, explicit, row)
        if explicit is not None:
            self._values(row, option, token, [replace(token, text=explicit)])
            return place + 1
        count = self._arguments_after(place + 1)
        wanted = row.get("nargs")
        if row.get("action") == "store-boolean":
            wanted = "?"
        if isinstance(wanted, int):
            least, most = wanted, wanted
        else:
            least, most = COUNTS.get(str(wanted), (1, 1))
        if count < least:
            words = "needs at least one value" if wanted == "+" else "needs a value"
            if least > 1:
                words = f"needs {least} values"
            bad = Bad(fault="missing-value", token=token, words=words, row=row, option=option)
            self.bad.append(bad)
            return place + 1
        taken = min(count, most)
        self._values(row, option, token, list(self.tokens[place + 1 : place + 1 + taken]))
        return place + 1 + taken

    def _arguments_after(self, place: int) -> int:
        count = 0
        while place + count < len(self.tokens) and self.kinds[place + count] == "A":
            count += 1
        return count

    def _flag(self, place: int, option: str, explicit: str | None, row: Row) -> int:
        token = self.tokens[place]
        if explicit is not None:
            bad = Bad(fault="no-value-taken", token=token, text=explicit, row=row, option=option)
            self.bad.append(bad)
            return place + 1
        action = row.get("action")
        value: Any = row.get("const", True)
        if action == "flag-no":
            value = not option.startswith("--no-")
        elif action == "flag-false":
            value = False
        self._add(row, option, token, (), value)
        return place + 1

    def _values(self, row: Row, option: str, token: Token, given: list[Token]) -> None:
        """Convert what follows an option; what is not known is Unknown."""
        texts = tuple(one.text for one in given)
        if not given:
            value = True if row.get("action") == "store-boolean" else row.get("const")
            self._add(row, option, token, texts, value)
            return
        values = []
        for one in given:
            if one.unknown is not None:
                values.append(Unknown(one.unknown))
                continue
            try:
                value = convert(one.text, row)
            except BadValue as error:
                self._refuse("type", token, one.text, str(error), row, option)
                return
            words = choice_problem(value, row)
            if words is not None:
                self._refuse("choice", token, one.text, words, row, option)
                return
            words = range_problem(value, row)
            if words is not None:
                self._refuse("range", token, one.text, words, row, option)
            if value is not None or str(row.get("type", "")) != "lora":
                values.append(value)
        several = row.get("nargs") in ("+", "*") or isinstance(row.get("nargs"), int)
        if row.get("action") == "append":
            before = [s for s in self.settings if s.row is row]
            values = [*(before[-1].value if before else []), *values]
            several = True
        self._add(row, option, token, texts, values if several else values[0])

    def _refuse(
        self, fault: Fault, token: Token, text: str, words: str, row: Row, option: str
    ) -> None:
        self.bad.append(
            Bad(fault=fault, token=token, text=text, words=words, row=row, option=option)
        )

    def _add(self, row: Row, option: str, token: Token, texts: tuple[str, ...], value: Any) -> None:
        self.settings.append(
            Setting(
                row=row,
                option=option,
                token=token,
                texts=texts,
                value=value,
            )
        )
