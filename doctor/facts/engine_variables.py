"""The VLLM_* variables that are set, and those that the installed vLLM knows."""

from __future__ import annotations

import ast
import re
from dataclasses import field

from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.machine import Environ
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.registry import probe

TABLE = "environment_variables"
"""The dict in vllm/envs.py whose keys are all the names that vLLM reads."""

SERVICE = re.compile(r"VLLM_(?:\w+_)?(?:SERVICE_(?:HOST|PORT(?:_\w+)?)|PORT_\d+_\w+)")
"""What Kubernetes sets for a Service whose name begins with "vllm":
https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables"""


@frozen
class EngineVariables:
    """Names that are set here, and names that the installed vLLM knows."""

    set: tuple[str, ...]
    known: frozenset[str] = field(metadata={"report": False})
    source: str


@probe
def engine_variables(host: Host, environ: Environ, engine: EngineFact) -> EngineVariables:
    """Read the keys off vllm/envs.py, when there is a variable to compare."""
    if engine.name != "vllm":
        raise Absent(f"the engine is {engine.name}")
    names = [name for name in environ.variables if name.startswith("VLLM_")]
    names = [name for name in names if not SERVICE.fullmatch(name)]
    if not names:
        raise Absent("no VLLM_* variable is set")
    source = f"{engine.package}/envs.py"
    known = known_names(host.read(source))
    if not known:
        raise Unavailable(f"{source} has no table {TABLE}")
    return EngineVariables(set=tuple(sorted(names)), known=known, source=source)


def known_names(text: str) -> frozenset[str]:
    """The keys of the dict TABLE; raises Unavailable when the text is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unavailable(f"vllm/envs.py cannot be parsed: {error}") from None
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        named = any(isinstance(target, ast.Name) and target.id == TABLE for target in targets)
        if named and isinstance(value, ast.Dict):
            keys = (key.value for key in value.keys if isinstance(key, ast.Constant))
            return frozenset(key for key in keys if isinstance(key, str))
    return frozenset()
