"""`infer-doctor snapshot`: what all checks look at, masked, in a file."""

from __future__ import annotations

import os
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
@option("--output", "-o", metavar="FILE", help="Where to write the snapshot.")
@option(
    "--to",
    metavar="DIR",
    help="Write DIR/HOSTNAME.json, once on each node: for mpirun, srun and DaemonSets.",
)
@option(
    "--redact-key",
    metavar="KEY",
    help="Equal names and addresses get equal masks in all snapshots with this KEY, so that nodes can "
    "be compared.",
)
@machine_options
@click.pass_obj
def snapshot(
    command: Sequence[str],
    output: str | None,
    to: str | None,
    redact_key: str | None,
    python: str | None,
    deep: bool,
    timeout: float,
) -> None:
    """Write what all checks look at to FILE, with secrets and names masked.

    With a COMMAND that starts an engine also what they look at for it: names, sizes and headers of its
    model's files, never weights. Judge it later with `check --snapshot FILE -- COMMAND`, many with
    `check --snapshot DIR`.
    """
    from infer_doctor.cluster import collect
    from infer_doctor.redact import without_secrets

    if (output is None) == (to is None):
        raise click.UsageError("give one of -o FILE and --to DIR")
    local, number = collect.local_rank(os.environ), collect.rank(os.environ)
    if to is not None and local:
        click.echo(f"rank {number}: rank 0 of this node writes for all of it", err=True)
        return

    with this_machine(timeout) as host:
        from infer_doctor.examine import Examination, NoTarget
        from infer_doctor.host import Unavailable
        from infer_doctor.live import require_answer
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
            collect.look(subject, cluster=to is not None or redact_key is not None)
        count = collect.nodes(os.environ)
        if to is not None and deep and count and count > 1 and host is not None:
            collect.meet(host, to, count, timeout, examination.subjects[0])
    machine = collect.machine_mark()
    text = snapshot_text(
        examination.captures,
        version=VERSION,
        created_at=now(),
        python=python,
        key=redact_key,
        machine=machine,
    )
    if to is not None:
        try:
            require_answer(to)
            output = collect.write(text, to, machine, number)
        except (OSError, Unavailable) as error:
            words = error.reason if isinstance(error, Unavailable) else error.strerror
            raise click.ClickException(f"{to}: {words}") from None
    else:
        write(text, output)
    masked = ", ".join(f"{row.count} {row.kind}" for row in examination.redactions) or "nothing"
    click.echo(f"{output}: {len(examination.captures)} captures; masked: {masked}", err=True)
