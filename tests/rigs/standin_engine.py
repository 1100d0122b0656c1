"""A program that is started as `vllm serve` and does one thing, for what a real engine does seldom.

With --kv-cache-dtype every answer is a row of exclamation marks. STANDIN: serve (default), silent (neither words nor answers), flood (a log without end), slow (serves, a
token a second), dies (serves five requests; at the next one its GPU has no memory left), falls (at the
first). It prints its arguments and secrets, as engines print theirs, and leaves its PID in the
folder STANDIN_PIDS.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MOST_S = 600
SERVES = {"dies": 5, "falls": 0}
DEATH = """\
(EngineCore pid=9) ERROR 12-01 01:14:30 [core.py:1100] EngineCore encountered a fatal error.
(EngineCore pid=9) ERROR 12-01 01:14:30 [core.py:1100] Traceback (most recent call last):
(EngineCore pid=9) ERROR 12-01 01:14:30 [core.py:1100]   File "vllm/v1/worker/gpu_model_runner.py", line 3000, in execute_model
(EngineCore pid=9) ERROR 12-01 01:14:30 [core.py:1100] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.17 GiB. GPU 0 has a total capacity of 79.10 GiB of which 512.00 MiB is free.
"""
METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
"""


def program(folder: Path) -> Path:
    """A `vllm` in a folder for PATH."""
    folder.mkdir(exist_ok=True)
    made = folder / "vllm"
    made.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} "$@"\n')
    made.chmod(0o755)
    return folder


class Handler(BaseHTTPRequestHandler):
    """OpenAI's API with one model and the same answer always."""

    protocol_version = "HTTP/1.1"
    keys: tuple[str, ...] = ()
    token_s = 0.001
    text = "a b"
    left: float = float("inf")
    """Requests until it dies."""

    def log_message(self, format: str, *args: Any) -> None:
        print("asked", self.path, flush=True)

    def refused(self) -> bool:
        if not self.keys or not self.path.startswith("/v1"):
            return False
        if self.headers.get("Authorization", "").removeprefix("Bearer ") in self.keys:
            return False
        self.say(401, {"error": "Unauthorized"})
        return True

    def say(self, status: int, body: object) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self.say(200, METRICS)
        elif not self.refused():
            self.say(200, {"data": [{"id": "m"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.refused():
            return
        Handler.left -= 1
        if Handler.left < 0:
            print("INFO:     Application startup complete.", DEATH, sep="\n", flush=True)
            os._exit(1)
        count = body["max_tokens"]
        if not body.get("stream"):
            choice: dict[str, Any] = {"finish_reason": "length", "message": {"content": self.text}}
            time.sleep(self.token_s * count)
            self.say(200, {"choices": [choice]})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for number in range(count):
            end = "length" if number == count - 1 else None
            event = {"choices": [{"index": 0, "text": " a", "finish_reason": end}]}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()
            time.sleep(self.token_s)
        usage = {"choices": [], "usage": {"completion_tokens": count, "prompt_tokens": 1}}
        self.wfile.write(b"data: " + json.dumps(usage).encode() + b"\n\ndata: [DONE]\n\n")
        self.close_connection = True


def main() -> None:
    """What STANDIN says."""
    kind = os.environ.get("STANDIN", "serve")
    pids = os.environ.get("STANDIN_PIDS")
    if pids:
        Path(pids, str(os.getpid())).touch()
    if kind == "silent":
        time.sleep(MOST_S)
        return
    if kind == "flood":
        line = ("all work and no play " * 50 + "\n").encode() * 1000
        ends = time.monotonic() + MOST_S
        while time.monotonic() < ends:
            os.write(1, line)
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--uds")
    parser.add_argument("--ssl-keyfile")
    parser.add_argument("--api-key", nargs="*", default=[])
    parser.add_argument("--hf-token")
    given, _ = parser.parse_known_args()
    print("non-default args:", vars(given), sys.argv, flush=True)
    print("HF_TOKEN =", os.environ.get("HF_TOKEN"), flush=True)
    if given.uds or given.ssl_keyfile:
        time.sleep(MOST_S)  # it listens, but not where it is asked
    Handler.keys = (*given.api_key, *filter(None, [os.environ.get("VLLM_API_KEY")]))
    Handler.text = "!" * 40 if "--kv-cache-dtype" in sys.argv else "a b"
    Handler.left = SERVES.get(kind, Handler.left)
    Handler.token_s = 1.0 if kind == "slow" else 0.001
    ThreadingHTTPServer((given.host, given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
