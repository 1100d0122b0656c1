"""The site: a page for each check, no warning, nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from infer_doctor.cli import COMMANDS, run
from infer_doctor.registry import load

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def make_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(make_docs: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert make_docs.build(folder) == []
    return folder


def test_each_check_has_its_page(site: Path) -> None:
    for id, check in load().checks.items():
        page = (site / "checks" / f"{id}.html").read_text()
        for heading in ("Why it matters", "How it decides", "Fix safety"):
            assert f">{heading}</h2>" in page, id
        assert id in (site / "checks" / "index.html").read_text()
        assert check.severity in page


def test_the_recipes_are_the_files_that_the_tests_run(site: Path) -> None:
    page = (site / "recipes.html").read_text()
    assert "{{" not in page
    for path in (ROOT / "docs" / "recipes").iterdir():
        if path.name != "index.md":
            assert path.read_text().splitlines()[-1].split()[0] in page


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="([^"]+)"', page.read_text())
        assert [url for url in loaded if url.startswith(("http:", "https:", "//"))] == []


def test_a_broken_link_is_a_warning(
    make_docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_docs, "report_page", lambda: "# Report\n\n[no](nowhere.md)\n")
    (warning,) = make_docs.build(tmp_path / "site")
    assert "nowhere.md" in warning


RECIPES = sorted(path for path in (ROOT / "docs" / "recipes").iterdir() if path.suffix != ".md")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_the_doctor_finds_nothing_wrong_with_its_recipes(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["check", str(path), "--gpu", "H200:2", "--fail-on", "warning"])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    assert "vllm serve" in said.out


def test_the_readme_shows_every_command() -> None:
    readme = (ROOT / "README.md").read_text()
    table = "".join(line for line in readme.splitlines() if line.startswith("| `infer-doctor"))
    assert [name for name in COMMANDS if not re.search(rf"\b{name}\b", table)] == []
