"""A file system whose server is gone: whoever asks it for anything sleeps in the kernel (state D).

    python dead_mount.py FOLDER

mounts it, prints "ready" and answers nothing but the kernel's greeting, as an NFS server does that
went away. Not even SIGKILL ends a process that waits for it. It ends when standard input closes;
then everybody who waits gets an error. Needs root and /dev/fuse, no library: the protocol is
include/uapi/linux/fuse.h.
"""

from __future__ import annotations

import ctypes
import functools
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FUSE_INIT = 26
MNT_FORCE, MNT_DETACH = 1, 2
IN_HEADER = struct.Struct("<IIQ")  # length, operation, number of the request, ...
OUT_HEADER = struct.Struct("<IiQ")  # length, error, number of the request
INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")  # major, minor, ..., as of version 7.31


@functools.cache
def usable() -> bool:
    """Whether it can be mounted here: tried, as a container may have /dev/fuse and no right to it."""
    try:
        with tempfile.TemporaryDirectory() as folder, dead_mount(Path(folder)):
            return True
    except OSError:
        return False


@contextmanager
def dead_mount(folder: Path) -> Iterator[Path]:
    """The folder, dead as long as the context lasts."""
    pipe = subprocess.PIPE
    words = [sys.executable, __file__, str(folder)]
    server = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
    assert server.stdin and server.stdout
    try:
        if server.stdout.readline() != b"ready\n":
            raise OSError("FUSE could not be mounted")
        yield folder
    finally:
        server.stdin.close()
        server.stdout.close()
        server.wait(timeout=30)


def serve(folder: str) -> None:
    """Mount and be silent; unmount when told to end, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"dead", folder.encode(), b"fuse", 0, options) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    try:
        while True:
            ready, _, _ = select.select([device, 0], [], [])
            if 0 in ready:
                break
            request = os.read(device, 1 << 20)
            _, operation, number = IN_HEADER.unpack_from(request)
            if operation == FUSE_INIT:
                body = INIT_OUT.pack(7, 31, 0, 0, 1, 1, 4096, 1, 0, 0, 0)
                os.write(device, OUT_HEADER.pack(OUT_HEADER.size + len(body), 0, number) + body)
                os.write(1, b"ready\n")
    finally:
        libc.umount2(folder.encode(), MNT_FORCE | MNT_DETACH)
        os.close(device)


if __name__ == "__main__":
    serve(sys.argv[1])
