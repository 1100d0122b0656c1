"""The masks of a report over many machines: what they share is looked at once."""

from __future__ import annotations

import dataclasses
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
        facts={
            redactor.text(name): {kind: masks.part(fact) for kind, fact in facts.items()}
            for name, facts in report.facts.items()
        },
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
