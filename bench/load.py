"""The load generator: 500 open streams on one core, and `vllm bench serve` on the same load.

    [INFER_DOCTOR_TEST_ENGINE=DIR] python bench/load.py

The streams come from a server of this file whose times between tokens are known; the client has one
core. With an engine, our first-token times stand beside those of `vllm bench serve`, by turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "rigs"))

from served_engine import KEY, MODEL, Served, served, serving

from infer_doctor.server import metrics
from infer_doctor.server.address import parse
from infer_doctor.server.connect import reach
from infer_doctor.server.key import Key
from infer_doctor.server.load import Spec, run, summarize
from infer_doctor.server.metrics import Scrape

STREAMS = 500
TOKENS = 50
GAP_S = 0.2
TURNS = 6
LOADS = (2, 8)
"""At once, on a server that runs two: nothing waits, or three quarters do. Where nothing waits the first
token of a tiny model takes 7 ms, and what a client itself adds to it is a large part."""
REQUESTS, ANSWER = 40, 32


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
    """The same prompts by both clients on one real server, A B B A, each on the core the engine has not.

    The server's own sums say whether both gave it the same load: what a client adds is the rest.
    """
    folder = os.environ.get("INFER_DOCTOR_TEST_ENGINE")
    if not folder:
        print("vllm bench serve: left out, INFER_DOCTOR_TEST_ENGINE names no engine")
        return
    cores = sorted(os.sched_getaffinity(0))
    with serving(Path(folder).resolve()) as environment, served(environment) as server:
        os.sched_setaffinity(0, cores[-1:])  # inherited by the rival
        our_turn(server, LOADS[0])  # the first answers of a server are slow
        for at_once in LOADS:
            by_turns(server, at_once)
        os.sched_setaffinity(0, cores)


def by_turns(server: Served, at_once: int) -> None:
    """Both at one load, and how they compare."""
    ours: list[Turn] = []
    theirs: list[Turn] = []
    both = ((our_turn, ours, "ours"), (their_turn, theirs, "vllm bench serve"))
    for number in range(TURNS):
        for take, kept, name in both if number % 2 == 0 else both[::-1]:
            kept.append(take(server, at_once))
            print(f"  {at_once} at once, turn {number + 1}: {name:<17}{kept[-1]}", flush=True)
    print(f"{at_once} at once, {REQUESTS} requests, {TURNS} turns:")
    tell("first token", "first", ours, theirs, "within 10 %")
    tell("the same by the server's sums", "server_first", ours, theirs, "one load for both")
    tell(
        "the same over the server's sums",
        "share",
        ours,
        theirs,
        "within 10 %, also on a busy machine",
    )
    tell("what the client adds", "added", ours, theirs, "not more than the rival")
    tell("per token", "token", ours, theirs, "-")
    own = statistics.median(100 * (row.token / row.server_token - 1) for row in ours)
    print(f"  ours per token against the server's sum/count: {own:+.1f} %, to reach: within 5 %")
    print(
        f"  exact token counts: {sum(row.exact for row in ours)} of {REQUESTS * TURNS}", flush=True
    )


@dataclass
class Turn:
    """Means of one turn in ms, of the client and of the server."""

    first: float
    server_first: float
    token: float
    server_token: float
    exact: int = REQUESTS

    @property
    def added(self) -> float:
        """What the way to the client and the client itself add to the server's own first token."""
        return self.first - self.server_first

    @property
    def share(self) -> float:
        """The client's first token as a multiple of the server's: what the machine does else cancels."""
        return self.first / self.server_first

    def __str__(self) -> str:
        return (
            f"first token {self.first:6.2f} ms (server {self.server_first:6.2f}), "
            f"per token {self.token:5.2f} ms (server {self.server_token:5.2f})"
        )


def tell(what: str, name: str, ours: list[Turn], theirs: list[Turn], goal: str) -> None:
    """The median of the turns' ratios: neighbours in time share what else the machine does."""
    pairs = [(getattr(a, name), getattr(b, name)) for a, b in zip(ours, theirs, strict=True)]
    ratio = statistics.median(a / b for a, b in pairs)
    unit = "" if name == "share" else " ms"
    mine, rival = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(
        f"  {what}: {mine:.2f}{unit}, vllm bench serve {rival:.2f}{unit}, median of the ratios "
        f"{100 * (ratio - 1):+.1f} %, to reach: {goal}"
    )


def spec_for(at_once: int) -> Spec:
    """What both send."""
    return Spec(
        model=MODEL,
        requests=REQUESTS,
        concurrency=at_once,
        tokens=ANSWER,
        chat=False,
        exact=True,
        timeout_s=600,
        key=Key(value=KEY, source="rig", eager=True),
    )


def our_turn(server: Served, at_once: int) -> Turn:
    """Our client."""
    with sums(server) as own:
        outcomes = asyncio.run(ask(server.url, spec_for(at_once)))
    level = summarize(outcomes, at_once)
    exact = sum(row.tokens == ANSWER for row in outcomes)
    return Turn(level.ttft.mean, own["first"], level.mean_token_ms, own["token"], exact)


def their_turn(server: Served, at_once: int) -> Turn:
    """vLLM's own benchmark with our prompts, in the form of the ShareGPT data set."""
    words = Path(f"/proc/{server.api}/cmdline").read_bytes().decode().split("\0")
    engine, model = words[0], words[words.index("serve") + 1]
    bodies = [spec_for(at_once).body(number) for number in range(REQUESTS)]
    rows = [{"conversations": [{"value": row["prompt"]}, {"value": ""}]} for row in bodies]
    data = Path(model).with_name("prompts.json")
    data.write_text(json.dumps(rows))
    command = [engine, "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--model", MODEL]
    command += ["--tokenizer", model, "--port", str(server.port), "--host", "127.0.0.1"]
    command += ["--dataset-name", "sharegpt", "--dataset-path", str(data), "--disable-shuffle"]
    command += ["--sharegpt-output-len", str(ANSWER), "--num-prompts", str(REQUESTS)]
    command += ["--ignore-eos", "--max-concurrency", str(at_once), "--disable-tqdm"]
    with sums(server) as own:
        said = subprocess.run(
            command,
            env={**os.environ, "OPENAI_API_KEY": KEY, "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
        )
    found = [
        re.search(rf"Mean {name} \(ms\):\s+([\d.]+)", said.stdout) for name in ("TTFT", "TPOT")
    ]
    if None in found:
        raise SystemExit(said.stdout[-500:] + said.stderr[-1500:])
    return Turn(float(found[0][1]), own["first"], float(found[1][1]), own["token"])


@contextlib.contextmanager
def sums(server: Served) -> Iterator[dict[str, float]]:
    """What the server's histograms gained while the block ran: sum over count, in ms."""
    means: dict[str, float] = {}
    before = scrape(server)
    yield means
    after = scrape(server)
    for name, histogram in (("first", "ttft"), ("token", "itl")):
        gained = after.histograms[histogram].minus(before.histograms[histogram])
        if name == "first" and gained.count != REQUESTS:
            raise SystemExit(f"the server counts {gained.count:.0f} requests, not {REQUESTS}")
        means[name] = 1000 * gained.total / gained.count


def scrape(server: Served) -> Scrape:
    """/metrics now."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as answer:
        return metrics.read(answer.read().decode())


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        asyncio.run(serve())
    else:
        many()
        beside_the_rival()
