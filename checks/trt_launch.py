"""What a launch of TensorRT-LLM asks of its engine, its model and its GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.gpu import GpuCapabilities, Gpus
from infer_doctor.facts.trt_engine import TrtEngine
from infer_doctor.facts.trt_release import TrtRelease
from infer_doctor.facts.visible import VisibleDevices
from infer_doctor.fixes.trtllm import advise, change, drop, rebuild
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch, Unknown
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.registry import check
from infer_doctor.trtllm import judge
from infer_doctor.units import plural

SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
OF_ENGINE = {
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "context_parallel_size": "cp_size",
}
FLAGS = {
    "tensor_parallel_size": "--tp_size",
    "pipeline_parallel_size": "--pp_size",
    "context_parallel_size": "--cp_size",
}
MODEL_FLAGS = ("--model_dir", "--model", "--model_path", "--checkpoint-dir")
LIMITS = ("max_batch_size", "max_seq_len", "max_input_len", "max_num_tokens", "max_beam_width")


def whole(options: EngineOptions, name: str) -> int | None:
    """A number that the launch gives; raises Unavailable where it is not in the file."""
    row = options.given.get(name)
    if row is None:
        return None
    if isinstance(row.value, Unknown):
        raise Unavailable(f"{name} is {row.value.text}, which the launch does not tell")
    return row.value if isinstance(row.value, int) and not isinstance(row.value, bool) else None


def asked(options: EngineOptions) -> int:
    """tp x pp x cp of the launch."""
    product = 1
    for name in SIZES:
        product *= whole(options, name) or 1
    return product


@check("trt-ranks-other", severity="error", category="trt_world_size_mpi", since="0.3")
def ranks_other(engine: TrtEngine, launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The launch starts another number of ranks than the engine was built for.

    ## Why it matters
    "MPI size 1 != TP size 2 * PP size 1", "tp_size 4 is not consistent with the engine's tp_size 2":
    how an engine is cut is fixed when it is built.

    ## How it decides
    mapping of config.json (tp_size, pp_size, cp_size) against the sizes that the launch gives, and
    against the ranks of mpirun -n or srun -n where they are more than one: LLM(...) and trtllm-serve
    start the ranks themselves when there is one. Sizes that are not given are taken from the engine.

    ## Fix safety
    Safe: the launch gets the engine's sizes.
    """
    if engine.kind != "engine" or launch.entry == "trtllm-build":
        raise NotApplicable("the launch loads no engine")
    world = engine.world_size
    if world is None:
        raise Unavailable(f"{engine.config_path} does not tell for how many ranks it is")
    said = judge.of_config(
        engine, ", ".join(f"{n} {engine.size(n) or 1}" for n in ("tp_size", "pp_size", "cp_size"))
    )
    wrong = False
    for name in SIZES:
        value, own = whole(options, name), engine.size(OF_ENGINE[name]) or 1
        if value is not None and value != own:
            wrong = True
            yield Finding(
                about=f"{engine.path} {name}",
                message=f"the launch asks for {options.given[name].flag} {value}, the engine was "
                f"built for {OF_ENGINE[name]} {own}",
                evidence=judge.present(judge.given(options, name), said),
                fixes=(change(launch, options, name, FLAGS[name], own),),
            )
    started = judge.ranks_started(launch)
    if started is not None and not wrong and started[0] not in (1, world):
        count, words = started
        yield Finding(
            about=f"{engine.path} ranks",
            message=f"{words} starts {plural(count, 'rank')}, the engine was built for {world}",
            evidence=(
                said,
                Evidence(
                    source=launch.place.file,
                    line=launch.place.line,
                    excerpt=" ".join(launch.command)[:200],
                ),
            ),
            fixes=(
                advise(
                    "start-engine-ranks",
                    f"Start {plural(world, 'rank')}: {words.split()[0]} -n {world} "
                    "--allow-run-as-root ...",
                ),
            ),
        )


@check("trt-gpus-few", severity="error", category="trt_world_size_mpi", since="0.3")
def gpus_few(
    launch: Launch,
    options: EngineOptions,
    release: TrtRelease,
    gpus: Gpus | None,
    engine: TrtEngine | None,
    visible: VisibleDevices | None,
) -> Iterator[Finding]:
    """The launch has more ranks than there are GPUs.

    ## Why it matters
    TensorRT-LLM stops with "Only N GPUs are available, but M are required", the C++ side with
    "Detect N GPUs, the GPU number is incompatible with M gpusPerNode", after minutes with MPI.

    ## How it decides
    Ranks: those of the engine, else tp x pp x cp of the launch. GPUs: what CUDA_VISIBLE_DEVICES
    leaves of those that the driver offers, of the machine that runs the launch. With srun -N or a
    hostfile other machines have some of them: nothing is judged.

    ## Fix safety
    Manual for an engine, which must be built anew; safe for a model.
    """
    judge.require_trtllm(options)
    if launch.entry == "trtllm-build":
        raise NotApplicable("building takes one GPU at a time")
    built = engine.world_size if engine is not None and engine.kind == "engine" else None
    ranks = built or asked(options)
    if ranks <= 1:
        raise NotApplicable("one rank: gpu-none judges whether there is a GPU")
    if judge.spans_machines(launch):
        raise Unavailable("other machines have some of the GPUs")
    if gpus is None:
        raise Unavailable("the GPUs of the machine that will run it are not known")
    count = len(gpus.gpus) if visible is None else len(visible.entries)
    if count == 0 or count >= ranks:
        return
    said: tuple[Evidence, ...] = judge.present(
        judge.of_config(engine, f"world_size {ranks}") if built and engine else None,
        judge.given(options, SIZES[0]),
        judge.given(options, SIZES[1]),
        Evidence(source=gpus.source, excerpt=plural(len(gpus.gpus), "GPU")),
    )
    cure: Fix
    if built and engine is not None:
        cure = rebuild(
            engine,
            f"Convert the checkpoint with --tp_size {count} and build again, or use {ranks} GPUs",
        )
    else:
        cure = change(launch, options, SIZES[0], FLAGS[SIZES[0]], count)
    yield Finding(
        about=launch.name,
        message=f"{plural(ranks, 'rank')} want {ranks} GPUs, {count} "
        f"{'is' if count == 1 else 'are'} there",
        evidence=said,
        fixes=(cure,),
    )


@check("trt-limits-exceeded", severity="warning", category="trt_limits", since="0.3")
def limits_exceeded(engine: TrtEngine, launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The launch asks for more than the engine was built for.

    ## Why it matters
    Limits are fixed when an engine is built: requests beyond them are refused ("The sum of prompt
    length and max_tokens should not exceed max_seq_len", "maxBeamWidth"), or the server does not
    start, and larger numbers in the launch change nothing.

    ## How it decides
    max_batch_size, max_seq_len, max_input_len, max_num_tokens and max_beam_width that the launch gives
    against build_config of config.json. Beams beyond the build are an error, the others a warning:
    the engine takes the smaller number.

    ## Fix safety
    Safe: the launch gets the engine's number. Larger ones need a new build.
    """
    if engine.kind != "engine" or launch.entry == "trtllm-build":
        raise NotApplicable("the launch loads no engine")
    for name in LIMITS:
        value, built = whole(options, name), engine.limit(name)
        if value is None or built is None or value <= built:
            continue
        yield Finding(
            about=f"{engine.path} {name}",
            severity="error" if name == "max_beam_width" else "warning",
            message=f"the launch asks for {name} {value:,}, the engine was built for {built:,}",
            evidence=judge.present(
                judge.given(options, name), judge.of_config(engine, f'"{name}": {built}')
            ),
            fixes=(
                change(launch, options, name, f"--{name}", built),
                rebuild(
                    engine, f"Or build the engine again with --{name} {value}", **{name: value}
                ),
            ),
        )


@check("trt-prompt-limit", severity="warning", category="trt_limits", since="0.3")
def prompt_limit(
    launch: Launch, options: EngineOptions, release: TrtRelease, engine: TrtEngine | None
) -> Iterator[Finding]:
    """Prompts are limited by max_num_tokens, far below the length that the launch asks for.

    ## Why it matters
    Clients get HTTP 400, "The sum of prompt length and query length should not exceed
    max_num_tokens", for prompts that max_seq_len allows: the length looks right and is not.

    ## How it decides
    Without chunked prefill a prompt must fit into one batch: max_num_tokens is its limit (1.0 to
    1.3.0rc29, _torch/pyexecutor; "maxInputLen = min(maxSequenceLen - 1, maxNumTokens)" of engines
    since 0.12). Told where the launch itself writes max_seq_len or max_input_len above its
    max_num_tokens (default 8192) and does not enable chunked prefill; for an engine, which has its
    build's numbers, where it was built so and has no paged context attention.

    ## Fix safety
    Safe.
    """
    judge.require_trtllm(options)
    if engine is not None and engine.kind == "engine":
        yield from _built_limit(engine)
        return
    chunked = options.get("enable_chunked_prefill")
    if isinstance(chunked, Unknown):
        raise Unavailable(f"enable_chunked_prefill is {chunked.text}")
    if chunked is True or launch.entry not in ("trtllm-serve", "LLM", "trtllm-bench"):
        return
    length, batch = whole(options, "max_seq_len"), whole(options, "max_num_tokens")
    prompt = whole(options, "max_input_len")
    wanted = prompt if prompt is not None else length
    if release.era in ("engine", "engine-first") or wanted is None:
        return
    most = batch if batch is not None else int(options.get("max_num_tokens", 8192))
    if wanted <= most:
        return
    name = "max_input_len" if prompt is not None else "max_seq_len"
    shown = "" if batch is not None else " (the default)"
    yield Finding(
        about=launch.name,
        message=f"{name} is {wanted:,}, but without chunked prefill a prompt may have at most "
        f"max_num_tokens = {most:,} tokens{shown}",
        evidence=judge.present(judge.given(options, name), judge.given(options, "max_num_tokens")),
        fixes=(
            _chunked(launch, options),
            change(launch, options, "max_num_tokens", "--max_num_tokens", wanted),
        ),
    )


def _chunked(launch: Launch, options: EngineOptions) -> Fix:
    title = "Start with --enable_chunked_prefill"
    if launch.kind in ("python", "config"):
        return change(
            launch,
            options,
            "enable_chunked_prefill",
            "enable_chunked_prefill",
            True,
            "Set enable_chunked_prefill: true",
        )
    return change(
        launch, options, "enable_chunked_prefill", "--enable_chunked_prefill", None, title
    )


def _built_limit(engine: TrtEngine) -> Iterator[Finding]:
    length, batch = engine.limit("max_input_len"), engine.limit("max_num_tokens")
    padded = engine.plugin("remove_input_padding") is False
    if length is None or batch is None or padded or length <= batch:
        return
    if engine.plugin("use_paged_context_fmha") is True:
        return  # chunked context splits the prompt
    yield Finding(
        about=engine.path,
        message=f"the engine was built for max_input_len {length:,}, but with max_num_tokens "
        f"{batch:,} and without paged context attention a prompt may have {batch:,} tokens",
        evidence=(
            judge.of_config(engine, f'"max_input_len": {length}, "max_num_tokens": {batch}'),
        ),
        fixes=(
            rebuild(
                engine,
                f"Build the engine again with --max_num_tokens {length} or "
                "--use_paged_context_fmha enable",
                use_paged_context_fmha=True,
            ),
        ),
    )


@check("trt-build-lengths", severity="error", category="trt_build_flags", since="0.3")
def build_lengths(launch: Launch, options: EngineOptions, release: TrtRelease) -> Iterator[Finding]:
    """The lengths of a build contradict each other.

    ## Why it matters
    The build takes an hour and ends with an assertion, or with an engine that refuses the prompts it
    was made for.

    ## How it decides
    In a trtllm-build line: max_input_len above max_seq_len (builder.py of 0.12 to 1.2 asserts the
    contrary), opt_num_tokens above max_num_tokens, max_num_tokens below tokens_per_block.

    ## Fix safety
    Safe: one number of the line.
    """
    judge.require_trtllm(options)
    if launch.entry != "trtllm-build":
        raise NotApplicable("the launch builds nothing")
    for smaller, larger in (
        ("max_input_len", "max_seq_len"),
        ("opt_num_tokens", "max_num_tokens"),
        ("tokens_per_block", "max_num_tokens"),
    ):
        low = whole(options, smaller)
        high = whole(options, larger)
        if low is None or high is None or low <= high:
            continue
        yield Finding(
            about=f"{launch.name} {smaller}",
            message=f"--{smaller} {low:,} is more than --{larger} {high:,}",
            evidence=judge.present(judge.given(options, smaller), judge.given(options, larger)),
            fixes=(change(launch, options, smaller, f"--{smaller}", high),),
        )


@check("trt-checkpoint-kind", severity="error", category="trt_build_flags", since="0.3")
def checkpoint_kind(
    launch: Launch, options: EngineOptions, release: TrtRelease, engine: TrtEngine | None
) -> Iterator[Finding]:
    """trtllm-build gets no checkpoint of TensorRT-LLM: none at all, or an engine.

    ## Why it matters
    Without --checkpoint_dir it ends with "AttributeError: 'NoneType' object has no attribute
    'lower'" (commands/build.py:495 of 0.14), with a Hugging Face folder or an engine with a KeyError.

    ## How it decides
    A trtllm-build line has neither --checkpoint_dir nor --model_config nor --build_config, or the
    folder that it names holds an engine.

    ## Fix safety
    Manual: convert the model first.
    """
    judge.require_trtllm(options)
    if launch.entry != "trtllm-build":
        raise NotApplicable("the launch builds nothing")
    if any(name in options.given for name in ("model_config", "build_config")) or options.gaps:
        return
    if any(problem.flag in MODEL_FLAGS for problem in options.problems):
        return  # trt-argument-unknown says it
    steps = (
        "convert_checkpoint.py --model_dir HF --output_dir CKPT --tp_size N",
        "trtllm-build --checkpoint_dir CKPT --output_dir ENGINE --gemm_plugin auto",
    )
    cure = advise(
        "convert-first",
        "Convert the model first (quantize.py for FP8, else convert_checkpoint.py), then build",
        commands=steps,
    )
    if "checkpoint_dir" not in options.given:
        if any(row.flag == "--help" for row in options.given.values()):
            return
        words: Any = " ".join(launch.command)[:200]
        yield Finding(
            about=launch.name,
            message="trtllm-build gets no --checkpoint_dir: it builds nothing",
            evidence=(Evidence(source=launch.place.file, line=launch.place.line, excerpt=words),),
            fixes=(cure,),
        )
    elif engine is not None and engine.kind == "engine":
        row = options.given["checkpoint_dir"]
        yield Finding(
            about=launch.name,
            message=f"{row.text} holds an engine, no checkpoint",
            evidence=judge.present(
                judge.given(options, "checkpoint_dir"), judge.of_config(engine, "build_config")
            ),
            fixes=(cure, drop(launch, row)),
        )


@check("trt-dtype-unsupported", severity="error", category="dtype_bf16", since="0.3")
def dtype_unsupported(engine: TrtEngine, capabilities: GpuCapabilities) -> Iterator[Finding]:
    """The engine or checkpoint computes in bfloat16, which the GPU does not have.

    ## Why it matters
    "Pre SM 80 GPUs do not support bfloat16" when it is built, no kernel when it runs.

    ## How it decides
    `dtype` of config.json (pretrained_config) is bfloat16 and a GPU has a compute capability below
    8.0 (hlapi/llm_utils.py:372 of 0.14).

    ## Fix safety
    Manual: convert with --dtype float16 and build again.
    """
    if engine.dtype != "bfloat16":
        return
    for index, found in sorted(capabilities.capabilities.items()):
        if found < (8, 0):
            yield Finding(
                about=f"{engine.path} dtype",
                message=f"{engine.path} computes in bfloat16; GPU {index} has compute capability "
                f"{found[0]}.{found[1]}, bfloat16 needs 8.0",
                evidence=(
                    judge.of_config(engine, '"dtype": "bfloat16"'),
                    Evidence(source=capabilities.source, excerpt=f"{found[0]}.{found[1]}"),
                ),
                fixes=(rebuild(engine, "Convert with --dtype float16 and build again"),),
            )
            return
