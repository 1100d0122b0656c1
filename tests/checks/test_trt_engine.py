"""Engine folders: whole, of one build, of the version that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trtllm_files import MIB, checkpoint, engine, facts, old_engine, plan, read_engine

from infer_doctor.checks.trt_engine import config_broken, form_old, ranks_differ, ranks_missing
from infer_doctor.checks.trt_engine_version import engine_unsupported, engine_version
from infer_doctor.hands.trtllm import trt_folder
from infer_doctor.testing import contract, examine
from infer_doctor.trtllm.folder import folder_of


def judged(path: Path, version: str | None, command: str = "trtllm-serve {}") -> list[Any]:
    """Launch, release, options and engine."""
    return [*facts(command.format(path), version), read_engine(path)]


def built(path: Path, version: str | None) -> list[Any]:
    """Launch, release and engine."""
    rows = judged(path, version)
    return [*rows[:2], rows[3]]


def test_config_broken(tmp_path: Path) -> None:
    whole = read_engine(engine(tmp_path / "whole"))
    contract(
        config_broken,
        fires=[read_engine(engine(tmp_path / "none", config=False))],
        passes=[whole],
    )
    broken = engine(tmp_path / "broken")
    (broken / "config.json").write_text('{"version": "0.14.0", ')
    (finding,) = examine(config_broken, read_engine(broken)).findings
    assert "is no JSON" in finding.message


def test_form_old(tmp_path: Path) -> None:
    old = old_engine(tmp_path / "old")
    contract(form_old, fires=judged(old, "0.14.0")[1::2], passes=judged(old, "0.7.1")[1::2])
    assert examine(form_old, *judged(old, None)[1::2]).outcome == "blocked"


def test_ranks_missing(tmp_path: Path) -> None:
    whole = engine(tmp_path / "whole", tp=4)
    gone = engine(tmp_path / "gone", tp=4, sizes=[200 * MIB] * 2)
    contract(ranks_missing, fires=[read_engine(gone)], passes=[read_engine(whole)])
    (finding,) = examine(ranks_missing, read_engine(gone)).findings
    assert "4 ranks (tp_size 4), but the .engine of ranks 2 and 3 are not there" in finding.message
    empty = engine(tmp_path / "empty", tp=2, sizes=[200 * MIB, 0])
    (finding,) = examine(ranks_missing, read_engine(empty)).findings
    assert "rank 1 is empty" in finding.message
    more = engine(tmp_path / "more", tp=2, sizes=[200 * MIB] * 4)
    (finding,) = examine(ranks_missing, read_engine(more)).findings
    assert (finding.severity, finding.confidence) == ("warning", "likely")
    half = checkpoint(tmp_path / "ckpt", tp=2, ranks=1)
    (finding,) = examine(ranks_missing, read_engine(half)).findings
    assert "rank 1 is not there" in finding.message


def test_ranks_differ(tmp_path: Path) -> None:
    whole = engine(
        tmp_path / "whole", tp=2, pp=2, sizes=[200 * MIB, 200 * MIB, 150 * MIB, 150 * MIB]
    )
    cut = engine(tmp_path / "cut", tp=2, sizes=[200 * MIB, 120 * MIB])
    contract(ranks_differ, fires=[read_engine(cut)], passes=[read_engine(whole)])
    (finding,) = examine(ranks_differ, read_engine(cut)).findings
    assert finding.message == (
        "rank1.engine has 120 MiB, the largest of its stage 200 MiB: it was cut off"
    )
    mixed = engine(tmp_path / "mixed", tp=2, tensorrt=["10.4.0.26", "10.8.0.43"])
    (finding,) = examine(ranks_differ, read_engine(mixed)).findings
    assert "10.4.0.26 rank 0; 10.8.0.43 rank 1" in finding.message
    pointer = engine(tmp_path / "pointer")
    (pointer / "rank0.engine").write_text("version https://git-lfs.github.com/spec/v1\n" * 3)
    (finding,) = examine(ranks_differ, read_engine(pointer)).findings
    assert "does not begin as a TensorRT plan does" in finding.message


def test_engine_version(tmp_path: Path) -> None:
    path = engine(tmp_path / "e", version="0.14.0")
    contract(engine_version, fires=built(path, "1.2.1"), passes=built(path, "0.14.0"))
    (finding,) = examine(engine_version, *built(path, "1.2.1")).findings
    assert finding.message == (
        "the engine was built by TensorRT-LLM 0.14.0, TensorRT 10.4.0.26; TensorRT 10.14.1.48 of "
        "TensorRT-LLM 1.2.1, as --engine says, will read it"
    )
    build, older = finding.fixes
    assert build.actions[0].text.startswith("trtllm-build --checkpoint_dir CKPT --output_dir ")
    assert "--max_seq_len 4096 --max_num_tokens 8192" in build.actions[0].text
    assert older.title.endswith("nvcr.io/nvidia/tritonserver:24.10-trtllm-python-py3")


@pytest.mark.parametrize(
    ("writer", "tensorrt", "runs", "outcome", "confidence"),
    [
        ("0.14.0", None, "0.14.1", "passed", None),
        ("0.20.0", None, "1.0.0", "failed", "likely"),
        ("0.21.0", None, "1.0.0", "failed", "likely"),  # the same TensorRT, other plugins
        ("1.2.0", "10.14.1.48", "1.2.1", "passed", None),
        ("0.14.0", None, None, "blocked", None),
        ("0.14.0", "10.9.0.34", None, "failed", "likely"),  # config and plans of two builds
        ("nonsense", None, "1.2.1", "failed", "likely"),
        ("1.2.0rc0", "10.13.2.6", "1.2.0rc0", "passed", None),  # a candidate's TensorRT is its own
        ("1.2.0rc0", "0.0.0.0", "1.2.1", "blocked", None),
        ("0.17.0.dev2024121700", "0.0.0.0", "0.17.0", "blocked", None),
        ("1.1.0rc5", "0.0.0.0", "1.2.1", "failed", "likely"),
        ("1.0.3", "10.13.3.9", "1.0.3", "passed", None),  # of Triton 25.11
        ("1.0.3.2510", "0.0.0.0", "1.0.3", "passed", None),
        ("1.0.0", "0.0.0.0", "1.0.3", "failed", "certain"),
        ("1.0.0", "0.0.0.0", "1.0.2", "blocked", None),
    ],
)
def test_versions(
    tmp_path: Path,
    writer: str,
    tensorrt: str | None,
    runs: str | None,
    outcome: str,
    confidence: str | None,
) -> None:
    path = engine(tmp_path / "e", version=writer, tensorrt=tensorrt)
    result = examine(engine_version, *built(path, runs))
    assert result.outcome == outcome
    assert [f.confidence for f in result.findings] == ([confidence] if confidence else [])


def test_a_plan_that_tells_nothing(tmp_path: Path) -> None:
    path = engine(tmp_path / "e", version="1.1.0")
    (path / "rank0.engine").write_bytes(plan("0.0.0.0") + bytes(100))
    (finding,) = examine(engine_version, *built(path, "1.2.1")).findings
    assert finding.message.startswith("the engine was built by TensorRT-LLM 1.1.0 (TensorRT 10.13")
    assert finding.confidence == "certain"


def test_engine_unsupported(tmp_path: Path) -> None:
    path = engine(tmp_path / "e", version="1.2.1")
    contract(
        engine_unsupported,
        fires=judged(path, "1.4.0rc1"),
        passes=judged(path, "1.2.1", "trtllm-serve {} --backend tensorrt"),
    )
    (finding,) = examine(engine_unsupported, *judged(path, "1.2.1")).findings
    assert finding.fixes[0].title == "Start with --backend tensorrt"
    (old,) = examine(engine_unsupported, *judged(path, "1.0.0")).findings
    assert old.fixes[0].title == "Start with --backend trt"
    assert finding.fixes[0].safety == "safe"
    assert examine(engine_unsupported, *judged(path, "1.3.0rc20")).outcome == "blocked"
    assert examine(engine_unsupported, *judged(path, "0.21.0")).outcome == "passed"
    # the default backend changed between the candidates of 1.0
    assert examine(engine_unsupported, *judged(path, "1.0.0rc0")).outcome == "blocked"
    asked = judged(path, "1.0.0rc0", "trtllm-serve {} --backend pytorch")
    assert examine(engine_unsupported, *asked).outcome == "failed"


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("mapping", {"tp_size": 10**9, "pp_size": 1}),
        ("mapping", {"tp_size": 4096, "pp_size": 4096}),
        ("mapping", {"tp_size": "2"}),
        ("mapping", {"tp_size": 0, "pp_size": -1}),
        ("mapping", {"tp_size": 1.5}),
        ("mapping", {"tp_size": True}),
        ("mapping", [2]),
    ],
)
def test_sizes_that_are_none(tmp_path: Path, part: str, value: Any) -> None:
    found = read_engine(engine(tmp_path / "e", **{part: value}))
    assert found.world_size is None
    assert examine(ranks_missing, found).outcome == "blocked"


def test_what_is_no_number_is_a_gap(tmp_path: Path) -> None:
    odd = engine(
        tmp_path / "odd",
        build={"max_num_tokens": "8192", "max_seq_len": float("nan")},
        quantization={"quant_algo": 8},
    )
    found = read_engine(odd)
    assert len(found.gaps) == 3
    assert examine(ranks_differ, found).outcome == "blocked"
    absent = read_engine(engine(tmp_path / "absent", mapping=None))
    assert (absent.gaps, absent.world_size) == ((), None)
    assert examine(ranks_missing, absent).outcome == "passed"


def test_parts_that_are_no_objects(tmp_path: Path) -> None:
    path = engine(tmp_path / "e")
    (path / "config.json").write_text('{"pretrained_config": null, "build_config": [1]}')
    (finding,) = examine(config_broken, read_engine(path)).findings
    assert finding.message.endswith(
        "its config.json has no object pretrained_config and build_config"
    )


@pytest.mark.parametrize("text", ['{"a": "' + "x" * (5 << 20) + '"}', '{"a":' * 100_000])
def test_a_config_that_only_this_reader_cannot_take(tmp_path: Path, text: str) -> None:
    path = engine(tmp_path / "e")
    (path / "config.json").write_text(text)
    found = read_engine(path)
    assert examine(config_broken, found).outcome == "blocked"
    assert examine(ranks_missing, found).outcome == "blocked"


def test_a_visual_encoder_is_no_engine_of_before_0_8(tmp_path: Path) -> None:
    folder = tmp_path / "visual"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"builder_config": {"precision": "float16", "model_type": "llava"}}'
    )
    (folder / "visual_encoder.engine").write_bytes(plan("10.4.0.26"))
    assert folder_of(str(folder), trt_folder(str(folder))) is None


def test_a_stage_is_compared_where_an_earlier_one_is_gone(tmp_path: Path) -> None:
    path = engine(tmp_path / "e", tp=2, pp=2, sizes=[MIB, MIB, 200 * MIB, 90 * MIB])
    (path / "rank0.engine").unlink()
    (path / "rank1.engine").unlink()
    (finding,) = examine(ranks_differ, read_engine(path)).findings
    assert finding.message.startswith("rank3.engine has 90 MiB")


def test_checkpoints_are_no_engines(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "c", tp=2)
    rows = judged(path, "0.14.0", "trtllm-build --checkpoint_dir {}")
    assert examine(engine_version, *rows[:2], rows[3]).outcome == "not_applicable"
    assert examine(ranks_missing, rows[3]).outcome == "passed"
