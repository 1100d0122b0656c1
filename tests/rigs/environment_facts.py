"""Facts of a Python environment with an engine, for the tests of checks."""

from __future__ import annotations

from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Distribution, Distributions, Interpreter
from infer_doctor.facts.machine import Environ, Identity

SITE = "/srv/engine/lib/python3.12/site-packages"

PYTHON = Interpreter(
    executable="/srv/engine/bin/python",
    version="3.12",
    full_version="3.12.3",
    prefix="/srv/engine",
    base_prefix="/usr",
    kind="venv",
    found_by="--python",
    folders=(SITE,),
    site=SITE,
    include="/usr/include/python3.12",
    managed=False,
)

HERE = Identity(
    hostname="node",
    kernel="6.8.0-85-generic",
    machine="x86_64",
    uid=0,
    container=None,
    initial_pid_namespace=True,
    devices=(),
)


def dist(
    name: str, version: str, *requires: str, folder: str = SITE, python: str | None = ">=3.10"
) -> Distribution:
    return Distribution(
        name=name,
        written_name=name,
        version=version,
        requires=requires,
        requires_python=python,
        installer="pip",
        project=None,
        record=True,
        metadata=f"{folder}/{name}-{version}.dist-info",
    )


def installed(*rows: Distribution) -> Distributions:
    """The first of a name counts, the others are shadowed, as on the path."""
    by_name: dict[str, Distribution] = {}
    later = [row for row in rows if by_name.setdefault(row.name, row) is not row]
    return Distributions(by_name=by_name, shadowed=tuple(later), shared=(), source=SITE)


def engine(*own: Distribution, name: str = "vllm", build: str | None = "cuda") -> EngineFact:
    return EngineFact(
        name=name,
        version=own[0].version if own else None,
        distribution=own[0].name if own else None,
        package=f"{SITE}/{name.replace('-', '_')}",
        build=build,
        distributions=own,
    )


def environ(**variables: str) -> Environ:
    return Environ(variables=variables)
