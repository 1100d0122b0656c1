"""The engine or checkpoint folder of TensorRT-LLM that a launch names; only headers are read."""

from __future__ import annotations

from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_files import local_path
from infer_doctor.facts.triton import TritonRepository, read_folder
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.launch.model import Launch, Unknown
from infer_doctor.launch.variables import of_engine
from infer_doctor.models import hub
from infer_doctor.registry import probe
from infer_doctor.trtllm.folder import TrtEngine
from infer_doctor.trtllm.options import ENTRIES

__all__ = ["TrtEngine", "trt_engine"]


@probe
def trt_engine(
    launch: Launch,
    host: Host | None,
    options: EngineOptions | None,
    environ: Environ | None,
    repository: TritonRepository | None = None,
) -> TrtEngine:
    """Absent for a model of another kind or one that is only named; Unavailable where it lies on
    another machine."""
    if launch.engine != "tensorrt-llm":
        raise Absent(f"the launch starts {launch.engine or 'no engine that is known'}")
    if repository is not None and repository.engines:
        return next(iter(repository.engines.values()))
    if launch.entry not in ENTRIES:
        raise Absent(f"{launch.entry} names no engine on its command line")
    if options is None:
        raise Unavailable("the options of the launch are not known")
    name = options.model.value if options.model is not None else options.get("model")
    if isinstance(name, Unknown):
        raise Unavailable(f"the model is {name.text}, which the launch does not tell")
    if not isinstance(name, str) or not name:
        raise Absent("the launch names no model")
    if host is None:
        if hub.is_repository(name):
            raise Absent(f"{name} is a model of the hub")
        raise Unavailable(f"{name} lies on the machine that will run {launch.name}")
    path = local_path(host, launch, name, of_engine(launch, environ))
    if path is None:
        if hub.is_repository(name):
            raise Absent(f"{name} is a model of the hub")
        raise Unavailable(f"{name} lies on the machine that will run {launch.name}")
    found = read_folder(host, path)
    if found is None:
        raise Absent(f"{name} is no engine or checkpoint folder of TensorRT-LLM")
    return found
