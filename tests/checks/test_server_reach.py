"""The way to a server."""

from __future__ import annotations

import pytest
from server_facts import reach, secure

from infer_doctor.checks.server_reach import (
    address_dead,
    certificate_ends,
    certificate_expired,
    certificate_name,
    certificate_untrusted,
    name_unresolved,
    port_closed,
    port_filtered,
    proxy_environment,
    tls_failed,
)
from infer_doctor.facts.server import Tried
from infer_doctor.testing import contract, examine

REFUSED = Tried(address="192.0.2.7", ms=0.3, error="refused", said="Connection refused")
SILENT = Tried(address="192.0.2.8", ms=3200.0, error="timeout", said="no answer within 3.2 s")
SIX = Tried(address="2001:db8::1", ms=0.1, error="unreachable", said="Network is unreachable")


def test_contracts() -> None:
    contract(
        name_unresolved,
        fires=[reach(name_error="Name or service not known", tried=())],
        passes=[reach()],
    )
    contract(port_closed, fires=[reach(tried=(REFUSED,))], passes=[reach()])
    contract(port_filtered, fires=[reach(tried=(SILENT,))], passes=[reach()])
    contract(address_dead, fires=[reach(tried=(*reach().tried, SILENT))], passes=[reach()])
    contract(certificate_expired, fires=[secure("expired", days_left=-3.2)], passes=[secure()])
    contract(certificate_name, fires=[secure("name", names=("b.example",))], passes=[secure()])
    contract(certificate_untrusted, fires=[secure("self-signed")], passes=[secure()])
    contract(certificate_ends, fires=[secure(days_left=3.0)], passes=[secure()])
    contract(tls_failed, fires=[secure("plain")], passes=[secure()])
    contract(proxy_environment, fires=[reach(proxy=("HTTP_PROXY", "proxy:3128"))], passes=[reach()])


def test_one_fault_is_one_finding() -> None:
    checks = (name_unresolved, port_closed, port_filtered, address_dead)
    for facts in (reach(tried=(REFUSED,)), reach(tried=(SILENT,)), reach(tried=(SIX, REFUSED))):
        failed = [row for check in checks if (row := examine(check, facts)).outcome == "failed"]
        assert len(failed) == 1


def test_words() -> None:
    (finding,) = examine(port_closed, reach(tried=(REFUSED,))).findings
    assert finding.message == (
        "nothing listens at llm.example:8000: the connection was refused after 0.3 ms"
    )
    (finding,) = examine(certificate_expired, secure("expired", days_left=-3.2)).findings
    assert finding.message == (
        "the certificate of llm.example:8000 has expired on 2027-01-01, 3 days ago"
    )


@pytest.mark.parametrize(
    ("host", "dead", "severity"),
    [
        ("localhost", REFUSED, "info"),
        ("llm.example", SIX, "info"),
        ("llm.example", REFUSED, "warning"),
        ("llm.example", SILENT, "warning"),
    ],
)
def test_a_dead_address(host: str, dead: Tried, severity: str) -> None:
    facts = reach(host=host, tried=(dead, *reach().tried))
    (finding,) = examine(address_dead, facts).findings
    assert finding.severity == severity


def test_a_short_life_is_no_failed_renewal() -> None:
    short = secure(days_left=3.0, begins="2026-12-20", ends="2027-01-01")
    assert examine(certificate_ends, short).outcome == "passed"


def test_without_tls_nothing_is_judged() -> None:
    assert examine(certificate_name, reach()).outcome == "not_applicable"
