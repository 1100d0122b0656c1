"""Copies of packages that Python imports instead of the installed ones."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from infer_doctor.checks.env import CATEGORIES, weight
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Distribution, Distributions, Interpreter
from infer_doctor.facts.locate import PYTHON_NAME
from infer_doctor.facts.machine import Environ, Identity
from infer_doctor.facts.shadow import (
    HiddenPackage,
    HiddenPackages,
    LocalCopy,
    WorkingFolder,
    leading,
)
from infer_doctor.fixes.shadow import ignore_folder, start_elsewhere
from infer_doctor.launch.model import Launch
from infer_doctor.model import Confidence, Evidence, Finding, Severity
from infer_doctor.registry import check
from infer_doctor.requirements import broken, satisfied_by, target

COMPILED = ("vllm", "tensorrt_llm", "torch", "tokenizers", "numpy", "safetensors", "triton")
"""Packages that cannot work without the libraries that are built into their folder; a clone of their
source has none."""


@check("env-engine-shadowed", severity="error", category="environment", since="0.1")
def engine_shadowed(
    engine: EngineFact,
    hidden: HiddenPackages,
    distributions: Distributions,
    interpreter: Interpreter,
    identity: Identity,
) -> Iterator[Finding]:
    """PYTHONPATH or ~/.local puts another copy before an installed package.

    ## Why it matters
    What is imported is not what was installed: "undefined symbol" under an old torch, "No module
    named vllm._C" under a clone of the source, a transformers that lacks a model. pip does not warn.
    Containers that mount the home folder, as Apptainer does, bring ~/.local of another machine.

    ## How it decides
    Python searches PYTHONPATH first, then the user's own site-packages (not in a virtual
    environment), then the environment's (site.py). Told are: a distribution there that breaks a
    requirement of the engine which the hidden one meets (torch: an error, others: a warning); the
    engine itself in another version (a warning); and a folder there without metadata that hides an
    installed package: an error when it has no compiled library, as a clone of the source, else a
    warning. A copy that meets the requirement is no finding, nor is an editable install.

    ## Fix safety
    Safe: it changes the environment of the next start. Removing the copy is manual.
    """
    first = leading(interpreter)
    environment = target(interpreter, identity.machine, identity.kernel)
    for own in engine.distributions:
        for hiding, installed in _twice(own.name, first, distributions):
            if hiding.version != installed.version:
                yield _version(hiding, installed, None, interpreter, distributions)
        for row in broken(own, distributions, environment):
            for hiding, installed in _twice(row.name, first, distributions):
                if satisfied_by(row.line, installed.version):
                    yield _version(hiding, installed, row.line, interpreter, distributions)
    for copy in hidden.rows:
        yield _folder(copy, interpreter)


def _twice(
    name: str, first: tuple[str, ...], distributions: Distributions
) -> Iterator[tuple[Distribution, Distribution]]:
    """The distribution in a leading folder that counts, and the next one of its name."""
    found = distributions.by_name.get(name)
    if found is None or posixpath.dirname(found.metadata) not in first:
        return
    for row in distributions.shadowed:
        if row.name == name and posixpath.dirname(row.metadata) != posixpath.dirname(
            found.metadata
        ):
            yield found, row
            return


def _version(
    hiding: Distribution,
    installed: Distribution,
    line: str | None,
    interpreter: Interpreter,
    distributions: Distributions,
) -> Finding:
    severity: Severity = "warning"
    confidence: Confidence = "certain"
    if line is not None:
        severity, confidence = weight(hiding.name, hiding.version)
    place, behind = (posixpath.dirname(row.metadata) for row in (hiding, installed))
    needs = f"; the engine requires {line.partition(';')[0].strip()}" if line else ""
    return Finding(
        about=hiding.name,
        message=f"{hiding.written_name} {hiding.version} in {place} is imported, not "
        f"{installed.version} in {behind}{needs}",
        severity=severity,
        confidence=confidence,
        category=CATEGORIES.get(hiding.name) if line else None,
        evidence=(
            Evidence(source=hiding.metadata, excerpt=f"Version: {hiding.version}"),
            Evidence(source=installed.metadata, excerpt=f"Version: {installed.version}"),
        ),
        fixes=ignore_folder(place, hiding, interpreter, distributions),
    )


def _folder(copy: HiddenPackage, interpreter: Interpreter) -> Finding:
    bare = copy.name in COMPILED and not copy.libraries
    state = ", and has no compiled library" if bare else ""
    return Finding(
        about=copy.name,
        message=f"{copy.path} is imported, not {copy.installed}{state}",
        severity="error" if bare else "warning",
        confidence="likely",
        evidence=(
            Evidence(source=f"{copy.path}/__init__.py", excerpt="found first"),
            Evidence(source=f"{copy.installed}/__init__.py", excerpt="found after it"),
        ),
        fixes=ignore_folder(posixpath.dirname(copy.path), None, interpreter, None),
    )


@check("env-working-folder-shadows", severity="warning", category="environment", since="0.1")
def working_folder_shadows(
    working: WorkingFolder, engine: EngineFact, environ: Environ, launch: Launch | None
) -> Iterator[Finding]:
    """The working folder holds a module with the name of one that the engine imports.

    ## Why it matters
    `python -m` and `python -c` search the working folder first. vLLM runs `python -m
    vllm.model_executor.models.registry` to look at the model's class, however it was started itself:
    started in the package's own folder, where `tokenizers` is one of its parts, it ends with "Model
    architectures [...] failed to be inspected". In a clone of vLLM `python -m vllm...` imports the
    clone, which has no compiled library. TensorRT-LLM's MPI workers are `python -m
    mpi4py.futures.server`: "No module named 'tensorrt_llm.bindings'" in a clone of it.

    ## How it decides
    The folder that the doctor was started in holds NAME/__init__.py or NAME.py, NAME being the
    engine's package, torch, transformers and the like (facts/shadow.py) that is installed too, and
    it is neither on the environment's path nor the project of an editable install. The working folder counts for sure
    with an empty entry in PYTHONPATH, or when the launch is `python -m` or `-c`; then it is an
    error if the copy hides a compiled package and has no library. For `vllm serve` only what the
    sub-process imports counts: seen with 0.32 (models/registry.py line 797), an error for `tokenizers`
    in vLLM's own folder, harmless for a clone of vllm of the same version, so a warning. Without a
    launch it is a warning: the engine may be started elsewhere. PYTHONSAFEPATH ends all this but
    the entry of PYTHONPATH.

    ## Fix safety
    Manual: start in another folder.
    """
    first = working.by_variable
    if environ.variables.get("PYTHONSAFEPATH") and not first:
        raise NotApplicable("PYTHONSAFEPATH keeps the working folder off the path")
    package = posixpath.basename(engine.package)
    named = launch is not None and (
        launch.engine is not None or any(package in word for word in launch.command)
    )
    started = first or (named and launch is not None and _module_start(launch))
    for copy in working.copies:
        bare = copy.name in COMPILED and not copy.libraries
        sure = started or (named and (copy.name != package or engine.name != "vllm"))
        yield _local(copy, package, working, environ, error=bare and sure, started=started)


def _module_start(launch: Launch) -> bool:
    """Whether a Python is started with -m or -c: those search the working folder."""
    words = launch.command
    for place, word in enumerate(words):
        if PYTHON_NAME.fullmatch(posixpath.basename(word)):
            options = words[place + 1 : place + 4]
            safe = any(option in ("-P", "-I") for option in options)
            return not safe and any(option in ("-m", "-c") for option in options)
    return False


def _local(
    copy: LocalCopy,
    package: str,
    working: WorkingFolder,
    environ: Environ,
    *,
    error: bool,
    started: bool,
) -> Finding:
    if working.by_variable:
        how = "PYTHONPATH has an empty entry, which stands for this folder"
    elif started:
        how = "python -m and -c search it first"
    else:
        how = "what is started with python -m searches it first"
    return Finding(
        about=copy.name,
        message=f"the working folder {working.folder} holds {posixpath.basename(copy.path)}, which "
        f"hides the installed {copy.name}: {how}",
        severity="error" if error else "warning",
        confidence="likely" if error else "possible",
        evidence=(
            Evidence(
                source=copy.path,
                excerpt="" if copy.libraries or copy.name != package else "no compiled library",
            ),
        ),
        fixes=(start_elsewhere(working.folder, environ, by_variable=working.by_variable),),
    )
