"""What a server answers before it makes tokens."""

from __future__ import annotations

import pytest
from server_facts import answers, models, only, row

from infer_doctor.checks.server_access import (
    api_missing,
    forbidden,
    key_missing,
    key_wrong,
    model_unknown,
    models_none,
)
from infer_doctor.checks.server_answer import (
    answer_broken,
    connection_lost,
    gateway_failed,
    health_failing,
    redirected,
    silent,
    tls_wanted,
)
from infer_doctor.testing import contract, examine

SILENT = [
    row(name, None, error="timeout", total_ms=3500.0) for name in ("health", "models", "metrics")
]
NGINX = {"server": "nginx/1.22.1"}


def test_what_answered_first_and_then_no_more() -> None:
    stream = row("stream", None, error="timeout", total_ms=8000.0)
    begun = [row(name) for name in ("health", "models", "metrics")]
    last = row("metrics", None, error="timeout", total_ms=1500.0)
    (finding,) = examine(silent, only(*begun, stream, last)).findings
    assert "then neither a token nor GET /metrics within 1.5 s" in finding.message
    slow = [row(name, total_ms=400.0) for name in ("health", "models")]
    assert examine(silent, only(*slow, stream, last)).outcome == "passed"
    assert examine(silent, only(*begun, stream, row("metrics"))).outcome == "passed"
    assert examine(silent, only(*begun, row("stream"), last)).outcome == "passed"


def test_contracts() -> None:
    contract(silent, fires=[only(*SILENT)], passes=[answers()])
    contract(connection_lost, fires=[only(row("health", None, error="reset"))], passes=[answers()])
    contract(answer_broken, fires=[only(row("health", None, error="not-http"))], passes=[answers()])
    contract(
        tls_wanted,
        fires=[only(row("health", None, error="not-http", said="\\x15\\x03\\x03"))],
        passes=[answers()],
    )
    contract(gateway_failed, fires=[only(row("models", 502, **NGINX))], passes=[answers()])
    contract(
        redirected,
        fires=[only(row("models", 307, location="https://login.example/"))],
        passes=[answers()],
    )
    contract(key_missing, fires=[only(row("models", 401))], passes=[answers()])
    wrong = only(row("models", 401, keyed=True), key_source="VLLM_API_KEY")
    contract(key_wrong, fires=[wrong], passes=[answers()])
    contract(forbidden, fires=[only(row("models", 403, **NGINX))], passes=[answers()])
    contract(api_missing, fires=[only(row("models", 404))], passes=[answers()])
    contract(
        model_unknown,
        fires=[models(asked="tinny", used="tinny"), only(row("stream", 404))],
        passes=[models(), answers()],
    )
    contract(models_none, fires=[models(offered=(), used=None)], passes=[models()])
    contract(health_failing, fires=[answers(row("health", 503))], passes=[answers()])


@pytest.mark.parametrize(
    ("exchange", "outcome"),
    [
        (row("models", 503, server="uvicorn"), "passed"),  # the engine's own
        (row("models", 503), "passed"),
        (row("models", 200), "passed"),
        (row("models", 503, server="envoy"), "failed"),
        (row("models", 504, via="1.1 google", server="Google Frontend"), "failed"),
    ],
)
def test_who_answered(exchange: object, outcome: str) -> None:
    assert examine(gateway_failed, only(exchange)).outcome == outcome  # type: ignore[arg-type]


def test_a_key_that_was_taken_at_the_second_try() -> None:
    tried = only(row("models", 401), row("models", 200, keyed=True), key_source="OPENAI_API_KEY")
    for check in (key_missing, key_wrong):
        assert examine(check, tried).outcome == "passed"


def test_one_that_answers_is_not_silent() -> None:
    assert examine(silent, only(*SILENT[:2], row("metrics"))).outcome == "passed"


def test_a_gateway_may_know_more_names_than_it_lists() -> None:
    asked = models(asked="gpt-4o", used="gpt-4o")
    assert examine(model_unknown, asked, answers()).outcome == "passed"
