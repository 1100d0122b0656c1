"""Fixes for what lets strangers in. Who may reach an engine is its owner's decision: manual or unsafe."""

from __future__ import annotations

from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.fixes.launching import format_of, set_field, set_option
from infer_doctor.launch.model import Launch, Place
from infer_doctor.model import Action, AnyAction, Edit, Fix


def _fix(name: str, title: str, *steps: str, why: str | None = None) -> Fix:
    return Fix(
        id=name,
        title=title,
        safety="manual",
        restarts=True,
        why=why,
        actions=tuple(Action(kind="text", text=step) for step in steps),
    )


def require_key(launch: Launch, engine: str) -> Fix:
    """A key, or an address that strangers do not reach."""
    closed = {
        "kubernetes": "make the service type ClusterIP and let a gateway with authentication "
        "stand before it",
        "compose": 'publish the port on this machine only: "127.0.0.1:8000:8000"',
        "docker-run": "publish the port on this machine only: -p 127.0.0.1:8000:8000",
    }.get(launch.kind, "listen on this machine only: --host 127.0.0.1")
    if engine != "vllm":
        return _fix("close-address", f"Close the address: {closed}", closed)
    return _fix(
        "require-key",
        "Require a key: set VLLM_API_KEY from a secret",
        "set VLLM_API_KEY in the engine's environment, from a secret; clients send it as Bearer",
        f"or {closed}",
        why="the key protects /v1 only: /health, /metrics, /tokenize and others stay open",
    )


def listen_here(launch: Launch, options: EngineOptions) -> tuple[Fix, ...]:
    """An address that only this machine reaches: clients elsewhere no longer do."""
    container = launch.container
    actions: tuple[AnyAction, ...] = ()
    said = "--host 127.0.0.1"
    if container is None or container.network == "host":
        actions = set_option(launch, "--host", "127.0.0.1", options.given.get("host"))
    elif launch.kind in ("compose", "docker-run"):
        port = options.get("port", 8000)
        rows = [row for row in enumerate(container.ports) if row[1].container == port]
        rows = [row for row in rows if row[1].host is not None and row[1].address is None]
        if len(rows) == 1:
            number, row = rows[0]
            with_variable = row.written is not None and "$" in row.written
            said = f"127.0.0.1:{row.written if with_variable else f'{row.host}:{row.container}'}"
            actions = set_field(launch, ("ports", number), said, "replace") or (
                Edit(
                    text=f"in {row.place.text}: publish {said}",
                    file=row.place.file,
                    format=format_of(launch, row.place),
                    what="option",
                    do="rename",
                    name="-p",
                    old=f"{row.host}:{row.container}",
                    value=f"-p {said}",
                    line=row.place.line,
                ),
            )
    if not actions:
        return ()
    return (
        Fix(
            id="listen-here",
            title=f"Or let only this machine in: {said}",
            safety="unsafe",
            restarts=True,
            why="clients on other machines then need a gateway on this one",
            actions=actions,
        ),
    )


def pin_remote_code(model: str, place: Place) -> Fix:
    """The code that was read, and no other."""
    return _fix(
        "pin-remote-code",
        "Pin the code that was read: --revision COMMIT --code-revision COMMIT",
        f"in {place.text} add: --revision COMMIT --code-revision COMMIT",
        f"the commits are at https://huggingface.co/{model}/commits/main"
        if "/" in model and not model.startswith(("/", "."))
        else "take the commit of the model's repository",
    )


def take_key_out(launch: Launch, name: str, place: Place) -> Fix:
    """The key where only the engine sees it."""
    variable = name if name.isupper() else "VLLM_API_KEY"
    steps = {
        "kubernetes": f"in {place.text}: env: [{{name: {variable}, valueFrom: {{secretKeyRef: "
        "{name: engine-keys, key: key}}}]",
        "compose": f"in {place.text}: environment: [{variable}], with the value in an .env file "
        "that is not committed, or in `secrets`",
        "docker-run": f"in {place.text}: -e {variable} (no value: it comes from the shell)",
        "dockerfile": f"remove the line in {place.text}; give {variable} when the container starts",
        "systemd": "EnvironmentFile=/etc/engine/keys, with mode 0600",
    }
    step = steps.get(launch.kind, f"export {variable} from a file that only its owner can read")
    return _fix(
        "take-key-out",
        f"Take the key out of {place.text} and revoke it",
        step,
        "revoke the key where it was issued and make a new one",
    )


def drop_rights(title: str, place: Place, *steps: str) -> Fix:
    """Less than the container has."""
    return _fix("drop-rights", title, *(f"in {place.text}: {step}" for step in steps))


def name_origins(place: Place) -> Fix:
    """Only the pages that may ask."""
    return _fix(
        "name-origins",
        "Name the pages that may ask: --allowed-origins '[\"https://app.example.com\"]'",
        f"in {place.text} replace * by the origins, or leave --allow-credentials out",
    )
