"""Engine folders, options files, lines and repositories of the four eras through the whole command.

Each wrong one is named by the check that it is for; of each right one nothing is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doctor_process import Run
from model_folder import folder
from trtllm_files import MIB, checkpoint, engine, old_engine, repository, sparse

Words = list[str]

AREAS = ("trt", "launch", "model", "memory", "manifest", "client")


def text(path: Path, content: str) -> str:
    path.write_text(content)
    return str(path)


def with_model(at: Path, options: str, *more: str) -> Words:
    """trtllm-serve of a small model with a file of extra options."""
    file = text(at / "options.yaml", options)
    model = folder(at / "m")
    return ["--", "trtllm-serve", str(model), "--extra_llm_api_options", file, *more]


def right_engine_14(at: Path) -> Words:
    return [str(engine(at / "e")), "--engine", "tensorrt-llm==0.14.0"]


def right_engine_alone(at: Path) -> Words:
    return [str(engine(at / "e", tp=2, pp=2))]


def right_serve_20(at: Path) -> Words:
    built = engine(at / "e", version="0.20.0", tp=2)
    line = ["trtllm-serve", str(built), "--tp_size", "2", "--max_batch_size", "64"]
    return ["--engine", "tensorrt-llm==0.20.0", "--", *line]


def right_mpi(at: Path) -> Words:
    built = engine(at / "e", version="0.17.0", tp=2)
    words = f"mpirun -n 2 --allow-run-as-root trtllm-llmapi-launch trtllm-serve {built}".split()
    return ["--engine", "tensorrt-llm==0.17.0", "--", *words]


def right_serve_12(at: Path) -> Words:
    built = engine(at / "e", version="1.2.1")
    line = ["trtllm-serve", str(built), "--backend", "tensorrt", "--max_batch_size", "32"]
    return ["--engine", "tensorrt-llm==1.2.1", "--", *line]


def right_checkpoint(at: Path) -> Words:
    quantised = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    return [str(checkpoint(at / "c", tp=4, quantization=quantised))]


def right_build(at: Path) -> Words:
    ckpt = checkpoint(at / "c", tp=2)
    line = f"trtllm-build --checkpoint_dir {ckpt} --output_dir {at}/e --gemm_plugin auto "
    line += "--max_batch_size 64 --max_input_len 2048 --max_seq_len 4096 --workers 2 "
    line += "--use_paged_context_fmha enable --multiple_profiles enable"
    return ["--engine", "tensorrt-llm==1.0.0", "--", *line.split()]


def right_options_20(at: Path) -> Words:
    options = "use_cuda_graph: true\ncuda_graph_padding_enabled: true\nprint_iter_log: true\n"
    return ["--engine", "tensorrt-llm==0.20.0", *with_model(at, options)]


def right_options_12(at: Path) -> Words:
    options = (
        "kv_cache_config:\n  free_gpu_memory_fraction: 0.85\n  enable_block_reuse: false\n"
        "cuda_graph_config: {enable_padding: true, max_batch_size: 64}\n"
        "speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 1}\n"
        "moe_config: {backend: CUTLASS}\nenable_attention_dp: true\n"
    )
    return ["--engine", "tensorrt-llm==1.2.1", *with_model(at, options, "--max_batch_size", "64")]


def right_newest(at: Path) -> Words:
    model = folder(at / "m")
    line = ["trtllm-serve", str(model), "--tensor_parallel_size", "1", "--max_seq_len", "2048"]
    line += ["--kv_cache_dtype", "auto", "--no-telemetry"]
    return ["--engine", "tensorrt-llm==1.4.0rc1", "--", *line]


def right_python(at: Path) -> Words:
    model = folder(at / "m")
    code = f"""from tensorrt_llm import LLM, SamplingParams
from tensorrt_llm.llmapi import CudaGraphConfig, KvCacheConfig


def main() -> None:
    llm = LLM(
        model={str(model)!r},
        max_batch_size=8,
        kv_cache_config=KvCacheConfig(free_gpu_memory_fraction=0.7, enable_block_reuse=True),
        cuda_graph_config=CudaGraphConfig(enable_padding=True),
    )
    for output in llm.generate(["one"], SamplingParams(max_tokens=8)):
        print(output.outputs[0].text)


if __name__ == "__main__":
    main()
"""
    return [text(at / "app.py", code), "--engine", "tensorrt-llm==1.1.0"]


def right_triton(at: Path) -> Words:
    return [str(repository(at / "repo", engine(at / "e"), tokenizer=at))]


def right_triton_image(at: Path) -> Words:
    built = engine(at / "e", version="1.0.0", tp=2)
    repository(at / "repo", "/models/e", tokenizer="/models/repo")
    assert built.exists()
    line = f"docker run --gpus all --shm-size=2g -v {at}:/models "
    line += "nvcr.io/nvidia/tritonserver:25.09-trtllm-python-py3 "
    line += "mpirun -n 2 --allow-run-as-root tritonserver --model-repository=/models/repo"
    return ["--", *line.split()]


def right_config_pbtxt(at: Path) -> Words:
    path = repository(at / "repo", engine(at / "e"), tokenizer=at)
    return [str(path / "tensorrt_llm" / "config.pbtxt")]


RIGHT = [value for name, value in list(globals().items()) if name.startswith("right_")]


def wrong_version(at: Path) -> Words:
    return [str(engine(at / "e")), "--engine", "tensorrt-llm==1.1.0"]


def wrong_plans(at: Path) -> Words:
    return [str(engine(at / "e", tp=2, tensorrt=["10.4.0.26", "10.3.0.26"]))]


def wrong_rank_missing(at: Path) -> Words:
    return [str(engine(at / "e", tp=8, sizes=[100 * MIB] * 7))]


def wrong_rank_cut(at: Path) -> Words:
    return [str(engine(at / "e", tp=2, sizes=[300 * MIB, 100 * MIB]))]


def wrong_no_config(at: Path) -> Words:
    return [str(engine(at / "e", config=False))]


def wrong_no_plans(at: Path) -> Words:
    return [str(engine(at / "e", tp=2, sizes=[]))]


def wrong_old_form(at: Path) -> Words:
    return [str(old_engine(at / "e")), "--engine", "tensorrt-llm==0.14.0"]


def wrong_pointer(at: Path) -> Words:
    path = engine(at / "e")
    sparse(path / "rank0.engine", b"version https://git-lfs.github.com/spec/v1\n", 130)
    return [str(path)]


def wrong_sizes(at: Path) -> Words:
    built = engine(at / "e", version="0.20.0", tp=2)
    return ["--engine", "tensorrt-llm==0.20.0", "--", "trtllm-serve", str(built), "--tp_size", "4"]


def wrong_batch(at: Path) -> Words:
    built = engine(at / "e", version="1.1.0")
    line = ["trtllm-serve", str(built), "--backend", "tensorrt"]
    return ["--engine", "tensorrt-llm==1.1.0", "--", *line]


def wrong_backend(at: Path) -> Words:
    built = engine(at / "e", version="1.1.0")
    return ["--engine", "tensorrt-llm==1.1.0", "--", "trtllm-serve", str(built)]


def wrong_era(at: Path) -> Words:
    return [str(engine(at / "e", version="1.2.1")), "--engine", "tensorrt-llm==1.4.0rc1"]


def wrong_gpu(at: Path) -> Words:
    quantised = {"quant_algo": "FP8", "kv_cache_quant_algo": None}
    return [str(engine(at / "e", quantization=quantised)), "--gpu", "A100-80GB:1"]


def wrong_dtype(at: Path) -> Words:
    return [str(engine(at / "e", dtype="bfloat16")), "--gpu", "T4:1"]


def wrong_gpus(at: Path) -> Words:
    return [str(engine(at / "e", tp=4)), "--gpu", "H100-80GB:2"]


def wrong_build(at: Path) -> Words:
    line = "trtllm-build --model_dir ./llama-3-70b --quantization fp8 --output_dir X "
    line += "--gpt_attention_plugin float --tokens_per_block 128"
    return ["--engine", "tensorrt-llm==0.14.0", "--", *line.split()]


def wrong_build_gone(at: Path) -> Words:
    line = f"trtllm-build --checkpoint_dir {checkpoint(at / 'c')}"
    return ["--engine", "tensorrt-llm==1.4.0rc1", "--", *line.split()]


def wrong_key(at: Path) -> Words:
    return ["--engine", "tensorrt-llm==1.2.1", *with_model(at, "gpu_memory_utilization: 0.9\n")]


def wrong_renamed(at: Path) -> Words:
    return ["--engine", "tensorrt-llm==1.2.1", *with_model(at, "use_cuda_graph: true\n")]


def wrong_overridden(at: Path) -> Words:
    options = "kv_cache_config: {free_gpu_memory_fraction: 0.95}\n"
    more = ("--kv_cache_free_gpu_memory_fraction", "0.5")
    return ["--engine", "tensorrt-llm==1.1.0", *with_model(at, options, *more)]


def wrong_share(at: Path) -> Words:
    options = "kv_cache_config: {free_gpu_memory_fraction: 90}\n"
    return ["--engine", "tensorrt-llm==1.2.1", *with_model(at, options)]


def wrong_scales(at: Path) -> Words:
    return [
        "--engine",
        "tensorrt-llm==1.2.1",
        *with_model(at, "kv_cache_config: {dtype: fp8}\n"),
    ]


def wrong_variable(at: Path) -> Words:
    return ["--", "env", "FORCE_DETERMINISTIC=true", "trtllm-serve", str(folder(at / "m"))]


def wrong_python(at: Path) -> Words:
    code = """from tensorrt_llm import TRTLLMEngine

engine = TRTLLMEngine(engine_dir="./e", max_batch_size=64, max_input_len=4096, max_output_len=2048)
print(engine.generate(prompt="hi", max_new_tokens=512, temperature=0.7))
"""
    return [text(at / "app.py", code)]


def wrong_docker(at: Path) -> Words:
    script = (
        "docker run --gpus all -v $(pwd)/models:/models nvidia/cuda:12.4.1-runtime-ubuntu22.04 "
        'bash -c "pip install tensorrtllm_backend && trtllm-build --model_dir /models/llama3"\n'
    )
    return [text(at / "run.sh", script)]


def wrong_triton_template(at: Path) -> Words:
    return [str(repository(at / "repo", engine(at / "e"), batch="${triton_max_batch_size}"))]


def wrong_triton_path(at: Path) -> Words:
    return [str(repository(at / "repo", at / "nowhere", tokenizer=at))]


def wrong_triton_reuse(at: Path) -> Words:
    return [str(repository(at / "repo", engine(at / "e"), enable_kv_cache_reuse="true"))]


def wrong_triton_wiring(at: Path) -> Words:
    change = {"ensemble": ('key: "input_ids"', 'key: "ids"')}
    return [str(repository(at / "repo", engine(at / "e"), replace=change))]


def wrong_triton_ranks(at: Path) -> Words:
    path = repository(at / "repo", engine(at / "e", tp=2), tokenizer=at)
    return ["--", "tritonserver", f"--model-repository={path}"]


def wrong_triton_image(at: Path) -> Words:
    engine(at / "e", version="0.14.0")
    repository(at / "repo", "/models/e", tokenizer="/models/repo")
    line = f"docker run --gpus all --shm-size=2g -v {at}:/models "
    line += "nvcr.io/nvidia/tritonserver:25.12-trtllm-python-py3 tritonserver "
    return ["--", *line.split(), "--model-repository=/models/repo"]


def wrong_triton_engine(at: Path) -> Words:
    quantised = {"quant_algo": "FP8", "kv_cache_quant_algo": None}
    built = engine(at / "e", tp=4, sizes=[90 * MIB] * 3, quantization=quantised)
    return [str(repository(at / "repo", built, tokenizer=at)), "--gpu", "A100-80GB:4"]


def wrong_image(at: Path) -> Words:
    engine(at / "e", version="1.0.0")
    line = f"docker run --gpus all --ipc=host -v {at}/e:/engine "
    line += "nvcr.io/nvidia/tensorrt-llm/release:1.2.1 trtllm-serve /engine --backend tensorrt"
    return ["--", *line.split()]


WRONG: list[tuple[Callable[[Path], Words], set[str]]] = [
    (wrong_version, {"trt-engine-version"}),
    (wrong_plans, {"trt-ranks-differ"}),
    (wrong_rank_missing, {"trt-ranks-missing"}),
    (wrong_rank_cut, {"trt-ranks-differ"}),
    (wrong_no_config, {"trt-engine-config-broken"}),
    (wrong_no_plans, {"trt-ranks-missing"}),
    (wrong_old_form, {"trt-engine-form-old"}),
    (wrong_pointer, {"trt-ranks-differ"}),
    (wrong_sizes, {"trt-ranks-other"}),
    (wrong_batch, {"trt-limits-exceeded"}),
    (wrong_backend, {"trt-engine-unsupported"}),
    (wrong_era, {"trt-engine-unsupported"}),
    (wrong_gpu, {"trt-quantization-gpu"}),
    (wrong_dtype, {"trt-dtype-unsupported"}),
    (wrong_gpus, {"trt-gpus-few"}),
    (wrong_build, {"trt-argument-unknown", "trt-argument-value"}),
    (wrong_build_gone, {"trt-command-gone"}),
    (wrong_key, {"trt-argument-unknown"}),
    (wrong_renamed, {"trt-argument-renamed"}),
    (wrong_overridden, {"trt-option-overridden"}),
    (wrong_share, {"trt-argument-value"}),
    (wrong_scales, {"trt-kv-scales-missing"}),
    (wrong_variable, {"trt-variable-word"}),
    (wrong_python, {"trt-name-missing", "trt-argument-unknown", "trt-generate-keyword"}),
    (wrong_docker, {"trt-image-plain", "trt-package-unknown", "trt-argument-unknown"}),
    (wrong_triton_template, {"trt-triton-template"}),
    (wrong_triton_path, {"trt-triton-path"}),
    (wrong_triton_reuse, {"trt-triton-limits"}),
    (wrong_triton_wiring, {"trt-ensemble-wiring"}),
    (wrong_triton_ranks, {"trt-triton-ranks"}),
    (wrong_triton_image, {"trt-triton-version"}),
    (wrong_triton_engine, {"trt-ranks-missing", "trt-quantization-gpu"}),
    (wrong_image, {"trt-engine-version"}),
]


def judged(at: Path, words: Words) -> list[dict[str, Any]]:
    """The findings about the launch, its files and its model; no check crashed."""
    ended = Run(at)("check", "--format", "json", *words)
    assert ended.stdout, ended.stderr
    rows = json.loads(ended.stdout)["results"]
    crashed = [(row["check"], row["reason"]) for row in rows if row["outcome"] == "crashed"]
    assert crashed == []
    found = [finding for row in rows for finding in row["findings"]]
    return [finding for finding in found if finding["check"].partition("-")[0] in AREAS]


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.__name__)
def test_nothing_of_a_right_one_is_an_error(tmp_path: Path, case: Callable[[Path], Words]) -> None:
    found = judged(tmp_path, case(tmp_path))
    assert [(row["check"], row["message"]) for row in found if row["severity"] == "error"] == []
    warned = {row["check"] for row in found if row["severity"] == "warning"}
    assert not [check for check in warned if check.startswith("trt-")]


@pytest.mark.parametrize(
    ("case", "checks"), WRONG, ids=lambda value: getattr(value, "__name__", "")
)
def test_each_wrong_one_is_named(
    tmp_path: Path, case: Callable[[Path], Words], checks: set[str]
) -> None:
    found = judged(tmp_path, case(tmp_path))
    assert checks <= {row["check"] for row in found}
    for row in found:
        if row["check"] in checks:
            assert row["evidence"]
            assert row["severity"] in ("error", "warning")
