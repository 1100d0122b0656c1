"""Checks and probes: how they are declared, found and checked for mistakes.

A check is a pure function of facts; its parameters are its needs. A probe makes one fact out of a
`Host` or of other facts; its return annotation is what it provides.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from infer_doctor.model import Category, Finding, Severity

PLUGIN_GROUP = "infer_doctor.checks"
"""The group of entry points whose modules add checks and probes."""

ID = re.compile(r"[a-z]+(-[a-z]+)+")
"""`<area>-<problem>`: lower case, hyphens, no numbers."""

HEADINGS = ("Why it matters", "How it decides", "Fix safety")
"""What the docstring of every check explains; `infer-doctor explain ID` prints it."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True)
class Need:
    """One parameter of a check or probe: the type of the fact, and whether it may be missing."""

    name: str
    fact: type
    optional: bool


@dataclass(frozen=True)
class Check:
    """A check as its decorator declared it."""

    id: str
    severity: Severity
    category: Category
    since: str
    function: Callable[..., Iterator[Finding]]
    needs: tuple[Need, ...]

    @property
    def title(self) -> str:
        """The first line of the docstring."""
        return inspect.cleandoc(self.function.__doc__ or "").partition("\n")[0]


@dataclass(frozen=True)
class Probe:
    """A function that makes the fact `provides`."""

    provides: type
    function: Callable[..., Any]
    needs: tuple[Need, ...]
    deep: bool
    slow: bool


def check(id: str, *, severity: Severity, category: Category, since: str) -> Callable[[F], F]:
    """Declare a check; raises ValueError for a bad id or a docstring without its headings."""
    if not ID.fullmatch(id):
        raise ValueError(f"check id {id!r}: use <area>-<problem>, lower case, without numbers")

    def declare(function: F) -> F:
        doc = function.__doc__ or ""
        for heading in HEADINGS:
            if f"## {heading}" not in doc:
                raise ValueError(f"check {id}: its docstring has no heading '## {heading}'")
        function.infer_doctor_check = Check(  # type: ignore[attr-defined]
            id=id,
            severity=severity,
            category=category,
            since=since,
            function=function,
            needs=_needs(function),
        )
        return function

    return declare


@typing.overload
def probe(function: F) -> F: ...


@typing.overload
def probe(*, deep: bool = False, slow: bool = False) -> Callable[[F], F]: ...


def probe(
    function: F | None = None, *, deep: bool = False, slow: bool = False
) -> F | Callable[[F], F]:
    """Declare a probe. `deep` ones touch the GPU or run foreign code: only under `--deep`.

    What needs a `slow` one is decided last, so that its answer can come meanwhile.
    """

    def declare(function: F) -> F:
        function.infer_doctor_probe = Probe(  # type: ignore[attr-defined]
            provides=_hint(function, "return"),
            function=function,
            needs=_needs(function),
            deep=deep,
            slow=slow,
        )
        return function

    return declare if function is None else declare(function)


def given(reason: str) -> Callable[[type[T]], type[T]]:
    """Declare a fact that no probe makes; `reason` is why there is nothing to judge without one."""

    def declare(fact: type[T]) -> type[T]:
        fact.infer_doctor_given = reason  # type: ignore[attr-defined]
        return fact

    return declare


def _hint(function: Callable[..., Any], name: str) -> Any:
    """One annotation, evaluated where it is written as text.

    typing.get_type_hints does more, takes ten times as long, and 150 functions are declared.
    """
    hint = function.__annotations__.get(name)
    return eval(hint, function.__globals__) if isinstance(hint, str) else hint  # noqa: S307


def _needs(function: Callable[..., Any]) -> tuple[Need, ...]:
    """The parameters as needs; `X | None` marks an optional one."""
    code = function.__code__
    needs = []
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        hint = _hint(function, name)
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            (fact,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
            needs.append(Need(name, fact, optional=True))
        elif isinstance(hint, type):
            needs.append(Need(name, hint, optional=False))
        else:
            raise TypeError(f"{function.__qualname__}: parameter {name!r} needs the type of a fact")
    return tuple(needs)


@dataclass
class Registry:
    """All checks and probes of one run."""

    checks: dict[str, Check] = field(default_factory=dict)
    probes: dict[type, Probe] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    """Plugins that could not be loaded: name of the entry point -> what went wrong."""

    def add_module(self, module: types.ModuleType) -> None:
        """Take the checks and probes that the module itself defines."""
        for value in list(vars(module).values()):
            if getattr(value, "__module__", None) != module.__name__:
                continue
            found = getattr(value, "infer_doctor_check", None)
            if isinstance(found, Check):
                if found.id in self.checks:
                    raise ValueError(f"two checks are called {found.id}")
                self.checks[found.id] = found
            made = getattr(value, "infer_doctor_probe", None)
            if isinstance(made, Probe):
                self.probes[made.provides] = made

    def add_package(self, name: str) -> None:
        """Take every module of a package."""
        package = importlib.import_module(name)
        for info in pkgutil.iter_modules(package.__path__):
            self.add_module(importlib.import_module(f"{name}.{info.name}"))

    def add_plugins(self) -> None:
        """Take the modules that other distributions offer; one that fails is remembered."""
        if not _plugins_offered(sys.path):
            return
        from importlib.metadata import entry_points

        for entry in entry_points(group=PLUGIN_GROUP):
            try:
                self.add_module(entry.load())
            except (Exception, SystemExit) as error:  # a plugin may raise whatever it likes
                self.broken[entry.name] = f"{type(error).__name__}: {error}"


def _plugins_offered(folders: Iterable[str]) -> bool:
    """Whether any distribution names the group: importlib.metadata takes 30 ms to say no."""
    section = f"[{PLUGIN_GROUP}]".encode()
    for folder in folders:
        try:
            names = os.listdir(folder or ".")
        except OSError:  # zip files and folders that are gone
            continue
        for name in names:
            if not name.endswith((".dist-info", ".egg-info")):
                continue
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                    if section in file.read():
                        return True
            except OSError:
                continue
    return False


def load() -> Registry:
    """The built-in checks and probes and those of plugins."""
    registry = Registry()
    registry.add_package("infer_doctor.facts")
    registry.add_package("infer_doctor.checks")
    registry.add_plugins()
    return registry
