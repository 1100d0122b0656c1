"""Programs that start a command in a place of their own: a terminal, another machine, a supervisor.

What they start is looked for, not parsed: a word that is a whole command line, or the words from the
engine's own name on.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from infer_doctor.launch.model import Launch, Variable, Word

if TYPE_CHECKING:
    from infer_doctor.launch.command import Around

LOCAL = ("eval", "tmux", "screen", "byobu", "su", "runuser", "flock", "pm2", "supervise", "script")
ELSEWHERE = ("ssh", "mosh", "ray", "singularity", "apptainer", "enroot", "kubectl", "pdsh")
"""What runs on another machine, or in an image of which nothing is said here."""

HOLDERS = (*LOCAL, *ELSEWHERE)
NAMED = re.compile(r"vllm|trtllm-\w+|python[\d.]*|torchrun|exec|env|uv|nohup|[A-Z_]\w*=.*", re.S)

Find = Callable[[Sequence[Word], "Around", Sequence[Variable], int], list[Launch]]


def held(
    program: str,
    words: Sequence[Word],
    around: Around,
    environment: Sequence[Variable],
    depth: int,
    launches: Find,
) -> list[Launch]:
    """The engines among the words of such a program; nothing when there are none."""
    from infer_doctor.launch.shell import commands

    if program not in LOCAL:
        around, environment = replace(around, machine="another"), ()
    if program == "eval":
        words = [Word(text=" ".join(word.text for word in words), place=words[0].place)]
    for at, word in enumerate(words):
        found: list[Launch] = []
        if any(blank in word.text.strip() for blank in " \n\t"):
            for command in commands(word.text, word.place, given=environment):
                found += launches(command.words, around, command.environment, depth + 1)
        elif NAMED.fullmatch(posixpath.basename(word.text)):
            found = launches(words[at:], around, environment, depth + 1)
        if started := [row for row in found if row.engine is not None and _is_command(row.entry)]:
            return started
    return []


def _is_command(entry: str) -> bool:
    """Of `tmux new -s vllm 'vllm serve m'` the first vllm is the name of a session."""
    return bool(entry) and entry != "vllm" and not any(blank in entry for blank in " \n\t")
