"""Which kind of launch a text is: what it holds decides, its name only between kinds."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from infer_doctor.launch.embedded import markdown, templated, windows
from infer_doctor.launch.model import Launch, Place

if TYPE_CHECKING:
    from infer_doctor.facts.client_code import ClientCode
    from infer_doctor.launch.document import Node

Read = Callable[[str], str]


PYTHON_LINE = re.compile(
    r"^(?:from [\w.]+ import |import [\w.]+(?: as \w+)?(?:,|\s*$)|def \w+\(|class \w+[(:]|@\w+)",
    re.M,
)
JSON_START = re.compile(r"\s*\{\s*[\"}]")
MARKDOWN = (".md", ".mdx", ".markdown", ".rmd")
WINDOWS = (".ps1", ".bat", ".cmd")
RECIPES = ("makefile", "gnumakefile", "justfile", ".justfile")
SHELL_START = re.compile(r"#!.*\b(?:ba|da|z|k|a)?sh\b")
PYTHON_START = re.compile(r"#!.*\bpython")
ENGINE_WORD = re.compile(
    r"(?:^|[\s/\"'=(;&|])(?:vllm|trtllm-[a-z]+|tritonserver)\s|vllm\.entrypoints|vllm-openai|tensorrt_llm\.commands"
)
YAML_LINE = re.compile(r"^(?:---|%YAML|[\"']?[A-Za-z_][\w.-]*[\"']?:(?:\s|$)|- )", re.M)

VLLM_KEYS = frozenset(
    [
        "model",
        "served-model-name",
        "tensor-parallel-size",
        "pipeline-parallel-size",
        "data-parallel-size",
        "max-model-len",
        "gpu-memory-utilization",
        "max-num-seqs",
        "max-num-batched-tokens",
        "quantization",
        "dtype",
        "kv-cache-dtype",
        "enforce-eager",
        "trust-remote-code",
        "enable-prefix-caching",
        "tool-call-parser",
        "reasoning-parser",
        "speculative-config",
        "kv-transfer-config",
        "uvicorn-log-level",
        "api-key",
    ]
)
TRTLLM_KEYS = frozenset(
    [
        "kv_cache_config",
        "cuda_graph_config",
        "moe_config",
        "attn_backend",
        "disable_overlap_scheduler",
        "print_iter_log",
        "enable_attention_dp",
        "pytorch_backend_config",
        "scheduler_config",
        "cache_transceiver_config",
        "sampler_type",
        "build_config",
    ]
)
"""By such keys, the engine's own, a YAML file is known as its configuration."""


class NoLaunch(Exception):
    """The text is of a kind that is known, but starts no engine; the words follow FILE."""


def launches(
    text: str, file: str, beside: Read | None
) -> tuple[list[Launch], ClientCode | None] | None:
    """The launches of a text, and what Python code does; None for a kind that is not known.

    Raises NoLaunch, and document.Broken with FILE:LINE.
    """
    name = os.path.basename(file).lower()
    if name.endswith(MARKDOWN) and (blocks := markdown(text)) is not None:
        return _script(blocks, file, beside, "Markdown whose blocks of commands start"), None
    if name in RECIPES or name.endswith((".mk", ".just")):
        return _script(text, file, beside, "a file of recipes that starts"), None
    if name.endswith(WINDOWS):
        return _script(windows(text, name), file, None, "a script for Windows that starts"), None
    if PYTHON_START.match(text) or name.endswith((".py", ".ipynb")):
        return _python(text, file)
    if SHELL_START.match(text):
        return _script(text, file, beside), None
    from infer_doctor.launch import dockerfile, quadlet, systemd

    if quadlet.is_container(text):
        return _some(quadlet.read(text, file, beside), "a container unit of Podman"), None
    if systemd.is_unit(text):
        return _some(systemd.read(text, file, beside), "a systemd unit"), None
    if dockerfile.is_dockerfile(text):
        return _some(dockerfile.read(text, file), "a Dockerfile"), None
    if name.endswith((".sh", ".bash", ".slurm", ".sbatch", ".sub")):
        return _script(text, file, beside), None
    written = name.endswith((".yaml", ".yml"))
    if written or JSON_START.match(text) or _looks_like_yaml(text):
        found = _yaml(text, file, beside)
        if found is not None or written:
            return (found, None) if found is not None else None
    if PYTHON_LINE.search(text) and not ENGINE_WORD.search(text.partition("\n")[0]):
        return _python(text, file)
    if ENGINE_WORD.search(text):
        said = "not of a form that is read; as a shell script it starts"
        return _script(text, file, beside, said), None
    return None


def _looks_like_yaml(text: str) -> bool:
    """Most lines at the margin are keys, items or comments."""
    margin = [row for row in text[:20_000].splitlines() if row[:1] not in ("", " ", "\t", "#", "}")]
    keys = [row for row in margin if YAML_LINE.match(row) or row.startswith("{{")]
    return bool(margin) and len(keys) * 10 >= len(margin) * 9


def _some(found: list[Launch], what: str) -> list[Launch]:
    return _started(found, f"{what} that starts")


def _started(found: list[Launch], what: str) -> list[Launch]:
    if not found:
        raise NoLaunch(f"is {what} neither vLLM nor TensorRT-LLM")
    return found


def _python(text: str, file: str) -> tuple[list[Launch], ClientCode | None]:
    from infer_doctor.launch import python

    found = python.read(text, file)
    return list(found.launches), found.code


def _script(
    text: str, file: str, beside: Read | None, what: str = "a shell script that starts"
) -> list[Launch]:
    from infer_doctor.launch import script

    if len(text) > script.LIMIT:
        raise NoLaunch(
            f"has {len(text):,} characters, too many for a shell script (at most {script.LIMIT:,})"
        )
    return _started(script.read(templated(text), file, beside), what)


def _yaml(text: str, file: str, beside: Read | None) -> list[Launch] | None:
    from infer_doctor.launch import compose, helm, kubernetes, ray_serve, skypilot, steps
    from infer_doctor.launch.document import documents

    nodes = documents(text, file, twice=_last_counts(text))
    maps = [node for node in nodes if node.is_map]
    if not maps:
        return (steps.read(nodes, file) or None) if ENGINE_WORD.search(text) else None
    manifests = [node for node in maps if kubernetes.is_kubernetes(node)]
    if manifests:
        served = [row for node in manifests if (row := ray_serve.in_service(node)) is not None]
        engines = [row for node in served for row in ray_serve.read(node, file)]
        kinds = ", ".join(dict.fromkeys(node.text("kind") or "?" for node in manifests[:6]))
        engines += kubernetes.read(manifests, file)
        return _some(engines, f"a manifest of Kubernetes ({kinds})")
    if compose.is_compose(maps[0]):
        services = maps[0].get("services")
        names = ", ".join(name for name, _ in (services.items() if services else [])[:6])
        return _some(compose.read(maps[0], file, beside), f"a file of Docker Compose ({names})")
    if ray_serve.is_application(maps[0]):
        return _some(ray_serve.read(maps[0], file), "a configuration of Ray Serve")
    if skypilot.is_task(maps[0]):
        return _some(skypilot.read(maps[0], file), "a task of SkyPilot")
    if (engine := _engine_of(maps[0])) is not None:
        return [_config(text, file, engine)]
    if helm.is_values(maps[0]):
        return _some(helm.read(maps[0], file), "a file of Helm values")
    if ENGINE_WORD.search(text):
        return steps.read(nodes, file) or None
    return None


def _last_counts(text: str) -> bool:
    """Compose and Kubernetes refuse a key that stands twice; for all else the last one counts."""
    return not re.search(r"^(?:services|apiVersion|\"apiVersion\"):", text, re.M)


def _engine_of(node: Node) -> str | None:
    keys = {name for name, _ in node.items()}
    if TRTLLM_KEYS.intersection(keys):
        return "tensorrt-llm"
    return "vllm" if _is_vllm(node, {key.replace("_", "-") for key in keys}) else None


def _is_vllm(node: Node, keys: set[str]) -> bool:
    """Half of the keys are vLLM's: other programs have a `model` and a `port` as well."""
    model = node.get("model")
    if not VLLM_KEYS.intersection(keys) or (model is not None and (model.is_map or model.is_list)):
        return False
    from infer_doctor.vllm_arguments.table import catalogue

    known = sum(bool(catalogue().spans_of_option(f"--{key}")) for key in keys)
    return known * 2 >= len(keys)


def _config(text: str, file: str, engine: str) -> Launch:
    """A configuration file alone: the engine's server with nothing else."""
    from infer_doctor.launch.config import keys

    return Launch(
        name=file,
        kind="config",
        machine="local",
        engine="vllm" if engine == "vllm" else "tensorrt-llm",
        entry="serve" if engine == "vllm" else "trtllm-serve",
        place=Place(file=file, line=1),
        config=keys(text, file),
    )
