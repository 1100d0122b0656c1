"""Finding and reading interpreters: real ones, compared with what they say of themselves; fakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infer_doctor.facts.environment import Interpreter, Question, distributions
from infer_doctor.facts.interpreter import read
from infer_doctor.facts.locate import Located, NotAnInterpreter, locate
from infer_doctor.host import Host, Unavailable
from infer_doctor.launch.command import read as launch_of
from infer_doctor.live import LiveHost

CAPTURES = Path(__file__).parents[1] / "captures" / "environment"

WITNESS = """
import importlib.metadata, json, platform, re, sys, sysconfig
def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()
print(json.dumps({
    "folders": [path for path in sys.path if path.endswith("-packages")],
    "full_version": platform.python_version(),
    "prefix": sys.prefix,
    "base_prefix": sys.base_prefix,
    "include": sysconfig.get_paths(scheme="posix_prefix")["include"],
    "names": sorted({normal(d.metadata["Name"]) for d in importlib.metadata.distributions()}),
}))
"""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("PYTHON", "PYENV", "VIRTUAL_ENV")):
            monkeypatch.delenv(name)


@pytest.fixture
def fresh() -> Iterator[Callable[[], LiveHost]]:
    """Makes hosts that know nothing yet."""
    made: list[LiveHost] = []

    def make() -> LiveHost:
        made.append(LiveHost())
        return made[-1]

    yield make
    for host in made:
        host.close()


@pytest.fixture
def host(fresh: Callable[[], LiveHost]) -> LiveHost:
    return fresh()


def examined(host: Host, python: str) -> Interpreter:
    return read(host, locate(host, Question(python=python)))


def system_pythons() -> list[str]:
    found = [os.path.realpath(sys.executable)]
    return [*found, "/usr/bin/python3"] if os.path.exists("/usr/bin/python3") else found


def check_against_itself(host: Host, python: str) -> None:
    """Everything that was read is what the interpreter says when it runs."""
    found = examined(host, python)
    text = subprocess.check_output([python, "-c", WITNESS], cwd="/", text=True)
    said = json.loads(text)
    assert list(found.folders) == said["folders"]
    assert found.prefix == said["prefix"]
    assert found.base_prefix == said["base_prefix"]
    assert found.include == said["include"]
    assert found.full_version in (said["full_version"], None)
    assert sorted(distributions(host, found).by_name) == said["names"]


@pytest.mark.parametrize("python", system_pythons())
def test_interpreters_of_this_machine(host: LiveHost, python: str) -> None:
    check_against_itself(host, python)


@pytest.mark.parametrize("system", [False, True])
def test_virtual_environment(
    host: LiveHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: bool
) -> None:
    user = tmp_path / "home/.local/lib" / f"python{sysconfig.get_python_version()}/site-packages"
    distribution(user, "from-home", "1")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    venv.create(tmp_path / "v", with_pip=False, system_site_packages=system)
    python = str(tmp_path / "v/bin/python")
    check_against_itself(host, python)
    found = examined(host, python)
    assert found.kind == "venv"
    assert (str(user) in found.folders) is system


def test_what_python_path_adds_goes_first(
    host: LiveHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:/nonexistent")
    venv.create(tmp_path / "v", with_pip=False)
    assert examined(host, str(tmp_path / "v/bin/python")).folders[0] == str(tmp_path)


def test_folders_of_path_files(host: LiveHost, tmp_path: Path) -> None:
    venv.create(tmp_path / "v", with_pip=False)
    site = next((tmp_path / "v/lib").iterdir()) / "site-packages"
    (tmp_path / "project").mkdir()
    marker = tmp_path / "executed"
    lines = f"import pathlib; pathlib.Path({str(marker)!r}).touch()\n{tmp_path}/project\n/gone\n"
    (site / "editable.pth").write_text(lines)
    found = examined(host, str(tmp_path / "v/bin/python"))
    assert found.folders == (str(site), f"{tmp_path}/project")
    assert not marker.exists()


def fake_python(path: Path) -> Path:
    """A file that is a CPython as far as its bytes say it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x7fELF\x02\x01" + b"\0" * 64 + b"Py_BytesMain\0")
    path.chmod(0o755)
    return path


def test_conda_tree(host: LiveHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    python = fake_python(tmp_path / "envs/llm/bin/python3.12")
    site = tmp_path / "envs/llm/lib/python3.12/site-packages"
    site.mkdir(parents=True)
    (tmp_path / "envs/llm/lib/python3.12/os.py").touch()
    (tmp_path / "envs/llm/conda-meta").mkdir()
    (tmp_path / "envs/llm/conda-meta/python-3.12.4-h1234_0_cpython.json").touch()
    (python.parent / "python").symlink_to("python3.12")
    found = examined(host, str(python.parent / "python"))
    assert (found.kind, found.version, found.full_version) == ("conda", "3.12", "3.12.4")
    assert found.folders == (str(site),)


def test_version_comes_from_the_only_library(fresh: Callable[[], LiveHost], tmp_path: Path) -> None:
    python = fake_python(tmp_path / "p/bin/python")
    (tmp_path / "p/lib/python3.13t/site-packages").mkdir(parents=True)
    assert examined(fresh(), str(python)).version == "3.13"
    (tmp_path / "p/lib/python3.12").mkdir()
    with pytest.raises(Unavailable, match=r"python3\.12, python3\.13t"):
        examined(fresh(), str(python))


def refusals(tmp_path: Path) -> dict[str, tuple[str, str]]:
    (tmp_path / "text").write_text("not a program")
    (tmp_path / "empty").touch()
    (tmp_path / "python3").write_bytes(b"\x7fELF nothing of Python")
    (tmp_path / "dangling").symlink_to("/nonexistent/python3")
    (tmp_path / "script").write_text("#!/srv/e/bin/python3\nimport vllm\n")
    (tmp_path / "v/bin").mkdir(parents=True)
    fake_python(tmp_path / "v/bin/python")
    fake_python(tmp_path / "locked").chmod(0o644)
    return {
        "text": (f"{tmp_path}/text", "is not a Python interpreter"),
        "empty": (f"{tmp_path}/empty", "is not a Python interpreter"),
        "another program": (f"{tmp_path}/python3", "is not a Python interpreter"),
        "ls": ("/bin/ls", "is not a Python interpreter"),
        "missing": (f"{tmp_path}/no", "no such file"),
        "dangling link": (f"{tmp_path}/dangling", "is a link that leads nowhere"),
        "folder": (f"{tmp_path}/v", f"is a folder.*give its interpreter, {tmp_path}/v/bin/python"),
        "script": (f"{tmp_path}/script", r"is a script.*it starts /srv/e/bin/python3"),
        "device": ("/dev/null", "is no regular file"),
        "not on PATH": ("no-such-python", "there is no such program on PATH"),
        "not executable": (f"{tmp_path}/locked", "may not be executed"),
    }


@pytest.mark.parametrize(
    "case",
    [
        "text",
        "empty",
        "another program",
        "ls",
        "missing",
        "dangling link",
        "folder",
        "script",
        "device",
        "not on PATH",
        "not executable",
    ],
)
def test_what_is_no_interpreter(host: LiveHost, tmp_path: Path, case: str) -> None:
    python, reason = refusals(tmp_path)[case]
    with pytest.raises(NotAnInterpreter, match=reason):
        locate(host, Question(python=python))


def script(path: Path, first: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{first}\nimport sys\n")
    path.chmod(0o755)


def test_behind_vllm_on_path(
    host: LiveHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = fake_python(tmp_path / "v/bin/python3")
    script(tmp_path / "v/bin/vllm", str(python))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/vllm").symlink_to(tmp_path / "v/bin/vllm")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin")
    assert locate(host, Question(python=None)) == Located(str(python), "vllm on PATH")


def test_behind_env_on_path(
    host: LiveHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = fake_python(tmp_path / "bin/python3")
    script(tmp_path / "bin/trtllm-serve", "/usr/bin/env python3")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    assert locate(host, Question(python=None)) == Located(str(python), "trtllm-serve on PATH")


def test_the_engine_of_the_command_goes_first(
    host: LiveHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    for name in ("vllm", "trtllm-serve"):
        script(tmp_path / "bin" / name, str(fake_python(tmp_path / name / "python3")))
    ask = Question(python=None)
    path = f"{tmp_path}/bin/vllm"
    assert locate(host, ask).found_by == "vllm on PATH"
    assert locate(host, ask, launch_of(["trtllm-serve", "m"])).found_by == "trtllm-serve on PATH"
    assert locate(host, ask, launch_of(["env", "A=b", path, "serve"])) == Located(
        f"{tmp_path}/vllm/python3", "the command"
    )
    command = [f"{tmp_path}/vllm/python3", "-m", "vllm.entrypoints.openai.api_server"]
    assert locate(host, ask, launch_of(command)) == Located(command[0], "the command")


def test_a_script_without_its_interpreter_is_not_skipped(
    host: LiveHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "bin/vllm", "/srv/moved/bin/python3")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    with pytest.raises(Unavailable, match="names /srv/moved/bin/python3, which does not exist"):
        locate(host, Question(python=None))


def test_else_the_one_that_runs_the_doctor(
    host: LiveHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = locate(host, Question(python=None))
    assert found == Located(sys.executable, "the doctor's own")
    replay = Host(list(host.captures.values()))
    assert locate(replay, Question(python=None)) == found


def pyenv(tmp_path: Path) -> Path:
    root = tmp_path / "pyenv"
    text = (CAPTURES / "pyenv-shim.txt").read_text().replace("/opt/pyenv", str(root))
    for name in ("python3", "vllm"):
        (root / "shims").mkdir(parents=True, exist_ok=True)
        (root / "shims" / name).write_text(text)
        (root / "shims" / name).chmod(0o755)
    for version in ("3.11.9", "3.11.10", "3.12.1"):
        python = fake_python(root / "versions" / version / "bin/python3")
        if version != "3.12.1":
            script(python.parent / "vllm", str(python))
    return root


@pytest.mark.parametrize(
    ("variable", "local", "everywhere", "wanted"),
    [
        ("3.12.1", "3.11.9", "3.11.10", "3.12.1"),
        (None, "3.11.9", "3.12.1", "3.11.9"),
        (None, None, "3.11", "3.11.10"),
        ("3.9:3.11.9", None, None, "3.11.9"),
    ],
)
def test_shims_of_pyenv(
    host: LiveHost,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str | None,
    local: str | None,
    everywhere: str | None,
    wanted: str,
) -> None:
    root = pyenv(tmp_path)
    (tmp_path / "here/below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here/below")
    if variable:
        monkeypatch.setenv("PYENV_VERSION", variable)
    if local:
        (tmp_path / "here/.python-version").write_text(f"{local}\n")
    if everywhere:
        (root / "version").write_text(f"{everywhere}\n")
    found = locate(host, Question(python=f"{root}/shims/python3"))
    assert found.executable == f"{root}/versions/{wanted}/bin/python3"


def test_a_shim_of_vllm(
    fresh: Callable[[], LiveHost], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = pyenv(tmp_path)
    monkeypatch.setenv("PATH", f"{root}/shims")
    monkeypatch.setenv("PYENV_VERSION", "3.11.10")
    found = locate(fresh(), Question(python=None))
    assert found == Located(f"{root}/versions/3.11.10/bin/python3", "vllm on PATH")
    monkeypatch.setenv("PYENV_VERSION", "3.12.1")
    with pytest.raises(Unavailable, match=r"pyenv's version 3\.12\.1 has no vllm"):
        locate(fresh(), Question(python=None))


def distribution(site: Path, name: str, version: str) -> None:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
