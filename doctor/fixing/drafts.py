"""The files of a plan as they will be: several fixes may change one file, one after the other."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from infer_doctor.fixing.edits import edited
from infer_doctor.fixing.edits.common import AlreadySo, CannotEdit
from infer_doctor.fixing.files import Refused, current, real
from infer_doctor.fixing.witness import require
from infer_doctor.launch.model import COMMAND_LINE
from infer_doctor.model import Edit


class Drafts:
    """Texts by path. Lines of an edit count in the file as it was examined."""

    def __init__(self, command: Sequence[str] = ()) -> None:
        self._original: dict[str, str] = {COMMAND_LINE: shlex.join(command)}
        self._text: dict[str, str] = dict(self._original)

    def text(self, path: str) -> str:
        """The text with the changes so far; raises Refused when the file cannot be read."""
        if path not in self._text:
            content = current(path)
            if content is None:
                raise Refused(f"{path}: is not there")
            try:
                self._text[path] = self._original[path] = content.data.decode("utf-8")
            except UnicodeDecodeError:
                raise Refused(f"{path}: is not UTF-8 text") from None
        return self._text[path]

    def after(self, edits: Iterable[Edit]) -> dict[str, str]:
        """New texts by path; nothing is taken over. Raises Refused.

        What is already so is left out, but a fix of which all is already so changes nothing.
        """
        new: dict[str, str] = {}
        idle: AlreadySo | None = None
        for edit in edits:
            path = key(edit.file)
            text = new[path] if path in new else self.text(path)
            line = _now_at(self._original[path], text, edit.line)
            try:
                made = edited(replace(edit, line=line), text)
                if path != COMMAND_LINE:
                    require(edit, path, text, made)
                new[path] = made
            except AlreadySo as error:
                idle = error
            except CannotEdit as error:
                raise Refused(f"{edit.file}: {error}") from None
        if idle is not None and not new:
            raise Refused(str(idle))
        return new

    def now_at(self, path: str, line: int | None) -> int | None:
        """Where a line of the examined file stands now."""
        return _now_at(self._original[path], self._text[path], line)

    def take(self, new: dict[str, str]) -> None:
        """These are the texts now."""
        self._text.update(new)

    def reread(self) -> None:
        """Some of the changes were taken back: the files say what stands there."""
        for path in self._text:
            if path != COMMAND_LINE and (content := current(path)) is not None:
                self._text[path] = content.data.decode("utf-8")


def key(file: str) -> str:
    """A file by the name under which it is replaced."""
    return file if file == COMMAND_LINE else real(file)


def _now_at(original: str, text: str, line: int | None) -> int | None:
    """Where a line of the original stands now; one that was changed stands where it stood."""
    if line is None or original == text:
        return line
    old, new = original.split("\n"), text.split("\n")
    for _, begin, end, other, _ in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if begin <= line - 1 < end:
            return other + line - begin
    return line
