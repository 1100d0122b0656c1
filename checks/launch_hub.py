"""Whether the engine can get its model from the hub: tokens, gates, offline mode."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.hub_access import HubAnswer, HubModel
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.fixes.models import advise, change_variable
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import evidence, is_here
from infer_doctor.launch.model import Launch
from infer_doctor.launch.variables import variable
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.models import hub
from infer_doctor.registry import check

GATED = re.compile(
    r"meta-llama/.+"
    r"|google/(?:gemma-(?:\d+b|2-|3-|3n-)|codegemma-|paligemma|medgemma|shieldgemma|recurrentgemma).*"
    r"|(?:CohereLabs|CohereForAI)/.+"
    r"|bigcode/starcoder.*"
    r"|mistralai/(?:Mistral-Large|Mixtral-8x22B|Ministral|Codestral|Pixtral-Large).*"
    r"|databricks/dbrx-.+"
    r"|tiiuae/falcon-180B.*"
)
"""Families whose repositories ask for an account that accepted a licence (their model pages on
huggingface.co, 2026-11)."""

TOKEN_PAGE = "https://huggingface.co/settings/tokens"  # noqa: S105 (a page, no token)


def is_whole(files: ModelFiles | None) -> bool:
    """Whether everything that the engine reads lies in the cache."""
    return (
        files is not None
        and not files.elsewhere
        and files.origin == "cache"
        and bool(files.loaded)
        and not files.missing_shards
        and not files.dangling
    )


def give_token(model: HubModel) -> tuple[Fix, ...]:
    """An account that accepted the licence, and its token in the engine's environment."""
    return (
        advise(
            "give-hub-token",
            f"Accept the licence of {model.name} and give the engine HF_TOKEN",
            f"licence: {model.endpoint}/{model.name}, tokens: {TOKEN_PAGE}",
            "in Kubernetes and Compose from a secret, never in the file itself",
            commands=("hf auth login",),
        ),
    )


REPOSITORY = re.compile(r"(?:[\w.-]+/)?[\w.-]{1,96}")
"""What huggingface_hub takes (utils/_validators.py: validate_repo_id)."""

PAGE = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)(?:/.*)?")
QUOTES = "\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb"


@check("launch-model-name-refused", severity="error", category="model_name", since="0.3")
def model_name_refused(
    launch: Launch, options: EngineOptions, files: ModelFiles
) -> Iterator[Finding]:
    """The model is neither a folder nor a name that the hub takes.

    ## Why it matters
    The engine stops with "Repo id must be in the form 'repo_name' or 'namespace/repo_name'" or "must
    use alphanumeric chars", after its imports and with a long traceback.

    ## How it decides
    No folder of this name is here, and huggingface_hub refuses the name: an address of a page, a tag
    as Ollama has them (a GGUF repository takes one), a typographic quotation mark, a blank, more
    than one slash. Addresses such as s3://... are for loaders of their own and are not judged; on
    another machine a path with slashes may be there.

    ## Fix safety
    Manual: which model is meant is only clear where the address of a page holds its name.
    """
    name = options.model.value if options.model is not None else None
    if not isinstance(name, str) or not name:
        raise NotApplicable("the launch names no model, or in a way that is not told")
    if files.origin != "named" or files.folder is not None:
        return
    words = _refused(name, here=is_here(launch))
    if words is None:
        return
    page = PAGE.fullmatch(name)
    meant = page[1] if page else name.strip(QUOTES)
    known = meant != name and REPOSITORY.fullmatch(meant)
    title = f"Write {meant}" if known else "Name a folder, or a repository as OWNER/NAME"
    yield Finding(
        about="model",
        confidence="likely",
        message=words,
        evidence=evidence(options, "model"),
        fixes=(advise("name-model", title),),
    )


def _refused(name: str, *, here: bool) -> str | None:
    """Why the hub has no such name."""
    if name[0] in QUOTES or name[-1] in QUOTES:
        mark = name[0] if name[0] in QUOTES else name[-1]
        return (
            f"{name}: {mark} (U+{ord(mark):04X}) is no quotation mark of the shell, and belongs to the "
            "name then"
        )
    if re.match(r"https?://", name) or PAGE.fullmatch(name):
        return f"{name} is the address of a page: the engine takes a folder or OWNER/NAME"
    if "://" in name or REPOSITORY.fullmatch(name):
        return None
    base, colon, tag = name.partition(":")
    if colon and REPOSITORY.fullmatch(base) and re.fullmatch(r"[\w.-]+", tag):
        return None if "gguf" in name.lower() else f"{name}: names of the hub have no tag (:{tag})"
    if not here:
        return None
    return f"{name} is no folder here, and the hub takes names such as OWNER/NAME alone"


@check("launch-hub-token-missing", severity="warning", category="hf_access", since="0.2")
def hub_token_missing(
    launch: Launch, options: EngineOptions, model: HubModel, files: ModelFiles | None
) -> Iterator[Finding]:
    """A model behind a licence is to be downloaded, and the engine has no token.

    ## Why it matters
    The start fails after half a minute: "401 Client Error", "Cannot access gated repo", "Access to
    model ... is restricted".

    ## How it decides
    The repository is of a family that is known to be gated, it is not whole in the cache of this
    machine, and no token is set: HF_TOKEN, HUGGING_FACE_HUB_TOKEN, or the file that `hf auth login`
    writes (HF_TOKEN_PATH, HF_HOME/token). Variables of the launch count, also those from a secret.
    Only likely: a mirror (HF_ENDPOINT) or a mounted cache may need none.

    ## Fix safety
    Manual: an account has to accept the licence.
    """
    if not GATED.fullmatch(model.name) or model.token is not None or model.offline:
        return
    if is_whole(files):
        return
    mounted = launch.container is not None and any(
        "huggingface" in volume.target or volume.target.rstrip("/").endswith("/hub")
        for volume in launch.container.volumes
    )
    if not is_here(launch) and mounted:
        raise Unavailable("a mounted cache may hold the model and a token")
    for name in hub.TOKENS:
        variable(launch, name)  # it may come with others that the launch does not hold
    yield Finding(
        about="HF_TOKEN",
        confidence="likely",
        message=f"{model.name} is behind a licence, and the launch has no token for the hub",
        evidence=(
            *evidence(options, "model"),
            Evidence(source="environment", excerpt="no HF_TOKEN, no HUGGING_FACE_HUB_TOKEN"),
            *(
                [Evidence(source=model.token_file, excerpt="does not exist")]
                if is_here(launch)
                else []
            ),
        ),
        fixes=give_token(model),
    )


@check("launch-hub-offline", severity="error", category="hf_access", since="0.2")
def hub_offline(
    launch: Launch, options: EngineOptions, model: HubModel, files: ModelFiles
) -> Iterator[Finding]:
    """Downloads are forbidden, and the model is not in the cache.

    ## Why it matters
    The engine stops with "Cannot find an appropriate cached snapshot folder for the specified revision
    on the local disk" or "offline mode is enabled".

    ## How it decides
    HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is true in the environment of the launch, and the cache that
    the engine will use (HF_HUB_CACHE, HF_HOME, --download-dir) has no snapshot of this model and
    revision. A snapshot that lacks weights is a matter of model-weights-missing.

    ## Fix safety
    Unsafe: without the variable the start downloads the model, from a network that somebody forbade.
    """
    if files.elsewhere:
        raise Unavailable("the cache of the machine that will run this is not known")
    if model.offline is None:
        raise NotApplicable("downloads are not forbidden")
    if files.origin != "named":
        return
    name = model.offline.partition("=")[0]
    what = model.name if model.revision == "main" else f"{model.name} at {model.revision}"
    yield Finding(
        about=name,
        message=f"{what} is not in the cache, and {model.offline} forbids to download it",
        evidence=(
            *evidence(options, "model", "revision"),
            Evidence(source="environment", excerpt=model.offline),
        ),
        fixes=(
            advise(
                "download-before",
                f"Download {model.name} before, where the network is allowed",
                commands=(f"env -u {name} hf download {model.name}",),
            ),
            change_variable(
                launch,
                name,
                None,
                why="the engine then takes what the hub has now, at every start",
                safety="unsafe",
            ),
        ),
    )


@check("launch-hub-refused", severity="error", category="hf_access", since="0.2")
def hub_refused(
    launch: Launch,
    options: EngineOptions,
    model: HubModel,
    answer: HubAnswer,
    files: ModelFiles | None,
) -> Iterator[Finding]:
    """The hub does not give out this model, or does not answer.

    ## Why it matters
    The start fails after half a minute, each time, and in Kubernetes for ever.

    ## How it decides
    Only with `--online`: one HEAD request for config.json of the repository and revision, to
    HF_ENDPOINT, through the proxy of the environment, with the token that the engine would find here;
    nothing is downloaded. 401 and 403 with X-Error-Code GatedRepo: the licence was not accepted by
    this account, or there is no token. 401 and 404 with RepoNotFound: no such repository, or a
    private one. 404 with RevisionNotFound. No answer at all: network, proxy or endpoint. A
    warning when all files are in the cache: the engine asks the hub then, but starts without it.

    ## Fix safety
    Manual: accounts, tokens and networks.
    """
    problem, fixes = _problem(model, answer)
    if problem is None:
        return
    yield Finding(
        about="hub",
        severity="warning" if is_whole(files) else None,
        category="proxy" if answer.status is None and model.proxy else None,
        message=f"{model.name}: {problem}",
        evidence=(
            *evidence(options, "model", "revision"),
            Evidence(
                source=answer.url,
                excerpt=answer.error
                or f"status {answer.status}{' ' + answer.code if answer.code else ''}",
            ),
        ),
        fixes=fixes,
    )


def _problem(model: HubModel, answer: HubAnswer) -> tuple[str | None, tuple[Fix, ...]]:
    sent = f"with the token of {answer.token}" if answer.token else "without a token"
    if answer.status is None:
        through = f" through {model.proxy}" if model.proxy else ""
        fix = advise(
            "reach-hub",
            f"Let this machine reach {model.endpoint}, set HTTPS_PROXY or HF_ENDPOINT, or download "
            "the model before",
            commands=(f"curl -sSI {model.endpoint}",),
        )
        return f"{model.endpoint} did not answer{through}: {answer.error}", (fix,)
    if answer.status < 400:
        return None, ()
    if answer.code == "GatedRepo" or answer.status == 403:
        return f"the hub refuses it {sent}: the licence is not accepted", give_token(model)
    if answer.code == "RevisionNotFound":
        fix = advise("name-revision", f"Give a revision that {model.name} has")
        return f"there is no revision {model.revision!r}", (fix,)
    if answer.code == "EntryNotFound":
        return None, ()
    if answer.status == 401 and answer.token and answer.code != "RepoNotFound":
        fix = advise(
            "renew-hub-token", f"Make a new token: {TOKEN_PAGE}", commands=("hf auth login",)
        )
        return f"the hub refuses the token of {answer.token}", (fix,)
    if answer.status in (401, 404):
        fix = advise(
            "name-model", "Give the name of a repository that exists, or a token that may read it"
        )
        return f"the hub knows no such repository, or hides it ({sent})", (fix,)
    fix = advise("try-later", "Try again later, or serve a local copy")
    return f"the hub answers with status {answer.status}", (fix,)
