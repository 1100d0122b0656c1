"""Which MPI mpi4py and mpirun are of, read off real files."""

from __future__ import annotations

from pathlib import Path

import pytest
from trtllm_files import facts

from infer_doctor.checks.trt_mpi import mpi_mixed, mpi_spawn
from infer_doctor.facts.environment import Interpreter
from infer_doctor.facts.trt_mpi import TrtMpi, trt_mpi
from infer_doctor.host import Absent
from infer_doctor.live import LiveHost
from infer_doctor.testing import contract, examine


def interpreter(site: Path) -> Interpreter:
    return Interpreter(
        executable="/usr/bin/python3",
        version="3.12",
        full_version=None,
        prefix=str(site),
        base_prefix="/usr",
        kind="venv",
        found_by="--python",
        folders=(str(site),),
        site=str(site),
        include="",
        managed=False,
    )


def read(at: Path, library: str | None, target: str | None, *, more: bool = False) -> TrtMpi:
    """mpi4py linked with a library, and mpirun that leads to a program of that name."""
    module = at / "mpi4py"
    module.mkdir(parents=True)
    if library is not None:
        data = b"\x7fELF\0" + library.encode() + b"\0libc.so.6\0"
        (module / "MPI.cpython-312-x86_64-linux-gnu.so").write_bytes(data)
        if more:
            (module / "MPI.mpich.cpython-312-x86_64-linux-gnu.so").write_bytes(data)
    command = "trtllm-serve m"
    if target is not None:
        (at / target).write_text("")
        (at / "mpirun").symlink_to(at / target)
        command = f"{at}/mpirun -n 2 trtllm-serve m"
    launch = facts(command)[0]
    with LiveHost() as host:
        return trt_mpi(launch, host, interpreter(at))


def test_contract(tmp_path: Path) -> None:
    wrong = read(tmp_path / "a", "libmpi.so.12", "orterun")
    right = read(tmp_path / "b", "libmpi.so.40", "mpirun.openmpi")
    launch = facts("mpirun -n 2 trtllm-serve m")[0]
    contract(mpi_mixed, fires=[wrong, launch], passes=[right, launch])
    five = read(tmp_path / "c", "libmpi.so.40", "prterun")
    serve = facts("trtllm-serve m", "1.3.0rc27")
    contract(mpi_spawn, fires=[five, *serve[:2]], passes=[right, *serve[:2]])
    assert examine(mpi_spawn, five, *facts("trtllm-serve m", "1.2.1")[:2]).outcome == "passed"


@pytest.mark.parametrize(
    ("library", "target", "linked", "starter", "outcome"),
    [
        ("libmpi.so.40", "mpiexec.hydra", "Open MPI", "MPICH", "failed"),
        ("libmpich.so.12", None, "MPICH", None, "failed"),
        ("libmpi.so.40", "orterun", "Open MPI", "Open MPI", "passed"),
        ("libmpi_abi.so.0", "orterun", None, "Open MPI", "blocked"),
    ],
)
def test_kinds(
    tmp_path: Path, library: str, target: str | None, linked: str, starter: str, outcome: str
) -> None:
    found = read(tmp_path / "x", library, target)
    assert found.linked == linked
    if target is not None:
        assert found.starter == starter
    launch = facts("mpirun -n 2 trtllm-serve m")[0]
    assert examine(mpi_mixed, found, launch).outcome == outcome


def test_wheels_for_several_kinds_are_not_judged(tmp_path: Path) -> None:
    assert read(tmp_path / "x", "libmpi.so.12", "orterun", more=True).linked is None


def test_another_engine_needs_no_mpi(tmp_path: Path) -> None:
    launch = facts("trtllm-serve m")[0]
    other = type(launch)(**{**launch.__dict__, "engine": "vllm"})
    with LiveHost() as host, pytest.raises(Absent):
        trt_mpi(other, host, interpreter(tmp_path))
