"""The largest value of an option with which a launch starts, in few starts.

A start costs half a minute to many, so each is chosen: first the launch as it is, then the value that
the engine itself or the memory plan names, then one just beyond it, and only then bisection.
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Callable, Generator, Mapping

from infer_doctor.catalog import vllm
from infer_doctor.facts.run import Boundary, Start, Starts
from infer_doctor.frozen import frozen
from infer_doctor.runs.starting import Seen
from infer_doctor.runs.words import AS_ASKED, Change, value_in

MOST_STARTS = 6
WITHIN = 0.02
"""The distance of what works and what fails at which the search ends."""

BEYOND = 1.015
"""What the engine itself printed is tried again so much larger: when that fails the search ends."""

SPREAD = 1.06
"""The same beside what the plan says: its error is some percent, either way (bench/memory.py)."""

GALLOP = 0.8
"""From a guess that was far too high: so much of it."""

LENGTH_STEP = 16
"""Tokens of a block of the KV cache."""

MEMORY = frozenset(
    [
        "oom_load",
        "oom_kv_cache",
        "oom_graph_warmup",
        "oom_runtime",
        "oom_startup_free_mem",
        "host_ram",
        "trt_kv_memory",
    ]
)
"""Categories of a cause for which a boundary is worth its starts. A context beyond the model's own
(max_model_len) is none: the log says what it may be."""

LENGTH = "max-model-len"
UTILISATION = "gpu-memory-utilization"
SEQUENCES = "max-num-seqs"
RANKS = "tensor-parallel-size"
OPTIONS = (LENGTH, UTILISATION, SEQUENCES, RANKS)

DEFAULT = {UTILISATION: vllm.UTILISATION, RANKS: 1.0}
"""Where the version's own is not known."""

BUDGET = frozenset(["oom_load", "oom_kv_cache", "trt_kv_memory"])
"""Causes against which a larger share of the GPU helps; against the others a smaller one does."""

HIGHEST = 0.98
"""Of the utilisation: CUDA's context and what PyTorch rounds up lie beside the budget. On an H200 with
vLLM 0.26 a start without graphs had 0.51 GiB of 139.8 taken before it."""

BY_CATEGORY = {
    "oom_load": RANKS,
    "oom_kv_cache": LENGTH,
    "oom_graph_warmup": UTILISATION,
    "oom_startup_free_mem": UTILISATION,
    "oom_runtime": UTILISATION,
    "host_ram": UTILISATION,
}
"""Cause -> the option that decides it: weights do not get smaller by a shorter context."""

ESTIMATE = re.compile(
    r"estimated maximum model length is (\d+)|maximum number of tokens that can be stored in "
    r"KV cache \((\d+)\)"
)
"""vllm/v1/core/kv_cache_utils.py (0.8 to 0.33) and vllm/worker/worker.py (before 0.8)."""

NEEDED = re.compile(
    r"([\d.]+) GiB KV cache is needed, which is larger than the available KV cache memory "
    r"\(([\d.]+) GiB\)"
)
"""vllm/v1/core/kv_cache_utils.py (0.8 to 0.33)."""

AVAILABLE = re.compile(r"Available KV cache memory: (-?[\d.]+) GiB")
"""vllm/v1/worker/gpu_worker.py (0.8 to 0.33)."""

FREE = re.compile(r"\(([\d.]+)/([\d.]+) GiB\)")
"""Free and all memory in vLLM's refusal to start: "Free memory on device (7.76/139.80 GiB)"."""


LOG_CHARACTERS = 4 << 20
"""Of the log of a start that failed: real ones have some hundred lines."""

Came = tuple[bool, float | None]
"""Whether the value tried last came up, and what its own log says would do."""

Steps = Generator[tuple[Change, float, str], Came, None]
"""Values to try one after the other; each result decides the next."""


@frozen
class Scale:
    """What values an option has: its step, its ends, how it is written."""

    option: str
    least: float
    most: float
    step: float
    smallest: bool = False

    def write(self, value: float) -> str:
        """As a word."""
        return f"{value:g}" if self.step < 1 else str(int(value))

    def up(self, value: float) -> float:
        """The nearest allowed value that is not smaller."""
        stepped = math.ceil(value / self.step - 1e-9) * self.step
        return min(self.most, max(self.least, round(stepped, 6)))

    def down(self, value: float) -> float:
        """The nearest allowed value that is not larger."""
        stepped = math.floor(value / self.step + 1e-9) * self.step
        return min(self.most, max(self.least, round(stepped, 6)))


def scale_of(option: str, asked: float | None, gpus: int, *, up: bool = False) -> Scale:
    """The values of an option, the launch's own being the end that failed."""
    if option == LENGTH:
        return Scale(option=option, least=LENGTH_STEP, most=asked or 1 << 24, step=LENGTH_STEP)
    if option == UTILISATION and up:
        return Scale(option=option, least=asked or 0.01, most=HIGHEST, step=0.005, smallest=True)
    if option == UTILISATION:
        return Scale(option=option, least=0.01, most=asked or 0.99, step=0.005)
    if option == SEQUENCES:
        return Scale(option=option, least=1, most=asked or 1024, step=1)
    return Scale(option=option, least=1, most=max(1, gpus), step=1, smallest=True)


@frozen
class Asked:
    """What the search may use: how to start, what is planned, how many GPUs there are."""

    start: Callable[[Change, str], Seen]
    words: tuple[str, ...]
    option: str | None = None
    plan: Mapping[str, float] | None = None
    default: Mapping[str, float] | None = None
    """Values in force that the launch does not write: the model's context, the version's default."""
    gpus: int = 1
    total: float | None = None
    """GiB of a GPU that an engine may use."""
    own_cache: bool = False
    """VLLM_CPU_KVCACHE_SPACE sets the cache of a CPU: no option decides about it then."""
    most: int = MOST_STARTS


def search(asked: Asked) -> tuple[list[Seen], Boundary | None]:
    """The starts that were made and the boundary; None when the launch starts, or when it is not a
    question of memory."""
    seen = [asked.start(AS_ASKED, "the launch as it is")]
    first = seen[0].start
    if first.ready:
        return seen, None
    if not _of_memory(first):
        return seen, None
    if asked.own_cache and first.category == "host_ram" and asked.option is None:
        return seen, None
    text = _log_of(seen[0])
    option = asked.option or _option(first.category or "", text, asked)
    value = _value(asked, option)
    up = option == UTILISATION and first.category in BUDGET
    scale = scale_of(option, value, _gpus(asked), up=up)
    told = _raised(text, value, asked.total) if up else _told(text, option)
    planned = (asked.plan or {}).get(option) if not up else None
    if option == RANKS:
        rows = _ranks(scale, int(value or 1))
    elif up:
        rows = _raise(scale, value, told, asked.most)
    else:
        rows = _bisect(scale, value, told, planned, asked.most)
    works: float | None = None
    fails: float | None = value
    row = next(rows, None)
    while row is not None:
        change, tried, why = row
        one = asked.start(change, why)
        seen.append(one)
        if not one.start.ready and not _of_memory(one.start):
            if works is None:
                return seen, None
            break
        more = _raised(_log_of(one), tried, asked.total) if up and not one.start.ready else None
        if one.start.ready:
            works = tried
            if option == RANKS:
                break
        elif up and one.start.category not in BUDGET:
            break  # the share is too large for what lies beside it: no larger one will do
        else:
            fails = tried
        row = _after(rows, (one.start.ready, more))
    within = None
    if works is not None and fails is not None and option != RANKS:
        within = abs(fails - works) / max(fails, works)
    return seen, Boundary(
        option=option,
        asked=value,
        works=works,
        fails=fails,
        starts=len(seen),
        within=within,
        plan=planned,
        engine=told,
        category=first.category or ("host_ram" if first.ended == "memory" else None),
        stage=first.stage,
        smallest=scale.smallest,
        log=first.log,
    )


def _value(asked: Asked, option: str) -> float | None:
    """Of the launch, written or by default."""
    written = value_in(asked.words, option)
    if written is not None:
        return _number(written)
    return (asked.default or {}).get(option, DEFAULT.get(option))


def _option(category: str, text: str, asked: Asked) -> str:
    """What decides: no context is short enough where weights leave nothing, and on the only GPU there
    is they get no smaller."""
    found = BY_CATEGORY.get(category, UTILISATION)
    available = AVAILABLE.findall(text)
    if found == LENGTH and available and float(available[-1]) <= 0:
        return UTILISATION
    ranks = int(_value(asked, RANKS) or 1)
    if found == RANKS and ranks * 2 > _gpus(asked) and available:  # weights alone do fit
        return UTILISATION
    return found


def _gpus(asked: Asked) -> int:
    """That one group of tensor-parallel ranks may use: pipeline stages and replicas have theirs each."""
    groups = 1
    for name in ("pipeline-parallel-size", "data-parallel-size"):
        written = value_in(asked.words, name)
        groups *= max(1, int((written and _number(written)) or 1))
    return max(1, asked.gpus // groups)


def _raised(text: str, now: float | None, total: float | None) -> float | None:
    """The share with which the KV cache has what is missing, by the engine's own numbers."""
    if now is None or total is None:
        return None
    needed, available = NEEDED.search(text), AVAILABLE.findall(text)
    missing = 0.0
    if needed is not None:
        missing = float(needed[1]) - float(needed[2])
    elif available and float(available[-1]) <= 0:
        missing = 1.0 - float(
            available[-1]
        )  # and a GiB for the cache, so that it says what it needs
    return now + missing / total if missing else None


def _of_memory(start: Start) -> bool:
    """Whether lack of memory ended it. The watchdog's own SIGKILL says nothing of a boundary; an
    engine whose log tells the cause and that then hangs does."""
    killed = start.signal == signal.SIGKILL and start.ended == "exited"
    return start.category in MEMORY or start.ended == "memory" or killed


def _after(rows: Steps, came: Came) -> tuple[Change, float, str] | None:
    try:
        return rows.send(came)
    except StopIteration:
        return None


def _change(scale: Scale, value: float) -> Change:
    text = scale.write(value)
    return Change(label=f"--{scale.option} {text}", options=((scale.option, text),))


def _ranks(scale: Scale, now: int) -> Steps:
    value = now * 2
    while value <= scale.most:
        yield _change(scale, value), value, f"weights of {value} GPUs: 1/{value} on each"
        value *= 2


def _bisect(
    scale: Scale, failed: float | None, told: float | None, planned: float | None, most: int
) -> Steps:
    """The engine's own number, else the plan's, else halves; then what brackets it; then the mean."""
    low: float | None = None
    high = failed if failed is not None else scale.most
    guess, why = told, "what the engine says will fit"
    if guess is None or not scale.least <= guess < high:
        guess, why = planned, "what the memory plan says will fit"
    if guess is not None and guess >= high:
        guess, why = high / SPREAD, "the plan says that what failed fits: a little less"
    near = BEYOND if guess is told else SPREAD
    if guess is None or not scale.least <= guess < high:
        guess, why, near = high / 2, "half of what failed", 1.0
        if scale.option == UTILISATION:  # what lies beside the budget is some percent of a GPU
            guess, why = high * 0.95, "5 % less than what failed"
    value = scale.down(guess)
    for _ in range(most - 1):
        if value <= (low or 0) or value >= high:
            return
        ready, _told = yield _change(scale, value), value, why
        if ready:
            low = value
        else:
            high = value
        if low is not None and (high - low) / high <= WITHIN:
            return
        if low is None:
            share = 1 / near if near > 1.0 else GALLOP
            value, why = scale.down(high * share), "below what failed"
        elif near > 1.0 and low * near < high:
            value, why = scale.down(low * near), "just beyond what worked: the boundary is near"
        else:
            value, why = scale.down(math.sqrt(low * high)), "between worked and failed"
        near = 1.0  # only the first step is one beside a guess


def _raise(scale: Scale, failed: float | None, told: float | None, most: int) -> Steps:
    """What the last failed start says is missing, then what brackets it: the smallest share that does."""
    low = failed if failed is not None else scale.least
    high: float | None = None
    for _ in range(most - 1):
        if high is None:
            value = scale.up(max(told or low * SPREAD, low + scale.step))
            why = "what the engine says is missing" if told else "above what failed"
        else:
            value, why = scale.down(high / BEYOND), "just below what worked"
        if value <= low or value >= (high or 1.0):
            return
        ready, told = yield _change(scale, value), value, why
        if ready:
            high = value
        else:
            low = value
        if high is not None and high - low <= max(scale.step * 1.01, WITHIN * high):
            return


def _number(text: str) -> float | None:
    """4096, 0.9, 32k (10^3), 32K (2^10): vLLM's human_readable_int."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)([kKmMgG]?)", text.strip().replace(",", ""))
    if found is None:
        return None
    factor = {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}
    return float(found[1]) * factor[found[2]]


def _log_of(seen: Seen) -> str:
    try:
        with open(seen.start.log, encoding="utf-8", errors="replace") as file:
            return file.read(LOG_CHARACTERS)
    except OSError:
        return ""


def _told(text: str, option: str) -> float | None:
    """The value that the failed start printed itself."""
    if option == LENGTH:
        found = ESTIMATE.search(text)
        return float(next(value for value in found.groups() if value)) if found else None
    free = FREE.search(text) if option == UTILISATION else None
    return math.floor(float(free[1]) / float(free[2]) * 200) / 200 if free else None


def starts_of(question: str, seen: list[Seen]) -> Starts:
    """The starts as a fact."""
    rows: tuple[Start, ...] = tuple(row.start for row in seen)
    return Starts(question=question, rows=rows)
