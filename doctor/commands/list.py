"""`infer-doctor list`: all checks."""

from __future__ import annotations

import click

from infer_doctor.commands.common import option, output_option, registry_of_checks, write

SOURCES_ONLY = ("trt",)
"""Areas whose checks were compared with sources, documentation and public logs alone, never with the
running engine: TensorRT-LLM could not be had."""

SAID = (
    "trt-*: compared with the sources, documentation and public logs of TensorRT-LLM, "
    "never with a running one"
)


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
                "sources_only": check.id.partition("-")[0] in SOURCES_ONLY,
            }
            for check in checks
        ]
        write(json.dumps(rows, indent=2) + "\n", output)
        return
    width = max(len(check.id) for check in checks)
    lines = (f"{check.id:<{width}}  {check.severity:<7}  {check.title}" for check in checks)
    write("\n".join((*lines, "", SAID)) + "\n", output)
