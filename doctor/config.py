"""infer-doctor.toml, or [tool.infer-doctor] in pyproject.toml: options, suppressions, a baseline.

    fail-on = "warning"
    ignore = ["toolchain-*"]
    baseline = "known.json"             # a report: what it holds is not new

    [[suppress]]
    check = "host-memory-low"           # an id or glob, or: fingerprint = "..."
    reason = "the model is 2 GB"
    expires = 2027-03-01                # optional; from the day after it counts again

The nearest file counts, from the working folder upwards. The command line and INFER_DOCTOR_*
variables are stronger.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import date

    from infer_doctor.model import Finding

OWN = "infer-doctor.toml"
SHARED = "pyproject.toml"
TABLE = "infer-doctor"

SIZE_LIMIT = 1 << 20
"""Bytes of a settings file that is read."""

BASELINE_LIMIT = 64 << 20


class BadConfig(Exception):
    """A settings file or baseline that cannot be used; the text says where and why."""


@dataclass(frozen=True)
class Suppression:
    """Findings that somebody has decided to live with."""

    check: str | None
    fingerprint: str | None
    reason: str
    expires: date | None

    def covers(self, finding: Finding) -> bool:
        if self.fingerprint is not None:
            return self.fingerprint == finding.fingerprint
        return self.check is not None and fnmatchcase(finding.check, self.check)

    @property
    def name(self) -> str:
        return self.check or self.fingerprint or ""


@dataclass
class Policy:
    """What decides which findings count. The command line adds the baseline."""

    suppressions: Sequence[Suppression] = ()
    baseline: frozenset[str] = frozenset()
    baseline_name: str = ""

    def why_not(self, finding: Finding) -> str | None:
        """Why a finding does not count; None when it does."""
        for suppression in self.suppressions:
            if suppression.covers(finding):
                return suppression.reason
        if finding.fingerprint in self.baseline:
            return f"in the baseline {self.baseline_name}"
        return None


@dataclass(frozen=True)
class Config:
    """A settings file that was read."""

    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    suppressions: tuple[Suppression, ...] = ()
    expired: tuple[Suppression, ...] = ()


policy = Policy()
"""Of this run: set once by `cli`, read where the report is built."""


def use(config: Config | None) -> None:
    """Make the suppressions those of this run."""
    policy.suppressions = config.suppressions if config else ()
    policy.baseline, policy.baseline_name = frozenset(), ""


def use_baseline(path: str) -> None:
    """Only what is not in this report counts; raises BadConfig."""
    policy.baseline = _fingerprints(path)
    policy.baseline_name = os.path.basename(path)


def find(folder: str) -> Config | None:
    """The nearest settings file; raises BadConfig when it is none that can be used."""
    while True:
        for name in (OWN, SHARED):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and (config := _read(path, name)) is not None:
                return config
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def _read(path: str, name: str) -> Config | None:
    """The settings of a file; None for a pyproject.toml without ours."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        with open(path, "rb") as file:
            text = file.read(SIZE_LIMIT + 1)
        if len(text) > SIZE_LIMIT:
            raise BadConfig(f"{path}: more than {SIZE_LIMIT:,} bytes are too many")
        found: Any = tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise BadConfig(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if name == SHARED:  # somebody else's file is not ours to judge
            return None
        raise BadConfig(f"{path}: {error}") from None
    if name == SHARED:
        tool = found.get("tool")
        found = tool.get(TABLE) if isinstance(tool, dict) else None
        if found is None:
            return None
    if not isinstance(found, dict):
        raise BadConfig(f"{path}: [tool.{TABLE}] is no table")
    return _config(path, found)


def _config(path: str, found: dict[str, Any]) -> Config:
    from datetime import datetime, timezone

    rows = found.pop("suppress", [])
    if not isinstance(rows, list):
        raise BadConfig(f"{path}: write suppressions as [[suppress]]")
    suppressions = [_suppression(path, number, row) for number, row in enumerate(rows, 1)]
    today = datetime.now(timezone.utc).date()
    expired = [row for row in suppressions if row.expires is not None and row.expires < today]
    options = {str(key).replace("-", "_"): value for key, value in found.items()}
    baseline = options.get("baseline")
    if isinstance(baseline, str):
        options["baseline"] = os.path.join(os.path.dirname(path), baseline)
    return Config(
        path=path,
        options=options,
        suppressions=tuple(row for row in suppressions if row not in expired),
        expired=tuple(expired),
    )


def _suppression(path: str, number: int, row: Any) -> Suppression:
    from datetime import date, datetime

    place = f"{path}: suppression {number}"
    if not isinstance(row, dict):
        raise BadConfig(f"{place} is no table")
    if unknown := row.keys() - {"check", "fingerprint", "reason", "expires"}:
        raise BadConfig(f"{place} has no {sorted(unknown)[0]!r}")
    if ("check" in row) == ("fingerprint" in row):
        raise BadConfig(f"{place} needs either check or fingerprint")
    for key in ("check", "fingerprint", "reason"):
        if key in row and not (isinstance(row[key], str) and row[key].strip()):
            raise BadConfig(f"{place}: {key} is no text")
    if "reason" not in row:
        raise BadConfig(f"{place} needs a reason")
    expires = row.get("expires")
    if isinstance(expires, datetime):
        expires = expires.date()
    if expires is not None and not isinstance(expires, date):
        raise BadConfig(f"{place}: expires is no date such as 2027-03-01")
    return Suppression(
        check=row.get("check"),
        fingerprint=row.get("fingerprint"),
        reason=row["reason"].strip(),
        expires=expires,
    )


def _fingerprints(path: str) -> frozenset[str]:
    """The fingerprints of a JSON report."""
    try:
        with open(path, "rb") as file:
            data = file.read(BASELINE_LIMIT + 1)
        if len(data) > BASELINE_LIMIT:
            raise BadConfig(f"{path}: more than {BASELINE_LIMIT:,} bytes are too many")
        report = json.loads(data)
        return frozenset(
            str(finding["fingerprint"])
            for result in report["results"]
            for finding in result["findings"]
        )
    except OSError as error:
        raise BadConfig(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadConfig(f"{path}: is no JSON report of infer-doctor") from None
