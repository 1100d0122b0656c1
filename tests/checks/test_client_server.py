"""Code that serves an engine, read from source as `check FILE` reads it."""

from __future__ import annotations

import pytest

from infer_doctor.checks.client_server import (
    error_hidden,
    key_in_source,
    load_unbudgeted,
    loop_blocked,
    name_missing,
)
from infer_doctor.facts.client_code import ClientCode
from infer_doctor.launch.python import read
from infer_doctor.model import Finding
from infer_doctor.testing import contract, examine

IMPORTS = """
import asyncio, os, time
import requests
from contextlib import asynccontextmanager
from fastapi import FastAPI, HTTPException, status
from fastapi.responses import JSONResponse
from openai import AsyncOpenAI, OpenAI
from vllm import LLM
"""
APP = "app = FastAPI()\n"
MODEL = "llm = LLM('meta-llama/Llama-3.1-8B')\n"


def code(text: str) -> ClientCode:
    return read(IMPORTS + text, "server.py").code


def findings(check: object, text: str) -> tuple[Finding, ...]:
    return examine(check, code(text)).findings  # type: ignore[arg-type]


HANDLER = f"{APP}{MODEL}@app.post('/generate')\nasync def generate(body: dict):\n"
BLOCKED = f"{HANDLER}    return llm.generate(body['prompt'])"
THREAD = f"{HANDLER}    return await asyncio.to_thread(llm.generate, body['prompt'])"
LIFESPAN = (
    "@asynccontextmanager\nasync def lifespan(app):\n    app.state.llm = LLM(MODEL)\n    yield\n"
)


def test_contracts() -> None:
    contract(loop_blocked, fires=[code(BLOCKED)], passes=[code(THREAD)])
    contract(
        load_unbudgeted,
        fires=[code(f"{LIFESPAN}app = FastAPI(lifespan=lifespan)")],
        passes=[code(f"{MODEL}{APP}")],
    )
    contract(
        error_hidden,
        fires=[code(f"{HANDLER}    raise HTTPException(status_code=200, detail='x')")],
        passes=[code(f"{HANDLER}    raise HTTPException(status_code=503, detail='x')")],
    )
    contract(
        name_missing,
        fires=[code("from vllm import PoolingType")],
        passes=[code("from vllm import SamplingParams")],
    )
    contract(
        key_in_source,
        fires=[code("c = OpenAI(api_key='sk-4f9a8b7c6d5e4f3a2b1c0d9e')")],
        passes=[code("c = OpenAI(api_key=os.environ['KEY'])")],
    )


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        (BLOCKED, "certain"),
        (f"{HANDLER}    return app.state.x(llm.chat([]))", "certain"),
        (f"{HANDLER}    time.sleep(1)", "certain"),
        (f"{HANDLER}    requests.post('http://llm:8000/v1/completions', timeout=9)", "certain"),
        (
            f"c = OpenAI()\n{HANDLER}    c.chat.completions.create(model='m', messages=[])",
            "certain",
        ),
        (
            f"{HANDLER}    return run(body)\ndef run(body):\n    return llm.generate(body)",
            "certain",
        ),
        (
            f"{HANDLER}    return await run(body)\nasync def run(body):\n"
            "    return llm.generate(body)",
            "certain",
        ),
        (
            f"{LIFESPAN}app = FastAPI(lifespan=lifespan)\n@app.post('/')\nasync def f():\n"
            "    return app.state.llm.generate('x')",
            "certain",
        ),
        (
            "class S:\n    def __init__(self):\n        self.llm = LLM('m')\n"
            f"    async def run(self, p):\n        return self.llm.generate(p)\n{APP}s = S()\n"
            "@app.post('/')\nasync def f(p):\n    return await s.run(p)",
            "certain",
        ),
        (f"{APP}{MODEL}async def worker(q):\n    llm.generate(await q.get())", "likely"),
    ],
)
def test_what_blocks_the_loop(text: str, confidence: str) -> None:
    (finding,) = findings(loop_blocked, text)
    assert finding.confidence == confidence


@pytest.mark.parametrize(
    "text",
    [
        THREAD,
        f"{APP}{MODEL}@app.post('/g')\ndef g():\n    return llm.generate('x')",
        f"{HANDLER}    loop = asyncio.get_running_loop()\n"
        "    return await loop.run_in_executor(None, lambda: llm.generate('x'))",
        f"{HANDLER}    def run():\n        return llm.generate('x')\n"
        "    return await asyncio.to_thread(run)",
        f"{HANDLER}    await asyncio.sleep(1)",
        f"c = AsyncOpenAI()\n{HANDLER}    await c.chat.completions.create(model='m')",
        f"{MODEL}async def main():\n    print(llm.generate('x'))\nasyncio.run(main())",
        "from tensorrt_llm import LLM as T\nt = T('m')\n"
        f"{HANDLER}    return await t.generate_async('x')",
        f"{HANDLER}    return requests.get('http://x/health')",
    ],
)
def test_what_does_not(text: str) -> None:
    assert findings(loop_blocked, text) == ()


def test_blocked_message_and_fix() -> None:
    (finding,) = findings(loop_blocked, BLOCKED)
    assert finding.message == (
        "vllm.LLM.generate blocks in `async def generate`, on the server's event loop: until it "
        "returns no other request is answered, not even /health"
    )
    assert [row.line for row in finding.evidence] == [13, 12]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"{APP}@app.on_event('startup')\nasync def s():\n    LLM('m')", 1),
        (f"{APP}@app.on_event('shutdown')\nasync def s():\n    LLM('m')", 0),
        ("def s():\n    LLM('m')\napp = FastAPI(on_startup=[s])", 1),
        (f"{LIFESPAN}{APP}", 0),
        ("def main():\n    LLM('m')", 0),
    ],
)
def test_load_in_the_start(text: str, count: int) -> None:
    assert len(findings(load_unbudgeted, text)) == count


def test_the_budget_follows_from_the_size() -> None:
    text = LIFESPAN.replace("MODEL", "'meta-llama/Llama-3.1-70B-Instruct'")
    (finding,) = findings(load_unbudgeted, f"{text}app = FastAPI(lifespan=lifespan)")
    assert finding.message == (
        "lifespan loads meta-llama/Llama-3.1-70B-Instruct before the server answers, some 805 s "
        "with 140 GB at 200 MB/s; a probe that does not wait kills it"
    )
    assert "1260 s" in finding.fixes[0].title


EXCEPT = f"{HANDLER}    try:\n        work()\n    except Exception as e:\n        "


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        (f"{EXCEPT}raise HTTPException(status_code=200, detail=str(e))", "certain"),
        (f"{EXCEPT}raise HTTPException(200, str(e))", "certain"),
        (f"{EXCEPT}raise HTTPException(status_code=status.HTTP_200_OK)", "certain"),
        (f"{EXCEPT}return JSONResponse({{'error': str(e)}})", "certain"),
        (f"{EXCEPT}return JSONResponse(content={{'error': 1}}, status_code=200)", "certain"),
        (f"{EXCEPT}return {{'error': str(e)}}", "likely"),
    ],
)
def test_errors_with_a_status_of_success(text: str, confidence: str) -> None:
    (finding,) = findings(error_hidden, text)
    assert finding.confidence == confidence


@pytest.mark.parametrize(
    "text",
    [
        f"{EXCEPT}raise HTTPException(status_code=500, detail=str(e))",
        f"{EXCEPT}raise HTTPException(status_code=code)",
        f"{EXCEPT}return JSONResponse({{'error': str(e)}}, status_code=502)",
        f"{EXCEPT}return JSONResponse({{'error': str(e)}}, 502)",
        f"{EXCEPT}return {{'error': str(e)}}, 500",
        f"{EXCEPT}response.status_code = 500\n        return {{'error': str(e)}}",
        f"{EXCEPT}return {{'text': ''}}",
        f"{HANDLER}    return {{'error': None}}",
        "def tool():\n    try:\n        pass\n    except Exception as e:\n"
        "        return {'error': str(e)}",
    ],
)
def test_honest_answers(text: str) -> None:
    assert findings(error_hidden, text) == ()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("from vllm import LLM, PoolingType", ["PoolingType"]),
        ("from vllm import AsyncLLM", ["AsyncLLM"]),
        ("llm = LLM('m')\nllm.generate('x', SamplingParams())", ["SamplingParams"]),
        ("from vllm import envs, utils, SamplingParams, __version__", []),
        ("from vllm import *\nSamplingParams()", []),
        ("from vllm.sampling_params import SamplingParams\nSamplingParams()", []),
        ("try:\n    from vllm import New\nexcept ImportError:\n    New = None", []),
        ("def f(SamplingParams):\n    SamplingParams()", []),
        ("def f(p: SamplingParams) -> SamplingParams: ...", []),
        ("from vllm.entrypoints import anything", []),
        ("from .vllm import Mine", []),
    ],
)
def test_names(text: str, names: list[str]) -> None:
    assert [row.about.split()[-1] for row in findings(name_missing, text)] == names


def test_names_of_other_packages_are_not_ours() -> None:
    other = read("from mylib import x\nLLM('m')\nSamplingParams()", "x.py").code
    assert examine(name_missing, other).outcome == "passed"


def test_name_messages() -> None:
    (finding,) = findings(name_missing, "from vllm import PoolingType")
    assert finding.message == (
        "no release of vllm from 0.6.0 to 0.33.0 has PoolingType: ImportError"
    )
    assert finding.fixes[0].title == (
        "Take PoolingType out of the import in server.py:9; vLLM takes the type as a word: "
        'PoolerConfig(pooling_type="MEAN")'
    )


KEY = "sk-4f9a8b7c6d5e4f3a2b1c0d9e"


@pytest.mark.parametrize(
    "text",
    [
        f"OpenAI(api_key='{KEY}')",
        f"OPENAI_API_KEY = '{KEY}'",
        f"os.environ['OPENAI_API_KEY'] = '{KEY}'",
        f"headers = {{'Authorization': 'Bearer {KEY}'}}",
        f"headers = {{'Authorization': f'Bearer {KEY}'}}",
        f"login('{KEY.replace('sk-', 'hf_')}')",
        "OpenAI(api_key='prod-7d1f2c9e')",
        "class C:\n    api_key: str = 'a8f5f167f44f4964e6c998dee827110c'",
    ],
)
def test_keys_and_their_masks(text: str) -> None:
    (finding,) = findings(key_in_source, text)
    report = repr(finding)
    assert "<token>" in finding.evidence[0].excerpt
    assert KEY[3:] not in report
    assert "7d1f2c9e" not in report
    assert "a8f5f167f44f" not in report


@pytest.mark.parametrize(
    "text",
    [
        "OpenAI(api_key='EMPTY')",
        "OpenAI(api_key='token-abc123')",
        "OpenAI(api_key='sk-xxxxxxxxxxxxxxxxxxxx')",
        "OpenAI(api_key='sk-no-key-required')",
        "OpenAI(api_key='your-api-key-1')",
        "OpenAI(api_key='not-needed')",
        "OpenAI(api_key='dummy-key-123')",
        "OpenAI(api_key='')",
        "OpenAI(api_key='0')",
        "OpenAI(api_key='none')",
        "OpenAI(api_key=f'{prefix}-1234abcd')",
        "OPENAI_API_KEY = os.getenv('OPENAI_API_KEY')",
        "parser.add_argument('--api-key', default='EMPTY')",
        "tokenizer.pad_token = '<|pad0000001|>'",
        "HF_TOKEN_PATH = '/run/secrets/token1'",
        "x = 'Bearer {token}'",
        "'the form is sk-...'",
        "'sk-ssh-ed25519@openssh.com'",
    ],
)
def test_what_only_stands_for_a_key(text: str) -> None:
    assert findings(key_in_source, text) == ()


def test_no_key_in_the_whole_fact() -> None:
    fact = code(f"c = OpenAI(api_key='{KEY}')\nc.chat.completions.create(model='m')")
    assert KEY not in repr(fact)
