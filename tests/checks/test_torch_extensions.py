"""The check of kernels that are compiled for one torch, and the reading of their marks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from environment_facts import dist, installed

from infer_doctor.checks.torch_extensions import extension_mismatch
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.facts.torch_extensions import TorchExtensions, extension, torch_extensions
from infer_doctor.live import LiveHost
from infer_doctor.testing import contract, examine

TORCH = TorchBuild(version="2.8.0+cu128", cuda="12.8", source="/s/torch/version.py")


def found(version: str, *requires: str, name: str = "flash-attn") -> TorchExtensions:
    return TorchExtensions(rows=(extension(dist(name, version, *requires)),))


def test_extension_mismatch() -> None:
    contract(
        extension_mismatch,
        fires=[found("2.8.3+cu12torch2.7cxx11abiTRUE"), TORCH],
        passes=[found("2.8.3+cu12torch2.8cxx11abiTRUE"), TORCH],
    )


@pytest.mark.parametrize(
    ("version", "requires", "wants"),
    [
        ("2.8.3+cu12torch2.8cxx11abiTRUE", [], None),
        ("2.8.3+cu12torch2.7cxx11abiTRUE", [], "torch 2.7"),
        ("2.8.3+cu12torch2.8cxx11abiFALSE", [], "the old ABI of libstdc++ (cxx11abiFALSE)"),
        ("2.8.3+cu13torch2.8cxx11abiTRUE", [], "CUDA 13"),
        ("2.8.3+cu129torch2.8", [], None),
        ("2.8.3", ["torch", "einops"], None),
        ("2.8.3", ["torch>=2.4"], None),
        ("0.0.32", ["torch==2.8.0"], None),
        ("0.0.31", ["torch==2.7.1"], "torch==2.7.1"),
        ("0.0.31", ["torch (==2.7.1)"], "torch (==2.7.1)"),
        ("0.0.31", ["torch==2.7.1; extra == 'x'"], None),
    ],
)
def test_marks_and_pins(version: str, requires: list[str], wants: str | None) -> None:
    rows = examine(extension_mismatch, found(version, *requires), TORCH).findings
    told = [row.message for row in rows]
    expected = f"flash-attn {version} is compiled for {wants}; torch is 2.8.0+cu128"
    assert told == ([expected] if wants else [])


def test_the_old_abi_beside_an_old_torch() -> None:
    old = replace(TORCH, version="2.5.1+cu124", cuda="12.4")
    row = found("2.7.4+cu12torch2.5cxx11abiFALSE")
    assert examine(extension_mismatch, row, old).outcome == "passed"


def test_none_is_installed() -> None:
    nothing = TorchExtensions(rows=())
    assert examine(extension_mismatch, nothing, TORCH).outcome == "not_applicable"


@pytest.fixture
def host() -> Iterator[LiveHost]:
    made = LiveHost()
    yield made
    made.close()


WHEEL = "flash_attn-2.8.3%2Bcu12torch2.7cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"


@pytest.mark.parametrize(
    ("text", "torch"),
    [
        (f'{{"url": "https://example.org/v2.8.3/{WHEEL}", "archive_info": {{}}}}', "2.7"),
        ('{"url": "file:///src/flash-attention", "dir_info": {}}', None),
        ("{", None),
        ("[]", None),
        (None, None),
    ],
)
def test_the_address_of_the_wheel(
    host: LiveHost, tmp_path: Path, text: str | None, torch: str | None
) -> None:
    row = dist("flash-attn", "2.8.3", folder=str(tmp_path))
    folder = tmp_path / "flash-attn-2.8.3.dist-info"
    folder.mkdir()
    if text is not None:
        (folder / "direct_url.json").write_text(text)
    (read,) = torch_extensions(host, installed(row)).rows
    assert read.torch == torch
