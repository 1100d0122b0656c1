"""Fixes for distributions that do not belong together."""

from __future__ import annotations

from collections.abc import Sequence

from infer_doctor.facts.environment import Distribution, Distributions, Interpreter
from infer_doctor.fixes.environment import install_packages, managed, remove_packages
from infer_doctor.model import Fix


def only_nvidia_ml(
    old: Distribution,
    new: Distribution | None,
    interpreter: Interpreter,
    distributions: Distributions,
) -> Fix:
    """Leave the maintained distribution alone there."""
    version = f"=={new.version}" if new else ""
    return Fix(
        id="only-nvidia-ml-py",
        title=f"Uninstall pynvml {old.version} and keep nvidia-ml-py"
        + (f" {new.version}" if new else ""),
        safety="unsafe",
        restarts=True,
        why=managed(interpreter) or "a package that declares pynvml is then incomplete for pip",
        actions=(
            remove_packages(interpreter, distributions, "pynvml"),
            install_packages(
                interpreter,
                distributions,
                f"nvidia-ml-py{version}",
                options=("--force-reinstall", "--no-deps"),  # the other may have owned its file
            ),
        ),
    )


def older_pynvml(interpreter: Interpreter, distributions: Distributions) -> Fix:
    """The last one with the module that old TensorRT-LLM asks for its version."""
    return Fix(
        id="install-older-pynvml",
        title="Install pynvml 11.5.3, the last with the module itself",
        safety="unsafe",
        restarts=True,
        why=managed(interpreter),
        actions=(install_packages(interpreter, distributions, "pynvml==11.5.3"),),
    )


def keep_cuda(
    stray: Sequence[Distribution],
    keep: Sequence[Distribution],
    interpreter: Interpreter,
    distributions: Distributions,
) -> Fix:
    """Remove the wheels of the other CUDA, then write the files of the right ones again."""
    names = [row.written_name for row in stray]
    wanted = [f"{row.written_name}=={row.version}" for row in keep]
    return Fix(
        id="keep-one-cuda",
        title=f"Remove {', '.join(names)}, then install {', '.join(wanted)} again",
        safety="unsafe",
        restarts=True,
        why=managed(interpreter) or "removing them alone deletes files of the others",
        actions=(
            remove_packages(interpreter, distributions, *names),
            install_packages(
                interpreter, distributions, *wanted, options=("--no-deps", "--force-reinstall")
            ),
        ),
    )


def fetch_trtllm(
    version: str | None, interpreter: Interpreter, distributions: Distributions
) -> Fix:
    """The wheel itself, from where the stub would fetch it."""
    wanted = f"tensorrt-llm=={version}" if version else "tensorrt-llm"
    index = ("--extra-index-url", "https://pypi.nvidia.com/")
    return Fix(
        id="fetch-tensorrt-llm",
        title=f"Install {wanted} again, with NVIDIA's index at hand",
        safety="unsafe",
        restarts=True,
        why=managed(interpreter)
        or "that index must be reachable from here; NVIDIA's images have it installed",
        actions=(
            install_packages(
                interpreter, distributions, wanted, options=("--force-reinstall", *index)
            ),
        ),
    )


def match_flashinfer(
    part: Distribution,
    main: Distribution,
    interpreter: Interpreter,
    distributions: Distributions,
) -> tuple[Fix, ...]:
    """FlashInfer works without its compiled kernels; with them they must be of its version."""
    wanted = f"{part.written_name}=={main.version.partition('+')[0]}"
    mark = part.version.partition("+")[2]
    index = ("--extra-index-url", f"https://flashinfer.ai/whl/{mark}") if mark else ()
    return (
        Fix(
            id=f"match-{part.name}",
            title=f"Install {wanted}, the version of flashinfer-python",
            safety="unsafe",
            restarts=True,
            why=managed(interpreter),
            actions=(install_packages(interpreter, distributions, wanted, options=index),),
        ),
        Fix(
            id="skip-flashinfer-version-check",
            title="Or start with FLASHINFER_DISABLE_VERSION_CHECK=1 at your own risk",
            safety="manual",
            restarts=True,
            why="kernels of another version may fail or give wrong results",
        ),
    )
