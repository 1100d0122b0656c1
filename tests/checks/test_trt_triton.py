"""Repositories of Triton: filled, wired, within what their engine was built for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from launch_files import launches_in
from trtllm_files import engine, parameter, read_repository, repository, triton

from infer_doctor.checks.trt_ensemble import ensemble_batch, ensemble_wiring
from infer_doctor.checks.trt_triton import (
    config_broken,
    parameter_wrong,
    path_wrong,
    template_unfilled,
)
from infer_doctor.checks.trt_triton_engine import limits_exceeded, ranks_wrong, version_other
from infer_doctor.launch.command import read
from infer_doctor.testing import contract, examine

EVERY = (
    config_broken,
    template_unfilled,
    path_wrong,
    parameter_wrong,
    limits_exceeded,
    ensemble_wiring,
    ensemble_batch,
)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    return engine(tmp_path / "engine")


def made(tmp_path: Path, built: Path | str, name: str = "wrong", **more: Any) -> Any:
    return read_repository(repository(tmp_path / name, built, **more))


def test_a_sound_repository(tmp_path: Path, built: Path) -> None:
    found = made(tmp_path, built, "right")
    assert found.gaps == ()
    assert found.engines["tensorrt_llm"].version == "0.14.0"
    for check in EVERY:
        assert examine(check, found).outcome == "passed", check


def test_config_broken(tmp_path: Path, built: Path) -> None:
    wrong = made(
        tmp_path, built, replace={"preprocessing": ("max_batch_size:", "max_batch_size [")}
    )
    contract(config_broken, fires=[wrong], passes=[made(tmp_path, built, "right")])
    (finding,) = examine(config_broken, wrong).findings
    assert finding.evidence[0].line is not None
    empty = repository(tmp_path / "empty", built)
    (empty / "postprocessing" / "1" / "model.py").unlink()
    (empty / "ensemble" / "1").rmdir()
    messages = [f.message for f in examine(config_broken, read_repository(empty)).findings]
    assert any("has no version folder" in text for text in messages)
    assert any("has no model.py" in text for text in messages)
    named = made(tmp_path, built, "named", replace={"ensemble": ('"ensemble"', '"llm"')})
    (finding,) = examine(config_broken, named).findings
    assert "holds a model with the name llm" in finding.message


def test_template_unfilled(tmp_path: Path, built: Path) -> None:
    left = made(tmp_path, built, batch="${triton_max_batch_size}", ensemble_batch=8)
    optional = made(
        tmp_path, built, "right", max_attention_window_size="${max_attention_window_size}"
    )
    contract(template_unfilled, fires=[left], passes=[optional])
    found = examine(template_unfilled, left).findings
    assert len(found) == 3
    assert "triton_max_batch_size:VALUE" in found[0].fixes[0].actions[0].text
    backend = made(
        tmp_path, built, "b", replace={"tensorrt_llm": ('"tensorrtllm"', '"${triton_backend}"')}
    )
    (finding,) = examine(template_unfilled, backend).findings
    assert "${triton_backend}" in finding.message


def test_path_wrong(tmp_path: Path, built: Path) -> None:
    contract(
        path_wrong,
        fires=[made(tmp_path, tmp_path / "nowhere")],
        passes=[made(tmp_path, built, "right")],
    )
    (finding,) = examine(path_wrong, made(tmp_path, built, "t", tokenizer="/no/where")).findings
    assert finding.category == "tokenizer"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_scheduler_policy", "max_utilisation"),
        ("kv_cache_free_gpu_mem_fraction", "90"),
        ("max_beam_width", "one"),
        ("enable_kv_cache_reuse", "yes"),
    ],
)
def test_parameter_wrong(tmp_path: Path, built: Path, name: str, value: str) -> None:
    wrong = made(tmp_path, built, **{name: value})
    contract(parameter_wrong, fires=[wrong], passes=[made(tmp_path, built, "right")])
    (finding,) = examine(parameter_wrong, wrong).findings
    assert finding.message.startswith(f"{name} of tensorrt_llm is {value}: it takes")


@pytest.mark.parametrize(
    ("more", "severity", "words"),
    [
        ({"batch": 128}, "warning", "max_batch_size of tensorrt_llm is 128"),
        ({"max_beam_width": "4"}, "error", "its engine was built for 1"),
        ({"max_tokens_in_paged_kv_cache": "2560"}, "warning", "may have 4,096 tokens"),
        ({"enable_kv_cache_reuse": "true"}, "error", "built without use_paged_context_fmha"),
        ({"enable_chunked_context": "True"}, "error", "built without use_paged_context_fmha"),
    ],
)
def test_limits_exceeded(
    tmp_path: Path, built: Path, more: dict[str, Any], severity: str, words: str
) -> None:
    wrong = made(tmp_path, built, **more)
    contract(limits_exceeded, fires=[wrong], passes=[made(tmp_path, built, "right")])
    (finding,) = examine(limits_exceeded, wrong).findings
    assert finding.severity == severity
    assert words in finding.message
    assert all(row.source for row in finding.evidence)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "max_batch_size: 8",
            "max_batch_size: 8\nmax_batch_size: 4",
            "max_batch_size is given twice",
        ),
        ("max_batch_size: 8", "max_batch_size: 8.0", "takes an integer, 8.0 is none"),
        ("max_batch_size: 8", 'max_batch_size: "8"', "takes an integer, 8 is none"),
        ("max_batch_size: 8", "max_batch_size: 0x8", None),
        ('backend: "tensorrtllm"', "backend: tensorrtllm", "takes a string in quotes"),
        ('backend: "tensorrtllm"', "backend: 'tensorrtllm'", None),
        ('name: "tensorrt_llm"', "", None),
    ],
)
def test_what_the_parser_of_triton_refuses(
    tmp_path: Path, built: Path, old: str, new: str, words: str | None
) -> None:
    found = made(tmp_path, built, replace={"tensorrt_llm": (old, new)})
    messages = [f.message for f in examine(config_broken, found).findings]
    assert [words in message for message in messages if words] == ([True] if words else [])
    assert bool(messages) is bool(words)


def test_ranks_wrong(tmp_path: Path) -> None:
    two = engine(tmp_path / "two", tp=2)
    path = repository(tmp_path / "r", two)
    found = read_repository(path)
    contract(
        ranks_wrong,
        fires=[found, triton(path)],
        passes=[found, triton(path, "mpirun -n 2 --allow-run-as-root")],
    )
    one = triton(path, "env TRTLLM_ORCHESTRATOR=1")
    assert examine(ranks_wrong, found, one).outcome == "passed"
    ids = read_repository(repository(tmp_path / "ids", two, gpu_device_ids="0"))
    (finding,) = examine(ranks_wrong, ids, triton(path, "mpirun -n 2")).findings
    assert finding.message == (
        "gpu_device_ids of tensorrt_llm is 0: 1 GPU for 2 ranks of the engine"
    )


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ("0,1", None),
        ("2,3;4,5", None),
        ("0,1,2", None),
        ("${gpu_device_ids}", None),
        ("0,1;3", "1 GPU for 2 ranks"),
        ("1,1", "named twice"),
        ("7,8", "8 GPUs of a machine, 0 to 7"),
    ],
)
def test_gpu_device_ids(tmp_path: Path, ids: str, words: str | None) -> None:
    two = engine(tmp_path / "two", tp=2)
    path = repository(tmp_path / "r", two, gpu_device_ids=ids)
    found = examine(ranks_wrong, read_repository(path), triton(path, "mpirun -n 2")).findings
    assert [words in f.message for f in found if words] == ([True] if words else [])
    assert bool(found) is bool(words)


def test_gpu_device_ids_of_two_machines(tmp_path: Path) -> None:
    large = engine(tmp_path / "large", tp=8, pp=2)
    path = repository(tmp_path / "r", large, gpu_device_ids="0,1,2,3,4,5,6,7")
    launch = triton(path, "mpirun -n 16 --hostfile hosts")
    assert examine(ranks_wrong, read_repository(path), launch).outcome == "passed"


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        # as launch_triton_server.py writes it
        ("mpirun --allow-run-as-root -n 1 {server} --grpc-port=8001 : -n 1 {server} :", "passed"),
        ("mpirun -n 1 {server} : -n 1 {server} : -n 1 {server}", "failed"),
        ("mpirun -n 1 {server} : {server}", "blocked"),
        ("mpirun --hostfile hosts {server}", "blocked"),
        ("mpirun -n ² {server}", "blocked"),
        ("/usr/bin/mpirun -np 2 {server}", "passed"),
        ("{server}", "failed"),
    ],
)
def test_ranks_of_several_parts(tmp_path: Path, line: str, outcome: str) -> None:
    path = repository(tmp_path / "r", engine(tmp_path / "two", tp=2))
    server = f"tritonserver --model-repository={path} --disable-auto-complete-config"
    launch = read(line.format(server=server).split())
    assert examine(ranks_wrong, read_repository(path), launch).outcome == outcome


@pytest.mark.parametrize(
    ("version", "more", "severity"),
    [
        ("0.16.0", {"enable_kv_cache_reuse": "true"}, "error"),
        ("0.17.0", {"enable_kv_cache_reuse": "true"}, "warning"),
        ("0.15.0", {"enable_chunked_context": "true"}, "error"),
        ("0.16.0", {"enable_chunked_context": "true"}, "warning"),
        ("0.11.0", {"max_tokens_in_paged_kv_cache": "2048"}, "error"),
        ("0.12.0", {"max_tokens_in_paged_kv_cache": "2048"}, "warning"),
    ],
)
def test_what_later_releases_make_do_with(
    tmp_path: Path, version: str, more: dict[str, str], severity: str
) -> None:
    found = made(tmp_path, engine(tmp_path / "e", version=version), **more)
    (finding,) = examine(limits_exceeded, found).findings
    assert finding.severity == severity


def test_an_engine_without_a_cache_runs_in_flight(tmp_path: Path) -> None:
    for kind, count in (("DISABLED", 0), ("CONTINUOUS", 1), ("PAGED", 0)):
        built = engine(tmp_path / kind / "e", build={"kv_cache_type": kind})
        found = made(tmp_path / kind, built)
        assert len(examine(limits_exceeded, found).findings) == count


@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [
        ("gpt_model_type", "inflight", "error"),
        ("kv_cache_free_gpu_mem_fraction", "1.0", "error"),
        ("kv_cache_free_gpu_mem_fraction", "90", "error"),
        ("kv_cache_free_gpu_mem_fraction", "auto", "warning"),
        ("kv_cache_free_gpu_mem_fraction", "0.95", None),
        ("enable_kv_cache_reuse", "yes", "warning"),
        ("batch_scheduler_policy", "max_util", "warning"),
        ("max_beam_width", "one", "warning"),
        ("max_beam_width", "None", None),
        ("lora_cache_gpu_memory_fraction", "1.0", None),
    ],
)
def test_what_the_backend_refuses_and_what_it_ignores(
    tmp_path: Path, name: str, value: str, severity: str | None
) -> None:
    path = repository(tmp_path / "r", engine(tmp_path / "e"))
    text = (path / "tensorrt_llm" / "config.pbtxt").read_text()
    if name == "gpt_model_type":
        text = text.replace("inflight_fused_batching", value)
    else:
        text += parameter(name, value)
    (path / "tensorrt_llm" / "config.pbtxt").write_text(text)
    found = examine(parameter_wrong, read_repository(path)).findings
    assert [f.severity for f in found] == ([severity] if severity else [])


IMAGE = "docker run nvcr.io/nvidia/tritonserver:{tag} tritonserver --model-repository=/r\n"


@pytest.mark.parametrize(
    ("tag", "outcome"),
    [
        ("24.10-trtllm-python-py3", "passed"),
        ("25.09-trtllm-python-py3", "failed"),
        ("24.10-py3", "failed"),
        ("27.01-trtllm-python-py3", "blocked"),
    ],
)
def test_version_other(tmp_path: Path, built: Path, tag: str, outcome: str) -> None:
    found = made(tmp_path, built, "right")
    (launch,) = launches_in(IMAGE.format(tag=tag), "run.sh")
    assert examine(version_other, found, launch).outcome == outcome


@pytest.mark.parametrize(
    ("version", "tag", "outcome"),
    [
        ("1.0.0", "25.09", "passed"),
        ("1.0.0", "25.11", "failed"),  # 1.0.3 has another TensorRT
        ("1.0.3.2510", "25.11", "passed"),
        ("1.0.2", "25.11", "blocked"),
        ("1.2.0rc8", "26.03", "passed"),
        ("1.2.1", "26.03", "blocked"),
        ("1.2.0", "26.04", "passed"),
        ("nonsense", "26.04", "blocked"),
    ],
)
def test_patch_releases_in_triton(tmp_path: Path, version: str, tag: str, outcome: str) -> None:
    found = made(tmp_path, engine(tmp_path / "e", version=version), "right")
    (launch,) = launches_in(IMAGE.format(tag=f"{tag}-trtllm-python-py3"), "run.sh")
    assert examine(version_other, found, launch).outcome == outcome


def test_an_engine_that_was_not_read_passes_nothing(tmp_path: Path) -> None:
    path = engine(tmp_path / "e")
    (path / "config.json").write_text("{}")
    found = made(tmp_path, path, "right")
    assert examine(limits_exceeded, found).outcome == "blocked"
    (launch,) = launches_in("mpirun -n 2 tritonserver --model-repository=/r\n", "run.sh")
    assert examine(ranks_wrong, found, launch).outcome == "blocked"


def test_a_limit_of_the_engine_that_cannot_be_read_passes_nothing(tmp_path: Path) -> None:
    path = engine(tmp_path / "e")
    config = json.loads((path / "config.json").read_text())
    config["build_config"]["max_batch_size"] = "64"
    (path / "config.json").write_text(json.dumps(config))
    row = examine(limits_exceeded, made(tmp_path, path, "right"))
    assert row.outcome == "blocked"
    assert row.reason == "config.json cannot be used: max_batch_size is '64'"


def test_what_is_known_is_told_beside_what_is_not(tmp_path: Path, built: Path) -> None:
    found = made(tmp_path, built, gpu_device_ids="0,0")
    (launch,) = launches_in("mpirun tritonserver --model-repository=/r\n", "run.sh")
    (finding,) = examine(ranks_wrong, found, launch).findings
    assert finding.message.endswith("a GPU is named twice")


def test_version_contract(tmp_path: Path, built: Path) -> None:
    found = made(tmp_path, built, "right")
    (wrong,) = launches_in(IMAGE.format(tag="25.09-trtllm-python-py3"), "run.sh")
    (right,) = launches_in(IMAGE.format(tag="24.10-trtllm-python-py3"), "run.sh")
    contract(version_other, fires=[found, wrong], passes=[found, right])
    (finding,) = examine(version_other, found, wrong).findings
    assert finding.message == (
        "the engine of tensorrt_llm was built by TensorRT-LLM 0.14.0; Triton 25.09 has 1.0.0"
    )


@pytest.mark.parametrize(
    ("model", "old", "new", "words"),
    [
        (
            "ensemble",
            'key: "input_ids"',
            'key: "INPUT_IDS"',
            "the input INPUT_IDS, which it does not",
        ),
        (
            "ensemble",
            'value: "text_input"',
            'value: "text"',
            "text, which preprocessing gets as QUERY",
        ),
        ("ensemble", 'model_name: "postprocessing"', 'model_name: "post"', "no such model"),
        ("ensemble", 'key: "OUTPUT" value', 'key: "TEXT" value', "takes the output TEXT of"),
        (
            "ensemble",
            'input_map { key: "input_lengths" value: "_REQUEST_INPUT_LEN" }',
            "",
            "does not give tensorrt_llm its input input_lengths",
        ),
        ("ensemble", 'value: "text_output"', 'value: "OUT"', "makes its output text_output"),
        ("ensemble", 'value: "text_output"', 'value: "OUT"', "OUT of ensemble is made by a step"),
        ("ensemble", 'value: "max_tokens"', 'value: "text_input"', "takes its input max_tokens"),
    ],
)
def test_ensemble_wiring(
    tmp_path: Path, built: Path, model: str, old: str, new: str, words: str
) -> None:
    wrong = made(tmp_path, built, replace={model: (old, new)})
    contract(ensemble_wiring, fires=[wrong], passes=[made(tmp_path, built, "right")])
    assert any(words in f.message for f in examine(ensemble_wiring, wrong).findings)


def test_a_model_without_batches_in_an_ensemble(tmp_path: Path, built: Path) -> None:
    change = {"postprocessing": ("max_batch_size: 8", "max_batch_size: 0")}
    assert examine(ensemble_batch, made(tmp_path, built, replace=change)).outcome == "passed"


def test_a_python_model_may_complete_its_inputs(tmp_path: Path, built: Path) -> None:
    change = {"ensemble": ('key: "OUTPUT" value', 'key: "TEXT" value')}
    found = examine(ensemble_wiring, made(tmp_path, built, replace=change)).findings
    assert {f.confidence for f in found} == {"likely"}


def test_ensemble_batch(tmp_path: Path, built: Path) -> None:
    wrong = made(tmp_path, built, ensemble_batch=16)
    contract(ensemble_batch, fires=[wrong], passes=[made(tmp_path, built, "right")])
    assert len(examine(ensemble_batch, wrong).findings) == 3
