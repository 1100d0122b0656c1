"""Headers and folders of models as they really are, cut, lying and hostile."""

from __future__ import annotations

import json
import os
import random
import resource
import struct
from pathlib import Path

import model_folder
import pytest

from infer_doctor.hands.gguf import gguf
from infer_doctor.hands.model_files import model_files

GIB = 1 << 30


def broken(folder: Path, name: str = "model.safetensors") -> str:
    answer = model_files(str(folder))
    assert answer["tensors"] == []
    found: str = answer["broken"][name]
    return found


def test_whole_folder(tmp_path: Path) -> None:
    model_folder.folder(tmp_path, generation_config={"temperature": 0.6})
    answer = model_files(str(tmp_path))
    assert answer["broken"] == answer["unreadable"] == {}
    assert answer["json"]["generation_config.json"] == {"temperature": 0.6}
    assert answer["index"]["model.safetensors.index.json"]["lacking"] == 0
    (row,) = answer["tensors"]
    first = "model-00001-of-00002.safetensors"
    name = "model.layers.*.mlp.up_proj.weight"
    assert row == [name, "BF16", [16, 8], 256, first, "indexed", [[0, 1, 1]]]


def test_experts_are_one_row(tmp_path: Path) -> None:
    names = [f"model.layers.{a}.mlp.experts.{b}.w.weight" for a in range(3) for b in range(64)]
    model_folder.safetensors(
        tmp_path / "model.safetensors", dict.fromkeys(names, ("F8_E4M3", (4, 4)))
    )
    (row,) = model_files(str(tmp_path))["tensors"]
    assert row[0] == "model.layers.*.mlp.experts.*.w.weight"
    assert row[6] == [[0, 2, 64]]


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        (b'{"a":', 0, "has a header that is not valid JSON"),
        (b"\xff\xfe", 0, "has a header that is not UTF-8"),
        (b"[1]", 0, "has a header that is no JSON object"),
        (b"[" * 100_000, 0, "has a header that is JSON nested too deeply"),
        ({"a": 1}, 0, "has a wrong entry: a"),
        ({"a": {"dtype": "F32", "shape": [2]}}, 8, "has a wrong entry: a"),
        (
            {"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}},
            8,
            "has a wrong entry: a with a side of -2",
        ),
        (
            {"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}},
            8,
            "has a wrong entry: a from byte 8 to 0",
        ),
        (
            {"a": {"dtype": "F32", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 8]}},
            8,
            "has a wrong entry: a, F32 [4611686018427387904, 4611686018427387904], needs",
        ),
        (
            {
                "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
            },
            12,
            "has tensors that overlap at byte 4",
        ),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, 12, "leave a hole"),
        (
            {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
            5,
            "ends early: its header speaks of 8 bytes of data, 5 are there",
        ),
        (
            {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
            9,
            "has 1 bytes that its header does not name",
        ),
    ],
)
def test_lying_headers(tmp_path: Path, header: object, data: int, words: str) -> None:
    model_folder.raw(tmp_path / "model.safetensors", header, data)
    assert words in broken(tmp_path)


def test_claimed_length_is_never_allocated(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", 4 * GIB) + b"{}")
    with file.open("r+b") as handle:  # a hole of 5 GiB: the claim is one the file could keep
        handle.truncate(5 * GIB)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "claims a header of 4,294,967,296 bytes" in broken(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_cut_header(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 1000) + b'{"a":')
    assert broken(tmp_path) == "ends within its header, after 5 of 1,000 bytes"


def test_pointer_page_and_cut_archive(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 2888376\n"
    (tmp_path / "model.safetensors").write_text(pointer)
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\3\4" + bytes(5000))
    (tmp_path / "other.bin").write_text("<!DOCTYPE html><title>401</title>")
    (tmp_path / "empty.bin").touch()
    assert model_files(str(tmp_path))["broken"] == {
        "model.safetensors": "is a Git LFS pointer",
        "pytorch_model.bin": "ends early: its 5,004 bytes have no directory of the archive at the end",
        "other.bin": "is a web page",
        "empty.bin": "is empty",
    }


def test_infinity_stays_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"time_step_limit": [0.0, Infinity], "a": NaN}')
    answer = model_files(str(tmp_path))
    assert answer["json"]["config.json"] == {"time_step_limit": [0.0, "Infinity"], "a": "NaN"}
    json.loads(json.dumps(answer), parse_constant=lambda word: pytest.fail(word))


def test_index_names_what_headers_lack(tmp_path: Path) -> None:
    model_folder.folder(tmp_path)
    where = {"a.weight": "model-00001-of-00002.safetensors", "b": "model-00003.safetensors"}
    model_folder.write_json(tmp_path / "model.safetensors.index.json", {"weight_map": where})
    row = model_files(str(tmp_path))["index"]["model.safetensors.index.json"]
    assert row["lacking_names"] == ["a.weight (model-00001-of-00002.safetensors)"]
    assert row["files"] == ["model-00001-of-00002.safetensors", "model-00003.safetensors"]


def test_gguf_header(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    keys = {"general.architecture": "llama", "llama.block_count": 2, "llama.rope": float("inf")}
    model_folder.gguf(file, keys, tensors=[("blk.0.attn_q.weight", 12, (256, 256))])
    answer = gguf(str(file))
    assert answer["keys"] == {**keys, "llama.rope": "inf"}
    assert answer["arrays"] == {"tokenizer.ggml.tokens": 3}
    assert answer["tensors"] == [["blk.0.attn_q.weight", 12, [256, 256]]]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1), "claims 1,152,921,504,606,846,976 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0), "ends within its header, after 24 bytes"),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62) + b"name",
            "ends within its header, after 36 bytes",
        ),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "is GGUF of version 9"),
        (b"ELF?" * 10, "is no GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
    ],
)
def test_lying_gguf(tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(data)
    assert words in gguf(str(file))["broken"]


def test_large_values_are_left_out_and_named(tmp_path: Path) -> None:
    layers = {f"model.layers.{number}.mlp": {"quant_algo": "NVFP4"} for number in range(5000)}
    quantization = {"quant_method": "modelopt", "quantized_layers": layers}
    config = {"model_type": "llama", "quantization_config": quantization}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokens = {str(number): {"content": f"<|reserved_{number}|>"} for number in range(5000)}
    tokenizer = {"added_tokens_decoder": tokens, "chat_template": "{{ messages }}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    answer = model_files(str(tmp_path))
    assert answer["json"]["config.json"]["quantization_config"] == {"quant_method": "modelopt"}
    assert answer["json"]["tokenizer_config.json"] == {"chat_template": "{{ messages }}"}
    assert answer["left_out"] == {
        "config.json": ["quantization_config.quantized_layers"],
        "tokenizer_config.json": ["added_tokens_decoder"],
    }


def test_no_damage_to_a_header_does_harm(tmp_path: Path) -> None:
    """Bytes changed, cut and added at random: an answer each time, and never half a table."""
    source = random.Random(20261130)
    file = tmp_path / "model.safetensors"
    tensors = {f"model.layers.{n}.mlp.w.weight": ("BF16", (4, 4)) for n in range(6)}
    model_folder.safetensors(file, tensors)
    whole = file.read_bytes()
    for _ in range(500):
        data = bytearray(whole)
        for _ in range(source.randint(1, 4)):
            place = source.randrange(len(data))
            kind = source.randrange(3)
            if kind == 0:
                data[place] = source.randrange(256)
            elif kind == 1:
                del data[place : place + source.randint(1, 40)]
            else:
                data[place:place] = bytes(source.randrange(256) for _ in range(8))
        file.write_bytes(data)
        answer = model_files(str(tmp_path))
        json.dumps(answer)
        counted = sum(run[2] * (run[1] - run[0] + 1) for row in answer["tensors"] for run in row[6])
        assert bool(answer["broken"]) != bool(counted)


def test_odd_files_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    (tmp_path / "config.json").mkdir()
    (tmp_path / "tokenizer.json").symlink_to("tokenizer.json")
    answer = model_files(str(tmp_path))
    assert answer["json"] == {}
    assert list(answer["broken"]) == ["model.safetensors"]
    assert list(answer["unreadable"]) == ["tokenizer.json"]
