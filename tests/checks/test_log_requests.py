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
