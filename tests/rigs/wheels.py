"""Small wheels and a virtual environment with them, for an installer that may not ask a network."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str | bytes] | None = None,
    requires: Sequence[str] = (),
) -> Path:
    """A pure wheel of this distribution; by default a package of its name."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    contents: dict[str, str | bytes] = dict(
        files or {f"{module}/__init__.py": f"__version__ = {version!r}\n"}
    )
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    contents[f"{info}/METADATA"] = "\n".join(
        [*lines, *(f"Requires-Dist: {r}" for r in requires), ""]
    )
    contents[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = []
    for path, text in contents.items():
        data = text if isinstance(text, bytes) else text.encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
        rows.append(f"{path},sha256={digest.decode()},{len(data)}")
    contents[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
    return made


def environment(folder: Path) -> Path:
    """A new virtual environment with pip, and nothing else."""
    venv.create(folder, with_pip=True, symlinks=True)
    return folder


def install(folder: Path, *made: Path) -> None:
    """Put wheels there as they are, whatever they require."""
    command = [f"{folder}/bin/python", "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    quiet = "--disable-pip-version-check"
    subprocess.run([*command, quiet, *map(str, made)], check=True)
