"""Engine folders and repositories that a container gets from the machine that starts it."""

from __future__ import annotations

from contextlib import suppress

from infer_doctor.engine import Subject
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.triton import TritonRepository, triton_repository
from infer_doctor.facts.trt_engine import TrtEngine, trt_engine
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.launch.model import Launch


def give_mounted(subject: Subject, host: Host | None) -> None:
    """For `-- docker run ...`: what its bind mounts hold lies on this machine."""
    launch = subject.get(Launch)
    if host is None or not isinstance(launch, Launch) or launch.engine != "tensorrt-llm":
        return
    options = subject.get(EngineOptions)
    known = options if isinstance(options, EngineOptions) else None
    with suppress(Absent, Unavailable):
        subject.give(TrtEngine, trt_engine(launch, host, known, None))
    with suppress(Absent, Unavailable):
        subject.give(TritonRepository, triton_repository(launch, host, None))
