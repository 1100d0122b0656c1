"""Where models and compiled kernels are kept, and on which file systems these places are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_files import model_name
from infer_doctor.frozen import frozen
from infer_doctor.host import Host, Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.launch.variables import of_engine, untold
from infer_doctor.models import hub
from infer_doctor.registry import probe

MODELS = "model cache"
KERNELS = ("vLLM cache", "Triton cache", "FlashInfer cache", "Inductor cache")
TEMPORARY = "temporary files"
NAMED_MODEL = "model"


PLACES = (
    "HOME",
    *hub.PLACES,
    "VLLM_CACHE_ROOT",
    "TRITON_CACHE_DIR",
    "TRITON_HOME",
    "FLASHINFER_WORKSPACE_BASE",
    "TMPDIR",
    "TORCHINDUCTOR_CACHE_DIR",
    *hub.OFFLINE,
)
"""What decides where these are, and whether a model is downloaded."""


@frozen
class Place:
    """A folder that an engine uses, and where its path comes from."""

    role: str
    path: str
    source: str
    there: bool
    """Whether the folder exists; else the rest speaks of its nearest existing parent."""
    writable: bool


@frozen
class Store:
    """One file system and the places on it. `inodes` 0: the file system has no such bound."""

    places: tuple[Place, ...]
    mount: str | None
    type: str | None
    read_only: bool
    total: int
    free: int = field(metadata={"report": False})
    inodes: int
    inodes_free: int = field(metadata={"report": False})

    @property
    def about(self) -> str:
        """The places by their roles: the same on every host."""
        return ", ".join(place.role for place in self.places)


@frozen
class Stores:
    """The file systems below the caches. `offline`: nothing is to be downloaded."""

    stores: tuple[Store, ...]
    offline: str | None
    """Why no model is downloaded ("HF_HUB_OFFLINE=1", "/models/x is a local folder"); None if one may be."""
    uid: int
    gaps: tuple[str, ...] = ()


@probe
def stores(
    host: Host, environ: Environ, launch: Launch | None, options: EngineOptions | None
) -> Stores:
    """statvfs of each place; places on one device together."""
    found: dict[int, list[tuple[Place, Mapping[str, object]]]] = {}
    gaps = list(filter(None, [untold(launch, *PLACES)]))
    named = local_model(options)
    variables = of_engine(launch, environ)
    for role, path, source in places(variables, named):
        if not path.startswith(("/", "~")) or "$" in path:
            gaps.append(f"{source}: {path!r} is no absolute path")
            continue
        try:
            space = host.ask("space", path=path)
        except Unavailable as error:
            gaps.append(f"{path}: {error.reason}")
            continue
        place = Place(
            role=role,
            path=path,
            source=source,
            there=space["path"] == path,
            writable=space["writable"],
        )
        found.setdefault(space["device"], []).append((place, space))
    return Stores(
        stores=tuple(_store(rows) for rows in found.values()),
        offline=_offline(variables, named),
        uid=host.ask("identity")["uid"],
        gaps=tuple(gaps),
    )


def _store(rows: list[tuple[Place, Mapping[str, object]]]) -> Store:
    space: Mapping[str, object] = rows[0][1]

    def number(name: str) -> int:
        value = space[name]
        assert isinstance(value, int)
        return value

    mount, kind = space["mount"], space["type"]
    return Store(
        places=tuple(place for place, _ in rows),
        mount=mount if isinstance(mount, str) else None,
        type=kind if isinstance(kind, str) else None,
        read_only=bool(space["read_only"]),
        total=number("total"),
        free=number("free"),
        inodes=number("inodes"),
        inodes_free=number("inodes_free"),
    )


def places(variables: Mapping[str, str], named: str | None) -> list[tuple[str, str, str]]:
    """Role, path and source of each place.

    The order of the variables is that of the libraries: huggingface_hub/constants.py,
    vllm/envs.py (VLLM_CACHE_ROOT), triton/knobs.py (cache), flashinfer/jit/env.py,
    torch/_inductor/runtime/cache_dir_utils.py, tempfile.gettempdir.
    """
    home = variables.get("HOME", "~").rstrip("/")
    cache, below = variables.get("XDG_CACHE_HOME"), "XDG_CACHE_HOME"
    if not cache:
        cache, below = f"{home}/.cache", "HOME"

    def place(
        role: str, default: tuple[str, str], *candidates: tuple[str, str]
    ) -> tuple[str, str, str]:
        for name, rest in candidates:
            if value := variables.get(name):
                return role, _expand(value, home).rstrip("/") + rest, name
        return role, _expand(default[0], home), default[1]

    vllm, triton, flashinfer, inductor = KERNELS
    rows = [
        place(
            MODELS,
            (f"{cache}/huggingface/hub", below),
            ("HF_HUB_CACHE", ""),
            ("HUGGINGFACE_HUB_CACHE", ""),
            ("HF_HOME", "/hub"),
        ),
        place(vllm, (f"{cache}/vllm", below), ("VLLM_CACHE_ROOT", "")),
        place(
            triton,
            (f"{home}/.triton/cache", "HOME"),
            ("TRITON_CACHE_DIR", ""),
            ("TRITON_HOME", "/.triton/cache"),
        ),
        place(
            flashinfer,
            (f"{home}/.cache/flashinfer", "HOME"),
            ("FLASHINFER_WORKSPACE_BASE", "/.cache/flashinfer"),
        ),
        place(TEMPORARY, ("/tmp", "default"), ("TMPDIR", "")),  # noqa: S108
    ]
    if variables.get("TORCHINDUCTOR_CACHE_DIR"):  # by default below the temporary folder
        rows.append(place(inductor, ("", ""), ("TORCHINDUCTOR_CACHE_DIR", "")))
    if named is not None:
        rows.insert(0, (NAMED_MODEL, named, "launch"))
    return rows


def _expand(path: str, home: str) -> str:
    """A leading ~ as the home folder."""
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def local_model(options: EngineOptions | None) -> str | None:
    """The folder that the launch names as its model by an absolute path."""
    if options is None:
        return None
    try:
        name = model_name(options)
    except Unavailable:
        return None
    return (name.rstrip("/") or "/") if name.startswith("/") else None


def _offline(variables: Mapping[str, str], named: str | None) -> str | None:
    if named is not None:
        return f"{named} is a local folder"
    return hub.offline(variables)
