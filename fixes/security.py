"""Fixes for what lets strangers in. All are manual: who may reach an engine is its owner's decision."""

from __future__ import annotations

from infer_doctor.launch.model import Launch, Place
from infer_doctor.model import Action, Fix


def _at(place: Place) -> str:
    return f"{place.file}:{place.line}" if place.line else place.file


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


def pin_remote_code(model: str, place: Place) -> Fix:
    """The code that was read, and no other."""
    return _fix(
        "pin-remote-code",
        "Pin the code that was read: --revision COMMIT --code-revision COMMIT",
        f"in {_at(place)} add: --revision COMMIT --code-revision COMMIT",
        f"the commits are at https://huggingface.co/{model}/commits/main"
        if "/" in model and not model.startswith(("/", "."))
        else "take the commit of the model's repository",
    )


def take_key_out(launch: Launch, name: str, place: Place) -> Fix:
    """The key where only the engine sees it."""
    variable = name if name.isupper() else "VLLM_API_KEY"
    steps = {
        "kubernetes": f"in {_at(place)}: env: [{{name: {variable}, valueFrom: {{secretKeyRef: "
        "{name: engine-keys, key: key}}}]",
        "compose": f"in {_at(place)}: environment: [{variable}], with the value in an .env file "
        "that is not committed, or in `secrets`",
        "docker-run": f"in {_at(place)}: -e {variable} (no value: it comes from the shell)",
        "dockerfile": f"remove the line in {_at(place)}; give {variable} when the container starts",
        "systemd": "EnvironmentFile=/etc/engine/keys, with mode 0600",
    }
    step = steps.get(launch.kind, f"export {variable} from a file that only its owner can read")
    return _fix(
        "take-key-out",
        f"Take the key out of {_at(place)} and revoke it",
        step,
        "revoke the key where it was issued and make a new one",
    )


def drop_rights(title: str, place: Place, *steps: str) -> Fix:
    """Less than the container has."""
    return _fix("drop-rights", title, *(f"in {_at(place)}: {step}" for step in steps))


def name_origins(place: Place) -> Fix:
    """Only the pages that may ask."""
    return _fix(
        "name-origins",
        "Name the pages that may ask: --allowed-origins '[\"https://app.example.com\"]'",
        f"in {_at(place)} replace * by the origins, or leave --allow-credentials out",
    )
