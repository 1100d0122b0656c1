"""`infer-doctor undo [ID]`: take back what a run of `fix --apply` changed."""

from __future__ import annotations

import os

import click

from infer_doctor.commands.common import write


@click.command()
@click.argument("id", required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
def undo(id: str | None, yes: bool) -> None:
    """Bring back bytes, modes, owners and packages as they were before run ID.

    Without ID the last run that changed something. Refused when something was changed since.
    """
    from infer_doctor.fixing import undo as undoing
    from infer_doctor.fixing.files import Refused
    from infer_doctor.fixing.journal import lock, runs, state_folder
    from infer_doctor.fixing.show import without_keys
    from infer_doctor.fixing.tell import stopped
    from infer_doctor.render.plain import plain

    folder = state_folder()
    try:
        found = runs(folder)
        open_runs = [run for run in found if run.left or run.damaged]
        if id is not None:
            wanted = [run for run in found if run.id == id.zfill(4)]
            if not wanted:
                raise click.ClickException(
                    f"there is no run {id}; `infer-doctor history` shows all"
                )
            if not wanted[0].left and not wanted[0].damaged:
                raise click.ClickException(f"run {wanted[0].id}: nothing is left to take back")
        elif not open_runs:
            raise click.ClickException("nothing is left to take back")
        run = wanted[0] if id is not None else open_runs[-1]
        if run.damaged:
            raise click.ClickException("; ".join(line.strip() for line in stopped(run)))
        lines = list(stopped(run)) or [f"run {run.id} of {run.at}:"]
        lines += [f"  take back: {step['text']}" for step in reversed(run.left)]
        write("".join(f"{plain(line)}\n" for line in lines), None)
        undoing.blocks(run)
        if not yes:
            if not os.isatty(0):
                raise click.UsageError("nobody can answer here: give --yes")
            click.confirm("take it back?", abort=True)
        with lock(folder):
            said = undoing.undo(folder, run.id)
    except undoing.ChangedSince as error:
        write(plain(without_keys(error.difference)), None)
        newer = undoing.later(found, run.id, error.thing)
        first = f"; take back first what came later: run {', '.join(newer)}" if newer else ""
        raise click.ClickException(f"nothing was changed: {error}{first}") from None
    except Refused as error:
        raise click.ClickException(str(error)) from None
    write("".join(f"{plain(line)}\n" for line in said), None)
