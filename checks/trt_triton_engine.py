"""A repository of Triton against the engine that it serves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from infer_doctor.catalog import triton as catalog
from infer_doctor.catalog.trtllm_releases import (
    CHUNKING_FITTED_SINCE,
    REUSE_FITTED_SINCE,
    TRITON_IMAGE,
    WINDOW_FITTED_SINCE,
    in_triton,
    numbers,
    reaches,
    same_tensorrt,
    tensorrt_of,
)
from infer_doctor.checks.trt_triton import at
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.triton import TritonRepository
from infer_doctor.fixes.trtllm import (
    advise,
    edit_parameter,
    rebuild,
    same_version,
)
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.model import Evidence, Finding, Severity
from infer_doctor.registry import check
from infer_doctor.trtllm import judge
from infer_doctor.trtllm.folder import TrtEngine
from infer_doctor.trtllm.triton import TritonModel, whole
from infer_doctor.units import plural


def engines(repository: TritonRepository) -> Iterator[tuple[TritonModel, TrtEngine]]:
    """The models that run TensorRT-LLM, with the engine that each names."""
    for model in repository.served:
        engine = repository.engines.get(model.name)
        if engine is not None:
            yield model, engine


@check("trt-triton-limits", severity="warning", category="trt_limits", since="0.3")
def limits_exceeded(repository: TritonRepository) -> Iterator[Finding]:
    """The repository asks for more than its engine was built for.

    ## Why it matters
    The server does not start ("Runtime configured max beam width (4) must not exceed engine max beam
    width (1)", "When KV cache block reuse is set, model has to be built with paged context FMHA
    support"), or a setting does nothing: requests beyond the engine's batch wait.

    ## How it decides
    config.pbtxt against build_config of the engine: max_batch_size and max_beam_width above the
    build's, max_tokens_in_paged_kv_cache below one sequence (max_seq_len), enable_kv_cache_reuse or
    enable_chunked_context without use_paged_context_fmha, in-flight batching with a continuous KV
    cache. What stops the start is an error. Reuse without paged context attention does so up to 0.16,
    chunked context up to 0.15 and a cache for less than one sequence up to 0.11; later releases turn
    the first two off and shorten the sequence, with a warning (release notes;
    trtGptModelInflightBatching.cpp and executorImpl.cpp). The engine's version counts, for it is the
    server's.

    ## Fix safety
    Manual: edit the repository or build again.
    """
    readable = [
        (model, engine)
        for model, engine in engines(repository)
        if engine.kind == "engine" and engine.form == "current"
    ]
    if not readable:
        raise Unavailable("the engine of the repository was not read")
    yield from judge.settled(_rows(readable))


def _rows(readable: list[tuple[TritonModel, TrtEngine]]) -> Iterator[Finding | str]:
    for model, engine in readable:
        yield from _against_build(model, engine)
        yield from engine.gaps


def _against_build(model: TritonModel, engine: TrtEngine) -> Iterator[Finding]:
    batch, built = model.batch, engine.limit("max_batch_size")
    if batch is not None and built is not None and batch > built:
        yield Finding(
            about=f"{model.name} max_batch_size",
            message=f"max_batch_size of {model.name} is {batch}, its engine was built for {built}: more "
            "do not run at once",
            evidence=(
                at(model, "max_batch_size", f"max_batch_size: {batch}"),
                judge.of_config(engine, f'"max_batch_size": {built}'),
            ),
            fixes=(
                edit_parameter(
                    model.path, model.line_of("max_batch_size"), "max_batch_size", str(built)
                ),
                rebuild(
                    engine, f"Or build again with --max_batch_size {batch}", max_batch_size=batch
                ),
            ),
        )
    beams, most = whole(model.parameter("max_beam_width")), engine.limit("max_beam_width")
    if beams is not None and most is not None and beams > most:
        yield Finding(
            about=f"{model.name} max_beam_width",
            severity="error",
            message=f"max_beam_width of {model.name} is {beams}, its engine was built for {most}",
            evidence=(
                at(model, "max_beam_width", f'string_value: "{beams}"'),
                judge.of_config(engine, f'"max_beam_width": {most}'),
            ),
            fixes=(
                edit_parameter(
                    model.path, model.line_of("max_beam_width"), "max_beam_width", str(most)
                ),
            ),
        )
    tokens, length = (
        whole(model.parameter("max_tokens_in_paged_kv_cache")),
        engine.limit("max_seq_len"),
    )
    if tokens is not None and length is not None and 0 < tokens < length:
        fitted = reaches(engine.version, WINDOW_FITTED_SINCE)
        yield Finding(
            about=f"{model.name} max_tokens_in_paged_kv_cache",
            severity=_severity(fitted),
            confidence="likely",
            category="trt_kv_memory",
            message=f"max_tokens_in_paged_kv_cache of {model.name} is {tokens:,}; one sequence of the "
            f"engine may have {length:,} tokens",
            evidence=(
                at(model, "max_tokens_in_paged_kv_cache", f'string_value: "{tokens}"'),
                judge.of_config(engine, f'"max_seq_len": {length}'),
            ),
            fixes=(
                edit_parameter(
                    model.path,
                    model.line_of("max_tokens_in_paged_kv_cache"),
                    "max_tokens_in_paged_kv_cache",
                    "nothing (kv_cache_free_gpu_mem_fraction then decides)",
                ),
            ),
        )
    paged = engine.plugin("use_paged_context_fmha") is True
    for name, since in (
        ("enable_kv_cache_reuse", REUSE_FITTED_SINCE),
        ("enable_chunked_context", CHUNKING_FITTED_SINCE),
    ):
        if model.parameter(name) in catalog.TRUE and not paged:
            fitted = reaches(engine.version, since)
            lost = ": it is turned off" if fitted else ""
            yield Finding(
                about=f"{model.name} {name}",
                severity=_severity(fitted),
                confidence="likely" if fitted is None else "certain",
                message=f"{name} is on, but the engine was built without use_paged_context_fmha{lost}",
                evidence=(
                    at(model, name, f"{name}: true"),
                    judge.of_config(engine, '"use_paged_context_fmha": false'),
                ),
                fixes=(
                    edit_parameter(model.path, model.line_of(name), name, "false"),
                    rebuild(
                        engine,
                        "Or build again with --use_paged_context_fmha enable",
                        use_paged_context_fmha=True,
                    ),
                ),
            )
    kind = model.parameter("gpt_model_type", "batching_strategy") or ""
    cache = engine.build.get("kv_cache_type")
    unpaged = isinstance(cache, str) and cache.upper() == "CONTINUOUS"
    if kind.startswith("inflight") and unpaged:
        yield Finding(
            about=f"{model.name} gpt_model_type",
            severity="error",
            message=f"gpt_model_type is {kind}, but the engine was built with kv_cache_type {cache}",
            evidence=(
                at(model, "gpt_model_type", f'string_value: "{kind}"'),
                judge.of_config(engine, f'"kv_cache_type": "{cache}"'),
            ),
            fixes=(rebuild(engine, "Build again with --kv_cache_type paged"),),
        )


def _severity(fitted: bool | None) -> Severity:
    """A warning where the release makes do with it."""
    return "warning" if fitted else "error"


@check("trt-triton-ranks", severity="error", category="trt_world_size_mpi", since="0.3")
def ranks_wrong(repository: TritonRepository, launch: Launch) -> Iterator[Finding]:
    """Triton is started with another number of ranks than its engine was built for.

    ## Why it matters
    "Assertion failed: mpiSize == tp * pp": the model is UNAVAILABLE.

    ## How it decides
    World size of the engine's config.json against mpirun -n or srun -n before tritonserver (all parts
    of `mpirun -n 1 tritonserver : -n 1 tritonserver`, as launch_triton_server.py writes it), or
    launch_triton_server.py --world_size (default 1). One tritonserver without mpirun starts the ranks
    itself only in orchestrator mode (TRTLLM_ORCHESTRATOR=1, since 0.10) or for one rank. Where mpirun
    does not say how many, nothing is decided. gpu_device_ids must be different ones below
    gpus_per_node of the engine, and not fewer than its ranks on one machine: rank N takes the Nth,
    counted round (worldConfig.cpp).

    ## Fix safety
    Manual.
    """
    found = list(engines(repository))
    if not found:
        raise Unavailable("the engine of the repository was not read")
    yield from judge.settled(_ranks_wrong(found, launch))


def _ranks_wrong(
    found: Iterable[tuple[TritonModel, TrtEngine]], launch: Launch
) -> Iterator[Finding | str]:
    bare = judge.is_bare(launch)
    for model, engine in found:
        world = engine.world_size
        if world is None:
            yield f"how many ranks the engine of {model.name} has is not known"
            continue
        ids = model.parameter("gpu_device_ids")
        why = None if ids is None else _ids_wrong(ids, engine, world)
        if why is not None:
            yield Finding(
                about=f"{model.name} gpu_device_ids",
                message=f"gpu_device_ids of {model.name} is {ids}: {why}",
                evidence=(
                    at(model, "gpu_device_ids", f'string_value: "{ids}"'),
                    judge.of_config(engine, f"world_size {world}"),
                ),
                fixes=(
                    edit_parameter(
                        model.path,
                        model.line_of("gpu_device_ids"),
                        "gpu_device_ids",
                        ",".join(map(str, range(min(world, _per_node(engine))))),
                    ),
                ),
            )
        if bare:
            continue
        found_ranks = _started(launch)
        if found_ranks is None:
            yield "how many ranks mpirun starts is not known"
            continue
        started, words = found_ranks
        if started == world or (started == 1 and _orchestrates(launch)):
            continue
        yield Finding(
            about=f"{model.name} ranks",
            message=f"{words} starts {plural(started, 'rank')}, the engine of {model.name} was built "
            f"for {world}",
            evidence=(
                Evidence(
                    source=launch.place.file,
                    line=launch.place.line,
                    excerpt=" ".join(launch.command)[:200],
                ),
                judge.of_config(engine, f"world_size {world}"),
            ),
            fixes=(
                advise(
                    "start-engine-ranks",
                    f"Start {plural(world, 'rank')}: launch_triton_server.py --world_size {world}, or "
                    f"mpirun -n {world} --allow-run-as-root tritonserver ...",
                    "or one server that starts them: TRTLLM_ORCHESTRATOR=1",
                ),
            ),
        )


def _ids_wrong(ids: str, engine: TrtEngine, world: int) -> str | None:
    """Of each instance, between semicolons; what is no list of numbers is left alone."""
    per_node = _per_node(engine)
    for part in ids.split(";"):
        numbers = [whole(text.strip()) for text in part.split(",") if text.strip()]
        known = [number for number in numbers if number is not None]
        if not known or len(known) != len(numbers):
            return None
        if len(set(known)) != len(known):
            return "a GPU is named twice"
        if max(known) >= per_node:
            return f"the engine was built for {per_node} GPUs of a machine, 0 to {per_node - 1}"
        if len(known) < min(world, per_node):
            return f"{plural(len(known), 'GPU')} for {plural(world, 'rank')} of the engine"
    return None


def _per_node(engine: TrtEngine) -> int:
    """gpus_per_node of the mapping; 8 where it is not written (mapping.py)."""
    mapping = engine.pretrained.get("mapping")
    value = mapping.get("gpus_per_node") if isinstance(mapping, Mapping) else None
    return value if type(value) is int and value > 0 else 8


def _started(launch: Launch) -> tuple[int, str] | None:
    """None where mpirun or srun stands there and does not say how many."""
    found = judge.ranks_started(launch)
    if found is not None or judge.has_starter(launch):
        return found
    words = [word.text for word in launch.words]
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in ("--world_size", "--world-size"):
            value = value if equals else (words[index + 1] if index + 1 < len(words) else "")
            if value.isdecimal():
                return int(value), f"--world_size {value}"
    return 1, f"{launch.entry} alone"


def _orchestrates(launch: Launch) -> bool:
    return any(
        row.name == "TRTLLM_ORCHESTRATOR" and row.value == "1" for row in launch.environment
    ) or any(word.text == "--multi-model" for word in launch.words)


@check("trt-triton-version", severity="error", category="trt_engine_mismatch", since="0.3")
def version_other(repository: TritonRepository, launch: Launch) -> Iterator[Finding]:
    """The Triton image has another TensorRT-LLM than the one that built the engine, or none.

    ## Why it matters
    The backend says "unable to find backend library" or "Failed to deserialize cuda engine"; the tag
    of the image does not tell which TensorRT-LLM is in it.

    ## How it decides
    nvcr.io/nvidia/tritonserver:YY.MM-trtllm-python-py3 against `version` of the engine's config.json,
    by NVIDIA's release compatibility matrix (24.05 to 25.12) and the backend's Dockerfiles (26.01 to
    26.07): first two numbers, and the TensorRT of patch releases. An image YY.MM-py3 or -vllm-python-py3 has no TensorRT-LLM.

    ## Fix safety
    Manual.
    """
    image = launch.container.image if launch.container is not None else None
    if image is None:
        raise NotApplicable("the launch names no image")
    tag = TRITON_IMAGE.search(image)
    if tag is None:
        raise NotApplicable(f"{image} is no Triton image of NVIDIA")
    assert launch.container is not None
    place = launch.container.image_place or launch.container.place
    said = Evidence(source=place.file, line=place.line, excerpt=f"image: {image}")
    if not tag[2].startswith("trtllm"):
        if repository.served:
            yield Finding(
                about="image",
                category="trt_backend_load",
                message=f"{image} has no TensorRT-LLM backend",
                evidence=(
                    said,
                    at(repository.served[0], "backend", 'backend: "tensorrtllm"'),
                ),
                fixes=(
                    advise(
                        "use-trtllm-image",
                        f"Use nvcr.io/nvidia/tritonserver:{tag[1]}-trtllm-python-py3",
                    ),
                ),
            )
        return
    runs = in_triton(tag[1])
    found = [(m, e) for m, e in engines(repository) if e.version is not None]
    if runs is None or not found:
        raise Unavailable(
            f"which TensorRT-LLM Triton {tag[1]} has is not in the catalogue"
            if runs is None
            else "the engine of the repository was not read"
        )
    yield from judge.settled(_versions_other(found, said, tag[1], runs))


def _versions_other(
    found: Iterable[tuple[TritonModel, TrtEngine]], said: Evidence, tag: str, runs: str
) -> Iterator[Finding | str]:
    for model, engine in found:
        built, wanted = numbers(engine.version), numbers(runs)
        if built is None or wanted is None:
            yield f"the version of the engine of {model.name} cannot be read"
            continue
        if built[:2] == wanted[:2]:
            rows = tensorrt_of(engine.version), tensorrt_of(runs)
            if engine.version == runs or (rows[0] and rows[1] and same_tensorrt(rows[0], rows[1])):
                continue
            if None in rows:
                yield (
                    f"whether TensorRT-LLM {engine.version} and {runs} of Triton {tag} have the same "
                    "TensorRT is not known"
                )
                continue
        cure = same_version(engine.version or "", triton=True)
        yield Finding(
            about=f"{model.name} version",
            message=f"the engine of {model.name} was built by TensorRT-LLM {engine.version}; Triton "
            f"{tag} has {runs}",
            evidence=(said, judge.of_config(engine, f'"version": "{engine.version}"')),
            fixes=judge.fixes(cure, rebuild(engine, f"Or build again with TensorRT-LLM {runs}")),
        )
