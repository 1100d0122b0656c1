"""Whether the hub lets the engine have its model: by what is set here, and with --online by asking."""

from __future__ import annotations

from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_files import model_name
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.launch.model import Launch, Unknown
from infer_doctor.launch.variables import of_engine
from infer_doctor.models import hub
from infer_doctor.registry import probe

ASK_LIMIT_S = 8.0
"""huggingface_hub waits 10 s for a HEAD (HF_HUB_ETAG_TIMEOUT)."""


@frozen
class Online:
    """`--online`: the network may be asked."""


@frozen
class HubModel:
    """The repository that the launch would download from, and with which token.

    `token` is where one is from ("HF_TOKEN", a file), None when there is none; `offline` the variable
    that forbids downloads; `caches` where copies would lie.
    """

    name: str
    endpoint: str
    revision: str
    token: str | None
    offline: str | None
    proxy: str | None
    token_file: str


@frozen
class HubAnswer:
    """What the hub said to one HEAD request."""

    status: int | None
    code: str | None
    error: str | None
    token: str | None
    url: str


@probe
def online() -> Online:
    """Given by the command alone."""
    raise Unavailable("needs --online")


@probe
def hub_model(
    launch: Launch, options: EngineOptions, environ: Environ | None, host: Host | None
) -> HubModel:
    """By the variables of the launch and, for one here, of this machine."""
    name = model_name(options)
    if not hub.is_repository(name) or name.endswith(".gguf"):
        raise Absent(f"{name} is no name of a hub")
    here = launch.machine == "local"
    if here and environ is None:
        raise Unavailable("the environment was not read")
    variables = of_engine(launch, environ, *hub.OFFLINE, hub.MODELSCOPE, "HF_ENDPOINT")
    if hub.from_modelscope(variables, options.version):
        raise Absent("the model comes from ModelScope")
    if here and "/" in name and host is not None and _is_folder(host, launch, name):
        raise Absent(f"{name} is a folder here")
    file = hub.token_path(variables)
    token = next((n for n in hub.TOKENS if variables.get(n)), None) or _secret(launch)
    if token is None and here and host is not None and host.exists(file):
        token = file
    revision = options.get("revision")
    if isinstance(revision, Unknown):
        raise Unavailable(f"the revision is {revision.text}, which the launch does not tell")
    return HubModel(
        name=name,
        endpoint=variables.get("HF_ENDPOINT") or hub.ENDPOINT,
        revision=revision if isinstance(revision, str) else "main",
        token=token,
        offline=hub.offline(variables),
        proxy=next((n for n in variables if n.upper() in ("HTTPS_PROXY", "ALL_PROXY")), None),
        token_file=file,
    )


def _is_folder(host: Host, launch: Launch, name: str) -> bool:
    base = launch.working_folder or host.ask("self")["folder"] or "/"
    return host.exists(hub.join(base, name))


def _secret(launch: Launch) -> str | None:
    """A token whose value is elsewhere, as in a secret of Kubernetes."""
    for variable in launch.environment:
        if variable.name in hub.TOKENS and variable.value is None:
            return variable.source or variable.name
    return None


@probe(slow=True)
def hub_answer(host: Host, launch: Launch, model: HubModel, online: Online) -> HubAnswer:
    """One HEAD request, with the token of this machine's environment or file."""
    if launch.machine != "local":
        raise Unavailable("the network of the machine that will run this is not known")
    if model.offline:
        raise Absent(f"{model.offline} forbids to ask the hub")
    answer = host.ask(
        "hub",
        limit_s=ASK_LIMIT_S,
        endpoint=model.endpoint,
        repository=model.name,
        revision=model.revision,
        variables=list(hub.TOKENS),
        token_file=model.token_file,
    )
    return HubAnswer(
        status=answer.get("status"),
        code=answer.get("headers", {}).get("x-error-code"),
        error=answer.get("error"),
        token=answer["token"],
        url=f"{model.endpoint.rstrip('/')}/{model.name}",
    )
