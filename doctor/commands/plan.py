"""`infer-doctor plan`: what fits into the GPUs, and what each change buys, before the start."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from infer_doctor._version import VERSION
from infer_doctor.commands.common import (
    emit,
    engine_option,
    format_option,
    gpu_options,
    judge_for_gpus,
    machine_options,
    now,
    option,
    output_option,
    registry_of_checks,
    this_machine,
)
from infer_doctor.model import EXIT

if TYPE_CHECKING:
    from infer_doctor.engine import Subject
    from infer_doctor.host import Host

MODULE = "infer_doctor.checks.memory_plan"
TRTLLM_MODULE = "infer_doctor.checks.trt_memory"

SIZES = ("launch-gpus-too-few", "launch-tp-indivisible", "launch-pipeline-too-deep")
"""Parallel sizes that the engine refuses leave nothing to plan; on GPUs that are not there too."""

HELD = "gpu-memory-held"
"""The check that names who holds the memory that is missing."""


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]... [-- COMMAND ...]")
@format_option
@output_option
@option("--snapshot", metavar="FILE", help="Plan for the machine of a snapshot.")
@gpu_options
@engine_option
@machine_options
@click.pass_obj
def plan(
    command: Sequence[str],
    targets: tuple[str, ...],
    format: str,
    output: str | None,
    snapshot: str | None,
    gpu: str | None,
    gpu_memory: str | None,
    engine: Any,
    python: str | None,
    deep: bool,
    timeout: float,
) -> None:
    """Does the launch fit: KV-cache tokens, longest context, requests at once, without loading.

    After `--` stands the command that is to be started; a TARGET is a file that starts an engine, or
    a model folder. Without a GPU (here or by --gpu) the fewest GPUs of each kind are told.
    """
    from infer_doctor.commands.check import found_of
    from infer_doctor.redact import without_secrets

    started = time.monotonic()
    started_at = now()
    command = without_secrets(command)
    if not command and not targets:
        raise click.UsageError("name a launch after --, or a model folder")
    found = found_of(targets)
    here = snapshot is None and not any(row.machine for row in found)
    with this_machine(timeout) as host:
        from infer_doctor.examine import Examination, NoTarget
        from infer_doctor.snapshot import BadSnapshot

        registry = registry_of_checks()
        try:
            examination = Examination.of(
                registry,
                targets=found,
                snapshot=snapshot,
                command=command,
                python=python,
                deep=deep,
                engine=engine,
                host=host if here else None,
            )
        except (NoTarget, BadSnapshot) as error:
            raise click.ClickException(str(error)) from None
        judge_for_gpus(examination.subjects, registry, gpu, gpu_memory)
        _read_models_here(examination.subjects, host)
        module = TRTLLM_MODULE if _is_trtllm(examination.subjects) else MODULE
        gpus_open = gpu is not None and ":" not in gpu
        checks = [
            one
            for one in registry.checks.values()
            if one.function.__module__ == module
            or (one.id == HELD and gpu is None)
            or (one.id in SIZES and module == MODULE and not gpus_open)
        ]
        results = examination.run(checks)
        planned = _plan(examination.subjects, gpus_open=gpus_open)
    if planned is None and all(row.outcome == "not_applicable" for row in results):
        why = results[0].reason if results else f"{', '.join(targets)}: starts no engine"
        raise click.ClickException(f"there is nothing to plan: {why}")
    from infer_doctor.report import build

    report = build(
        command="plan",
        version=VERSION,
        started_at=started_at,
        duration_s=round(time.monotonic() - started, 3),
        subjects=examination.subjects,
        results=results,
        fail_on="error",
        required={check.id for check in checks if check.id not in (HELD, *SIZES)}
        if planned is None
        else (),
        launch=command,
        redactor=examination.redactor,
        redactions=examination.redactions,
        plan=planned,
    )
    emit(report, format, output)
    raise click.exceptions.Exit(EXIT[report.verdict])


def _is_trtllm(subjects: Sequence[Subject]) -> bool:
    """Whether every launch starts TensorRT-LLM: its plan has checks of its own."""
    from infer_doctor.launch.model import Launch

    launches = [row for subject in subjects if isinstance(row := subject.get(Launch), Launch)]
    return bool(launches) and all(row.engine == "tensorrt-llm" for row in launches)


def _read_models_here(subjects: Sequence[Subject], host: Host | None) -> None:
    """A launch of another machine or a snapshot is planned with this machine's files of the model."""
    from infer_doctor.facts.engine_options import EngineOptions
    from infer_doctor.facts.machine import Environ
    from infer_doctor.facts.model_files import ModelFiles, model_files
    from infer_doctor.host import Unavailable
    from infer_doctor.launch.model import Launch

    environ = Environ(variables=dict(os.environ))
    for subject in subjects:
        options, launch = subject.get(EngineOptions), subject.get(Launch)
        if host is None or subject.host is host or not isinstance(options, EngineOptions):
            continue
        with contextlib.suppress(Unavailable):
            subject.give(ModelFiles, model_files(host, options, launch, environ))


def _plan(subjects: Sequence[Subject], *, gpus_open: bool) -> dict[str, Any] | None:
    """The plan of the first launch that can be planned; without a GPU the fewest of each kind."""
    from infer_doctor.facts.memory_plan import PlanGpu, PlanInputs, Planned
    from infer_doctor.facts.trt_plan import TrtPlanned
    from infer_doctor.memory.changes import changes, fewest
    from infer_doctor.memory.report import wire, wire_of_model

    for subject in subjects:
        found = subject.get(Planned)
        if isinstance(found, Planned):
            gpus = None if gpus_open else found.gpus
            return wire(found.plan, changes(found.inputs, found.plan.gpu, found.plan, gpus))
        other = subject.get(TrtPlanned)
        if isinstance(other, TrtPlanned):
            from infer_doctor.trtllm.report import wire as wire_of_trtllm

            return wire_of_trtllm(other.plan)
        inputs = subject.get(PlanInputs)
        if isinstance(inputs, PlanInputs) and not isinstance(subject.get(PlanGpu), PlanGpu):
            return wire_of_model(inputs.inputs, fewest(inputs.inputs))
    return None
