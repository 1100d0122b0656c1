"""The image that TensorRT-LLM is to run in, and what pip adds to it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infer_doctor.catalog.trtllm_releases import CUDA_IMAGE, RELEASES
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.trt_release import TrtRelease
from infer_doctor.fixes.trtllm import advise
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.registry import check

NOT_ON_PYPI = re.compile(
    r"(?i)(tensorrtllm[-_]backend|trtllm[-_]backend|tensorrt[-_]llm[-_]backend)\b"
)

PYPI_NAME = re.compile(r"(?i)tensorrt[-_]llm\b")


def release_image(release: TrtRelease) -> Fix:
    """The image of the version that is meant, else of the last stable one."""
    version = release.version or "1.2.1"
    return advise(
        "use-release-image",
        f"Use nvcr.io/nvidia/tensorrt-llm/release:{version}",
        "Triton: nvcr.io/nvidia/tritonserver:YY.MM-trtllm-python-py3 of the same version",
        commands=(
            "docker run --rm --gpus all --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 "
            f"nvcr.io/nvidia/tensorrt-llm/release:{version} ...",
        ),
    )


@check("trt-image-plain", severity="error", category="trt_backend_load", since="0.3")
def image_plain(launch: Launch, release: TrtRelease) -> Iterator[Finding]:
    """TensorRT-LLM is to run in a plain CUDA image.

    ## Why it matters
    The image has CUDA's libraries and nothing else: no Python, no pip, no Open MPI, no TensorRT:
    "trtllm-build: command not found". And its CUDA has to be that of the wheel.

    ## How it decides
    The image is nvidia/cuda:VERSION-base, -runtime or -devel, and the container starts a command of
    TensorRT-LLM. Where pip installs tensorrt_llm first, only a CUDA that no release from 0.12 to 1.2
    was built with is told (release notes), as likely.

    ## Fix safety
    Manual: another image.
    """
    if launch.engine != "tensorrt-llm":
        raise NotApplicable("the launch starts no TensorRT-LLM")
    image = launch.container.image if launch.container is not None else None
    if image is None:
        raise NotApplicable("the launch names no image")
    found = CUDA_IMAGE.search(image)
    if found is None or launch.container is None:
        return
    place = launch.container.image_place or launch.container.place
    built = [
        row
        for row in RELEASES
        if row.cuda and row.cuda.startswith(found[1]) and row.version >= (0, 12)
    ]
    why = f"CUDA {found[1]} is that of no TensorRT-LLM from 0.12 to 1.2" if not built else ""
    installs = any(PYPI_NAME.match(word.text) for word in launch.installs)
    if installs and built:
        return
    lacks = "" if installs else "has no Python, Open MPI or TensorRT-LLM"
    yield Finding(
        about=launch.name,
        confidence="likely" if installs else "certain",
        message=f"{image} {', and '.join(part for part in (lacks, why) if part)}".replace(
            f"{image} CUDA", f"{image}: CUDA"
        ),
        evidence=(
            Evidence(source=place.file, line=place.line, excerpt=f"image: {image}"),
            Evidence(
                source=launch.place.file,
                line=launch.place.line,
                excerpt=" ".join(launch.command)[:200],
            ),
        ),
        fixes=(release_image(release),),
    )


@check("trt-package-unknown", severity="error", category="trt_backend_load", since="0.3")
def package_unknown(launch: Launch, release: TrtRelease) -> Iterator[Finding]:
    """pip is asked for a package that PyPI does not have.

    ## Why it matters
    "Could not find a version that satisfies the requirement tensorrtllm_backend (from versions:
    none)": the image is never built. Anybody could register such a name.

    ## How it decides
    A `pip install` line before the engine names tensorrtllm_backend or the like: that is the
    repository of Triton's backend, which comes in NVIDIA's images (not on PyPI, 2026-11-30). The
    package of TensorRT-LLM is tensorrt_llm.

    ## Fix safety
    Manual.
    """
    if launch.engine != "tensorrt-llm":
        raise NotApplicable("the launch starts no TensorRT-LLM")
    for word in launch.installs:
        if word.unknown is not None:
            raise Unavailable(f"{word.text} of pip install is not known")
    for word in launch.installs:
        if NOT_ON_PYPI.match(word.text):
            yield Finding(
                about=word.text,
                message=f"PyPI has no {word.text}: it is the repository of Triton's backend",
                evidence=(
                    Evidence(
                        source=word.place.file,
                        line=word.place.line,
                        excerpt=f"pip install {word.text}",
                    ),
                ),
                fixes=(release_image(release),),
            )
