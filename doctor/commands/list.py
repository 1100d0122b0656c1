"""`infer-doctor list`: all checks."""

from __future__ import annotations

import click

from infer_doctor.commands.common import option, output_option, registry_of_checks, write


@click.command(name="list")
@option("--format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@output_option
def list_checks(format: str, output: str | None) -> None:
    """All checks, a line each."""
    checks = sorted(registry_of_checks().checks.values(), key=lambda check: check.id)
    if format == "json":
        import json

        rows = [
            {
                "id": check.id,
                "severity": check.severity,
                "category": check.category,
                "since": check.since,
                "title": check.title,
            }
            for check in checks
        ]
        write(json.dumps(rows, indent=2) + "\n", output)
        return
    width = max(len(check.id) for check in checks)
    lines = (f"{check.id:<{width}}  {check.severity:<7}  {check.title}" for check in checks)
    write("\n".join(lines) + "\n", output)
