"""REPORT.json as input: which findings are meant, and how they were found.

A report may come from anybody. Nothing in it is carried out: it only names findings, whose fixes are
made anew out of what is found here and now.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.model import Finding
from infer_doctor.targets import NoTarget, read_text

MASK = re.compile(r"<[a-z]+(?::[\d.]+)?>")
"""What a masked report holds instead of a secret or a name."""

SEPARATOR = re.compile(r": ")


@frozen
class Wanted:
    """The findings of a report, and the launch and files that it was made of."""

    path: str
    findings: frozenset[tuple[str, str]]
    launch: tuple[str, ...]
    files: tuple[str, ...]

    def holds(self, finding: Finding) -> bool:
        return (finding.check, finding.fingerprint) in self.findings


def read(path: str) -> Wanted | None:
    """The report in a file; None when it is something else."""
    if not os.path.isfile(path):
        return None
    text = read_text(path).lstrip("\ufeff \t\r\n")
    if not text.startswith("{"):
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or "verdict" not in document or "results" not in document:
        return None
    if document.get("schema_version") != 1:
        raise NoTarget(f"{path}: this infer-doctor reads reports of version 1")
    try:
        return _wanted(path, document)
    except (TypeError, KeyError, AttributeError) as error:
        raise NoTarget(f"{path}: is no report as infer-doctor writes it ({error})") from None


def _wanted(path: str, document: dict[str, Any]) -> Wanted:
    findings = {
        (str(finding["check"]), str(finding["fingerprint"]))
        for row in document["results"]
        for finding in row["findings"]
    }
    words = document["target"].get("launch") or []
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise TypeError("its launch is no list of words")
    launch = tuple(words)
    subjects = dict.fromkeys(str(row["subject"]) for row in document["results"])
    files = dict.fromkeys(
        os.path.expanduser(name)
        for subject in subjects
        for name in (subject, SEPARATOR.split(subject)[0])
        if os.path.exists(os.path.expanduser(name))
    )
    if files:
        launch = ()  # it stands in one of them
    if any(map(MASK.search, launch)):
        raise NoTarget(f"{path}: its command line holds masks; give the command itself after --")
    return Wanted(path=path, findings=frozenset(findings), launch=launch, files=tuple(files))
