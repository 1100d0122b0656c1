"""The files of the model that a launch names: a folder, or a hub id in the local cache."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.machine import Environ
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.launch.model import Launch, Unknown
from infer_doctor.launch.variables import of_engine, own, untold
from infer_doctor.models import hub
from infer_doctor.models.files import ModelFile, ModelFiles, Tensor, WeightIndex
from infer_doctor.models.folder import from_folders
from infer_doctor.models.gguf import gguf_of
from infer_doctor.registry import probe

__all__ = ["ModelFile", "ModelFiles", "Tensor", "WeightIndex", "model_files"]

TRTLLM_FILE = re.compile(r".*rank\d+\.(?:engine|safetensors)")

PARTIAL_LIMIT = 50
"""Unfinished downloads that are looked at."""


@probe
def model_files(
    host: Host, options: EngineOptions, launch: Launch | None, environ: Environ | None
) -> ModelFiles:
    """The model of the launch; see `read_model`."""
    name = model_name(options)
    return read_model(host, name, options, launch, environ, options.get("revision"))


def read_model(
    host: Host,
    name: str,
    options: EngineOptions,
    launch: Launch | None,
    environ: Environ | None,
    revision: Any = None,
) -> ModelFiles:
    """Find the folder as the engine does, then read names, JSON files and headers.

    A path that exists is a folder, everything else a hub id; weights may lie in --download-dir while
    the configuration lies in the cache (vllm/model_executor/model_loader/default_loader.py).
    """
    if "://" in name:
        return ModelFiles(
            model=name, origin="named", gaps=(f"{name}: object storage was not read",)
        )
    elsewhere = launch is not None and launch.machine == "another"
    if elsewhere:  # where this machine may have the same model; the pod inherits nothing of it
        variables = dict(environ.variables) if environ is not None else {}
        variables[hub.MODELSCOPE] = own(launch).get(hub.MODELSCOPE, "")
    else:
        variables = of_engine(launch, environ)
    path = local_path(host, launch, name, variables)
    if path is not None and (found := host.stat(path)) is not None:
        if found["kind"] == "file":
            return _gguf(host, name, path, elsewhere)
        answer = _ask(host, path)
        if options.engine == "tensorrt-llm" and _is_trtllm(answer):
            raise Absent(f"{name} is an engine or checkpoint of TensorRT-LLM")
        return from_folders(name, {path: answer}, "folder", elsewhere)
    if not hub.is_repository(name) or name.endswith(".gguf"):
        looks_local = name.startswith(("/", "~", "."))
        gaps = (f"{name}: a path of another machine",) if elsewhere else ()
        return ModelFiles(
            model=name,
            origin="named",
            folder=path if looks_local else None,
            gaps=gaps,
            elsewhere=elsewhere,
        )
    hidden = untold(launch, hub.MODELSCOPE, *(() if elsewhere else hub.PLACES))
    if hidden is not None:
        raise Unavailable(hidden)
    return _cached(host, name, options, variables, elsewhere, revision)


def model_name(options: EngineOptions) -> str:
    """The model as it is written; raises Unavailable when the launch does not tell it."""
    name = options.model.value if options.model is not None else options.get("model")
    if isinstance(name, Unknown):
        raise Unavailable(f"the model is {name.text}, which the launch does not tell")
    if not isinstance(name, str) or not name:
        raise Unavailable("the launch names no model")
    return name


def local_path(
    host: Host, launch: Launch | None, name: str, variables: Mapping[str, str]
) -> str | None:
    """The path that the name is when it is one; through the mounts of a container."""
    path = hub.expand(name, variables) if name.startswith("~") else name
    if launch is None or launch.machine == "local":
        base = launch.working_folder if launch is not None else None
        if base is None and not path.startswith("/"):
            base = host.ask("self")["folder"]
        return hub.join(base or "/", path)
    volumes = launch.container.volumes if launch.container is not None else ()
    for volume in volumes:
        inside = path == volume.target or path.startswith(volume.target.rstrip("/") + "/")
        if inside and volume.source and volume.kind in ("bind", "hostPath"):
            rest = path[len(volume.target.rstrip("/")) :].lstrip("/")
            base = posixpath.dirname(volume.place.file) or "."
            folder = hub.expand(volume.source, variables)
            if not folder.startswith("/"):
                own = host.ask("self")["folder"] or "/"
                folder = hub.join(hub.join(own, base), folder)
            return hub.join(folder, rest) if rest else folder
    return None


def _is_trtllm(answer: Mapping[str, Any]) -> bool:
    """trt_engine reads such a folder; see trtllm/folder.py."""
    config = answer["json"].get("config.json", {})
    files = answer["files"]
    marks = ("pretrained_config", "build_config", "builder_config")
    return any(mark in config for mark in marks) or any(
        TRTLLM_FILE.fullmatch(name) for name in files
    )


def _gguf(host: Host, name: str, path: str, elsewhere: bool) -> ModelFiles:
    answer = host.ask("gguf", path=path)
    file = posixpath.basename(path)
    common: dict[str, Any] = {
        "model": name,
        "origin": "gguf",
        "folder": path,
        "files": (ModelFile(name=file, size=answer["size"]),),
        "elsewhere": elsewhere,
        "loaded": (file,),
    }
    if "broken" in answer:
        return ModelFiles(**common, broken={file: answer["broken"]})
    return ModelFiles(**common, gguf=gguf_of(answer))


def _cached(
    host: Host,
    name: str,
    options: EngineOptions,
    variables: Mapping[str, str],
    elsewhere: bool,
    wanted: Any,
) -> ModelFiles:
    """The snapshot of a hub id: of --download-dir for weights, then of the caches."""
    extra = options.get("download_dir")
    for what, value in (("--download-dir", extra), ("the revision", wanted)):
        if isinstance(value, Unknown):
            raise Unavailable(f"{what} is {value.text}, which the launch does not tell")
    roots = hub.caches(variables)
    if isinstance(extra, str):
        roots.insert(0, hub.expand(extra, variables))
    if hub.from_modelscope(variables, options.version):
        places = hub.modelscope_folders(name, variables, extra if isinstance(extra, str) else None)
        folders = [place for place in places if host.exists(place)]
        if folders:
            return from_folders(name, {folders[0]: _ask(host, folders[0])}, "cache", elsewhere)
        return ModelFiles(model=name, origin="named", elsewhere=elsewhere)
    revision = wanted if isinstance(wanted, str) else "main"
    folders, commits, partial = [], [], []
    for root in roots:
        repository = f"{root}/{hub.folder_name(name)}"
        if not host.exists(repository):
            continue
        partial += _partial(host, f"{repository}/blobs")
        commit = revision
        if not hub.COMMIT.fullmatch(revision):
            try:
                commit = host.read(f"{repository}/refs/{revision}").strip()
            except Unavailable as error:
                if error.code not in ("ENOENT", "ENOTDIR"):
                    raise
                continue
        snapshot = f"{repository}/snapshots/{commit}"
        if hub.COMMIT.fullmatch(commit) and host.exists(snapshot):
            folders.append(snapshot)
            commits.append(commit)
    if not folders:
        return ModelFiles(model=name, origin="named", partial=tuple(partial), elsewhere=elsewhere)
    answers = {folder: _ask(host, folder) for folder in folders}
    return from_folders(name, answers, "cache", elsewhere, commits[0], partial)


def _partial(host: Host, blobs: str) -> list[ModelFile]:
    try:
        names = [name for name in host.list(blobs) if name.endswith(".incomplete")]
    except Unavailable as error:
        if error.code in ("ENOENT", "ENOTDIR"):
            return []
        raise
    found = []
    for name in names[:PARTIAL_LIMIT]:
        answer = host.stat(f"{blobs}/{name}")
        if answer is not None:
            found.append(ModelFile(name=name, size=answer["size"]))
    return found


def _ask(host: Host, path: str) -> Mapping[str, Any]:
    try:
        answer: Mapping[str, Any] = host.ask("model_files", path=path)
    except Unavailable as error:
        raise Unavailable(f"{path}: {error.reason}", error.code) from None
    return answer
