"""Masks: what leaves the machine and what must not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infer_doctor.host import Capture
from infer_doctor.redact import Redactor


def environ(**variables: str) -> Capture:
    return Capture(operation="environ", arguments={}, version=1, value={"variables": variables})


def identity(hostname: str) -> Capture:
    return Capture(operation="identity", arguments={}, version=1, value={"hostname": hostname})


def read(text: str) -> Capture:
    return Capture(operation="read", arguments={"path": "/x"}, version=1, value={"text": text})


def masked(*captures: Capture) -> list[Any]:
    redactor = Redactor(captures)
    return [redactor.capture(capture).value for capture in captures]


@pytest.mark.parametrize(
    "secret",
    [
        "hf_AbCdEfGhIjKlMnOpQr",
        "sk-proj-0123456789abcdef",
        "ghp_0123456789abcdefghij",
        "nvapi-0123456789abcdef",
        "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
        "AKIA0123456789ABCDEF",
    ],
)
def test_secrets_are_known_by_their_form(secret: str) -> None:
    (value,) = masked(read(f"x={secret}, and again {secret}."))
    assert value["text"] == "x=<token:1>, and again <token:1>."


def test_bearer_and_url_credentials() -> None:
    (value,) = masked(read("Authorization: Bearer abcdefgh123 https://me:pw@host/x"))
    assert "abcdefgh123" not in value["text"]
    assert "me:pw" not in value["text"]
    assert "https://<credentials:1>@host/x" in value["text"]


def test_a_variable_with_a_secret_name_is_masked_wherever_its_value_stands() -> None:
    variables, text = masked(environ(VLLM_API_KEY="correct-horse"), read("key is correct-horse"))
    assert variables["variables"]["VLLM_API_KEY"] == "<token:1>"
    assert text["text"] == "key is <token:1>"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_MAX_TOKENS_PER_EXPERT", "163840"),
        ("HF_TOKEN_PATH", "/data/token"),
        ("NCCL_VERSION", "2.28.3-1"),
        ("TORCH_CUDA_ARCH_LIST", "9.0a"),
        ("TORCH_EXTRAS", "hf-doc-builder sk-learn-contrib"),
    ],
)
def test_what_is_no_secret_stays(name: str, value: str) -> None:
    (found,) = masked(environ(**{name: value}))
    assert found["variables"] == {name: value}


def test_the_own_home_becomes_a_tilde_and_other_users_are_numbered() -> None:
    captures = environ(HOME="/home/alice"), read("/home/alice/.cache /home/bob/x /home/alicent/y")
    _, text = masked(*captures)
    assert text["text"] == "~/.cache /home/<user:1>/x /home/<user:2>/y"


def test_a_telling_host_name_goes_everywhere_an_ordinary_word_only_where_it_is_a_name() -> None:
    _, text = masked(identity("gpu-node17.example.org"), read("at gpu-node17: gpu-node17.log"))
    assert text["text"] == "at <host:1>: gpu-node17.log"
    name, text = masked(identity("vllm"), read("vllm 0.26"))
    assert (name["hostname"], text["text"]) == ("<host:1>", "vllm 0.26")


def test_addresses_keep_their_subnet_in_variables_and_versions_are_no_addresses() -> None:
    variables, text = masked(
        environ(VLLM_HOST_IP="10.0.0.5", MASTER_ADDR="10.0.0.6", NCCL_VERSION="13.1.0.3"),
        read("nvidia-cublas 13.1.0.3"),
    )
    found = variables["variables"]
    assert (found["VLLM_HOST_IP"], found["MASTER_ADDR"]) == ("<ip:1.1>", "<ip:1.2>")
    assert found["NCCL_VERSION"] == "13.1.0.3"
    assert text["text"] == "nvidia-cublas 13.1.0.3"


def test_counts_name_each_value_once() -> None:
    redactor = Redactor(
        [
            environ(HF_TOKEN="hf_0123456789abcdefgh"),
            read("hf_0123456789abcdefgh hf_9876543210abcdefgh"),
        ]
    )
    assert [(row.kind, row.count) for row in redactor.redactions] == [("token", 2)]


@given(st.text(), st.sampled_from(["gpu-node17", "vllm", "n1"]), st.text(min_size=8))
def test_masking_twice_is_masking_once(text: str, hostname: str, secret: str) -> None:
    captures = [
        identity(hostname),
        environ(HF_TOKEN=secret, HOME="/home/alice"),
        read(f"{text} {secret} /home/alice hf_0123456789abcdefgh"),
    ]
    redactor = Redactor(captures)
    once = [redactor.capture(capture) for capture in captures]
    again = Redactor(once)
    assert [dataclasses.asdict(again.capture(c)) for c in once] == [
        dataclasses.asdict(c) for c in once
    ]
