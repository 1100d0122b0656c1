"""Fixes for copies that hide installed packages: they act on the next start."""

from __future__ import annotations

from infer_doctor.facts.environment import Distribution, Distributions, Interpreter
from infer_doctor.facts.machine import Environ
from infer_doctor.fixes.environment import managed, uninstall
from infer_doctor.fixes.variables import set_variable
from infer_doctor.model import Action, Fix


def ignore_folder(
    folder: str,
    hiding: Distribution | None,
    interpreter: Interpreter,
    distributions: Distributions | None,
) -> tuple[Fix, ...]:
    """Keep the folder off the path; or remove what hides, which pip finds first too."""
    fixes = [_no_user_site(folder)]
    if folder in interpreter.python_path:
        fixes = [_shorter_path(folder, interpreter)]
    if hiding is not None:
        fixes.append(
            Fix(
                id=f"remove-hiding-{hiding.name}",
                title=f"Or uninstall {hiding.written_name} {hiding.version} from {folder}",
                safety="manual",  # undo keeps the files of the environment, not of this folder
                restarts=True,
                why=managed(interpreter) or "other programs of this user may need it",
                actions=(_removal(folder, hiding, interpreter, distributions),),
            )
        )
    return tuple(fixes)


def _removal(
    folder: str,
    hiding: Distribution,
    interpreter: Interpreter,
    distributions: Distributions | None,
) -> Action:
    """pip removes what the user's own site-packages hold, and nothing of a folder of PYTHONPATH."""
    if folder in interpreter.python_path:
        text = f"remove {hiding.written_name} {hiding.version} from {folder}"
        return Action(kind="text", text=text)
    return Action(kind="command", text=uninstall(interpreter, distributions, hiding.name))


def _no_user_site(folder: str) -> Fix:
    return Fix(
        id="no-user-site",
        title=f"Start with PYTHONNOUSERSITE=1, which leaves {folder} out",
        safety="safe",
        restarts=True,
        why="whatever else the engine takes from there must be installed in its environment",
        actions=(set_variable("PYTHONNOUSERSITE", "1"),),
    )


def _shorter_path(folder: str, interpreter: Interpreter) -> Fix:
    left = [place for place in interpreter.python_path if place != folder]
    value = ":".join(left) if left else None
    return Fix(
        id="shorten-python-path",
        title=f"Take {folder} out of PYTHONPATH",
        safety="safe",
        restarts=True,
        why="whatever else the engine takes from there must be installed in its environment",
        actions=(set_variable("PYTHONPATH", value),),
    )


def start_elsewhere(folder: str, environ: Environ, *, by_variable: bool) -> Fix:
    """Another working folder; the empty entry of PYTHONPATH is the deeper fault."""
    if by_variable:
        entries = environ.variables.get("PYTHONPATH", "").split(":")
        kept = ":".join(entry for entry in entries if entry not in ("", "."))
        return Fix(
            id="clean-python-path",
            title=f"Take the empty entry (or the dot) out of PYTHONPATH, and start in another folder "
            f"than {folder}",
            safety="manual",
            restarts=True,
            why="PYTHONPATH=$PYTHONPATH:/x has one when the variable was not set before",
            actions=(
                set_variable("PYTHONPATH", kept or None),
                Action(kind="command", text="cd /"),
            ),
        )
    return Fix(
        id="start-elsewhere",
        title=f"Start the engine in another folder than {folder}",
        safety="manual",
        restarts=True,
        actions=(Action(kind="command", text="cd /"),),
    )
