"""Flags, keys, keywords, variables and images as they are written."""

from __future__ import annotations

from typing import Any

import pytest
from launch_files import launches_in
from trtllm_files import facts, release

from infer_doctor.checks.client_server import name_missing as name_missing_vllm
from infer_doctor.checks.trt_arguments import (
    argument_new,
    argument_renamed,
    argument_unknown,
    argument_value,
    command_gone,
    main_unguarded,
    option_overridden,
    variable_word,
)
from infer_doctor.checks.trt_image import image_plain, package_unknown
from infer_doctor.checks.trt_python import generate_keyword, name_missing
from infer_doctor.facts.client_code import ClientCode
from infer_doctor.launch.command import read
from infer_doctor.launch.config import with_config
from infer_doctor.launch.recognise import launches
from infer_doctor.testing import contract, examine

ADVICE = (
    "trtllm-build --model_dir ./llama-3-70b --quantization fp8 --output_dir X "
    "--gpt_attention_plugin float --tokens_per_block 128"
)
BUILD = "trtllm-build --checkpoint_dir c --output_dir e --gemm_plugin auto"
ARTICLE = """from tensorrt_llm import TRTLLMEngine

engine = TRTLLMEngine(engine_dir="/e", max_batch_size=64, max_input_len=4096, max_output_len=2048)
print(engine.generate(prompt="hi", max_new_tokens=512, temperature=0.7))
"""
RIGHT = """from tensorrt_llm import LLM, KvCacheConfig, SamplingParams


def main():
    llm = LLM(model="/e", kv_cache_config=KvCacheConfig(free_gpu_memory_fraction=0.8))
    print(llm.generate(["hi"], SamplingParams(max_tokens=512)))


if __name__ == "__main__":
    main()
"""


def options(text: str, *, version: str | None = None, command: str = "") -> list[Any]:
    """The facts of a command with this file of extra options."""
    words = (command or "trtllm-serve m --extra_llm_api_options o.yaml").split()
    return facts(read(words, read=lambda _: text), version)


def code(text: str) -> ClientCode:
    found = launches(text, "app.py", None)
    assert found is not None
    assert found[1] is not None
    return found[1]


def test_argument_unknown() -> None:
    contract(argument_unknown, fires=facts(ADVICE, "0.14.0"), passes=facts(BUILD, "0.14.0"))
    found = examine(argument_unknown, *facts(ADVICE, "0.14.0")).findings
    assert [(f.about, f.category) for f in found] == [
        ("--model_dir", "trt_build_flags"),
        ("--quantization", "trt_build_flags"),
    ]
    assert "converted checkpoint" in found[0].message
    assert "quantize.py" in found[1].message


@pytest.mark.parametrize(
    ("command", "flag", "nearest"),
    [
        (
            "trtllm-serve m --gpu-memory-utilization 0.8",
            "--gpu-memory-utilization",
            "--kv_cache_free",
        ),
        ("trtllm-serve m --max_model_len 8", "--max_model_len", "--max_seq_len"),
        ("trtllm-serve m --tp-size 2", "--tp-size", "--tp_size"),
        ("trtllm-serve m --max_batch_sise 8", "--max_batch_sise", "--max_batch_size"),
        ("trtllm-build --checkpoint-dir c", "--checkpoint-dir", "--checkpoint_dir"),
    ],
)
def test_what_was_probably_meant(command: str, flag: str, nearest: str) -> None:
    (finding,) = examine(argument_unknown, *facts(command, "1.1.0")).findings
    assert finding.about == flag
    assert nearest in finding.fixes[0].title
    assert finding.fixes[0].safety == "unsafe"


def test_a_prefix_is_the_option() -> None:
    rows = facts("trtllm-build --checkpoint_dir c --max_batch 8 --weight_str", "0.14.0")
    assert examine(argument_unknown, *rows).outcome == "passed"
    assert rows[2].given["max_batch_size"].value == 8


def test_keys_of_the_extra_options() -> None:
    wrong = options("gpu_memory_utilization: 0.8\nkv_cache_config: {free_gpu_mem_fraction: 0.8}\n")
    (unknown,) = examine(argument_unknown, *wrong).findings
    assert "kv_cache_config.free_gpu_memory_fraction" in unknown.fixes[0].title
    (renamed,) = examine(argument_renamed, *wrong).findings
    assert renamed.message.endswith("it is called free_gpu_memory_fraction")
    good = options("cuda_graph_config: null\nmoe_config: {backend: TRTLLM}\nprint_iter_log: true\n")
    for check in (argument_unknown, argument_renamed, argument_value):
        assert examine(check, *good).outcome == "passed"


def test_argument_renamed() -> None:
    text = "use_cuda_graph: true\ncuda_graph_padding_enabled: true\n"
    contract(
        argument_renamed,
        fires=options(text, version="1.2.1"),
        passes=options(text, version="0.20.0"),
    )
    first, second = examine(argument_renamed, *options(text, version="1.2.1")).findings
    assert "null turns graphs off" in first.message
    assert second.fixes[0].title == (
        "Write cuda_graph_config.enable_padding instead of cuda_graph_padding_enabled"
    )
    (old,) = examine(
        argument_renamed, *facts("trtllm-build --checkpoint_dir c --max_output_len 512", "0.14.0")
    ).findings
    assert "input and output together since 0.12" in old.message
    assert old.fixes[0].safety == "unsafe"  # another number is needed


@pytest.mark.parametrize(
    ("version", "confidence"),
    [("0.11.0", None), ("0.12.0", "certain"), ("0.14.0", "certain"), (None, "likely")],
)
def test_a_flag_of_old_releases(version: str | None, confidence: str | None) -> None:
    rows = facts(
        "trtllm-build --checkpoint_dir c --max_output_len 512 --multi_block_mode enable", version
    )
    found = examine(argument_renamed, *rows).findings
    assert {f.confidence for f in found} == ({confidence} if confidence else set())


@pytest.mark.parametrize(
    ("version", "word", "found"),
    [
        ("0.13.0", "--builder_opt 4", False),
        ("0.14.0", "--builder_opt 4", True),
        ("0.15.0", "--enable_xqa disable", False),
        ("0.16.0", "--enable_xqa disable", True),
    ],
)
def test_what_the_release_notes_took_away(version: str, word: str, found: bool) -> None:
    rows = facts(f"trtllm-build --checkpoint_dir c {word}", version)
    assert bool(examine(argument_renamed, *rows).findings) is found


AUTODEPLOY = """attn_backend: flashinfer
compile_backend: torch-opt
transforms:
  insert_cached_attention: {backend: triton}
world_size: 2
"""


@pytest.mark.parametrize(
    "command",
    [
        "trtllm-serve m --backend _autodeploy --extra_llm_api_options o.yaml",
        "trtllm-serve m --backend $BACKEND --extra_llm_api_options o.yaml",
        "trtllm-bench --model m throughput --backend _autodeploy --extra_llm_api_options o.yaml",
        "trtllm-bench --model m throughput --backend autodeploy --extra_llm_api_options o.yaml",
    ],
)
def test_keys_of_autodeploy_are_not_judged(command: str) -> None:
    (launch,) = launches_in(f"{command}\n", "run.sh")
    launch = with_config(launch, lambda _: AUTODEPLOY)
    rows = facts(launch, "1.0.0")
    for check in (argument_unknown, argument_value, argument_renamed):
        assert examine(check, *rows).outcome == "blocked"


def test_autodeploy_in_the_file_and_in_python() -> None:
    rows = options(f"backend: _autodeploy\n{AUTODEPLOY}", version="1.2.0")
    assert examine(argument_unknown, *rows).outcome == "blocked"
    text = "from tensorrt_llm._torch.auto_deploy import LLM\nLLM(model='m', world_size=2)\n"
    (launch,) = launches_in(text, "app.py")
    assert examine(argument_unknown, *facts(launch, "1.0.0")).outcome == "blocked"


@pytest.mark.parametrize(
    ("version", "outcome"),
    [("0.21.0", "passed"), ("1.0.0rc1", "blocked"), ("1.0.0", "failed"), (None, "blocked")],
)
def test_candidates_of_the_release_that_dropped_a_key(version: str | None, outcome: str) -> None:
    rows = options("use_cuda_graph: true\n", version=version)
    assert examine(argument_renamed, *rows).outcome == outcome


@pytest.mark.parametrize(
    ("version", "words"),
    [("1.2.1", "0.9 of o.yaml"), ("1.3.0rc9", "(up to 1.2"), ("1.4.0", "0.5 of command line")],
)
def test_which_one_counts_in_candidates(version: str, words: str) -> None:
    command = "trtllm-serve m --kv_cache_free_gpu_memory_fraction 0.5 --config o.yaml"
    text = "kv_cache_config: {free_gpu_memory_fraction: 0.9}\n"
    (finding,) = examine(
        option_overridden, *options(text, version=version, command=command)
    ).findings
    assert words in finding.message


VALUES = [
    # extra options, version, severity of trt-argument-value (None: passed)
    ("kv_cache_config: {dtype: FP8}", "1.2.1", "error"),
    ("kv_cache_config: {dtype: bf16}", "1.0.0", "error"),
    ("kv_cache_config: {dtype: bfloat16}", "1.2.1", "error"),
    ("kv_cache_config: {dtype: bfloat16}", "1.4.0rc1", None),
    ("kv_cache_config: {dtype: nvfp4}", "1.2.1", None),
    ("backend: tensorrt\nkv_cache_config: {dtype: bfloat16}", "1.2.1", None),
    ("attn_backend: flashinfer", "1.2.1", "warning"),
    ("attn_backend: flashinfer", "1.4.0", "warning"),
    ("attn_backend: FLASHINFER", "1.0.0", None),
    ("kv_cache_config: {free_gpu_memory_fraction: '90%'}", "1.2.1", "error"),
    ("kv_cache_config: {free_gpu_memory_fraction: '0.9'}", "1.2.1", None),
    ("cuda_graph_config: {batch_sizes: [1, 2, 3], max_batch_size: 128}", "1.0.0", "error"),
    ("cuda_graph_config: {batch_sizes: [1, 2, 64], max_batch_size: 128}", "1.3.0", "error"),
    ("cuda_graph_config: {batch_sizes: [64, 1, 2], max_batch_size: 64}", "1.3.0", None),
    ("cuda_graph_config: {batch_sizes: [1, 2, 64], max_batch_size: 0}", "1.1.0", None),
    ("cuda_graph_config: {batch_sizes: [], max_batch_size: 64}", "1.1.0", None),
    ("cuda_graph_config: {batch_sizes: ['a', null], max_batch_size: 64}", "1.1.0", None),
    ("max_batch_size: many", "1.2.1", "error"),
    ("max_batch_size: '64'", "1.2.1", None),
    ("kv_cache_config: 0.9", "1.2.1", "error"),
    ("cuda_graph_config: true", "1.2.1", "error"),
    ("cuda_graph_config: null", "1.2.1", None),
]


@pytest.mark.parametrize(("text", "version", "severity"), VALUES)
def test_values_of_keys(text: str, version: str, severity: str | None) -> None:
    found = examine(argument_value, *options(f"{text}\n", version=version))
    assert [f.severity for f in found.findings] == ([severity] if severity else [])
    assert found.outcome == ("failed" if severity else "passed")


def test_what_a_script_fills_in_is_not_judged() -> None:
    text = "max_batch_size: ${N}\nkv_cache_config: {free_gpu_memory_fraction: '{{ .Values.f }}'}\n"
    assert examine(argument_value, *options(text, version="1.2.1")).outcome == "blocked"


@pytest.mark.parametrize("command", ["trtllm-build --checkpoint_dir c", "trtllm-serve m"])
def test_a_blank_after_the_backslash(command: str) -> None:
    (launch,) = launches_in(f"{command} \\ \n  --max_batch_size 8\n", "run.sh")
    (finding,) = examine(argument_unknown, *facts(launch, "0.17.0")).findings
    assert "a blank after the backslash ends the command" in finding.message
    assert finding.evidence[0].line == 1


LINES = [
    # public lines of trtllm-build, paths replaced
    (
        "0.9.0",
        "--gemm_plugin float16 --max_batch_size 1 --max_input_len 2048 --max_output_len 512 "
        "--max_multimodal_len 576",
    ),
    ("0.9.0", "--tp_size 2 --workers 2 --gemm_plugin bfloat16 --strongly_typed"),
    (
        "0.10.0",
        "--use_fused_mlp --gemm_plugin=float16 --paged_kv_cache=enable --multi_block_mode enable "
        "--use_custom_all_reduce disable --context_fmha_fp32_acc enable --enable_fp8",
    ),
    ("0.11.0", "--max_seq_len 4096 --use_fused_mlp --gather_all_token_logits --builder_opt=4"),
    (
        "0.12.0",
        "--max_seq_len 562 --kv_cache_type paged --remove_input_padding enable --lora_plugin float16 "
        "--lora_dir /a /b --max_lora_rank 8 --use_fused_mlp",
    ),
    ("0.13.0", "--use_fused_mlp=enable --reduce_fusion disable --low_latency_gemm_plugin fp8"),
    ("0.14.0", "--max_encoder_input_len 1024 --moe_plugin disable --enable_xqa disable"),
    ("0.14.0", "--speculative_decoding_mode medusa --auto_parallel 8 --cluster_key A100-SXM-80GB"),
    ("0.16.0", "--visualize_network --dry_run --max_input 128 --max_seq 256"),
    ("0.17.0", "--gemm_plugin nvfp4 --user_buffer enable --norm_quant_fusion enable"),
    ("0.18.2", "--gemm_plugin fp8 --gather_generation_logits --monitor_memory --log_level verbose"),
    (
        "0.20.0",
        "--fp8_rowwise_gemm_plugin=bfloat16 --gemm_swiglu_plugin=fp8 --logits_dtype=float32",
    ),
    ("1.0.0", "--max_beam_width 4 --mamba_conv1d_plugin auto --weight_streaming --strip_plan"),
    ("1.1.0", "--multiple_profiles enable --gemm_allreduce_plugin float16 --visualize_network v"),
]


@pytest.mark.parametrize(("version", "line"), LINES)
def test_lines_that_people_build_with(version: str, line: str) -> None:
    words = f"trtllm-build --checkpoint_dir c --output_dir e {line}"
    for given in (version, None):
        assert facts(words, given)[2].problems == () or given is None
        assert not [p for p in facts(words, given)[2].problems if p.kind == "missing-value"]


def test_a_switch_without_its_value() -> None:
    (finding,) = examine(argument_value, *facts(f"{BUILD} --use_fused_mlp", "0.14.0")).findings
    assert finding.message == "--use_fused_mlp has no value"


def test_async_llm_is_exported() -> None:
    text = "from tensorrt_llm import AsyncLLM, SamplingParams\n\nAsyncLLM(model='m')\n"
    assert examine(name_missing, code(text)).findings == ()


def test_a_candidate_is_never_sure_to_have_dropped_a_flag() -> None:
    rows = facts("trtllm-build --checkpoint_dir c --max_output_len 512", "0.12.0.dev2024072301")
    (finding,) = examine(argument_renamed, *rows).findings
    assert finding.confidence == "likely"


@pytest.mark.parametrize(
    ("version", "line", "check"),
    [
        ("0.16.0", "--backend pytorch", argument_new),
        ("0.17.0", "--backend pytorch --ep_size 2", None),
        ("0.18.2", "--backend pytorch --extra_llm_api_options o.yaml", None),
        ("0.18.2", "--backend tensorrt", argument_value),
        ("0.20.0", "--backend trt", argument_value),
        ("0.21.0", "--backend tensorrt", None),
        ("1.0.0", "--backend tensorrt", argument_new),
        ("1.0.0", "--backend trt", None),
        ("1.1.0", "--backend tensorrt", None),
        ("1.3.0rc20", "--extra_visual_gen_options o.yaml", None),
        ("1.3.0rc20", "--visual_gen_args o.yaml", None),
    ],
)
def test_options_of_trtllm_serve_by_release(version: str, line: str, check: Any) -> None:
    rows = options("{}\n", version=version, command=f"trtllm-serve m {line}")
    every = (argument_new, argument_value, argument_unknown, argument_renamed)
    assert [one for one in every if examine(one, *rows).findings] == ([check] if check else [])


PUBLIC = """print_iter_log: false
kv_cache_config:
  dtype: "auto"
  free_gpu_memory_fraction: 0.9
  enable_block_reuse: false
cuda_graph_config:
  enable_padding: true
  batch_sizes: [1, 2, 4]
disable_overlap_scheduler: true
enable_attention_dp: true
enable_autotuner: false
speculative_config: {decoding_type: Eagle, max_draft_len: 5, speculative_model_dir: /e}
moe_config: {backend: WIDEEP, max_num_tokens: 9216}
scheduler_config: {capacity_scheduler_policy: MAX_UTILIZATION}
cache_transceiver_config: {backend: UCX, max_tokens_in_buffer: 8448}
stream_interval: 10
num_postprocess_workers: 4
"""


@pytest.mark.parametrize("version", [None, "1.0.0", "1.1.0", "1.2.1", "1.3.0rc13", "1.4.0rc1"])
def test_keys_of_public_files_are_not_accused(version: str | None) -> None:
    rows = options(PUBLIC, version=version)
    for check in (argument_unknown, argument_renamed, argument_value, argument_new):
        assert examine(check, *rows).outcome == "passed"


def test_argument_new() -> None:
    long = "trtllm-serve m --tensor_parallel_size 2"
    contract(argument_new, fires=facts(long, "1.1.0"), passes=facts(long, "1.2.1"))
    (finding,) = examine(argument_new, *facts(long, "1.1.0")).findings
    assert "--tp_size" in finding.fixes[0].title


def test_argument_value() -> None:
    contract(argument_value, fires=facts(ADVICE, "0.14.0"), passes=facts(BUILD, "0.14.0"))
    (finding,) = examine(argument_value, *facts(ADVICE, "0.14.0")).findings
    assert finding.message == (
        "--gpt_attention_plugin takes auto, float16, float32, bfloat16, int32, disable; float is none "
        "of them"
    )
    assert "--gpt_attention_plugin auto" in finding.fixes[0].title


@pytest.mark.parametrize(
    "command",
    [
        "trtllm-build --checkpoint_dir c --context_fmha true",
        "trtllm-build --checkpoint_dir c --max_batch_size many",
        "trtllm-build --checkpoint_dir c --gemm_plugin",
        "trtllm-serve m --backend torch",
        "trtllm-serve m --max_num_tokens 8k",
    ],
)
def test_values_that_are_refused(command: str) -> None:
    assert examine(argument_value, *facts(command, "1.1.0")).outcome == "failed"


def test_shares_and_choices_of_the_file() -> None:
    wrong = options("kv_cache_config: {free_gpu_memory_fraction: 85, dtype: float8}\n")
    first, second = examine(argument_value, *wrong).findings
    assert "a share from 0 to 1; it is 85" in first.message
    assert "float8 is none of them" in second.message


def test_option_overridden() -> None:
    command = (
        "trtllm-serve m --kv_cache_free_gpu_memory_fraction 0.6 --max_batch_size 8 "
        "--extra_llm_api_options o.yaml"
    )
    text = "kv_cache_config: {free_gpu_memory_fraction: 0.9}\nmax_batch_size: 8\n"
    rows = options(text, version="1.1.0", command=command)
    contract(
        option_overridden,
        fires=rows,
        passes=options("max_batch_size: 8\n", version="1.1.0", command=command),
    )
    (finding,) = examine(option_overridden, *rows).findings
    assert finding.message == (
        "--kv_cache_free_gpu_memory_fraction 0.6 is overridden by "
        "kv_cache_config.free_gpu_memory_fraction: 0.9 of o.yaml"
    )
    assert rows[2].get("kv_cache_config.free_gpu_memory_fraction") == 0.9
    later = options(text, version="1.4.0", command=command)
    (finding,) = examine(option_overridden, *later).findings
    assert finding.message.startswith("kv_cache_config.free_gpu_memory_fraction: 0.9 is overridden")
    assert later[2].get("kv_cache_config.free_gpu_memory_fraction") == 0.6


def test_command_gone() -> None:
    contract(command_gone, fires=facts(BUILD, "1.4.0rc1")[:2], passes=facts(BUILD, "1.2.1")[:2])
    serve = "trtllm-serve m --backend tensorrt"
    assert examine(command_gone, *facts(serve, "1.4.0rc1")[:2]).outcome == "failed"
    assert examine(command_gone, *facts(serve, "1.3.0rc20")[:2]).outcome == "blocked"
    (finding,) = examine(command_gone, *facts("trtllm-serve m", "0.14.0")[:2]).findings
    assert finding.message.endswith("has no trtllm-serve: it came with 0.15")


def test_variable_word() -> None:
    def rows(setting: str) -> list[Any]:
        return facts(f"env {setting} trtllm-serve m")[:2]

    contract(
        variable_word, fires=rows("FORCE_DETERMINISTIC=true"), passes=rows("FORCE_DETERMINISTIC=1")
    )
    (finding,) = examine(variable_word, *rows("TRTLLM_FORCE_XQA=on")).findings
    assert finding.severity == "error"
    for off in ("FORCE_DETERMINISTIC=0", "FORCE_DETERMINISTIC=false", "TRTLLM_ENABLE_PDL=0"):
        assert examine(variable_word, *rows(off)).outcome == "passed"


def test_main_unguarded() -> None:
    def rows(text: str) -> list[Any]:
        (launch,) = launches_in(text, "app.py")
        return [launch, release(launch, "1.2.1")]

    bare = 'from tensorrt_llm import LLM\nllm = LLM(model="m")\n'
    contract(main_unguarded, fires=rows(bare), passes=rows(RIGHT))
    guarded = 'from tensorrt_llm import LLM\nif __name__ == "__main__":\n    llm = LLM(model="m")\n'
    assert examine(main_unguarded, *rows(guarded)).outcome == "passed"


def test_names_and_keywords_of_the_advice() -> None:
    contract(name_missing, fires=[code(ARTICLE)], passes=[code(RIGHT)])
    contract(generate_keyword, fires=[code(ARTICLE)], passes=[code(RIGHT)])
    named = [f.message for f in examine(generate_keyword, code(ARTICLE)).findings]
    assert [text.split()[5].rstrip(":") for text in named] == [
        "prompt",
        "max_new_tokens",
        "temperature",
    ]
    assert examine(name_missing_vllm, code(ARTICLE)).outcome == "passed"
    (launch,) = launches_in(ARTICLE, "app.py")
    unknown = examine(argument_unknown, *facts(launch)).findings
    assert {f.about for f in unknown} == {"engine_dir", "max_output_len"}


def test_sections_of_python_are_read() -> None:
    (launch,) = launches_in(RIGHT, "app.py")
    _, _, found = facts(launch)
    assert found.get("kv_cache_config.free_gpu_memory_fraction") == 0.8
    assert found.problems == ()


DOCKER = (
    "docker run --gpus all -v /m:/models {image} bash -c "
    '"pip install {package} && trtllm-build --checkpoint_dir /models/c"\n'
)


def test_image_plain() -> None:
    def rows(image: str, package: str = "requests") -> list[Any]:
        (launch,) = launches_in(DOCKER.format(image=image, package=package), "run.sh")
        return [launch, release(launch, None)]

    article = "nvidia/cuda:12.4.1-runtime-ubuntu22.04"
    contract(
        image_plain,
        fires=rows(article),
        passes=rows("nvcr.io/nvidia/tensorrt-llm/release:1.2.1"),
    )
    (finding,) = examine(image_plain, *rows(article)).findings
    assert finding.message == (
        f"{article} has no Python, Open MPI or TensorRT-LLM, and CUDA 12.4 is that of no TensorRT-LLM "
        "from 0.12 to 1.2"
    )
    ready = rows("nvidia/cuda:12.9.1-devel-ubuntu24.04", "tensorrt_llm==1.0.0")
    assert examine(image_plain, *ready).outcome == "passed"


def test_package_unknown() -> None:
    def rows(package: str) -> list[Any]:
        (launch,) = launches_in(DOCKER.format(image="i", package=package), "run.sh")
        return [launch, release(launch, None)]

    contract(package_unknown, fires=rows("tensorrtllm_backend"), passes=rows("tensorrt_llm"))
    dockerfile = (
        "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nRUN pip3 install -U tensorrtllm-backend\n"
    )
    (launch,) = launches_in(f'{dockerfile}CMD ["trtllm-serve", "m"]\n', "Dockerfile")
    (finding,) = examine(package_unknown, launch, release(launch, None)).findings
    assert finding.evidence[0].line == 2
