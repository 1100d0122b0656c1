"""Lines of trtllm-build against their checkpoint, and what engines compute in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infer_doctor.checks.trt_launch import whole
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.gpu import GpuCapabilities
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.facts.trt_engine import TrtEngine
from infer_doctor.facts.trt_release import TrtRelease
from infer_doctor.fixes.trtllm import advise, change, rebuild
from infer_doctor.launch.model import Launch
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.trtllm import judge

MODEL_FLAGS = ("--model_dir", "--model", "--model_path", "--checkpoint-dir")


@check("trt-build-lengths", severity="warning", category="trt_build_flags", since="0.3")
def build_lengths(launch: Launch, options: EngineOptions, release: TrtRelease) -> Iterator[Finding]:
    """The lengths of a build contradict each other.

    ## Why it matters
    The build takes one number for the other with a warning among hundreds of lines, and an hour later
    the engine refuses the prompts that it was made for, or takes more memory.

    ## How it decides
    In a trtllm-build line: max_input_len above max_seq_len ("clipping it to max_seq_len", builder.py of
    0.12 to 1.2), opt_num_tokens above max_num_tokens (lowered to it) and max_num_tokens below
    tokens_per_block (raised to it; plugin.py, check_max_num_tokens).

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
        raised = smaller == "tokens_per_block"
        taken = f"--{larger} becomes {low:,}" if raised else f"{high:,} is taken"
        yield Finding(
            about=f"{launch.name} {smaller}",
            message=f"--{smaller} {low:,} is more than --{larger} {high:,}: {taken}",
            evidence=judge.present(judge.given(options, smaller), judge.given(options, larger)),
            fixes=(
                change(launch, options, larger, f"--{larger}", low)
                if raised
                else change(launch, options, smaller, f"--{smaller}", high),
            ),
        )


@check("trt-checkpoint-kind", severity="error", category="trt_build_flags", since="0.3")
def checkpoint_kind(
    launch: Launch,
    options: EngineOptions,
    release: TrtRelease,
    engine: TrtEngine | None,
    files: ModelFiles | None,
) -> Iterator[Finding]:
    """trtllm-build gets no checkpoint of TensorRT-LLM: none at all, a Hugging Face model, or an engine.

    ## Why it matters
    Without --checkpoint_dir it ends with "AttributeError: 'NoneType' object has no attribute
    'lower'" (commands/build.py:495 of 0.14), with a Hugging Face folder or an engine with a KeyError.

    ## How it decides
    A trtllm-build line has neither --checkpoint_dir nor --model_config nor --build_config, or the
    folder that it names holds an engine, or a config.json with model_type or architectures and without
    `architecture`, which a checkpoint must have (PretrainedConfig.from_dict, modeling_utils.py).

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
            fixes=(cure,),
        )
    elif engine is None and files is not None and "model_cls_name" not in options.given:
        config = files.config or {}
        marks = [name for name in ("model_type", "architectures") if name in config]
        if not marks or "architecture" in config:
            return
        row = options.given["checkpoint_dir"]
        yield Finding(
            about=launch.name,
            message=f"{row.text} holds a Hugging Face model, no checkpoint of TensorRT-LLM",
            evidence=judge.present(
                judge.given(options, "checkpoint_dir"),
                Evidence(
                    source=files.path_of("config.json"),
                    excerpt=f"{marks[0]}: {config[marks[0]]}, no architecture"[:200],
                ),
            ),
            fixes=(cure,),
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
