"""The distribution: what is in the wheel and the source archive, and that they work elsewhere."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import infer_doctor
from infer_doctor._version import VERSION

if sys.version_info >= (3, 11):
    import tomllib

ROOT = Path(__file__).parent.parent
FOLDERS = {"doctor": "infer_doctor", "checks": "infer_doctor/checks", "fixes": "infer_doctor/fixes"}


def sources() -> dict[str, Path]:
    """Path in the wheel -> file of the tree, for all that belongs to the package."""
    kinds = (".py", ".ini", ".json", ".typed")
    return {
        f"{target}/{path.relative_to(ROOT / folder)}": path
        for folder, target in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in kinds or path.name == "py.typed"
    }


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs tomllib")
def test_packages_are_the_folders() -> None:
    """A package that is not listed is missing from the wheel."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = settings["tool"]["setuptools"]["packages"]
    found = {str(Path(name).parent).replace("/", ".") for name in sources() if name.endswith(".py")}
    assert sorted(listed) == sorted(found)
    for name in found:
        assert f"{name.replace('.', '/')}/__init__.py" in sources(), name


LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "tests")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source archive and the wheel, which is built from that."""
    tree = tmp_path_factory.mktemp("tree")  # building leaves files beside the sources
    shutil.copytree(ROOT, tree, ignore=LEFT_OUT, dirs_exist_ok=True)
    words = [sys.executable, "-m", "build", "--outdir", str(tree / "dist"), str(tree)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return tree / "dist"


def wheel_of(folder: Path) -> Path:
    (wheel,) = folder.glob("infer_doctor-*.whl")
    return wheel


def test_wheel_holds_the_sources_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(wheel_of(built)) as wheel:
        held = {name: wheel.read(name) for name in wheel.namelist() if ".dist-info/" not in name}
    assert held.keys() == sources().keys()
    assert held == {name: path.read_bytes() for name, path in sources().items()}


def test_wheel_works_from_another_folder(built: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel_of(built)) as wheel:
        wheel.extractall(tmp_path / "site")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "checks.py").write_text("raise SystemExit('this is not ours')\n")

    def python(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    place = python("-c", "import infer_doctor; print(infer_doctor.__file__)")
    assert place.startswith(str(tmp_path / "site"))
    assert python("-m", "infer_doctor", "--version") == f"infer-doctor {VERSION}\n"
    assert python("-m", "infer_doctor", "list").count("\n") > 5
    assert '"verdict": "pass"' in python("-m", "infer_doctor", "check", "--format", "json")


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_is_no_import_name(folder: str) -> None:
    """From the root of the tree `import checks` would find the folder, under the wrong name."""
    words = [sys.executable, "-c", f"import {folder}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    name = FOLDERS[folder].replace("/", ".")
    assert f"ImportError: this folder is installed as `{name}`: run `pip install" in done.stderr


def test_distribution_has_no_top_level_names_but_its_own(built: Path) -> None:
    with zipfile.ZipFile(wheel_of(built)) as wheel:
        tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert tops == {"infer_doctor", f"infer_doctor-{VERSION}.dist-info"}


def test_version_of_the_metadata() -> None:
    from importlib.metadata import version

    assert version("infer-doctor") == infer_doctor.__version__ == VERSION
