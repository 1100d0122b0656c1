"""`infer-doctor check --snapshot` of a captured machine with two H200."""

import sys

from measure import DOCTOR, ROOT, head, medians, row

SNAPSHOT = ROOT / "tests/cases/h200-x2/snapshot.json"


def main() -> None:
    """Beside Python that only parses the file."""
    head()
    parse = [sys.executable, "-c", f"import json; json.load(open({str(SNAPSHOT)!r}))"]
    this, rival = medians([DOCTOR, "check", "--snapshot", str(SNAPSHOT)], parse, runs=11)
    row("check --snapshot (rival: json.load)", this, rival, "at most 0.35 s")


if __name__ == "__main__":
    main()
