"""The checks of copies that hide installed packages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from environment_facts import HERE, PYTHON, SITE, dist, engine, environ, installed

from infer_doctor.checks.shadow import engine_shadowed, working_folder_shadows
from infer_doctor.facts.environment import Distribution
from infer_doctor.facts.shadow import HiddenPackage, HiddenPackages, LocalCopy, WorkingFolder
from infer_doctor.launch.command import read as launch_of
from infer_doctor.testing import contract, examine

HOME = "/home/u/.local/lib/python3.12/site-packages"
SYSTEM = replace(PYTHON, kind="system", folders=(HOME, SITE), user_site=HOME)
VLLM = dist("vllm", "0.26.0", "torch==2.11.0", "transformers>=5.5.3", "pydantic>=2.12.0")
TORCH = dist("torch", "2.11.0+cu130")
OLD_TORCH = dist("torch", "2.5.1", folder=HOME)
NONE = HiddenPackages(rows=())


def test_engine_shadowed() -> None:
    contract(
        engine_shadowed,
        fires=[engine(VLLM), NONE, installed(OLD_TORCH, VLLM, TORCH), SYSTEM, HERE],
        passes=[engine(VLLM), NONE, installed(VLLM, TORCH), SYSTEM, HERE],
    )


@pytest.mark.parametrize(
    ("first", "second", "severity"),
    [
        (OLD_TORCH, TORCH, "error"),
        (dist("torch", "2.11.0", folder=HOME), TORCH, None),
        (dist("transformers", "4.40.0", folder=HOME), dist("transformers", "5.6.0"), "warning"),
        (dist("transformers", "5.9.0", folder=HOME), dist("transformers", "5.6.0"), None),
        (dist("pydantic", "1.10", folder=HOME), dist("pydantic", "2.14"), "warning"),
        (dist("pydantic", "1.10", folder=HOME), dist("pydantic", "1.9"), None),
        (dist("vllm", "0.20.0", folder=HOME), VLLM, "warning"),
        (dist("vllm", "0.26.0", folder=HOME), VLLM, None),
        (dist("six", "1.10", folder=HOME), dist("six", "1.17"), None),
    ],
)
def test_versions(first: Distribution, second: Distribution, severity: str | None) -> None:
    rest = [row for row in (VLLM, TORCH) if row.name != second.name]
    found = examine(
        engine_shadowed, engine(VLLM), NONE, installed(first, second, *rest), SYSTEM, HERE
    )
    assert [row.severity for row in found.findings] == ([severity] if severity else [])


def test_the_fix_names_what_puts_it_first() -> None:
    rows = installed(OLD_TORCH, VLLM, TORCH)
    (finding,) = examine(engine_shadowed, engine(VLLM), NONE, rows, SYSTEM, HERE).findings
    assert finding.message == (
        f"torch 2.5.1 in {HOME} is imported, not 2.11.0+cu130 in {SITE}; the engine requires "
        "torch==2.11.0"
    )
    assert [fix.actions[0].text for fix in finding.fixes] == [
        "export PYTHONNOUSERSITE=1",
        "uv pip uninstall --python /srv/engine/bin/python torch",
    ]
    by_variable = replace(SYSTEM, python_path=(HOME, "/opt/x"), user_site=None)
    (finding,) = examine(engine_shadowed, engine(VLLM), NONE, rows, by_variable, HERE).findings
    assert finding.fixes[0].actions[0].text == "export PYTHONPATH=/opt/x"
    assert finding.fixes[0].safety == "safe"


def test_the_environment_itself_may_hide_the_system() -> None:
    """A virtual environment with system packages: its own are meant to go first."""
    base = "/usr/lib/python3/dist-packages"
    venv = replace(PYTHON, folders=(SITE, base))
    rows = installed(VLLM, dist("torch", "2.5.1"), dist("torch", "2.11.0", folder=base))
    assert examine(engine_shadowed, engine(VLLM), NONE, rows, venv, HERE).outcome == "passed"


CLONE = HiddenPackage(name="vllm", path="/src/vllm/vllm", installed=f"{SITE}/vllm", libraries=False)


@pytest.mark.parametrize(
    ("copy", "severity"),
    [
        (CLONE, "error"),
        (replace(CLONE, libraries=True), "warning"),
        (replace(CLONE, name="transformers", path="/src/t/transformers"), "warning"),
        (replace(CLONE, name="torch", path="/src/t/torch"), "error"),
    ],
)
def test_folders_without_metadata(copy: HiddenPackage, severity: str) -> None:
    path = copy.path.rpartition("/")[0]
    here = replace(PYTHON, folders=(path, SITE), python_path=(path,))
    facts = (engine(VLLM), HiddenPackages(rows=(copy,)), installed(VLLM, TORCH), here, HERE)
    (finding,) = examine(engine_shadowed, *facts).findings
    assert (finding.about, finding.severity) == (copy.name, severity)
    assert finding.fixes[0].actions[0].text == "unset PYTHONPATH"


TOKENIZERS = LocalCopy(name="tokenizers", path=f"{SITE}/vllm/tokenizers", libraries=False)
INSIDE = WorkingFolder(folder=f"{SITE}/vllm", copies=(TOKENIZERS,), by_variable=False)
IN_CLONE = WorkingFolder(
    folder="/src/vllm",
    copies=(LocalCopy(name="vllm", path="/src/vllm/vllm", libraries=False),),
    by_variable=False,
)
SERVE = launch_of(["vllm", "serve", "m"])
MODULE = launch_of(["python3", "-u", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"])


def test_working_folder_shadows() -> None:
    contract(
        working_folder_shadows,
        fires=[INSIDE, engine(VLLM), environ(), SERVE],
        passes=[replace(INSIDE, copies=()), engine(VLLM), environ(), SERVE],
    )


@pytest.mark.parametrize(
    ("working", "launch", "severity", "confidence"),
    [
        (INSIDE, None, "warning", "possible"),
        (INSIDE, SERVE, "error", "likely"),
        (INSIDE, MODULE, "error", "likely"),
        (IN_CLONE, None, "warning", "possible"),
        (IN_CLONE, SERVE, "warning", "possible"),
        (IN_CLONE, MODULE, "error", "likely"),
        (IN_CLONE, ["python3", "-P", "-m", "vllm"], "warning", "possible"),
        (IN_CLONE, ["python3", "/srv/serve.py", "vllm"], "warning", "possible"),
        (replace(IN_CLONE, by_variable=True), SERVE, "error", "likely"),
        (replace(IN_CLONE, by_variable=True), None, "error", "likely"),
    ],
)
def test_how_it_is_started(
    working: WorkingFolder, launch: object, severity: str, confidence: str
) -> None:
    given = launch_of(launch) if isinstance(launch, list) else launch
    facts = [working, engine(VLLM), environ(), *([given] if given else [])]
    (finding,) = examine(working_folder_shadows, *facts).findings
    assert (finding.severity, finding.confidence) == (severity, confidence)


def test_a_copy_with_libraries_may_work() -> None:
    copies = (LocalCopy(name="vllm", path="/src/vllm/vllm", libraries=True),)
    facts = (replace(IN_CLONE, copies=copies), engine(VLLM), environ(), MODULE)
    assert [row.severity for row in examine(working_folder_shadows, *facts).findings] == ["warning"]


def test_workers_of_tensorrt_llm_search_the_working_folder() -> None:
    copies = (LocalCopy(name="tensorrt_llm", path="/src/t/tensorrt_llm", libraries=False),)
    own = dist("tensorrt-llm", "1.2.1")
    facts = (
        WorkingFolder(folder="/src/t", copies=copies, by_variable=False),
        engine(own, name="tensorrt-llm"),
        environ(),
        launch_of(["trtllm-serve", "m"]),
    )
    assert [row.severity for row in examine(working_folder_shadows, *facts).findings] == ["error"]


def test_safe_path() -> None:
    safe = environ(PYTHONSAFEPATH="1")
    found = examine(working_folder_shadows, INSIDE, engine(VLLM), safe, SERVE)
    assert found.outcome == "not_applicable"
    by_variable = replace(INSIDE, by_variable=True)
    found = examine(working_folder_shadows, by_variable, engine(VLLM), safe, SERVE)
    assert found.outcome == "failed"
