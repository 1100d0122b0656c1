"""From a launch, or from nothing, to what is started: words, variables, and whether it may run now."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from infer_doctor.engine import Subject
from infer_doctor.facts.environment import Interpreter
from infer_doctor.facts.gpu import GpuMemory
from infer_doctor.facts.memory_plan import Planned
from infer_doctor.facts.owners import GpuOwners
from infer_doctor.frozen import frozen
from infer_doctor.launch.command import read as read_command
from infer_doctor.launch.judge import CALLS
from infer_doctor.launch.model import Launch
from infer_doctor.runs import tiny
from infer_doctor.runs.child import Limits, available
from infer_doctor.runs.starting import Plan
from infer_doctor.runs.words import (
    NoRun,
    model_of_words,
    of_config,
    program_of,
    value_in,
    with_options,
)
from infer_doctor.units import GIB, gib

START_S = 25.0
"""From the start to ready without weights and with warm caches: 26 to 66 s on an H200 (vLLM 0.26, a 1B
model with dummy weights), 22 s on a CPU (vLLM 0.32), on idle machines."""

COLD_S = 106.0
"""The first one on that H200: imports from a cold disk, and nothing compiled yet."""

LOAD_GIB_S = 1.0
"""Weights from a single disk; measured page-cached speeds are several times that."""

BUSY = 0.02
"""Of a GPU's memory: what others take before a run is refused. The driver's own takes less."""

TINY_CONTEXT = 4096
KV_CONTEXT = 131_072
"""Of the model whose cache is too small: what people ask for. Millions of tokens would do with a smaller
model, but vLLM 0.26 on an H200 then ends with an illegal memory access instead."""

KV_SHARE = 0.1
"""Utilisation of that start: the smaller, the faster it is there; the cache has to be 1.5 times it."""


@frozen
class Session:
    """What a question starts, and what is known beforehand."""

    plan: Plan
    launch: Launch | None
    planned: Planned | None
    model: str
    gpus: int
    python: str | None = None
    """The engine's interpreter, as check finds it."""
    written: tuple[str, ...] = ()
    """The words of the plan behind those of its --config FILE: what is in force, the last one counts."""


@contextlib.contextmanager
def logs_in(keep: str | None) -> Iterator[str]:
    """The folder of the run: the one to keep, else one that goes with the run."""
    if keep is not None:
        os.makedirs(keep, exist_ok=True)
        yield os.path.abspath(keep)
        return
    made = tempfile.mkdtemp(prefix="infer-doctor-run-")
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def prepare(
    subject: Subject,
    folder: str,
    question: str,
    *,
    limits: Limits,
    at: str = "kv",
    real_weights: bool = False,
) -> Session:
    """Raises NoRun for what cannot be started here."""
    launch = subject.get(Launch)
    launch = launch if isinstance(launch, Launch) else None
    interpreter = subject.get(Interpreter)
    python = interpreter.executable if isinstance(interpreter, Interpreter) else None
    variables = dict(os.environ)
    if launch is None:
        words = _of_tiny(folder, question, at, python, _memory(subject))
        subject.give(Launch, read_command(words))  # so that the memory plan knows it too
        engine, entry = "vllm", "serve"
    else:
        words = program_of(launch, python)
        engine, entry = launch.engine or "vllm", launch.entry
        for row in launch.environment:
            if row.value is not None:
                variables[row.name] = row.value
            elif row.name not in variables and row.name != "*":
                raise NoRun(f"{row.name} of {launch.name} has no value here")
    written = of_config(launch) if launch is not None and engine == "vllm" else ()
    dummy = question == "oom" and engine == "vllm" and not real_weights
    if dummy and value_in((*written, *words), "load-format") is None:
        words = with_options(words, (("load-format", "dummy"),))
    planned = subject.get(Planned)
    memory = subject.get(GpuMemory)
    return Session(
        plan=Plan(
            words=words,
            variables=variables,
            folder=os.getcwd(),
            logs=folder,
            limits=limits,
            serves=not (engine == "tensorrt-llm" and entry in CALLS),
            engine=engine,
        ),
        launch=launch,
        planned=planned if isinstance(planned, Planned) else None,
        model=model_of_words((*written, *words)),
        python=python,
        written=(*written, *words),
        gpus=len(memory.rows) if isinstance(memory, GpuMemory) else 0,
    )


def _memory(subject: Subject) -> int:
    """Bytes of the largest GPU; without one those of the host."""
    memory = subject.get(GpuMemory)
    if isinstance(memory, GpuMemory) and memory.rows:
        return max(row.total for row in memory.rows)
    return available()


def _of_tiny(
    folder: str, question: str, at: str, python: str | None, memory: int
) -> tuple[str, ...]:
    """`vllm serve` of a model that is written for the question."""
    if python is None:
        raise NoRun("no engine was found: give --python, or a launch after --")
    model = os.path.join(folder, "model")
    words = [python, "-m", "vllm.entrypoints.cli.main", "serve", model]
    if question != "oom":
        tiny.write(model, tiny.Shape(context=TINY_CONTEXT))
        return (*words, "--max-model-len", str(TINY_CONTEXT))
    if at == "kv":
        layer = tiny.Shape(layers=1, heads=16, kv_heads=16).kv_bytes_per_token * KV_CONTEXT
        layers = max(2, math.ceil(1.5 * KV_SHARE * memory / layer))
        shape = tiny.Shape(context=KV_CONTEXT, layers=layers, heads=16, kv_heads=16)
        tiny.write(model, shape, weights=False)
        # torch.compile, a minute of a cold start on an H200, does not decide about the cache
        words += ["--enforce-eager", "--max-model-len", str(KV_CONTEXT)]
        return (*words, "--gpu-memory-utilization", str(KV_SHARE))
    if at == "load":
        tiny.write(model, _heavy(int(1.4 * memory)), weights=False)
        return (*words, "--enforce-eager", "--max-model-len", "1024")
    tiny.write(model, _heavy(8 * GIB), weights=False)
    return (*words, "--max-model-len", "4096", "--gpu-memory-utilization", "0.995")


def _heavy(size: int) -> tiny.Shape:
    """A shape whose weights take so much."""
    shape = tiny.Shape(
        hidden=8192, inner=28672, layers=1, heads=64, kv_heads=8, head_dim=128, vocabulary=32000
    )
    two = tiny.Shape(
        hidden=8192, inner=28672, layers=2, heads=64, kv_heads=8, head_dim=128, vocabulary=32000
    )
    layer = two.weight_bytes - shape.weight_bytes
    layers = max(1, -(-(size - shape.weight_bytes) // layer) + 1)
    return tiny.Shape(
        hidden=8192,
        inner=28672,
        layers=layers,
        heads=64,
        kv_heads=8,
        head_dim=128,
        vocabulary=32000,
    )


def refuse_when_busy(subject: Subject) -> None:
    """Others' work is not disturbed; raises NoRun."""
    memory, owners = subject.get(GpuMemory), subject.get(GpuOwners)
    if not isinstance(memory, GpuMemory):
        return
    for row in memory.rows:
        if row.used <= BUSY * row.total:
            continue
        who = ""
        if isinstance(owners, GpuOwners):
            pids = [str(owner.pid) for owner in owners.owners if owner.gpu == row.index]
            who = f" by PID {', '.join(pids)}" if pids else ""
        raise NoRun(
            f"{gib(row.used)} of GPU {row.index} are in use{who}: --share-gpu starts all the same"
        )


def costs(session: Session, starts: int) -> list[str]:
    """What the run will take, before it starts."""
    weights = 0.0
    lines = []
    if session.planned is not None:
        plan = session.planned.plan
        if value_in(session.written, "load-format") != "dummy":
            weights = plan.rank.weights / GIB
        lines.append(f"up to {gib(plan.budget)} of each GPU (the memory plan)")
    elif session.gpus:
        lines.append(f"the memory of {session.gpus} GPUs up to the launch's utilisation")
    else:
        lines.append(f"host memory, {gib(available())} are available")
    one = START_S + weights / LOAD_GIB_S
    most = session.plan.limits.wall_s
    times = f"up to {starts} starts, each" if starts > 1 else "one start,"
    about = f"about {one:.0f} s"
    if session.gpus:
        about = f"{one:.0f} s where all is cached to {COLD_S + weights / LOAD_GIB_S:.0f} s where nothing is"
    lines.append(f"{times} {about}; --wall ends one after {most:.0f} s")
    return lines


def facts_of(session: Session) -> dict[str, Any]:
    """What the memory plan says about the options that `oom` varies, and the values in force."""
    if session.planned is None:
        return {"plan": {}, "default": {}, "total": None}
    plan = session.planned.plan
    beside = plan.rank.graphs + plan.rank.before + plan.rank.buffers
    guesses = {"max-model-len": float(plan.longest)} if plan.longest else {}
    # weights, activations and cache fill the budget; what lies beside it has to fit into the rest
    guesses["gpu-memory-utilization"] = 1 - beside / plan.gpu.usable
    return {
        "plan": guesses,
        "total": plan.gpu.usable / GIB,
        "default": {
            "max-model-len": float(plan.settings.context),
            "gpu-memory-utilization": plan.settings.utilisation,
            "max-num-seqs": float(plan.settings.sequences),
            "tensor-parallel-size": float(plan.settings.tensor),
        },
    }
