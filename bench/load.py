"""The load generator: 500 open streams on one core, and `vllm bench serve` on the same load.

    [INFER_DOCTOR_TEST_ENGINE=DIR] python bench/load.py

The streams come from a server of this file whose times between tokens are known; the client has one
core. With an engine, our first-token times stand beside those of `vllm bench serve`, by turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "rigs"))

from infer_doctor.server.address import parse
from infer_doctor.server.connect import reach
from infer_doctor.server.load import Spec, run, summarize

STREAMS = 500
TOKENS = 50
GAP_S = 0.2
TURNS = 5
REQUESTS, AT_ONCE, ANSWER = 40, 2, 32


async def serve() -> None:
    """Answers every POST with TOKENS events, GAP_S apart; prints the mean gap it really made."""
    made: list[float] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:  # only a look whether the port is open
            writer.close()
            return
        size = int(re.search(rb"content-length: (\d+)", head, re.I)[1])
        await reader.readexactly(size)
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        )
        first = last = 0.0
        for number in range(TOKENS):
            event = {"choices": [{"index": 0, "text": f" {number}", "finish_reason": None}]}
            writer.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            await writer.drain()
            last = time.monotonic()
            first = first or last
            if number < TOKENS - 1:
                await asyncio.sleep(GAP_S)
        usage = {"choices": [], "usage": {"completion_tokens": TOKENS, "prompt_tokens": 1}}
        writer.write(b"data: " + json.dumps(usage).encode() + b"\n\ndata: [DONE]\n\n")
        await writer.drain()
        writer.close()
        made.append((last - first) / (TOKENS - 1))
        if len(made) == STREAMS:
            print(sum(made) / len(made), flush=True)

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def ask(url: str, spec: Spec):
    _, route = await reach(parse(url), os.environ, time.monotonic() + 10)
    return await run(route, spec)


def many() -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    rest = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(rest, stdout=subprocess.PIPE, text=True) as server:
        port = int(server.stdout.readline())
        spec = Spec(
            model="m",
            requests=STREAMS,
            concurrency=STREAMS,
            tokens=TOKENS,
            chat=False,
            timeout_s=300,
        )
        cpu = time.process_time()
        outcomes = asyncio.run(ask(f"http://127.0.0.1:{port}", spec))
        cpu = time.process_time() - cpu
        truth = float(server.stdout.readline()) * 1000
        server.terminate()
    level = summarize(outcomes, STREAMS)
    exact = sum(row.tokens == TOKENS and len(row.times) == TOKENS for row in outcomes)
    error = 100 * (level.mean_token_ms / truth - 1)
    print(
        f"{STREAMS} open streams, one core for client and server: failed {level.failed or 0}, "
        f"exact token counts {exact} of {STREAMS}, mean per token {level.mean_token_ms:.2f} ms "
        f"against {truth:.2f} ms ({error:+.2f} %), CPU of the client {cpu:.1f} s"
    )


def beside_the_rival() -> None:
    folder = os.environ.get("INFER_DOCTOR_TEST_ENGINE")
    if not folder:
        print("vllm bench serve: left out, INFER_DOCTOR_TEST_ENGINE names no engine")
        return
    from served_engine import KEY, MODEL, served, serving

    from infer_doctor.server.key import Key

    plain = Path(folder).resolve()
    with serving(plain) as environment, served(environment) as server:
        ours, theirs = [], []
        engine = Path(f"/proc/{server.api}/cmdline").read_bytes().split(b"\0")[0].decode()
        model = Path(f"/proc/{server.api}/cmdline").read_bytes().split(b"\0")[4].decode()
        for _ in range(TURNS):
            theirs.append(rival(engine, model, server.port, KEY, MODEL))
            spec = Spec(
                model=MODEL,
                requests=REQUESTS,
                concurrency=AT_ONCE,
                tokens=ANSWER,
                chat=False,
                exact=True,
                key=Key(value=KEY, source="rig", eager=True),
            )
            outcomes = asyncio.run(ask(server.url, spec))
            level = summarize(outcomes, AT_ONCE)
            exact = sum(row.tokens == ANSWER for row in outcomes)
            ours.append(level.ttft.mean)
            print(
                f"turn: ours TTFT {level.ttft.mean:.1f} ms ({exact} of {REQUESTS} exact), "
                f"vllm bench serve {theirs[-1]:.1f} ms"
            )
    mean_ours, mean_theirs = statistics.median(ours), statistics.median(theirs)
    print(
        f"median of the mean TTFT {mean_ours:.1f} ms, vllm bench serve {mean_theirs:.1f} ms "
        f"({100 * (mean_ours / mean_theirs - 1):+.1f} %), to reach: within 10 %"
    )


def rival(engine: str, model: str, port: int, key: str, name: str) -> float:
    """Mean TTFT in ms of vLLM's own benchmark; prompts of as many tokens as ours."""
    command = [engine, "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--model", name]
    command += ["--tokenizer", model, "--port", str(port), "--host", "127.0.0.1"]
    command += ["--dataset-name", "random", "--random-input-len", "40"]
    command += ["--random-output-len", str(ANSWER), "--num-prompts", str(REQUESTS), "--ignore-eos"]
    command += ["--max-concurrency", str(AT_ONCE), "--num-warmups", "2"]
    said = subprocess.run(
        command,
        env={**os.environ, "OPENAI_API_KEY": key, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    found = re.search(r"Mean TTFT \(ms\):\s+([\d.]+)", said.stdout)
    if found is None:
        raise SystemExit(said.stdout[-500:] + said.stderr[-1500:])
    return float(found[1])


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        asyncio.run(serve())
    else:
        many()
        beside_the_rival()
