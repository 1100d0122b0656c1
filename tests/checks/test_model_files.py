"""Model files on disk, as they are found broken, cut, doubled or missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import model_folder
import pytest
from launches import files, launch, options

from infer_doctor.checks.model_files import (
    config_missing,
    download_unfinished,
    path_missing,
    weights_broken,
    weights_missing,
)
from infer_doctor.checks.model_formats import (
    gguf_unsupported,
    quantization_contradicted,
    weights_doubled,
    weights_pickled,
)
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.environment import Distributions
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_files import ModelFile, ModelFiles, model_files
from infer_doctor.launch.model import Launch
from infer_doctor.live import LiveHost
from infer_doctor.testing import contract, examine


def real(model: Path | str, **environ: str) -> tuple[Launch, EngineOptions, ModelFiles]:
    """What the probe makes of real files."""
    asked = options(str(model))
    with LiveHost() as host:
        found = model_files(host, asked, None, Environ(variables=environ))
    return launch(), asked, found


def test_path(tmp_path: Path) -> None:
    contract(path_missing, fires=[*real(tmp_path / "gone")], passes=[*real(tmp_path)])


def test_path_that_is_no_hub_name_is_not_called_missing_elsewhere() -> None:
    far = files(origin="named", folder="/m", elsewhere=True, config=None)
    assert examine(path_missing, launch("another"), options(), far).outcome == "blocked"


def test_config(tmp_path: Path) -> None:
    whole = model_folder.folder(tmp_path / "m")
    empty = tmp_path / "empty"
    empty.mkdir()
    contract(config_missing, fires=[*real(empty)], passes=[*real(whole)])
    (tmp_path / "m/config.json").write_text("{")
    (finding,) = examine(config_missing, *real(whole)).findings
    assert "config.json is not valid JSON" in finding.message


def test_adapter_is_no_model(tmp_path: Path) -> None:
    """adapter_config.json only: vllm-project/vllm issue 4416."""
    base = {"base_model_name_or_path": "org/base", "r": 8}
    model_folder.write_json(tmp_path / "adapter_config.json", base)
    (finding,) = examine(config_missing, *real(tmp_path)).findings
    assert finding.message == f"{tmp_path} is a LoRA adapter, no model"
    assert finding.fixes[0].title.startswith("Serve org/base with --enable-lora")


def test_weights_missing(tmp_path: Path) -> None:
    whole = model_folder.folder(tmp_path / "m")
    bare = model_folder.folder(tmp_path / "n", shards=0)
    (bare / "model.safetensors.index.json").unlink()
    contract(weights_missing, fires=[*real(bare)], passes=[*real(whole)])
    (whole / "model-00002-of-00002.safetensors").unlink()
    (finding,) = examine(weights_missing, *real(whole)).findings
    assert finding.message == (
        f"{whole}: 1 of 2 weight files are missing: model-00002-of-00002.safetensors"
    )


def test_weights_missing_in_the_cache(tmp_path: Path) -> None:
    """A half-downloaded model is finished by the start, unless that is forbidden."""
    snapshot = model_folder.cached(tmp_path, "org/m", model_folder.folder(tmp_path / "m"))
    lost = snapshot / "model-00002-of-00002.safetensors"
    lost.resolve().rename(tmp_path / "models--org--m/blobs/abc.incomplete")
    facts = real("org/m", HF_HUB_CACHE=str(tmp_path))
    (finding,) = examine(weights_missing, *facts).findings
    assert finding.severity == "warning"
    assert finding.message.endswith("the start downloads them")
    offline = Environ(variables={"HF_HUB_OFFLINE": "1"})
    (finding,) = examine(weights_missing, *facts, offline).findings
    assert finding.severity == "error"
    assert finding.message.endswith("HF_HUB_OFFLINE=1 forbids to download them")
    (finding,) = examine(download_unfinished, *facts).findings
    assert "1 unfinished download of org/m" in finding.message


def test_weights_are_not_needed_by_every_load_format(tmp_path: Path) -> None:
    _, _, found = real(model_folder.folder(tmp_path, shards=0))
    facts = (launch(), options(load_format="dummy"), found)
    assert examine(weights_missing, *facts).outcome == "not_applicable"


def test_a_built_engine_has_no_weights(tmp_path: Path) -> None:
    model_folder.write_json(tmp_path / "config.json", {"pretrained_config": {}, "build_config": {}})
    (tmp_path / "rank0.engine").write_bytes(b"ftrt")
    assert examine(weights_missing, *real(tmp_path)).outcome == "not_applicable"


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 2888376\n"


def test_weights_broken(tmp_path: Path) -> None:
    """A clone without LFS (turboderp/exllama issue 242), a cut shard (vllm issue 15445)."""
    whole = model_folder.folder(tmp_path / "m")
    cut = model_folder.folder(tmp_path / "n")
    shard = cut / "model-00001-of-00002.safetensors"
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size - 100)
    contract(weights_broken, fires=[*real(cut)], passes=[*real(whole)])
    (finding,) = examine(weights_broken, *real(cut)).findings
    assert finding.message == (
        f"{shard} ends early: its header speaks of 256 bytes of data, 156 are there"
    )
    shard.write_text(POINTER)
    (finding,) = examine(weights_broken, *real(cut)).findings
    assert finding.message == f"{shard} is a Git LFS pointer"


def test_tensors_that_the_index_only_claims(tmp_path: Path) -> None:
    model_folder.folder(tmp_path)
    where = {"a.weight": "model-00001-of-00002.safetensors"}
    model_folder.write_json(tmp_path / "model.safetensors.index.json", {"weight_map": where})
    (finding,) = examine(weights_broken, *real(tmp_path)).findings
    assert "places 1 tensor in files that do not have them: a.weight" in finding.message


def test_broken_file_that_is_not_read_is_no_finding(tmp_path: Path) -> None:
    model_folder.folder(tmp_path)
    (tmp_path / "pytorch_model.bin").write_text(POINTER)
    assert examine(weights_broken, *real(tmp_path)).outcome == "passed"


def test_gguf_that_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    model_folder.gguf(file, {"general.architecture": "llama"}, counts=(5, 2))
    (finding,) = examine(weights_broken, *real(file)).findings
    assert finding.message.startswith(f"{file} ends within its header")


def test_unfinished() -> None:
    part = ModelFile(name="abc.incomplete", size=3 << 30)
    contract(
        download_unfinished,
        fires=[launch(), options(), files(partial=(part,))],
        passes=[launch(), options(), files()],
    )


def test_doubled(tmp_path: Path) -> None:
    whole = model_folder.folder(tmp_path / "m")
    two = model_folder.folder(tmp_path / "n")
    (two / "model.safetensors.index.json").unlink()
    model_folder.safetensors(two / "model.safetensors", {"x": ("BF16", (2, 2))})
    contract(weights_doubled, fires=[*real(two)], passes=[*real(whole)])


def test_pickled(tmp_path: Path) -> None:
    whole = model_folder.folder(tmp_path / "m")
    old = model_folder.folder(tmp_path / "n", shards=0)
    (old / "pytorch_model.bin").write_bytes(b"PK\3\4" + bytes(2000) + b"PK\5\6" + bytes(18))
    contract(weights_pickled, fires=[*real(old)], passes=[*real(whole)])
    (whole / "pytorch_model.bin").write_bytes(b"PK\3\4" + bytes(2000) + b"PK\5\6" + bytes(18))
    _, _, both = real(whole)
    assert examine(weights_pickled, launch(), options(), both).outcome == "passed"
    forced = examine(weights_pickled, launch(), options(load_format="pt"), both)
    assert forced.findings[0].fixes[0].title == "Start with --load-format auto"


@pytest.mark.parametrize(
    "check", [weights_missing, weights_broken, weights_doubled, config_missing]
)
def test_what_is_not_here_is_not_judged(check: Any) -> None:
    away = files(origin="named", folder=None, config=None)
    assert examine(check, launch(), options("org/m"), away).outcome == "blocked"


def test_gguf_without_the_plugin() -> None:
    file = options("/models/m.gguf")
    none = Distributions(by_name={}, shadowed=(), shared=(), source="/v")
    contract(
        gguf_unsupported,
        fires=[launch(), file, none],
        passes=[launch(), options("/models/m.gguf", version="0.20.0"), none],
    )
    facts = (launch(), options("unsloth/Qwen3-0.6B-GGUF:Q4_K_M"), none)
    assert examine(gguf_unsupported, *facts).outcome == "failed"
    assert examine(gguf_unsupported, launch("another"), file).outcome == "blocked"
    assert examine(gguf_unsupported, launch(), options()).outcome == "not_applicable"


def test_packed_weights_and_their_word(tmp_path: Path) -> None:
    awq = {**model_folder.TINY, "quantization_config": {"quant_method": "awq", "bits": 4}}
    plain = {"model.layers.0.mlp.up_proj.weight": ("BF16", (4, 4))}
    packed = {
        "model.layers.0.mlp.up_proj.qweight": ("I32", (4, 4)),
        "model.layers.0.mlp.up_proj.g_idx": ("I32", (4,)),
    }

    def made(name: str, config: dict[str, Any], tensors: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        model_folder.write_json(folder / "config.json", config)
        model_folder.safetensors(folder / "model.safetensors", tensors)
        return folder

    contract(
        quantization_contradicted,
        fires=[*real(made("a", awq, plain))],
        passes=[*real(made("b", awq, packed))],
    )
    unsaid = real(made("c", dict(model_folder.TINY), packed))
    (finding,) = examine(quantization_contradicted, *unsaid).findings
    assert finding.fixes[0].title == "Start with --quantization gptq"
    plainly = real(made("d", dict(model_folder.TINY), plain))
    assert examine(quantization_contradicted, *plainly).outcome == "passed"
