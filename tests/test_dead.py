"""Which mount a path leads to, without asking what may hang."""

from pathlib import Path

import pytest

from infer_doctor.dead import DeadPlaces, mount_of

MOUNTS = {
    "/": "overlay",
    "/nfs": "nfs4",
    "/nfs/inner": "fuse.s3fs",
    "/data": "ext4",
    "/data/far": "lustre",
}


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/nfs", "/nfs"),
        ("/nfs/a/b", "/nfs"),
        ("/nfs/inner/a", "/nfs/inner"),
        ("/nfs/inner", "/nfs/inner"),
        ("/nfsother/a", None),
        ("/data/a", None),
        ("/data/far/a", "/data/far"),
        ("/data/x/../far/a", "/data/far"),
        ("/", None),
        ("relative/nfs", None),
        ("", None),
    ],
)
def test_mount_of(path: str, mount: str | None) -> None:
    assert mount_of(path, MOUNTS) == mount


def test_links_on_local_file_systems_are_followed(tmp_path: Path) -> None:
    (tmp_path / "absolute").symlink_to("/nfs/cache")
    (tmp_path / "relative").symlink_to("absolute/deeper")
    (tmp_path / "local").symlink_to(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    assert mount_of(f"{tmp_path}/absolute/x", MOUNTS) == "/nfs"
    assert mount_of(f"{tmp_path}/relative", MOUNTS) == "/nfs"
    assert mount_of(f"{tmp_path}/local/absolute", MOUNTS) == "/nfs"
    assert mount_of(f"{tmp_path}/local/x", MOUNTS) is None
    assert mount_of(f"{tmp_path}/loop/x", MOUNTS) is None


def test_link_on_a_remote_file_system_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/data")
    mounts = {**MOUNTS, str(tmp_path): "nfs"}
    assert mount_of(f"{tmp_path}/link/far", mounts) == str(tmp_path)


def test_silent_path_is_not_asked_again(tmp_path: Path) -> None:
    places = DeadPlaces()
    assert places.reason(f"{tmp_path}/x") is None
    places.add(f"{tmp_path}/x")
    assert places.reason(f"{tmp_path}/x") == "it did not answer before"
    assert places.reason(f"{tmp_path}/y") is None
