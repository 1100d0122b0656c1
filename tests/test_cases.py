"""Cases: the snapshot of a machine in, the whole report out, compared with the committed one.

`python tests/test_cases.py` writes the reports anew; read the difference before you commit it. What
is kept does not depend on the module that a check stands in: see `in_order`.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).parent / "cases"
TIMES = ("started_at", "duration_s")


def report_of(case: Path) -> dict[str, Any]:
    """What `check --snapshot` says, without what differs from run to run."""
    options = json.loads((case / "options.json").read_text())
    snapshot = str(case / "snapshot.json")
    command = [sys.executable, "-m", "infer_doctor", "check", "--snapshot", snapshot]
    done = subprocess.run(
        [*command, "--format", "json", *options], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    for name in TIMES:
        del report[name]
    for row in report["results"]:
        del row["duration_ms"]
    del report["tool"]
    return in_order(report)


def in_order(report: dict[str, Any]) -> dict[str, Any]:
    """The same report, rows by check and subject and fixes by their content.

    Of fixes that share an id, all but the first have a number, given in the order of the checks: they
    are numbered anew here, and the findings follow.
    """
    report["results"].sort(key=lambda row: (row["check"], row["subject"]))
    ids = {fix["id"] for fix in report["fixes"]}
    base = {id: shared if (shared := re.sub(r"-\d+$", "", id)) in ids else id for id in ids}
    fixes = sorted(report["fixes"], key=lambda fix: (base[fix["id"]], fix["title"]))
    new: dict[str, str] = {}
    for fix in fixes:
        name = base[fix["id"]]
        before = sum(base[id] == name for id in new)
        new[fix["id"]] = f"{name}-{before + 1}" if before else name
    findings = [finding for row in report["results"] for finding in row["findings"]]
    for finding in [*findings, *filter(None, [report["primary"]])]:
        finding["fixes"] = [new[id] for id in finding["fixes"]]
    report["fixes"] = [{**fix, "id": new[fix["id"]]} for fix in fixes]
    return report


def cases() -> list[Path]:
    return sorted(path.parent for path in CASES.glob("*/snapshot.json"))


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_case(case: Path) -> None:
    assert report_of(case) == json.loads((case / "report.json").read_text())


def test_the_order_of_the_checks_is_not_kept() -> None:
    """A check that moves to another module changes the order of rows and the numbers of fixes."""
    kept = json.loads((CASES / "h200-x2-served" / "report.json").read_text())
    other = json.loads(json.dumps(kept))
    random.Random(1).shuffle(other["results"])
    other["fixes"].reverse()
    assert other != kept
    assert in_order(other) == kept


def test_fixes_that_share_an_id_are_numbered_by_their_content() -> None:
    def report(first: str, second: str) -> dict[str, Any]:
        rows = [
            {"check": f"a-{title}", "subject": "host", "findings": [{"fixes": [id]}]}
            for title, id in ((first, "cure"), (second, "cure-2"))
        ]
        fixes = [{"id": "cure", "title": first}, {"id": "cure-2", "title": second}]
        return {"results": rows, "fixes": fixes, "primary": None}

    assert in_order(report("x", "y")) == in_order(report("y", "x"))
    assert in_order(report("x", "y")) != in_order(report("x", "z"))


def test_there_are_cases() -> None:
    assert len(cases()) >= 2


if __name__ == "__main__":
    for folder in cases():
        text = json.dumps(report_of(folder), indent=1) + "\n"
        (folder / "report.json").write_text(text)
