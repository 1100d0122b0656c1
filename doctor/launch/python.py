"""Python source -> what it starts and what it asks: read with `ast`, never run.

`read(text, file)` is all that others need.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from infer_doctor.facts.client_code import ClientCode
from infer_doctor.frozen import frozen
from infer_doctor.launch.command import Around, with_installs
from infer_doctor.launch.command import launches as started_by
from infer_doctor.launch.document import Broken
from infer_doctor.launch.model import Keyword, Launch, Place, Unknown, Variable, Word
from infer_doctor.launch.python_code import client_code
from infer_doctor.launch.python_tree import BadSource
from infer_doctor.launch.python_values import Source
from infer_doctor.launch.python_words import at, is_list, words_of

__all__ = ["Broken", "PythonFile", "read"]

ENTRIES = {
    "vllm.LLM": ("vllm", "LLM"),
    "vllm.entrypoints.llm.LLM": ("vllm", "LLM"),
    "vllm.EngineArgs": ("vllm", "EngineArgs"),
    "vllm.engine.arg_utils.EngineArgs": ("vllm", "EngineArgs"),
    "vllm.AsyncEngineArgs": ("vllm", "AsyncEngineArgs"),
    "vllm.engine.arg_utils.AsyncEngineArgs": ("vllm", "AsyncEngineArgs"),
    "tensorrt_llm.LLM": ("tensorrt-llm", "LLM"),
    "tensorrt_llm.llmapi.LLM": ("tensorrt-llm", "LLM"),
    "tensorrt_llm.hlapi.LLM": ("tensorrt-llm", "LLM"),
    "tensorrt_llm._torch.LLM": ("tensorrt-llm", "LLM"),
    "tensorrt_llm._torch.auto_deploy.LLM": ("tensorrt-llm", "LLM"),
    "tensorrt_llm._tensorrt_engine.LLM": ("tensorrt-llm", "LLM"),
    "tensorrt_llm.TRTLLMEngine": ("tensorrt-llm", "LLM"),  # advice that circulates: never existed
}
"""What is called -> engine and entry (vLLM 0.6 to 0.33, TensorRT-LLM 0.12 to 1.2)."""

LANGCHAIN = frozenset(
    f"{module}.VLLM"
    for package in ("langchain", "langchain_community")
    for module in (f"{package}.llms", f"{package}.llms.vllm")
)
"""LangChain's class: these of its arguments and vllm_kwargs go to LLM (langchain_community/llms/vllm.py)."""

LANGCHAIN_GIVES = ("model", "tensor_parallel_size", "trust_remote_code", "dtype", "download_dir")
RAY_SERVE = ("ray.serve.llm.LLMConfig", "ray.serve.llm.configs.LLMConfig")

POSITIONAL = {
    "vllm": ("model",),
    "tensorrt-llm": ("model", "tokenizer"),
}
"""Names of the positional parameters of LLM; vLLM's others are keyword-only since 0.10."""

COMMANDS = {
    "subprocess.run",
    "subprocess.Popen",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
    "os.system",
    "os.popen",
    "asyncio.create_subprocess_exec",
    "asyncio.create_subprocess_shell",
    "os.execvp",
    "os.execv",
    "os.execlp",
}

ENVIRON = ("os.environ", "environ")


@frozen
class PythonFile:
    """What one file holds: the launches in the order of the text, and the code around them."""

    launches: tuple[Launch, ...]
    code: ClientCode


def read(text: str, file: str) -> PythonFile:
    """Read a Python file or, by its name, a notebook; raises Broken: FILE:LINE: what is wrong.

    Each `LLM(...)`, `EngineArgs(...)`, `AsyncEngineArgs(...)` and each command that starts an
    engine is a Launch of kind "python" for this machine. `code` is the fact of the client checks;
    `code.calls` and the like are empty when the file has nothing of that sort.
    """
    try:
        source = _source(text, file)
    except BadSource as error:
        where = file if error.line is None else f"{file}:{error.line}"
        raise Broken(f"{where}: {error}") from None
    try:
        return _read(source, file)
    except RecursionError:  # x = y and y = x, or a list that holds itself
        raise Broken(f"{file}: is defined by itself, or nested too deeply to be read") from None


def _read(source: Source, file: str) -> PythonFile:
    environment = tuple(_environment(source))
    launches: list[Launch] = []
    for node in source.nodes:
        if isinstance(node, ast.Call):
            engine = _engine(source, node, file, environment)
            engine = engine or _framework(source, node, file, environment)
            launches += [engine] if engine else _command(source, node, file, environment)
    return PythonFile(launches=tuple(launches), code=client_code(source, file))


def _source(text: str, file: str) -> Source:
    if file.endswith(".ipynb"):
        return Source(*_notebook(text, file))
    return Source(text.removeprefix("\ufeff"), lambda line: Place(file=file, line=line))


def _engine(
    source: Source, node: ast.Call, file: str, environment: tuple[Variable, ...]
) -> Launch | None:
    """LLM(...) and the like as a Launch."""
    origin = _origin(source, node.func)
    found = ENTRIES.get(origin or "")
    if found is None:
        return None
    engine, entry = found
    gaps: list[str] = []
    keywords = list(_arguments(source, node, POSITIONAL[engine], gaps))
    place = source.place(node)
    return Launch(
        name=f"{file}:{place.line}: {entry}",
        kind="python",
        machine="local",
        engine="vllm" if engine == "vllm" else "tensorrt-llm",
        entry=entry,
        origin=origin,
        at_import=_at_import(source, node),
        place=place,
        keywords=tuple(keywords),
        environment=environment,
        gaps=tuple(gaps),
    )


def _framework(
    source: Source, node: ast.Call, file: str, environment: tuple[Variable, ...]
) -> Launch | None:
    """LangChain's VLLM(...) and Ray Serve's LLMConfig(...): what they hand to vLLM."""
    origin = source.resolved(node.func) or ""
    gaps: list[str] = []
    given = {word.arg: word.value for word in node.keywords if word.arg is not None}
    if origin in LANGCHAIN:
        rows = list(_arguments(source, node, (), gaps))
        keywords = [row for row in rows if row.name in LANGCHAIN_GIVES]
        if "vllm_kwargs" in given:
            keywords += _unpacked(source, _as_dict(source, given["vllm_kwargs"]), gaps)
    elif (
        origin in RAY_SERVE
        and not {"llm_engine", "server_cls"} & set(given)
        and not _sglang(source)
    ):
        from infer_doctor.launch.ray_serve import keywords_of

        held = [
            list(_unpacked(source, _as_dict(source, given[name]), gaps)) if name in given else []
            for name in ("model_loading_config", "engine_kwargs")
        ]
        keywords = keywords_of(*held)
    else:
        return None
    place = source.place(node)
    ray = origin in RAY_SERVE
    return Launch(
        name=f"{file}:{place.line}: {origin.rpartition('.')[2]}",
        kind="python",
        machine="another" if ray else "local",
        engine="vllm",
        entry="AsyncEngineArgs" if ray else "LLM",
        origin=origin,
        at_import=not ray and _at_import(source, node),
        place=place,
        keywords=tuple(keywords),
        environment=environment,
        gaps=tuple(gaps),
    )


def _sglang(source: Source) -> bool:
    """Whether the file takes anything from SGLang, which Ray Serve starts as well."""
    names = (
        getattr(node, "module", None) or alias.name
        for node in source.nodes
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    )
    return any("sglang" in name for name in names)


def _as_dict(source: Source, node: ast.expr) -> ast.expr:
    """`dict(a=1)` as the literal {"a": 1}."""
    if not (isinstance(node, ast.Call) and source.resolved(node.func) == "dict") or node.args:
        return node
    keys: list[ast.expr | None] = []
    for word in node.keywords:
        key = None if word.arg is None else ast.Constant(word.arg)
        keys.append(key if key is None else ast.copy_location(key, word.value))
    made = ast.Dict(keys=keys, values=[word.value for word in node.keywords])
    return ast.copy_location(made, node)


def _at_import(source: Source, node: ast.AST) -> bool:
    """Whether a call runs when the file is imported: in no function and behind no main guard."""
    return not any(
        isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        or (isinstance(parent, ast.If) and "__main__" in ast.dump(parent.test))
        for parent, _ in source.up(node)
    )


def _origin(source: Source, node: ast.AST) -> str | None:
    """The dotted name; a star import of an engine's package gives its names too."""
    name = source.resolved(node)
    if name is not None and "." not in name and not source.imported(name):
        for module in ("vllm", "tensorrt_llm"):
            if module in source.starred and f"{module}.{name}" in ENTRIES:
                return f"{module}.{name}"
    return name


def _arguments(
    source: Source, node: ast.Call, names: tuple[str, ...], gaps: list[str]
) -> Iterator[Keyword]:
    for index, argument in enumerate(node.args):
        if isinstance(argument, ast.Starred) or index >= len(names):
            gaps.append(f"{at(source, argument)}: a positional argument could not be read")
            return
        yield Keyword(name=names[index], value=source.fold(argument), place=source.place(argument))
    for word in node.keywords:
        if word.arg is not None:
            yield Keyword(
                name=word.arg, value=source.fold(word.value), place=source.place(word.value)
            )
            continue
        yield from _unpacked(source, word.value, gaps)


def _unpacked(source: Source, node: ast.expr, gaps: list[str]) -> Iterator[Keyword]:
    """The keywords of `**expression`, as far as it is a dict that the file tells."""
    folded = source.fold(node)
    literal = _literal_dict(source, node)
    if not isinstance(folded, dict) or not all(isinstance(key, str) for key in folded):
        gaps.append(f"{at(source, node)}: **{source.unknown(node).text} could not be read")
        return
    for name, value in folded.items():
        yield Keyword(name=name, value=value, place=literal.get(name, source.place(node)))


def _literal_dict(source: Source, node: ast.expr) -> dict[str, Place]:
    """Where the keys of a dict stand, when a name leads to its literal."""
    if isinstance(node, ast.Name) and (found := source.lookup(node, node.id)):
        values = found[1]
        node = values[0] if len(values) == 1 and values[0] is not None else node
    if not isinstance(node, ast.Dict):
        return {}
    keys = (key for key in node.keys if isinstance(key, ast.Constant))
    return {str(key.value): source.place(key) for key in keys}


def _command(
    source: Source, node: ast.Call, file: str, environment: tuple[Variable, ...]
) -> list[Launch]:
    """The engines that a command starts in other processes."""
    name = source.resolved(node.func)
    if name not in COMMANDS or not node.args:
        return []
    gaps: list[str] = []
    first = 1 if name in ("os.execvp", "os.execv", "os.execlp") else 0
    spread = name in ("asyncio.create_subprocess_exec", "os.execlp")
    parts = node.args[first:] if spread else node.args[first : first + 1]
    words = [word for part in parts for word in words_of(source, part, gaps, alone=spread)]
    if not words:
        return []
    shell = next((word.value for word in node.keywords if word.arg == "shell"), None)
    if source.fold(shell) is True and is_list(source, node.args[0]):  # the shell runs the first
        words = [Word(text=text, place=words[0].place) for text in ("sh", "-c")] + words
    own = next((word.value for word in node.keywords if word.arg == "env"), None)
    more = () if own is None else tuple(_env_argument(source, own))
    where = f"{file}:{source.place(node).line}"
    around = Around(name=where, kind="python", machine="local", gaps=tuple(gaps))
    found = [row for row in started_by(words, around, (*environment, *more)) if row.engine]
    installs = list(_installs(source))
    return [
        replace(with_installs(row, installs), name=f"{where}: {row.entry or row.engine}")
        for row in found
    ]


def _installs(source: Source) -> Iterator[Word]:
    """Requirements of an image that the file describes: Modal's `Image.pip_install("vllm==0.19.0")`."""
    for node in source.nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr not in ("pip_install", "uv_pip_install"):
            continue
        for argument in node.args:
            value = source.fold(argument)
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str):
                    yield Word(text=text, place=source.place(argument))


def _environment(source: Source) -> Iterator[Variable]:
    """What the file sets in os.environ, in the order of the text."""
    for node in source.nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and source.resolved(target.value) in ENVIRON:
                    yield from _variable(source, node, target.slice, node.value)
        elif isinstance(node, ast.Call):
            name = source.resolved(node.func) or ""
            owner, _, method = name.rpartition(".")
            if name == "os.putenv" or (owner in ENVIRON and method == "setdefault"):
                if len(node.args) == 2:
                    yield from _variable(source, node, node.args[0], node.args[1])
            elif owner in ENVIRON and method == "update" and node.args:
                yield from _env_argument(source, node.args[0])


def _variable(source: Source, node: ast.AST, key: ast.expr, value: ast.expr) -> Iterator[Variable]:
    name, folded = source.fold(key), source.fold(value)
    if not isinstance(name, str):
        return
    unsure = source.conditional(node)
    known = isinstance(folded, str) and not unsure
    text = folded.text if isinstance(folded, Unknown) else "set only under a condition"
    yield Variable(
        name=name,
        value=folded if known else None,
        place=source.place(node),
        source=None if known else text,
    )


def _env_argument(source: Source, node: ast.expr) -> Iterator[Variable]:
    """The variables of a dict such as `env={**os.environ, "A": "1"}`."""
    if isinstance(node, ast.Name) and (found := source.lookup(node, node.id)):
        values = found[1]
        node = values[0] if len(values) == 1 and values[0] is not None else node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _env_argument(source, node.right)
    if isinstance(node, ast.Call) and source.resolved(node.func) == "dict":
        for word in node.keywords:
            if word.arg is not None:
                yield from _variable(source, word.value, ast.Constant(word.arg), word.value)
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None:
                yield from _variable(source, value, key, value)


def _notebook(text: str, file: str) -> tuple[str, Callable[[int], Place]]:
    """The code cells as one text; a place names the cell. Lines of IPython itself stay empty."""
    try:
        book: Any = json.loads(text)
        cells = book["cells"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise BadSource("is no notebook: no list of cells") from None
    lines: list[str] = []
    places: list[Place] = []
    for number, cell in enumerate(cells if isinstance(cells, list) else (), 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        whole = cell.get("source", "")
        whole = "".join(map(str, whole)) if isinstance(whole, list) else str(whole)
        foreign = whole.lstrip().startswith("%%")
        for line, content in enumerate(whole.split("\n"), 1):
            own = foreign or content.lstrip().startswith(("%", "!", "?"))
            indent = content[: len(content) - len(content.lstrip())]
            lines.append(f"{indent}pass" if own else content)
            places.append(Place(file=f"{file} cell {number}", line=line))
    last = Place(file=file, line=None)
    return "\n".join(lines), lambda line: places[line - 1] if line <= len(places) else last
