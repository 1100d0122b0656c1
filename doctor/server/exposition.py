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
    return "trtllm_" + line[7:] if line.startswith("trtllm:") else line


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
        usual(line).startswith(("vllm:", "trtllm_", "nv_")) and SAMPLE.match(usual(line))
        for line in lines
    )
