"""How `import torch` loads CUDA's libraries: read from the installed torch/__init__.py, never executed.

torch first loads lib/libtorch_global_deps.so; what that needs comes by its RPATH. When it cannot be
loaded, a table of file patterns below nvidia/*/lib is loaded one by one instead, and since 2.6 some or
all of the table is loaded afterwards too (pytorch issues 138460 and 145580; read in 2.4, 2.11, 2.13).
"""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from infer_doctor.loading.loader import Scan

FUNCTIONS = ("_load_global_deps", "_preload_cuda_deps")
PATTERN = rf"(?ms)^def (?:{'|'.join(FUNCTIONS)})\(.*?(?=^[^\s)]|\Z)"
"""The text of these functions: the whole file has 110 kB and takes 50 ms to parse."""

TABLE = "cuda_libs"
GLOBAL_DEPS = "libtorch_global_deps.so"


class Preload(NamedTuple):
    """One entry of the table: folder below nvidia/, and the pattern of the file's name."""

    folder: str
    pattern: str
    required: bool = True


class TorchStart(NamedTuple):
    """What torch loads by hand, when its first library could be loaded and when it could not."""

    instead: tuple[Preload, ...]
    after: tuple[Preload, ...]
    if_loaded: tuple[str, ...] = ()
    """Parts of paths that must be loaded already for `after`."""
    if_cuda: tuple[str, ...] = ()
    """The only CUDA versions that torch does it for; empty for all."""


def parse(text: str) -> TorchStart | None:
    """None when the text has no such functions, or not in a form that is known."""
    functions = _functions(text)
    start = functions.get(FUNCTIONS[0])
    if start is None or GLOBAL_DEPS.partition(".")[0] not in text:
        return None
    table = tuple(_table(functions.values()))
    tries = [node for node in start.body if isinstance(node, ast.Try)]
    if not table or len(tries) != 1:
        return None
    whole = (*table, *_extra(functions))
    after = [entries for node in tries[0].body for entries in _calls(node, whole, list(functions))]
    loaded, cuda = _conditions(tries[0].body)
    return TorchStart(
        instead=whole,
        after=tuple(entry for entries in after for entry in entries),
        if_loaded=tuple(loaded),
        if_cuda=tuple(cuda),
    )


def _functions(text: str) -> dict[str, ast.FunctionDef]:
    """The functions by name; a text that is no Python is left out."""
    found: dict[str, ast.FunctionDef] = {}
    for match in re.finditer(PATTERN, text):
        try:
            (node,) = ast.parse(match[0]).body
        except (SyntaxError, ValueError, RecursionError):
            continue
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
    return found


def _table(functions: Iterable[ast.FunctionDef]) -> Iterator[Preload]:
    """The dict or list called cuda_libs."""
    for function in functions:
        for node in ast.walk(function):
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if not isinstance(target, ast.Name) or target.id != TABLE:
                continue
            try:
                value = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError):
                continue
            rows = value.items() if isinstance(value, dict) else value
            for folder, pattern in rows:
                yield Preload(folder=folder, pattern=pattern)


def _extra(functions: Mapping[str, ast.FunctionDef]) -> Iterator[Preload]:
    """Entries that the function of the table loads beside the table."""
    function = functions.get(FUNCTIONS[1])
    if function is not None and not function.args.args[1:]:
        for call in _in_order(function):
            yield from _entry(call)


def _calls(node: ast.AST, whole: tuple[Preload, ...], names: list[str]) -> Iterator[list[Preload]]:
    """What the statements after the first load: single entries, or the whole table."""
    for call in _in_order(node):
        single = list(_entry(call))
        if single:
            yield single
        elif isinstance(call.func, ast.Name) and call.func.id in names and not call.args:
            yield list(whole)


def _in_order(node: ast.AST) -> list[ast.Call]:
    """The calls inside, as they are written."""
    calls = [found for found in ast.walk(node) if isinstance(found, ast.Call)]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def _entry(call: ast.Call) -> Iterator[Preload]:
    """A call like _preload_cuda_deps("nvjitlink", "libnvJitLink.so.*[0-9]")."""
    words = [word.value for word in call.args if isinstance(word, ast.Constant)]
    if not isinstance(call.func, ast.Name) or not call.func.id.startswith("_preload_cuda"):
        return
    if len(words) == 2 and all(isinstance(word, str) for word in words):
        optional = any(
            key.arg == "required" and isinstance(key.value, ast.Constant) and not key.value.value
            for key in call.keywords
        )
        yield Preload(folder=str(words[0]), pattern=str(words[1]), required=not optional)


def _conditions(body: list[ast.stmt]) -> tuple[list[str], list[str]]:
    """What is compared with the loaded paths, and with the CUDA version.

    `if "x" not in _maps: return` and `if "x" in _maps: load` ask for the same.
    """
    loaded: list[str] = []
    cuda: list[str] = []
    for node in (found for statement in body for found in ast.walk(statement)):
        if not isinstance(node, ast.Compare):
            continue
        right = node.comparators[0]
        if isinstance(node.left, ast.Constant) and isinstance(right, ast.Name):
            loaded.append(str(node.left.value))
        elif isinstance(right, (ast.List, ast.Tuple)):
            cuda += [str(item.value) for item in right.elts if isinstance(item, ast.Constant)]
    return loaded, cuda


def path_of(entry: Preload, folders: tuple[str, ...], cuda: str, scan: Scan) -> str | None:
    """The file that torch's own search below sys.path finds for an entry."""
    major = cuda.partition(".")[0]
    for folder in folders:
        places = (f"nvidia/{entry.folder}", f"nvidia/cu{major}", entry.folder)
        for place in (f"{folder}/{name}/lib" for name in places):
            names = scan.names(place)
            for name in sorted(names):
                if fnmatch.fnmatchcase(name, entry.pattern):
                    return f"{place}/{name}"
    return None
