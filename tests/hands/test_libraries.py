"""Many folders at once, the loader's cache, RECORDs."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from infer_doctor.hands.libraries import (
    libraries,
    library_marks,
    loader_cache,
    owned_libraries,
)
from infer_doctor.live import LiveHost

REAL = Path("/bin/sh").resolve()


def folder_of(root: Path, *names: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copy(REAL, root / name)
    return root


def test_one_call_for_many_folders(tmp_path: Path) -> None:
    first = folder_of(tmp_path / "nvidia" / "cublas" / "lib", "libcublas.so.13", "readme.txt")
    second = folder_of(tmp_path / "nvidia" / "cudnn" / "lib", "libcudnn.so.9.1.0")
    (second / "libcudnn.so.9").symlink_to("libcudnn.so.9.1.0")
    (second / "libcudnn.so").symlink_to("libcudnn.so.8")
    (second / "libcudnn.so.7").write_bytes(b"")
    answer = libraries([f"{tmp_path}/nvidia/*/lib", f"{tmp_path}/none"], r"libcu\w+\.so[.\d]*")
    assert answer["folders"] == {
        str(first): {"libcublas.so.13": f"{first}/libcublas.so.13"},
        str(second): {
            "libcudnn.so": None,
            "libcudnn.so.7": f"{second}/libcudnn.so.7",
            "libcudnn.so.9": f"{second}/libcudnn.so.9.1.0",
            "libcudnn.so.9.1.0": f"{second}/libcudnn.so.9.1.0",
        },
    }
    assert answer["files"][f"{second}/libcudnn.so.7"] == {"size": 0, "error": "file too short"}
    assert "libc.so.6" in answer["files"][f"{first}/libcublas.so.13"]["needed"]
    assert answer["unreadable"] == {}
    assert answer["truncated"] is False


def test_a_folder_that_is_a_link_is_read_once(tmp_path: Path) -> None:
    real = folder_of(tmp_path / "cuda-13.0" / "lib64", "libcudart.so.13")
    (tmp_path / "cuda").symlink_to("cuda-13.0")
    answer = libraries([f"{tmp_path}/cuda/lib64", str(real)], r"libcudart.*")
    assert answer["folders"] == {str(real): {"libcudart.so.13": f"{real}/libcudart.so.13"}}
    assert answer["linked"] == {f"{tmp_path}/cuda/lib64": str(real)}


def test_search_paths_are_followed(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to make a library with a search path")
    site = tmp_path / "site"
    lib = folder_of(site / "torch" / "lib")
    needed = folder_of(site / "nvidia" / "cu13" / "lib", "libcudart.so.13")
    subprocess.run(
        [
            "gcc",
            "-shared",
            "-o",
            str(lib / "libtorch.so"),
            "-Wl,--disable-new-dtags",
            "-Wl,-rpath,$ORIGIN/../../nvidia/cu13/lib:$ORIGIN",
        ],
        check=True,
    )
    answer = libraries([str(lib)], r"lib(torch|cudart)\.so[.\d]*")
    assert answer["folders"][str(needed)] == {"libcudart.so.13": f"{needed}/libcudart.so.13"}
    row = answer["files"][f"{lib}/libtorch.so"]
    assert row["rpath"] == "$ORIGIN/../../nvidia/cu13/lib:$ORIGIN"
    assert row["runpath"] is None


def test_what_may_not_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "libcudart.so.13").mkdir()
    answer = libraries([str(tmp_path)], r"libcudart.*")
    assert answer["files"][f"{tmp_path}/libcudart.so.13"] == {"error": "EISDIR"}
    (tmp_path / "loop").symlink_to("loop")
    assert libraries([f"{tmp_path}/loop"], ".*")["unreadable"] == {f"{tmp_path}/loop": "ELOOP"}


def test_marks_of_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(b"no library")
    rows = [[str(tmp_path / "broken"), "names", "x"], [str(tmp_path / "gone"), "value", "x"]]
    assert library_marks(rows) == {"marks": [None, None]}


def test_marks_in_a_real_program() -> None:
    rows = [[str(REAL), "names", r"libc\.so\.6"], [str(REAL), "value", "no_such_symbol"]]
    assert library_marks(rows) == {"marks": [["libc.so.6"], None]}


def test_what_records_list(tmp_path: Path) -> None:
    info = tmp_path / "nvidia_nccl_cu13-2.28.9.dist-info"
    info.mkdir()
    (info / "RECORD").write_text(
        "nvidia/nccl/lib/libnccl.so.2,sha256=abc,217995896\r\n"
        "nvidia/nccl/lib/libnccl.so,,\n"
        '"nvidia/odd,name.so",sha256=abc,1\n'
        "nvidia/nccl/include/nccl.h,sha256=abc,12\n"
    )
    assert owned_libraries([str(info), str(tmp_path / "none")]) == {
        "owned": [
            {
                f"{tmp_path}/nvidia/nccl/lib/libnccl.so.2": 217995896,
                f"{tmp_path}/nvidia/nccl/lib/libnccl.so": None,
            },
            {},
        ]
    }


def cache_file(rows: list[tuple[str, str]], *, old: bool) -> bytes:
    """A cache as ldconfig writes it: `old` puts the header of older versions before it."""
    texts, table = b"", b""
    begin = 48 + 24 * len(rows)
    for name, path in rows:
        key, value = begin + len(texts), begin + len(texts) + len(name) + 1
        texts += name.encode() + b"\0" + path.encode() + b"\0"
        table += struct.pack("<iIIIQ", 0x0303, key, value, 0, 0)
    header = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(rows), len(texts)) + bytes(20)
    return (b"ld.so-1.7.0\0" + bytes(4) if old else b"") + header + table + texts


@pytest.mark.parametrize("old", [True, False])
def test_cache(tmp_path: Path, old: bool) -> None:
    rows = [("libcuda.so.1", "/opt/a/libcuda.so.1"), ("libz.so.1", "/lib/libz.so.1")]
    path = tmp_path / "cache"
    path.write_bytes(cache_file([*rows, ("libcuda.so.1", "/lib/libcuda.so.1")], old=old))
    assert loader_cache(str(path), r"libcuda\..*")["rows"] == [
        ["libcuda.so.1", "/opt/a/libcuda.so.1", 0x0303, 0],
        ["libcuda.so.1", "/lib/libcuda.so.1", 0x0303, 0],
    ]


def test_cache_that_is_none_or_cut(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    whole = cache_file([("libcuda.so.1", "/lib/libcuda.so.1")], old=False)
    for size in range(len(whole) - len("libcuda.so.1\0/lib/libcuda.so.1\0")):
        path.write_bytes(whole[:size])
        with pytest.raises((ValueError, struct.error)):
            loader_cache(str(path), ".*")
    path.write_bytes(b"ELF or whatever")
    with pytest.raises(ValueError, match="not a cache"):
        loader_cache(str(path), ".*")


def test_cache_of_this_machine_as_ldconfig_prints_it() -> None:
    program = shutil.which("ldconfig") or "/sbin/ldconfig"
    if not os.path.exists(program) or not os.path.exists("/etc/ld.so.cache"):
        pytest.skip("this machine has no loader cache")
    printed = subprocess.run([program, "-p"], capture_output=True, text=True, check=True).stdout
    wanted = re.findall(r"^\t(\S+) \(.*?\) => (.+)$", printed, re.M)
    rows = loader_cache("/etc/ld.so.cache", ".*")["rows"]
    assert [(name, path) for name, path, _, _ in rows] == wanted


def test_through_the_child(tmp_path: Path) -> None:
    folder_of(tmp_path, "libnccl.so.2")
    host = LiveHost()
    try:
        answer = host.ask("libraries", folders=[str(tmp_path)], names=r"libnccl\.so\.2")
    finally:
        host.close()
    assert list(answer["folders"]) == [str(tmp_path)]
