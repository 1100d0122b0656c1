"""The model repository of a Triton launch, with the engine folders that it names."""

from __future__ import annotations

import re

from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_files import local_path
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.launch.model import Launch, Word
from infer_doctor.launch.variables import of_engine
from infer_doctor.registry import probe
from infer_doctor.trtllm.folder import TrtEngine, folder_of
from infer_doctor.trtllm.triton import TritonRepository, is_repository, model_of

__all__ = ["TritonRepository", "read_folder", "repository_word", "triton_repository"]

OPTION = re.compile(r"--?(?:model-repository|model_repo|model-store)")


@probe
def triton_repository(
    launch: Launch, host: Host | None, environ: Environ | None
) -> TritonRepository:
    """Absent where the launch starts no Triton, or no model of it runs TensorRT-LLM."""
    if launch.entry not in ("tritonserver", "launch_triton_server.py"):
        raise Absent("the launch starts no Triton")
    word = repository_word(launch)
    if word is None:
        raise Unavailable("the launch names no model repository")
    if word.unknown is not None:
        raise Unavailable(f"the model repository is {word.text}, which the launch does not tell")
    if host is None:
        raise Unavailable(f"{word.text} lies on the machine that will run {launch.name}")
    variables = of_engine(launch, environ)
    path = local_path(host, launch, word.text, variables)
    if path is None:
        raise Unavailable(f"{word.text} lies on the machine that will run {launch.name}")
    try:
        answer = host.ask("triton_repository", path=path)
    except Unavailable as error:
        raise Unavailable(f"{path}: {error.reason}", error.code) from None
    if not is_repository(answer):
        raise Absent(f"no model of {path} runs TensorRT-LLM")
    models = tuple(model_of(path, name, row) for name, row in answer["models"].items())
    found = TritonRepository(path=path, models=models)
    return with_folders(host, launch, variables, found)


def repository_word(launch: Launch) -> Word | None:
    """Where the repository is named, the last one given."""
    found = None
    for index, word in enumerate(launch.words):
        name, equals, value = word.text.partition("=")
        if not OPTION.fullmatch(name):
            continue
        if equals:
            found = Word(text=value, place=word.place, unknown=word.unknown)
        elif index + 1 < len(launch.words):
            found = launch.words[index + 1]
    return found


def with_folders(
    host: Host, launch: Launch, variables: dict[str, str], found: TritonRepository
) -> TritonRepository:
    """The engine folders, and whether the tokenizers are there."""
    engines: dict[str, TrtEngine] = {}
    missing: dict[str, str] = {}
    tokenizers: dict[str, bool] = {}
    gaps: list[str] = []
    for model in found.models:
        named = model.parameter("gpt_model_path")
        if named is not None:
            try:
                engine = read_folder(host, _required(host, launch, named, variables))
            except Unavailable as error:
                gaps.append(error.reason)
            else:
                if engine is None:
                    missing[model.name] = named
                else:
                    engines[model.name] = engine
        tokenizer = model.parameter("tokenizer_dir")
        if tokenizer is not None and tokenizer.startswith("/"):
            path = local_path(host, launch, tokenizer, variables)
            if path is not None:
                tokenizers[model.name] = host.exists(path)
    gaps += [f"{row.path}: {row.broken}" for row in found.models if row.broken]
    return TritonRepository(
        path=found.path,
        models=found.models,
        engines=engines,
        missing=missing,
        tokenizers=tokenizers,
        gaps=tuple(gaps),
    )


def _required(host: Host, launch: Launch, name: str, variables: dict[str, str]) -> str:
    path = local_path(host, launch, name, variables)
    if path is None:
        raise Unavailable(f"{name} lies on the machine that will run {launch.name}")
    return path


def read_folder(host: Host, path: str) -> TrtEngine | None:
    """The folder; None where it is of another kind or is not there."""
    try:
        return folder_of(path, host.ask("trt_folder", path=path))
    except Unavailable as error:
        if error.code in ("ENOENT", "ENOTDIR"):
            return None
        raise Unavailable(f"{path}: {error.reason}", error.code) from None
