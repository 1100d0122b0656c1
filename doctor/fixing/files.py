"""Files that are replaced whole: the old one or the new one, at every moment.

A new file is written beside the old one, synced, and renamed over it (rename(2) is atomic); then the
folder is synced. What would go wrong is looked for before anything is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import re
import stat

from infer_doctor.frozen import frozen

MARGIN = 1 << 20
"""Bytes that stay free on a file system: a folder's own growth, and the journal."""

SIZE_LIMIT = 16 << 20
"""Bytes of a text file that is edited; a compose file has some kilobytes."""


class Refused(Exception):
    """The change is not begun, or was not made; the words say why."""


@frozen
class Content:
    """The bytes of a file, its mode and its owner."""

    data: bytes
    mode: int
    uid: int
    gid: int

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def real(path: str) -> str:
    """The path with the links of its folders resolved, not that of the file itself."""
    path = os.path.abspath(os.path.expanduser(path))
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def current(path: str) -> Content | None:
    """What is there now, None when nothing is; raises Refused for what is no regular file."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    if stat.S_ISLNK(found.st_mode):
        raise Refused(f"{path}: is a symbolic link to {os.readlink(path)}; name that file instead")
    if not stat.S_ISREG(found.st_mode):
        raise Refused(f"{path}: is no regular file")
    if found.st_size > SIZE_LIMIT:
        raise Refused(f"{path}: {found.st_size:,} bytes are too many (at most {SIZE_LIMIT:,})")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read()
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    return Content(data=data, mode=stat.S_IMODE(found.st_mode), uid=found.st_uid, gid=found.st_gid)


def require_replaceable(path: str, size: int) -> None:
    """Raise Refused when a new file of this size cannot take the place of `path`."""
    with contextlib.suppress(FileNotFoundError):
        _require_own(path, os.lstat(path))
        _require_no_mount(path)
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        if os.path.lexists(folder):
            raise Refused(f"{folder}: is no folder")
        folder = os.path.dirname(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Refused(f"{folder}: you may not write there")
    require_room(folder, size)


def _require_own(path: str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise Refused(f"{path}: belongs to {_user(found.st_uid)}, not to you")
    if not found.st_mode & stat.S_IWUSR or not os.access(path, os.W_OK, follow_symlinks=True):
        mode = stat.S_IMODE(found.st_mode)
        why = (
            ""
            if not mode & stat.S_IWUSR
            else "; immutable (lsattr), or its file system is read-only"
        )
        raise Refused(f"{path}: is read-only (mode {mode:04o}{why})")
    if found.st_nlink > 1:
        raise Refused(
            f"{path}: has {found.st_nlink} names (hard links), which a new file would part"
        )


MOUNTS = "/proc/self/mountinfo"


def _require_no_mount(path: str) -> None:
    """A mount point cannot be renamed over: EBUSY, rename(2)."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            points = [line.split(" ")[4] for line in file]
    except OSError:
        return
    escaped = re.sub(r"[ \t\n\\]", lambda found: f"\\{ord(found[0]):03o}", path)
    if escaped in points:
        raise Refused(
            f"{path}: is a mount of its own (docker -v FILE, a volume's subPath), which no new "
            "file can replace; change the file that is mounted here"
        )


def require_room(folder: str, size: int) -> None:
    """Raise Refused when the file system of a folder has no room for so many bytes."""
    try:
        room = os.statvfs(folder)
    except OSError as error:
        raise Refused(f"{folder}: {error.strerror}") from None
    if room.f_flag & os.ST_RDONLY:
        raise Refused(f"{folder}: the file system is mounted read-only")
    free = room.f_bavail * room.f_frsize
    if free < size + MARGIN:
        raise Refused(f"{folder}: {free:,} bytes are free; {size + MARGIN:,} are needed")
    if room.f_files and not room.f_favail:
        raise Refused(f"{folder}: the file system has no inode free")


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def put(path: str, content: Content | None, temporary: str) -> None:
    """Make `path` hold this, or nothing; atomic. `temporary` is a name in the same folder."""
    if content is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        sync_folder(os.path.dirname(path))
        return
    write_new(temporary, content)
    try:
        _copy_attributes(path, temporary)
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(os.path.dirname(path))


def write_new(path: str, content: Content) -> None:
    """A file with these bytes, mode and owner, on the disk when this returns; else none."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # of a run that was killed
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.data)
            file.flush()
            found = os.fstat(file.fileno())
            if (found.st_uid, found.st_gid) != (content.uid, content.gid):
                os.fchown(file.fileno(), content.uid, content.gid)
            os.fchmod(file.fileno(), content.mode)
            os.fsync(file.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def _copy_attributes(source: str, target: str) -> None:
    """Extended attributes: SELinux labels, ACLs; where a file system has none there is nothing."""
    with contextlib.suppress(OSError):
        for name in os.listxattr(source, follow_symlinks=False):
            with contextlib.suppress(OSError):
                value = os.getxattr(source, name, follow_symlinks=False)
                os.setxattr(target, name, value, follow_symlinks=False)


def sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def missing_folders(path: str) -> list[str]:
    """The folders above `path` that are not there, outermost first."""
    missing: list[str] = []
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        missing.insert(0, folder)
        folder = os.path.dirname(folder)
    return missing
