"""Where the libraries look for a model: a folder, or a hub's cache on this machine.

huggingface_hub/constants.py and file_download.py (2.4, the same names since 0.8), modelscope's
snapshot_download.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from infer_doctor.host import Unavailable
from infer_doctor.versions import release

TRUE = ("1", "ON", "YES", "TRUE")
"""ENV_VARS_TRUE_VALUES of huggingface_hub/constants.py."""

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")
"""namespace/name or name (validate_repo_id of huggingface_hub/utils/_validators.py)."""

COMMIT = re.compile(r"[0-9a-f]{40}")

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")

TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Where huggingface_hub looks for a token, before its file (utils/_auth.py)."""

PLACES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
"""What places the cache, see `caches`."""

ENDPOINT = "https://huggingface.co"

MODELSCOPE = "VLLM_USE_MODELSCOPE"
MODELSCOPE_TAKES_ONE = (0, 32)
"""vllm/envs.py of 0.32.0 takes "1" and "true"; releases before took "true" alone ("not numbers"), up to
which one was not looked at."""


def is_true(variables: Mapping[str, str], *names: str) -> bool:
    """Whether one of the variables is set to what the hub's libraries take for true."""
    return any(variables.get(name, "").upper() in TRUE for name in names)


def is_true_for_vllm(value: str | None) -> bool:
    """Whether vLLM takes a value of its own switches for true (vllm/envs.py): not "yes" and "on"."""
    return (value or "").strip().lower() in ("1", "true")


def from_modelscope(variables: Mapping[str, str], version: str | None) -> bool:
    """Whether vLLM gets its models from ModelScope; raises Unavailable where its version matters."""
    value = variables.get(MODELSCOPE, "").strip()
    if value == "1" and release(version) < MODELSCOPE_TAKES_ONE:
        raise Unavailable(f"whether vLLM {version or ''} takes {MODELSCOPE}=1 is not catalogued")
    return is_true_for_vllm(value)


def offline(variables: Mapping[str, str]) -> str | None:
    """The variable that forbids downloads: "HF_HUB_OFFLINE=1"."""
    return next((f"{name}={variables[name]}" for name in OFFLINE if is_true(variables, name)), None)


def is_repository(name: str) -> bool:
    """Whether a name may be one of the hub."""
    return bool(REPOSITORY.fullmatch(name)) and "--" not in name and ".." not in name


def expand(path: str, variables: Mapping[str, str]) -> str:
    """~ and $NAME as the libraries expand them."""
    if path == "~" or path.startswith("~/"):
        path = variables.get("HOME", "~") + path[1:]
    return re.sub(
        r"\$(?:(\w+)|\{(\w+)\})", lambda m: variables.get(m[1] or m[2], m[0]), path
    ).rstrip("/") or ("/" if path.startswith("/") else "")


def caches(variables: Mapping[str, str]) -> list[str]:
    """The folders of the hub's cache, the one that huggingface_hub takes first."""
    home = variables.get("HOME", "~")
    cache = variables.get("XDG_CACHE_HOME") or f"{home}/.cache"
    first = (
        variables.get("HF_HUB_CACHE")
        or variables.get("HUGGINGFACE_HUB_CACHE")
        or f"{variables.get('HF_HOME') or f'{cache}/huggingface'}/hub"
    )
    found = [first, *filter(None, (variables.get("TRANSFORMERS_CACHE"),))]
    return list(dict.fromkeys(expand(path, variables) for path in found))


def modelscope_folders(name: str, variables: Mapping[str, str], root: str | None) -> list[str]:
    """Where ModelScope keeps a model: its newer and its older layout (dots become ___)."""
    home = variables.get("HOME", "~")
    cache = root or variables.get("MODELSCOPE_CACHE") or f"{home}/.cache/modelscope/hub"
    base = expand(cache, variables)
    names = dict.fromkeys((name, name.replace(".", "___")))
    return [f"{base}/{middle}{one}" for middle in ("models/", "") for one in names]


def folder_name(name: str) -> str:
    """models--meta-llama--Llama-3.1-8B (repo_folder_name of file_download.py)."""
    return "--".join(("models", *name.split("/")))


def token_path(variables: Mapping[str, str]) -> str:
    """The file of the token that `hf auth login` writes."""
    home = variables.get("HOME", "~")
    cache = variables.get("XDG_CACHE_HOME") or f"{home}/.cache"
    base = variables.get("HF_HOME") or f"{cache}/huggingface"
    return expand(variables.get("HF_TOKEN_PATH") or f"{base}/token", variables)


def join(base: str, path: str) -> str:
    """An absolute, tidy path."""
    return os.path.normpath(os.path.join(base, path))
