"""The search on an H200: starts whose logs are those of vLLM 0.26 there, with the numbers of the start."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from infer_doctor.facts.run import Boundary, Start
from infer_doctor.runs.boundary import MOST_STARTS, WITHIN, Asked, search
from infer_doctor.runs.starting import Seen, judged
from infer_doctor.runs.words import Change, value_in, with_options

LOGS = Path(__file__).parents[1] / "captures" / "logs"
TOTAL = 139.8
BEFORE = 0.51
"""GiB that CUDA's context takes before the engine's budget is counted."""

OTHER = 0.22
"""GiB of the budget beside PyTorch."""

KV_LOG = (LOGS / "fail-8b-len-kv.log").read_text()
NO_BLOCKS = (LOGS / "fail-70b-load-oom.log").read_text()
HELD = (LOGS / "fail-orphan-holds-gpu.log").read_text()
GRAPHS = (LOGS / "fit-8b-util30-len4k.log").read_text()
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total "
    "capacity of 139.80 GiB of which 120.00 MiB is free. Process 77 has 139.68 GiB memory in use."
)


@dataclass
class H200:
    """What fits is decided as the engine does; GiB."""

    folder: Path
    words: tuple[str, ...]
    weights: float
    activation: float = 1.78
    graphs: float = 0.99
    token: float = 16.0 / 131072
    held: float = 0.0
    """By other processes."""
    labels: list[str] = field(default_factory=list)

    def number(self, words: tuple[str, ...], option: str, default: float) -> float:
        return float(value_in(words, option) or default)

    def available(self, share: float, ranks: int) -> float:
        return share * TOTAL - self.weights / ranks - self.activation - OTHER

    def outcome(self, words: tuple[str, ...]) -> str:
        """The log of a start that fails, "" of one that comes up."""
        share = self.number(words, "gpu-memory-utilization", 0.92)
        length = self.number(words, "max-model-len", 131072)
        ranks = int(self.number(words, "tensor-parallel-size", 1))
        room = self.available(share, ranks)
        free = TOTAL - BEFORE - self.held
        if share * TOTAL > free:
            return HELD.replace("(7.76/139.8 GiB)", f"({free:.2f}/139.8 GiB)").replace(
                "(0.92, 128.62 GiB)", f"({share:g}, {share * TOTAL:.2f} GiB)"
            )
        if self.weights / ranks > free:
            return NO_BLOCKS[: NO_BLOCKS.index("(EngineCore pid=6242) INFO 11-30 12:25:06")] + (
                f"(EngineCore pid=6242) ERROR 11-30 12:25:06 [core.py:1330] {OUT_OF_MEMORY}\n"
            )
        if room <= 0:
            text = NO_BLOCKS.replace("took 131.45 GiB", f"took {self.weights / ranks:.2f} GiB")
            return text.replace("-6.46 GiB", f"{room:.2f} GiB")
        needed = length * self.token / ranks
        if needed > room:
            most = math.floor(room / (self.token / ranks) / 16) * 16
            text = KV_LOG.replace("16.0 GiB KV cache", f"{needed:.2f} GiB KV cache")
            text = text.replace("6.82 GiB", f"{room:.2f} GiB").replace("55840", str(most))
            return re.sub(r"(max seq len|max model len) \(?131072", rf"\1 ({int(length)}", text)
        if share * TOTAL + self.graphs > free:
            captured = GRAPHS[: GRAPHS.index("Capturing CUDA graphs (PIECEWISE):  12%")]
            line = f"(EngineCore pid=2797) ERROR 11-30 12:12:20 [core.py:1330] {OUT_OF_MEMORY}\n"
            return captured + line
        return ""

    def start(self, change: Change, why: str) -> Seen:
        self.labels.append(change.label)
        words = with_options(self.words, change.options)
        text = self.outcome(words)
        log = self.folder / f"{len(self.labels)}.log"
        log.write_text(text)
        start = Start(
            label=change.label,
            why=why,
            command=words,
            ready=not text,
            ended="exited" if text else "",
            seconds=1.0,
            status=1 if text else None,
            log=str(log),
        )
        return judged(start, words) if text else Seen(start=start)

    def run(self, **more: object) -> Boundary | None:
        default = {"max-model-len": 131072.0, "gpu-memory-utilization": 0.92}
        values = {"start": self.start, "words": self.words, "default": default, "total": TOTAL}
        seen, found = search(Asked(**{**values, **more}))
        assert len(seen) <= MOST_STARTS
        return found


def launch(*options: str) -> tuple[str, ...]:
    return ("vllm", "serve", "m", *options)


def close(found: Boundary | None, truth: float, step: float) -> None:
    """What works works, and lies within 2 % or one step of the truth."""
    assert found is not None and found.works is not None
    off = (found.works - truth) if found.smallest else (truth - found.works)
    assert -1e-9 <= off <= max(WITHIN * truth, step)


@pytest.mark.parametrize("share", ["0.17", "0.2", "0.23"])
def test_kv_cache(share: str, tmp_path: Path) -> None:
    """The engine prints what fits: three starts."""
    engine = H200(tmp_path, launch("--gpu-memory-utilization", share), weights=15.0)
    found = engine.run()
    close(found, engine.available(float(share), 1) / engine.token, 16)
    assert found is not None and found.option == "max-model-len" and found.starts == 3


@pytest.mark.parametrize("seed", range(30))
def test_kv_cache_by_utilisation(seed: int, tmp_path: Path) -> None:
    """The smallest share that holds the context: upwards from what failed."""
    chance = random.Random(seed)
    weights, length = chance.uniform(1, 70), chance.randrange(8192, 131072)
    engine = H200(tmp_path, (), weights=weights)
    truth = (weights + engine.activation + OTHER + length * engine.token) / TOTAL
    share = max(0.05, truth - chance.uniform(0.01, 0.3))
    engine.words = launch(
        "--gpu-memory-utilization", f"{share:.3f}", "--max-model-len", str(length)
    )
    found = engine.run(option="gpu-memory-utilization")
    close(found, truth, 0.005)
    assert found is not None and found.smallest


def test_weights_that_leave_nothing(tmp_path: Path) -> None:
    """70B on one GPU: no context is short enough at 0.92, one of 4096 tokens is at 0.97."""
    words = launch("--max-model-len", "4096")
    engine = H200(tmp_path, words, weights=131.45, activation=2.9, graphs=0.0, token=0.31 / 1024)
    found = engine.run()
    truth = (131.45 + 2.9 + OTHER + 4096 * engine.token) / TOTAL
    assert found is not None and found.option == "gpu-memory-utilization"
    close(found, truth, 0.005)
    more = H200(tmp_path, words, weights=131.45, activation=2.9, graphs=0.0, token=0.31 / 1024)
    found = more.run(gpus=2)
    assert found is not None and found.option == "tensor-parallel-size" and found.works == 2


def test_weights_larger_than_the_gpu(tmp_path: Path) -> None:
    alone = H200(tmp_path, launch(), weights=196.0).run()
    assert alone is not None and alone.works is None and alone.starts == 1
    found = H200(tmp_path, launch(), weights=196.0).run(gpus=4)
    assert found is not None and found.works == 2 and found.starts == 2


@pytest.mark.parametrize("graphs", [0.6, 0.99, 2.4, 5.8])
@pytest.mark.parametrize("plan", [None, 0.985, 0.999])
def test_graphs(graphs: float, plan: float | None, tmp_path: Path) -> None:
    words = launch("--gpu-memory-utilization", "0.995", "--max-model-len", "4096")
    engine = H200(tmp_path, words, weights=8.0, graphs=graphs)
    found = engine.run(plan={"gpu-memory-utilization": plan} if plan else None)
    truth = (TOTAL - BEFORE - graphs) / TOTAL
    assert found is not None and found.category in ("oom_graph_warmup", "oom_startup_free_mem")
    close(found, truth, 0.005)


@pytest.mark.parametrize("held", [12.0, 40.0, 100.0])
def test_memory_that_others_hold(held: float, tmp_path: Path) -> None:
    words = launch("--max-model-len", "4096")
    engine = H200(tmp_path, words, weights=8.0, held=held, graphs=0.0)
    found = engine.run()
    assert found is not None and found.category == "oom_startup_free_mem"
    close(found, (TOTAL - BEFORE - held) / TOTAL, 0.005)
