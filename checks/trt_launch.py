"""What a launch of TensorRT-LLM asks of its engine, its model and its GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.trtllm_releases import RUNTIME_LIMITS, reaches
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.gpu import Gpus
from infer_doctor.facts.trt_engine import TrtEngine
from infer_doctor.facts.trt_release import TrtRelease
from infer_doctor.facts.visible import VisibleDevices
from infer_doctor.fixes.trtllm import advise, change, rebuild
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch, Unknown
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.registry import check
from infer_doctor.trtllm import judge
from infer_doctor.trtllm.folder import LIMITS
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
RUNTIME = ("max_batch_size", "max_num_tokens")

WITH_ANSWER = 2
"""max_seq_len counts prompt and answer: NVIDIA's own recipes write 9,256 over 8,448 for prompts of 8,192
tokens (examples/configs), so only what is more than twice the batch is told."""


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
    if started is None and not wrong and judge.has_starter(launch):
        raise Unavailable("how many ranks mpirun starts is not known")
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
def limits_exceeded(
    engine: TrtEngine, launch: Launch, options: EngineOptions, release: TrtRelease
) -> Iterator[Finding]:
    """The launch asks for more than the engine was built for.

    ## Why it matters
    Limits are fixed when an engine is built. "max_batch_size [2048] is greater than
    build_config.max_batch_size [64]" ends the start, also where nobody wrote 2048; other larger numbers
    change nothing, or requests beyond the build are refused ("maxBeamWidth").

    ## How it decides
    max_batch_size, max_seq_len, max_input_len, max_num_tokens and max_beam_width that the launch gives
    against build_config of config.json. The first and max_num_tokens end the start of trtllm-serve from
    0.20 to 1.2, whose defaults count too, and of LLM(...) from 0.20 on (llm_args.py,
    validate_build_config_with_runtime_params); beams beyond the build do (C++:
    "Runtime configured max beam width"). The others are a warning: the engine's number counts. Where
    the version or backend is not known and a default is larger, nothing is decided.

    ## Fix safety
    Safe: the launch gets the engine's number. Larger ones need a new build.
    """
    if engine.kind != "engine" or launch.entry == "trtllm-build":
        raise NotApplicable("the launch loads no engine")
    yield from judge.settled(_limits_exceeded(engine, launch, options, release))


def _limits_exceeded(
    engine: TrtEngine, launch: Launch, options: EngineOptions, release: TrtRelease
) -> Iterator[Finding | str]:
    first, gone = RUNTIME_LIMITS
    late, after = reaches(release.version, first), reaches(release.version, gone)
    serves = launch.entry in ("trtllm-serve", "LLM") and not judge.is_bare(launch)
    backend = judge.backend_of(launch, options, release)
    checked = serves and backend == "tensorrt" and late is True and after is not True
    open_question = serves and backend in (None, "tensorrt") and late is not False
    for name in LIMITS:
        try:
            value, built = whole(options, name), engine.limit(name)
        except Unavailable as error:
            yield error.reason
            continue
        refused = checked and name in RUNTIME
        by_default = value is None and refused and after is False and launch.entry == "trtllm-serve"
        if by_default:
            value = options.defaults.get(name)
        elif value is None and name in RUNTIME and open_question and after is not True:
            default = options.defaults.get(name)
            if built is not None and isinstance(default, int) and default > built:
                yield (
                    f"whether this trtllm-serve asks an engine built for {name} {built} for {default} "
                    "is not known: up to 1.2 it does where no flag is given"
                )
        if value is None or built is None or value <= built:
            continue
        asks = "trtllm-serve takes" if by_default else "the launch asks for"
        unless = " where none is given" if by_default else ""
        ends = ": it ends at the start" if refused else ""
        beams = name == "max_beam_width"
        yield Finding(
            about=f"{engine.path} {name}",
            severity="error" if refused or beams else "warning",
            confidence="likely" if refused and after is None else "certain",
            message=f"{asks} {name} {value:,}{unless}, the engine was built for {built:,}{ends}",
            evidence=judge.present(
                judge.given(options, name),
                judge.of_config(engine, f'"{name}": {built}'),
                judge.of_release(release) if refused else None,
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
    since 0.12). Told where the launch itself writes max_input_len above its max_num_tokens (default
    8192), or max_seq_len, which has the answer in it, above twice that, and does not enable chunked
    prefill; for an engine, which has its
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
    if unread := next((gap for gap in launch.gaps if "configuration file" in gap), None):
        raise Unavailable(unread)  # it counts more than the command line
    if chunked is True or launch.entry not in ("trtllm-serve", "LLM", "trtllm-bench"):
        return
    length, batch = whole(options, "max_seq_len"), whole(options, "max_num_tokens")
    prompt = whole(options, "max_input_len")
    wanted = prompt if prompt is not None else length
    if release.era in ("engine", "engine-first") or wanted is None:
        return
    most = batch if batch is not None else int(options.get("max_num_tokens", 8192))
    if wanted <= most * (1 if prompt is not None else WITH_ANSWER):
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
