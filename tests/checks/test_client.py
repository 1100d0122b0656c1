"""Code that asks an engine, read from source as `check FILE` reads it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infer_doctor.checks.client import (
    made_per_request,
    requests_unbounded,
    retries_multiply,
    timeout_missing,
    timeout_short,
)
from infer_doctor.facts.client_code import ClientCode
from infer_doctor.launch.python import read
from infer_doctor.model import Finding
from infer_doctor.testing import contract, examine

IMPORTS = """
import asyncio, time
import aiohttp, backoff, httpx, requests, tenacity
from functools import lru_cache
from fastapi import FastAPI
from openai import AsyncOpenAI, OpenAI
from tenacity import retry, stop_after_attempt, stop_after_delay
app = FastAPI()
URL = "http://llm:8000/v1"
"""


def code(text: str) -> ClientCode:
    return read(IMPORTS + text, "client.py").code


def findings(check: object, text: str) -> tuple[Finding, ...]:
    return examine(check, code(text)).findings  # type: ignore[arg-type]


ASK = "client.chat.completions.create(model='m', messages=[])"
BARE = f"client = OpenAI(base_url=URL)\n{ASK}"
LIMITED = f"client = OpenAI(base_url=URL, timeout=60, max_retries=0)\n{ASK}"


def test_contracts() -> None:
    contract(timeout_missing, fires=[code(BARE)], passes=[code(LIMITED)])
    contract(
        timeout_short,
        fires=[code("httpx.post(URL + '/chat/completions', json={})")],
        passes=[code("httpx.post(URL + '/chat/completions', json={}, timeout=60)")],
    )
    contract(
        retries_multiply,
        fires=[code(f"{BARE}\n@retry(stop=stop_after_attempt(3))\ndef f():\n    {ASK}")],
        passes=[code(f"{LIMITED}\n@retry(stop=stop_after_attempt(3))\ndef f():\n    {ASK}")],
    )
    contract(
        made_per_request,
        fires=[code("@app.get('/')\nasync def f():\n    c = AsyncOpenAI(base_url=URL)")],
        passes=[code("c = AsyncOpenAI(base_url=URL)\n@app.get('/')\nasync def f():\n    pass")],
    )
    many = "async def main():\n    await asyncio.gather(*[one(p) for p in prompts])\n"
    one = f"client = AsyncOpenAI(base_url=URL)\nasync def one(p):\n    return await {ASK}\n"
    contract(
        requests_unbounded,
        fires=[code(one + many)],
        passes=[code("limit = asyncio.Semaphore(8)\n" + one + many)],
    )


def test_what_could_not_be_read_never_passes() -> None:
    partial = replace(code(""), gaps=("cell 3 could not be read",))
    assert examine(timeout_missing, partial).outcome == "blocked"


@pytest.mark.parametrize(
    "text",
    [
        f"client = OpenAI(base_url=URL, timeout=T)\n{ASK}",
        f"client = OpenAI(base_url=URL, timeout=httpx.Timeout(60))\n{ASK}",
        f"client = OpenAI(base_url=URL, http_client=h)\n{ASK}",
        f"client = OpenAI(**options)\n{ASK}",
        "client = OpenAI(base_url=URL)\nclient.chat.completions.create(model='m', timeout=9)",
        "client = OpenAI(base_url=URL)\n"
        "client.with_options(timeout=9).chat.completions.create(model='m')",
        "client = AsyncOpenAI(base_url=URL)\nasync def f():\n"
        f"    await asyncio.wait_for({ASK}, 30)",
        "client = AsyncOpenAI(base_url=URL)\nasync def f():\n"
        f"    async with asyncio.timeout(30):\n        await {ASK}",
        "requests.post(URL + '/completions', json={}, timeout=(3, 60))",
        "requests.get('http://example.com/data.json')",
        "requests.post('http://example.com/hook')",
        "session = aiohttp.ClientSession()",
    ],
)
def test_a_deadline_somewhere_is_enough(text: str) -> None:
    assert findings(timeout_missing, text) == ()


@pytest.mark.parametrize(
    ("text", "severity", "confidence", "message"),
    [
        (
            BARE,
            "warning",
            "certain",
            "OpenAI(...) has no timeout: it waits 600 s for the next byte and asks 3 times, up to "
            "30 min for one call",
        ),
        (
            f"client = OpenAI(base_url=URL, max_retries=0)\n{ASK}",
            "warning",
            "certain",
            "OpenAI(...) has no timeout: it waits 600 s for the next byte",
        ),
        (
            f"client = OpenAI(base_url=URL, timeout=None)\n{ASK}",
            "warning",
            "certain",
            "OpenAI(timeout=None) waits for ever for an answer",
        ),
        (
            "client = AsyncOpenAI(base_url=URL)",
            "warning",
            "likely",
            "AsyncOpenAI(...) has no timeout: it waits 600 s for the next byte and asks 3 times, "
            "up to 30 min for one call",
        ),
        (
            "requests.post(f'{BASE}/v1/completions', json={})",
            "warning",
            "certain",
            "requests.post in the module has no timeout: it waits for ever for an answer",
        ),
        (
            "s = requests.Session()\ndef ask():\n    s.post(URL + '/completions', timeout=None)",
            "warning",
            "certain",
            "requests.Session.post in ask has no timeout: it waits for ever for an answer",
        ),
    ],
)
def test_no_deadline(text: str, severity: str, confidence: str, message: str) -> None:
    (finding,) = findings(timeout_missing, text)
    assert (finding.severity, finding.confidence) == (severity, confidence)
    assert finding.message == message


@pytest.mark.parametrize(
    "text", ["client = OpenAI()", "client = OpenAI(base_url='https://api.openai.com/v1')"]
)
def test_a_hosted_service_is_info(text: str) -> None:
    assert [row.severity for row in findings(timeout_missing, f"{text}\n{ASK}")] == ["info"]


def test_each_client_once_with_its_first_bare_request() -> None:
    (finding,) = findings(timeout_missing, f"{BARE}\n{ASK}\n")
    assert [row.line for row in finding.evidence] == [10, 11]
    assert finding.evidence[0].source == "client.py"


@pytest.mark.parametrize(
    "text",
    [
        "c = httpx.Client(timeout=60)\nc.post(URL + '/completions')",
        "c = httpx.Client(base_url=URL, timeout=60)\nc.post('/completions')",
        "c = httpx.AsyncClient(base_url=URL)\nc.get('/models')",
        "c = httpx.AsyncClient(base_url=URL)\nc.stream('POST', '/completions')",
        "c = httpx.AsyncClient()\nc.post('http://example.com/hook')",
        "httpx.post(URL + '/completions', **options)",
    ],
)
def test_httpx_that_waits(text: str) -> None:
    assert findings(timeout_short, text) == ()


def test_the_base_of_a_client_counts() -> None:
    text = (
        "async def f():\n    async with httpx.AsyncClient(base_url=URL) as c:\n"
        "        await c.post('/chat/completions')"
    )
    (finding,) = findings(timeout_short, text)
    assert finding.message.startswith("httpx.AsyncClient.post in f has no timeout: httpx gives up")
    assert "5 s" in finding.message


RETRIED = "client = OpenAI(base_url=URL, timeout=9, max_retries=3)\n"


@pytest.mark.parametrize(
    ("text", "many"),
    [
        (f"@retry(stop=stop_after_attempt(3))\ndef f():\n    {ASK}", "12 requests"),
        (
            "@tenacity.retry(stop=stop_after_attempt(3) | stop_after_delay(9))\n"
            f"def f():\n    {ASK}",
            "12 requests",
        ),
        (
            f"@backoff.on_exception(backoff.expo, Exception, max_tries=5)\ndef f():\n    {ASK}",
            "20 requests",
        ),
        (f"@retry\ndef f():\n    {ASK}", "requests without end"),
        (f"@retry_on_failure(max_attempts=4)\ndef f():\n    {ASK}", "16 requests"),
        (f"@retry(stop=my_stop)\ndef f():\n    {ASK}", "at least 4 requests"),
        (
            "def f(tries=3):\n    for i in range(tries):\n        try:\n"
            f"            return {ASK}\n        except Exception:\n            time.sleep(1)",
            "12 requests",
        ),
        (
            "def f():\n    while True:\n        try:\n"
            f"            return {ASK}\n        except Exception:\n            pass",
            "requests without end",
        ),
        (
            f"def f():\n    return {ASK}\n@retry(stop=stop_after_attempt(2))\ndef g():\n"
            "    return f()\ndef h():\n    for i in range(5):\n        try:\n"
            "            return g()\n        except Exception as e:\n            print(e)",
            "40 requests",
        ),
        (
            "def f():\n    for a in tenacity.Retrying(stop=stop_after_attempt(2)):\n"
            f"        with a:\n            return {ASK}",
            "8 requests",
        ),
    ],
)
def test_retries_multiply(text: str, many: str) -> None:
    (finding,) = findings(retries_multiply, RETRIED + text)
    assert f"becomes {many}: " in finding.message


def test_retries_message_and_fix() -> None:
    (finding,) = findings(
        retries_multiply,
        f"client = OpenAI(base_url=URL)\n@retry(stop=stop_after_attempt(3))\ndef f():\n    {ASK}",
    )
    assert finding.message == (
        "one failed call in f becomes 9 requests: tenacity.retry tries 3 times; the SDK asks 3 "
        "times (max_retries=2, its default)"
    )
    assert finding.fixes[0].title == (
        "Retry in one layer: set max_retries=0 and keep the 3 attempts of client.py:11"
    )


@pytest.mark.parametrize(
    "text",
    [
        ASK,
        f"for p in prompts:\n    try:\n        {ASK}\n    except Exception:\n        continue",
        f"for i in range(10):\n    {ASK}",
        "def f():\n    for i in range(3):\n        try:\n"
        f"            return {ASK}\n        except Exception:\n            raise",
        f"@retry(stop=stop_after_attempt(1))\ndef f():\n    {ASK}",
        f"@app.get('/')\ndef f():\n    {ASK}",
        "@retry(stop=stop_after_attempt(3))\ndef f():\n    requests.post(URL + '/completions')",
    ],
)
def test_one_layer_is_fine(text: str) -> None:
    assert findings(retries_multiply, RETRIED + text) == ()


def test_a_client_that_comes_from_elsewhere_has_retries_that_nobody_knows() -> None:
    text = f"@retry(stop=stop_after_attempt(3))\ndef f(client):\n    {ASK}"
    assert findings(retries_multiply, text) == ()


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    return OpenAI(base_url=URL)",
        "@lru_cache\ndef make():\n    return OpenAI()\n@app.get('/')\ndef f():\n    make()",
        "c = None\n@app.get('/')\ndef f():\n    global c\n    if c is None:\n        c = OpenAI()",
        "class S:\n    def __init__(self):\n        self.c = OpenAI()\n"
        "    @app.get('/')\n    def f(self):\n        self.c = self.c or OpenAI()",
    ],
)
def test_clients_that_are_kept(text: str) -> None:
    assert findings(made_per_request, text) == ()


def test_a_client_made_by_what_a_handler_calls() -> None:
    text = "def make():\n    return OpenAI(base_url=URL)\n@app.post('/')\ndef f():\n    make()"
    (finding,) = findings(made_per_request, text)
    assert finding.message == (
        "openai.OpenAI is made in make for each request: no connection is used again"
    )


GATHERED = f"client = AsyncOpenAI(base_url=URL)\nasync def one(p):\n    return await {ASK}\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("async def m():\n    await asyncio.gather(*(one(p) for p in ps))", 1),
        ("async def m():\n    t = [one(p) for p in ps]\n    await asyncio.gather(*t)", 1),
        (
            "async def m():\n    t = [asyncio.create_task(one(p)) for p in ps]\n"
            "    await asyncio.gather(*t)",
            1,
        ),
        ("async def m():\n    await asyncio.gather(one(1), one(2))", 0),
        ("async def m():\n    await asyncio.gather(*[one(p) for p in ['a', 'b']])", 0),
        ("async def m():\n    for p in ps:\n        await one(p)", 0),
    ],
)
def test_gather(text: str, count: int) -> None:
    assert len(findings(requests_unbounded, GATHERED + text)) == count
