"""The adapter of TensorRT-LLM against a stand-in module that has its signatures; never a real one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from infer_doctor.launch.python import read
from infer_doctor.runs.starting import Plan, start
from infer_doctor.runs.words import NoRun, program_of

STAND_IN = '''
"""LLM as in 1.x: keywords of BaseLlmArgs only (extra="forbid"); _tensorrt_engine until 1.2."""
KNOWN = {"model", "tokenizer", "tensor_parallel_size", "pipeline_parallel_size", "dtype",
         "trust_remote_code", "kv_cache_config", "max_batch_size", "max_num_tokens", "max_seq_len",
         "load_format", "revision", "backend", "skip_tokenizer_init"}


class SamplingParams:
    def __init__(self, *, end_id=None, pad_id=None, max_tokens=32, temperature=None, **more):
        self.max_tokens = max_tokens


class LLM:
    def __init__(self, model, tokenizer=None, **keywords):
        unknown = set(keywords) - KNOWN
        if unknown:
            raise ValueError(f"Extra inputs are not permitted: {sorted(unknown)}")
        import os
        if not os.path.isdir(model):
            raise RuntimeError(f"Failed to load model {model}")
        print("LLM", model, sorted(keywords.items()))

    def generate(self, inputs, sampling_params=None, use_tqdm=True):
        assert sampling_params.max_tokens == 1
        return [None for _ in inputs]

    def shutdown(self):
        print("shut down")
'''

SERVE = """#!{python}
# trtllm-serve of 1.x: [serve] MODEL with underscores; answers /health when it is up
import sys, http.server
words = sys.argv[1:]
words = words[1:] if words[0] == "serve" else words
model, values = words[0], dict(zip(words[1::2], words[2::2]))
known = {{"--host", "--port", "--tp_size", "--max_batch_size", "--kv_cache_free_gpu_memory_fraction"}}
unknown = set(values) - known
if unknown:
    sys.exit(f"Error: No such option: {{unknown.pop()}}")
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer((values["--host"], int(values["--port"])), Answer).serve_forever()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    package = tmp_path / "site" / "tensorrt_llm"
    (package / "_tensorrt_engine").mkdir(parents=True)
    (package / "__init__.py").write_text(STAND_IN)
    (package / "_tensorrt_engine" / "__init__.py").write_text("from tensorrt_llm import LLM\n")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "trtllm-serve"
    program.write_text(SERVE.format(python=sys.executable))
    program.chmod(0o755)
    (tmp_path / "model").mkdir()
    (tmp_path / "logs").mkdir()
    return tmp_path


def plan(place: Path, words: tuple[str, ...], *, serves: bool) -> Plan:
    variables = {
        "PYTHONPATH": str(place / "site"),
        "PATH": f"{place}/bin:{os.environ['PATH']}",
    }
    return Plan(
        words=words,
        variables=variables,
        folder=str(place),
        logs=str(place / "logs"),
        serves=serves,
        engine="tensorrt-llm",
    )


def of_code(code: str) -> tuple[str, ...]:
    (launch,) = read(code, "serve.py").launches
    return program_of(launch, sys.executable)


@pytest.mark.parametrize("module", ["tensorrt_llm", "tensorrt_llm._tensorrt_engine"])
def test_a_call_of_llm_comes_up(place: Path, module: str) -> None:
    words = of_code(
        f"from {module} import LLM\n"
        f"llm = LLM(model={str(place / 'model')!r}, tensor_parallel_size=2,\n"
        "          kv_cache_config={'free_gpu_memory_fraction': 0.5})\n"
    )
    assert words[3] == module
    seen = start(plan(place, words, serves=False))
    assert seen.start.ready, seen.start
    text = Path(seen.start.log).read_text()
    assert "('tensor_parallel_size', 2)" in text and "'free_gpu_memory_fraction': 0.5" in text


def test_what_it_refuses_is_seen(place: Path) -> None:
    words = of_code(
        f"from tensorrt_llm import LLM\nLLM(model={str(place / 'model')!r}, gpu_memory=1)\n"
    )
    seen = start(plan(place, words, serves=False))
    assert not seen.start.ready and seen.start.status == 1
    assert "Extra inputs are not permitted: ['gpu_memory']" in seen.start.tail


def test_what_only_the_code_knows_is_not_started() -> None:
    with pytest.raises(NoRun, match="which is known only there"):
        of_code("from tensorrt_llm import LLM\nimport os\nLLM(model=os.environ['M'])\n")


@pytest.mark.parametrize("serve", [("serve",), ()])
def test_trtllm_serve_comes_up(place: Path, serve: tuple[str, ...]) -> None:
    words = ("trtllm-serve", *serve, str(place / "model"), "--tp_size", "1", "--port", "9")
    seen = start(plan(place, words, serves=True))
    assert seen.start.ready and seen.start.left == ()
    assert seen.start.command[-4] == "--host" and seen.start.command.count("--port") == 1
    wrong = start(plan(place, (*words, "--max-model-len", "9"), serves=True))
    assert "No such option: --max-model-len" in wrong.start.tail
