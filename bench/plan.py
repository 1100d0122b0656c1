"""The memory plan beside real starts, with each fitted constant left out, and the time of a process.

The rival figures are those of the planners that were run on the same 13 first starts:
llm-d-planner 0.3.3 (median 0.8 %, worst 97 % of tokens; 0.29 and 3.15 GiB of the pool) and a formula
that knows weights, fp8 and MLA but no activations (1.8 % and 8.7 %; 1.99 and 4.47 GiB).
"""

import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import DOCTOR, ROOT, seconds

sys.path.insert(0, str(ROOT / "tests" / "rigs"))

from memory_starts import STARTS, TRUTH, plan_of_start

GIB = 1 << 30
SHARDS = 30
RUNS = 7


def errors() -> dict[str, tuple[float, float | None]]:
    """By start: GiB that the pool is too large, share that the tokens are too many."""
    found = {}
    for name, start in STARTS.items():
        if "weights_gib" not in start:
            continue
        plan = plan_of_start(name)
        true = start.get("kv_cache_tokens")
        found[name] = (
            plan.rank.cache / GIB - start["available_kv_gib"],
            plan.tokens / true - 1 if true else None,
        )
    return found


def left_out(pools: dict[str, float]) -> dict[str, float]:
    """The error of each start when the constants of its kind are moved by the mean of the others.

    A kind is one GPU or several, eager or compiled, by runner: each has constants of its own.
    """

    def kind(name: str) -> tuple[bool, bool, int]:
        plan = plan_of_start(name)
        return plan.layout.gpus > 1, plan.settings.eager, plan.settings.runner

    found = {}
    for name, error in pools.items():
        others = [other for key, other in pools.items() if key != name and kind(key) == kind(name)]
        found[name] = error - (statistics.mean(others) if others else 0.0)
    return found


def accuracy() -> None:
    found = errors()
    pools = {name: pool for name, (pool, _) in found.items()}
    again = left_out(pools)
    print("| start | pool, GiB | left out | tokens |\n|---|---|---|---|")
    for name, (pool, tokens) in found.items():
        share = "" if tokens is None else f"{100 * tokens:+.2f} %"
        print(f"| {name} | {pool:+.3f} | {again[name]:+.3f} | {share} |")
    sizes = [abs(pool) for pool in pools.values()]
    out = [abs(pool) for pool in again.values()]
    shares = [100 * abs(tokens) for _, tokens in found.values() if tokens is not None]
    print(f"\npool: median {statistics.median(sizes):.3f}, worst {max(sizes):.3f} GiB (0.1, 0.3)")
    print(f"left out: median {statistics.median(out):.3f}, worst {max(out):.3f} GiB")
    print(f"tokens: median {statistics.median(shares):.3f} %, worst {max(shares):.2f} % (0.5, 2)")
    plan = plan_of_start("fail-8b-len-kv")
    true = STARTS["fail-8b-len-kv"]["longest"]
    print(f"longest context: {plan.safe_longest:,} of {true:,} ({plan.safe_longest / true:.1%})")


def big_model(folder: Path) -> Path:
    """Llama 3.1 70B in 30 shards: whole headers, files with holes."""
    config = TRUTH["configs"]["llama-3.1-70b"]
    (folder / "config.json").write_text(json.dumps(config))
    hidden, width = config["hidden_size"], config["intermediate_size"]
    shapes = {"model.embed_tokens": [config["vocab_size"], hidden], "model.norm": [hidden]}
    shapes["lm_head"] = [config["vocab_size"], hidden]
    for layer in range(config["num_hidden_layers"]):
        for name, shape in {
            "self_attn.q_proj": [hidden, hidden],
            "self_attn.k_proj": [1024, hidden],
            "self_attn.v_proj": [1024, hidden],
            "self_attn.o_proj": [hidden, hidden],
            "mlp.gate_proj": [width, hidden],
            "mlp.up_proj": [width, hidden],
            "mlp.down_proj": [hidden, width],
            "input_layernorm": [hidden],
            "post_attention_layernorm": [hidden],
        }.items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    names = list(shapes)
    where = {}
    for shard in range(SHARDS):
        file = f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors"
        header, place = {}, 0
        for name in names[shard::SHARDS]:
            size = 2
            for side in shapes[name]:
                size *= side
            header[f"{name}.weight"] = {
                "dtype": "BF16", "shape": shapes[name], "data_offsets": [place, place + size]
            }  # fmt: skip
            where[f"{name}.weight"] = file
            place += size
        text = json.dumps(header).encode()
        with (folder / file).open("wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            out.truncate(8 + len(text) + place)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return folder


def process() -> None:
    with tempfile.TemporaryDirectory() as folder:
        words = ["--gpu", "H200:2", "--", "vllm", "serve", str(big_model(Path(folder))), "-tp", "2"]
        command = [DOCTOR, "plan", *words]
        taken = sorted(seconds(command) for _ in range(RUNS))
        code = (
            "import os,resource,subprocess,sys;subprocess.run(sys.argv[1:],stdout=subprocess.DEVNULL);"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        peak = subprocess.run(
            [sys.executable, "-c", code, *command], capture_output=True, text=True
        )
        print(
            f"\nplan of a 70B with {SHARDS} shards: {statistics.median(taken):.2f} s "
            f"({taken[0]:.2f} to {taken[-1]:.2f}), {int(peak.stdout) / 1024:.0f} MB at the most of one "
            f"process (0.5 s, 100 MB); load {os.getloadavg()[0]:.1f}"
        )


if __name__ == "__main__":
    accuracy()
    process()
