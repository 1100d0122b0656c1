"""A real machine (two H200, vLLM 0.26) whose Python environment is broken in one thing: all checks
run, and what is broken is the only finding of severity error."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from machine import ENGINE, SITE, Change, Machine

FILE = {"kind": "file", "mode": 420, "uid": 0, "size": 1, "writable": True, "executable": False}
SERVE = ("vllm", "serve", "/models/llama-3.1-8b")
MODULE = ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m")
NAMES = (
    "vllm",
    "torch",
    "transformers",
    "tokenizers",
    "huggingface_hub",
    "safetensors",
    "numpy",
    "triton",
    "ray",
    "flashinfer",
    "pydantic",
)


def say(machine: Machine, operation: str, value: Any = None, **arguments: Any) -> None:
    """Set an answer, whether or not the machine was asked."""
    rows = machine.document["captures"]
    rows[:] = [r for r in rows if not (r["operation"] == operation and r["arguments"] == arguments)]
    version = next((r["version"] for r in rows if r["operation"] == operation), 1)
    answer = (
        {"value": value}
        if value is not None
        else {"error": {"code": "ENOENT", "message": "No such file or directory"}}
    )
    rows.append(
        {
            "operation": operation,
            "arguments": arguments,
            "version": version,
            **answer,
            "duration_ms": 0.1,
        }
    )


def install(
    machine: Machine,
    like: str,
    name: str,
    version: str,
    *requires: str,
    folder: str | None = None,
    python: str | None = None,
) -> dict[str, Any]:
    row = {
        **copy.deepcopy(machine.distribution(like)),
        "name": name,
        "version": version,
        "info": f"{name}-{version}.dist-info",
        "requires": list(requires),
    }
    if folder:
        row["folder"] = folder
    if python:
        row["requires_python"] = python
    machine.value("distributions")["distributions"].append(row)
    return row


# --- the engine's requirements (exist already, more of the list)
def xgrammar_gone(machine: Machine) -> None:
    machine.uninstall("xgrammar")


def numpy_gone(machine: Machine) -> None:
    machine.uninstall("numpy")


def triton_gone(machine: Machine) -> None:
    machine.uninstall("triton")


def audio_for_cuda_12(machine: Machine) -> None:
    machine.text(f"{SITE}/torchaudio/version.py", "+cu130", "+cu129")


def vision_of_an_older_torch(machine: Machine) -> None:
    own = machine.distribution("torchvision")
    own["version"] = "0.25.0"
    own["requires"] = [line.replace("2.11.0", "2.10.0") for line in own["requires"]]
    machine.text(f"{SITE}/torchvision/version.py", "0.26.0", "0.25.0")


def two_builds_in_one_folder(machine: Machine) -> None:
    rows = machine.value("distributions")["distributions"]
    install(machine, "vllm", "vllm-nightly", "0.27.0")
    owners = [rows.index(machine.distribution(n)) for n in ("vllm", "vllm-nightly")]
    machine.value("distributions")["shared"] = [
        {"folder": ENGINE, "path": "vllm/version.py", "owners": owners}
    ]


# --- new checks
def other_flashinfer_kernels(machine: Machine) -> None:
    install(machine, "flashinfer-python", "flashinfer-jit-cache", "0.6.13+cu130")
    say(machine, "stat", FILE, path=f"{ENGINE}/flashinfer_jit_cache/__init__.py")


def runtime_image(machine: Machine) -> None:
    """As pip leaves it (the variable of this machine is gone), in an image without nvcc."""
    machine.variable("VLLM_USE_FLASHINFER_SAMPLER", None)
    machine.gone("stat", path="/usr/local/cuda/bin/nvcc")


def no_ninja(machine: Machine) -> None:
    machine.variable("VLLM_USE_FLASHINFER_SAMPLER", None)
    path = machine.value("environ")["variables"]["PATH"]
    say(machine, "which", {"path": None}, name="ninja", path=path)
    machine.gone("stat", path="/opt/venv/bin/ninja")


def python_too_new(machine: Machine) -> None:
    machine.distribution("vllm")["requires_python"] = ">=3.10,<3.12"


def copied_for_another_python(machine: Machine) -> None:
    pass


def started_in_the_package(machine: Machine) -> None:
    inside = f"{ENGINE}/vllm"
    machine.value("self")["folder"] = inside
    say(machine, "real", {"path": inside}, path=inside)
    for name in NAMES:
        say(
            machine,
            "stat",
            FILE if name == "tokenizers" else None,
            path=f"{inside}/{name}/__init__.py",
        )
        say(machine, "stat", path=f"{inside}/{name}.py")
    say(
        machine,
        "list",
        {"names": ["__init__.py", "registry.py"], "truncated": False},
        path=f"{inside}/tokenizers",
    )
    for place, there in ((ENGINE, None), ("/opt/doctor", None), (SITE, FILE)):
        say(machine, "stat", there, path=f"{place}/tokenizers/__init__.py")


def started_in_a_clone(machine: Machine) -> None:
    """With python3 of PATH, which the machine was not asked for."""
    python, path = "/opt/venv/bin/python3", machine.value("environ")["variables"]["PATH"]
    say(machine, "which", {"path": python}, name="python3", path=path)
    say(machine, "stat", {**FILE, "executable": True}, path=python)
    say(machine, "read", {"text": "\x7fELF", "truncated": True}, path=python, limit=4)
    say(machine, "real", {"path": "/usr/bin/python3.12"}, path=python)
    say(machine, "stat", FILE, path="/usr/lib/python3.12/os.py")
    machine.value("self")["folder"] = "/workspace/vllm"
    say(machine, "real", {"path": "/workspace/vllm"}, path="/workspace/vllm")
    for name in NAMES:
        say(
            machine,
            "stat",
            FILE if name == "vllm" else None,
            path=f"/workspace/vllm/{name}/__init__.py",
        )
        say(machine, "stat", path=f"/workspace/vllm/{name}.py")
    say(
        machine,
        "list",
        {"names": ["__init__.py", "envs.py"], "truncated": False},
        path="/workspace/vllm/vllm",
    )


def empty_entry_of_pythonpath(machine: Machine) -> None:
    started_in_a_clone(machine)
    machine.variable("PYTHONPATH", f":{ENGINE}:/opt/doctor")


def a_script_called_vllm(machine: Machine) -> None:
    started_in_a_clone(machine)
    say(machine, "stat", path="/workspace/vllm/vllm/__init__.py")
    say(machine, "stat", FILE, path="/workspace/vllm/vllm.py")


def old_torch_first(machine: Machine) -> None:
    """An old torch in a folder of PYTHONPATH before the environment; vision and audio are of the environment."""
    rows = machine.value("distributions")["distributions"]
    old = {
        **copy.deepcopy(machine.distribution("torch")),
        "folder": ENGINE,
        "version": "2.11.1",
        "info": "torch-2.11.1.dist-info",
    }
    rows.insert(0, old)
    say(machine, "stat", FILE, path=f"{ENGINE}/torch/__init__.py")
    text = machine.value("read", path=f"{SITE}/torch/version.py")
    say(
        machine,
        "read",
        {**text, "text": text["text"].replace("2.11.0", "2.11.1")},
        path=f"{ENGINE}/torch/version.py",
        limit=1 << 20,
    )
    found = next(
        r
        for r in machine.rows("find")
        if r["arguments"]["path"] == f"{SITE}/torch/lib/libtorch_python.so"
    )
    say(
        machine,
        "find",
        copy.deepcopy(found["value"]),
        **{**found["arguments"], "path": f"{ENGINE}/torch/lib/libtorch_python.so"},
    )


def trt(machine, so="312", package=True):
    """TensorRT-LLM 1.2.1 in the place of vLLM."""
    machine.uninstall("vllm")
    install(machine, "torch", "tensorrt_llm", "1.2.1", python=">=3.10, <4")
    for place in (ENGINE, "/opt/doctor"):
        say(machine, "stat", path=f"{place}/vllm/__init__.py")
        say(machine, "stat", path=f"{place}/tensorrt_llm/__init__.py")
    say(machine, "stat", path=f"{SITE}/vllm/__init__.py")
    say(machine, "stat", FILE if package else None, path=f"{SITE}/tensorrt_llm/__init__.py")
    names = ["__init__.py", "version.py"] + (
        [f"bindings.cpython-{so}-x86_64-linux-gnu.so"] if so else []
    )
    say(machine, "list", {"names": names, "truncated": False}, path=f"{SITE}/tensorrt_llm")
    say(machine, "stat", path=f"{SITE}/tensorrt_llm/third_party/pynvml.py")
    say(machine, "stat", path="/tmp/tensorrt_llm/__init__.py")
    say(machine, "stat", path="/tmp/tensorrt_llm.py")


def trt_metadata_alone(machine: Machine) -> None:
    trt(machine, package=False)


def trt_source_tree(machine: Machine) -> None:
    trt(machine, so=None)


def trt_for_python_3_10(machine: Machine) -> None:
    trt(machine, so="310")


def trt_without_tensorrt_libs(machine: Machine) -> None:
    trt(machine)
    machine.distribution("tensorrt_llm")["requires"] = ["tensorrt~=10.14.1"]
    install(machine, "torch", "tensorrt", "10.14.1.48", "tensorrt_cu13==10.14.1.48")
    install(machine, "torch", "tensorrt_cu13", "10.14.1.48", "tensorrt_cu13_libs==10.14.1.48")


def trt_with_pynvml_12(machine: Machine) -> None:
    trt(machine)
    own = machine.distribution("tensorrt_llm")
    own.update(version="0.14.0", info="tensorrt_llm-0.14.0.dist-info", requires=["pynvml>=11.5.0"])
    install(machine, "torch", "pynvml", "12.0.0", "nvidia-ml-py<13.0.0a0,>=12.0.0")


CASES = [
    (xgrammar_gone, "env-requirement-broken", "xgrammar", ()),
    (numpy_gone, "env-requirement-broken", "numpy", ()),
    (
        triton_gone,
        "env-requirement-broken",
        "torch 2.11.0 requires triton==3.6.0; it is not installed",
        (),
    ),
    (audio_for_cuda_12, "torch-companion-mismatch", "torchaudio 2.11.0+cu129", ()),
    (vision_of_an_older_torch, "torch-companion-mismatch", "torchvision 0.25.0", ()),
    (
        two_builds_in_one_folder,
        "env-package-owned-twice",
        "vllm 0.26.0 and vllm-nightly 0.27.0",
        (),
    ),
    (other_flashinfer_kernels, "env-flashinfer-mixed", "0.6.13+cu130", ()),
    (runtime_image, "toolchain-nvcc-missing", "finds no nvcc (CUDA_HOME=/usr/local/cuda)", ()),
    (no_ninja, "toolchain-nvcc-missing", "no ninja on PATH", ()),
    (python_too_new, "env-python-unsupported", "this is Python 3.12.3", ()),
    (started_in_the_package, "env-working-folder-shadows", "holds tokenizers", SERVE),
    (started_in_a_clone, "env-working-folder-shadows", "holds vllm", MODULE),
    (empty_entry_of_pythonpath, "env-working-folder-shadows", "PYTHONPATH has an empty entry", ()),
    (a_script_called_vllm, "env-working-folder-shadows", "holds vllm.py", MODULE),
    (old_torch_first, "env-engine-shadowed", "torch 2.11.1 in /opt/engine", ()),
    (trt_metadata_alone, "engine-trtllm-stub", "no package tensorrt_llm", ()),
    (trt_source_tree, "engine-trtllm-stub", "no compiled module", ()),
    (trt_for_python_3_10, "env-python-unsupported", "for Python 3.10", ()),
    (trt_without_tensorrt_libs, "env-requirement-broken", "tensorrt_cu13_libs==10.14.1.48", ()),
    (trt_with_pynvml_12, "env-pynvml-deprecated", "has no __version__", ()),
]


@pytest.mark.parametrize(
    ("change", "check", "words", "launch"),
    CASES,
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_broken_is_the_only_error(
    change: Change, check: str, words: str, launch: tuple[str, ...]
) -> None:
    machine = Machine()
    change(machine)
    errors = machine.errors(launch)
    assert list(errors) == [check], errors
    assert words in errors[check]


@pytest.mark.parametrize("launch", [(), SERVE, MODULE])
def test_the_machine_itself_has_no_error(launch: tuple[str, ...]) -> None:
    assert Machine().errors(launch) == {}
