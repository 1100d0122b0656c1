"""The folders of models and compiled kernels."""

from __future__ import annotations

from typing import Any

import pytest

from infer_doctor.checks.cache import disk_low, network_filesystem, not_writable
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.storage import Place, Store, Stores
from infer_doctor.launch.command import read as launch_of
from infer_doctor.testing import contract, examine

GIB = 1 << 30
MODELS, VLLM, TRITON, TMP, MODEL = (
    "model cache",
    "vLLM cache",
    "Triton cache",
    "temporary files",
    "model",
)
CUDA = EngineFact(
    name="vllm", version="0.32.0", distribution="vllm", package="/site/vllm", build="cuda"
)


def place(role: str, *, there: bool = True, writable: bool = True) -> Place:
    return Place(
        role=role, path=f"/cache/{role.split()[0]}", source="HOME", there=there, writable=writable
    )


def store(*places: Place, free: float = 500 * GIB, **other: Any) -> Store:
    values: dict[str, Any] = {
        "mount": "/",
        "type": "overlay",
        "read_only": False,
        "total": 1000 * GIB,
        "inodes": 1000,
        "inodes_free": 500,
        **other,
    }
    return Store(places=places, free=int(free), **values)


def stores(*rows: Store, offline: str | None = None, gap: str = "") -> Stores:
    return Stores(stores=rows, offline=offline, uid=1000, gaps=(gap,) if gap else ())


HEALTHY = stores(store(place(MODELS), place(VLLM), place(TRITON), place(TMP)))


def test_disk_contract() -> None:
    contract(disk_low, fires=[stores(store(place(MODELS), place(VLLM), free=0))], passes=[HEALTHY])


@pytest.mark.parametrize(
    ("free", "severity"),
    [(0, "error"), (1_830_766, "error"), (1_830_767, "warning"), (4.9e9, "warning"), (5e9, None)],
)
def test_disk_bounds(free: float, severity: str | None) -> None:
    findings = examine(disk_low, stores(store(place(MODELS), free=free))).findings
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


def test_one_finding_for_each_file_system_names_its_folders() -> None:
    result = examine(
        disk_low,
        stores(
            store(place(MODELS), place(VLLM), free=0),
            store(place(TMP), free=0, mount="/tmp", type="tmpfs", total=64 << 20),
        ),
    )
    assert [finding.about for finding in result.findings] == [
        "model cache, vLLM cache",
        "temporary files",
    ]
    assert result.findings[1].message == (
        "/tmp (tmpfs) has 0 MiB of 64 MiB free; it holds the temporary files (/cache/temporary); "
        "the smallest start writes 1.7 MiB"
    )


def test_no_inode_is_no_room() -> None:
    (finding,) = examine(disk_low, stores(store(place(VLLM), inodes_free=0))).findings
    assert finding.severity == "error"
    assert "has 0 of 1,000 inodes free" in finding.message
    assert (
        examine(disk_low, stores(store(place(VLLM), inodes=0, inodes_free=0))).outcome == "passed"
    )


def test_a_little_room_is_enough_when_nothing_is_downloaded() -> None:
    little = store(place(MODELS), place(VLLM), free=GIB)
    assert examine(disk_low, stores(little)).outcome == "failed"
    assert examine(disk_low, stores(little, offline="HF_HUB_OFFLINE=1")).outcome == "passed"
    full = stores(store(place(MODELS), free=0), offline="HF_HUB_OFFLINE=1")
    assert examine(disk_low, full).outcome == "passed"


def test_a_read_only_image_has_no_room_by_design() -> None:
    image = store(place(MODELS), free=0, type="squashfs", read_only=True)
    assert examine(disk_low, stores(image)).outcome == "passed"


def test_a_folder_that_could_not_be_asked_is_no_proof() -> None:
    for function in (disk_low, network_filesystem, not_writable):
        result = examine(function, stores(store(place(MODELS)), gap="/data: no answer"))
        assert (result.outcome, result.reason) == ("blocked", "/data: no answer")


def test_network_contract() -> None:
    contract(
        network_filesystem,
        fires=[stores(store(place(MODELS), mount="/data", type="nfs4"))],
        passes=[HEALTHY],
    )


@pytest.mark.parametrize(
    ("kind", "mount", "confidence"),
    [
        ("nfs", "/data", "certain"),
        ("lustre", "/scratch", "certain"),
        ("beegfs", "/", "certain"),
        ("fuse.gcsfuse", "/models", "certain"),
        ("fuse.JuiceFS", "/models", "certain"),
        ("fuse.s3fs", "/models", "certain"),
        ("9p", "/mnt/c", "possible"),
        ("virtiofs", "/models", "possible"),
        ("virtiofs", "/", None),  # Kata Containers
        ("9p", "/", None),  # gVisor
        ("fuse.fuse-overlayfs", "/", None),  # rootless Podman
        ("fuseblk", "/media/disk", None),
        ("fuse.mergerfs", "/pool", None),
        ("overlay", "/", None),
        ("zfs", "/tank", None),
        (None, None, None),
    ],
)
def test_types(kind: str | None, mount: str | None, confidence: str | None) -> None:
    found = examine(network_filesystem, stores(store(place(VLLM), type=kind, mount=mount))).findings
    assert [finding.confidence for finding in found] == ([confidence] if confidence else [])


def test_temporary_files_may_be_anywhere() -> None:
    remote = stores(store(place(TMP), type="nfs4", mount="/tmp"))
    assert examine(network_filesystem, remote).outcome == "passed"


def test_the_named_model_is_looked_at() -> None:
    remote = stores(store(place(MODEL), type="ceph", mount="/models"), store(place(MODELS)))
    (finding,) = examine(network_filesystem, remote).findings
    assert (
        finding.message
        == "/models is ceph, a network file system; it holds the model (/cache/model)"
    )
    assert [fix.id for fix in finding.fixes] == ["use-local-disk", "prefetch-weights"]


def test_vllm_reads_ahead_on_nfs_by_itself() -> None:
    remote = stores(store(place(MODELS), type="nfs4", mount="/data"))
    (finding,) = examine(network_filesystem, remote).findings
    assert [fix.id for fix in finding.fixes] == ["use-local-disk"]


def test_writable_contract() -> None:
    contract(
        not_writable,
        fires=[stores(store(place(TRITON, there=False, writable=False))), CUDA],
        passes=[HEALTHY, CUDA],
    )


def test_an_arbitrary_user_with_the_root_as_home() -> None:
    closed = [place(role, there=False, writable=False) for role in (MODELS, VLLM, TRITON)]
    (finding,) = examine(not_writable, stores(store(*closed, place(TMP))), CUDA).findings
    assert (finding.severity, finding.about) == ("error", "model cache, vLLM cache, Triton cache")
    assert finding.message == (
        "the model cache (/cache/model), the vLLM cache and the Triton cache cannot be written by "
        "user id 1000"
    )
    assert [action.text for action in finding.fixes[0].actions] == [
        "export HF_HOME=/cache/hf",
        "export VLLM_CACHE_ROOT=/cache/vllm",
        "export TRITON_CACHE_DIR=/cache/triton",
    ]


def test_without_an_engine_nothing_can_fail_yet() -> None:
    closed = stores(store(place(TRITON, writable=False)))
    assert [f.severity for f in examine(not_writable, closed).findings] == ["warning"]
    named = launch_of(["vllm", "serve", "m"])
    assert [f.severity for f in examine(not_writable, closed, named).findings] == ["error"]


def test_a_command_that_starts_no_engine_is_not_refused() -> None:
    """`preflight -- echo hi` as a user without a home: nothing compiles a kernel."""
    closed = stores(store(place(TRITON, writable=False)))
    other = launch_of(["echo", "hi"])
    assert [f.severity for f in examine(not_writable, closed, CUDA, other).findings] == ["warning"]


def test_a_model_cache_may_be_read_only_on_purpose() -> None:
    filled = store(place(MODELS, writable=False), read_only=True, mount="/models")
    (finding,) = examine(not_writable, stores(filled), CUDA).findings
    assert finding.severity == "info"
    assert finding.message.endswith("cannot be written: /models (overlay) is mounted read-only")
    offline = stores(filled, offline="HF_HUB_OFFLINE=1")
    assert examine(not_writable, offline, CUDA).outcome == "passed"
    missing = store(place(MODELS, there=False, writable=False))
    assert [f.severity for f in examine(not_writable, stores(missing), CUDA).findings] == [
        "warning"
    ]
