"""Engine folders, checkpoints and Triton repositories, whose plans are heads and holes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infer_doctor.facts.engine_options import EngineOptions, EngineQuestion
from infer_doctor.facts.triton import TritonRepository, with_folders
from infer_doctor.facts.trt_engine import TrtEngine
from infer_doctor.facts.trt_release import TrtRelease, trt_release
from infer_doctor.facts.vllm_options import engine_options
from infer_doctor.hands.trtllm import triton_repository, trt_folder
from infer_doctor.launch.command import read
from infer_doctor.launch.model import Launch
from infer_doctor.trtllm.folder import folder_of
from infer_doctor.trtllm.triton import model_of

MIB = 1 << 20

TENSORRT = {
    "0.12.0": "10.3.0.26",
    "0.14.0": "10.4.0.26",
    "0.17.0": "10.8.0.43",
    "0.20.0": "10.10.0.31",
    "0.21.0": "10.11.0.33",
    "1.0.0": "10.11.0.33",
    "1.1.0": "10.13.3.9",
    "1.2.1": "10.14.1.48",
}


def plan(version: str) -> bytes:
    """The head of a plan: tag, serialisation version 0, and the TensorRT that wrote it."""
    numbers = bytes(int(part) for part in version.split("."))
    return b"ftrt" + bytes(20) + numbers + bytes(36)


def sparse(path: Path, head: bytes, size: int) -> None:
    with path.open("wb") as file:
        file.write(head)
        file.truncate(max(size, len(head)))


def pretrained(tp: int = 1, pp: int = 1, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "architecture": "LlamaForCausalLM",
        "dtype": "float16",
        "vocab_size": 32000,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_size": 128,
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "mapping": {"world_size": tp * pp, "tp_size": tp, "pp_size": pp, "gpus_per_node": 8},
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
    }
    return {**found, **more}


def build_config(**more: Any) -> dict[str, Any]:
    plugins = {
        "gemm_plugin": "auto",
        "gpt_attention_plugin": "auto",
        "paged_kv_cache": True,
        "tokens_per_block": 64,
        "use_paged_context_fmha": False,
        "remove_input_padding": True,
        **more.pop("plugins", {}),
    }
    found = {
        "max_input_len": 1024,
        "max_seq_len": 4096,
        "max_batch_size": 64,
        "max_beam_width": 1,
        "max_num_tokens": 8192,
        "kv_cache_type": "PAGED",
        "plugin_config": plugins,
    }
    return {**found, **more}


def engine(
    path: Path,
    *,
    version: str = "0.14.0",
    tensorrt: str | Sequence[str] | None = None,
    tp: int = 1,
    pp: int = 1,
    sizes: Sequence[int] | None = None,
    config: bool = True,
    build: Mapping[str, Any] | None = None,
    **model: Any,
) -> Path:
    """An engine of 0.8 to 1.2."""
    path.mkdir(parents=True, exist_ok=True)
    world = tp * pp
    written = tensorrt or TENSORRT.get(version, "10.4.0.26")
    plans = [written] * world if isinstance(written, str) else list(written)
    for rank, size in enumerate(sizes if sizes is not None else [200 * MIB] * world):
        head = plan(plans[min(rank, len(plans) - 1)]) if size else b""
        sparse(path / f"rank{rank}.engine", head, size)
    if config:
        document = {
            "version": version,
            "pretrained_config": pretrained(tp, pp, **model),
            "build_config": build_config(**(build or {})),
        }
        (path / "config.json").write_text(json.dumps(document))
    return path


def old_engine(path: Path) -> Path:
    """An engine of before 0.8."""
    path.mkdir(parents=True)
    document = {
        "builder_config": {
            "precision": "float16",
            "tensor_parallel": 1,
            "pipeline_parallel": 1,
            "num_layers": 32,
            "max_batch_size": 8,
        },
        "plugin_config": {"paged_kv_cache": True, "tokens_per_block": 64},
    }
    (path / "config.json").write_text(json.dumps(document))
    sparse(path / "llama_float16_tp1_rank0.engine", plan("9.2.0.5"), 100 * MIB)
    return path


def checkpoint(path: Path, *, tp: int = 1, ranks: int | None = None, **model: Any) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(pretrained(tp, **model)))
    for rank in range(tp if ranks is None else ranks):
        sparse(path / f"rank{rank}.safetensors", b"\2\0\0\0\0\0\0\0{}", 10 * MIB)
    return path


def read_engine(path: Path) -> TrtEngine:
    found = folder_of(str(path), trt_folder(str(path)))
    assert found is not None
    return found


SERVED = """name: "tensorrt_llm"
backend: "tensorrtllm"
max_batch_size: %(batch)s

model_transaction_policy { decoupled: %(decoupled)s }

input [
  { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] },
  { name: "input_lengths" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } },
  { name: "request_output_len" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "end_id" data_type: TYPE_INT32 dims: [ 1 ] optional: true }
]
output [ { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""

PREPROCESSING = """# the tokenizer, ${comments} do not count
name: "preprocessing"
backend: "python"
max_batch_size: %(batch)s
input [
  { name: "QUERY" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "REQUEST_OUTPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] }
]
output [
  { name: "INPUT_ID" data_type: TYPE_INT32 dims: [ -1 ] },
  { name: "REQUEST_INPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "REQUEST_OUTPUT_LEN" data_type: TYPE_INT32 dims: [ -1 ] }
]
parameters { key: "tokenizer_dir" value: { string_value: "%(tokenizer)s" } }
"""

POSTPROCESSING = """name: "postprocessing"
backend: "python"
max_batch_size: %(batch)s
input [ { name: "TOKENS_BATCH" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_STRING dims: [ -1 ] } ]
"""

ENSEMBLE = """name: "ensemble"
platform: "ensemble"
max_batch_size: %(ensemble_batch)s
input [
  { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] }
]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] } ]
ensemble_scheduling {
  step [
    {
      model_name: "preprocessing"
      model_version: -1
      input_map { key: "QUERY" value: "text_input" }
      input_map { key: "REQUEST_OUTPUT_LEN" value: "max_tokens" }
      output_map { key: "INPUT_ID" value: "_INPUT_ID" }
      output_map { key: "REQUEST_INPUT_LEN" value: "_REQUEST_INPUT_LEN" }
      output_map { key: "REQUEST_OUTPUT_LEN" value: "_REQUEST_OUTPUT_LEN" }
    },
    {
      model_name: "tensorrt_llm"
      model_version: -1
      input_map { key: "input_ids" value: "_INPUT_ID" }
      input_map { key: "input_lengths" value: "_REQUEST_INPUT_LEN" }
      input_map { key: "request_output_len" value: "_REQUEST_OUTPUT_LEN" }
      output_map { key: "output_ids" value: "_TOKENS_BATCH" }
    },
    {
      model_name: "postprocessing"
      model_version: -1
      input_map { key: "TOKENS_BATCH" value: "_TOKENS_BATCH" }
      output_map { key: "OUTPUT" value: "text_output" }
    }
  ]
}
"""


def parameter(name: str, value: str) -> str:
    return f'parameters: {{\n  key: "{name}"\n  value: {{ string_value: "{value}" }}\n}}\n'


def repository(
    path: Path,
    engine_dir: Path | str,
    *,
    batch: int | str = 8,
    ensemble_batch: int | None = None,
    decoupled: str = "false",
    tokenizer: Path | str | None = None,
    replace: Mapping[str, tuple[str, str]] | None = None,
    **parameters: str,
) -> Path:
    """A repository as NVIDIA's template makes it; `replace` changes one model's text."""
    values = {
        "batch": batch,
        "ensemble_batch": batch if ensemble_batch is None else ensemble_batch,
        "decoupled": decoupled,
        "tokenizer": tokenizer if tokenizer is not None else path,
    }
    served = SERVED + parameter("gpt_model_type", "inflight_fused_batching")
    served += parameter("gpt_model_path", str(engine_dir))
    served += "".join(parameter(name, value) for name, value in parameters.items())
    texts = {
        "tensorrt_llm": served,
        "preprocessing": PREPROCESSING,
        "postprocessing": POSTPROCESSING,
        "ensemble": ENSEMBLE,
    }
    for name, template in texts.items():
        (path / name / "1").mkdir(parents=True)
        text = template % values
        old, new = (replace or {}).get(name, ("", ""))
        assert old in text
        (path / name / "config.pbtxt").write_text(text.replace(old, new, 1) if old else text)
        if 'backend: "python"' in template:
            (path / name / "1" / "model.py").write_text("")
    return path


class Folders:
    """A Host for the folders of a repository, without a child process."""

    def ask(self, operation: str, *, path: str) -> Any:
        assert operation == "trt_folder"
        try:
            return trt_folder(path)
        except FileNotFoundError:
            from infer_doctor.host import Unavailable

            raise Unavailable("not there", "ENOENT") from None

    def exists(self, path: str) -> bool:
        return Path(path).exists()


def read_repository(path: Path, launch: Launch | None = None) -> TritonRepository:
    answer = triton_repository(str(path))
    models = tuple(model_of(str(path), name, row) for name, row in answer["models"].items())
    found = TritonRepository(path=str(path), models=models)
    host: Any = Folders()
    return with_folders(host, launch or triton(path), {}, found)


def triton(path: Path, before: str = "") -> Launch:
    return read([*before.split(), "tritonserver", f"--model-repository={path}"])


def release(launch: Launch, version: str | None) -> TrtRelease:
    question = EngineQuestion(name="tensorrt-llm", version=version) if version else None
    return trt_release(launch, None, None, question, None, None)


def facts(command: str | Launch, version: str | None = None) -> list[Any]:
    """Launch, TrtRelease and EngineOptions of a command line."""
    launch = read(command.split()) if isinstance(command, str) else command
    found = release(launch, version)
    options = engine_options(launch, None, found)
    assert isinstance(options, EngineOptions)
    return [launch, found, options]
