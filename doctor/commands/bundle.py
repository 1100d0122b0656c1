"""`infer-doctor bundle`: what a support ticket needs, masked, in one zip."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import click

from infer_doctor._version import VERSION
from infer_doctor.commands.common import (
    document,
    finite,
    machine_options,
    now,
    option,
    registry_of_checks,
    this_machine,
    write_bytes,
)
from infer_doctor.model import EXIT

MEGABYTE = 1_000_000


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]... [-- COMMAND ...]")
@option("--output", "-o", required=True, metavar="FILE.zip", help="Where to write the bundle.")
@option(
    "--max-size",
    type=click.FloatRange(min=0.1),
    callback=finite,
    default=20.0,
    show_default=True,
    metavar="MB",
    help="Ends of logs are cut until the bundle is no larger.",
)
@option("--container", multiple=True, metavar="NAME", help="Also the log and state of a container.")
@machine_options
@click.pass_obj
def bundle(
    command: Sequence[str],
    targets: tuple[str, ...],
    output: str,
    max_size: float,
    container: tuple[str, ...],
    python: str | None,
    deep: bool,
    timeout: float,
) -> None:
    """Snapshot, report, ends of logs and configurations of this machine, masked, in one zip.

    TARGET is a log, a configuration or a model folder. Logs and configurations of engines that run
    here are found. `infer-doctor check --snapshot FILE.zip` replays the machine elsewhere.
    """
    from infer_doctor.redact import without_secrets

    started, started_at = time.monotonic(), now()
    shown = without_secrets(command)
    with this_machine(timeout) as host:
        from infer_doctor import bundle as making
        from infer_doctor.examine import Examination, NoTarget
        from infer_doctor.live import LiveHost

        registry = registry_of_checks()
        try:
            examination = Examination.of(
                registry, command=shown, python=python, deep=deep, host=host
            )
        except NoTarget as error:
            raise click.ClickException(str(error)) from None
        results = examination.run(registry.checks.values())
        parts, left = making.named(targets)
        with LiveHost(timeout) as other:  # what it reads is no part of the snapshot
            more, missing = making.running(other)
        parts, left = [*parts, *more], [*left, *missing]
    _containers(container, timeout, parts, left)
    from infer_doctor.report import build
    from infer_doctor.snapshot import write as snapshot_text

    redactor = examination.redactor
    for part in parts:
        redactor.learn(part.text)
    report = build(
        command="bundle",
        version=VERSION,
        started_at=started_at,
        duration_s=round(time.monotonic() - started, 3),
        subjects=examination.subjects,
        results=results,
        fail_on="error",
        required=(),
        launch=shown,
        redactor=redactor,
        redactions=redactor.redactions,
    )
    fixed = {
        making.SNAPSHOT: snapshot_text(
            examination.captures, version=VERSION, created_at=started_at, python=python
        ),
        "report.json": document(report, "json"),
        "report.html": document(report, "html"),
    }
    head = {"tool": {"name": "infer-doctor", "version": VERSION}, "created_at": started_at}
    data, manifest = making.pack(fixed, parts, left, redactor, int(max_size * MEGABYTE), head)
    write_bytes(data, output)
    _tell(output, len(data), manifest)
    raise click.exceptions.Exit(EXIT["pass"])


def _containers(names: Sequence[str], timeout: float, parts: list[Any], left: list[Any]) -> None:
    """The log and the state of containers as Docker has them."""
    if not names:
        return
    from infer_doctor.bundle import LeftOut, Part
    from infer_doctor.containers.ask import Daemon, NoAnswer

    try:
        daemon = Daemon(timeout)
    except NoAnswer as error:
        raise click.ClickException(str(error)) from None
    for name in names:
        try:
            found = json.dumps(daemon.container(name), indent=1)
            log = daemon.log(name).decode("utf-8", "backslashreplace")
        except NoAnswer as error:
            left.append(LeftOut(source=name, reason=str(error)))
            continue
        source = f"docker inspect {name}"
        parts.append(Part(name=f"configs/{name}.inspect.json", source=source, text=found))
        parts.append(
            Part(name=f"logs/{name}.log", source=f"docker logs {name}", text=log, cut=True)
        )
    daemon.close()


def _tell(output: str, size: int, manifest: dict[str, Any]) -> None:
    """What is in it, and what a person should look at before it is sent."""
    names = ", ".join(row["name"] for row in manifest["files"])
    masked = ", ".join(f"{row['count']} {row['kind']}" for row in manifest["redactions"])
    shown = f"{size / MEGABYTE:.1f} MB" if size >= MEGABYTE else f"{size / 1000:.0f} kB"
    click.echo(f"{output}: {shown}: {names}", err=True)
    for row in manifest["left_out"]:
        click.echo(f"left out: {row['source']}: {row['reason']}", err=True)
    click.echo(f"masked: {masked or 'nothing'}; look into it before you send it", err=True)
