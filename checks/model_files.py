"""The model's files on disk: there, whole, of one format."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.environment import Interpreter
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.fixes.models import advise
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import evidence, word
from infer_doctor.launch.model import Launch
from infer_doctor.launch.model_judge import (
    MANY,
    download,
    named,
    offline_by,
    require_final,
    require_local,
    require_own,
)
from infer_doctor.model import Evidence, Finding
from infer_doctor.models.folder import WEIGHTS, is_weight
from infer_doctor.registry import check
from infer_doctor.units import gib, plural

OTHER_FORMATS = (
    "dummy",
    "gguf",
    "bitsandbytes",
    "tensorizer",
    "runai_streamer",
    "runai_streamer_sharded",
    "sharded_state",
    "ipc_cache",
    "modelexpress",
)
"""Load formats that make weights up or read them in another way."""


@check("model-path-missing", severity="error", category="model_files", since="0.2")
def path_missing(launch: Launch, options: EngineOptions, files: ModelFiles) -> Iterator[Finding]:
    """The launch names a folder of a model that does not exist.

    ## Why it matters
    A path that does not exist is taken for a name of the Hugging Face hub: the engine says "Repo id
    must be in the form 'repo_name' or 'namespace/repo_name'" or looks for it in the network.

    ## How it decides
    The model of the launch begins with /, ~ or ., and nothing is there. Relative paths are looked at
    from the folder that the launch is started in.

    ## Fix safety
    Manual: the right path, or a volume that is not mounted.
    """
    require_own(files)
    if files.origin != "named" or files.folder is None:
        return
    parent = posixpath.dirname(files.folder.rstrip("/"))
    yield Finding(
        about="model",
        message=f"{files.folder} does not exist",
        evidence=(
            *evidence(options, "model"),
            Evidence(source=files.folder, excerpt="no such file or folder"),
        ),
        fixes=(
            advise(
                "name-model-folder",
                "Give the path of the model, or mount it there",
                commands=(f"ls {shlex.quote(parent or '/')}",),
            ),
        ),
    )


@check("model-config-missing", severity="error", category="model_files", since="0.2")
def config_missing(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles,
    environ: Environ | None,
    interpreter: Interpreter | None,
) -> Iterator[Finding]:
    """The folder has no configuration that the engine can read.

    ## Why it matters
    The engine stops with "Could not detect config format for no config file found", or with an error
    of the JSON parser that names no file.

    ## How it decides
    Neither config.json nor params.json (the form of Mistral) is in the folder, or config.json is no
    JSON object. A folder with adapter_config.json is an adapter: it is served with its base model.

    ## Fix safety
    Unsafe for a broken file of the cache, which is downloaded again; else manual: another path, or the
    missing file.
    """
    require_local(files)
    if files.origin == "gguf" or options.get("hf_config_path") is not None:
        raise NotApplicable("the model needs no config.json")
    present = {file.name for file in files.files}
    broken = {n: files.broken[n] for n in ("config.json", "params.json") if n in files.broken}
    if broken:
        name, problem = next(iter(broken.items()))
        yield Finding(
            about=name,
            message=f"{files.path_of(name)} {problem}",
            evidence=(Evidence(source=files.path_of(name), excerpt=problem),),
            fixes=download(files, [name], interpreter),
        )
        return
    if present & {"config.json", "params.json"}:
        return
    adapter = "adapter_config.json" in present
    if not adapter:
        require_final(files, launch, environ)
    base = files.documents.get("adapter_config.json", {}).get("base_model_name_or_path")
    what = "is a LoRA adapter, no model" if adapter else "has no config.json"
    if adapter:
        fix = advise(
            "serve-base-model",
            f"Serve {base or 'the base model'} with --enable-lora --lora-modules "
            f"NAME={files.folder}",
        )
    else:
        fix = advise("name-model-folder", "Give the folder that holds config.json")
    yield Finding(
        about="model",
        message=f"{files.title} {what}",
        evidence=(
            *evidence(options, "model"),
            Evidence(source=str(files.folder), excerpt=named(sorted(present)) or "empty"),
        ),
        fixes=(fix,),
    )


@check("model-weights-missing", severity="error", category="model_files", since="0.2")
def weights_missing(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles,
    environ: Environ | None,
    interpreter: Interpreter | None,
) -> Iterator[Finding]:
    """There are no weights, or some files of them are missing.

    ## Why it matters
    vLLM stops late, after its start-up of half a minute, with "Cannot find any model weights" or
    "Weight files referenced in index but missing".

    ## How it decides
    The folder has no *.safetensors, *.bin, *.pt, *.pth or *.gguf, or a file that
    model.safetensors.index.json names is not there (a link to nothing counts as not there). A model in
    the hub's cache that is incomplete is downloaded at the start: a warning, and an error where
    HF_HUB_OFFLINE forbids it. Load formats that read no such files are left out.

    ## Fix safety
    Unsafe: a download of gigabytes.
    """
    require_local(files)
    if files.origin == "gguf" or word(options, "load_format") in OTHER_FORMATS:
        raise NotApplicable("this launch reads no such weights")
    if any(file.name.endswith(".engine") for file in files.files):
        raise NotApplicable("the folder holds an engine that was built by TensorRT-LLM")
    if files.config is None and "params.json" not in files.documents:
        raise Unavailable("without a configuration the folder is no model")
    lost = sorted({*files.missing_shards, *(n for n in files.dangling if is_weight(n))})
    there = [file.name for file in files.files if is_weight(file.name)]
    if there and not lost:
        return
    offline = offline_by(launch, environ)
    cached = files.origin == "cache"
    if lost:
        total = next((len(index.files) for index in files.indexes if lost[0] in index.files), 0)
        of = f" of {total}" if total else ""
        message = f"{files.title}: {len(lost)}{of} weight files are missing: {named(lost)}"
        names = [index.name for index in files.indexes if lost[0] in index.files]
        proof = Evidence(source=files.path_of(names[0] if names else lost[0]), excerpt=lost[0])
    else:
        message = f"{files.title} has no weights ({', '.join('*' + end for end in WEIGHTS)})"
        shown = named([file.name for file in files.files])
        proof = Evidence(source=str(files.folder), excerpt=shown)
    later = f"; {offline} forbids to download them" if offline else "; the start downloads them"
    yield Finding(
        about="weights",
        severity="warning" if cached and not offline else None,
        category="hf_access" if cached else None,
        message=message + (later if cached else ""),
        evidence=(
            proof,
            *([Evidence(source="environment", excerpt=offline)] if offline and cached else []),
        ),
        fixes=download(
            files, lost or (["*.safetensors"] if cached else ["the weights"]), interpreter
        ),
    )


@check("model-weights-broken", severity="error", category="weights_corrupt", since="0.2")
def weights_broken(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles,
    interpreter: Interpreter | None,
) -> Iterator[Finding]:
    """A weight file is no weight file, is cut off, or contradicts its own header.

    ## Why it matters
    The engine starts all its processes before it reads the weights, and then says "Error while
    deserializing header: HeaderTooLarge" (a Git LFS pointer), "InvalidHeaderDeserialization" or
    "MetadataIncompleteBuffer" (a file that was cut off) without the name of the file.

    ## How it decides
    The headers of all safetensors files are read and checked as the library does (validate() of
    safetensors/src/tensor.rs): length, JSON, shapes against bytes, no overlap, no hole, and the size
    of the file. Files under 1,024 bytes that begin as a Git LFS pointer, web pages and empty files are
    named as such; a ZIP (.bin of PyTorch) must have its directory at the end. GGUF headers too. The
    weights themselves are not read. A tensor that the index places in a file whose header does not
    have it counts too.

    ## Fix safety
    Unsafe: the files are downloaded again.
    """
    require_local(files)
    broken = {name: text for name, text in files.broken.items() if name.endswith(WEIGHTS)}
    used = {name: text for name, text in broken.items() if name in files.loaded}
    for name, text in used.items():
        yield Finding(
            about=name,
            message=f"{files.path_of(name) if files.origin != 'gguf' else files.folder} {text}",
            evidence=(
                Evidence(
                    source=files.path_of(name) if files.origin != "gguf" else str(files.folder),
                    excerpt=f"{files.size_of(name)} bytes",
                ),
            ),
            fixes=download(files, sorted(used), interpreter),
        )
    for index in files.indexes:
        if index.lacking and not used and set(index.files) & set(files.loaded):
            yield Finding(
                about=index.name,
                message=f"{files.path_of(index.name)} places {plural(index.lacking, 'tensor')} in "
                f"files that do not have them: {', '.join(index.lacking_names)}",
                evidence=(
                    Evidence(source=files.path_of(index.name), excerpt=index.lacking_names[0]),
                ),
                fixes=download(files, [index.name], interpreter),
            )


@check("model-download-unfinished", severity="info", category="model_files", since="0.2")
def download_unfinished(
    launch: Launch, options: EngineOptions, files: ModelFiles
) -> Iterator[Finding]:
    """A download of the model was broken off and its part is still on disk.

    ## Why it matters
    The next start downloads the rest, or, with another process still at it, waits for its lock. Parts
    of a file that is whole by now only take room.

    ## How it decides
    Files *.incomplete in the blobs of the model's folder in the hub's cache (huggingface_hub,
    file_download.py).

    ## Fix safety
    Manual: look whether a download still runs before removing anything.
    """
    require_own(files)
    if not files.partial:
        return
    size = sum(file.size for file in files.partial)
    yield Finding(
        about="download",
        message=f"{plural(len(files.partial), 'unfinished download')} of {files.model} in the cache, "
        f"{gib(size)}",
        evidence=tuple(
            Evidence(source=file.name, excerpt=f"{file.size} bytes")
            for file in files.partial[:MANY]
        ),
        fixes=(
            advise(
                "finish-download",
                f"Finish the download of {files.model}",
                commands=(f"hf download {shlex.quote(files.model)}",),
            ),
        ),
    )
