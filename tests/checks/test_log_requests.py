"""Requests that a log shows refused or given up."""

from __future__ import annotations

from dataclasses import replace

from infer_doctor.checks.log_requests import requests_aborted, requests_refused
from infer_doctor.facts.log import AbortBurst, Cause, EngineLog, Serving
from infer_doctor.model import Evidence
from infer_doctor.testing import contract, examine

LINE = Evidence(source="serve.log", line=7, excerpt='"POST /v1/chat/completions HTTP/1.1" 404')
LOG = EngineLog(
    source="serve.log", lines=90, engine="vllm", version=None, starts=1, state="ready", stage=""
)
QUIET = Serving(source="serve.log", samples=0, served=900)
REFUSED = replace(QUIET, refused={"404": 300}, refused_lines={"404": LINE})
BURST = replace(QUIET, aborts=AbortBurst(count=41, seconds=60, evidence=LINE))


def test_contract() -> None:
    contract(requests_refused, fires=[LOG, REFUSED], passes=[LOG, QUIET])
    contract(requests_aborted, fires=[BURST], passes=[QUIET])


def test_few_refused_requests_are_a_note_and_many_a_warning() -> None:
    (many,) = examine(requests_refused, LOG, REFUSED).findings
    assert (many.severity, many.category) == ("warning", "model_name")
    assert "300 of 1,200 answers have status 404" in many.message
    (few,) = examine(requests_refused, LOG, replace(REFUSED, refused={"404": 2})).findings
    assert few.severity == "info"


def test_the_engines_own_reason_replaces_the_status() -> None:
    cause = Cause(
        signature="request-model",
        category="model_name",
        confidence="certain",
        effect="request",
        stage="serving",
        process="APIServer",
        message="requests name the model gpt-4",
        evidence=(LINE,),
        count=12,
    )
    (finding,) = examine(requests_refused, replace(LOG, requests=(cause,)), REFUSED).findings
    assert finding.message == "requests name the model gpt-4 (12 lines)"


def test_a_round_number_of_seconds_names_whose_default_it_is() -> None:
    (finding,) = examine(requests_aborted, BURST).findings
    assert "nginx" in finding.message
    assert finding.fixes[0].title.startswith("Raise the read time-out of 60 s to 240 s")


def test_aborts_without_their_times_are_a_note() -> None:
    burst = AbortBurst(count=2, seconds=None, evidence=LINE)
    (finding,) = examine(requests_aborted, replace(QUIET, aborts=burst)).findings
    assert finding.severity == "info"


def at(path: str) -> Serving:
    line = replace(LINE, excerpt=f'"POST {path} HTTP/1.1" 404 Not Found')
    return replace(QUIET, served=0, refused={"404": 3}, refused_lines={"404": line})


def test_a_path_that_the_server_does_not_offer_is_no_wrong_model() -> None:
    for path, words in {
        "/chat/completions": "lacks its /v1",
        "/v1/v1/completions": "/v1 twice",
        "/generate": "demo server",
        "/api/chat": "no path of this server",
    }.items():
        (found,) = examine(requests_refused, LOG, at(path)).findings
        assert found.category == "client"
        assert words in found.message
        assert not found.fixes[0].restarts
    (found,) = examine(requests_refused, LOG, at("/v1/load_lora_adapter")).findings
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" in found.fixes[0].title
    (found,) = examine(requests_refused, LOG, at("/v1/chat/completions")).findings
    assert found.category == "model_name"
    assert "GET /v1/models" in found.fixes[0].title


def test_a_missing_key_is_told_with_the_header_that_carries_it() -> None:
    line = replace(LINE, excerpt='"GET /v1/models HTTP/1.1" 401 Unauthorized')
    served = replace(QUIET, refused={"401": 2}, refused_lines={"401": line})
    (found,) = examine(requests_refused, LOG, served).findings
    assert "Authorization: Bearer" in found.fixes[0].title
