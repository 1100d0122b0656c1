"""What a launch asks of its engine, its model and its GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launch_files import launches_in
from trtllm_files import checkpoint, engine, facts, read_engine

from infer_doctor.checks.trt_build import build_lengths, checkpoint_kind, dtype_unsupported
from infer_doctor.checks.trt_launch import gpus_few, limits_exceeded, prompt_limit, ranks_other
from infer_doctor.checks.trt_quantization import (
    kv_cache_gpu,
    kv_scales_missing,
    quantization_gpu,
    quantization_version,
)
from infer_doctor.facts.gpu import Gpu, GpuCapabilities, Gpus
from infer_doctor.models.files import ModelFiles
from infer_doctor.testing import contract, examine


def gpus(count: int) -> Gpus:
    rows = (Gpu(index=i, name="NVIDIA H100", uuid=None, bus_id=None) for i in range(count))
    return Gpus(gpus=tuple(rows), source="nvml")


def capability(major: int, minor: int = 0) -> GpuCapabilities:
    return GpuCapabilities(capabilities={0: (major, minor)}, source="nvml")


def model(quantization: dict[str, Any] | None = None, **documents: Any) -> ModelFiles:
    return ModelFiles(
        model="m",
        origin="folder",
        folder="/m",
        quantization=quantization,
        quantization_source="config.json" if quantization else None,
        documents={name.replace("__", "."): value for name, value in documents.items()},
    )


def modelopt(weights: str | None, cache: str | None = None) -> ModelFiles:
    return model(
        hf_quant_config__json={
            "quantization": {"quant_algo": weights, "kv_cache_quant_algo": cache}
        }
    )


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return engine(tmp_path / "two", tp=2)


def test_ranks_other(two: Path) -> None:
    launch, _, options = facts(f"trtllm-serve {two} --tp_size 4")
    good, _, fine = facts(f"trtllm-serve {two} --tp_size 2")
    contract(
        ranks_other,
        fires=[read_engine(two), launch, options],
        passes=[read_engine(two), good, fine],
    )
    (finding,) = examine(ranks_other, read_engine(two), launch, options).findings
    assert finding.message == (
        "the launch asks for --tp_size 4, the engine was built for tp_size 2"
    )
    assert finding.fixes[0].title == "Start with --tp_size 2"


@pytest.mark.parametrize(
    ("before", "outcome"),
    [
        ("mpirun -n 4 --allow-run-as-root", "failed"),
        ("mpirun -n 2 --allow-run-as-root", "passed"),
        ("mpirun --oversubscribe -np 1", "passed"),
        ("srun -n 8 --mpi=pmix trtllm-llmapi-launch", "failed"),
        ("srun --ntasks=2 trtllm-llmapi-launch", "passed"),
        ("srun -n2", "passed"),
        ("", "passed"),
    ],
)
def test_ranks_of_mpirun(two: Path, before: str, outcome: str) -> None:
    launch, _, options = facts(f"{before} trtllm-serve {two}".strip())
    assert examine(ranks_other, read_engine(two), launch, options).outcome == outcome


def test_gpus_few(two: Path) -> None:
    rows = facts("trtllm-serve m --tp_size 4")
    contract(gpus_few, fires=[*rows, gpus(2)], passes=[*rows, gpus(4)])
    (finding,) = examine(gpus_few, *rows, gpus(2)).findings
    assert finding.message == "4 ranks want 4 GPUs, 2 are there"
    of_engine = facts(f"trtllm-serve {two}")
    (finding,) = examine(gpus_few, *of_engine, gpus(1), read_engine(two)).findings
    assert "Convert the checkpoint with --tp_size 1" in finding.fixes[0].title
    nodes = facts("srun -N 2 -n 8 trtllm-serve m --tp_size 8")
    assert examine(gpus_few, *nodes, gpus(4)).outcome == "blocked"
    assert examine(gpus_few, *facts("trtllm-serve m"), gpus(1)).outcome == "not_applicable"


def test_limits_exceeded(two: Path) -> None:
    launch, release, options = facts(f"trtllm-serve {two} --max_seq_len 8192 --max_batch_size 64")
    good, _, fine = facts(f"trtllm-serve {two} --max_seq_len 4096 --max_batch_size 64")
    contract(
        limits_exceeded,
        fires=[read_engine(two), launch, options, release],
        passes=[read_engine(two), good, fine, release],
    )
    (finding,) = examine(limits_exceeded, read_engine(two), launch, options, release).findings
    assert finding.message == (
        "the launch asks for max_seq_len 8,192, the engine was built for 4,096"
    )
    assert "--max_seq_len 8192" in finding.fixes[1].actions[0].text
    launch, _, options = facts(f"trtllm-serve {two} --max_beam_width 4")
    (finding,) = examine(limits_exceeded, read_engine(two), launch, options, release).findings
    assert finding.severity == "error"


SERVED = "trtllm-serve {} --backend tensorrt"


@pytest.mark.parametrize(
    ("version", "line", "message", "confidence"),
    [
        ("1.1.0", SERVED, "trtllm-serve takes max_batch_size 2,048 where none is given", "certain"),
        ("0.20.0", "trtllm-serve {}", "trtllm-serve takes max_batch_size 2,048", "certain"),
        ("0.19.0", "trtllm-serve {}", None, None),
        (
            "1.0.0",
            f"{SERVED} --max_batch_size 128",
            "the launch asks for max_batch_size 128",
            "certain",
        ),
        ("1.0.0", f"{SERVED} --max_batch_size 64", None, None),
        ("1.3.0rc5", SERVED, None, None),
        ("1.3.0rc5", f"{SERVED} --max_batch_size 128", "asks for max_batch_size 128", "likely"),
        ("1.1.0", "trtllm-serve {}", None, None),  # trt-engine-unsupported says it
    ],
)
def test_what_ends_the_start_of_an_engine(
    two: Path, version: str, line: str, message: str | None, confidence: str | None
) -> None:
    launch, release, options = facts(line.format(two), version)
    found = examine(limits_exceeded, read_engine(two), launch, options, release).findings
    assert [(f.severity, f.confidence) for f in found] == (
        [("error", confidence)] if message else []
    )
    assert all(str(message) in f.message for f in found)
    for finding in found:
        assert finding.message.endswith("the engine was built for 64: it ends at the start")
        assert finding.fixes[0].title == "Start with --max_batch_size 64"


@pytest.mark.parametrize(
    ("version", "line", "outcome"),
    [
        (None, "trtllm-serve {}", "blocked"),
        (None, SERVED, "blocked"),
        ("0.20.0rc1", SERVED, "blocked"),
        ("1.3.0rc5", SERVED, "blocked"),
        (None, f"{SERVED} --max_batch_size 64", "passed"),
        (None, "trtllm-serve {} --backend pytorch", "passed"),
        ("0.19.0", "trtllm-serve {}", "passed"),
    ],
)
def test_a_default_that_may_count_is_not_passed(
    two: Path, version: str | None, line: str, outcome: str
) -> None:
    launch, release, options = facts(line.format(two), version)
    found = examine(limits_exceeded, read_engine(two), launch, options, release)
    assert found.outcome == outcome
    assert outcome == "passed" or "max_batch_size 64 for 2048" in str(found.reason)


def test_a_number_that_is_not_told_hides_no_other(two: Path) -> None:
    line = f"trtllm-serve {two} --max_batch_size $N"
    (both,) = launches_in(f"{line} --max_seq_len 8192\n", "run.sh")
    launch, release, options = facts(both, "0.19.0")
    (finding,) = examine(limits_exceeded, read_engine(two), launch, options, release).findings
    assert "max_seq_len 8,192" in finding.message
    launch, release, options = facts(launches_in(f"{line}\n", "run.sh")[0], "0.19.0")
    found = examine(limits_exceeded, read_engine(two), launch, options, release)
    assert found.outcome == "blocked"
    assert str(found.reason).startswith("max_batch_size is $N")


def test_prompt_limit(tmp_path: Path) -> None:
    long = facts("trtllm-serve m --max_seq_len 32768", "1.2.1")
    chunked = facts("trtllm-serve m --max_seq_len 32768 --enable_chunked_prefill", "1.2.1")
    contract(prompt_limit, fires=long, passes=chunked)
    (finding,) = examine(prompt_limit, *long).findings
    assert finding.message == (
        "max_seq_len is 32,768, but without chunked prefill a prompt may have at most max_num_tokens "
        "= 8,192 tokens (the default)"
    )
    assert [fix.title for fix in finding.fixes] == [
        "Start with --enable_chunked_prefill",
        "Start with --max_num_tokens 32768",
    ]
    assert examine(prompt_limit, *facts("trtllm-serve m", "1.2.1")).outcome == "passed"
    elsewhere = "trtllm-serve m --max_seq_len 32768 --extra_llm_api_options not-here.yml"
    assert examine(prompt_limit, *facts(elsewhere, "1.2.1")).outcome == "blocked"
    built = engine(tmp_path / "e", build={"max_input_len": 16384, "max_seq_len": 32768})
    rows = facts(f"trtllm-serve {built}")
    assert examine(prompt_limit, *rows, read_engine(built)).outcome == "failed"


def test_build_lengths() -> None:
    base = "trtllm-build --checkpoint_dir c --max_seq_len 2048"
    contract(
        build_lengths,
        fires=facts(f"{base} --max_input_len 4096"),
        passes=facts(f"{base} --max_input_len 1024"),
    )
    rows = facts(f"{base} --max_input_len 4096 --max_num_tokens 32 --tokens_per_block 64")
    clipped, raised = examine(build_lengths, *rows).findings
    assert clipped.severity == "warning"
    assert clipped.message.endswith("4,096 is more than --max_seq_len 2,048: 2,048 is taken")
    assert raised.message.endswith("--max_num_tokens 32: --max_num_tokens becomes 64")


def test_a_hugging_face_model_is_no_checkpoint(tmp_path: Path) -> None:
    rows = facts(f"trtllm-build --checkpoint_dir {tmp_path}")
    held = replace(model(), config={"model_type": "llama", "architectures": ["LlamaForCausalLM"]})
    (finding,) = examine(checkpoint_kind, *rows, held).findings
    assert "holds a Hugging Face model" in finding.message
    ours = replace(model(), config={"architecture": "LlamaForCausalLM", "model_type": "llama"})
    assert examine(checkpoint_kind, *rows, ours).outcome == "passed"


def test_checkpoint_kind(tmp_path: Path) -> None:
    ckpt, built = checkpoint(tmp_path / "c"), engine(tmp_path / "e")
    good = [*facts(f"trtllm-build --checkpoint_dir {ckpt}"), read_engine(ckpt)]
    contract(checkpoint_kind, fires=facts("trtllm-build --output_dir o"), passes=good)
    wrong = [*facts(f"trtllm-build --checkpoint_dir {built}"), read_engine(built)]
    (finding,) = examine(checkpoint_kind, *wrong).findings
    assert finding.message.endswith("holds an engine, no checkpoint")


def test_dtype_unsupported(tmp_path: Path) -> None:
    built = read_engine(engine(tmp_path / "e", dtype="bfloat16"))
    contract(dtype_unsupported, fires=[built, capability(7, 5)], passes=[built, capability(8, 0)])


def test_quantization_gpu(tmp_path: Path) -> None:
    rows = facts("trtllm-serve m", "1.2.1")
    contract(
        quantization_gpu,
        fires=[*rows[:2], capability(8, 0), modelopt("FP8")],
        passes=[*rows, capability(8, 9), modelopt("FP8")],
    )
    quantised = engine(
        tmp_path / "e", quantization={"quant_algo": "W4A8_AWQ", "kv_cache_quant_algo": "FP8"}
    )
    (finding,) = examine(
        quantization_gpu, *rows[:2], capability(8, 6), read_engine(quantised)
    ).findings
    assert finding.message == "W4A8_AWQ needs compute capability 8.9; GPU 0 has 8.6"


@pytest.mark.parametrize(
    ("files", "gpu", "version", "outcome"),
    [
        (modelopt("NVFP4"), (9, 0), "1.2.1", "failed"),
        (modelopt("NVFP4"), (10, 0), "1.2.1", "passed"),
        (model({"quant_method": "awq"}), (8, 0), "1.2.1", "passed"),
        (
            model({"quant_method": "fp8", "weight_block_size": [128, 128]}),
            (8, 9),
            "0.20.0",
            "failed",
        ),
        (
            model({"quant_method": "fp8", "weight_block_size": [128, 128]}),
            (8, 9),
            "1.0.0",
            "passed",
        ),
        (
            model({"quant_method": "fp8", "weight_block_size": [128, 128]}),
            (8, 9),
            None,
            "blocked",
        ),
        (model({"quant_method": "mxfp4"}), (9, 0), "1.1.0", "passed"),
        (model(), (7, 5), "1.2.1", "passed"),
    ],
)
def test_methods_and_gpus(
    files: Any, gpu: tuple[int, int], version: str | None, outcome: str
) -> None:
    rows = facts("trtllm-serve m", version)
    assert examine(quantization_gpu, *rows[:2], capability(*gpu), files).outcome == outcome


def test_quantization_version() -> None:
    contract(
        quantization_version,
        fires=[*facts("trtllm-serve m", "0.16.0"), modelopt("NVFP4")],
        passes=[*facts("trtllm-serve m", "1.2.1"), modelopt("NVFP4")],
    )
    (finding,) = examine(quantization_version, *facts("trtllm-serve m"), modelopt("W2A2")).findings
    assert finding.message == "no TensorRT-LLM that is known has the quantisation W2A2"


def test_kv_scales_missing(tmp_path: Path) -> None:
    (launch,) = launches_in("kv_cache_config:\n  dtype: fp8\n", "options.yaml")
    rows = facts(launch, "1.2.1")
    contract(
        kv_scales_missing,
        fires=[*rows, modelopt("FP8")],
        passes=[*rows, modelopt("FP8", "FP8")],
    )
    (finding,) = examine(kv_scales_missing, *rows, model()).findings
    assert finding.message == (
        "the KV cache is to be fp8, but m has no scales for it: they count as 1.0"
    )
    assert finding.evidence[0].line == 1
    built = read_engine(engine(tmp_path / "e"))
    (finding,) = examine(kv_scales_missing, *rows, built).findings
    assert "does nothing on the TensorRT backend" in finding.message


def test_kv_cache_gpu() -> None:
    rows = facts("trtllm-serve m --kv_cache_dtype nvfp4", "1.4.0")
    contract(kv_cache_gpu, fires=[*rows, capability(9)], passes=[*rows, capability(10)])
