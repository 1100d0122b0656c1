"""The search of a boundary on engines whose boundary is known."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from infer_doctor.facts.run import Start
from infer_doctor.runs.boundary import MOST_STARTS, WITHIN, Asked, search
from infer_doctor.runs.starting import Seen
from infer_doctor.runs.words import AS_ASKED, Change, value_in, with_options

WORDS = ("vllm", "serve", "m", "--max-model-len", "131072")


class Engine:
    """Starts when the value of the option is at most (or at least) its boundary."""

    def __init__(
        self,
        option: str,
        boundary: float,
        *,
        words: tuple[str, ...] = WORDS,
        category: str = "oom_kv_cache",
        says: str = "",
        log: Path | None = None,
        default: float = 1e9,
    ) -> None:
        self.option, self.boundary, self.words = option, boundary, words
        self.category, self.default = category, default
        self.log = str(log) if log else ""
        if log is not None:
            log.write_text(says)
        self.labels: list[str] = []

    def start(self, change: Change, why: str) -> Seen:
        assert why
        self.labels.append(change.label)
        written = value_in(with_options(self.words, change.options), self.option)
        value = float(written) if written is not None else self.default
        good = (
            value >= self.boundary
            if self.option == "tensor-parallel-size"
            else (value <= self.boundary)
        )
        return Seen(
            start=Start(
                label=change.label,
                why=why,
                command=self.words,
                ready=good,
                ended="" if good else "exited",
                seconds=1.0,
                category=None if good else self.category,
                log=self.log,
            )
        )


def asked(engine: Engine, **more: object) -> Asked:
    return Asked(start=engine.start, words=engine.words, **more)  # type: ignore[arg-type]


def test_a_launch_that_starts_has_no_boundary() -> None:
    engine = Engine("max-model-len", 200_000)
    seen, found = search(asked(engine))
    assert found is None and engine.labels == ["as asked"] and seen[0].start.ready


@pytest.mark.parametrize("category", ["weights_corrupt", "max_model_len"])
def test_another_failure_has_no_boundary(category: str) -> None:
    """Neither has a context beyond the model's own: with less memory it would be the same."""
    engine = Engine("max-model-len", 1, category=category)
    assert search(asked(engine))[1] is None
    assert engine.labels == ["as asked"]


class Slow(Engine):
    """An engine of which the watchdog ends the n-th start."""

    def __init__(self, ends: int) -> None:
        super().__init__("max-model-len", 50_000)
        self.ends = ends

    def start(self, change: Change, why: str) -> Seen:
        seen = super().start(change, why)
        if len(self.labels) != self.ends:
            return seen
        cut = replace(seen.start, ready=False, ended="wall", signal=9, category=None)
        return replace(seen, start=cut)


def test_a_start_that_the_watchdog_ended_has_no_boundary() -> None:
    # Seen on an H200: a start ended at --wall while it compiled was taken for one killed for memory.
    engine = Slow(ends=1)
    seen, found = search(asked(engine))
    assert found is None and len(seen) == 1


def test_the_watchdog_ends_the_search_with_what_is_known() -> None:
    engine = Slow(ends=2)
    seen, found = search(asked(engine))
    assert found is None and len(seen) == 2  # what failed for memory is told by its own log
    for ends in (3, 4):
        engine = Slow(ends=ends)
        seen, found = search(asked(engine))
        assert len(seen) == ends and engine.labels[-1] == seen[-1].start.label
        worked = [
            float(one.split()[1]) for one in engine.labels[1:-1] if float(one.split()[1]) <= 50_000
        ]
        assert (found.works if found else None) == (max(worked) if worked else None)


def test_what_the_engine_says_is_tried_first(tmp_path: Path) -> None:
    says = "Based on the available memory, the estimated maximum model length is 55840."
    engine = Engine("max-model-len", 55_840, says=says, log=tmp_path / "log")
    _, found = search(asked(engine))
    assert found is not None and found.works == 55_840 and found.engine == 55_840
    assert engine.labels[1] == "--max-model-len 55840" and found.starts == 3
    assert found.within is not None and found.within <= WITHIN


@pytest.mark.parametrize("seed", range(200))
def test_within_two_percent_in_six_starts(seed: int) -> None:
    """The plan's error is that of its own measurements: at most some percent, either way."""
    chance = random.Random(seed)
    boundary = chance.randrange(3000, 131_000)
    plan = boundary * (1 + chance.uniform(-0.05, 0.05))
    engine = Engine("max-model-len", boundary)
    _, found = search(asked(engine, plan={"max-model-len": plan}))
    assert found is not None and found.works is not None and found.fails is not None
    assert found.works <= boundary < found.fails or found.fails - boundary <= 16
    assert (boundary - found.works) / boundary <= WITHIN + 16 / boundary
    assert found.starts <= MOST_STARTS


def test_weights_want_more_gpus() -> None:
    engine = Engine("tensor-parallel-size", 4, category="oom_load", default=1)
    _, found = search(asked(engine, gpus=8))
    assert found is not None and found.smallest and found.works == 4
    assert engine.labels == ["as asked", "--tensor-parallel-size 2", "--tensor-parallel-size 4"]
    few = Engine("tensor-parallel-size", 4, category="oom_load", default=1)
    _, none = search(asked(few, gpus=2))
    assert none is not None and none.works is None


def test_stages_and_replicas_have_gpus_of_their_own() -> None:
    words = (*WORDS, "-pp", "2", "--data-parallel-size=2")
    engine = Engine("tensor-parallel-size", 4, words=words, category="oom_load", default=1)
    _, found = search(asked(engine, gpus=8))
    assert found is not None and found.works is None
    assert engine.labels == ["as asked", "--tensor-parallel-size 2"]


def test_free_memory_decides_about_the_utilisation(tmp_path: Path) -> None:
    says = "ValueError: Free memory on device cuda:0 (91.00/139.80 GiB) on startup is less than"
    engine = Engine(
        "gpu-memory-utilization",
        0.652,
        category="oom_startup_free_mem",
        says=says,
        log=tmp_path / "log",
    )
    _, found = search(asked(engine, default={"gpu-memory-utilization": 0.92}))
    assert found is not None and found.works == 0.65 and found.starts <= MOST_STARTS


def test_a_cache_that_a_variable_sets_has_no_boundary() -> None:
    engine = Engine("max-model-len", 1, category="host_ram")
    assert search(asked(engine, own_cache=True))[1] is None


def test_options_are_replaced_however_they_are_written() -> None:
    words = (
        "vllm",
        "serve",
        "m",
        "-tp",
        "2",
        "--max_model_len=9",
        "--enforce-eager",
        "--port",
        "1",
    )
    found = with_options(
        words,
        (("tensor-parallel-size", "4"), ("max-model-len", "7"), ("enforce-eager", "")),
    )
    assert found == (
        *("vllm", "serve", "m", "--port", "1"),
        *("--tensor-parallel-size", "4", "--max-model-len", "7"),
    )
    assert (
        value_in(words, "max-model-len") == "9" and value_in(words, "tensor-parallel-size") == "2"
    )
    assert with_options(words, AS_ASKED.options) == words


def test_a_utilisation_without_a_plan_is_near_what_failed() -> None:
    """As on an H200 with vLLM 0.26: graphs fail at 0.995, 0.945 starts."""
    words = ("vllm", "serve", "m", "--gpu-memory-utilization", "0.995")
    engine = Engine("gpu-memory-utilization", 0.982, words=words, category="oom_graph_warmup")
    _, found = search(asked(engine))
    assert found is not None and found.works is not None
    assert 0.982 * (1 - WITHIN) <= found.works <= 0.982 and found.starts <= 5
