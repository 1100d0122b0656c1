"""Two starts of `reproduce oom --at kv` on a real H200 with vLLM 0.26, logs as they were kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from infer_doctor.facts.run import Start
from infer_doctor.runs.boundary import Asked, search
from infer_doctor.runs.starting import Seen, judged
from infer_doctor.runs.words import Change

LOGS = Path(__file__).parents[1] / "cases" / "runs" / "h200"
WORDS = ("vllm", "serve", "/tmp/run/model", "--max-model-len", "131072")
FITS = 82_304
"""What vLLM printed as the longest context of the 13.5 GiB that it had."""


def failed(log: str, **more: object) -> Seen:
    start = Start(
        label="as asked",
        why="",
        command=WORDS,
        ready=False,
        ended="exited",
        seconds=106.0,
        status=1,
        log=str(LOGS / log),
    )
    return judged(replace(start, **more), WORDS)  # type: ignore[arg-type]


def test_the_cache_is_named_with_the_engines_own_numbers() -> None:
    seen = failed("kv.log")
    assert seen.start.category in ("oom_kv_cache", "max_model_len")
    assert seen.start.stage == "making the KV cache"
    for number in ("131,072", "21.5 GiB", "13.5 GiB", f"{FITS:,}"):
        assert number in (seen.start.cause or "")


def test_the_search_goes_on_with_what_the_engine_says() -> None:
    def start(change: Change, why: str) -> Seen:
        if not change.options:
            return failed("kv.log")
        value = float(dict(change.options)["max-model-len"] or 0)
        tried.append(value)
        last = failed("kv.log")
        return replace(last, start=replace(last.start, ready=value <= FITS))

    tried: list[float] = []
    _, found = search(Asked(start=start, words=WORDS))
    assert tried[0] == FITS and len(tried) == 2
    assert found is not None and found.works == FITS and found.engine == FITS


def test_a_start_that_was_cut_while_it_compiled_has_no_cause() -> None:
    seen = failed("cut-while-compiling.log", ended="wall", status=None, signal=9)
    assert seen.start.category is None
    assert seen.start.stage == "compiling"
