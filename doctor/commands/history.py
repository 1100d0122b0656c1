"""`infer-doctor history`: what was changed, what came of it, what can be taken back."""

from __future__ import annotations

import click

from infer_doctor.commands.common import write


@click.command()
def history() -> None:
    """The runs of `fix --apply`, the newest first, and the state of what they changed."""
    from infer_doctor.fixing.files import Refused
    from infer_doctor.fixing.journal import runs, state_folder
    from infer_doctor.fixing.tell import told
    from infer_doctor.render.plain import plain

    try:
        found = runs(state_folder())
        lines = [line for run in reversed(found) for line in told(run)]
    except Refused as error:
        raise click.ClickException(str(error)) from None
    if not lines:
        lines = ["nothing was changed yet"]
    write("".join(f"{plain(line)}\n" for line in lines), None)
