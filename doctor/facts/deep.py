"""What only a run can tell: imports, a CUDA context, one small product. Only under `--deep`.

The interpreter of the engine runs `SCRIPT` in isolated mode without site (`-I -S`): its folders are
handed over, so no .pth file and no sitecustomize of the environment is executed.
"""

from __future__ import annotations

import json
from typing import Any

from infer_doctor.facts.environment import Interpreter
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.registry import probe

LIMIT_S = 60.0
"""A first `import torch` from a cold disk takes tens of seconds; `--timeout` bounds it all the same."""

MODULES = ("torch", "torchvision", "torchaudio", "vllm", "tensorrt_llm")

SCRIPT = """
import importlib.util, json, os, sys
folders, modules = json.loads(sys.argv[1])
sys.path += folders
answers, report = os.fdopen(os.dup(1), "w"), {"imports": {}, "cuda": None}
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
def words(error):
    return f"{type(error).__name__}: {error}"[:2000]
for name in modules:
    try:
        if importlib.util.find_spec(name) is None:
            continue
        __import__(name)
        report["imports"][name] = None
    except BaseException as error:
        report["imports"][name] = words(error)
torch = sys.modules.get("torch")
if torch is not None and torch.version.cuda and report["imports"].get("torch", "") is None:
    report["cuda"] = cuda = {"devices": [], "error": None, "count": 0}
    try:
        torch.cuda.init()
        cuda["count"] = torch.cuda.device_count()
        for index in range(cuda["count"]):
            try:
                left = torch.arange(4096.0, device=f"cuda:{index}").reshape(64, 64) / 4096
                product = (left @ left).cpu()
                right = left.cpu().double() @ left.cpu().double()
                wrong = float((product.double() - right).abs().max() / right.abs().max())
                cuda["devices"].append({"index": index, "deviation": wrong, "error": None})
            except BaseException as error:
                cuda["devices"].append({"index": index, "deviation": None, "error": words(error)})
    except BaseException as error:
        cuda["error"] = words(error)
answers.write(json.dumps(report))
answers.flush()
os._exit(0)
"""
"""Prints one JSON object; leaves without finalisers, which may hang when CUDA is broken."""


@frozen
class Imports:
    """Module -> None when it could be imported, else what was raised."""

    errors: dict[str, str | None]
    source: str


@frozen
class CudaDevice:
    """A GPU in CUDA's order: the relative deviation of a product of two 64 x 64 matrices."""

    index: int
    deviation: float | None
    error: str | None


@frozen
class CudaRun:
    """What torch made of CUDA: `error` when there was no context at all."""

    count: int
    error: str | None
    devices: tuple[CudaDevice, ...]
    source: str


def _run(interpreter: Interpreter, host: Host) -> dict[str, Any]:
    """The script's report; raises Unavailable when it died or hung."""
    argument = json.dumps([list(interpreter.folders), list(MODULES)])
    command = [interpreter.executable, "-I", "-S", "-c", SCRIPT, argument]
    answer = host.ask("run", command=command, limit_s=LIMIT_S, input="")
    if not answer["stdout"].strip():
        last = (answer["stderr"].strip().splitlines() or ["no output"])[-1]
        raise Unavailable(f"the probe ended with status {answer['exit_status']}: {last}")
    report: dict[str, Any] = json.loads(answer["stdout"])
    return report


@probe(deep=True)
def imports(interpreter: Interpreter, host: Host) -> Imports:
    """Import torch, its companions and the engine in a child of the engine's own interpreter."""
    report = _run(interpreter, host)
    return Imports(errors=report["imports"], source=f"{interpreter.executable} -c 'import ...'")


@probe(deep=True)
def cuda_run(interpreter: Interpreter, host: Host) -> CudaRun:
    """A context and a product on every GPU that torch sees; some 500 MiB each, for a second."""
    found = _run(interpreter, host)["cuda"]
    if found is None:
        raise Absent("torch is not installed, cannot be imported or is not built for CUDA")
    return CudaRun(
        count=found["count"],
        error=found["error"],
        devices=tuple(CudaDevice(**row) for row in found["devices"]),
        source=f"{interpreter.executable} -c 'import torch; ...'",
    )
