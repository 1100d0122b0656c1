"""Addresses, events, keys, the environment's proxy, names, summaries."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infer_doctor.server import certificate, key, names
from infer_doctor.server.address import BadAddress, parse
from infer_doctor.server.connect import proxy_of
from infer_doctor.server.load import histogram, summary
from infer_doctor.server.sse import Events, error_text


@pytest.mark.parametrize(
    ("text", "authority", "api"),
    [
        ("http://host:8000", "host:8000", "/v1"),
        ("http://host:8000/", "host:8000", "/v1"),
        ("http://host:8000/v1", "host:8000", "/v1"),
        ("http://host/v1/chat/completions?x=1", "host", "/v1"),
        ("https://host/llm/v1/", "host", "/llm/v1"),
        ("https://host:443/llm", "host", "/llm/v1"),
        ("http://[::1]:8000", "[::1]:8000", "/v1"),
        ("HTTP://Host.Example:80", "host.example", "/v1"),
        ("http://host/v1beta", "host", "/v1beta/v1"),
        ("http://host/chat/completions", "host", ""),
        ("http://host/v1beta/openai/chat/completions", "host", "/v1beta/openai"),
        ("http://host/api/completions/", "host", "/api"),
        ("http://b\u00fccher.example", "xn--bcher-kva.example", "/v1"),
    ],
)
def test_addresses(text: str, authority: str, api: str) -> None:
    address = parse(text)
    assert (address.authority, address.api) == (authority, api)


def test_a_deployment_of_azure() -> None:
    address = parse(
        "https://x.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2&k=v"
    )
    assert (address.deployment, address.query) == ("gpt", "?api-version=2")
    assert (parse("http://host/v1?key=secret").query, parse("http://host/v1").deployment) == (
        "",
        None,
    )


@pytest.mark.parametrize("text", ["ftp://a", "http://", "http://a b", "http://a:b", "http://u:p@a"])
def test_bad_addresses(text: str) -> None:
    with pytest.raises(BadAddress):
        parse(text)


CHAT = (
    b'data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n'
    b': keep-alive\n\ndata: {"choices":[{"delta":{"content":"b"},"finish_reason":null}]}\r\n\r\n'
    b'data: {"choices":[{"delta":{"content":""},"finish_reason":"length"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}\n\ndata: [DONE]\n\n'
)


@given(st.lists(st.integers(1, len(CHAT) - 1), max_size=8))
def test_events_however_they_are_cut(cuts: list[int]) -> None:
    events = Events()
    places = [0, *sorted(cuts), len(CHAT)]
    for number, (start, end) in enumerate(pairwise(places)):
        events.take(CHAT[start:end], float(number))
    events.end(9.0)
    assert (len(events.times), events.tokens, events.finish, events.done) == (3, 3, "length", True)
    assert (events.error, events.bad) == ("", 0)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"error": "Unauthorized"}, "Unauthorized"),
        ({"error": {"message": "no model", "code": 404}}, "no model"),
        ({"detail": [{"msg": "field required"}]}, "field required"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"choices": []}, ""),
        ([], ""),
    ],
)
def test_error_bodies(body: object, text: str) -> None:
    assert error_text(body) == text


def test_keys() -> None:
    own, hosted = parse("http://10.0.0.5:8000"), parse("https://api.openai.com")
    both = {"VLLM_API_KEY": "own-key-1", "OPENAI_API_KEY": "open-key-1"}
    found = key.find(own, None, both)
    assert found is not None
    assert (found.source, found.eager, found.value) == ("VLLM_API_KEY", True, "own-key-1")
    assert "own-key-1" not in repr(found)
    found = key.find(own, None, {"OPENAI_API_KEY": "open-key-1"})
    assert found is not None
    assert found.eager is False
    found = key.find(hosted, None, both)
    assert found is not None
    assert (found.source, found.eager) == ("OPENAI_API_KEY", True)
    assert key.find(own, None, {}) is None
    with pytest.raises(key.BadKey):
        key.find(own, None, {"VLLM_API_KEY": "two\nlines"})


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, None),
        ({"HTTP_PROXY": "http://u:p@proxy:3128"}, ("HTTP_PROXY", "proxy:3128")),
        ({"https_proxy": "http://proxy:3128"}, None),
        ({"ALL_PROXY": "http://proxy:1"}, ("ALL_PROXY", "http://proxy:1")),
        ({"http_proxy": "http://proxy:1", "NO_PROXY": ".example"}, None),
        ({"http_proxy": "http://proxy:1", "NO_PROXY": "llm.example:8000"}, None),
        (
            {"http_proxy": "http://proxy:1", "NO_PROXY": "llm.example:9"},
            ("http_proxy", "http://proxy:1"),
        ),
        ({"http_proxy": "http://proxy:1", "NO_PROXY": "*"}, None),
        (
            {"http_proxy": "http://small:1", "HTTP_PROXY": "http://big:1"},
            ("http_proxy", "http://small:1"),
        ),
        ({"HTTP_PROXY": "http://big:1", "http_proxy": ""}, None),
        (
            {"HTTP_PROXY": "http://big:1", "NO_PROXY": "*", "no_proxy": ""},
            ("HTTP_PROXY", "http://big:1"),
        ),
    ],
)
def test_the_proxy_of_the_environment(
    variables: dict[str, str], proxy: tuple[str, str] | None
) -> None:
    assert proxy_of(parse("http://llm.example:8000"), variables) == proxy


@pytest.mark.parametrize(
    ("asked", "offered", "nearest"),
    [
        ("llama-3.1-8b", ("meta-llama/Llama-3.1-8B", "other"), "meta-llama/Llama-3.1-8B"),
        ("tinny", ("big", "tiny"), "tiny"),
        ("gpt-4o", ("qwen", "mistral"), None),
        ("gpt-4o", ("qwen",), "qwen"),
    ],
)
def test_the_nearest_name(asked: str, offered: tuple[str, ...], nearest: str | None) -> None:
    assert names.nearest(asked, offered) == nearest


@given(st.lists(st.floats(0.01, 100_000), min_size=1, max_size=120))
def test_quantiles_are_measured_values_in_order(values: list[float]) -> None:
    found = summary(values)
    assert found is not None
    rounded = {round(value, 3) for value in values}
    known = [found.p50, *(row for row in (found.p90, found.p99) if row is not None), found.most]
    assert set(known) <= rounded
    assert known == sorted(known)
    assert found.most == round(max(values), 3)
    assert (found.p90 is None, found.p99 is None) == (len(values) < 10, len(values) < 100)
    assert sum(count for _, count in histogram(values)) == len(values)


@given(st.binary(max_size=400))
def test_bytes_that_are_no_certificate(data: bytes) -> None:
    certificate.read(data)
