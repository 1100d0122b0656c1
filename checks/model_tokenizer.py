"""What turns text into tokens and back: tokenizer files, chat template, sampling defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.environment import Distributions
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_config import ModelConfig
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.facts.model_parts import TokenizerFiles
from infer_doctor.fixes.models import advise, change_option, write_chat_template
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import evidence, is_here, require_vllm, value_of, word
from infer_doctor.launch.model import Launch
from infer_doctor.launch.model_judge import named, require_final, require_local, require_own
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.models import config as read
from infer_doctor.registry import check
from infer_doctor.units import plural

FAST = "tokenizer.json"
TOKENIZERS = (
    FAST,
    "tokenizer.model",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "qwen.tiktoken",
    "tiktoken.model",
)
"""Files that hold a vocabulary: one of them is in every published model. Names of
transformers' tokenizers (vocab_files_names) and of mistral-common."""

SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")


@check("model-tokenizer-missing", severity="error", category="tokenizer", since="0.2")
def tokenizer_missing(
    launch: Launch,
    options: EngineOptions,
    tokenizer: TokenizerFiles,
    environ: Environ | None,
) -> Iterator[Finding]:
    """The model has no tokenizer.

    ## Why it matters
    The engine stops with "Can't load tokenizer for ..." or "Couldn't instantiate the backend
    tokenizer"; weights that were saved after training often lack it.

    ## How it decides
    None of the files that hold a vocabulary is in the folder of `--tokenizer`, else of the model, and
    no file name there begins with "tokenization_" (a tokenizer in the model's own code). A broken
    tokenizer.json (a Git LFS pointer, an empty file) counts as missing. A GGUF file that has no
    tokenizer.ggml.tokens has none either. `--skip-tokenizer-init` needs none.

    ## Fix safety
    Manual: the files of the base model.
    """
    require_vllm(options)
    if value_of(options, "skip_tokenizer_init", False) is True:
        raise NotApplicable("--skip-tokenizer-init needs no tokenizer")
    where = tokenizer.files
    require_local(where)
    if where.origin == "gguf":
        if where.gguf is None:
            raise Unavailable(f"{where.folder}: its header was not read")
        if "tokenizer.ggml.tokens" in where.gguf.arrays:
            return
        missing = "its header has no tokenizer.ggml.tokens"
    else:
        if where.config is None and not tokenizer.named:
            raise Unavailable("without a configuration the folder is no model")
        names = [file.name for file in where.files]
        good = [name for name in TOKENIZERS if name in names and name not in where.broken]
        if good or any(name.startswith(("tokenization_", "tokenizer.model.")) for name in names):
            return
        require_final(where, launch, environ)
        bad = [f"{name} {where.broken[name]}" for name in TOKENIZERS if name in where.broken]
        missing = bad[0] if bad else f"none of {named(TOKENIZERS)}"
    yield Finding(
        about="tokenizer",
        message=f"{where.title} has no tokenizer: {missing}",
        evidence=(
            *evidence(options, "tokenizer", "model"),
            Evidence(source=str(where.folder), excerpt=missing),
        ),
        fixes=(
            advise(
                "name-tokenizer",
                "Name the tokenizer of the base model: --tokenizer MODEL",
                "or copy tokenizer.json and tokenizer_config.json of the base model there",
            ),
        ),
    )


@check("model-sentencepiece-missing", severity="error", category="missing_lib", since="0.2")
def sentencepiece_missing(
    launch: Launch,
    options: EngineOptions,
    tokenizer: TokenizerFiles,
    distributions: Distributions,
) -> Iterator[Finding]:
    """The tokenizer needs the package sentencepiece, which is not installed.

    ## Why it matters
    transformers stops with "Couldn't instantiate the backend tokenizer ... You need to have
    sentencepiece or tiktoken installed to convert a slow tokenizer to a fast one".

    ## How it decides
    The only vocabulary is a model of SentencePiece (tokenizer.model, spiece.model), there is no
    tokenizer.json, and the environment has no distribution sentencepiece. vLLM itself requires it
    (requirements/common.txt), so the environment is not as it was installed.

    ## Fix safety
    Manual: a package in the engine's environment.
    """
    require_vllm(options)
    where = tokenizer.files
    require_local(where)
    names = {file.name for file in where.files}
    only = [name for name in SENTENCEPIECE if name in names]
    if not only or FAST in names or "tekken.json" in names:
        return
    if not is_here(launch):
        raise Unavailable("the environment of the other machine is not known")
    if "sentencepiece" in distributions.by_name:
        return
    if distributions.gaps:
        raise Unavailable(distributions.gaps[0])
    yield Finding(
        about="sentencepiece",
        message=f"{where.title} has only {only[0]}, and sentencepiece is not installed",
        evidence=(
            Evidence(source=where.path_of(only[0])),
            Evidence(source=distributions.source, excerpt="no sentencepiece"),
        ),
        fixes=(
            advise(
                "install-sentencepiece",
                "Install sentencepiece in the engine's environment",
                commands=("pip install sentencepiece",),
            ),
        ),
    )


@check("model-chat-template-missing", severity="warning", category="tokenizer", since="0.2")
def chat_template_missing(
    launch: Launch, options: EngineOptions, tokenizer: TokenizerFiles, config: ModelConfig
) -> Iterator[Finding]:
    """The model has no chat template, so /v1/chat/completions answers nothing.

    ## Why it matters
    The server starts and every chat request gets status 400: "As of transformers v4.44, default chat
    template is no longer allowed". Base models have none on purpose: /v1/completions works. With a
    template of another model the answers are wrong.

    ## How it decides
    No chat_template in tokenizer_config.json (a long one counts though it was not kept), no
    chat_template.jinja, chat_template.json or additional_chat_templates/ (transformers reads no other
    name: CHAT_TEMPLATE_FILE of utils/hub.py), none in processor_config.json, no
    `--chat-template`, and no tokenizer of Mistral's own form (tekken.json, tokenizer.model.v3), which
    needs none. Only servers of generative models are judged; model types with a template in vLLM
    itself (transformers_utils/chat_templates) or a renderer of their own (DeepSeek V3.2 and V4,
    gpt-oss) are left out. An error when an option asks for tools.

    ## Fix safety
    Unsafe: a template that lies there under another name, or ChatML where the tokenizer's last token
    is <|im_end|>. Else manual: the template has to be the model's own.
    """
    require_vllm(options)
    if options.entry not in ("serve", "api_server"):
        raise NotApplicable("no server with a chat endpoint is started")
    given = value_of(options, "chat_template")
    if given:
        raise NotApplicable("the launch names a chat template")
    kind = read.model_type(config.values) or ""
    names = read.architectures(config.values)
    runner = word(options, "runner") or word(options, "task")
    text = any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names)
    if kind in OWN_TEMPLATES or not text or runner not in (None, "auto", "generate"):
        raise NotApplicable(f"{kind or 'this model'} needs no chat template")
    where = tokenizer.files
    require_local(where)
    if where.tokenizer_config is None:
        raise Unavailable(f"{where.folder} has no tokenizer_config.json that could be read")
    if _has_template(where):
        return
    asked = [n for n in ("enable_auto_tool_choice", "tool_call_parser") if n in options.given]
    yield Finding(
        about="chat template",
        severity="error" if asked else None,
        confidence="likely" if where.origin == "cache" else "certain",
        message=f"{where.title} has no chat template: chat requests will be refused",
        evidence=(
            *evidence(options, *asked),
            Evidence(source=where.path_of("tokenizer_config.json"), excerpt="no chat_template"),
        ),
        fixes=(
            *_templates(launch, options, where),
            advise(
                "give-chat-template",
                "Serve the chat version of this model, or give its template: --chat-template FILE",
                "a base model is asked through /v1/completions",
            ),
        ),
    )


def _templates(launch: Launch, options: EngineOptions, where: ModelFiles) -> Iterator[Fix]:
    """A template that nobody reads, or the one that the last token of a turn tells."""
    beside = [file.name for file in where.files if file.name.endswith(".jinja")]
    if len(beside) == 1:  # which of several is meant only a person knows
        yield change_option(
            launch,
            options,
            "chat_template",
            where.path_of(beside[0]),
            why=f"transformers reads chat_template.jinja, not {beside[0]}: read it first",
            safety="unsafe",
        )
    token = (where.tokenizer_config or {}).get("eos_token")
    last = token.get("content") if isinstance(token, Mapping) else token
    if last == "<|im_end|>" and where.origin == "folder" and where.folder and not beside:
        yield write_chat_template(where.folder)


OWN_TEMPLATES = (
    "blip-2",
    "clip",
    "colpali",
    "deepseek_ocr",
    "deepseek_vl_v2",
    "deepseek_v32",
    "deepseek_v4",
    "gpt_oss",
    "minicpmv",
    "paligemma",
    "siglip",
    "siglip2",
    "whisper",
)
"""Model types whose chat vLLM renders without a template of the model
(vllm/transformers_utils/chat_templates/registry.py and vllm/renderers of 0.32)."""


TEMPLATE = "chat_template.jinja"


def _has_template(where: ModelFiles) -> bool:
    names = [file.name for file in where.files]
    if any(name == TEMPLATE or name.startswith("additional_chat_templates/") for name in names):
        return True
    if any(name == "chat_template.json" or name == "tekken.json" for name in names):
        return True
    if any(name.startswith("tokenizer.model.v") for name in names):
        return True
    parts = (where.tokenizer_config or {}, where.documents.get("processor_config.json", {}))
    if any(part.get("chat_template") for part in parts):
        return True
    left_out = where.left_out.get("tokenizer_config.json", ())
    return "chat_template" in left_out


PROCESSORS = (
    "preprocessor_config.json",
    "processor_config.json",
    "image_processor_config.json",
    "video_preprocessor_config.json",
    "params.json",
)


@check("model-processor-missing", severity="error", category="model_files", since="0.2")
def processor_missing(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles,
    config: ModelConfig,
    environ: Environ | None,
) -> Iterator[Finding]:
    """A model for images or sound has no configuration of its processor.

    ## Why it matters
    The engine stops with "Can't load image processor for ...". Tools for training often save the
    weights and the tokenizer and forget the processor.

    ## How it decides
    config.json has a part for images or sound (vision_config, audio_config), and the folder has no
    preprocessor_config.json, processor_config.json or params.json, nor code of its own (auto_map). Only
    likely: some model types build their processor from config.json. `--language-model-only` needs
    none.

    ## Fix safety
    Manual: the file of the base model.
    """
    require_vllm(options)
    parts = [key for key in ("vision_config", "audio_config") if config.values.get(key)]
    if not parts:
        raise NotApplicable("the model has no part for images or sound")
    if value_of(options, "language_model_only", False) is True:
        raise NotApplicable("--language-model-only needs no processor")
    require_local(files)
    names = {file.name for file in files.files}
    if names.intersection(PROCESSORS) or "auto_map" in config.values:
        return
    require_final(files, launch, environ)
    yield Finding(
        about="processor",
        confidence="likely",
        message=f"{files.title} has {parts[0]} in config.json, but no preprocessor_config.json",
        evidence=(
            *evidence(options, "model"),
            Evidence(source=str(files.folder), excerpt=named(sorted(names))),
        ),
        fixes=(
            advise(
                "copy-processor",
                "Copy preprocessor_config.json of the base model there, or start with "
                "--language-model-only",
            ),
        ),
    )


@check("model-sampling-limited", severity="warning", category="quality", since="0.2")
def sampling_limited(
    launch: Launch, options: EngineOptions, files: ModelFiles
) -> Iterator[Finding]:
    """generation_config.json of the model limits or changes every answer of the server.

    ## Why it matters
    With `--generation-config auto`, the default of newer versions, requests that name no sampling
    values get the model's, and a max_new_tokens there cuts every answer of the whole server, with
    finish_reason "length".

    ## How it decides
    `--generation-config` is "auto", as given or as that version's default, and generation_config.json has max_new_tokens
    (get_diff_sampling_param of vllm/config/model.py; the documentation of --generation-config:
    "If max_new_tokens is specified in generation config, then it sets a server-wide limit").

    ## Fix safety
    Unsafe: with `--generation-config vllm` the engine's own defaults count, so every answer without
    sampling settings of its own changes.
    """
    require_vllm(options)
    require_own(files)
    if files.generation_config is None and files.origin == "named":
        raise Unavailable(f"{files.model} is not on this machine")
    if value_of(options, "generation_config") != "auto":
        raise NotApplicable("the sampling defaults are not the model's")
    config: Mapping[str, object] = files.generation_config or {}
    override = value_of(options, "override_generation_config") or {}
    limit = config.get("max_new_tokens")
    if type(limit) is not int or (isinstance(override, Mapping) and "max_new_tokens" in override):
        return
    yield Finding(
        about="max_new_tokens",
        message=f"the model's generation_config.json limits every answer to {plural(limit, 'token')}",
        evidence=(
            Evidence(
                source=files.path_of("generation_config.json"), excerpt=f"max_new_tokens {limit}"
            ),
        ),
        fixes=(
            change_option(
                launch,
                options,
                "generation_config",
                "vllm",
                why="temperature, top_p and the rest of that file no longer count either",
                safety="unsafe",
            ),
        ),
    )
