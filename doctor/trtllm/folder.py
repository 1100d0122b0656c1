"""The answer of the operation `trt_folder` -> an engine or checkpoint of TensorRT-LLM.

Four forms: config.json with `pretrained_config` and `build_config` (0.8 to 1.2), with
`builder_config` (before 0.8, gptJsonConfig.cpp:340), a checkpoint (`architecture` and `dtype`), and
a Hugging Face folder, which is none of ours. The order is that of hlapi/llm_utils.py:1070.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from infer_doctor.frozen import frozen

PLAN_TAG = b"ftrt"
"""A plan begins with 0x74727466 and serialisation version 0; then bytes 24 to 27 are the TensorRT
that wrote it (NVIDIA/TensorRT, samples/common/sampleEngines.cpp)."""

RANK = re.compile(r"rank(\d+)\.engine")
OLD_RANK = re.compile(r".+_tp\d+(?:_pp\d+)?_rank(\d+)\.engine")
CHECKPOINT_RANK = re.compile(r"rank(\d+)\.safetensors")

LARGEST = 1 << 40

MOST_RANKS = 4096
"""No engine has more; hands/trtllm.py reads no more heads either."""

SIZES = ("tp_size", "pp_size", "cp_size", "world_size")

LIMITS = ("max_batch_size", "max_seq_len", "max_input_len", "max_num_tokens", "max_beam_width")


@frozen
class RankFile:
    """A file of one rank. `plan` is the TensorRT that wrote it, None where the head does not tell."""

    rank: int
    name: str
    size: int
    plan: str | None = None
    is_plan: bool = True
    """Whether it begins as a plan does."""


@frozen
class TrtEngine:
    """An engine or checkpoint folder; nothing of its weights was read."""

    path: str
    kind: Literal["engine", "checkpoint"]
    form: Literal["current", "old", "none"]
    """old: config.json of before 0.8; none: config.json is missing or cannot be read."""
    version: str | None
    pretrained: Mapping[str, Any] = field(default_factory=dict, metadata={"report": False})
    build: Mapping[str, Any] = field(default_factory=dict, metadata={"report": False})
    ranks: tuple[RankFile, ...] = field(default=(), metadata={"report": False})
    broken: Mapping[str, str] = field(default_factory=dict)
    """File -> why it cannot be used."""
    files: tuple[str, ...] = field(default=(), metadata={"report": False})
    gaps: tuple[str, ...] = ()
    """What stands there and cannot be read: no check may then call it whole."""

    @property
    def config_path(self) -> str:
        return f"{self.path.rstrip('/')}/config.json"

    def size(self, name: str) -> int | None:
        """tp_size, pp_size, cp_size or world_size of the mapping; None where it does not tell."""
        return _size(_written(self.form, self.pretrained, name))

    @property
    def world_size(self) -> int | None:
        """tp x pp x cp, as the runtime counts, else what is written; None for what is no size."""
        written = [_written(self.form, self.pretrained, name) for name in SIZES]
        if self.form == "none" or any(
            value is not None and _size(value) is None for value in written
        ):
            return None
        tensor, stages, contexts, world = (_size(value) for value in written)
        if tensor is None and stages is None:
            return world
        product = (tensor or 1) * (stages or 1) * (contexts or 1)
        return product if product <= MOST_RANKS else None

    def limit(self, name: str) -> int | None:
        """max_batch_size and the like, as the engine was built."""
        return _whole(self.build, name)

    def plugin(self, name: str) -> Any:
        """A value of plugin_config; None where it is off or not written."""
        plugins = self.build.get("plugin_config")
        return plugins.get(name) if isinstance(plugins, Mapping) else None

    @property
    def dtype(self) -> str | None:
        value = self.pretrained.get("dtype" if self.form != "old" else "precision")
        return value if isinstance(value, str) else None

    def quantization(self, name: str) -> str | None:
        """quant_algo or kv_cache_quant_algo."""
        rows = self.pretrained.get("quantization")
        value = rows.get(name) if isinstance(rows, Mapping) else None
        return value.upper() if isinstance(value, str) and value else None


OLD = {
    "tp_size": "tensor_parallel",
    "pp_size": "pipeline_parallel",
    "world_size": "world_size",
}


def folder_of(path: str, answer: Mapping[str, Any]) -> TrtEngine | None:
    """None for a folder that is neither: of Hugging Face, or without any mark of ours."""
    files: Mapping[str, int] = answer["files"]
    config = answer["json"].get("config.json")
    heads: Mapping[str, str] = answer["heads"]
    engines = _ranks(files, heads, RANK) or _ranks(files, heads, OLD_RANK)
    shards = [
        RankFile(rank=int(found[1]), name=name, size=size)
        for name, size in files.items()
        if (found := CHECKPOINT_RANK.fullmatch(name))
    ]
    broken = dict(answer["broken"])
    others = [f"{name}: {why}" for name, why in broken.items() if name != "config.json"]
    if answer.get("truncated"):
        others.append(f"{path} holds more files than are read")
    common: dict[str, Any] = {"path": path, "broken": broken, "files": tuple(files)}
    if isinstance(config, Mapping):
        if "pretrained_config" in config and "build_config" in config:
            return _current(config, {**common, "ranks": engines}, others)
        if _is_old(config):
            builder = _mapping(config["builder_config"])
            build = {**builder, "plugin_config": _mapping(config.get("plugin_config"))}
            return TrtEngine(
                kind="engine",
                form="old",
                version=None,
                pretrained=builder,
                build=build,
                ranks=engines,
                gaps=(*others, *_unread("old", builder, build)),
                **common,
            )
        if isinstance(config.get("architecture"), str) and (shards or "mapping" in config):
            return TrtEngine(
                kind="checkpoint",
                form="current",
                version=_text(config.get("version")),
                pretrained=config,
                ranks=tuple(sorted(shards, key=lambda row: row.rank)),
                gaps=(*others, *_unread("current", config, {})),
                **common,
            )
    if engines:
        return TrtEngine(kind="engine", form="none", version=None, ranks=engines, **common)
    if shards:
        return TrtEngine(
            kind="checkpoint", form="none", version=None, ranks=tuple(shards), **common
        )
    return None


def _current(config: Mapping[str, Any], common: dict[str, Any], others: list[str]) -> TrtEngine:
    """An engine of 0.8 to 1.2; a part that is no object makes its config.json a broken one."""
    parts = ("pretrained_config", "build_config")
    wrong = [name for name in parts if not isinstance(config[name], Mapping)]
    if wrong:
        why = f"has no object {' and '.join(wrong)}"
        common = {**common, "broken": {**common["broken"], "config.json": why}}
        return TrtEngine(kind="engine", form="none", version=None, **common)
    pretrained, build = (config[name] for name in parts)
    return TrtEngine(
        kind="engine",
        form="current",
        version=_text(config.get("version")),
        pretrained=pretrained,
        build=build,
        gaps=(*others, *_unread("current", pretrained, build)),
        **common,
    )


def _is_old(config: Mapping[str, Any]) -> bool:
    """builder_config of a language model: that of a visual encoder, which build_multimodal_engine.py
    writes to this day, has neither plugins nor ranks."""
    builder = config.get("builder_config")
    if not isinstance(builder, Mapping):
        return "builder_config" in config
    return "plugin_config" in config or "tensor_parallel" in builder


def _unread(form: str, model: Mapping[str, Any], build: Mapping[str, Any]) -> list[str]:
    """What is written and is not of its kind: "8192" for 8192, NaN, a list."""
    found = [
        f"{name} is {_short(value)}"
        for name in SIZES
        if (value := _written(form, model, name)) is not None and _size(value) is None
    ]
    tensor, stages, contexts, _ = (_size(_written(form, model, name)) or 1 for name in SIZES)
    if tensor * stages * contexts > MOST_RANKS:
        found.append(f"tp_size x pp_size x cp_size is {tensor * stages * contexts:,}")
    found += [
        f"{name} is {_short(build[name])}"
        for name in LIMITS
        if build.get(name) is not None and _whole(build, name) is None
    ]
    objects = (
        ("mapping", model.get("mapping")),
        ("quantization", model.get("quantization")),
        ("plugin_config", build.get("plugin_config")),
    )
    found += [
        f"{name} is {_short(value)}"
        for name, value in objects
        if value is not None and not isinstance(value, Mapping)
    ]
    rows = _mapping(model.get("quantization"))
    found += [
        f"{name} is {_short(rows[name])}"
        for name in ("quant_algo", "kv_cache_quant_algo")
        if rows.get(name) is not None and not isinstance(rows[name], str)
    ]
    return [f"config.json cannot be used: {text}" for text in found]


def _written(form: str, model: Mapping[str, Any], name: str) -> Any:
    """A size as it stands there."""
    if form == "old":
        return model.get(OLD.get(name, ""))
    mapping = model.get("mapping")
    value = mapping.get(name) if isinstance(mapping, Mapping) else None
    return value if value is not None else model.get(name)


def _size(value: Any) -> int | None:
    return value if type(value) is int and 1 <= value <= MOST_RANKS else None


def _short(value: Any) -> str:
    return repr(value)[:40]


def plan_version(head: bytes) -> tuple[bool, str | None]:
    """Whether it is the head of a plan, and the TensorRT that wrote it ("10.4.0.26")."""
    if len(head) < 28 or not head.startswith(PLAN_TAG):
        return False, None
    if head[4:8] != b"\0\0\0\0" or not head[24]:
        return True, None
    return True, ".".join(str(byte) for byte in head[24:28])


def _ranks(
    files: Mapping[str, int], heads: Mapping[str, str], pattern: re.Pattern[str]
) -> tuple[RankFile, ...]:
    found = []
    for name, size in files.items():
        match = pattern.fullmatch(name)
        if match is None:
            continue
        known, plan = plan_version(bytes.fromhex(heads.get(name, "")))
        found.append(
            RankFile(
                rank=int(match[1]),
                name=name,
                size=size,
                plan=plan,
                is_plan=known or name not in heads,
            )
        )
    return tuple(sorted(found, key=lambda row: row.rank))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < LARGEST:
        return None
    return value
