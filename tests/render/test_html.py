"""The HTML report in a real browser: no script error, no network, readable small and dark."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import browser
import pytest
import reports

from infer_doctor.cli import run
from infer_doctor.model import Report
from infer_doctor.render.html import render


@pytest.fixture(scope="module")
def page() -> Iterator[browser.Page]:
    with browser.browsing() as found:
        if found is None:
            pytest.skip("no Chromium here (apt-get install chromium)")
        yield found


def written(report: Report, folder: Path) -> str:
    path = folder / "report.html"
    path.write_text(render(report), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("name", ["h200-x2-orphan", "hostile"])
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(
    page: browser.Page, tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    page.open(written(reports.named(name), tmp_path), width, scheme)
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value("window.pwned") is None
    assert page.value("document.scripts.length") == 1
    assert page.value("document.images.length") == 0
    assert page.told("Runtime.exceptionThrown") == []
    assert page.told("Log.entryAdded") == []
    addresses = [event["request"]["url"] for event in page.told("Network.requestWillBeSent")]
    assert [url for url in addresses if not url.startswith("file:")] == []
    for selector in ("body", ".dim", "article .error", "h1", "pre", "dd"):
        assert contrast(page, selector) >= 4.5, selector


def test_the_facts_can_be_searched(page: browser.Page, tmp_path: Path) -> None:
    page.open(written(reports.named("h200-x2-orphan"), tmp_path), 1280)
    rows = page.value("document.querySelectorAll('#facts tr').length")
    page.value(
        "(f => {f.value='gpus h200'; f.dispatchEvent(new Event('input'))})"
        "(document.getElementById('search'))"
    )
    shown = page.value("document.querySelectorAll('#facts tr:not([hidden])').length")
    assert 0 < shown < rows
    assert page.value("document.getElementById('found').textContent") == f"{shown} of {rows}"
    texts = page.value(
        "[...document.querySelectorAll('#facts tr:not([hidden])')].map(r => r.textContent)"
    )
    assert all("h200" in text.lower() for text in texts)


CONTRAST = """
(selector => {
  const element = document.querySelector(selector);
  let back = element;
  const clear = node => getComputedStyle(node).backgroundColor === 'rgba(0, 0, 0, 0)';
  while (clear(back) && back.parentElement) back = back.parentElement;
  return [getComputedStyle(element).color, getComputedStyle(back).backgroundColor];
})('SELECTOR')
"""


def contrast(page: browser.Page, selector: str) -> float:
    """The ratio of WCAG 2.2 between the text and what is behind it."""
    pair = page.value(CONTRAST.replace("SELECTOR", selector))
    dark, light = sorted(luminance(colour) for colour in pair)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(part * share for part, share in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)


@pytest.mark.parametrize("name", ["hostile", *reports.NAMES])
def test_texts_make_no_elements(name: str) -> None:
    found = Tags()
    whole = render(reports.named(name))
    found.feed(whole)
    assert found.tags["script"] == 1
    assert "img" not in found.tags
    assert not {"\x1b", "\u202e", "\x00"} & set(whole)


def test_memory_that_does_not_fit_says_by_how_much() -> None:
    assert "10.0 GiB too much" in render(reports.hostile())


def test_the_phases_of_a_real_start_are_bars(tmp_path: Path) -> None:
    log = Path(__file__).parents[1] / "captures" / "logs" / "fit-8b-default.log"
    if not log.is_file():
        pytest.skip("the captured log is not there")
    output = tmp_path / "report.html"
    assert run(["diagnose", str(log), "--format", "html", "--output", str(output)]) == 0
    page = output.read_text()
    bars = re.findall(r'<div class="row"><span>([^<]+)</span>.*?<span>([\d.]+) s</span>', page)
    assert len(bars) >= 4
    assert any("weights" in name or "load" in name for name, _ in bars)
