"""The masks of a report over many machines: what they share is looked at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from infer_doctor.model import CheckResult, Finding, Report
from infer_doctor.redact import Redactor
from infer_doctor.report import WHOLE_DEPTH, mask


def mask_many(report: Report, redactor: Redactor) -> Report:
    """As `report.mask`, for a report whose subjects share most texts and facts."""
    masks = _Masks(redactor)
    rest: Report = mask(dataclasses.replace(report, results=(), facts={}), redactor)
    return dataclasses.replace(
        rest,
        results=tuple(masks.row(row) for row in report.results),
        facts={redactor.text(name): masks.facts(own) for name, own in report.facts.items()},
    )


class _Masks:
    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._texts: dict[str | None, str | None] = {None: None}
        self._parts: dict[int, Any] = {}

    def text(self, text: str | None) -> Any:
        if text not in self._texts:
            self._texts[text] = self._redactor.text(text or "")
        return self._texts[text]

    def part(self, value: Any) -> Any:
        """By identity: the report keeps what is looked at alive."""
        if id(value) not in self._parts:
            self._parts[id(value)] = mask(value, self._redactor, WHOLE_DEPTH - 1)
        return self._parts[id(value)]

    def facts(self, own: dict[str, Any]) -> dict[str, Any]:
        """Those of one subject: most hold nothing to mask, so new ones are looked at together."""
        self._look([fact for fact in own.values() if id(fact) not in self._parts])
        return {kind: self._parts[id(fact)] for kind, fact in own.items()}

    def _look(self, values: Sequence[Any]) -> None:
        """Halves of what has to be changed are looked at again, down to each alone."""
        if len(values) == 1:
            self.part(values[0])
        elif values and self._redactor.touches(values):
            middle = len(values) // 2
            self._look(values[:middle])
            self._look(values[middle:])
        else:
            self._parts |= {id(value): value for value in values}

    def row(self, row: CheckResult) -> CheckResult:
        reason, subject = self.text(row.reason), self.text(row.subject)
        if not row.findings and reason == row.reason and subject == row.subject:
            return row
        return dataclasses.replace(
            row,
            subject=subject,
            reason=reason,
            findings=tuple(self._finding(finding) for finding in row.findings),
        )

    def _finding(self, finding: Finding) -> Finding:
        return dataclasses.replace(
            finding,
            about=self.text(finding.about),
            message=self.text(finding.message),
            subject=self.text(finding.subject),
            suppressed=self.text(finding.suppressed),
            evidence=self.part(finding.evidence),
            fixes=tuple(self.part(fix) for fix in finding.fixes),
        )
