"""Advice that circulates and is wrong: each row, in a file of our own, and the check that says it.

Only what speaks of clients, servers and names; nothing here needs a GPU or an installed engine.
"""

from pathlib import Path

import pytest

from infer_doctor.engine import Subject, run
from infer_doctor.facts.client_code import ClientCode
from infer_doctor.launch.python import read
from infer_doctor.model import Finding
from infer_doctor.registry import Registry

FOLDER = Path(__file__).parent.parent / "cases" / "advice"

ROWS = [
    ("`from vllm import LLM, PoolingType`", "warm-engine.py", "launch-name-missing", 5),
    ("SamplingParams is used without an import", "warm-engine.py", "launch-name-missing", 20),
    ("HTTPException(status_code=200) for failures", "service.py", "client-error-hidden", 41),
    ("LLM in lifespan, called inside async def", "service.py", "client-loop-blocked", 36),
    ("lazy loading that is loading in lifespan", "service.py", "client-load-unbudgeted", 20),
    ("OpenAI client without timeout and retries", "bare-client.py", "client-timeout-missing", 7),
    ("max_retries=3 in a decorator of 3 attempts", "client.py", "client-retries-multiply", 13),
    ("API key written in the source", "client.py", "security-key-in-source", 8),
]


@pytest.fixture(scope="module")
def registry() -> Registry:
    found = Registry()
    found.add_package("infer_doctor.checks")
    return found


def findings(name: str, registry: Registry) -> list[Finding]:
    """What all checks of code say about a file."""
    code = read((FOLDER / name).read_text(), name).code
    subject = Subject(name, Registry(), host=None, given=[code])
    checks = [row for row in registry.checks.values() if ClientCode in (n.fact for n in row.needs)]
    results = run(checks, subject)
    assert {row.outcome for row in results} <= {"passed", "failed"}
    return [finding for row in results for finding in row.findings]


@pytest.mark.parametrize(("row", "file", "check", "line"), ROWS, ids=[row[0] for row in ROWS])
def test_row(row: str, file: str, check: str, line: int, registry: Registry) -> None:
    found = [finding for finding in findings(file, registry) if finding.check == check]
    assert (file, line) in [(e.source, e.line) for f in found for e in f.evidence]
    assert all(finding.fixes for finding in found)


def test_twelve_requests(registry: Registry) -> None:
    found = {finding.check: finding for finding in findings("client.py", registry)}
    assert found["client-retries-multiply"].message == (
        "one failed call in ask becomes 12 requests: tenacity.retry tries 3 times; the SDK asks 4 "
        "times (max_retries=3)"
    )


def test_nothing_else_is_said_of_these_files(registry: Registry) -> None:
    expected: dict[str, set[str]] = {}
    for _, file, check, _ in ROWS:
        expected.setdefault(file, set()).add(check)
    expected["client.py"].add("client-timeout-missing")
    for file, checks in expected.items():
        assert {finding.check for finding in findings(file, registry)} == checks, file


@pytest.mark.parametrize("name", ["sound-client.py", "sound-service.py"])
def test_the_sound_ones_stay_silent(name: str, registry: Registry) -> None:
    assert findings(name, registry) == []
