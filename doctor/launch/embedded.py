"""Shell commands that stand in another text: Markdown, recipes of make and just, templates.

Each function gives a text of the same lines, so that places stay right.
"""

from __future__ import annotations

import re

FENCE = re.compile(r"[ \t]{0,8}(`{3,}|~{3,})[ \t]*\{?\.?([\w+-]*)")
"""Opens or closes a block of code (CommonMark 0.31, 4.5); list items indent it further."""

SHELLS = frozenset(
    ["", "bash", "sh", "shell", "zsh", "console", "shell-session", "shellscript", "text", "cmd"]
)
"""What is written after the fence of a block with commands."""

PROMPT = re.compile(r"^([ \t]*)[$#>][ \t]+(?=\S)")
EXPRESSION = re.compile(r"\$?\{\{-?[ \t]*(?![\"{\s])([^{}\n]*?)[ \t]*-?\}\}")
"""{{ NAME }} of Jinja, Go, just and mustache, ${{ NAME }} of GitHub; {{"a": 1}} is JSON gone wrong."""

STATEMENT = re.compile(r"\{%.*?%\}|\{#.*?#\}")


def markdown(text: str) -> str | None:
    """The blocks of commands, all else empty; None for a text without blocks."""
    lines: list[str] = []
    fence, kept, blocks = "", False, 0
    for line in text.split("\n"):
        found = FENCE.match(line)
        if found is not None and not fence:
            fence, kept = found[1], found[2].lower() in SHELLS
            blocks += 1
            lines.append("")
        elif found is not None and found[1].startswith(fence) and not found[2]:
            fence = ""
            lines.append("")
        else:
            lines.append(PROMPT.sub(r"\1", line) if fence and kept else "")
    return "\n".join(lines) if blocks else None


def templated(text: str) -> str:
    """Expressions as single words, statements taken out."""

    def word(found: re.Match[str]) -> str:
        return "{{" + re.sub(r"[^\w.\[\]-]+", "_", found[1]).strip("_") + "}}"

    if "{{" not in text and "{%" not in text:
        return text
    return STATEMENT.sub("", EXPRESSION.sub(word, text))


def windows(text: str, name: str) -> str:
    """PowerShell's and cmd's way to go on in the next line as a shell's."""
    mark = "`" if name.endswith(".ps1") else "^"
    text = re.sub(r"\\(?=[\w.])", "/", text.replace("$env:", "$"))
    return re.sub(rf"{re.escape(mark)}[ \t]*\r?\n", r"\\\n", text)


def unknown_in(text: str) -> str | None:
    """The expression that a template puts in there."""
    found = EXPRESSION.search(text) if "{{" in text else None
    return found[0] if found else None
