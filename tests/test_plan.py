"""`infer-doctor plan` as a process: models on disk, GPUs that are named or played, broken files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import jsonschema
import nvml_library
import pytest
from doctor_process import Run
from memory_starts import STARTS, TRUTH
from model_folder import cached, safetensors, write_json

SCHEMA = json.loads((Path(__file__).parents[1] / "docs" / "report.schema.json").read_text())
GIB = 1 << 30


def llama_tensors(config: dict[str, Any]) -> dict[str, tuple[str, list[int]]]:
    """The names and shapes of a Llama checkpoint."""
    hidden, width = config["hidden_size"], config["intermediate_size"]
    key = config["num_key_value_heads"] * config["head_dim"]
    found = {"model.embed_tokens.weight": ("BF16", [config["vocab_size"], hidden])}
    for layer in range(config["num_hidden_layers"]):
        shapes = {
            "self_attn.q_proj": [hidden, hidden],
            "self_attn.k_proj": [key, hidden],
            "self_attn.v_proj": [key, hidden],
            "self_attn.o_proj": [hidden, hidden],
            "mlp.gate_proj": [width, hidden],
            "mlp.up_proj": [width, hidden],
            "mlp.down_proj": [hidden, width],
            "input_layernorm": [hidden],
            "post_attention_layernorm": [hidden],
        }
        for name, shape in shapes.items():
            found[f"model.layers.{layer}.{name}.weight"] = ("BF16", shape)
    found["model.norm.weight"] = ("BF16", [hidden])
    found["lm_head.weight"] = ("BF16", [config["vocab_size"], hidden])
    return found


def model(folder: Path, name: str, shards: int = 0) -> Path:
    """A model folder; with shards, real headers over files with holes."""
    folder.mkdir()
    config = TRUTH["configs"][name]
    write_json(folder / "config.json", config)
    if shards:
        tensors = list(llama_tensors(config).items())
        index = {}
        for number in range(shards):
            file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
            part = dict(tensors[number::shards])
            safetensors(folder / file, part)
            index.update(dict.fromkeys(part, file))
        write_json(folder / "model.safetensors.index.json", {"weight_map": index})
    return folder


def report_of(run: Run, *words: str, code: int | None = None) -> dict[str, Any]:
    ended = run("plan", "--format", "json", *words)
    assert ended.stdout, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    jsonschema.validate(found, SCHEMA)
    if code is not None:
        assert ended.returncode == code, found["verdict"]
    return found


H200 = ("--gpu", "H200", "--engine", "vllm==0.26.0")


def test_a_real_start(tmp_path: Path) -> None:
    """The same figures as in the log, by the command; LLM() and serve differ only in batches."""
    folder = model(tmp_path / "m", "llama-3.1-8b")
    words = ("vllm", "serve", str(folder), "--max-num-batched-tokens", "16384")
    plan = report_of(Run(tmp_path), *H200, "--", *words, code=0)["plan"]
    true = STARTS["fit-8b-default"]
    assert plan["kv_cache_tokens"] == pytest.approx(true["kv_cache_tokens"], rel=0.005)
    assert plan["weights_bytes"] / GIB == pytest.approx(true["weights_gib"], abs=0.1)
    assert plan["budget_bytes"] == sum(
        plan[f"{part}_bytes"] for part in ("weights", "activation", "non_torch", "kv_cache")
    )


def test_headers_and_config_say_the_same(tmp_path: Path) -> None:
    run = Run(tmp_path)
    plans = []
    for name, shards in (("config", 0), ("headers", 4)):
        folder = model(tmp_path / name, "llama-3.1-8b", shards)
        plans.append(report_of(run, *H200, "--", "vllm", "serve", str(folder), code=0)["plan"])
    assert [plan["basis"] for plan in plans] == ["config.json", "safetensors headers"]
    assert plans[0]["weights_bytes"] == pytest.approx(plans[1]["weights_bytes"], rel=0.01)
    assert plans[0]["weights_bytes"] != 0


def test_what_does_not_fit_fails_with_a_number(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", "llama-3.1-8b")
    command = ("vllm", "serve", str(folder), "--gpu-memory-utilization", "0.17")
    report = report_of(Run(tmp_path), *H200, "--", *command, code=1)
    assert report["plan"]["limit"] == "context"
    (finding,) = report["results"][[r["outcome"] for r in report["results"]].index("failed")][
        "findings"
    ]
    assert finding["category"] == "oom_kv_cache"
    first = report["plan"]["changes"][0]
    assert first["flags"].startswith("--max-model-len ") and first["fits"]
    length = first["flags"].rpartition(" ")[2]
    again = report_of(Run(tmp_path), *H200, "--", *command, "--max-model-len", length, code=0)
    assert again["plan"]["fits"]


def test_the_played_gpu_is_planned_for(tmp_path: Path, one_gpu: Path) -> None:
    """Without --gpu the machine's own: NVML's total without what the driver reserves."""
    folder = model(tmp_path / "m", "llama-3.1-8b")
    run = Run(tmp_path, variables={"LD_LIBRARY_PATH": str(one_gpu)})
    plan = report_of(run, "--engine", "vllm==0.26.0", "--", "vllm", "serve", str(folder))["plan"]
    assert (plan["gpu"], plan["total_bytes"]) == ("NVIDIA H200", TRUTH["usable_bytes"])


def test_without_a_gpu_the_fewest_of_each_kind(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", "llama-3.1-70b")
    plan = report_of(Run(tmp_path), "--engine", "vllm==0.26.0", "--", "vllm", "serve", str(folder))[
        "plan"
    ]
    counts = {row["gpu"]: row["gpus"] for row in plan["kinds"]}
    assert counts["H200"] == 2 and counts["H100-80GB"] == 4 and counts["B300"] == 1
    assert plan["fits"] is None


def test_model_folder_as_a_target(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", "llama-3.2-1b")
    assert report_of(Run(tmp_path), *H200, str(folder), code=0)["plan"]["fits"]


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        (("--gpu", "A100"), "is one of A100-40GB, A100-80GB: say which"),
        (("--gpu", "T5"), "there is no GPU 'T5' in the catalogue"),
        (("--gpu", "H200:0"), "the count is '0', not a number from 1"),
        (("--gpu-memory", "-3"), "is no size, such as 79.2GiB"),
        (("--gpu-memory", "99999999"), "no GPU has that much"),
    ],
)
def test_wrong_gpu(tmp_path: Path, gpu: tuple[str, ...], words: str) -> None:
    ended = Run(tmp_path)("plan", *gpu, "--", "vllm", "serve", "x")
    assert ended.returncode == 2
    assert words in ended.stderr and "Traceback" not in ended.stderr


def test_memory_of_a_gpu_that_is_not_in_the_catalogue(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", "llama-3.1-8b")
    words = ("--gpu", "Foo:2", "--gpu-memory", "40GiB", "--", "vllm", "serve", str(folder))
    plan = report_of(Run(tmp_path), *words)["plan"]
    assert (plan["gpu"], plan["total_bytes"]) == ("Foo", 40 * GIB)


def test_unknown_architecture_is_unknown(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", "llama-3.1-8b")
    write_json(
        folder / "config.json",
        {**TRUTH["configs"]["llama-3.1-8b"], "architectures": ["NopeForCausalLM"]},
    )
    report = report_of(Run(tmp_path), *H200, "--", "vllm", "serve", str(folder), code=3)
    assert report["plan"] is None
    assert {row["outcome"] for row in report["results"]} == {"blocked"}
    assert "NopeForCausalLM" in report["results"][0]["reason"]


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<Q", 4 << 30) + b"{}",
        struct.pack("<Q", 1 << 60) + b"{}",
        struct.pack("<Q", 3) + b'{"a',
        struct.pack("<Q", 74)
        + b'{"lm_head.weight":{"dtype":"BF16","shape":[-4,4],"data_offsets":[0,-32]}}',
        b"",
    ],
    ids=["4 GB", "absurd", "cut", "negative", "empty"],
)
def test_broken_header_is_not_believed(tmp_path: Path, header: bytes) -> None:
    """Nothing is allocated that the file claims; the plan falls back to the config or is unknown."""
    folder = model(tmp_path / "m", "llama-3.1-8b")
    (folder / "model.safetensors").write_bytes(header)
    ended = Run(tmp_path)("plan", "--format", "json", *H200, "--", "vllm", "serve", str(folder))
    assert ended.returncode in (0, 3) and "internal fault" not in ended.stderr
    report = json.loads(ended.stdout)
    assert report["plan"] is None or report["plan"]["basis"] == "config.json"


def test_text_is_readable_at_80_columns(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", "llama-3.1-8b")
    ended = Run(tmp_path)("plan", *H200, "--", "vllm", "serve", str(folder))
    lines = ended.stdout.splitlines()
    bar = next(line for line in lines if line.lstrip().startswith("|"))
    assert bar.count("=") > 5 * bar.count("#") > 0
    assert any(line.startswith("fits  NVIDIA H200 139.8 GiB, budget 128.6 GiB") for line in lines)
    assert max(len(line) for line in lines if str(folder) not in line) <= 80


def test_manifest_with_a_hub_id_that_is_in_the_cache_here(tmp_path: Path) -> None:
    cached(tmp_path / "hub", "meta/llama", model(tmp_path / "m", "llama-3.1-8b"))
    (tmp_path / "compose.yaml").write_text(
        "services:\n  llm:\n    image: vllm/vllm-openai:v0.26.0\n"
        '    command: ["--model", "meta/llama", "--gpu-memory-utilization", "0.17"]\n'
    )
    run = Run(tmp_path, variables={"HF_HUB_CACHE": str(tmp_path / "hub")})
    report = report_of(run, "--gpu", "H200", "compose.yaml", code=1)
    assert report["plan"]["engine_version"] == "0.26.0"
    assert report["plan"]["changes"][0]["flags"].startswith("--max-model-len")


def test_memory_that_others_hold_fails_the_plan(tmp_path: Path) -> None:
    """As an engine that was left behind held it: 7.76 of 139.8 GiB free."""
    captured = json.loads((Path(__file__).parent / "captures" / "h200" / "nvml.json").read_text())
    memory = captured["gpus"][0]["MemoryInfo_v2"]
    memory["used"] += 132 * GIB
    memory["free"] -= 132 * GIB
    folder = model(tmp_path / "m", "llama-3.2-1b")
    library = nvml_library.build(captured, tmp_path)
    run = Run(tmp_path, variables={"LD_LIBRARY_PATH": str(library)})
    report = report_of(run, "--", "vllm", "serve", str(folder), code=1)
    assert report["plan"]["limit"] == "free"
    assert report["primary"]["check"] == "gpu-memory-held"


@pytest.mark.parametrize(
    ("format", "words"),
    [
        ("markdown", "FAIL  NVIDIA H200 139.8 GiB"),
        ("html", "<h3>What each change buys</h3>"),
        ("junit", "memory-does-not-load"),
        ("sarif", "memory-does-not-load"),
    ],
)
def test_other_forms(tmp_path: Path, format: str, words: str) -> None:
    folder = model(tmp_path / "m", "llama-3.1-70b")
    ended = Run(tmp_path)("plan", "--format", format, *H200, "--", "vllm", "serve", str(folder))
    assert ended.returncode == 1
    assert words in ended.stdout


def test_gpu_of_a_snapshot(tmp_path: Path) -> None:
    """The machine is the snapshot's, the model is read here."""
    snapshot = Path(__file__).parent / "cases" / "h200-x2-orphan" / "snapshot.json"
    folder = model(tmp_path / "m", "llama-3.2-1b")
    words = ("--snapshot", str(snapshot), "--", "vllm", "serve", str(folder))
    report = report_of(Run(tmp_path), *words, code=1)
    assert report["plan"]["limit"] == "free"
    assert report["plan"]["engine_version"] == "0.26.0"
    assert report["primary"]["check"] == "gpu-memory-held"


def test_a_model_of_another_engine_that_is_not_here(tmp_path: Path) -> None:
    ended = Run(tmp_path)("plan", "--gpu", "H200", "--", "trtllm-serve", "meta/llama")
    assert ended.returncode == 3
    assert "configuration of the model is not known" in " ".join(ended.stdout.split())


def test_nothing_named_is_wrong_usage(tmp_path: Path) -> None:
    ended = Run(tmp_path)("plan")
    assert ended.returncode == 2
    assert "name a launch after --, or a model folder" in ended.stderr


def test_what_starts_no_engine_is_no_pass(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text("from openai import OpenAI\nOpenAI(timeout=5)\n")
    ended = Run(tmp_path)("plan", "--gpu", "h200", "client.py")
    assert ended.returncode == 2
    assert "there is nothing to plan: client.py: starts no engine" in ended.stderr


def test_check_carries_the_plan(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", "llama-3.1-70b")
    ended = Run(tmp_path)("check", "--format", "json", *H200, "--", "vllm", "serve", str(folder))
    report = json.loads(ended.stdout)
    assert report["plan"]["limit"] == "no_cache"
    failed = {row["check"] for row in report["results"] if row["outcome"] == "failed"}
    assert "memory-does-not-load" in failed
    assert not failed & {"gpu-none", "driver-missing"}
