"""A model repository of Triton with the TensorRT-LLM backend."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infer_doctor.catalog import triton as catalog
from infer_doctor.facts.triton import TritonRepository
from infer_doctor.fixes.trtllm import (
    advise,
    edit_parameter,
    fill_template,
)
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.trtllm.triton import TritonModel, share, whole

FIRST = 6
"""Placeholders that are named; the others are counted."""


def at(model: TritonModel, name: str, excerpt: str) -> Evidence:
    """A line of a config.pbtxt."""
    return Evidence(source=model.path, line=model.line_of(name), excerpt=excerpt)


@check("trt-triton-config-broken", severity="error", category="trt_backend_load", since="0.3")
def config_broken(repository: TritonRepository) -> Iterator[Finding]:
    """A config.pbtxt cannot be read, or a model lacks a part that Triton needs.

    ## Why it matters
    Triton loads none of the ensemble's models then and exits: "failed to load all models".

    ## How it decides
    The text form of protocol buffers is read as its specification says. A model needs a folder with a
    number as its version (for an ensemble an empty one is enough), and a `name` that is the folder's,
    if it has one. A python model needs model.py in it.

    ## Fix safety
    Manual.
    """
    for model in repository.models:
        if model.broken is not None:
            line, _, why = model.broken.partition(": ")
            number = whole(line)
            yield Finding(
                about=f"{model.name} config.pbtxt",
                message=f"{model.path}{f':{number}' if number else ''} cannot be read: "
                f"{why or model.broken}",
                evidence=(Evidence(source=model.path, line=number, excerpt=why or model.broken),),
            )
            continue
        if "config.pbtxt" not in model.files:
            continue
        if model.own_name not in (None, "", model.name) and "${" not in (model.own_name or ""):
            yield Finding(
                about=f"{model.name} name",
                message=f"the folder {model.name} holds a model with the name {model.own_name}: Triton "
                "wants them to be the same",
                evidence=(at(model, "name", f'name: "{model.own_name}"'),),
                fixes=(edit_parameter(model.path, model.line_of("name"), "name", model.name),),
            )
        if not model.versions:
            folder = model.path.rpartition("/")[0]
            yield Finding(
                about=f"{model.name} version",
                message=f"{folder} has no version folder: Triton finds no model in it",
                evidence=(Evidence(source=folder, excerpt=", ".join(model.files)[:200]),),
                fixes=(
                    advise(
                        "make-version-folder",
                        f"Make {folder}/1",
                        commands=(f"mkdir -p {folder}/1",),
                    ),
                ),
            )
        elif model.is_python and not any("model.py" in names for names in model.versions.values()):
            newest = max(model.versions, key=int)
            folder = model.path.rpartition("/")[0]
            yield Finding(
                about=f"{model.name} model.py",
                confidence="likely",
                message=f"{folder}/{newest} has no model.py, but the backend is python",
                evidence=(at(model, "backend", 'backend: "python"'),),
                fixes=(
                    advise(
                        "copy-model-py",
                        "Copy the folder of the backend's all_models/inflight_batcher_llm again",
                    ),
                ),
            )


@check("trt-triton-template", severity="error", category="trt_backend_load", since="0.3")
def template_unfilled(repository: TritonRepository) -> Iterator[Finding]:
    """A config.pbtxt is still the template: `${...}` was not replaced.

    ## Why it matters
    "Error parsing text-format: Expected integer, got: $", "unable to find backend library for backend
    '${triton_backend}'", or an engine that is looked for in a folder called ${engine_dir}.

    ## How it decides
    `${name}` outside of comments where a number, a name or a needed parameter stands: max_batch_size,
    backend, decoupled, instance counts, queue delay, gpt_model_path, gpt_model_type. Parameters that
    may be left alone, for the backend takes its default then (docs/model_config.md), are not told.

    ## Fix safety
    Manual: NVIDIA's tools/fill_template.py, with your values.
    """
    for model in repository.models:
        left: list[tuple[str, int]] = []
        free = {row.line for name, row in model.parameters.items() if name not in catalog.NEEDED}
        if not model.served_by_trtllm:
            free -= {row.line for n, row in model.parameters.items() if n == "tokenizer_dir"}
        left = [(name, line) for name, line in model.placeholders if line not in free]
        if not left:
            continue
        names = list(dict.fromkeys(name for name, _ in left))
        more = f" and {len(names) - FIRST} more" if len(names) > FIRST else ""
        yield Finding(
            about=f"{model.name} template",
            message=f"{model.path} still has {', '.join(names[:FIRST])}{more} of the template",
            evidence=tuple(
                Evidence(source=model.path, line=line, excerpt=name) for name, line in left[:FIRST]
            ),
            fixes=(fill_template(model.path, {name[2:-1]: "VALUE" for name in names}),),
        )


@check("trt-triton-path", severity="error", category="trt_backend_load", since="0.3")
def path_wrong(repository: TritonRepository) -> Iterator[Finding]:
    """A folder that the repository names is not there, or holds no engine.

    ## Why it matters
    "Error opening engine file", "File does not exist: .../config.json": the tensorrt_llm model is
    UNAVAILABLE and everything that needs it too.

    ## How it decides
    gpt_model_path of each model with the backend tensorrtllm, and tokenizer_dir where it is an
    absolute path, as the server will see them (through the mounts of a container).

    ## Fix safety
    Manual.
    """
    for model in repository.served:
        named = repository.missing.get(model.name)
        if named is not None:
            yield Finding(
                about=f"{model.name} gpt_model_path",
                message=f"gpt_model_path of {model.name} is {named}: no engine folder is there",
                evidence=(at(model, "gpt_model_path", f'string_value: "{named}"'),),
                fixes=(
                    edit_parameter(
                        model.path,
                        model.line_of("gpt_model_path"),
                        "gpt_model_path",
                        "the folder that trtllm-build wrote",
                    ),
                ),
            )
    for model in repository.models:
        if repository.tokenizers.get(model.name) is False:
            folder = model.parameter("tokenizer_dir") or ""
            yield Finding(
                about=f"{model.name} tokenizer_dir",
                category="tokenizer",
                message=f"tokenizer_dir of {model.name} is {folder}: it is not there",
                evidence=(at(model, "tokenizer_dir", f'string_value: "{folder}"'),),
                fixes=(
                    edit_parameter(
                        model.path,
                        model.line_of("tokenizer_dir"),
                        "tokenizer_dir",
                        "the folder of the Hugging Face model",
                    ),
                ),
            )


@check("trt-triton-parameter", severity="warning", category="trt_backend_load", since="0.3")
def parameter_wrong(repository: TritonRepository) -> Iterator[Finding]:
    """A parameter has a value that the backend does not take.

    ## Why it matters
    "Invalid gpt_model_type" or a share of memory that is none end the start; other values are ignored
    with a warning that nobody reads, and the default counts.

    ## How it decides
    Choices, shares, whole numbers and switches as docs/model_config.md of the backend names them. What
    cannot be read is a warning: the backend takes its default (model_instance_state.cc). Errors are a
    gpt_model_type that it does not know, and kv_cache_free_gpu_mem_fraction or
    cross_kv_cache_fraction that are not above 0 and below 1 (executor/kvCacheConfig.cpp). An empty
    value, "None" and `${...}` leave the default.

    ## Fix safety
    Manual.
    """
    for model in repository.served:
        for name, row in model.parameters.items():
            value = model.parameter(name)
            if value is None or value.lower() in ("none", ""):
                continue
            why = _wrong(name, value)
            if why is None:
                continue
            refused = name in catalog.REFUSED or share(value) is not None
            lost = "" if refused else "; the backend ignores it"
            yield Finding(
                about=f"{model.name} {name}",
                severity="error" if refused else None,
                message=f"{name} of {model.name} is {value}: {why}{lost}",
                evidence=(
                    Evidence(source=model.path, line=row.line, excerpt=f'string_value: "{value}"'),
                ),
                fixes=(edit_parameter(model.path, row.line, name, _right(name)),),
            )


def _wrong(name: str, value: str) -> str | None:
    choices = catalog.CHOICES.get(name)
    if choices and value not in choices:
        return f"it takes {', '.join(choices)}"
    if name in catalog.SHARES:
        part = share(value)
        if part is None or not 0 < part < 1:
            return "it takes a share above 0 and below 1"
    if name in catalog.WHOLE and re.match(r"\s*[-+]?\d", value) is None:
        return "it takes a whole number"
    if name in catalog.SWITCHES and value not in (*catalog.TRUE, *catalog.FALSE):
        return "it takes true or false"
    return None


def _right(name: str) -> str:
    if name in catalog.SHARES:
        return "0.9"
    choices = catalog.CHOICES.get(name)
    return choices[-1] if choices else "a value of that kind"
