"""File systems whose files are not on this machine, by the type that /proc/self/mountinfo gives.

Sources: vLLM itself prefetches weights on nfs, nfs4 and lustre and on no other type (0.32
model_executor/model_loader/weight_utils.py:1101, since 0.22); the kernel's Documentation/filesystems;
for FUSE the part after the dot is the program's own word (fuse(8), option subtype). Collected
2026-11.
"""

from __future__ import annotations

PREFETCHED = ("nfs", "nfs4", "lustre")

NETWORK = frozenset(
    (
        *PREFETCHED,
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "cvfs",
        "glusterfs",
        "gpfs",
        "ncpfs",
        "orangefs",
        "panfs",
        "pvfs2",
        "quobyte",
        "smb3",
        "smbfs",
        "vastnfs",
        "wekafs",
    )
)

HOST_SHARES = frozenset(("9p", "virtiofs", "vboxsf", "vmhgfs"))
"""A folder of the host of a virtual machine: of WSL2 and gVisor (9p), Kata Containers (virtiofs)."""

FUSE_OBJECT_STORES = frozenset(
    (
        "alluxio-fuse",
        "blobfuse",
        "blobfuse2",
        "ceph-fuse",
        "cvmfs2",
        "davfs",
        "gcsfuse",
        "geesefs",
        "glusterfs",
        "goofys",
        "juicefs",
        "mountpoint-s3",
        "quobyte",
        "rclone",
        "s3fs",
        "seaweedfs",
        "sshfs",
    )
)
"""FUSE programs that fetch over the network. Others are not judged: fuse-overlayfs is the root of
rootless containers, and most of the rest (ntfs, squashfuse, mergerfs) read a local disk."""


def network_label(kind: str, mount: str) -> str | None:
    """What to call a file system that is not local; None for a local or an unknown one."""
    name, _, program = kind.partition(".")
    if kind in NETWORK:
        return f"{kind}, a network file system"
    if name in ("fuse", "fuseblk") and (
        program.lower() in FUSE_OBJECT_STORES or program.lower().startswith("juicefs")
    ):
        return f"{kind}, a FUSE mount over the network"
    if kind in HOST_SHARES and mount != "/":  # the root of a sandbox is no choice of its user
        return f"{kind}, a folder shared by the host"
    return None
