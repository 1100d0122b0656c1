"""Fixes for engines, servers and repositories of TensorRT-LLM."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from infer_doctor.catalog.trtllm_releases import in_triton, numbers, release_of
from infer_doctor.facts.engine_options import EngineOptions, Option
from infer_doctor.fixes.launching import set_option
from infer_doctor.launch.model import Launch, Place
from infer_doctor.model import Action, AnyAction, Fix
from infer_doctor.trtllm.folder import TrtEngine

LIMITS = (
    "max_batch_size",
    "max_input_len",
    "max_seq_len",
    "max_num_tokens",
    "max_beam_width",
    "max_prompt_embedding_table_size",
    "max_draft_len",
)
BUILD_DEFAULTS = {"max_beam_width": 1, "max_prompt_embedding_table_size": 0, "max_draft_len": 0}
SWITCHES = ("use_paged_context_fmha", "use_fp8_context_fmha", "multiple_profiles", "reduce_fusion")
PLUGINS = ("gemm_plugin", "gpt_attention_plugin", "lora_plugin", "moe_plugin")


def rebuild_command(engine: TrtEngine, **changed: Any) -> str:
    """trtllm-build with what this engine's config.json says, some of it changed.

    The checkpoint is not named in an engine: CKPT stands for it.
    """
    words = ["trtllm-build", "--checkpoint_dir", "CKPT", "--output_dir", engine.path]
    for name in LIMITS:
        value = changed.get(name, engine.limit(name))
        if value is not None and value != BUILD_DEFAULTS.get(name):
            words += [f"--{name}", str(value)]
    for name in PLUGINS:
        value = engine.plugin(name)
        if isinstance(value, str) and value not in ("disable", "auto"):
            words += [f"--{name}", value]
    for name in SWITCHES:
        value = changed.get(name, engine.plugin(name))
        if value is True:
            words += [f"--{name}", "enable"]
    world = engine.world_size
    if world is not None and world > 1:
        words += ["--workers", str(world)]
    return shlex.join(words)


def rebuild(engine: TrtEngine, title: str, *texts: str, **changed: Any) -> Fix:
    """Build the engine again; where its checkpoint lies nobody can read off it."""
    return Fix(
        id="rebuild-engine",
        title=title,
        safety="manual",
        restarts=True,
        why="building takes minutes on the GPU it is for, and the checkpoint is not in the engine",
        actions=(
            Action(kind="command", text=rebuild_command(engine, **changed)),
            *(Action(kind="text", text=text) for text in texts),
        ),
    )


def fixes_of_ranks(engine: TrtEngine, world: int) -> tuple[Fix, ...]:
    """Get the files again: from where they came, or by building them."""
    ending = "engine" if engine.kind == "engine" else "safetensors"
    return (
        Fix(
            id="copy-rank-files",
            title=f"Copy rank0 to rank{world - 1}.{ending} of {engine.path} again, or build it again",
            safety="manual",
            restarts=True,
            actions=(
                Action(kind="command", text=f"ls -l {shlex.quote(engine.path)}"),
                *(
                    (Action(kind="command", text=rebuild_command(engine)),)
                    if engine.kind == "engine" and engine.form != "none"
                    else ()
                ),
            ),
        ),
    )


def image_for(version: str) -> str | None:
    """The image that brings a version; Triton's before 0.20. None for one between releases."""
    wanted = numbers(version)
    if wanted is None or "dev" in version:
        return None
    return (
        f"nvcr.io/nvidia/tensorrt-llm/release:{version}" if wanted >= (0, 20) else _triton(version)
    )


def _triton(version: str) -> str | None:
    """Triton's image that holds just this version."""
    row = release_of(version)
    tag = next((tag for tag in row.triton if in_triton(tag) == version), None) if row else None
    return f"nvcr.io/nvidia/tritonserver:{tag}-trtllm-python-py3" if tag else None


def same_version(version: str, *, triton: bool = False) -> Fix | None:
    """Serve with the image that built it."""
    image = _triton(version) if triton else image_for(version)
    if image is None:
        return None
    return Fix(
        id="serve-with-builder-image",
        title=f"Or serve it with the version that built it: {image}",
        safety="manual",
        restarts=True,
        actions=(Action(kind="text", text=f"image: {image}"),),
    )


def serve_checkpoint() -> Fix:
    """What the newest era has instead of engines."""
    return Fix(
        id="serve-checkpoint",
        title="Serve the Hugging Face or ModelOpt checkpoint itself: no engine is built any more",
        safety="manual",
        restarts=True,
        actions=(
            Action(kind="command", text="trtllm-serve MODEL_FOLDER_OR_ID --tp_size N"),
            Action(kind="text", text="or stay on TensorRT-LLM 1.2.1, the last stable with engines"),
        ),
    )


def change(
    launch: Launch,
    options: EngineOptions,
    field: str,
    flag: str,
    value: Any,
    title: str | None = None,
    *,
    why: str | None = None,
) -> Fix:
    """Give an option another value."""
    row: Option | None = options.given.get(field)
    written = row.flag if row is not None else flag
    shown = f"{written} {value}" if written.startswith("-") else f"{written}: {value}"
    return Fix(
        id=f"set-{slug(field)}",
        title=title or f"Start with {shown}",
        safety="safe",
        restarts=True,
        why=why,
        actions=_actions(launch, written, value, row),
    )


def _actions(launch: Launch, written: str, value: Any, row: Option | None) -> tuple[AnyAction, ...]:
    """An edit; a key inside a section of Python cannot be reached by one."""
    if "." in written and not written.startswith("-") and launch.kind == "python":
        return (Action(kind="text", text=f"write {written} = {value!r}"),)
    return set_option(launch, written, value, row)


def advise(id: str, title: str, *texts: str, commands: tuple[str, ...] = ()) -> Fix:
    """What only a person can do."""
    return Fix(
        id=id,
        title=title,
        safety="manual",
        restarts=True,
        actions=(
            *(Action(kind="command", text=text) for text in commands),
            *(Action(kind="text", text=text) for text in texts),
        ),
    )


def fill_template(path: str, values: Mapping[str, str]) -> Fix:
    """NVIDIA's own way to put values into config.pbtxt."""
    pairs = ",".join(f"{name}:{value}" for name, value in values.items())
    return Fix(
        id="fill-template",
        title=f"Fill the template of {path}",
        safety="manual",
        restarts=True,
        actions=(Action(kind="command", text=f"python3 tools/fill_template.py -i {path} {pairs}"),),
    )


def edit_parameter(path: str, line: int | None, name: str, value: str) -> Fix:
    """A value of config.pbtxt."""
    at = Place(file=path, line=line)
    return Fix(
        id=f"set-{slug(name)}",
        title=f"Set {name} to {value} in {at.file}{f':{line}' if line else ''}",
        safety="manual",
        restarts=True,
        actions=(Action(kind="text", text=f'{name}: "{value}"'),),
    )


def slug(text: str) -> str:
    return text.lstrip("-").replace("_", "-").replace(".", "-").lower() or "value"
