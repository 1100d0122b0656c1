"""Fixes of the engine's Python environment: commands for the interpreter that was examined."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence

from infer_doctor.facts.environment import Distribution, Distributions, Interpreter
from infer_doctor.model import Action, AnyAction, Fix, Packages
from infer_doctor.requirements import Broken

INDEX = "https://download.pytorch.org/whl"
"""PyTorch's own wheels: https://pytorch.org/get-started/locally/"""


PLAIN_PATH = re.compile(r"[\w@%+=:,./~<>-]+")


def quoted(path: str) -> str:
    """A path for a shell; what masks make of names (~, <user:1>) stays as it is.

    So a replayed snapshot writes the command that the live run wrote.
    """
    return path if PLAIN_PATH.fullmatch(path) else shlex.quote(path)


def uninstall(
    interpreter: Interpreter | None, distributions: Distributions | None, *names: str
) -> str:
    """The command that removes these distributions."""
    program, by_pip = _installer(interpreter, distributions, "uninstall")
    return " ".join((program, *(("-y",) if by_pip else ()), *names))


def install(
    interpreter: Interpreter | None, distributions: Distributions | None, *words: str
) -> str:
    """The command that installs these requirements."""
    program, _ = _installer(interpreter, distributions, "install")
    return " ".join((program, *(shlex.quote(word) for word in words)))


def remove_packages(
    interpreter: Interpreter | None, distributions: Distributions | None, *names: str
) -> AnyAction:
    """Remove these distributions; a command for people where the interpreter is not known."""
    text = uninstall(interpreter, distributions, *names)
    if interpreter is None:
        return Action(kind="command", text=text)
    return Packages(
        text=text,
        python=interpreter.executable,
        remove=names,
        uv=not _installer(interpreter, distributions, "")[1],
    )


def install_packages(
    interpreter: Interpreter | None,
    distributions: Distributions | None,
    *wanted: str,
    options: Sequence[str] = (),
) -> AnyAction:
    """Install these requirements; `options` are pip's own."""
    text = install(interpreter, distributions, *options, *wanted)
    if interpreter is None:
        return Action(kind="command", text=text)
    return Packages(
        text=text,
        python=interpreter.executable,
        install=wanted,
        options=tuple(options),
        uv=not _installer(interpreter, distributions, "")[1],
    )


def _installer(
    interpreter: Interpreter | None, distributions: Distributions | None, verb: str
) -> tuple[str, bool]:
    """pip of that environment; uv where it has none (environments that uv makes)."""
    if interpreter is None:
        return f"python3 -m pip {verb}", True
    executable = quoted(interpreter.executable)
    if distributions is None or "pip" in distributions.by_name:
        return f"{executable} -m pip {verb}", True
    return f"uv pip {verb} --python {executable}", False


def managed(interpreter: Interpreter | None) -> str | None:
    """Why the command may be refused."""
    if interpreter is None or not interpreter.managed:
        return None
    return "this interpreter belongs to the operating system and pip refuses to change it (PEP 668)"


def meet_requirements(
    rows: Sequence[Broken], interpreter: Interpreter, distributions: Distributions
) -> Fix:
    """Install what is missing or of the wrong version."""
    wanted = [_bare(row.line) for row in rows]
    return Fix(
        id=f"install-{rows[0].name}",
        title=f"Install {' and '.join(wanted)}",
        safety="unsafe",
        restarts=True,
        why=managed(interpreter) or "it may change the versions of other packages",
        actions=(install_packages(interpreter, distributions, *wanted),),
    )


def install_again(
    own: Distribution, count: int, interpreter: Interpreter, distributions: Distributions
) -> Fix:
    """Let pip bring everything that the engine declares."""
    wanted = f"{own.written_name}=={own.version.partition('+')[0]}"
    return Fix(
        id=f"complete-{own.name}",
        title=f"Install the {count} packages that {own.written_name} {own.version} declares and "
        "that are missing or of another version",
        safety="unsafe",
        restarts=True,
        why=managed(interpreter) or "it may change the versions of other packages",
        actions=(install_packages(interpreter, distributions, wanted),),
    )


def _bare(line: str) -> str:
    """A requirement without its marker and blanks: what a command line takes."""
    return re.sub(r"[\s()]+", "", line.partition(";")[0])


def other_python(engine: str, requires: str) -> Fix:
    """No command makes another Python of this one."""
    return Fix(
        id="use-other-python",
        title=f"Make a new environment with Python {requires} for {engine}",
        safety="manual",
        restarts=True,
    )


def keep_one(
    owners: Sequence[Distribution],
    keep: Distribution | None,
    interpreter: Interpreter,
    distributions: Distributions,
) -> Fix:
    """Remove all owners of the same files, then install the one that is needed."""
    names = [row.written_name for row in owners]
    title = f"Remove {' and '.join(names)}, then install "
    if keep is None:
        return Fix(
            id=f"keep-one-of-{names[0].lower()}",
            title=f"{title}the one that is needed",
            safety="manual",
            restarts=True,
            why="which of them is needed is not declared by the engine",
            actions=(remove_packages(interpreter, distributions, *names),),
        )
    chosen = f"{keep.written_name}=={keep.version}"
    return Fix(
        id=f"keep-{keep.name}",
        title=f"{title}{chosen} alone, which the engine requires",
        safety="unsafe",
        restarts=True,
        why="removing one of them alone deletes files of the other",
        actions=(
            remove_packages(interpreter, distributions, *names),
            install_packages(interpreter, distributions, chosen, options=("--no-deps",)),
        ),
    )


def remove_stale(rows: Sequence[Distribution]) -> Fix:
    """Delete the metadata of what is no longer there."""
    written = ", ".join(posixpath.basename(row.metadata) for row in rows)
    return Fix(
        id=f"remove-stale-{rows[0].name}",
        title=f"Delete the stale one of {written}: keep the one whose version the package has",
        safety="manual",
        restarts=True,
        why="which of them is true stands in the package's own files",
    )


def name_python() -> Fix:
    """Tell the doctor where the engine is."""
    return Fix(
        id="name-python",
        title="Name the engine's interpreter with --python if it is installed elsewhere",
        safety="manual",
        restarts=False,
        actions=(
            Action(kind="command", text="infer-doctor check --python /PATH/TO/ENV/bin/python"),
        ),
    )
