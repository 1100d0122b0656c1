"""What an image starts when nothing else is said."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infer_doctor.launch.model import Launch, Place, Word
from infer_doctor.versions import release

if TYPE_CHECKING:
    from infer_doctor.facts.engine_options import EngineOptions

SERVE_SINCE = (0, 11, 1)
"""vllm/vllm-openai starts `vllm serve`, before that `python3 -m vllm.entrypoints.openai.api_server`
(vllm docker/Dockerfile; a maintainer quotes the old one in vllm issue 17172 of 2025-05). The two take
the same options; the release in between is not verified, so nothing may hang on it."""

SERVE = ("vllm", "serve")
MODULE = ("python3", "-m", "vllm.entrypoints.openai.api_server")

OPENAI = re.compile(r"(?:^|/)vllm-openai(?:-[\w-]+)?$")
"""vllm/vllm-openai, lmcache/vllm-openai, mirrors and the builds for other devices."""

ENGINE_TAG = re.compile(r"(?:^|/)[\w.-]*vllm[\w.-]*:v?(0\.\d+(?:\.\d+)*(?:\.post\d+)?)(?![\w.])")

OWN_RELEASES = re.compile(
    r"(?:^|/)lmcache/|(?:^|/)[\w.-]*(?:runtime|router|operator|exporter|proxy|simulator|sim)[\w.-]*$"
)
"""Images whose tags are releases of LMCache, Dynamo (vllm-runtime) or a tool beside the engine."""

ENGINE_OPTIONS = (
    "--max-model-len",
    "--tensor-parallel-size",
    "--gpu-memory-utilization",
    "--served-model-name",
    "--max-num-seqs",
)
"""Options by which the arguments of an image with another name are known as vLLM's."""


def split_image(image: str) -> tuple[str, str | None, str | None]:
    """Repository, tag and digest of an image's name."""
    name, _, digest = image.partition("@")
    head, colon, tag = name.rpartition(":")
    if colon and "/" not in tag:
        return head, tag, digest or None
    return name, None, digest or None


def engine_release(image: str | None) -> str | None:
    """The release of vLLM that an image's tag names: vllm/vllm-openai:v0.9.2-cu118 -> 0.9.2.

    Every release is 0.x up to now: nvcr.io/nvidia/vllm:25.09-py3 counts months.
    """
    found = ENGINE_TAG.search(image or "")
    if found is None or OWN_RELEASES.search(split_image(image or "")[0]):
        return None
    return found[1]


def another_engine(launch: Launch, options: EngineOptions) -> bool:
    """Whether the image is of a version that nothing tells, and surely not simply the newest."""
    image = launch.container.image if launch.container else None
    if options.exact or engine_release(image) is not None:
        return False
    if image is None:
        return launch.kind in ("kubernetes", "helm")
    _, tag, digest = split_image(image)
    return digest is not None or (tag is not None and tag != "latest")


def entrypoint(image: str | None, arguments: tuple[Word, ...], place: Place) -> tuple[Word, ...]:
    """The words that the image puts before its arguments; none when that is not known."""
    if image is None or "$" in image or "{{" in image:
        return _by_options(arguments, place)
    name, tag, _ = split_image(image)
    if not OPENAI.search(name):
        return _by_options(arguments, place, "vllm" in name.rpartition("/")[2].lower())
    version = () if OWN_RELEASES.search(name) else release(tag)
    words = MODULE if len(version) > 1 and version < SERVE_SINCE else SERVE
    return tuple(Word(text=word, place=place) for word in words)


def _by_options(
    arguments: tuple[Word, ...], place: Place, called: bool = False
) -> tuple[Word, ...]:
    """An image of another name whose arguments begin with an option and hold vLLM's own.

    `called` vllm, --model is enough: vllm-cpu-env, as docs and Dockerfile.cpu name what is built.
    """
    if not arguments or not arguments[0].text.startswith("-"):
        return ()
    names = {word.text.partition("=")[0].replace("_", "-") for word in arguments}
    if not names.intersection(ENGINE_OPTIONS) and not (called and "--model" in names):
        return ()
    return tuple(Word(text=word, place=place) for word in SERVE)
