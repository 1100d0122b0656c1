"""What will be started: one `Launch`, whatever it was written in.

A reader only reads: it does not know which options an engine has. `facts/engine_options.py` makes
typed values out of `words`, `config` and `keywords`, by the version that will run.
"""

from __future__ import annotations

from typing import Any, Literal

from infer_doctor.frozen import frozen

COMMAND_LINE = "command line"
"""The file of a Place for what stands after `--`."""

Kind = Literal[
    "command",
    "script",
    "docker-run",
    "compose",
    "kubernetes",
    "helm",
    "skypilot",
    "systemd",
    "dockerfile",
    "config",
    "python",
]


@frozen
class Place:
    """Where something is written; `line` counts from 1."""

    file: str
    line: int | None = None

    @property
    def text(self) -> str:
        """FILE:LINE, as compilers write it."""
        return f"{self.file}:{self.line}" if self.line else self.file


class Unknown:
    """A value that cannot be known from the file, such as os.environ["X"] or $(MODEL)."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Unknown({self.text!r})"

    def __str__(self) -> str:
        """As it is written in the file: messages say it so."""
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown) and other.text == self.text

    def __hash__(self) -> int:
        return hash(("Unknown", self.text))


@frozen
class Word:
    """A word of a command line, quotes removed and known variables put in.

    `unknown` is the expression that could not be put in ("$MODEL", "{{ .Values.model }}"); `text`
    then still holds it.
    """

    text: str
    place: Place
    unknown: str | None = None


@frozen
class Keyword:
    """A key of a configuration file or a keyword of a Python call; `value` may be Unknown."""

    name: str
    value: Any
    place: Place


@frozen
class Variable:
    """An environment variable of the process that starts; None is a value not in the file."""

    name: str
    value: str | None
    place: Place
    source: str | None = None
    """Where a value that is not here comes from: "secret hf-token", "shell", "config map x". The name
    "*" stands for all variables of such a source."""


@frozen
class Volume:
    """A mount: `kind` is bind, volume, tmpfs, emptyDir, emptyDir-memory, pvc, hostPath, secret,
    configMap, image or unknown. Sizes in bytes."""

    kind: str
    target: str
    source: str | None = None
    size: int | None = None
    read_only: bool = False
    place: Place


@frozen
class HealthProbe:
    """A probe of Kubernetes or the healthcheck of Docker. Times in seconds, as the file or the
    platform's default says."""

    kind: Literal["startup", "liveness", "readiness", "docker"]
    action: str
    """"http /health :8000", "tcp :8000", "exec curl ...", "grpc"."""
    path: str | None = None
    port: int | str | None = None
    initial_delay_s: float = 0
    period_s: float = 10
    timeout_s: float = 1
    failures: int = 3
    place: Place


@frozen
class Port:
    """A published port; `address` is the host address it is bound to, None where that is open."""

    container: int
    host: int | None = None
    address: str | None = None
    written: str | None = None
    """As it stands in the file of Compose, with its variables."""
    place: Place


@frozen
class Service:
    """A service of Kubernetes: `kind` is its type, "LoadBalancer", "NodePort" or "ClusterIP"."""

    name: str
    kind: str
    port: int | None = None
    place: Place


@frozen
class Container:
    """What surrounds the process when a container platform starts it.

    None is "not written there". Sizes in bytes. `gpus` is a number, "all" or Unknown; `gpu_place`
    where it stands. `group_size` is the number of pods that form one engine (LeaderWorkerSet).
    """

    platform: Literal["docker", "compose", "kubernetes", "dockerfile"]
    name: str
    image: str | None = None
    image_place: Place | None = None
    gpus: int | str | Unknown | None = None
    gpu_place: Place | None = None
    gpu_claims: tuple[str, ...] = ()
    """Dynamic Resource Allocation: the names of the resource claims of the container."""
    gpu_devices: tuple[str, ...] = ()
    other_devices: tuple[str, ...] = ()
    """Devices and extended resources that are not NVIDIA's: /dev/kfd, amd.com/gpu."""
    memory_limit: int | None = None
    memory_place: Place | None = None
    cpu_limit: float | None = None
    cpu_place: Place | None = None
    shm_size: int | None = None
    shm_place: Place | None = None
    ipc: str | None = None
    network: str | None = None
    privileged: bool = False
    user: str | None = None
    run_as_non_root: bool | None = None
    restart: str | None = None
    runtime: str | None = None
    volumes: tuple[Volume, ...] = ()
    ports: tuple[Port, ...] = ()
    services: tuple[Service, ...] = ()
    """Of the same file, as far as they choose this pod by its labels."""
    probes: tuple[HealthProbe, ...] = ()
    ulimits: tuple[tuple[str, str], ...] = ()
    replicas: int | None = None
    group_size: int | None = None
    termination_grace_s: float | None = None
    node_selector: tuple[tuple[str, str], ...] = ()
    place: Place


@frozen
class Launch:
    """One engine that is to be started.

    `machine` is "local" for a command or script of this machine, "another" for what a manifest,
    compose file, Dockerfile or unit starts: facts of this machine then never judge it.
    """

    name: str
    """Of the subject: "command line", "compose.yaml: vllm", "deploy.yaml: Deployment/llm: server"."""
    kind: Kind
    machine: Literal["local", "another"]
    engine: Literal["vllm", "tensorrt-llm"] | None
    entry: str
    """"serve", "api_server", "LLM", "EngineArgs", "AsyncEngineArgs", "bench", "trtllm-serve",
    "trtllm-build", "client" and the like: its defaults differ."""
    place: Place
    program: tuple[Word, ...] = ()
    """What stands before the engine's own words: "mpirun -n 2", "python -m vllm...", "vllm serve"."""
    origin: str | None = None
    """Of a Python call: what is called, such as "tensorrt_llm._tensorrt_engine.LLM"."""
    at_import: bool = False
    """Of a Python call: it runs whenever the file is imported, also by a process that is spawned."""
    executable: str | None = None
    """The program itself, without what wraps it: "vllm", "/opt/venv/bin/python"."""
    words: tuple[Word, ...] = ()
    """What follows it: options and the model."""
    config: tuple[Keyword, ...] = ()
    """The keys of the file that --config (vLLM) or --extra_llm_api_options (TensorRT-LLM) names."""
    keywords: tuple[Keyword, ...] = ()
    """Of a Python call; positional ones have the name of their parameter where it is known."""
    installs: tuple[Word, ...] = ()
    """What `pip install` lines of the same script or image install before."""
    environment: tuple[Variable, ...] = ()
    """In the order written: the last one of a name counts."""
    container: Container | None = None
    working_folder: str | None = None
    gaps: tuple[str, ...] = ()
    """What could not be read, one clause each: no check may then call the launch healthy."""

    @property
    def command(self) -> tuple[str, ...]:
        """The whole command line as texts."""
        return tuple(word.text for word in (*self.program, *self.words))
