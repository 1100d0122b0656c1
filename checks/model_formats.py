"""In which form the weights lie there: one set or several, pickled or not."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.quantization import PLUGINS, REMOVED, method_of
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.fixes.models import advise, change_option
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import evidence, is_here, require_vllm, version_of, word
from infer_doctor.launch.model import Launch
from infer_doctor.launch.model_judge import named, require_local
from infer_doctor.model import ConvertWeights, Evidence, Finding, Fix
from infer_doctor.models.folder import is_weight
from infer_doctor.registry import check
from infer_doctor.units import gib, plural


@check("model-weights-doubled", severity="warning", category="model_files", since="0.2")
def weights_doubled(launch: Launch, options: EngineOptions, files: ModelFiles) -> Iterator[Finding]:
    """Several sets of safetensors files lie side by side and no index says which counts.

    ## Why it matters
    The engine reads every *.safetensors of the folder: twice the time, and of tensors with one name
    the last one read wins, which may be those of an adapter or of an older save.

    ## How it decides
    Without model.safetensors.index.json vLLM loads all *.safetensors (default_loader.py,
    filter_duplicate_safetensors_files). Here that are both numbered shards
    (model-00001-of-00002.safetensors) and a whole model.safetensors, or shards of several counts.

    ## Fix safety
    Manual: only you know which set is the right one.
    """
    require_local(files)
    if any(index.name == "model.safetensors.index.json" for index in files.indexes):
        return
    sets: dict[str, list[str]] = {}
    for name in files.loaded:
        if not name.endswith(".safetensors"):
            continue
        stem, numbered, total = name.removesuffix(".safetensors").rpartition("-of-")
        if numbered and total.isdigit():
            sets.setdefault(f"{stem.rpartition('-')[0]}-of-{total}", []).append(name)
        elif name == "model.safetensors":
            sets.setdefault(name, []).append(name)
    if len(sets) < 2:
        return
    kinds = [
        f"{rows[0]}{f' and {len(rows) - 1} more' if len(rows) > 1 else ''}"
        for rows in sets.values()
    ]
    yield Finding(
        about="weights",
        message=f"{files.title} has {len(sets)} sets of weights and no index: {'; '.join(kinds)}",
        evidence=(Evidence(source=str(files.folder), excerpt="no model.safetensors.index.json"),),
        fixes=(advise("keep-one-set", "Move all but one set of weights out of the folder"),),
    )


@check("model-weights-pickled", severity="warning", category="security", since="0.2")
def weights_pickled(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles,
    interpreter: Interpreter | None,
) -> Iterator[Finding]:
    """The engine reads pickled weights (.bin, .pt), although or because there are no safetensors.

    ## Why it matters
    Pickles are read slowly, one after the other and through memory, and are the format that can hold
    code; vLLM reads them with weights_only. Safetensors are mapped.

    ## How it decides
    The files that load format "auto" takes end in .bin or .pt (a warning), or `--load-format pt` asks
    for them while safetensors are there (a warning too). Safetensors beside .bin files that are not
    read are no finding: they only take room.

    ## Fix safety
    Unsafe: it writes a second copy of the weights.
    """
    require_local(files)
    pickled = [
        file for file in files.files if file.name.endswith((".bin", ".pt")) and is_weight(file.name)
    ]
    safe = [file for file in files.files if file.name.endswith(".safetensors")]
    forced = word(options, "load_format") in ("pt", "npcache")
    if not pickled or (safe and not forced):
        return
    size = sum(file.size for file in pickled)
    where = evidence(options, "load_format") if forced else ()
    fixes: tuple[Fix, ...] = ()
    if forced and safe:
        fixes = (change_option(launch, options, "load_format", "auto"),)
    elif interpreter is not None and files.origin == "folder" and files.folder:
        names = tuple(file.name for file in pickled)
        fixes = (
            Fix(
                id="convert-weights",
                title=f"Write the {gib(size)} of weights in {files.folder} as safetensors",
                safety="unsafe",
                restarts=True,
                why=f"needs {gib(size)} of room, and that much memory for the largest file",
                actions=(
                    ConvertWeights(
                        text=f"convert {named(list(names))} in {files.folder} to safetensors",
                        python=interpreter.executable,
                        folder=files.folder,
                        files=names,
                    ),
                ),
            ),
        )
    yield Finding(
        about="weights",
        message=f"{plural(len(pickled), 'pickled weight file')} ({gib(size)}) "
        f"{'are read although safetensors are there' if safe else 'and no safetensors'}",
        evidence=(
            *where,
            Evidence(source=files.path_of(pickled[0].name), excerpt=f"{pickled[0].size} bytes"),
        ),
        fixes=fixes,
    )


PACKED = ".qweight"
"""The packed integers of AWQ and GPTQ; GPTQ has .g_idx beside it."""


@check("model-quantization-contradicted", severity="error", category="quantization", since="0.2")
def quantization_contradicted(
    launch: Launch, options: EngineOptions, files: ModelFiles
) -> Iterator[Finding]:
    """The weights are quantised and the configuration does not say so, or the other way round.

    ## Why it matters
    The engine builds other layers than the files hold and stops after reading them: "There is no
    module or parameter named ...qweight", or "Following weights were not initialized from checkpoint".

    ## How it decides
    config.json (or quantize_config.json, quant_config.json) against the names of the tensors: AWQ and
    GPTQ keep `.qweight` for each layer. Either one without the other is an error; packed weights
    without a word of it are right with `--quantization`. Only likely: a method of its own may name
    its tensors otherwise.

    ## Fix safety
    Unsafe for packed weights: an option of the launch, guessed from the names of the tensors. Plain
    weights need another config.json.
    """
    require_local(files)
    if not files.tensors:
        raise Unavailable(f"the tensors of {files.title} were not read")
    method = method_of(files.quantization) or ("known" if files.quantization else None)
    packed = next((tensor for tensor in files.tensors if tensor.name.endswith(PACKED)), None)
    if packed is None and method in ("awq", "gptq"):
        yield Finding(
            about="quantization",
            confidence="likely",
            message=f"{files.title} says {method} in {files.quantization_source}, but none of its "
            f"{len(files.tensors)} tensors read is packed ({PACKED})",
            evidence=(
                Evidence(
                    source=files.path_of(files.quantization_source or "config.json"),
                    excerpt=f"quant_method {method}",
                ),
                Evidence(source=files.path_of(files.tensors[0].file), excerpt=f"no {PACKED}"),
            ),
            fixes=(
                advise(
                    "fetch-model-files", "Get weights and config.json of one and the same version"
                ),
            ),
        )
    if packed is None or method is not None or word(options, "quantization") is not None:
        return
    kind = "gptq" if any(t.name.endswith(".g_idx") for t in files.tensors) else "awq"
    yield Finding(
        about="quantization",
        confidence="likely",
        message=f"{files.title} has packed weights ({packed.name}), but no configuration names their "
        "quantization",
        evidence=(
            Evidence(source=files.path_of(packed.file), excerpt=f"{packed.name} {packed.dtype}"),
            Evidence(source=files.path_of("config.json"), excerpt="no quantization_config"),
        ),
        fixes=(
            change_option(
                launch,
                options,
                "quantization",
                kind,
                why="read off the names of the tensors: bits and groups stand nowhere",
                safety="unsafe",
            ),
        ),
    )


GGUF_PLUGIN_SINCE = REMOVED["gguf"][0]


@check("model-gguf-unsupported", severity="error", category="quantization", since="0.2")
def gguf_unsupported(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    distributions: Distributions | None,
) -> Iterator[Finding]:
    """The model is a GGUF file, which this version of vLLM does not read by itself.

    ## Why it matters
    vLLM 0.24 moved GGUF to a plugin; without it the engine says "Unknown quantization method: gguf"
    or takes the file for the name of a repository.

    ## How it decides
    The model of the launch is a file that ends in .gguf (or a repository with a quantization after a
    colon, "org/model-GGUF:Q4_K_M"), the version is 0.24 or newer, and the environment has no
    vllm-gguf-plugin.

    ## Fix safety
    Manual: a plugin, or another form of the weights.
    """
    require_vllm(options)
    name = options.model.text if options.model is not None else ""
    path, colon, tag = name.partition(":")
    remote = bool(colon) and path.lower().endswith("gguf") and bool(tag)
    if not remote and not name.endswith(".gguf") and not (files and files.origin == "gguf"):
        raise NotApplicable("the model is no GGUF file")
    version = version_of(options)
    if version is None:
        raise Unavailable("the version of vLLM is not known")
    if version < GGUF_PLUGIN_SINCE:
        return
    if not is_here(launch) or distributions is None:
        raise Unavailable("whether vllm-gguf-plugin is installed is not known")
    if PLUGINS["gguf"] in distributions.by_name:
        return
    there = any(one == "vllm" or one.startswith("vllm-") for one in distributions.by_name)
    yield Finding(
        about="model",
        confidence="certain" if there else "likely",
        message=f"{name} is a GGUF file, and vLLM {options.version} reads those only with "
        f"{PLUGINS['gguf']}",
        evidence=(
            *evidence(options, "model"),
            Evidence(source=distributions.source, excerpt=f"no {PLUGINS['gguf']}"),
        ),
        fixes=(
            advise(
                "install-gguf-plugin",
                f"Install {PLUGINS['gguf']}, or serve the safetensors of this model",
                commands=(f"pip install {PLUGINS['gguf']}",),
            ),
        ),
    )
