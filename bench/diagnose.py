"""Right and wrong categories over reports in the format of tests/cases/reports/*.jsonl.

    python -m bench.diagnose FILE.jsonl [...]      or      python bench/diagnose.py FILE.jsonl

A report is one JSON object a line: "id", "category" (the truth), "error_lines" (as printed, shortened
with ...), and, where they are known, "tier", "has_literal_log". Only reports with literal lines are
scored; what was read off a thread's description is counted apart. Prints the confusion table, the
share of right, wrong and unknown by tier, and every case that is not right.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
from pathlib import Path
from typing import Any

UNKNOWN = "unknown"
HEALTHY = "healthy"


def category_of(lines: list[str]) -> str:
    """What `infer-doctor diagnose` says first: a category, unknown, or healthy."""
    from infer_doctor.checks import log_failure, log_requests, log_serving, log_start
    from infer_doctor.engine import Subject, run
    from infer_doctor.logs.read import read_texts
    from infer_doctor.registry import Registry
    from infer_doctor.report import rank

    registry = Registry()
    for module in (log_failure, log_requests, log_serving, log_start):
        registry.add_module(module)
    subject = Subject("log", registry, host=None)
    for kind, fact in read_texts(lines).items():
        subject.give(kind, fact)
    results = run(registry.checks.values(), subject)
    crashed = [row for row in results if row.outcome == "crashed"]
    if crashed:
        raise SystemExit(f"{crashed[0].check} crashed: {crashed[0].reason}")
    findings = sorted((f for row in results for f in row.findings), key=rank)
    if findings:
        return str(findings[0].category)
    blocked = any(row.outcome == "blocked" and row.check == "log-engine-failed" for row in results)
    return UNKNOWN if blocked else HEALTHY


def read(path: str) -> list[dict[str, Any]]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def score(rows: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """(report, answer)."""
    return [(row, category_of(row["error_lines"])) for row in rows]


def table(scored: list[tuple[dict[str, Any], str]]) -> None:
    """One line for each true category: how many, right, unknown, and what else was said."""
    by_truth: dict[str, collections.Counter[str]] = {}
    for row, said in scored:
        by_truth.setdefault(row["category"], collections.Counter())[said] += 1
    print(f"{'truth':<24} {'n':>4} {'right':>6} {'unknown':>8}  said instead")
    for truth, said_counts in sorted(by_truth.items()):
        others = ", ".join(
            f"{name} {count}"
            for name, count in said_counts.most_common()
            if name not in (truth, UNKNOWN)
        )
        print(
            f"{truth:<24} {sum(said_counts.values()):>4} {said_counts[truth]:>6} "
            f"{said_counts[UNKNOWN]:>8}  {others}"
        )


def shares(name: str, scored: list[tuple[dict[str, Any], str]]) -> None:
    if not scored:
        return
    right = sum(said == row["category"] for row, said in scored)
    unknown = sum(said in (UNKNOWN, HEALTHY) for row, said in scored if said != row["category"])
    wrong = len(scored) - right - unknown
    print(
        f"{name:<24} {len(scored):>4} right {right} ({100 * right / len(scored):.1f} %), "
        f"unknown {unknown} ({100 * unknown / len(scored):.1f} %), "
        f"wrong {wrong} ({100 * wrong / len(scored):.1f} %)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--all", action="store_true", help="also reports without literal lines")
    options = parser.parse_args()
    rows = [row for path in options.files for row in read(path)]
    literal = [row for row in rows if options.all or row.get("has_literal_log", True)]
    scored = score(literal)
    table(scored)
    print()
    for tier in ("gold", "silver", "bronze"):
        shares(tier, [pair for pair in scored if pair[0].get("tier") == tier])
    shares("gold and silver", [p for p in scored if p[0].get("tier") in ("gold", "silver")])
    shares("all", scored)
    print(f"{len(rows) - len(literal)} reports without literal lines are not scored")
    print()
    for row, said in scored:
        if said != row["category"]:
            print(f"{row['id']}: {row['category']}, said {said} ({row.get('tier', '-')})")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    main()
