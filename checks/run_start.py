"""What starts of the doctor's own showed: whether the engine comes up, and the boundary of memory."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.facts.log import EngineLog
from infer_doctor.facts.run import Boundary, Start, Starts
from infer_doctor.fixes.run import cure
from infer_doctor.model import Category, Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.units import plural

ENDED: dict[str, Category] = {
    "memory": "host_ram",
    "idle": "engine_stalled",
    "wall": "cold_start",
    "flood": "wrapper_generic",
}
"""The watchdog's reason -> what it is a case of."""


def _evidence(start: Start) -> tuple[Evidence, ...]:
    ran = Evidence(source="run", excerpt=" ".join(start.command))
    if not start.tail:
        return (ran,)
    return (ran, Evidence(source=start.log or "run", excerpt=start.tail))


@check("run-start-failed", severity="error", category="wrapper_generic", since="0.3")
def start_failed(starts: Starts, log: EngineLog | None) -> Iterator[Finding]:
    """The engine did not come up in a run of the doctor's own, and its log names no cause.

    ## Why it matters
    The launch was really started: what failed here fails in production too.

    ## How it decides
    The launch was started as it is; the server did not answer /health with 200 before the process
    ended or the watchdog ended it (time to ready, a silent log, memory of the host, a log that grows
    without end). A cause that the
    log names is the finding of log-engine-failed instead.

    ## Fix safety
    Manual: what to change depends on what the log holds.
    """
    asked = starts.asked
    if asked.ready or (log is not None and log.cause is not None):
        return
    fixes = []
    if asked.ended == "memory":
        fixes.append(
            cure(
                "less-host-memory", f"Give the engine more than {asked.limit}, or let it take less"
            )
        )
    elif asked.ended == "flood":
        fixes.append(cure("less-log", "Look what the log repeats, and lower VLLM_LOGGING_LEVEL"))
    elif asked.ended in ("wall", "idle"):
        fixes.append(
            cure(
                "wait-longer",
                f"Look at the last line of the log; raise --{asked.ended} if it works",
                why=f"the doctor's own limit ended it: {asked.limit}",
            )
        )
    elif asked.signal == 9:
        fixes.append(
            cure(
                "who-killed",
                "Look who killed it",
                "dmesg -T | grep -i -E 'oom|killed process'",
                restarts=False,
            )
        )
    yield Finding(
        about="launch",
        message=f"the engine {asked.ending}",
        evidence=_evidence(asked),
        fixes=tuple(fixes),
        category=ENDED.get(asked.ended) or ("host_ram" if asked.signal == 9 else None),
    )


@check("run-process-left", severity="error", category="gpu_health", since="0.3")
def process_left(starts: Starts) -> Iterator[Finding]:
    """A process of the run did not die after SIGKILL.

    ## Why it matters
    It hangs in the kernel (state D), mostly in the driver, and may hold the GPU until a reset.

    ## How it decides
    20 s after SIGKILL the process was still there. The guard goes on for ten minutes.

    ## Fix safety
    Manual: a GPU reset or a reboot ends the work of everybody on it.
    """
    for start in starts.rows:
        for pid in start.left:
            yield Finding(
                about=f"pid {pid}",
                message=f"PID {pid} of {start.label} is still there 20 s after SIGKILL",
                evidence=(Evidence(source=f"/proc/{pid}/stat", excerpt=start.label),),
                fixes=(
                    cure(
                        "see-hang",
                        "See where it hangs",
                        f"cat /proc/{pid}/stack /proc/{pid}/wchan",
                        restarts=False,
                    ),
                ),
            )


@check("run-memory-boundary", severity="error", category="oom_kv_cache", since="0.3")
def memory_boundary(boundary: Boundary) -> Iterator[Finding]:
    """The launch does not start for lack of memory; the largest value that does was found by starts.

    ## Why it matters
    A value that was seen to start is certain; an estimate may be some percent too high and fail again.

    ## How it decides
    The launch was started as it is and failed for memory. Then one option was varied: which one follows
    from the stage that failed (KV cache: --max-model-len; graphs and free memory:
    --gpu-memory-utilization, downwards; weights: --tensor-parallel-size, and --gpu-memory-utilization
    upwards where there are no more GPUs or nothing is left for the cache), or was asked for. The first value is
    what the engine printed or the memory plan says, the next 1.5 % beyond it, then the geometric mean,
    until what works and what fails are 2 % apart or six starts are made.

    ## Fix safety
    Manual: the launch has to be changed.
    """
    if boundary.fails is None and boundary.works is None:
        return
    name = f"--{boundary.option}"
    written = f"{boundary.asked:g}" if boundary.asked is not None else "its default"
    if boundary.option == "max-model-len" and boundary.asked is not None:
        written = f"{boundary.asked:.0f}"
    told = []
    if boundary.plan is not None:
        told.append(f"the memory plan said {_value(boundary, boundary.plan)}")
    if boundary.engine is not None:
        told.append(f"the engine said {_value(boundary, boundary.engine)}")
    tail = f" ({', '.join(told)})" if told else ""
    head = f"the launch does not start with {name} {written}"
    evidence = (Evidence(source=boundary.log or "run", excerpt=f"{boundary.starts} starts"),)
    if boundary.works is None and boundary.starts == 1:
        yield Finding(
            about=boundary.option,
            message=f"{head}, and there is no other value to try{tail}",
            evidence=evidence,
            category=boundary.category,  # type: ignore[arg-type]
            confidence="likely",
        )
        return
    if boundary.works is None:
        way = "up" if boundary.smallest else "down"
        count = plural(boundary.starts - 1, "other value")
        yield Finding(
            about=boundary.option,
            message=f"{head}, nor with any of {count} {way} to "
            f"{_value(boundary, boundary.fails)}{tail}",
            evidence=evidence,
            category=boundary.category,  # type: ignore[arg-type]
            confidence="likely",
        )
        return
    works, fails = _value(boundary, boundary.works), _value(boundary, boundary.fails)
    message = f"{head}; it starts with {works}"
    if boundary.fails is not None and (boundary.within is not None or not boundary.smallest):
        share = f", {boundary.within * 100:.1f} % apart" if boundary.within is not None else ""
        message += f" and not with {fails}{share}"
    yield Finding(
        about=boundary.option,
        message=message + f", in {boundary.starts} starts{tail}",
        evidence=evidence,
        category=boundary.category,  # type: ignore[arg-type]
        fixes=(cure("use-what-started", f"Start with {name} {works}", why="it was seen to start"),),
    )


def _value(boundary: Boundary, value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:.0f}" if boundary.option != "gpu-memory-utilization" else f"{value:g}"
