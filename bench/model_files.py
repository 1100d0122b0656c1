"""Reading a model's headers: 70B in 30 files, and a mixture of experts with 94,000 tensors in 163.

The rival is `json.loads` on the same headers and index alone: what no reader of them can be below.
"""

import json
import struct
import sys
import tempfile
import time
from pathlib import Path

from measure import ROOT

sys.path.insert(0, str(ROOT / "tests" / "rigs"))

from model_folder import safetensors, write_json

from infer_doctor.hands.model_files import model_files

RUNS = 5

DENSE = {
    "self_attn.q_proj": ("BF16", (8192, 8192)),
    "self_attn.k_proj": ("BF16", (1024, 8192)),
    "self_attn.v_proj": ("BF16", (1024, 8192)),
    "self_attn.o_proj": ("BF16", (8192, 8192)),
    "mlp.gate_proj": ("BF16", (28672, 8192)),
    "mlp.up_proj": ("BF16", (28672, 8192)),
    "mlp.down_proj": ("BF16", (8192, 28672)),
    "input_layernorm": ("BF16", (8192,)),
    "post_attention_layernorm": ("BF16", (8192,)),
}
EXPERT = {
    "gate_proj": (2048, 7168),
    "up_proj": (2048, 7168),
    "down_proj": (7168, 2048),
}


def dense() -> dict:
    names = {f"model.layers.{a}.{n}.weight": shape for a in range(80) for n, shape in DENSE.items()}
    return {**names, "lm_head.weight": ("BF16", (128256, 8192))}


def experts() -> dict:
    found = {}
    for layer in range(61):
        for expert in range(256):
            for name, shape in EXPERT.items():
                place = f"model.layers.{layer}.mlp.experts.{expert}.{name}.weight"
                found[place] = ("F8_E4M3", shape)
                found[f"{place}_scale_inv"] = ("F32", tuple(side // 128 for side in shape))
    return found


def write(folder: Path, tensors: dict, shards: int) -> None:
    """Headers and an index; the weights are holes."""
    where = {}
    names = list(tensors)
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = names[shard * len(names) // shards : (shard + 1) * len(names) // shards]
        safetensors(folder / file, {name: tensors[name] for name in part})
        where.update(dict.fromkeys(part, file))
    write_json(folder / "model.safetensors.index.json", {"weight_map": where})
    write_json(folder / "config.json", {"model_type": "llama"})


def parsed(folder: Path) -> None:
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as handle:
            json.loads(handle.read(struct.unpack("<Q", handle.read(8))[0]))
    json.loads((folder / "model.safetensors.index.json").read_text())


def least(function, folder: Path) -> float:
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        function(folder)
        times.append(time.perf_counter() - began)
    return min(times) * 1000


print("| model | tensors | headers, ms | json.loads alone, ms | ratio | answer, bytes |")
print("|---|---|---|---|---|---|")
for name, tensors, shards in (("70B", dense(), 30), ("experts", experts(), 163)):
    with tempfile.TemporaryDirectory() as made:
        write(Path(made), tensors, shards)
        mine = least(lambda folder: model_files(str(folder)), Path(made))
        floor = least(parsed, Path(made))
        size = len(json.dumps(model_files(made)))
    print(
        f"| {name} | {len(tensors):,} | {mine:.1f} | {floor:.1f} | {mine / floor:.1f} | {size:,} |"
    )
