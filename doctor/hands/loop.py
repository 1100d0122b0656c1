"""The child's loop: a question a line on standard input, an answer a line on standard output."""

from __future__ import annotations

import errno
import json
import math
import os
import resource
import signal
from collections.abc import Callable
from typing import Any

from . import cgroup, devices, files, system

Json = dict[str, Any]


def _operations() -> dict[str, Callable[..., Json]]:
    return {
        "allreduce": _allreduce,
        "cgroup": cgroup.cgroup,
        "clock": _of_network("clock"),
        "cuda": _cuda,
        "device_nodes": devices.device_nodes,
        "distributions": _distributions,
        "environ": system.environ,
        "find": files.find,
        "find_text": files.find,  # in a text file: no wait for a search through a library
        "gguf": _gguf,
        "hub": _hub,
        "identity": system.identity,
        "interfaces": _of_network("interfaces"),
        "kernel_log": _kernel_log,
        "libraries": _of_libraries("libraries"),
        "library_marks": _of_libraries("library_marks"),
        "limits": system.limits,
        "links": _links,
        "list": files.list_folder,
        "loader_cache": _of_libraries("loader_cache"),
        "model_files": _model_files,
        "mounts": files.mounts,
        "nvml": _nvml,
        "owned_libraries": _of_libraries("owned_libraries"),
        "own_name": _of_network("own_name"),
        "pci": system.pci,
        "processes": system.processes,
        "read": files.read,
        "real": files.real,
        "run": system.run,
        "self": system.own,
        "space": files.space,
        "stat": files.stat,
        "triton_repository": _of_trtllm("triton_repository"),
        "trt_folder": _of_trtllm("trt_folder"),
        "vllm_arguments": _of_vllm("vllm_arguments"),
        "vllm_digest": _of_vllm("vllm_digest"),
        "which": files.which,
    }


def _nvml(limit_s: float) -> Json:
    from .nvml import nvml

    # A library that crashes must not leave a core file behind; this process asks nothing else.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    return nvml(limit_s)


def _cuda(without: list[str], limit_s: float) -> Json:
    from .cuda import cuda

    return cuda(without, limit_s)


def _kernel_log() -> Json:
    from .kernel_log import kernel_log

    return kernel_log()


def _distributions(folders: list[str]) -> Json:
    from .python import distributions

    return distributions(folders)


def _model_files(path: str) -> Json:
    from .model_files import model_files

    return model_files(path)


def _hub(**arguments: Any) -> Json:
    from .hub import hub

    return hub(**arguments)


def _gguf(path: str) -> Json:
    from .gguf import gguf

    return gguf(path)


def _allreduce() -> Json:
    from .allreduce import unasked

    return unasked()


def _links() -> Json:
    from .links import unasked

    return unasked()


def _of_network(name: str) -> Callable[..., Json]:
    def ask(**arguments: Any) -> Json:
        from . import network

        answer: Json = getattr(network, name)(**arguments)
        return answer

    return ask


def _of_libraries(name: str) -> Callable[..., Json]:
    def ask(**arguments: Any) -> Json:
        from . import libraries

        answer: Json = getattr(libraries, name)(**arguments)
        return answer

    return ask


def _of_trtllm(name: str) -> Callable[..., Json]:
    def ask(path: str) -> Json:
        from . import trtllm

        answer: Json = getattr(trtllm, name)(path)
        return answer

    return ask


def _of_vllm(name: str) -> Callable[..., Json]:
    def ask(package: str) -> Json:
        from . import vllm_arguments

        answer: Json = getattr(vllm_arguments, name)(package)
        return answer

    return ask


def answer(operation: str, arguments: Json, limit_s: float) -> Json:
    """{"value": ...} or {"error": {"code", "message"}}."""
    # The time limit is no part of the question: a replay may ask with another one.
    more = {"limit_s": limit_s} if operation in ("cuda", "hub", "nvml", "run") else {}
    try:
        return {"value": _operations()[operation](**arguments, **more)}
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "EIO")
        code = "timeout" if isinstance(error, TimeoutError) and not error.errno else code
        return {"error": {"code": code, "message": error.strerror or str(error)}}
    except Exception as error:
        # Whatever a library raises is an answer for the parent, which decides what it means.
        return {"error": {"code": "failed", "message": f"{type(error).__name__}: {error}"}}


def main() -> None:
    """Answer until standard input closes; a question that outlives its parent ends itself."""
    questions = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # what libraries print must not mix with answers
        os.dup2(nowhere, descriptor)
    for line in iter(questions.readline, b""):
        question = json.loads(line)
        signal.alarm(math.ceil(question["limit_s"]) + 5)
        reply = answer(question["operation"], question["arguments"], question["limit_s"])
        signal.alarm(0)
        answers.write(json.dumps(reply).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
