"""The answers of the operation `model_files` -> ModelFiles, as the engine would read the folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from infer_doctor.models.files import ModelFile, ModelFiles, Tensor, WeightIndex

Answer = Mapping[str, Any]

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")

NOT_WEIGHTS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")
"""filter_files_not_needed_for_inference of vllm/model_executor/model_loader/weight_utils.py."""


def from_folders(
    name: str,
    answers: Mapping[str, Answer],
    origin: str,
    elsewhere: bool,
    revision: str | None = None,
    partial: Iterable[ModelFile] = (),
) -> ModelFiles:
    """One folder, or several over each other: the first that has a file counts.

    `answers` are what the operation `model_files` says of each.
    """
    paths, rows = list(answers), list(answers.values())
    files: dict[str, int] = {}
    documents: dict[str, Mapping[str, Any]] = {}
    broken: dict[str, str] = {}
    left_out: dict[str, tuple[str, ...]] = {}
    for answer in rows:
        for file, size in answer["files"].items():
            if file in files:
                continue
            files[file] = size
            if file in answer["json"]:
                documents[file] = answer["json"][file]
            if file in answer["left_out"]:
                left_out[file] = tuple(answer["left_out"][file])
            if file in answer["broken"]:
                broken[file] = answer["broken"][file]
    weights = next((a for a in rows if _weights(a["files"])), rows[0])
    indexes = tuple(_index(file, row) for file, row in sorted(weights["index"].items()))
    loaded, tag = _loaded(weights["files"], indexes)
    table = [row for row in weights["tensors"] if row[5] == tag]
    bad = any(file in broken or file in weights["unreadable"] for file in loaded)
    quantization, source = _quantization(documents)
    shards = _missing(indexes, files)
    return ModelFiles(
        model=name,
        origin=origin,
        folder=paths[0],
        revision=revision,
        config=documents.get("config.json"),
        generation_config=documents.get("generation_config.json"),
        tokenizer_config=documents.get("tokenizer_config.json"),
        quantization=quantization,
        quantization_source=source,
        files=tuple(ModelFile(name=file, size=files[file]) for file in sorted(files)),
        tensors=() if bad else tuple(tensor for row in table for tensor in _tensors(row)),
        missing_shards=shards,
        broken=broken,
        documents=documents,
        left_out=left_out,
        indexes=indexes,
        loaded=loaded,
        partial=tuple(partial),
        dangling=tuple(file for answer in rows for file in answer["dangling"]),
        elsewhere=elsewhere,
        gaps=tuple(gap for path, answer in answers.items() for gap in _gaps(path, answer)),
    )


def _gaps(path: str, answer: Mapping[str, Any]) -> Iterable[str]:
    for file, reason in answer["unreadable"].items():
        yield f"{path}/{file}: {reason}"
    if answer["truncated"]:
        yield f"{path}: only its first {len(answer['files']):,} files were looked at"


def is_weight(name: str) -> bool:
    """Whether the engine may read a file of this name as weights; an adapter's are none."""
    return (
        name.endswith(WEIGHTS)
        and not name.endswith(NOT_WEIGHTS)
        and not name.startswith("adapter_model")
    )


def _weights(files: Iterable[str]) -> list[str]:
    return [name for name in files if is_weight(name)]


def _loaded(
    files: Mapping[str, int], indexes: Iterable[WeightIndex]
) -> tuple[tuple[str, ...], str]:
    """The files that are read, and how their rows of tensors are marked.

    As _prepare_weights does for "auto": *.safetensors, of several only those that the index names,
    else *.bin, else *.pt. A consolidated file beside others holds the same weights in other names.
    """
    names = _weights(files)
    by_name = {index.name: index for index in indexes}
    main = by_name.get("model.safetensors.index.json")
    if main is not None:
        return tuple(name for name in main.files if name in files), "indexed"
    safe = [name for name in names if name.endswith(".safetensors")]
    single = [name for name in safe if name.startswith("consolidated")]
    other = [name for name in safe if name not in single]
    if safe:
        return tuple(other or single), "other" if other else "consolidated"
    for ending in (".bin", ".pt", ".pth"):
        if found := [name for name in names if name.endswith(ending)]:
            return tuple(found), "none"
    return (), "none"


def _missing(indexes: Iterable[WeightIndex], files: Mapping[str, int]) -> tuple[str, ...]:
    """Of the index that the engine reads: the safetensors one, else PyTorch's when its files count."""
    for index in sorted(indexes, key=lambda index: not index.name.startswith("model.")):
        if index.name.startswith("consolidated"):
            continue
        if index.name.startswith("pytorch") and any(
            name.endswith(".safetensors") for name in files
        ):
            continue
        return tuple(name for name in index.files if name not in files)
    return ()


def _index(name: str, row: Mapping[str, Any]) -> WeightIndex:
    return WeightIndex(
        name=name,
        files=tuple(row["files"]),
        tensors=row["tensors"],
        total_size=row["total_size"],
        lacking=row["lacking"],
        lacking_names=tuple(row["lacking_names"]),
    )


def _tensors(row: Any) -> Iterable[Tensor]:
    """The tensors of one row of the operation: one for each value of the first number."""
    pattern, dtype, shape, size, file, _, runs = row
    sides = tuple(shape)
    for first, last, count in runs:
        for number in range(first, last + 1):
            yield Tensor(
                name=pattern if number < 0 else pattern.replace("*", str(number), 1),
                dtype=dtype,
                shape=sides,
                size=size * count,
                file=file,
                count=count,
            )


def _quantization(
    documents: Mapping[str, Mapping[str, Any]],
) -> tuple[Mapping[str, Any] | None, str | None]:
    """As the engine looks for it: config.json, its text part, then the older files of their own."""
    config = documents.get("config.json", {})
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        for key in ("quantization_config", "compression_config"):
            if isinstance(found := part.get(key), dict):
                return found, "config.json"
    for name in ("hf_quant_config.json", "quantize_config.json", "quant_config.json"):
        if name in documents:
            return documents[name], name
    return None, None
