"""What the NVIDIA run-time mounted into a container."""

from __future__ import annotations

import re
from collections.abc import Mapping

from infer_doctor.facts.driver import LIBRARY_FOLDERS
from infer_doctor.facts.machine import Environ, Identity
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.registry import probe

CAPABILITIES = {"libcuda.so.1": "compute", "libnvidia-ml.so.1": "utility"}
"""Library -> the driver capability that mounts it (NVIDIA Container Toolkit, "Driver Capabilities")."""

LOADER_CACHE = "/etc/ld.so.cache"


@frozen
class MountedDriver:
    """The driver's libraries in a container that was given GPUs: name -> path, None when not found."""

    libraries: Mapping[str, str | None]


def gpu_nodes(identity: Identity) -> tuple[str, ...]:
    """The nodes of GPUs in /dev: nvidia0, not nvidiactl or nvidia-uvm."""
    return tuple(name for name in identity.devices if re.fullmatch(r"nvidia\d+", name))


@probe
def mounted_driver(host: Host, identity: Identity, environ: Environ) -> MountedDriver:
    """Look where the loader would: LD_LIBRARY_PATH, its cache, the usual folders."""
    if identity.container is None:
        raise Absent("not in a container")
    if not gpu_nodes(identity):
        raise Absent("the container has no GPU node in /dev")
    folders = [*environ.variables.get("LD_LIBRARY_PATH", "").split(":"), *LIBRARY_FOLDERS]
    wanted = tuple(dict.fromkeys(folder.rstrip("/") for folder in folders if folder))
    return MountedDriver(libraries={name: _find(host, name, wanted) for name in CAPABILITIES})


def _find(host: Host, name: str, folders: tuple[str, ...]) -> str | None:
    candidates = [f"{folder}/{name}" for folder in folders] + _cached(host, name)
    return next((found for path in candidates if (found := host.real(path))), None)


def _cached(host: Host, name: str) -> list[str]:
    """The paths that the loader's cache has for the library."""
    pattern = f"/[!-~]+/{re.escape(name)}(?![!-~])"
    try:
        found = host.ask("find", path=LOADER_CACHE, pattern=pattern, limit=4)
    except Unavailable as error:
        if error.code == "ENOENT":
            return []
        raise
    return list(found["matches"])
