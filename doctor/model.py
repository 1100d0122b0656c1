"""The words every part of the doctor speaks: what a check yields and what a report holds.

Frozen keyword-only dataclasses without behaviour. `docs/report.schema.json` is made from `Report`
(see `docs/make_schema.py`), so a change here is a change of the contract: additions only.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from infer_doctor.frozen import frozen

Severity = Literal["error", "warning", "info"]
"""error: the launch will fail or answers are wrong; warning: slow, fragile or insecure."""

Confidence = Literal["certain", "likely", "possible"]
Outcome = Literal["passed", "failed", "not_applicable", "blocked", "crashed"]
Verdict = Literal["pass", "fail", "unknown"]
EXIT: dict[Verdict, int] = {"pass": 0, "fail": 1, "unknown": 3}
"""The exit codes; 2 is wrong usage or a fault of the doctor (cli.py)."""

Safety = Literal["safe", "unsafe", "manual"]
"""safe: reversible, no restart, no loss, no privilege beyond the file's owner."""

Category = Literal[
    "abi_symbol",
    "arch_no_kernel",
    "attention_backend",
    "auth",
    "capability_fp8_fa",
    "client",
    "cluster_difference",
    "cold_start",
    "container",
    "cuda_error",
    "device_ids",
    "disk_full",
    "driver_cuda",
    "dtype",
    "dtype_bf16",
    "engine_stalled",
    "environment",
    "fabric_manager",
    "gpu_count_ray",
    "gpu_health",
    "hf_access",
    "host_ram",
    "kernel_lib_version",
    "launch_argument",
    "max_model_len",
    "missing_lib",
    "model_files",
    "model_name",
    "multiproc_fork",
    "nccl_network",
    "nccl_shm",
    "oom_graph_warmup",
    "oom_kv_cache",
    "oom_load",
    "oom_runtime",
    "oom_startup_free_mem",
    "p2p_allreduce",
    "port_in_use",
    "proxy",
    "quality",
    "quantization",
    "queueing",
    "request_timeout",
    "security",
    "server_unreachable",
    "tokenizer",
    "tp_divisibility",
    "transformers_version",
    "trt_backend_load",
    "trt_build_flags",
    "trt_engine_mismatch",
    "trt_kv_memory",
    "trt_limits",
    "trt_world_size_mpi",
    "weights_corrupt",
    "wrapper_generic",
]


@frozen
class Evidence:
    """Where a statement comes from: a file, a command or a library call, and what it said."""

    source: str
    line: int | None = None
    excerpt: str = ""


@frozen
class Action:
    """One step of a fix that a person takes: a command line to run, or a sentence."""

    kind: Literal["command", "text"]
    text: str


Format = Literal[
    "command",
    "shell",
    "yaml",
    "json",
    "toml",
    "env",
    "dockerfile",
    "systemd",
    "python",
    "metadata",
]
"""What the file of an Edit is written in; "command" is the command line after `--`, "metadata" the
METADATA of a distribution."""


@frozen
class Edit:
    """One change of a text file that leaves comments, order and formatting as they are.

    Made by `fixes/launching.py`; `docs/fixes.md` tells what each field means for each `what`.
    """

    kind: Literal["edit"] = "edit"
    text: str
    file: str
    format: Format
    what: Literal["option", "variable", "key", "keyword"]
    do: Literal["set", "remove", "rename", "append", "replace", "ensure"]
    """"replace" sets only what is there, "ensure" only what is not."""
    name: str = ""
    path: tuple[str | int, ...] = ()
    value: str | None = None
    old: str | None = None
    line: int | None = None
    anchor: str | None = None


@frozen
class SetVariable:
    """An environment variable of the next start; None takes it out. `text` is the shell line."""

    kind: Literal["variable"] = "variable"
    text: str
    name: str
    value: str | None


@frozen
class WriteFile:
    """A whole new file, with the folders above it. `text` is a command that does the same."""

    kind: Literal["write"] = "write"
    text: str
    file: str
    content: str
    mode: int = 0o644


@frozen
class RemoveFiles:
    """Files or whole folders that are taken away; they are kept until the run is forgotten."""

    kind: Literal["remove"] = "remove"
    text: str
    files: tuple[str, ...]


@frozen
class Packages:
    """Distributions that the installer of an environment removes and installs.

    `install` are requirements with a version each; `options` of `pip install`, such as
    "--no-deps" or "--index-url", URL. `text` is the command.
    """

    kind: Literal["packages"] = "packages"
    text: str
    python: str
    remove: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    uv: bool = False


@frozen
class EndProcess:
    """End a process: SIGTERM, then SIGKILL. `started` is field 22 of /proc/PID/stat, in ticks."""

    kind: Literal["end"] = "end"
    text: str
    pid: int
    started: int
    name: str = ""


@frozen
class Fetch:
    """Download broken files of a model again, through the huggingface_hub of `python`.

    `folder` None: into the local cache. `files` are names in the repository.
    """

    kind: Literal["fetch"] = "fetch"
    text: str
    python: str
    repository: str
    revision: str | None
    folder: str | None
    files: tuple[str, ...]


@frozen
class ConvertWeights:
    """Write .bin weights of a folder as safetensors, with the torch of `python`."""

    kind: Literal["convert"] = "convert"
    text: str
    python: str
    folder: str
    files: tuple[str, ...]


AnyAction = (
    Action
    | Edit
    | SetVariable
    | WriteFile
    | RemoveFiles
    | Packages
    | EndProcess
    | Fetch
    | ConvertWeights
)
"""The closed set of what a fix may do. Action is for people; the others `infer-doctor fix` does."""


@frozen
class Fix:
    """A cure: the title is an imperative with the numbers of this case."""

    id: str
    title: str
    safety: Safety
    restarts: bool
    why: str | None = None
    actions: tuple[AnyAction, ...] = ()


@frozen
class Finding:
    """What is wrong with one affected thing.

    A check gives `about`, `message`, `evidence` and `fixes`, and where it must differ from what its
    decorator says, `severity`, `confidence` or `category`. The engine stamps the rest. On the wire
    `fixes` are the ids of the report's fixes.
    """

    about: str
    message: str
    evidence: tuple[Evidence, ...]
    fixes: tuple[Fix, ...] = ()
    severity: Severity | None = None
    confidence: Confidence = "certain"
    category: Category | None = None
    check: str = ""
    subject: str = ""
    fingerprint: str = ""
    suppressed: str | None = None
    """Why it does not count: the reason of a suppression, or the baseline that has it."""


@frozen
class Missing:
    """A fact that could not be had. `absent` is the proof that there is nothing to judge."""

    fact: str
    reason: str
    kind: Literal["absent", "unavailable", "crashed"]


@frozen
class CheckResult:
    """One row of the report: a check and what came of it for one subject."""

    check: str
    subject: str
    outcome: Outcome
    reason: str | None
    duration_ms: float
    findings: tuple[Finding, ...] = ()


@frozen
class Engine:
    """The inference engine that is examined."""

    name: str
    version: str | None


@frozen
class Target:
    """What was examined."""

    host: dict[str, Any]
    engine: Engine | None = None
    launch: tuple[str, ...] | None = None


@frozen
class Counts:
    """Findings by severity, then results by outcome."""

    error: int = 0
    warning: int = 0
    info: int = 0
    passed: int = 0
    failed: int = 0
    not_applicable: int = 0
    blocked: int = 0
    crashed: int = 0


@frozen
class Redaction:
    """How many different values of one kind were masked."""

    kind: str
    count: int


@frozen
class Tool:
    """The program that wrote the report."""

    name: str
    version: str


@frozen
class Report:
    """What every command prints, in one of several forms."""

    schema_version: Literal[1] = 1
    tool: Tool
    command: str
    started_at: str
    duration_s: float
    target: Target
    verdict: Verdict
    counts: Counts
    primary: Finding | None
    results: tuple[CheckResult, ...]
    fixes: tuple[Fix, ...] = ()
    plan: dict[str, Any] | None = None
    measurements: dict[str, Any] | None = None
    redactions: tuple[Redaction, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
