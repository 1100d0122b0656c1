"""The files of the model that a launch names: a folder, or a hub id in the local cache."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.machine import Environ
from infer_doctor.frozen import frozen
from infer_doctor.host import Host, Unavailable
from infer_doctor.launch.model import Launch, Unknown
from infer_doctor.models import hub
from infer_doctor.models.gguf import Gguf, gguf_of
from infer_doctor.registry import probe

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")

NOT_WEIGHTS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")
"""filter_files_not_needed_for_inference of vllm/model_executor/model_loader/weight_utils.py."""

PARTIAL_LIMIT = 50
"""Unfinished downloads that are looked at."""


@frozen
class Tensor:
    """One entry of a safetensors header (github.com/huggingface/safetensors, "Format").

    `dtype` as written there ("BF16", "F8_E4M3", "I32"); `size` in bytes. Equal tensors that differ
    only in a number after the first (experts) are one with a `count`, `*` for that number, the
    `shape` of one and the `size` of all: 90,000 tensors of a mixture of experts are some 2,000.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    file: str
    """The first file that holds one of them."""
    count: int = 1


@frozen
class ModelFile:
    """A file of the model folder; `size` in bytes."""

    name: str
    size: int


@frozen
class WeightIndex:
    """A *.index.json: the files that it names, and tensors that their headers do not have."""

    name: str
    files: tuple[str, ...]
    tensors: int
    total_size: int | None
    lacking: int
    lacking_names: tuple[str, ...] = ()


@frozen
class ModelFiles:
    """What is known of the model without loading it.

    `origin` is "folder", "cache", "gguf" (a file) or "named" (only a name: nothing of it is here).
    JSON files are None where they do not exist; what exists and cannot be read is in `broken` with
    the reason.
    """

    model: str
    origin: str
    folder: str | None = None
    """The folder or GGUF file; for "named", the path that does not exist, else None."""
    revision: str | None = None
    config: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    generation_config: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    tokenizer_config: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    quantization: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    """quantization_config of config.json, else hf_quant_config.json or quantize_config.json."""
    files: tuple[ModelFile, ...] = field(default=(), metadata={"report": False})
    tensors: tuple[Tensor, ...] = field(default=(), metadata={"report": False})
    """Of the safetensors files that are loaded; empty when there are none or one is broken."""
    missing_shards: tuple[str, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    """File -> what is wrong: "is a Git LFS pointer", "the header ends after 120 of 4,096 bytes"."""
    gaps: tuple[str, ...] = ()
    quantization_source: str | None = None
    """The file that `quantization` is from."""
    documents: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict, metadata={"report": False}
    )
    """Every small JSON file that was read, by name."""
    indexes: tuple[WeightIndex, ...] = field(default=(), metadata={"report": False})
    loaded: tuple[str, ...] = field(default=(), metadata={"report": False})
    """The weight files that the engine would read, by load format "auto"."""
    partial: tuple[ModelFile, ...] = ()
    """Unfinished downloads in the cache (blobs/*.incomplete)."""
    dangling: tuple[str, ...] = ()
    """Links to nothing."""
    gguf: Gguf | None = field(default=None, metadata={"report": False})
    elsewhere: bool = False
    """The launch is of another machine: these are this machine's files of the same name."""

    def size_of(self, name: str) -> int | None:
        """Bytes of a file; None when it is not there."""
        return next((file.size for file in self.files if file.name == name), None)

    def path_of(self, name: str) -> str:
        """The path of a file of the folder."""
        return posixpath.join(self.folder or self.model, name)


@probe
def model_files(
    host: Host, options: EngineOptions, launch: Launch | None, environ: Environ | None
) -> ModelFiles:
    """Find the folder as the engine does, then read names, JSON files and headers.

    A path that exists is a folder, everything else a hub id; weights may lie in --download-dir while
    the configuration lies in the cache (vllm/model_executor/model_loader/default_loader.py).
    """
    name = model_name(options)
    if "://" in name:
        return ModelFiles(
            model=name, origin="named", gaps=(f"{name}: object storage was not read",)
        )
    elsewhere = launch is not None and launch.machine == "another"
    own = dict(environ.variables) if environ is not None else {}
    variables = own if elsewhere else {**own, **launch_variables(launch)}
    path = _local_path(host, launch, name, variables)
    if path is not None and (found := host.stat(path)) is not None:
        if found["kind"] == "file":
            return _gguf(host, name, path, elsewhere)
        return _folder(host, name, [path], "folder", elsewhere)
    if not hub.is_repository(name) or name.endswith(".gguf"):
        looks_local = name.startswith(("/", "~", "."))
        gaps = (f"{name}: a path of another machine",) if elsewhere else ()
        return ModelFiles(
            model=name, origin="named", folder=path if looks_local else None, gaps=gaps
        )
    return _cached(host, name, options, variables, elsewhere)


def model_name(options: EngineOptions) -> str:
    """The model as it is written; raises Unavailable when the launch does not tell it."""
    name = options.model.value if options.model is not None else options.get("model")
    if isinstance(name, Unknown):
        raise Unavailable(f"the model is {name.text}, which the launch does not tell")
    if not isinstance(name, str) or not name:
        raise Unavailable("the launch names no model")
    return name


def launch_variables(launch: Launch | None) -> dict[str, str]:
    """What the launch itself sets; a value that it does not tell is left out."""
    found: dict[str, str] = {}
    for variable in launch.environment if launch is not None else ():
        if variable.value is None:
            found.pop(variable.name, None)
        else:
            found[variable.name] = variable.value
    return found


def _local_path(
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
) -> ModelFiles:
    """The snapshot of a hub id: of --download-dir for weights, then of the caches."""
    extra = options.get("download_dir")
    roots = hub.caches(variables)
    if isinstance(extra, str):
        roots.insert(0, hub.expand(extra, variables))
    if hub.is_true(variables, "VLLM_USE_MODELSCOPE"):
        places = hub.modelscope_folders(name, variables, extra if isinstance(extra, str) else None)
        folders = [place for place in places if host.exists(place)]
        if folders:
            return _folder(host, name, folders[:1], "cache", elsewhere)
        return ModelFiles(model=name, origin="named", elsewhere=elsewhere)
    wanted = options.get("revision")
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
    return _folder(host, name, folders, "cache", elsewhere, commits[0], partial)


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


def _folder(
    host: Host,
    name: str,
    folders: Iterable[str],
    origin: str,
    elsewhere: bool,
    revision: str | None = None,
    partial: Iterable[ModelFile] = (),
) -> ModelFiles:
    """One folder, or several over each other: the first that has a file counts."""
    paths = list(folders)
    answers = [_ask(host, path) for path in paths]
    files: dict[str, int] = {}
    documents: dict[str, Mapping[str, Any]] = {}
    broken: dict[str, str] = {}
    for answer in answers:
        for file, size in answer["files"].items():
            if file in files:
                continue
            files[file] = size
            if file in answer["json"]:
                documents[file] = answer["json"][file]
            if file in answer["broken"]:
                broken[file] = answer["broken"][file]
    weights = next((a for a in answers if _weights(a["files"])), answers[0])
    indexes = tuple(_index(file, row) for file, row in sorted(weights["index"].items()))
    loaded, tag = _loaded(weights["files"], indexes)
    rows = [row for row in weights["tensors"] if row[5] == tag]
    bad = any(file in broken or file in weights["unreadable"] for file in loaded)
    quantization, source = _quantization(documents)
    shards = _missing(indexes, files)
    return ModelFiles(
        model=name,
        origin=origin,
        folder=paths[0],
        revision=revision,
        config=documents.get("config.json"),
        generation_config=documents.get("generation_config.json"),
        tokenizer_config=documents.get("tokenizer_config.json"),
        quantization=quantization,
        quantization_source=source,
        files=tuple(ModelFile(name=file, size=files[file]) for file in sorted(files)),
        tensors=() if bad else tuple(tensor for row in rows for tensor in _tensors(row)),
        missing_shards=shards,
        broken=broken,
        documents=documents,
        indexes=indexes,
        loaded=loaded,
        partial=tuple(partial),
        dangling=tuple(file for answer in answers for file in answer["dangling"]),
        elsewhere=elsewhere,
        gaps=tuple(
            gap for path, answer in zip(paths, answers, strict=True) for gap in _gaps(path, answer)
        ),
    )


def _ask(host: Host, path: str) -> Mapping[str, Any]:
    try:
        answer: Mapping[str, Any] = host.ask("model_files", path=path)
    except Unavailable as error:
        raise Unavailable(f"{path}: {error.reason}", error.code) from None
    return answer


def _gaps(path: str, answer: Mapping[str, Any]) -> Iterable[str]:
    for file, reason in answer["unreadable"].items():
        yield f"{path}/{file}: {reason}"
    if answer["truncated"]:
        yield f"{path}: only its first {len(answer['files']):,} files were looked at"


def _weights(files: Iterable[str]) -> list[str]:
    return [name for name in files if name.endswith(WEIGHTS) and not name.endswith(NOT_WEIGHTS)]


def _loaded(
    files: Mapping[str, int], indexes: Iterable[WeightIndex]
) -> tuple[tuple[str, ...], str]:
    """The files that are read, and how their rows of tensors are marked.

    As _prepare_weights does for "auto": *.safetensors, of several only those that the index names,
    else *.bin, else *.pt. A consolidated file beside others holds the same weights in other names.
    """
    names = _weights(files)
    by_name = {index.name: index for index in indexes}
    main = by_name.get("model.safetensors.index.json")
    if main is not None:
        return tuple(name for name in main.files if name in files), "indexed"
    safe = [name for name in names if name.endswith(".safetensors")]
    single = [name for name in safe if name.startswith("consolidated")]
    other = [name for name in safe if name not in single]
    if safe:
        return tuple(other or single), "other" if other else "consolidated"
    for ending in (".bin", ".pt", ".pth"):
        if found := [name for name in names if name.endswith(ending)]:
            return tuple(found), "none"
    return (), "none"


def _missing(indexes: Iterable[WeightIndex], files: Mapping[str, int]) -> tuple[str, ...]:
    """Of the index that the engine reads: the safetensors one, else PyTorch's when its files count."""
    for index in sorted(indexes, key=lambda index: not index.name.startswith("model.")):
        if index.name.startswith("consolidated"):
            continue
        if index.name.startswith("pytorch") and any(
            name.endswith(".safetensors") for name in files
        ):
            continue
        return tuple(name for name in index.files if name not in files)
    return ()


def _index(name: str, row: Mapping[str, Any]) -> WeightIndex:
    return WeightIndex(
        name=name,
        files=tuple(row["files"]),
        tensors=row["tensors"],
        total_size=row["total_size"],
        lacking=row["lacking"],
        lacking_names=tuple(row["lacking_names"]),
    )


def _tensors(row: Any) -> Iterable[Tensor]:
    """The tensors of one row of the operation: one for each value of the first number."""
    pattern, dtype, shape, size, file, _, runs = row
    sides = tuple(shape)
    for first, last, count in runs:
        for number in range(first, last + 1):
            yield Tensor(
                name=pattern if number < 0 else pattern.replace("*", str(number), 1),
                dtype=dtype,
                shape=sides,
                size=size * count,
                file=file,
                count=count,
            )


def _quantization(
    documents: Mapping[str, Mapping[str, Any]],
) -> tuple[Mapping[str, Any] | None, str | None]:
    """As the engine looks for it: config.json, its text part, then the older files of their own."""
    config = documents.get("config.json", {})
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        for key in ("quantization_config", "compression_config"):
            if isinstance(found := part.get(key), dict):
                return found, "config.json"
    for name in ("hf_quant_config.json", "quantize_config.json", "quant_config.json"):
        if name in documents:
            return documents[name], name
    return None, None
