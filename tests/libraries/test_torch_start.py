"""What torch/__init__.py is read to load by hand."""

from __future__ import annotations

import fake_cuda
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infer_doctor.loading.loader import Scan
from infer_doctor.loading.torch_start import Preload, parse, path_of

NVTX = Preload("nvtx", "libnvToolsExt.so.*[0-9]", required=False)


def text(form: str) -> str:
    return fake_cuda.HEAD + fake_cuda.FORMS[form] + fake_cuda.TAIL


def test_the_whole_table_afterwards() -> None:
    found = parse(text("whole"))
    assert found is not None
    assert found.after == found.instead
    assert found.after[0] == Preload("cublas", "libcublasLt.so.*[0-9]")
    assert found.after[-1] == NVTX
    assert len(found.after) == 11
    assert (found.if_loaded, found.if_cuda) == (("libcudart.so",), ())


def test_two_libraries_afterwards_on_conditions() -> None:
    found = parse(text("some"))
    assert found is not None
    assert [entry.folder for entry in found.after] == ["cuda_nvrtc", "nvjitlink"]
    assert found.if_loaded == ("nvidia/cu99/lib/libcudart.so",)
    assert found.if_cuda == ("12.4", "99.0")
    assert "nccl" in [entry.folder for entry in found.instead]


def test_nothing_afterwards() -> None:
    found = parse(text("none"))
    assert found is not None
    assert found.after == ()
    assert "cublas" in [entry.folder for entry in found.instead]


def test_a_nested_condition_asks_for_the_same() -> None:
    nested = text("some").replace(
        """        if version.cuda not in ["12.4", "99.0"]:
            return
""",
        "",
    )
    nested = nested.replace(
        """            if "nvidia/cu99/lib/libcudart.so" not in _maps:
                return
            _preload""",
        """            if "nvidia/cu99/lib/libcudart.so" in _maps:
                _preload""",
    )
    found, flat = parse(nested), parse(text("some"))
    assert found is not None
    assert flat is not None
    assert found == flat._replace(if_cuda=())


@pytest.mark.parametrize("form", ["whole", "some"])
def test_cut_off_anywhere(form: str) -> None:
    lines = text(form).splitlines(keepends=True)
    whole = parse(text(form))
    for count in range(len(lines)):
        assert parse("".join(lines[:count])) in (None, whole)


@given(st.text(alphabet="def _load_glb():\n torch,[]{}\"'=0", max_size=400))
@settings(max_examples=100, deadline=None)
def test_what_is_no_python(noise: str) -> None:
    parse(text("some").replace("    try:\n", noise, 1))
    assert parse(noise) is None


def test_where_torch_looks_for_an_entry() -> None:
    scan = Scan(
        folders={
            "/b/nvidia/cu13/lib": {"libcudart.so.13": "/b/nvidia/cu13/lib/libcudart.so.13"},
            "/b/nvidia/cublas/lib": {"libcublas.so.12": "x", "libcublasLt.so.12": "y"},
            "/a/nccl/lib": {"libnccl.so": None, "libnccl.so.2": None},
        },
        files={},
        linked={},
    )

    def path(folder: str, pattern: str) -> str | None:
        return path_of(Preload(folder, pattern), ("/a", "/b"), "13.0", scan)

    assert path("cuda_runtime", "libcudart.so.*[0-9]") == "/b/nvidia/cu13/lib/libcudart.so.13"
    assert path("cublas", "libcublas.so.*[0-9]") == "/b/nvidia/cublas/lib/libcublas.so.12"
    assert path("nccl", "libnccl.so.*[0-9]") == "/a/nccl/lib/libnccl.so.2"
    assert path("cufft", "libcufft.so.*[0-9]") is None
