"""Markdown for an issue, read back by a Markdown parser."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import reports
from markdown_it import MarkdownIt

from infer_doctor.render import words
from infer_doctor.render.markdown import fence, render, text


def tokens(markdown: str) -> list[Any]:
    """All tokens; HTML is read as such, as GitHub does."""
    parsed = MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown)
    return [inner for token in parsed for inner in (token, *(token.children or ()))]


ALLOWED_HTML = ("<details><summary>", "</details>", "<!-- -->")


@pytest.mark.parametrize("folder", reports.CASES, ids=lambda folder: folder.name)
def test_a_captured_machine(folder: Path) -> None:
    report = reports.case(folder)
    found = tokens(render(report))
    shown = " ".join(token.content for token in found)
    for finding in words.findings(report):
        assert text(finding.message) in render(report)
        assert finding.check in shown
    for row in report.results:
        assert row.check in shown
    assert sum(token.type == "heading_open" for token in found) == 1


def test_hostile_text_is_only_text() -> None:
    found = tokens(render(reports.hostile()))
    for token in found:
        if token.type in ("html_block", "html_inline"):
            assert token.content.startswith(ALLOWED_HTML), token.content
        assert token.type not in ("link_open", "image")
    assert sum(token.type == "heading_open" for token in found) == 1
    fences = [token.content for token in found if token.type == "fence"]
    assert any("````" in content for content in fences)
    whole = render(reports.hostile())
    assert not any("@everyone" in token.content for token in found if token.type == "text")
    assert not {"\x1b", "\u202e", "\x00"} & set(whole)


def test_folded_parts_are_closed() -> None:
    whole = render(reports.hostile())
    # What the texts hold stands escaped or in a fence.
    lines = [line for line in whole.splitlines() if line.startswith(("<details>", "</details>"))]
    opened = [line.startswith("<details>") for line in lines]
    assert opened == [True, False] * (len(lines) // 2)
    assert len(lines) == 8


def test_a_fence_is_longer_than_what_it_holds() -> None:
    first, *_, last = fence("a\n`````\nb")
    assert first == last == "``````"


def test_a_thousand_findings_fit_into_an_issue() -> None:
    report = reports.hostile()
    (row,) = [row for row in report.results if row.findings][:1]
    many = tuple(replace(row.findings[0], message=f"finding {n}") for n in range(1000))
    report = replace(report, results=(replace(row, findings=many),))
    markdown = render(report)
    assert len(markdown) < 65_536
    told = sum(f": finding {n}\n" in markdown for n in range(1000))
    assert 0 < told < 1000
    assert f"And {1000 - told} more" in markdown
