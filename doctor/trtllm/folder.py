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

    @property
    def config_path(self) -> str:
        return f"{self.path.rstrip('/')}/config.json"

    def size(self, name: str) -> int | None:
        """tp_size, pp_size, cp_size or world_size of the mapping; None where it does not tell."""
        if self.form == "old":
            return _whole(
                self.pretrained, {"world_size": "world_size"}.get(name, OLD.get(name, ""))
            )
        mapping = self.pretrained.get("mapping")
        value = _whole(mapping, name) if isinstance(mapping, Mapping) else None
        return value if value is not None else _whole(self.pretrained, name)

    @property
    def world_size(self) -> int | None:
        """tp x pp x cp, as the runtime counts, else what is written."""
        if self.form == "none":
            return None
        tensor, stages = self.size("tp_size"), self.size("pp_size")
        if tensor is None and stages is None:
            return self.size("world_size") if self.size("world_size") is not None else None
        return (tensor or 1) * (stages or 1) * (self.size("cp_size") or 1)

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


OLD = {"tp_size": "tensor_parallel", "pp_size": "pipeline_parallel"}


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
    common: dict[str, Any] = {
        "path": path,
        "broken": dict(answer["broken"]),
        "files": tuple(files),
    }
    if isinstance(config, Mapping):
        if "pretrained_config" in config and "build_config" in config:
            return TrtEngine(
                kind="engine",
                form="current",
                version=_text(config.get("version")),
                pretrained=_mapping(config["pretrained_config"]),
                build=_mapping(config["build_config"]),
                ranks=engines,
                **common,
            )
        if "builder_config" in config:
            builder = _mapping(config["builder_config"])
            plugins = _mapping(config.get("plugin_config"))
            return TrtEngine(
                kind="engine",
                form="old",
                version=None,
                pretrained=builder,
                build={**builder, "plugin_config": plugins},
                ranks=engines,
                **common,
            )
        if shards and isinstance(config.get("architecture"), str):
            return TrtEngine(
                kind="checkpoint",
                form="current",
                version=_text(config.get("version")),
                pretrained=config,
                ranks=tuple(sorted(shards, key=lambda row: row.rank)),
                **common,
            )
        if "mapping" in config and isinstance(config.get("architecture"), str):
            return TrtEngine(
                kind="checkpoint", form="current", version=None, pretrained=config, **common
            )
    if engines:
        return TrtEngine(kind="engine", form="none", version=None, ranks=engines, **common)
    if shards:
        return TrtEngine(
            kind="checkpoint", form="none", version=None, ranks=tuple(shards), **common
        )
    return None


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
