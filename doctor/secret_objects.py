"""Secret objects of Kubernetes, whose every value must go: as YAML, as JSON, as JSON within YAML."""

from __future__ import annotations

import re
from collections.abc import Callable

from infer_doctor.late import Late

Replace = Callable[[str, str], str]

OBJECT = Late(r"(?:^|[{,\s\\\"'])kind\\*[\"']?\s*:\s*\\*[\"']?Secret\b(?!\w)")
DOCUMENT = Late(r"(?m)^(?=---)")
FLOW = Late(r"(?:^|[{,\s\\\"'])(?:data|stringData)\\*[\"']?\s*:\s*\{(?P<rows>[^{}]*)\}", re.M)
FLOW_ROW = Late(
    r"(?P<before>(?:^|,)\s*\\*[\"']?[\w.-]+\\*[\"']?\s*:\s*\\*[\"']?)(?P<s>(?![<\"'\\])[^\s\"',}\\]+)"
)
BLOCK = Late(
    r"^(?P<indent>[ \t]*)(?:-[ \t]+)?[\"']?(?:data|stringData)[\"']?\s*:[ \t]*\n"
    r"(?P<rows>(?:(?P=indent)[ \t]+\S.*\n?|[ \t]*\n)+)",
    re.M,
)
ROW = Late(
    r"(?P<before>(?P<indent>[ \t]*)[\"']?[\w./-]+[\"']?[ \t]*:[ \t]*)(?P<s>[^\n]*?)(?P<end>\s*)"
)
INDICATOR = Late(r"[>|][+-]?\d?")


def mask_objects(text: str, replace: Replace) -> str:
    """The text with the values of Secret objects replaced, document by document."""
    if not OBJECT.search(text):
        return text
    return "".join(
        BLOCK.sub(lambda m: _block(replace, m), FLOW.sub(lambda m: _flow(replace, m), part))
        if OBJECT.search(part)
        else part
        for part in DOCUMENT.split(text)
    )


def _flow(replace: Replace, match: re.Match[str]) -> str:
    def one(row: re.Match[str]) -> str:
        return f"{row['before']}{replace('token', row['s'])}"

    rows = FLOW_ROW.sub(one, match["rows"])
    return match[0][: match.start("rows") - match.start()] + rows + "}"


def _block(replace: Replace, match: re.Match[str]) -> str:
    """Rows of the first row's indentation have a name; deeper ones are the text of a value."""
    lines = match["rows"].splitlines(keepends=True)
    first = next((line for line in lines if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip())]
    rows = "".join(_row(replace, line, indent) for line in lines)
    return match[0][: match.start("rows") - match.start()] + rows


def _row(replace: Replace, line: str, indent: str) -> str:
    if not line.strip() or line.lstrip().startswith("#"):
        return line
    row = ROW.fullmatch(line)
    if row is None or row["indent"] != indent:
        value = line.strip()
        return line.replace(value, replace("token", value))
    value = row["s"].strip("\"'")
    if not value or INDICATOR.fullmatch(value) or value.startswith(("<", "$", "{")):
        return line
    return f"{row['before']}{row['s'].replace(value, replace('token', value))}{row['end']}"
