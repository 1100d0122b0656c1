"""Access to the hub, with a real server on this machine in place of huggingface.co."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import model_hub
import pytest
from launches import HERE, files, launch, options

from infer_doctor.checks.launch_hub import (
    hub_offline,
    hub_refused,
    hub_token_missing,
    model_name_refused,
)
from infer_doctor.facts.hub_access import HubAnswer, HubModel, Online, hub_answer, hub_model
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.host import Absent, Unavailable
from infer_doctor.launch.model import Container, Unknown, Variable, Volume
from infer_doctor.live import LiveHost
from infer_doctor.snapshot import write
from infer_doctor.testing import contract, examine

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with model_hub.hub() as found:
        yield found


def ask(name: str, endpoint: str, tmp_path: Path, **given: Any) -> tuple[HubModel, HubAnswer]:
    environ = Environ(variables={"HF_ENDPOINT": endpoint, "HOME": str(tmp_path)})
    with LiveHost() as host:
        model = hub_model(launch(), options(name, **given), environ, host)
        return model, hub_answer(host, launch(), model, Online())


def message(name: str, endpoint: str, tmp_path: Path, **given: Any) -> str | None:
    model, answer = ask(name, endpoint, tmp_path, **given)
    found = examine(hub_refused, launch(), options(name), model, answer).findings
    return found[0].message if found else None


def test_one_request_for_headers_and_nothing_else(server: Any, tmp_path: Path) -> None:
    endpoint, asked = server
    assert message("org/open", endpoint, tmp_path) is None
    assert asked == [("HEAD", "/org/open/resolve/main/config.json")]


def test_what_the_hub_says(server: Any, tmp_path: Path) -> None:
    endpoint, asked = server
    assert message("org/gated", endpoint, tmp_path) == (
        "org/gated: the hub refuses it without a token: the licence is not accepted"
    )
    assert message("org/closed", endpoint, tmp_path) is not None
    assert message("org/nope", endpoint, tmp_path) == (
        "org/nope: the hub knows no such repository, or hides it (without a token)"
    )
    assert message("org/open", endpoint, tmp_path, revision="v9") == (
        "org/open: there is no revision 'v9'"
    )
    assert message("org/down", endpoint, tmp_path) == "org/down: the hub answers with status 503"
    assert message("org/old", endpoint, tmp_path) is None  # renamed: followed
    assert message("org/lfs", endpoint, tmp_path) is None  # on another host: not followed
    assert {method for method, _ in asked} == {"HEAD"}


def test_token_of_the_environment(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, _ = server
    monkeypatch.setenv("HF_TOKEN", model_hub.GOOD_TOKEN)
    assert message("org/gated", endpoint, tmp_path) is None
    monkeypatch.setenv("HF_TOKEN", "hf_" + "b" * 30)
    assert message("org/gated", endpoint, tmp_path) == (
        "org/gated: the hub refuses the token of HF_TOKEN"
    )


def test_token_of_the_file_is_sent_and_never_shown(server: Any, tmp_path: Path) -> None:
    endpoint, _ = server
    file = tmp_path / ".cache/huggingface/token"
    file.parent.mkdir(parents=True)
    file.write_text(model_hub.GOOD_TOKEN + "\n")
    environ = Environ(variables={"HF_ENDPOINT": endpoint, "HOME": str(tmp_path)})
    with LiveHost() as host:
        model = hub_model(launch(), options("org/gated"), environ, host)
        answer = hub_answer(host, launch(), model, Online())
        text = write(host.captures.values(), version="0", created_at="", python=None)
    assert (answer.status, answer.token, model.token) == (200, str(file), str(file))
    assert model_hub.GOOD_TOKEN not in text


def test_nobody_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    found = message("org/open", "http://127.0.0.1:9", tmp_path)
    assert found == "org/open: http://127.0.0.1:9 did not answer: Connection refused"
    found = message("org/open", "file:///etc", tmp_path)
    assert found == "org/open: file:///etc did not answer: it is no address of a web server"


def hub_of(name: str = LLAMA, **more: Any) -> HubModel:
    rows: dict[str, Any] = {
        "name": name,
        "endpoint": "https://huggingface.co",
        "revision": "main",
        "token": None,
        "offline": None,
        "proxy": None,
        "token_file": "/root/.cache/huggingface/token",
    }
    return HubModel(**{**rows, **more})


def answered(status: int | None, **more: Any) -> HubAnswer:
    rows: dict[str, Any] = {"code": None, "error": None, "token": None, "url": "https://x/org/m"}
    return HubAnswer(status=status, **{**rows, **more})


def test_refused() -> None:
    asked = options(LLAMA)
    contract(
        hub_refused,
        fires=[launch(), asked, hub_of(), answered(401, code="GatedRepo")],
        passes=[launch(), asked, hub_of(), answered(200)],
    )


def test_refused_is_a_warning_for_a_whole_copy() -> None:
    whole = files(model=LLAMA, origin="cache")
    facts = (launch(), options(LLAMA), hub_of(), answered(401, code="GatedRepo"), whole)
    assert examine(hub_refused, *facts).findings[0].severity == "warning"


def test_token_missing() -> None:
    asked = options(LLAMA)
    contract(
        hub_token_missing,
        fires=[launch(), asked, hub_of()],
        passes=[launch(), asked, hub_of(token="HF_TOKEN")],
    )


@pytest.mark.parametrize(
    ("name", "gated"),
    [
        ("meta-llama/Llama-3.1-8B", True),
        ("google/gemma-3-27b-it", True),
        ("google/gemma-4-26B-A4B", False),
        ("Qwen/Qwen3-8B", False),
        ("unsloth/Llama-3.1-8B", False),
        ("RedHatAI/gemma-3-27b-it-FP8-dynamic", False),
        ("mistralai/Mistral-7B-v0.1", False),
    ],
)
def test_which_are_gated(name: str, gated: bool) -> None:
    assert bool(examine(hub_token_missing, launch(), options(name), hub_of(name)).findings) is gated


def test_token_of_a_secret_or_a_mounted_cache() -> None:
    secret = Variable(name="HF_TOKEN", value=None, place=HERE, source="secret hf")
    far = replace(launch("another"), environment=(secret,))
    assert hub_model(far, options(LLAMA), None, None).token == "secret hf"
    cache = Volume(kind="bind", target="/root/.cache/huggingface", source="/c", place=HERE)
    container = Container(platform="compose", name="vllm", volumes=(cache,), place=HERE)
    far = replace(launch("another"), container=container)
    assert examine(hub_token_missing, far, options(LLAMA), hub_of()).outcome == "blocked"


def test_offline() -> None:
    away = files(model=LLAMA, origin="named", folder=None, config=None)
    off = hub_of(offline="HF_HUB_OFFLINE=1")
    contract(
        hub_offline,
        fires=[launch(), options(LLAMA), off, away],
        passes=[launch(), options(LLAMA), off, files(model=LLAMA, origin="cache")],
    )


def test_what_is_no_hub_name() -> None:
    with pytest.raises(Absent):
        hub_model(launch(), options("/models/m"), Environ(variables={}), None)
    with pytest.raises(Unavailable):
        hub_answer(LiveHost(), launch("another"), hub_of(), Online())


def test_token_that_may_come_with_others() -> None:
    others = Variable(name="*", value=None, place=HERE, source="secret hub")
    far = replace(launch("another"), environment=(others,))
    found = examine(hub_token_missing, far, options(LLAMA), hub_of())
    assert (found.outcome, found.reason) == (
        "blocked",
        "secret hub, which may set HF_TOKEN, was not read",
    )


def test_revision_that_the_launch_does_not_tell() -> None:
    with pytest.raises(Unavailable, match=r"the revision is \$REV"):
        hub_model(launch("another"), options(LLAMA, revision=Unknown("$REV")), None, None)


def named(name: str, **more: Any) -> list[Any]:
    return [launch(**more), options(name), ModelFiles(model=name, origin="named")]


def test_contract_of_names() -> None:
    contract(model_name_refused, fires=named("a/b/c"), passes=named("org/model"))


@pytest.mark.parametrize(
    ("name", "part", "title"),
    [
        ("https://huggingface.co/org/model/tree/main", "address of a page", "Write org/model"),
        ("hf.co/org/model", "address of a page", "Write org/model"),
        ("qwen3:8b", "no tag (:8b)", "Name a folder, or a repository as OWNER/NAME"),
        ("\u201corg/model\u201d", "U+201C", "Write org/model"),
        ("org/model/", "OWNER/NAME alone", "Name a folder, or a repository as OWNER/NAME"),
        ("org/model@main", "OWNER/NAME alone", "Name a folder, or a repository as OWNER/NAME"),
    ],
)
def test_names_that_no_hub_has(name: str, part: str, title: str) -> None:
    (finding,) = examine(model_name_refused, *named(name)).findings
    assert part in finding.message
    assert finding.fixes[0].title == title


@pytest.mark.parametrize(
    "name", ["gpt2", "org/model-1.5_x", "s3://bucket/model", "org/model-GGUF:Q4_K_M"]
)
def test_names_that_something_takes(name: str) -> None:
    assert examine(model_name_refused, *named(name)).outcome == "passed"


def test_folders_of_another_machine_are_not_judged() -> None:
    away = named("models/llama/8b", machine="another")
    assert examine(model_name_refused, *away).outcome == "passed"
    folder = ModelFiles(model="a/b/c", origin="folder", folder="/x/a/b/c")
    assert examine(model_name_refused, launch(), options("a/b/c"), folder).outcome == "passed"
