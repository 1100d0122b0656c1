"""`infer-doctor check`: what is wrong with this machine, environment or launch."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from infer_doctor._version import VERSION
from infer_doctor.commands.common import (
    chosen,
    emit,
    engine_option,
    format_option,
    gpu_options,
    judge_for_gpus,
    machine_options,
    note,
    now,
    option,
    output_option,
    registry_of_checks,
    this_machine,
)
from infer_doctor.model import EXIT

if TYPE_CHECKING:
    from infer_doctor.examine import Examination
    from infer_doctor.live import LiveHost
    from infer_doctor.registry import Registry


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]... [-- COMMAND ...]")
@format_option
@output_option
@option("--fail-on", type=click.Choice(["error", "warning"]), default="error", show_default=True)
@option("--select", multiple=True, metavar="IDS", help="Only these checks (ids or globs).")
@option("--ignore", multiple=True, metavar="IDS", help="Not these checks (ids or globs).")
@option(
    "--snapshot",
    metavar="FILE",
    help="Examine the machine of a snapshot; of several (--snapshot a.json b.json ..., or a folder) "
    "each machine, and how they differ.",
)
@option(
    "--ray",
    is_flag=False,
    flag_value="auto",
    metavar="[ADDRESS]",
    help="Examine every node of a Ray cluster (default: the one that runs here).",
)
@option("--container", multiple=True, metavar="NAME", help="A container, as Docker sees it.")
@option("--image", multiple=True, metavar="NAME", help="An image that Docker has.")
@engine_option
@gpu_options
@option("--online", is_flag=True, help="Also ask the model hub whether it gives the model out.")
@machine_options
@click.pass_obj
def check(
    command: Sequence[str],
    targets: tuple[str, ...],
    format: str,
    output: str | None,
    fail_on: Any,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    snapshot: str | None,
    ray: str | None,
    container: tuple[str, ...],
    image: tuple[str, ...],
    engine: Any,
    online: bool,
    gpu: str | None,
    gpu_memory: str | None,
    python: str | None,
    deep: bool,
    timeout: float,
) -> None:
    """Can an LLM engine run here, what is wrong, and what to do.

    Without TARGET this machine is examined. A TARGET is a launch: a shell script, vLLM's --config
    YAML, Docker Compose, Kubernetes, Helm values, a systemd unit, a Dockerfile, Python, a model folder
    or id; or a file that somebody already has: the output of `vllm collect-env`, `python -m
    torch.utils.collect_env`, `nvidia-smi -q` (or `-q -x`), a snapshot, or a log; `-` is standard input.
    After `--` stands the command that is to be started.
    """
    from infer_doctor.redact import without_secrets

    started = time.monotonic()
    started_at = now()
    command = without_secrets(command)
    if ray is not None and (snapshot or container or image):
        raise click.UsageError("--ray stands alone: no snapshot, container or image beside it")
    if ray is not None:
        cluster = _ray_nodes(ray, timeout, command, python, deep, started_at)
    else:
        cluster, snapshot, targets = machines_of(snapshot, targets)
    if cluster:  # all of it stays: each look for garbage would go through it in vain
        gc.disable()
        click.get_current_context().call_on_close(gc.enable)
    found = found_of(targets)
    here = snapshot is None and not cluster and not any(row.machine for row in found)
    local = any(launch.machine == "local" for row in found for launch in row.launches)
    outside = bool(container or image)
    if outside and (found or snapshot or command):
        raise click.UsageError("--container and --image stand alone: give no other target")
    with this_machine(timeout, wanted=here and (local or bool(command) or not found)) as host:
        from infer_doctor.examine import Examination, NoTarget
        from infer_doctor.snapshot import BadSnapshot

        registry = registry_of_checks()
        checks = chosen(registry, select, ignore)
        try:
            if outside:
                examination = _outside(registry, container, image, host, timeout)
            else:
                examination = Examination.of(
                    registry,
                    targets=found,
                    snapshot=snapshot,
                    cluster=cluster,
                    command=command,
                    python=python,
                    deep=deep,
                    host=host,
                    engine=engine,
                    online=online,
                )
        except (NoTarget, BadSnapshot) as error:
            raise click.ClickException(str(error)) from None
        judge_for_gpus(examination.subjects, registry, gpu, gpu_memory)
        results = examination.run(checks, named=bool(select))
    if host and host.cannot_start and all(row.outcome == "blocked" for row in results):
        raise click.ClickException(
            f"{sys.executable} cannot be started to look at this machine: {host.cannot_start}"
        )
    from infer_doctor.memory.report import plan_of
    from infer_doctor.report import build

    required = {check.id for check in checks} if select else set()
    if any(row.silence is not None for row in cluster):
        required.add("cluster-node-silent")  # what nobody saw is no pass
    if ray is not None and deep:
        required |= {"cluster-peer-unreachable", "cluster-allreduce-failed"}  # asked for by --deep
    if any(row.log is not None for row in found):
        required.add("log-engine-failed")  # a cause that is not in the log is no pass
    report = build(
        command="check",
        version=VERSION,
        started_at=started_at,
        duration_s=round(time.monotonic() - started, 3),
        subjects=examination.subjects,
        results=results,
        fail_on=fail_on,
        required=required,
        launch=command,
        redactor=examination.redactor,
        redactions=examination.redactions,
        plan=plan_of(examination.subjects),
    )
    if cluster:
        gc.freeze()
        gc.enable()  # what writing leaves behind goes in circles
    emit(report, format, output, fail_on=fail_on, required=required)
    raise click.exceptions.Exit(EXIT[report.verdict])


def _outside(
    registry: Registry,
    containers: Sequence[str],
    images: Sequence[str],
    host: LiveHost | None,
    timeout: float,
) -> Examination:
    """Containers and images by what their Docker daemon says."""
    from infer_doctor.containers.ask import NoAnswer
    from infer_doctor.containers.subject import examination

    try:
        return examination(registry, containers, images, host, timeout)
    except NoAnswer as error:
        raise click.ClickException(str(error)) from None


def _ray_nodes(
    address: str,
    timeout: float,
    command: Sequence[str],
    python: str | None,
    deep: bool,
    started_at: str,
) -> list[Any]:
    """The nodes of a Ray cluster; who is who is said on standard error, not in the report."""
    from infer_doctor.cluster.rays import NoRay, ask

    try:
        found = ask(
            address, timeout, command=command, python=python, deep=deep, created_at=started_at
        )
    except NoRay as error:
        raise click.ClickException(str(error)) from None
    for line in found.people:
        click.echo(line, err=True)
    return list(found.nodes)


def machines_of(
    snapshot: str | None, targets: tuple[str, ...]
) -> tuple[list[Any], str | None, tuple[str, ...]]:
    """The machines of a cluster, else the one snapshot, and the targets that are no snapshots."""
    if snapshot is None and len(targets) < 2:
        return [], None, targets
    from infer_doctor.cluster.reading import files_of, names_of, read_nodes, sort_out
    from infer_doctor.snapshot import BadSnapshot
    from infer_doctor.targets import NoTarget

    more, others = sort_out(targets)
    if snapshot is None and len(more) < 2:
        return [], None, targets
    try:
        files, strange = files_of([*([snapshot] if snapshot else []), *more])
        nodes, lines = read_nodes(files) if len(files) > 1 else ([], [])
    except (NoTarget, BadSnapshot) as error:
        raise click.ClickException(str(error)) from None
    for line in [*(f"{path}: is no snapshot; left out" for path in strange), *lines]:
        note(line)
    if len(nodes) > 1:
        return nodes, None, tuple(others)
    kept = {node.name for node in nodes} or set(names_of(files))
    (path,) = (path for path, name in zip(files, names_of(files), strict=True) if name in kept)
    return [], path, tuple(others)


def found_of(targets: Sequence[str]) -> list[Any]:
    """What the targets are; files are told apart before the machine is asked anything."""
    if not targets:
        return []
    from infer_doctor.targets import NoTarget, look

    try:
        return [look(target) for target in dict.fromkeys(targets)]
    except NoTarget as error:
        raise click.ClickException(str(error)) from None
