"""How the models of a Triton ensemble are wired."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.checks.trt_triton import at
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.triton import TritonRepository
from infer_doctor.fixes.trtllm import advise, edit_parameter
from infer_doctor.model import Confidence, Evidence, Finding, Fix
from infer_doctor.registry import check
from infer_doctor.trtllm.triton import Step, TritonModel


@check("trt-ensemble-wiring", severity="error", category="trt_backend_load", since="0.3")
def ensemble_wiring(repository: TritonRepository) -> Iterator[Finding]:
    """A step of the ensemble leads nowhere: a model, an input or a tensor of that name does not exist.

    ## Why it matters
    "ensemble tensor _X is mapping to non-existing input X", "ensemble input 'X' for ensemble ... is not
    used", "output 'X' ... is not written": Triton refuses the whole ensemble at the start.

    ## How it decides
    Triton's own rules (core/src/ensemble_utils.cc, ValidateEnsembleSchedulingConfig in
    model_config_utils.cc): each step names a model of the repository; each key of input_map and
    output_map is an input or output of that model; each value of input_map is an input of the ensemble
    or an output of another step; each input of the ensemble and each tensor that a step makes is used;
    each output of the ensemble comes from a step; every input of a model that is not optional is mapped.
    Inputs and outputs of a python model are likely only: its auto_complete_config may add some.

    ## Fix safety
    Manual: the names have to agree.
    """
    ensembles = [model for model in repository.models if model.is_ensemble]
    if not ensembles:
        raise NotApplicable("the repository has no ensemble")
    for ensemble in ensembles:
        made = {value for step in ensemble.steps for value, _ in step.outputs.values()}
        for step in ensemble.steps:
            yield from _step(repository, ensemble, step, made | set(ensemble.inputs))
        yield from _unused(ensemble, made)
        for name in ensemble.outputs:
            if name not in made | set(ensemble.inputs):
                yield Finding(
                    about=f"{ensemble.name} {name}",
                    message=f"no step of {ensemble.name} makes its output {name}",
                    evidence=(Evidence(source=ensemble.path, excerpt=f'output name: "{name}"'),),
                    fixes=(_look(ensemble, name, None),),
                )


def _unused(ensemble: TritonModel, made: set[str]) -> Iterator[Finding]:
    """Inputs of the ensemble and tensors of its steps that nothing takes."""
    taken = {value for step in ensemble.steps for value, _ in step.inputs.values()}
    for name in ensemble.inputs:
        if ensemble.steps and name not in taken:
            yield Finding(
                about=f"{ensemble.name} {name}",
                message=f"no step of {ensemble.name} takes its input {name}",
                evidence=(Evidence(source=ensemble.path, excerpt=f'input name: "{name}"'),),
                fixes=(_look(ensemble, name, None),),
            )
    lines = {value: line for step in ensemble.steps for value, line in step.outputs.values()}
    for name in sorted(made - taken - set(ensemble.outputs)):
        yield Finding(
            about=f"{ensemble.name} {name}",
            message=f"{name} of {ensemble.name} is made by a step, but it is no output of "
            f"{ensemble.name} and no step takes it",
            evidence=(
                Evidence(source=ensemble.path, line=lines[name], excerpt=f'value: "{name}"'),
            ),
            fixes=(_look(ensemble, name, lines[name]),),
        )


def _step(
    repository: TritonRepository, ensemble: TritonModel, step: Step, there: set[str]
) -> Iterator[Finding]:
    model = repository.model(step.model)

    def said(line: int, excerpt: str) -> tuple[Evidence, ...]:
        return (Evidence(source=ensemble.path, line=line, excerpt=excerpt),)

    if model is None:
        if "${" in step.model:
            return  # trt-triton-template says it
        yield Finding(
            about=f"{ensemble.name} {step.model}",
            message=f"{ensemble.name} has a step {step.model}, but the repository has no such model",
            evidence=said(step.line, f'model_name: "{step.model}"'),
            fixes=(_look(ensemble, step.model, step.line),),
        )
        return
    sure: Confidence = "likely" if model.is_python else "certain"
    for name, (tensor, line) in step.inputs.items():
        if model.inputs and name not in model.inputs:
            yield Finding(
                about=f"{ensemble.name} {step.model} {name}",
                confidence=sure,
                message=f"{ensemble.name} gives {step.model} the input {name}, which it does not have",
                evidence=said(line, f'key: "{name}"'),
                fixes=(_look(ensemble, name, line),),
            )
        if tensor not in there:
            yield Finding(
                about=f"{ensemble.name} {tensor}",
                message=f"{tensor}, which {step.model} gets as {name}, is neither an input of "
                f"{ensemble.name} nor an output of a step",
                evidence=said(line, f'value: "{tensor}"'),
                fixes=(_look(ensemble, tensor, line),),
            )
    for name, (_, line) in step.outputs.items():
        if model.outputs and name not in model.outputs:
            yield Finding(
                about=f"{ensemble.name} {step.model} {name}",
                confidence=sure,
                message=f"{ensemble.name} takes the output {name} of {step.model}, which it does not "
                "have",
                evidence=said(line, f'key: "{name}"'),
                fixes=(_look(ensemble, name, line),),
            )
    for name, (_, optional) in model.inputs.items():
        if not optional and name not in step.inputs:
            yield Finding(
                about=f"{ensemble.name} {step.model} {name}",
                message=f"{ensemble.name} does not give {step.model} its input {name}, which is not "
                "optional",
                evidence=said(step.line, f'model_name: "{step.model}"'),
                fixes=(_look(ensemble, name, step.line),),
            )


def _look(model: TritonModel, name: str, line: int | None) -> Fix:
    at = f"{model.path}:{line}" if line else model.path
    return advise("agree-names", f"Make the names agree: {name} in {at}")


@check("trt-ensemble-batch", severity="error", category="trt_backend_load", since="0.3")
def ensemble_batch(repository: TritonRepository) -> Iterator[Finding]:
    """The ensemble takes larger batches than one of its models, or one of them cannot stream.

    ## Why it matters
    "ensemble ensemble allows maximum batch size 64, but it contains model X which only allows maximum
    batch size to be 8": Triton refuses it. A request with stream=true to a server that is not decoupled fails with "Response streaming is
    not supported".

    ## How it decides
    max_batch_size of the ensemble against that of each step's model (core/src/ensemble_utils.cc: the
    ensemble's may not be larger; a model with 0, which takes no batches, may stand in any). With decoupled true in
    tensorrt_llm, tensorrt_llm_bls must be decoupled too; the other way round is told as well.

    ## Fix safety
    Manual.
    """
    models = {model.name: model for model in repository.models}
    for ensemble in (model for model in repository.models if model.is_ensemble):
        for step in ensemble.steps:
            model = models.get(step.model)
            if model is None or model.batch is None or ensemble.batch is None:
                continue
            if 0 < model.batch < ensemble.batch:
                yield Finding(
                    about=f"{ensemble.name} {model.name} max_batch_size",
                    message=f"max_batch_size of {ensemble.name} is {ensemble.batch}, that of its step "
                    f"{model.name} {model.batch}",
                    evidence=(
                        at(ensemble, "max_batch_size", f"max_batch_size: {ensemble.batch}"),
                        at(model, "max_batch_size", f"max_batch_size: {model.batch}"),
                    ),
                    fixes=(
                        edit_parameter(
                            ensemble.path,
                            ensemble.line_of("max_batch_size"),
                            "max_batch_size",
                            str(model.batch),
                        ),
                    ),
                )
    caller = models.get("tensorrt_llm_bls")
    for model in repository.served:
        if caller is None or caller.decoupled is None or model.decoupled is None:
            continue
        if caller.decoupled != model.decoupled:
            yield Finding(
                about=f"{caller.name} decoupled",
                severity="warning",
                message=f"{caller.name} is {_mode(caller)}, {model.name} {_mode(model)}: streaming "
                "works only where both are decoupled",
                evidence=(
                    at(caller, "model_transaction_policy", f"decoupled: {caller.decoupled}"),
                    at(model, "model_transaction_policy", f"decoupled: {model.decoupled}"),
                ),
                fixes=(
                    edit_parameter(
                        caller.path,
                        caller.line_of("model_transaction_policy"),
                        "decoupled",
                        str(model.decoupled).lower(),
                    ),
                ),
            )


def _mode(model: TritonModel) -> str:
    return "decoupled" if model.decoupled else "not decoupled"
