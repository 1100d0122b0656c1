"""A repository of Triton against the engine that it serves."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog import triton as catalog
from infer_doctor.catalog.trtllm_releases import TRITON_IMAGE, in_triton, numbers
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
from infer_doctor.model import Evidence, Finding
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
    Requests are refused ("batch size exceeds", "Beam width 4 exceeds"), or the server does not start:
    "maxTokensInPagedKvCache must be large enough to process at least 1 sequence", "When KV cache
    block reuse is set, model has to be built with paged context FMHA support".

    ## How it decides
    config.pbtxt against build_config of the engine: max_batch_size and max_beam_width above the
    build's, max_tokens_in_paged_kv_cache below one sequence (max_seq_len), enable_kv_cache_reuse or
    enable_chunked_context without use_paged_context_fmha, in-flight batching without a paged KV cache.
    What stops the start is an error.

    ## Fix safety
    Manual: edit the repository or build again.
    """
    found = list(engines(repository))
    if not found and not repository.missing:
        raise Unavailable("the engine of the repository was not read")
    for model, engine in found:
        if engine.kind == "engine" and engine.form == "current":
            yield from _against_build(model, engine)


def _against_build(model: TritonModel, engine: TrtEngine) -> Iterator[Finding]:
    batch, built = model.batch, engine.limit("max_batch_size")
    if batch is not None and built is not None and batch > built:
        yield Finding(
            about=f"{model.name} max_batch_size",
            message=f"max_batch_size of {model.name} is {batch}, its engine was built for {built}",
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
        yield Finding(
            about=f"{model.name} max_tokens_in_paged_kv_cache",
            severity="error",
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
    for name in ("enable_kv_cache_reuse", "enable_chunked_context"):
        if model.parameter(name) in catalog.TRUE and not paged:
            yield Finding(
                about=f"{model.name} {name}",
                severity="error",
                message=f"{name} is on, but the engine was built without use_paged_context_fmha",
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
    unpaged = isinstance(cache, str) and cache.upper() in ("CONTINUOUS", "DISABLED")
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


@check("trt-triton-ranks", severity="error", category="trt_world_size_mpi", since="0.3")
def ranks_wrong(repository: TritonRepository, launch: Launch) -> Iterator[Finding]:
    """Triton is started with another number of ranks than its engine was built for.

    ## Why it matters
    "Assertion failed: mpiSize == tp * pp": the model is UNAVAILABLE.

    ## How it decides
    World size of the engine's config.json against mpirun -n or srun -n before tritonserver, or
    launch_triton_server.py --world_size (default 1). One tritonserver without mpirun starts the ranks
    itself only in orchestrator mode (TRTLLM_ORCHESTRATOR=1, since 0.10) or for one rank.
    gpu_device_ids must name as many GPUs.

    ## Fix safety
    Manual.
    """
    found = list(engines(repository))
    if not found:
        raise Unavailable("the engine of the repository was not read")
    bare = judge.is_bare(launch)
    for model, engine in found:
        world = engine.world_size
        if world is None:
            continue
        ids = model.parameter("gpu_device_ids")
        if ids is not None:
            count = len([part for part in ids.split(";")[0].split(",") if part.strip()])
            if count != world:
                yield Finding(
                    about=f"{model.name} gpu_device_ids",
                    message=f"gpu_device_ids of {model.name} names {plural(count, 'GPU')}, its engine "
                    f"was built for {plural(world, 'rank')}",
                    evidence=(
                        at(model, "gpu_device_ids", f'string_value: "{ids}"'),
                        judge.of_config(engine, f"world_size {world}"),
                    ),
                    fixes=(
                        edit_parameter(
                            model.path,
                            model.line_of("gpu_device_ids"),
                            "gpu_device_ids",
                            ",".join(map(str, range(world))),
                        ),
                    ),
                )
        if bare:
            continue
        started, words = _started(launch)
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


def _started(launch: Launch) -> tuple[int, str]:
    found = judge.ranks_started(launch)
    if found is not None:
        return found
    words = [word.text for word in launch.words]
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in ("--world_size", "--world-size"):
            value = value if equals else (words[index + 1] if index + 1 < len(words) else "")
            if value.isdigit():
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
    26.07), first two numbers. An image YY.MM-py3 or -vllm-python-py3 has no TensorRT-LLM.

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
    for model, engine in found:
        built, wanted = numbers(engine.version), numbers(runs)
        if built is None or wanted is None or built[:2] == wanted[:2]:
            continue
        cure = same_version(engine.version or "", triton=True)
        yield Finding(
            about=f"{model.name} version",
            message=f"the engine of {model.name} was built by TensorRT-LLM {engine.version}; Triton "
            f"{tag[1]} has {runs}",
            evidence=(said, judge.of_config(engine, f'"version": "{engine.version}"')),
            fixes=judge.fixes(cure, rebuild(engine, f"Or build again with TensorRT-LLM {runs}")),
        )
