"""The loader of glibc, played on what was read of the files: which copy of a library a process gets.

The rules are those of ld.so(8) and of glibc's elf/dl-load.c (_dl_map_object) and elf/dl-deps.c. Left
out: folders glibc-hwcaps (NVIDIA puts nothing there), links that lead to themselves, audit modules,
name spaces of dlmopen.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

MACHINES = {"x86_64": 62, "aarch64": 183}
"""Name of the machine -> its number in ELF files (EM_X86_64, EM_AARCH64)."""

CACHE_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03}
"""Name of the machine -> the flags of its libraries in the loader's cache (glibc: ldconfig.h)."""

SKIPPED = ("wrong ELF class", "EACCES", "ENOENT", "EPERM")
"""What makes the loader try the next folder; a file that is no library at all ends the search."""


class Unloadable(Exception):
    """A library that cannot be loaded, with what it broke."""

    def __init__(
        self, name: str, by: str, tried: Sequence[tuple[str, str]], *, damaged: bool
    ) -> None:
        super().__init__(name)
        self.name = name
        self.by = by
        """The file that asked for it."""
        self.tried = tuple(tried)
        """Files that the loader met, and what was wrong with each."""
        self.damaged = damaged
        """Whether the loader ended its search at a damaged file, the last of `tried`."""


class Scan(NamedTuple):
    """What was read: see hands/libraries.py."""

    folders: Mapping[str, Mapping[str, str | None]]
    """By the folder without links."""
    files: Mapping[str, Mapping[str, Any]]
    linked: Mapping[str, str]
    """Folder -> the same without links, where they differ."""
    cache: tuple[tuple[str, str], ...] = ()
    """Name and path, in the loader's order."""

    def real(self, folder: str) -> str:
        """A folder without links and `..`; before a `..` links are followed, as the kernel does."""
        before, up, after = folder.partition("/..")
        if up:
            before = posixpath.normpath(before)
            folder = self.linked.get(before, before) + up + after
        folder = posixpath.normpath(folder)
        return self.linked.get(folder, folder)

    def names(self, folder: str) -> Mapping[str, str | None]:
        """What is in a folder: name -> path without links."""
        return self.folders.get(self.real(folder), {})


class Mapped:
    """A loaded object."""

    def __init__(
        self, name: str, path: str, real: str, found_by: str, asker: Mapped | None, row: Any
    ) -> None:
        self.name = name
        """What was asked for."""
        self.path = path
        """How it was found: the loader takes $ORIGIN from that."""
        self.real = real
        self.found_by = found_by
        """What led to it: "LD_LIBRARY_PATH", "RPATH of libtorch_cuda.so", "the loader's cache"."""
        self.asker = asker
        """The object that asked for it first."""
        self.loader = asker
        """That, if it needs this one: then its RPATH counts for what this one needs. None if it opened
        it by dlopen (glibc: __RTLD_CALLMAP)."""
        self.row: Mapping[str, Any] = row
        self.names = {name}
        self.base = posixpath.basename(path)
        self.soname: str | None = row.get("soname")

    def folders(self, tag: str) -> list[str] | None:
        """The folders of "rpath" or "runpath"; None without one. A RUNPATH switches RPATH off."""
        text = self.row.get(tag)
        if text is None or (tag == "rpath" and self.row.get("runpath") is not None):
            return None
        parts = text.split(":") if text else []
        return [_expand(part, posixpath.dirname(self.path)) for part in parts]


def _expand(part: str, origin: str) -> str:
    return re.sub(r"\$(?:ORIGIN\b|\{ORIGIN\})", lambda _: origin, part)


class Loader:
    """A process that loads libraries one after the other.

    `knows(name)` says which names the scan looked for: others (libc, libstdc++) are left out.
    """

    def __init__(
        self,
        scan: Scan,
        *,
        machine: str,
        knows: Callable[[str], bool],
        library_path: str = "",
        folder: str = "/",
    ) -> None:
        self._scan = scan
        self._number = MACHINES.get(machine, 0)
        self._knows = knows
        self._here = folder
        self._variable = [
            ("LD_LIBRARY_PATH", part) for part in re.split("[:;]", library_path) if library_path
        ]
        self._default = [("a default folder", part) for part in default_folders(scan, machine)]
        self.objects: list[Mapped] = []

    def start(self, executable: str, preload: Sequence[str] = ()) -> Mapped:
        """Begin with the program and the entries of LD_PRELOAD; Unloadable: it cannot start."""
        row = self._scan.files.get(executable, {})
        main = Mapped(executable, executable, executable, "the program", None, row)
        self.objects.append(main)
        for name in preload:
            if "/" in name or self._knows(name):
                try:
                    self._map(name, main, [], "LD_PRELOAD")
                except Unloadable:
                    continue  # the loader says "ignored" and goes on
        self._load_needed(list(self.objects), [])
        return main

    def find(self, name: str) -> Mapped | None:
        """The loaded object that answers to a name."""
        for mapped in self.objects:
            if name in mapped.names or name == mapped.soname:
                return mapped
        return None

    def open(self, name: str, caller: Mapped, found_by: str | None = None) -> Mapped:
        """dlopen(name) called from `caller`; raises Unloadable and then has loaded nothing new."""
        new: list[Mapped] = []
        try:
            first = self._map(name, caller, new, found_by)
            if first in new:
                first.loader = None
                self._load_needed([first], new)
        except Unloadable:
            self.objects = [mapped for mapped in self.objects if mapped not in new]
            raise
        return first

    def _load_needed(self, queue: list[Mapped], new: list[Mapped]) -> None:
        """Breadth first, as the loader does."""
        for mapped in queue:  # grows
            for name in mapped.row.get("needed", ()):
                if self._knows(posixpath.basename(name)):
                    known = len(self.objects)
                    found = self._map(name, mapped, new, None)
                    if len(self.objects) > known:
                        queue.append(found)

    def _map(self, name: str, caller: Mapped, new: list[Mapped], found_by: str | None) -> Mapped:
        loaded = self.find(name) if "/" not in name else None
        if loaded is not None:
            loaded.names.add(name)
            return loaded
        tried: list[tuple[str, str]] = []
        for how, path in self._candidates(name, caller):
            real = self._take(path, tried, name, caller)
            if real is None:
                continue
            for mapped in self.objects:
                if mapped.real == real:  # the same file by another name
                    mapped.names.add(name)
                    return mapped
            row = self._scan.files[real]
            mapped = Mapped(name, path, real, found_by or how, caller, row)
            self.objects.append(mapped)
            new.append(mapped)
            return mapped
        raise Unloadable(name, caller.path, tried, damaged=False)

    def _take(
        self, path: str, tried: list[tuple[str, str]], name: str, caller: Mapped
    ) -> str | None:
        """The file without links, or None to go on; raises Unloadable where the loader gives up."""
        names = self._scan.names(posixpath.dirname(path))
        base = posixpath.basename(path)
        if base not in names:
            return None
        real = names[base]
        if real is None:
            tried.append((path, "leads nowhere"))
            return None
        row = self._scan.files.get(real, {"error": "ENOENT"})
        problem = row.get("error")
        if problem is None and row["machine"] == self._number:
            return real
        if problem is None or problem in SKIPPED:
            tried.append((path, "is for another machine or may not be read"))
            return None
        tried.append((path, problem))
        raise Unloadable(name, caller.path, tried, damaged=True)

    def _candidates(self, name: str, caller: Mapped) -> Iterator[tuple[str, str]]:
        """How and where the loader looks for a name, in its order."""
        if "/" in name:
            yield "its path", posixpath.join(self._here, name)
            return
        for how, folder in self._before(caller):
            yield how, posixpath.join(self._here, folder, name)
        nodeflib = caller.row.get("nodeflib", False)
        for cached, path in self._scan.cache:
            if cached == name:
                if not (nodeflib and posixpath.dirname(path) in dict(self._default).values()):
                    yield "the loader's cache", path
                break
        if not nodeflib:
            for how, folder in self._default:
                yield how, f"{folder}/{name}"

    def _before(self, caller: Mapped) -> Iterator[tuple[str, str]]:
        """RPATH of the caller and of its callers, LD_LIBRARY_PATH, RUNPATH of the caller alone."""
        runpath = caller.folders("runpath")
        if runpath is None:
            chain: list[Mapped] = []
            above: Mapped | None = caller
            while above is not None:
                chain.append(above)
                above = above.loader
            if self.objects[0] not in chain:
                chain.append(self.objects[0])
            for mapped in chain:
                for folder in mapped.folders("rpath") or ():
                    yield f"RPATH of {mapped.base}", folder
        for how, folder in self._variable:
            yield how, _expand(folder, posixpath.dirname(self.objects[0].path))
        for folder in runpath or ():
            yield f"RUNPATH of {caller.base}", folder


def default_folders(scan: Scan, machine: str) -> list[str]:
    """The folders built into the loader: those of Debian and Ubuntu, else of Fedora, RHEL and SUSE."""
    triplet = f"{machine}-linux-gnu"
    if scan.real(f"/usr/lib/{triplet}") in scan.folders:
        return [f"/lib/{triplet}", f"/usr/lib/{triplet}", "/lib", "/usr/lib"]
    return ["/lib64", "/usr/lib64"]
