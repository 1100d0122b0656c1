"""Reads the text that Prometheus collects (text format 0.0.4 and OpenMetrics), as far as it is wanted.

The client library parses everything into objects, 20 times slower, and stops at the first bad line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping

SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{((?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\})?[ \t]+([^\s#]+)")
LABEL = re.compile(r"([A-Za-z_]\w*)=\"((?:[^\"\\]|\\.)*)\"")
ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

LINE_LIMIT = 4096

RAY_PREFIX = "ray_"
"""Ray Serve writes ray_vllm_num_requests_running or ray_vllm:...: a colon is none of its names'."""

PLAIN = {
    "num_requests_running": "num_requests_running",
    "num_requests_waiting": "num_requests_waiting",
    "gpu_cache_usage_perc": "gpu_cache_usage_perc",
    "prompt_tokens_total": "prompt_tokens_total",
    "generation_tokens_total": "generation_tokens_total",
    "time_to_first_token_seconds": "time_to_first_token_seconds",
    "time_per_output_token_seconds": "time_per_output_token_seconds",
    "e2e_request_latency_seconds": "e2e_request_latency_seconds",
    "request_finish_total": "request_success_total",
}
NIM_PREFIX = "nim:"
"""NVIDIA's NIM writes the names of vLLM without a prefix (docs.nvidia.com/nim/large-language-models,
"Observability", 1.0 to 1.14, read 2026-12); here they get one."""

Sample = tuple[str, Mapping[str, str], float]


def samples(text: str, prefixes: Collection[str]) -> Iterator[Sample]:
    """(name, labels, value) of the wanted names, as vLLM itself writes them."""
    wanted = tuple(prefixes)
    for line in text.splitlines():
        if line[:1] in ("#", "") or len(line) > LINE_LIMIT:
            continue
        name = usual(line)
        if not name.startswith(wanted):
            continue
        match = SAMPLE.match(name)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if not math.isnan(value):
            yield match[1], _labels(match[2] or ""), value


def usual(line: str) -> str:
    """A line with the name that vLLM and TensorRT-LLM give, whoever passed it on."""
    line = line.removeprefix(RAY_PREFIX)
    if line.startswith("vllm_"):
        return "vllm:" + line[5:]
    if line.startswith("trtllm:"):
        return "trtllm_" + line[7:]
    own = next((name for name in PLAIN if line.startswith(name)), None)
    return NIM_PREFIX + PLAIN[own] + line[len(own) :] if own is not None else line


def _labels(text: str) -> dict[str, str]:
    return {
        match[1]: re.sub(r"\\.", lambda found: ESCAPES.get(found[0], found[0]), match[2])
        if "\\" in match[2]
        else match[2]
        for match in LABEL.finditer(text)
    }


def is_exposition(text: str) -> bool:
    """Whether a text is one, by its comments or its first samples."""
    head = text.lstrip("\ufeff \r\n")[:20_000]
    if head.startswith(("# HELP ", "# TYPE ")):
        return True
    lines = [line for line in head.splitlines()[:20] if line and line[0] != "#"]
    return any(
        usual(line).startswith(("vllm:", "trtllm_", "nv_", NIM_PREFIX))
        and SAMPLE.match(usual(line))
        for line in lines
    )
