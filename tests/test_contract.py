"""What every check keeps, generated over the whole registry: a new check is held to it at once."""

import ast
import inspect
import typing
from pathlib import Path

import pytest

from infer_doctor.engine import Subject, run_check
from infer_doctor.explain import markdown
from infer_doctor.host import Host
from infer_doctor.model import Category, Missing, Severity
from infer_doctor.registry import HEADINGS, ID, Check, Registry, load
from infer_doctor.report import AREAS

CHECK_TESTS = Path(__file__).parent / "checks"


def built_in() -> Registry:
    """The registry without plugins: theirs is their business."""
    registry = Registry()
    registry.add_package("infer_doctor.facts")
    registry.add_package("infer_doctor.checks")
    return registry


REGISTRY = built_in()
CHECKS = list(REGISTRY.checks.values())
REQUIRED = [
    pytest.param(check, need.fact, id=f"{check.id}-{need.fact.__name__}")
    for check in CHECKS
    for need in check.needs
    if not need.optional
]
each_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)


def outcome(check: Check, gap: Missing, missing: type) -> tuple[str, str | None]:
    """What comes of the check when this one fact is missing and all others are there."""
    subject = Subject("test", Registry(), host=None)
    for need in check.needs:
        subject.give(need.fact, gap if need.fact is missing else object())
    result = run_check(check, subject)
    return result.outcome, result.reason


@each_check
class TestCheck:
    def test_id_names_area_and_state(self, check: Check) -> None:
        assert ID.fullmatch(check.id)
        assert check.id.partition("-")[0] in AREAS

    def test_docstring_is_its_documentation(self, check: Check) -> None:
        text = inspect.cleandoc(check.function.__doc__ or "")
        title, _, rest = text.partition("\n\n")
        assert "\n" not in title
        assert title.endswith(".")
        parts = {part.partition("\n")[0]: part.partition("\n")[2] for part in rest.split("## ")[1:]}
        assert list(parts) == list(HEADINGS)
        assert all(part.strip() for part in parts.values())
        assert title in markdown(check)

    def test_severity_and_category_are_of_the_closed_lists(self, check: Check) -> None:
        assert check.severity in typing.get_args(Severity)
        assert check.category in typing.get_args(Category)

    def test_it_needs_at_least_one_fact(self, check: Check) -> None:
        assert any(not need.optional for need in check.needs)
        assert Host not in [need.fact for need in check.needs]


@pytest.mark.parametrize(("check", "fact"), REQUIRED)
class TestMissing:
    def test_fact_that_could_not_be_had_blocks(self, check: Check, fact: type) -> None:
        gap = Missing(fact=fact.__name__, reason="not readable", kind="unavailable")
        assert outcome(check, gap, fact) == ("blocked", "not readable")

    def test_proven_absence_does_not_apply(self, check: Check, fact: type) -> None:
        gap = Missing(fact=fact.__name__, reason="no GPU on the bus", kind="absent")
        assert outcome(check, gap, fact) == ("not_applicable", "no GPU on the bus")

    def test_probe_that_crashed_is_a_crash(self, check: Check, fact: type) -> None:
        gap = Missing(fact=fact.__name__, reason="ValueError", kind="crashed")
        assert outcome(check, gap, fact) == ("crashed", "ValueError")


@each_check
def test_nothing_known_is_nothing_passed(check: Check) -> None:
    assert run_check(check, Subject("test", Registry(), host=None)).outcome == "blocked"


@each_check
def test_machine_that_answers_nothing_is_nothing_passed(check: Check) -> None:
    """All probes run against a host that has no answer to anything."""
    subject = Subject("test", REGISTRY, host=Host(missing="no answer"))
    assert run_check(check, subject).outcome == "blocked"


def test_every_check_has_its_examples() -> None:
    """Each is given to `contract`, with a case that fires and one that passes."""
    proven: set[object] = set()
    for file in sorted(CHECK_TESTS.glob("test_*.py")):
        tree = ast.parse(file.read_text())
        origin = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id == "contract" and isinstance(node.args[0], ast.Name):
                assert {word.arg for word in node.keywords} == {"fires", "passes"}
                proven.add(origin[node.args[0].id])
    missing = [
        check.id
        for check in CHECKS
        if (check.function.__module__, check.function.__name__) not in proven
    ]
    assert missing == []


def test_every_needed_fact_has_a_probe_or_is_given() -> None:
    given = {"Question", "Launch"}
    for check in CHECKS:
        for need in check.needs:
            kind = need.fact
            told = kind.__name__ in given or hasattr(kind, "infer_doctor_given")
            assert (kind in REGISTRY.probes) != told, check.id


def test_the_loaded_registry_holds_all_of_them() -> None:
    assert load().checks.keys() >= REGISTRY.checks.keys()
