"""`infer-doctor --version` beside `python3 -c pass`."""

import sys

from measure import DOCTOR, head, medians, row


def main() -> None:
    """The ratio says how many times Python's own start it takes."""
    head()
    this, rival = medians([DOCTOR, "--version"], [sys.executable, "-c", "pass"], runs=31)
    row(
        "--version (rival: python -c pass)", this, rival, f"at most 6 x rival: {this / rival:.1f} x"
    )


if __name__ == "__main__":
    main()
