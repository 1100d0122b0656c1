"""`infer-doctor explain ID`: the documentation of a check."""

from __future__ import annotations

import sys

import click

from infer_doctor.commands.common import no_such_check, registry_of_checks, write


@click.command()
@click.argument("id")
def explain(id: str) -> None:
    """Why a check matters, how it decides, and whether its fix is safe."""
    from infer_doctor.explain import markdown

    registry = registry_of_checks()
    if id not in registry.checks:
        raise click.ClickException(no_such_check(id, registry))
    text = markdown(registry.checks[id])
    if not sys.stdout.isatty():
        write(text, None)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))
