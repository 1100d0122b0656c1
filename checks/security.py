"""Who can reach an engine, with which rights, and who can read its keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.fixes.security import (
    drop_rights,
    listen_here,
    name_origins,
    pin_remote_code,
    require_key,
    take_key_out,
)
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import SERVERS, evidence, value_of
from infer_doctor.launch.model import Container, Keyword, Launch, Place, Unknown, Variable, Word
from infer_doctor.launch.surroundings import require_container, written
from infer_doctor.launch.variables import variable
from infer_doctor.model import Evidence, Finding, Fix, Severity
from infer_doctor.redact import SECRET_NAME, SECRET_OPTION
from infer_doctor.registry import check
from infer_doctor.secrets import may_be_shown
from infer_doctor.versions import series

CLOSED = ("127.0.0.1", "localhost", "::1", "[::1]")
OPEN = ("0.0.0.0", "::", "[::]", "")  # noqa: S104
DEFAULT_PORT = 8000
ORIGINS_CLOSED_SINCE = (0, 32)
"""allowed_origins is empty by default (cli_args.py of 0.32.0; ["*"] in 0.31.0)."""

KEY_VARIABLE = "VLLM_API_KEY"
ROOT_USERS = ("0", "root", "0:0", "root:root")
SOCKETS = ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock")
MASK = "<token>"
SWITCHES = ("0", "1", "true", "false", "yes", "no", "on", "off")
PUBLIC_NAME = re.compile(
    r"^GPG_KEY$|PUBLIC_?KEY|(?:^|_)(?:NO|USE|ENABLE|DISABLE|SKIP|REQUIRE)_", re.I
)
"""Variables that sound like a secret and are none: GPG_KEY of the images of Python,
SCCACHE_S3_NO_CREDENTIALS, USE_AUTH."""
SAID = {"privileged": "privileged", "network": "the host's network; user root or not set"}


@check("security-api-open", severity="warning", category="security", since="0.2")
def api_open(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The engine answers everybody who can reach its address.

    ## Why it matters
    Strangers use the GPUs, fill the queue and read what models and adapters are there. Scanners
    find an open port 8000 within hours.

    ## How it decides
    A server without --api-key and VLLM_API_KEY (trtllm-serve has none) at an address beyond this
    machine: --host 0.0.0.0, a port that Docker publishes on all addresses (past the firewall, its
    documentation says), the host's network, a hostPort, or a Service of type LoadBalancer or
    NodePort in the same file. vLLM without --host listens on all addresses as well (0.32,
    FrontendArgs.host None): info, for nobody chose it. In a container only what is published
    counts. What a firewall or a proxy closes is not seen here: likely.

    ## Fix safety
    A key: manual, for it has to come from somewhere. The address of this machine alone: unsafe, for
    clients elsewhere lose their way.
    """
    if launch.entry not in SERVERS:
        raise NotApplicable(f"{launch.entry} answers no requests over the network")
    if options.get("uds") or options.get("headless") is True:
        raise NotApplicable("it listens at no port")
    if _has_key(launch, options):
        return
    if launch.gaps or options.gaps:
        raise Unavailable((*launch.gaps, *options.gaps)[0])
    found = _exposure(launch, options)
    if found is None:
        return
    variable(launch, KEY_VARIABLE)  # it may come with others that the file does not hold
    how, place, severity = found
    name = "vLLM" if options.engine == "vllm" else "trtllm-serve"
    key = "without a key" if options.engine == "vllm" else "and takes no key"
    yield Finding(
        about=launch.name,
        message=f"{name} {key} can be reached by others: {how}",
        severity=severity,
        confidence="likely",
        evidence=(
            written(launch, place, how),
            *evidence(options, *(("port",) if "--host " in how else ("host", "port"))),
        ),
        fixes=(require_key(launch, options.engine), *listen_here(launch, options)),
    )


def _has_key(launch: Launch, options: EngineOptions) -> bool:
    """A key that is set, or may be."""
    given = options.given.get("api_key")
    if given is not None and (given.value or isinstance(given.value, Unknown)):
        return True
    rows = [row for row in launch.environment if row.name == KEY_VARIABLE]
    return bool(rows) and rows[-1].value != ""


def _exposure(
    launch: Launch, options: EngineOptions
) -> tuple[str, Place | None, Severity | None] | None:
    """How others reach it, where that is written, and the severity if it differs."""
    container = launch.container
    host = value_of(options, "host")
    if isinstance(host, str) and host in CLOSED:
        return None
    if container is None or container.network == "host":
        where = "the host's network, " if container is not None else ""
        if host is None or host == "":
            shown: Severity = "warning" if container is not None else "info"
            return f"{where}no --host, so it listens on all addresses", None, shown
        place = options.given["host"].place if "host" in options.given else None
        return f"{where}--host {host}", place, None
    port = options.get("port", DEFAULT_PORT)
    for row in container.ports:
        if row.host is None or row.address in CLOSED:
            continue
        if container.platform == "kubernetes":
            return f"hostPort {row.host}", row.place, None
        if isinstance(port, Unknown):
            raise Unavailable(f"the port is {port.text}, which the launch does not tell")
        if row.container == port:
            return f"port {row.host} is published on all addresses", row.place, None
    for service in container.services:
        if service.kind in ("LoadBalancer", "NodePort"):
            return f"the service {service.name} is a {service.kind}", service.place, None
    return None


@check("security-key-exposed", severity="warning", category="security", since="0.2")
def key_exposed(launch: Launch) -> Iterator[Finding]:
    """A key stands in plain text in the command line, the manifest or the image.

    ## Why it matters
    A command line is shown by `ps` to every user and by `kubectl describe`; a manifest lies in a
    repository; a variable of an image is in its history for ever.

    ## How it decides
    A value behind --api-key, --hf-token and the like, under such a key of a configuration file, or
    of a variable whose name says that it is a secret (HF_TOKEN, VLLM_API_KEY, *_PASSWORD). A
    reference to a secret, to a variable of the shell, and words that only stand for a key (EMPTY,
    changeme, <token>) are none. The report never holds the value. Keys in Python:
    security-key-in-source.

    ## Fix safety
    Manual: the key has to be revoked, too.
    """
    if launch.kind == "python":
        raise NotApplicable("security-key-in-source reads Python")
    for name, place, shown in (*_in_words(launch.words), *_in_rows(launch)):
        yield Finding(
            about=f"{launch.name} {name}",
            message=f"a key stands in plain text in {shown}: {name}",
            evidence=(Evidence(source=place.file, line=place.line, excerpt=f"{name} {MASK}"),),
            fixes=(take_key_out(launch, name, place),),
        )


def _in_words(words: tuple[Word, ...]) -> Iterator[tuple[str, Place, str]]:
    for index, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        option = SECRET_OPTION.fullmatch(name)
        if option is None or name.endswith("keyfile") or word.unknown:
            continue
        if not equals:
            follows = words[index + 1] if index + 1 < len(words) else None
            if follows is None or follows.unknown or follows.text.startswith("-"):
                continue
            value = follows.text
        if _is_key(value):
            yield name, word.place, "the command line"


def _in_rows(launch: Launch) -> Iterator[tuple[str, Place, str]]:
    rows: tuple[Keyword | Variable, ...] = (*launch.config, *launch.environment)
    for row in rows:
        if isinstance(row, Keyword):
            secret = SECRET_OPTION.fullmatch(f"--{row.name}") and not row.name.endswith("keyfile")
            where = "the configuration file"
        else:
            secret = SECRET_NAME.search(row.name) is not None
            where = "the environment" if launch.kind in ("command", "script") else "the file"
        public = PUBLIC_NAME.search(row.name) is not None
        if secret and not public and isinstance(row.value, str) and _is_key(row.value):
            yield row.name, row.place, where


def _is_key(value: str) -> bool:
    if value == MASK:
        return True
    reference = value[:1] in ("$", "<", "{") and ":-" not in value  # ${A:-KEY} holds a key
    return not (not value or may_be_shown(value) or reference or value.lower() in SWITCHES)


@check("security-remote-code", severity="warning", category="security", since="0.2")
def remote_code(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The engine runs code of the model's repository, whatever it is on that day.

    ## Why it matters
    --trust-remote-code runs Python from the repository with the engine's rights: keys in its
    environment, mounted files, the network. Who can write to that repository can do so too.

    ## How it decides
    trust_remote_code is set and the model is a hub id without --revision or --code-revision: a
    warning. With a revision, or from a folder, the code does not change by itself: info. Whether
    the model needs it at all is another check.

    ## Fix safety
    Manual.
    """
    if value_of(options, "trust_remote_code", False) is not True:
        return
    model = options.model.value if options.model else None
    name = model if isinstance(model, str) else "the model"
    local = name.startswith(("/", ".", "~"))
    pinned = any(options.get(key) for key in ("revision", "code_revision"))
    where = f"the folder {name}" if local else f"{name} at a fixed revision"
    place = options.given["trust_remote_code"].place
    yield Finding(
        about=launch.name,
        message=f"--trust-remote-code runs whatever Python code is in {where}"
        if local or pinned
        else "--trust-remote-code runs whatever Python code is in the repository of "
        f"{name} on that day",
        severity="info" if local or pinned else "warning",
        evidence=evidence(options, "trust_remote_code", "model"),
        fixes=() if local or pinned else (pin_remote_code(name, place),),
    )


@check("security-host-shared", severity="warning", category="security", since="0.2")
def host_shared(launch: Launch) -> Iterator[Finding]:
    """The container has rights over its host: who breaks into the engine has the machine.

    ## Why it matters
    An engine parses what strangers send: images, templates, grammars. With the host's network and
    root, all capabilities, the Docker socket or the root folder, a fault in it is one of the host.

    ## How it decides
    privileged; the socket of Docker or containerd, or / of the host, mounted; or the host's network
    together with root: `user` is root or nothing is said and the image is vLLM's, which runs as
    root (Docker and Kubernetes take the image's user then: likely). GPUs need none of these.
    InfiniBand may need the host's network; then name a user.

    ## Fix safety
    Manual.
    """
    container = require_container(launch)
    for about, message, place, fix in _rights(container):
        yield Finding(
            about=f"{launch.name} {about}",
            message=f"{container.name} {message}",
            confidence="likely" if about == "network" and container.user is None else "certain",
            evidence=(written(launch, place, SAID.get(about, f"mounted: {about}")),),
            fixes=(fix,),
        )


def _rights(container: Container) -> Iterator[tuple[str, str, Place, Fix]]:
    place = container.place
    kubernetes = container.platform == "kubernetes"
    if container.privileged:
        yield (
            "privileged",
            "is privileged: it has every right of its host",
            place,
            drop_rights(
                "Leave out privileged: GPUs do not need it",
                place,
                "remove privileged: true",
                "for RDMA: capabilities: {add: [IPC_LOCK]}"
                if kubernetes
                else "cap_add: [IPC_LOCK]",
            ),
        )
    for row in container.volumes:
        if row.source in SOCKETS or row.target in SOCKETS:
            yield (
                row.source or row.target,
                f"has {row.source or row.target}: with it, it can start anything on the host",
                row.place,
                drop_rights("Do not mount the socket", row.place, "remove the mount"),
            )
        elif row.source == "/" and row.kind in ("bind", "hostPath"):
            yield (
                "/",
                f"has / of its host mounted at {row.target}",
                row.place,
                drop_rights("Mount only the folder of the models", row.place, "remove the mount"),
            )
    root = container.user in ROOT_USERS or (
        container.user is None
        and container.run_as_non_root is not True
        and "vllm-openai" in (container.image or "")
    )
    if container.network == "host" and root:
        yield (
            "network",
            "runs as root in the host's network",
            place,
            drop_rights(
                "Give the container its own network or a user without rights",
                place,
                "hostNetwork: false, or securityContext: {runAsUser: 1000, runAsNonRoot: true}"
                if kubernetes
                else "publish the port instead of network host, or set user 1000:1000",
            ),
        )


@check("security-cors-open", severity="warning", category="security", since="0.2")
def cors_open(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """Any web page may ask the engine with the credentials of its reader.

    ## Why it matters
    A page that somebody in the network opens can send requests to the engine and read the answers,
    with cookies or client certificates that a proxy before the engine trusts.

    ## How it decides
    --allow-credentials while the origins hold *, which is vLLM's own list when --allowed-origins is
    not given, up to 0.31 (cli_args.py; empty since 0.32: no page may ask). Starlette then
    answers with the origin that asked.

    ## Fix safety
    Manual.
    """
    if value_of(options, "allow_credentials", False) is not True:
        return
    origins = value_of(options, "allowed_origins")
    if "allowed_origins" not in options.given:
        version = series(options.version)
        if version is None:
            raise Unavailable("the version, and with it the default origins, is not known")
        origins = [] if version >= ORIGINS_CLOSED_SINCE else ["*"]
    if isinstance(origins, str):
        origins = [origins]
    if not isinstance(origins, Sequence):
        raise Unavailable(f"--allowed-origins is {origins!r}, no list")
    if "*" not in origins:
        return
    given = "allowed_origins" in options.given
    yield Finding(
        about=launch.name,
        message="--allow-credentials with origins *"
        + ("" if given else ", the default")
        + ": every web page may ask with its reader's credentials",
        evidence=evidence(options, "allow_credentials", "allowed_origins"),
        fixes=(name_origins(options.given["allow_credentials"].place),),
    )
