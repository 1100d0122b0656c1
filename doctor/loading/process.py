"""Which copy of each library the engine's process loads: `import torch`, the engine, and what they
open later, played on the files by the loader's rules (loading/loader.py)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from infer_doctor.catalog.libraries import CUDNN_PARTS, OLD_CUDNN_PARTS, library_of
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Interpreter
from infer_doctor.facts.libraries import (
    LibraryCopies,
    LibraryScan,
    LoadedLibraries,
    LoadedLibrary,
    LoadFailure,
)
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.host import Host, Unavailable
from infer_doctor.loading.loader import Loader, Mapped, Unloadable
from infer_doctor.loading.question import NCCL_PATH, knows, preloads
from infer_doctor.loading.torch_start import (
    GLOBAL_DEPS,
    PATTERN,
    Preload,
    TorchStart,
    parse,
    path_of,
)
from infer_doctor.versions import release


def play(
    host: Host,
    torch: TorchBuild,
    found: LibraryScan,
    copies: LibraryCopies,
    interpreter: Interpreter,
    environ: Environ,
    machine: str,
    engine: EngineFact | None,
) -> LoadedLibraries:
    """The whole start of the engine's process."""
    source = f"{torch.folder}/__init__.py"
    start = parse("".join(host.ask("find", path=source, pattern=PATTERN, limit=4)["matches"]))
    if start is None:
        raise Unavailable(f"{source} loads its libraries in a way that is not known here")
    if GLOBAL_DEPS not in found.scan.names(f"{torch.folder}/lib"):
        raise Unavailable(f"{torch.folder}/lib has no {GLOBAL_DEPS}: a build of another kind")
    process = _Process(machine, found, copies, environ, interpreter, torch)
    if process.start_python() and process.import_torch(start):
        if engine is not None:
            process.import_engine(engine)
        process.open_later(engine)
    return LoadedLibraries(
        rows=tuple(process.rows()),
        failures=tuple(process.failures),
        gaps=(*found.gaps, *interpreter.gaps, *process.gaps),
    )


class _Process:
    """The state of the play."""

    def __init__(
        self,
        machine: str,
        found: LibraryScan,
        copies: LibraryCopies,
        environ: Environ,
        interpreter: Interpreter,
        torch: TorchBuild,
    ) -> None:
        self.loader = Loader(
            found.scan,
            machine=machine,
            knows=knows,
            library_path=environ.variables.get("LD_LIBRARY_PATH", ""),
            folder=found.folder,
        )
        self.found, self.environ = found, environ
        self.interpreter, self.torch = interpreter, torch
        self.copies = {copy.real: copy for copy in copies.rows}
        self.failures: list[LoadFailure] = []
        self.gaps: list[str] = []

    def start_python(self) -> bool:
        """The interpreter, its own library, and the module that opens libraries for Python code."""
        try:
            main = self.loader.start(self.found.executable, preloads(self.environ.variables))
        except Unloadable as error:
            self._fail(error, "the start of Python")
            return False
        own = [mapped for mapped in self.loader.objects if mapped.base.startswith("libpython")]
        self.python: Mapped = own[0] if own else main
        self.ctypes: Mapped = self.python  # where the module is built in
        for folder, names in self.found.scan.folders.items():
            if folder.endswith("/lib-dynload"):
                for name in names:
                    if name.startswith("_ctypes."):
                        self.ctypes = self.loader.open(f"{folder}/{name}", self.python)
        return True

    def import_torch(self, start: TorchStart) -> bool:
        """torch/__init__.py, then its extension module; False when that fails."""
        first = f"{self.torch.folder}/lib/{GLOBAL_DEPS}"
        try:
            try:
                self.loader.open(first, self.ctypes, "torch")
                self._preload_after(start)
            except Unloadable as error:
                if library_of(posixpath.basename(error.name)) is None:
                    raise
                self._preload_instead(start.instead, error)
                self.loader.open(first, self.ctypes, "torch")
            for name in self.found.scan.names(self.torch.folder):
                if name.startswith("_C.cpython-"):
                    self.loader.open(f"{self.torch.folder}/{name}", self.python, "Python")
        except Unloadable as error:
            self._fail(error, "import torch")
            return False
        return True

    def _preload_after(self, start: TorchStart) -> None:
        """What torch loads by hand; it gives up silently at the first that is missing."""
        paths = [mapped.path for mapped in self.loader.objects]
        if not all(any(part in path for path in paths) for part in start.if_loaded):
            return
        if start.if_cuda and self.torch.cuda not in start.if_cuda:
            return
        for entry in start.after:
            path = self._path_of(entry)
            if path is None and not entry.required:
                continue
            try:
                if path is None:
                    return
                self.loader.open(path, self.ctypes, "torch")
            except Unloadable:
                return

    def _preload_instead(self, entries: Sequence[Preload], error: Unloadable) -> None:
        for entry in entries:
            path = self._path_of(entry)
            if path is not None:
                self.loader.open(path, self.ctypes, "torch")
            elif entry.required:  # torch names this one; the cause is what was missing first
                raise error

    def _path_of(self, entry: Preload) -> str | None:
        cuda = self.torch.cuda or ""
        return path_of(entry, self.interpreter.folders, cuda, self.found.scan)

    def import_engine(self, engine: EngineFact) -> None:
        """The extension modules of the engine; one that fails is told, the others go on."""
        if engine.name == "tensorrt-llm":
            self._import_tensorrt()
        for folder in (engine.package, f"{engine.package}/vllm_flash_attn"):
            for name in self.found.scan.names(folder):
                if not re.fullmatch(r"\w+\.abi3\.so|bindings\.cpython-[\w-]+\.so", name):
                    continue
                try:
                    self.loader.open(f"{folder}/{name}", self.python, "Python")
                except Unloadable as error:
                    self._fail_module(error, engine, f"{posixpath.basename(folder)}/{name}")

    def _fail_module(self, error: Unloadable, engine: EngineFact, module: str) -> None:
        """TensorRT-LLM loads some by hand, in ways that are not played: a copy may do."""
        name = posixpath.basename(error.name)
        somewhere = any(names.get(name) for names in self.found.scan.folders.values())
        if engine.name == "tensorrt-llm" and somewhere and not error.damaged:
            self.gaps.append(f"how {module} gets {name} is not known")
        else:
            self._fail(error, module)

    def _import_tensorrt(self) -> None:
        """The package tensorrt_libs loads its own libraries by path (tensorrt_bindings 10.14)."""
        for folder in (f"{site}/tensorrt_libs" for site in self.interpreter.folders):
            for name in (*self.found.scan.names(folder),) * 2:  # one may need another
                try:
                    self.loader.open(f"{folder}/{name}", self.ctypes, "tensorrt_libs")
                except Unloadable:
                    continue

    def open_later(self, engine: EngineFact | None) -> None:
        """What torch, the engine and the libraries themselves open by name at run time."""
        self._open_cudnn()
        self._open_nvrtc()
        path = self.environ.variables.get(NCCL_PATH)
        if path and engine is not None and engine.name == "vllm":
            self._open(path, self.ctypes, NCCL_PATH, NCCL_PATH)
        runtime = self._loaded("cudart")
        if runtime is not None:
            self._open("libcuda.so.1", runtime, "the driver")
        self._open("libnvidia-ml.so.1", self.ctypes, "the driver")

    def _open_cudnn(self) -> None:
        """libcudnn opens its parts by name: .so.9.19.0, then .so.9.19, then .so.9 (seen in 9.19)."""
        shim = self._loaded("cudnn")
        if shim is None:
            return
        version = self.copies[shim.real].version
        if version is None:
            self.gaps.append(f"{shim.path}: its version is not known")
            return
        digits = [str(part) for part in release(version)[:3]]
        parts = CUDNN_PARTS if int(digits[0]) >= 9 else OLD_CUDNN_PARTS
        endings = [".".join(digits[:length]) for length in (3, 2, 1) if length <= len(digits)]
        for part in parts:
            inner = part.startswith(("cudnn_heuristic", "cudnn_engines"))
            caller = (self._loaded("cudnn_graph") if inner else None) or shim
            names = [f"lib{part}.so.{ending}" for ending in endings]
            for name in names[:-1]:
                try:
                    self.loader.open(name, caller)
                    break
                except Unloadable:
                    continue
            else:
                self._open(names[-1], caller, "cuDNN")

    def _open_nvrtc(self) -> None:
        """torch opens NVRTC out of libtorch_cpu; NVRTC opens its builtins by name."""
        major = (self.torch.cuda or "").partition(".")[0]
        caller = self.loader.find("libtorch_cpu.so")
        if self._loaded("nvrtc") is None and caller is not None:
            self._open(f"libnvrtc.so.{'11.2' if major == '11' else major}", caller, "NVRTC")
        nvrtc = self._loaded("nvrtc")
        if nvrtc is None:
            return
        version = self.copies[nvrtc.real].version
        if version is None:
            self.gaps.append(f"{nvrtc.path}: its version is not known")
            return
        ending = ".".join(str(part) for part in release(version)[:2])
        self._open(f"libnvrtc-builtins.so.{ending}", nvrtc, "NVRTC")

    def _loaded(self, library: str) -> Mapped | None:
        for mapped in self.loader.objects:
            copy = self.copies.get(mapped.real)
            if copy is not None and copy.library == library:
                return mapped
        return None

    def _open(self, name: str, caller: Mapped, step: str, found_by: str | None = None) -> None:
        try:
            self.loader.open(name, caller, found_by)
        except Unloadable as error:
            self._fail(error, step)

    def _fail(self, error: Unloadable, step: str) -> None:
        self.failures.append(
            LoadFailure(
                library=library_of(posixpath.basename(error.name)) or error.name,
                name=error.name,
                needed_by=posixpath.normpath(error.by),
                step=step,
                tried=error.tried,
                damaged=error.damaged,
            )
        )

    def rows(self) -> Iterator[LoadedLibrary]:
        """NVIDIA's libraries among what was loaded, in order."""
        for mapped in self.loader.objects:
            copy = self.copies.get(mapped.real)
            if copy is not None:
                yield LoadedLibrary(
                    copy=copy,
                    name=posixpath.basename(mapped.name),
                    path=posixpath.normpath(mapped.path),
                    found_by=mapped.found_by,
                    needed_by=posixpath.normpath(mapped.asker.path) if mapped.asker else "",
                )
