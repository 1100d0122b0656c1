"""What `pip install` lines before an engine install: the requirements as they are written."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence

from infer_doctor.launch.model import Word

VALUED = re.compile(
    r"-[rceit]|--(?:requirement|constraint|editable|target|index-url|extra-index-url|find-links|"
    r"prefix|root|python|upgrade-strategy|timeout|retries|trusted-host|cache-dir|torch-backend)"
)
"""Options of pip install that take the next word (pip 25, `pip install --help`)."""

INSTALLERS = re.compile(r"pip(?:3(?:\.\d+)?)?")


def requirements(words: Sequence[Word]) -> Iterator[Word]:
    """The requirements of one command; none when it is no `pip install`."""
    texts = [word.text for word in words]
    for index in range(len(texts) - 1):
        if INSTALLERS.fullmatch(posixpath.basename(texts[index])) and texts[index + 1] == "install":
            yield from _named(words[index + 2 :])
            return


def of_commands(commands: Iterable[Sequence[Word]]) -> tuple[Word, ...]:
    """Those of several commands, in order."""
    return tuple(word for words in commands for word in requirements(words))


def _named(words: Sequence[Word]) -> Iterator[Word]:
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.text.startswith("-"):
            skip = VALUED.fullmatch(word.text) is not None
        else:
            yield word
