"""Fixes of the engine's own distribution and of its environment variables."""

from __future__ import annotations

import posixpath

from infer_doctor.catalog.vllm import RemovedVariable
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Distribution, Distributions, Interpreter
from infer_doctor.fixes.environment import install_packages, managed, quoted
from infer_doctor.fixes.variables import set_variable
from infer_doctor.model import Edit, Fix, WriteFile

STAYS = (
    "pip does not know these two files: delete the folder before you install another vLLM, "
    "else it goes on naming this version"
)


def cpu_version(engine: EngineFact) -> str | None:
    """The version that marks a CPU build, 0.32.0+cpu."""
    return f"{engine.version.partition('+')[0]}+cpu" if engine.version else None


def add_metadata(
    engine: EngineFact, interpreter: Interpreter, distributions: Distributions
) -> tuple[Fix, ...]:
    """Give the command the distribution `vllm` that it asks for."""
    version = cpu_version(engine) if engine.build == "cpu" else engine.version
    if version is None:
        return ()
    if engine.build != "cpu":
        return (_reinstall(version, interpreter, distributions),)
    return (write_metadata(version, interpreter),)


def write_metadata(version: str, interpreter: Interpreter) -> Fix:
    """Two lines of metadata beside the package. The word cpu in the version is not decoration."""
    name = f"vllm-{version}.dist-info"
    folder = f"{interpreter.site}/{name}"
    words = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    record = f"{name}/METADATA,,\n{name}/RECORD,,\n"
    return Fix(
        id="add-vllm-metadata",
        title=f"Add metadata for vllm {version} ({name} with Name: vllm, Version: {version})",
        safety="unsafe",
        restarts=True,
        why=STAYS,
        actions=(_write(f"{folder}/METADATA", words), _write(f"{folder}/RECORD", record)),
    )


def _write(path: str, content: str) -> WriteFile:
    """A new small file, and the command that does the same."""
    words = content.replace("\n", r"\n")
    command = f"mkdir -p {quoted(posixpath.dirname(path))} && printf '{words}' > {quoted(path)}"
    return WriteFile(text=command, file=path, content=content)


def _reinstall(version: str, interpreter: Interpreter, distributions: Distributions) -> Fix:
    again = ("--no-deps", "--force-reinstall")
    return Fix(
        id="reinstall-vllm",
        title=f"Install the distribution vllm {version} again",
        safety="unsafe",
        restarts=True,
        why=managed(interpreter) or "it replaces the package's files",
        actions=(install_packages(interpreter, distributions, f"vllm=={version}", options=again),),
    )


def mark_cpu(distribution: Distribution, version: str) -> Fix:
    """Write the word cpu into the version of existing metadata."""
    file = f"{distribution.metadata}/METADATA"
    change = Edit(
        text=f"sed -i 's/^Version:.*/Version: {version}/' {quoted(file)}",
        file=file,
        format="metadata",
        what="key",
        do="set",
        name="Version",
        value=version,
        old=distribution.version,
    )
    return Fix(
        id="mark-vllm-cpu",
        title=f"Change the version in vllm's metadata from {distribution.version} to {version}",
        safety="unsafe",
        restarts=True,
        why="pip compares requirements with it from then on",
        actions=(change,),
    )


def use_target_device() -> Fix:
    """The variable that this vLLM reads before all detection."""
    return Fix(
        id="set-target-device",
        title="Or start with VLLM_TARGET_DEVICE=cpu, which this vLLM takes for its platform",
        safety="safe",
        restarts=True,
        actions=(set_variable("VLLM_TARGET_DEVICE", "cpu"),),
    )


def replace_variable(name: str, known: RemovedVariable) -> Fix:
    """Take the variable out, and say what does the same now."""
    instead = known.instead
    if instead and instead.startswith("--"):
        title = f"Unset {name} and start with {instead} instead"
    elif instead:
        title = f"Set {instead} instead of {name}"
    else:
        title = f"Unset {name}{f': {known.note}' if known.note else ''}"
    return Fix(
        id=f"unset-{name.lower().replace('_', '-')}",
        title=title,
        safety="safe",
        restarts=True,
        actions=(set_variable(name, None),),
    )


def rename_variable(name: str, near: str, value: str | None) -> Fix:
    """The name that was probably meant, with the value that the wrong one has."""
    known = value is not None and "<" not in value  # a masked value is none
    return Fix(
        id=f"rename-{name.lower().replace('_', '-')}",
        title=f"Write {near} if that is meant by {name}",
        safety="unsafe" if known else "manual",
        restarts=True,
        actions=(set_variable(near, value), set_variable(name, None)) if known else (),
    )
