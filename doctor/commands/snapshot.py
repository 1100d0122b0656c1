"""`infer-doctor snapshot`: what all checks look at, masked, in a file."""

from __future__ import annotations

from collections.abc import Sequence

import click

from infer_doctor._version import VERSION
from infer_doctor.commands.common import (
    machine_options,
    now,
    option,
    registry_of_checks,
    this_machine,
    write,
)


@click.command(options_metavar="[OPTIONS] [-- COMMAND ...]")
@option(
    "--output",
    "-o",
    required=True,
    metavar="FILE",
    help="Where to write the snapshot.",
)
@machine_options
@click.pass_obj
def snapshot(
    command: Sequence[str], output: str, python: str | None, deep: bool, timeout: float
) -> None:
    """Write what all checks look at to FILE, with secrets and names masked.

    With a COMMAND that starts an engine also what they look at for it: names, sizes and headers of its
    model's files, never weights. Judge it later with `check --snapshot FILE -- COMMAND`.
    """
    from infer_doctor.redact import without_secrets

    with this_machine(timeout) as host:
        from infer_doctor.examine import Examination, NoTarget
        from infer_doctor.facts.vllm_options import VllmSources
        from infer_doctor.snapshot import write as snapshot_text

        registry = registry_of_checks()
        try:
            examination = Examination.of(
                registry, command=without_secrets(command), python=python, deep=deep, host=host
            )
        except NoTarget as error:
            raise click.ClickException(str(error)) from None
        examination.run(registry.checks.values())
        for subject in examination.subjects:
            subject.get(VllmSources)  # for a launch that the snapshot is judged with later
    text = snapshot_text(examination.captures, version=VERSION, created_at=now(), python=python)
    write(text, output)
    masked = ", ".join(f"{row.count} {row.kind}" for row in examination.redactions) or "nothing"
    click.echo(f"{output}: {len(examination.captures)} captures; masked: {masked}", err=True)
