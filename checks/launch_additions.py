"""Whether what the launch adds to its model fits it: tasks, adapters, a draft model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from infer_doctor.catalog.models import published as catalogued
from infer_doctor.catalog.vllm import LORA_RANKS
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.model_config import ModelConfig, PublishedConfig, known_config
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.facts.model_parts import DraftModel, LoraAdapters
from infer_doctor.facts.model_support import ModelSupport
from infer_doctor.fixes.models import advise, change_option, drop_option
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import evidence, flag, require_vllm, value_of, whole, word
from infer_doctor.launch.model import Launch
from infer_doctor.launch.model_judge import confidence
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.models import config as read
from infer_doctor.models import hub
from infer_doctor.registry import check

POOLING = (
    "Model",
    "ForSequenceClassification",
    "ForTokenClassification",
    "RewardModel",
    "ForMaskedLM",
)
ENCODERS = ("bert", "roberta", "xlm-roberta", "modernbert", "nomic_bert", "new", "gte", "electra")
"""Model types without a decoder: nothing can be generated with them."""

CHAT_OPTIONS = ("enable_auto_tool_choice", "tool_call_parser", "reasoning_parser", "chat_template")


@check("launch-pooling-model-chat", severity="warning", category="launch_argument", since="0.2")
def pooling_model_chat(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
) -> Iterator[Finding]:
    """A model for embeddings or scores is started as if it could chat.

    ## Why it matters
    An encoder generates no text: `--runner generate` is refused ("This model does not support
    `--runner generate`"), and a server for it answers chat requests with an error.

    ## How it decides
    The model type is that of an encoder (BERT and its kin), or every architecture is one for
    pooling, and the launch asks for generation (`--runner generate`, `--task generate`: an error) or
    sets an option that only chat has (tools, reasoning, a chat template: a warning).

    ## Fix safety
    Safe: an edit of the launch; the options do nothing for such a model.
    """
    require_vllm(options)
    asked = [n for n in ("runner", "task") if word(options, n) == "generate"]
    chat = [name for name in CHAT_OPTIONS if name in options.given]
    if not asked and not chat:
        raise NotApplicable("the launch asks for no generation and no chat by name")
    config = known_config(config, files, published)
    names = read.architectures(config.values)
    kind = read.model_type(config.values) or ""
    pooling = bool(names) and all(name.endswith(POOLING) for name in names)
    if kind not in ENCODERS and not pooling:
        return
    generate = bool(asked) and kind in ENCODERS
    if not generate and not chat:
        return
    used = asked if generate else chat
    dropped = [name for name in used if name in options.given]
    yield Finding(
        about="model",
        severity="error" if generate else None,
        confidence=confidence(config),
        message=f"{', '.join(names) or kind} is a model for embeddings or scores, but the launch "
        f"says {', '.join(flag(options, name) for name in used)}",
        evidence=(*evidence(options, "model", *used), config.evidence("architectures")),
        fixes=(drop_option(launch, options, *dropped),) if dropped else (),
    )


PLAIN = re.compile(r"(?:torch\.)?nn\.Module|(?:Supports|Has|Is)\w+(?:\[.*\])?|\w*MixtureOfExperts")
"""Bases that bring no capability that their name does not say (model_executor/models/interfaces.py)."""


@check("launch-model-cannot", severity="error", category="launch_argument", since="0.2")
def model_cannot(
    launch: Launch, options: EngineOptions, support: ModelSupport | None
) -> Iterator[Finding]:
    """The launch asks for pipeline stages or adapters that the engine's class of this model lacks.

    ## Why it matters
    vLLM stops with "Pipeline parallelism is not supported for this model" or, after loading the
    weights, "... does not support LoRA yet".

    ## How it decides
    The class of the architecture in the installed engine, read as text: its bases name neither
    SupportsPP (with `--pipeline-parallel-size` above 1) nor SupportsLoRA (with `--enable-lora`). Only
    where all its bases are torch's Module and interfaces whose names say what they bring; a class
    that inherits from another model is not judged.

    ## Fix safety
    Manual: another way to divide the model, or merged adapters.
    """
    require_vllm(options)
    asked = {}
    if whole(options, "pipeline_parallel_size", 1) > 1:
        asked["pipeline_parallel_size"] = "SupportsPP"
    if value_of(options, "enable_lora", False) is True:
        asked["enable_lora"] = "SupportsLoRA"
    if not asked:
        raise NotApplicable("neither pipeline stages nor adapters are asked for")
    if support is None or support.bases is None:
        raise Unavailable("the engine's class of this model was not read")
    if not all(PLAIN.fullmatch(base) for base in support.bases):
        named = set(support.bases)
        if not named.issuperset(asked.values()):
            raise Unavailable(f"what {support.architectures[0]} inherits was not followed")
    for name, interface in asked.items():
        if any(base.partition("[")[0] == interface for base in support.bases):
            continue
        pipeline = name == "pipeline_parallel_size"
        what = "be divided into pipeline stages" if pipeline else "take LoRA adapters"
        fix = (
            change_option(launch, options, name, 1)
            if pipeline
            else advise("merge-adapter", "Merge the adapter into the model and serve that")
        )
        yield Finding(
            about=name,
            message=f"{support.architectures[0]} of vLLM {options.version} cannot {what}",
            evidence=(
                *evidence(options, name),
                Evidence(
                    source=support.class_source or support.source,
                    excerpt=f"bases: {', '.join(support.bases)}"[:200],
                ),
            ),
            fixes=(fix,),
        )


RANK_DEFAULT = 16
"""max_lora_rank of vllm/config/lora.py, 0.6 to 0.32."""


@check("launch-lora-refused", severity="error", category="launch_argument", since="0.2")
def lora_refused(
    launch: Launch, options: EngineOptions, files: ModelFiles, adapters: LoraAdapters
) -> Iterator[Finding]:
    """An adapter of the launch cannot be loaded as the launch is written.

    ## Why it matters
    The server starts, loads 10 to 100 GB, and then stops at the adapter: "LoRA rank 64 is greater
    than max_lora_rank 16".

    ## How it decides
    adapter_config.json of each `--lora-modules` against what vLLM checks (lora/peft_helper.py): `r`
    against `--max-lora-rank` (16 by default), no DoRA, no modules_to_save, `--enable-lora` given. A
    folder that is not there or has no adapter is an error too; another base model than the one
    served a likely warning.

    ## Fix safety
    Safe: options of the launch; a higher rank takes more memory for each slot.
    """
    require_vllm(options)
    where = evidence(options, "lora_modules")
    if value_of(options, "enable_lora", False) is not True:
        yield Finding(
            about="enable_lora",
            message=f"{flag(options, 'lora_modules')} is given, but {flag(options, 'enable_lora')} "
            "is not",
            evidence=where,
            fixes=(change_option(launch, options, "enable_lora", None),),
        )
    most = value_of(options, "max_lora_rank", RANK_DEFAULT)
    for adapter in adapters.adapters:
        source = Evidence(source=f"{adapter.path}/adapter_config.json")
        if adapter.problem:
            yield Finding(
                about=f"adapter {adapter.name}",
                message=f"adapter {adapter.name}: {adapter.problem}",
                evidence=(*where, source),
                category="model_files",
            )
            continue
        if adapter.config is None:
            continue
        yield from _adapter(launch, options, files, adapter.name, adapter.config, most, source)


def _adapter(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles,
    name: str,
    config: Mapping[str, object],
    most: object,
    source: Evidence,
) -> Iterator[Finding]:
    where = evidence(options, "lora_modules", "max_lora_rank")
    rank = config.get("r")
    if type(rank) is int and type(most) is int and rank > most:
        fit = next((known for known in LORA_RANKS if known >= rank), None)
        fixes: tuple[Fix, ...] = ()
        if fit is not None:
            fixes = (change_option(launch, options, "max_lora_rank", fit),)
        yield Finding(
            about=f"adapter {name}",
            message=f"adapter {name} has rank {rank}; the launch allows {most}",
            evidence=(*where, Evidence(source=source.source, excerpt=f"r {rank}")),
            fixes=fixes,
        )
    for key, words in (("use_dora", "is a DoRA"), ("modules_to_save", "replaces whole modules")):
        if config.get(key):
            yield Finding(
                about=f"adapter {name}",
                message=f"adapter {name} {words} ({key}), which vLLM does not load",
                evidence=(*where, Evidence(source=source.source, excerpt=f"{key} {config[key]}")),
                fixes=(advise("merge-adapter", "Merge the adapter into the model and serve that"),),
            )
    base = config.get("base_model_name_or_path")
    if not isinstance(base, str) or not base or "/" not in base or files.origin != "cache":
        return
    if hub.is_repository(base) and base.lower() != files.model.lower():
        yield Finding(
            about=f"adapter {name}",
            severity="warning",
            confidence="possible",
            category="quality",
            message=f"adapter {name} was trained on {base}, the launch serves {files.model}",
            evidence=(
                *where,
                Evidence(source=source.source, excerpt=f"base_model_name_or_path {base}"),
            ),
        )


HEADS_ONLY = ("eagle", "eagle3", "medusa", "mtp", "mlp_speculator", "dflash")
"""Methods whose draft reads the hidden states of the target and may have a vocabulary of its own."""


@check("launch-draft-vocabulary", severity="error", category="launch_argument", since="0.2")
def draft_vocabulary(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
    draft: DraftModel,
) -> Iterator[Finding]:
    """The draft model of speculative decoding has another vocabulary than the model.

    ## Why it matters
    vLLM stops with "Target and draft model should have the same vocabulary size".

    ## How it decides
    vocab_size of both config.json (config/speculative.py:1879 of 0.32), for draft models proper:
    EAGLE, Medusa and MTP heads have tables of their own. `use_heterogeneous_vocab` in
    `--speculative-config` allows it.

    ## Fix safety
    Manual: another draft model, of the same family.
    """
    require_vllm(options)
    config = known_config(config, files, published)
    named = draft.files.origin == "named" and not draft.files.folder
    other_config = catalogued(draft.files.model) if named else draft.files.config
    if other_config is None:
        raise Unavailable(f"the draft model {draft.files.model} is not on this machine")
    spec = options.get("speculative_config")
    if isinstance(spec, Mapping) and spec.get("use_heterogeneous_vocab") is True:
        raise NotApplicable("use_heterogeneous_vocab allows another vocabulary")
    names = " ".join(read.architectures(other_config)).lower()
    kind = (draft.method or read.model_type(other_config) or "").lower()
    if any(word in kind or word in names for word in HEADS_ONLY):
        raise NotApplicable(f"{kind or names} heads have tables of their own")
    own, other = read.size(config.values, "vocabulary"), read.size(other_config, "vocabulary")
    if own is None or other is None:
        raise Unavailable("a config.json does not say the size of its vocabulary")
    if own == other:
        return
    yield Finding(
        about="draft model",
        confidence="likely" if named else confidence(config),
        message=f"the draft model {draft.files.model} has a vocabulary of {other:,}, the model one of "
        f"{own:,}",
        evidence=(
            *evidence(options, "speculative_config", "spec_model"),
            config.evidence("vocab_size"),
            Evidence(
                source=draft.files.model if named else draft.files.path_of("config.json"),
                excerpt=f"vocab_size {other}",
            ),
        ),
        fixes=(advise("use-other-draft", f"Use a draft model with {own} tokens"),),
    )
