"""Whether the engine can load this model as the launch asks: length, class, code, adapters, draft."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_config import ModelConfig, PublishedConfig, known_config
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.facts.model_support import ModelSupport
from infer_doctor.fixes.models import advise, change_option, drop_option
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import (
    evidence,
    flag,
    require_vllm,
    setting,
    value_of,
    version_of,
    word,
)
from infer_doctor.launch.model import Launch
from infer_doctor.launch.model_judge import confidence
from infer_doctor.launch.variables import of_engine
from infer_doctor.model import Evidence, Finding
from infer_doctor.models import config as read
from infer_doctor.models import hub
from infer_doctor.registry import check

LENGTH = "max_model_len"
TRUST = "trust_remote_code"
ALLOW = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"

YARN_AS_WRITTEN_SINCE = (0, 32)
"""Since about then max_position_embeddings counts for YaRN, not the original length times the factor;
seen with the real 0.32.0. Older versions may do either, so only what is above both is judged."""


@check("launch-context-too-long", severity="error", category="max_model_len", since="0.2")
def context_too_long(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
    environ: Environ | None,
) -> Iterator[Finding]:
    """The launch asks for a longer context than the model was made for.

    ## Why it matters
    vLLM stops with "User-specified max_model_len (131072) is greater than the derived max_model_len
    (max_position_embeddings=32768)". Allowed by VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 it starts, and
    positions beyond the limit give NaN, nonsense or a CUDA error.

    ## How it decides
    As vLLM derives the limit (config/model.py:2527-2662 of 0.32, compared with it on 54 configs in the
    tests): the smallest of max_position_embeddings and its other names, times the factor of linear
    and dynamic rope scaling. For llama3, longrope and, since about 0.32, YaRN the limit is what the
    config says; for older versions the original length times YaRN's factor counts when it is larger.
    `--hf-overrides` counts. "auto" and -1 never exceed. A model without any limit has none.

    ## Fix safety
    Safe: a shorter context in the launch. Longer ones need a model with rope scaling.
    """
    require_vllm(options)
    length = value_of(options, LENGTH)
    if length is None or length in ("auto", -1):
        raise NotApplicable("the engine takes the length from the model")
    if isinstance(length, bool) or not isinstance(length, int):
        raise Unavailable(f"{LENGTH} is {length!r}, no whole number")
    config = known_config(config, files, published)
    limit, key = read.longest(config.values)
    if limit is None:
        return
    version = version_of(options)
    if version is None or version < YARN_AS_WRITTEN_SINCE:
        limit = max(limit, read.scaled_before(config.values) or 0)
    own = config.values.get("model_max_length")
    if length <= limit or (isinstance(own, int) and length <= own):
        return
    allowed = hub.is_true_for_vllm(of_engine(launch, environ, ALLOW).get(ALLOW))
    yield Finding(
        about=LENGTH,
        confidence=confidence(config),
        severity="warning" if allowed else None,
        message=f"{setting(options, LENGTH, length)}, but the model goes up to {limit:,} tokens"
        f"{f'; {ALLOW} lets it start all the same' if allowed else ''}",
        evidence=(
            *evidence(options, LENGTH),
            config.evidence(key or "", "rope_scaling", "rope_parameters"),
        ),
        fixes=(change_option(launch, options, LENGTH, limit),),
    )


@check("launch-architecture-unknown", severity="error", category="model_files", since="0.2")
def architecture_unknown(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
    support: ModelSupport,
) -> Iterator[Finding]:
    """The engine has no implementation of this model.

    ## Why it matters
    vLLM stops with "Model architectures [...] are not supported for now", after reading its model
    list in a process of its own: 10 s and more.

    ## How it decides
    The names in `architectures` of config.json against the source of the installed vLLM
    (model_executor/models/registry.py), read without importing it; FooForSequenceClassification
    counts as known when FooForCausalLM is. Removed names and those moved to plugins stand there
    too. A name that only transformers has is tried with its implementation: no finding, except an
    info for a model that vLLM itself had before. Without an installed engine the catalogue of 0.32.0
    decides, for that version or newer: an unknown name is then no certain fault.

    ## Fix safety
    Manual: another version of the engine, a plugin, or another model.
    """
    require_vllm(options)
    if word(options, "model_impl") in ("transformers", "terratorch"):
        raise NotApplicable("another implementation is asked for")
    names = support.architectures
    if not names:  # vLLM goes by the model_type then, where its transformers maps it to a class
        raise Unavailable("config.json names no architectures")
    if support.known:
        return
    config = known_config(config, files, published)
    where = (
        config.evidence("architectures"),
        Evidence(source=support.source, excerpt=f"no {names[0]}"),
    )
    version = options.version or ""
    name = names[0]
    if support.in_transformers:
        if support.removed:
            last = support.removed.get(name, next(iter(support.removed.values())))
            yield Finding(
                about=name,
                severity="info",
                message=f"{name} was part of vLLM until {last}; {version} runs it with the "
                "implementation of transformers, if that is compatible",
                evidence=where,
            )
        return
    if name in support.removed:
        last = support.removed[name]
        yield Finding(
            about=name,
            confidence=confidence(config),
            message=f"{name} was part of vLLM until {last}; {version} has it no more",
            evidence=where,
            fixes=(
                advise(
                    "use-older-vllm",
                    f"Run this model with vLLM {last}",
                    commands=(f"pip install vllm=={last}",),
                ),
            ),
        )
        return
    if name in support.plugins:
        address = support.plugins[name]
        yield Finding(
            about=name,
            confidence="likely",
            message=f"{name} is no part of vLLM {version} but of a plugin ({address}); whether "
            "that is installed was not looked at",
            evidence=where,
            fixes=(advise("install-model-plugin", f"Install the plugin {address}"),),
        )
        return
    remote = isinstance(config.values.get("auto_map"), Mapping)
    if remote and any(key.startswith("AutoModel") for key in config.values["auto_map"]):
        yield Finding(
            about=name,
            severity="info",
            message=f"{name} is no part of vLLM {version}; it would run the model's own code "
            "through transformers, if that is compatible",
            evidence=where,
        )
        return
    yield Finding(
        about=name,
        confidence=confidence(config) if support.basis == "installed source" else "likely",
        message=f"vLLM {version} knows no {name}"
        f"{', nor does its transformers ' + support.transformers if support.transformers else ''}",
        evidence=where,
        fixes=(
            advise(
                "use-newer-vllm",
                f"Use a newer vLLM than {version}, or a checkpoint of a model that it knows",
                commands=("pip install -U vllm",),
            ),
        ),
    )


@check("launch-model-type-unknown", severity="error", category="transformers_version", since="0.2")
def model_type_unknown(
    launch: Launch, options: EngineOptions, config: ModelConfig, support: ModelSupport
) -> Iterator[Finding]:
    """The installed transformers cannot read this model's configuration.

    ## Why it matters
    The engine stops with "The checkpoint you are trying to load has model type `x` but Transformers
    does not recognize this architecture".

    ## How it decides
    `model_type` of config.json is neither in CONFIG_MAPPING_NAMES of the installed transformers
    (models/auto/, read as text) nor among the classes that vLLM registers itself
    (transformers_utils/config.py), and config.json names no class of the model's own
    (auto_map.AutoConfig).

    ## Fix safety
    Manual: another transformers or engine in the environment.
    """
    require_vllm(options)
    kind = support.model_type
    if kind is None:
        raise NotApplicable("config.json has no model_type")
    if support.type_known is None:
        raise Unavailable("no transformers is installed here to look into")
    auto_map = config.values.get("auto_map")
    if support.type_known or (isinstance(auto_map, Mapping) and "AutoConfig" in auto_map):
        return
    needs = config.values.get("transformers_version")
    made = f"; the model was saved with transformers {needs}" if isinstance(needs, str) else ""
    wanted = f"transformers>={needs}" if isinstance(needs, str) else "transformers"
    yield Finding(
        about=kind,
        message=f"transformers {support.transformers or ''} knows no model type {kind!r}{made}",
        evidence=(config.evidence("model_type", "transformers_version"),),
        fixes=(
            advise(
                "newer-transformers",
                f"Install a vLLM whose transformers knows {kind}",
                f"{wanted} in an old vLLM may break other models: move both",
                commands=("pip install -U vllm",),
            ),
        ),
    )


@check("launch-remote-code-needed", severity="error", category="model_files", since="0.2")
def remote_code_needed(
    launch: Launch, options: EngineOptions, config: ModelConfig, support: ModelSupport
) -> Iterator[Finding]:
    """The model needs code of its own, and the launch does not allow it.

    ## Why it matters
    The engine stops with "Failed to load the model config. If the model is a custom model not yet
    available in the HuggingFace transformers library, consider setting `trust_remote_code=True`".

    ## How it decides
    config.json names a class in a file of the model (auto_map.AutoConfig), neither the installed
    transformers nor vLLM has one for this model_type, and trust_remote_code is not set.

    ## Fix safety
    Manual: the option runs code that came with the model, as the user of the engine. Read it first.
    """
    require_vllm(options)
    auto_map = config.values.get("auto_map")
    own = auto_map.get("AutoConfig") if isinstance(auto_map, Mapping) else None
    if not own:
        return
    if support.model_type is None:
        raise Unavailable(f"{config.source} has no model_type")
    if support.type_known is None:
        raise Unavailable("no transformers is installed here to look into")
    if support.type_known or value_of(options, TRUST, False) is True:
        return
    yield Finding(
        about=TRUST,
        message=f"the model type {support.model_type!r} is only defined by the model's own code "
        f"({own}), which the launch does not allow",
        evidence=(config.evidence("auto_map", "model_type"),),
        fixes=(
            change_option(
                launch,
                options,
                TRUST,
                None,
                title=f"Read {str(own).rpartition('.')[0].rpartition('--')[2]}.py of the model, "
                f"then start with {flag(options, TRUST)}",
                why="it runs code that came with the model",
                safety="manual",
            ),
        ),
    )


@check("launch-remote-code-needless", severity="info", category="security", since="0.2")
def remote_code_needless(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    support: ModelSupport | None,
) -> Iterator[Finding]:
    """The launch trusts code of the model that it does not need.

    ## Why it matters
    `--trust-remote-code` runs Python that came with the model, as the user of the engine: whoever
    can change the repository can run code here. Here it gains nothing.

    ## How it decides
    trust_remote_code is set, neither config.json nor tokenizer_config.json names code of the model
    (auto_map), no *.py lies in its folder, and the engine and its transformers know it themselves.

    ## Fix safety
    Safe: nothing of this model needs the option.
    """
    require_vllm(options)
    if value_of(options, TRUST, False) is not True:
        raise NotApplicable("remote code is not trusted")
    config = known_config(config, files, None)
    if support is None:
        raise Unavailable("which models the engine knows was not read")
    if "auto_map" in config.values:
        return
    if support.type_known is None:
        raise Unavailable("no transformers is installed here to look into")
    if not support.type_known:
        return
    if files is None or any(file.name.endswith(".py") for file in files.files):
        return
    if "auto_map" in (files.tokenizer_config or {}):
        return
    if not support.known or TRUST not in options.given:
        return
    yield Finding(
        about=TRUST,
        message=f"{flag(options, TRUST)}, but this {support.model_type} model has no code of its own",
        evidence=(
            *evidence(options, TRUST),
            Evidence(source=config.source, excerpt="no auto_map"),
        ),
        fixes=(drop_option(launch, options, TRUST),),
    )
