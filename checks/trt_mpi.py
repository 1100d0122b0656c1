"""The MPI of TensorRT-LLM's workers."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.trtllm_releases import numbers
from infer_doctor.facts.trt_mpi import TrtMpi
from infer_doctor.facts.trt_release import TrtRelease
from infer_doctor.fixes.trtllm import advise
from infer_doctor.launch.model import Launch
from infer_doctor.model import Finding
from infer_doctor.registry import check
from infer_doctor.trtllm import judge

REBUILD = advise(
    "build-mpi",
    "Install Open MPI and build mpi4py for it",
    commands=(
        "apt-get install libopenmpi-dev openmpi-bin",
        "pip install --force-reinstall --no-binary mpi4py --no-cache-dir mpi4py",
    ),
)


@check("trt-mpi-mixed", severity="error", category="trt_world_size_mpi", since="0.3")
def mpi_mixed(mpi: TrtMpi, launch: Launch) -> Iterator[Finding]:
    """mpi4py, mpirun and TensorRT-LLM are not of the same MPI.

    ## Why it matters
    A worker process is started over MPI even for one GPU. With two kinds each rank believes to be
    alone, or the start hangs after "Initializing MPI with thread mode 3" without an error.

    ## How it decides
    The library that mpi4py's module asks for (libmpi.so.40 is Open MPI, libmpi.so.12 MPICH and Intel
    MPI) and the file that mpirun leads to (orterun, prterun, mpirun.openmpi; mpiexec.hydra,
    mpirun.mpich). TensorRT-LLM is built with Open MPI (docker/common/install_mpi4py.sh, its
    documentation), so mpi4py of another is told always, mpirun of another only where the launch
    uses it. Wheels of mpi4py that bring a module for each MPI choose at import: not judged.

    ## Fix safety
    Manual: packages of the system.
    """
    if mpi.linked == "MPICH":
        yield Finding(
            about="mpi4py",
            message="mpi4py was linked with MPICH; TensorRT-LLM is built with Open MPI",
            evidence=judge.present(mpi.linked_evidence),
            fixes=(REBUILD,),
        )
        return
    uses = judge.ranks_started(launch) is not None
    if uses and mpi.starter == "MPICH":
        of = " and mpi4py is linked with Open MPI" if mpi.linked else ""
        yield Finding(
            about="mpirun",
            message=f"mpirun of the launch is that of MPICH; TensorRT-LLM is built with Open MPI{of}",
            evidence=judge.present(mpi.starter_evidence, mpi.linked_evidence),
            fixes=(
                advise(
                    "use-open-mpi",
                    "Start with Open MPI's mpirun (mpirun.openmpi)",
                    commands=("update-alternatives --config mpirun",),
                ),
            ),
        )


@check("trt-mpi-spawn", severity="warning", category="trt_world_size_mpi", since="0.3")
def mpi_spawn(mpi: TrtMpi, release: TrtRelease, launch: Launch) -> Iterator[Finding]:
    """Open MPI 5 starts the workers of TensorRT-LLM: spawning may be broken.

    ## Why it matters
    "mpi4py.MPI.Exception: MPI_ERR_UNKNOWN" when LLM(...) or trtllm-serve starts its workers.

    ## How it decides
    mpirun leads to prterun, which only Open MPI 5 has, and the launch does not start all ranks by
    itself. Seen in one image (1.3.0rc27, ai-dynamo/dynamo issue 15060; 4.1 in rc26 works), so it is
    only possible, and for releases before 1.3 not told.

    ## Fix safety
    Safe: another way to start the same ranks.
    """
    version = numbers(release.version)
    if mpi.starter_release != "5" or (version is not None and version < (1, 3)):
        return
    started = judge.ranks_started(launch)
    if started is not None and started[0] > 1:
        return
    yield Finding(
        about="mpirun",
        confidence="possible",
        message="mpirun is that of Open MPI 5; with it TensorRT-LLM could not spawn its workers "
        "(1.3.0rc27)",
        evidence=judge.present(mpi.starter_evidence, judge.of_release(release)),
        fixes=(
            advise(
                "start-ranks-yourself",
                "Start the ranks with mpirun -n RANKS trtllm-llmapi-launch, or use Open MPI 4.1",
            ),
        ),
    )
