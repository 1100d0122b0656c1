"""The VLLM_ variables that the launch itself sets, against those that the version reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from infer_doctor.catalog.attention import BACKENDS
from infer_doctor.catalog.vllm import removed_variables
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.engine_variables import SERVICE
from infer_doctor.facts.vllm_options import VllmTable, table_of
from infer_doctor.fixes.launching import set_option, set_variable
from infer_doctor.launch.images import another_engine
from infer_doctor.launch.judge import require_vllm
from infer_doctor.launch.model import Launch, Variable
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.registry import check
from infer_doctor.vllm_arguments.history import nearest, variable_history
from infer_doctor.vllm_arguments.table import catalogue

PREFIX = "VLLM_"

SAME_VALUE = (
    "VLLM_ALL2ALL_BACKEND",
    "VLLM_ATTENTION_BACKEND",
    "VLLM_FLASH_ATTN_VERSION",
    "VLLM_MM_HASHER_ALGORITHM",
    "VLLM_MM_INPUT_CACHE_GIB",
    "VLLM_PREFIX_CACHE_RETENTION_INTERVAL",
)
"""Whose value is one of the option that came instead (vllm/envs.py before and arg_utils.py after). A
switch such as VLLM_USE_FLASHINFER_MOE_FP4=1 is no --moe-backend 1, and --profiler-config takes JSON."""


@check("launch-variable-unread", severity="warning", category="launch_argument", since="0.2")
def variable_unread(launch: Launch, options: EngineOptions, table: VllmTable) -> Iterator[Finding]:
    """The launch sets a variable that this version of the engine does not read.

    ## Why it matters
    vLLM logs "Unknown vLLM environment variable detected" at most and goes on without the setting:
    the attention backend or the timeout that somebody chose is not in effect.

    ## How it decides
    The name begins with VLLM_, stands in the launch (before the command, in the manifest, the unit
    or the file) and is not among the keys of `environment_variables` in vllm/envs.py of the version
    that will run. Gone: a warning when something replaces it, info when nothing does (VLLM_USE_V1=1
    does no harm). Not there yet: a warning. Never there: only when it differs from a known name by a
    slip of the pen, for plugins and start scripts have VLLM_ names of their own. Names that
    Kubernetes makes for a Service called vllm are left out. A value outside the choices of the
    version is an error where vLLM refuses it.

    ## Fix safety
    Safe: it changes how the next start is called.
    """
    require_vllm(options)
    read = table_of(table)
    if not read.variables:
        return
    last = {variable.name: variable for variable in launch.environment}
    for name, variable in last.items():
        if not name.startswith(PREFIX) or SERVICE.fullmatch(name):
            continue
        if name in read.variables:
            yield from _choice(launch, options, variable, read.variables[name])
        else:
            yield from _unread(launch, options, variable, set(read.variables))


def _unread(
    launch: Launch, options: EngineOptions, variable: Variable, known: set[str]
) -> Iterator[Finding]:
    name = variable.name
    who = f"vLLM {options.version}"
    history = variable_history(name, catalogue(), options.version)
    severity: str | None = None
    fix: Fix | None = None
    if history["gone"] is not None:
        row = removed_variables().get(name)
        instead = row.instead if row else None
        note = f"; {row.note}" if row and row.note and not instead else ""
        message = f"{name} is set; {who} does not read it: gone since {history['gone']}{note}"
        severity = None if instead and not another_engine(launch, options) else "info"
        fix = _drop(launch, name, instead, variable.value)
    elif history["added"] is not None:
        message = f"{name} is set; {who} does not read it yet: it came with vLLM {history['added']}"
    else:
        near = _alike(name, known)
        if near is None:
            return
        message = f"{name} is set; {who} knows {near}, not this name"
        fix = Fix(
            id=f"rename-{name.lower().replace('_', '-')}",
            title=f"Write {near} if that is meant by {name}",
            safety="unsafe",
            restarts=True,
            why="nobody but you knows which variable was meant",
            actions=(
                *set_variable(launch, name, None),
                *set_variable(launch, near, variable.value or ""),
            )
            if variable.value is not None
            else (),
        )
    yield Finding(
        about=name,
        message=message,
        severity=severity,  # type: ignore[arg-type]
        confidence="certain" if options.exact else "likely",
        evidence=_evidence(options, variable),
        fixes=(fix,) if fix else (),
    )


def _alike(name: str, known: Iterable[str]) -> str | None:
    """The variable that was probably meant: what all names share does not make two alike."""
    short = {one.removeprefix(PREFIX): one for one in known if one.startswith(PREFIX)}
    near = nearest(name.removeprefix(PREFIX), short)
    if near is None:
        return None
    own, other = (set(re.split("_", one)) for one in (name.removeprefix(PREFIX), near))
    strange = [word for word in own - other if nearest(word, other) is None]
    return None if strange else short[near]


def _drop(launch: Launch, name: str, instead: str | None, value: str | None) -> Fix:
    words = ""
    actions = set_variable(launch, name, None)
    option = bool(instead and value and instead.startswith("--") and name in SAME_VALUE)
    if instead == "--attention-backend" and value not in BACKENDS:
        option = False  # XFORMERS and others went with the variable
    if option and instead:
        words = f" and add {instead} {value}"
        actions = (*actions, *set_option(launch, instead, value))
    elif instead:
        words = f"; {instead} does it now"
    return Fix(
        id=f"unset-{name.lower().replace('_', '-')}",
        title=f"Take {name} out{words}",
        safety="manual" if instead and not option else "safe",
        restarts=True,
        actions=actions,
    )


def _choice(
    launch: Launch, options: EngineOptions, variable: Variable, row: object
) -> Iterator[Finding]:
    """A value outside what env_with_choices() takes."""
    choices = row.get("choices") if isinstance(row, dict) else None
    value = variable.value
    if not choices or not value or "," in value:
        return
    if value in choices or value.lower() in [choice.lower() for choice in choices]:
        return
    near = nearest(value, choices)
    yield Finding(
        about=variable.name,
        message=f"{variable.name}={value} is none of {', '.join(choices)}",
        severity="error",
        confidence="certain" if options.exact else "likely",
        evidence=_evidence(options, variable),
        fixes=(
            Fix(
                id=f"set-{variable.name.lower().replace('_', '-')}",
                title=f"Set {variable.name}={near}",
                safety="unsafe",
                restarts=True,
                why="nobody but you knows which value was meant",
                actions=set_variable(launch, variable.name, near),
            ),
        )
        if near
        else (),
    )


def _evidence(options: EngineOptions, variable: Variable) -> tuple[Evidence, ...]:
    value = variable.value if variable.value is not None else "(not in the file)"
    return (
        Evidence(
            source=variable.place.file,
            line=variable.place.line,
            excerpt=f"{variable.name}={value}",
        ),
        Evidence(source="variables of the engine", excerpt=options.basis),
    )
