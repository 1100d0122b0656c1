"""What an image starts when nothing else is said."""

from __future__ import annotations

import re

from infer_doctor.launch.model import Place, Word

SERVE_SINCE = (0, 11, 1)
"""vllm/vllm-openai starts `vllm serve`, before that `python3 -m vllm.entrypoints.openai.api_server`
(vllm docker/Dockerfile; a maintainer quotes the old one in vllm issue 17172 of 2025-05). The two take
the same options; the release in between is not verified, so nothing may hang on it."""

SERVE = ("vllm", "serve")
MODULE = ("python3", "-m", "vllm.entrypoints.openai.api_server")

OPENAI = re.compile(r"(?:^|/)vllm-openai(?:-[\w-]+)?$")
"""vllm/vllm-openai, lmcache/vllm-openai, mirrors and the builds for other devices."""

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


def release(tag: str | None) -> tuple[int, ...] | None:
    """v0.10.1.1 -> (0, 10, 1, 1)."""
    found = re.match(r"v?(\d+(?:\.\d+)+)", tag or "")
    return tuple(int(part) for part in found[1].split(".")) if found else None


def entrypoint(image: str | None, arguments: tuple[Word, ...], place: Place) -> tuple[Word, ...]:
    """The words that the image puts before its arguments; none when that is not known."""
    if image is None or "$" in image or "{{" in image:
        return _by_options(arguments, place)
    name, tag, _ = split_image(image)
    if not OPENAI.search(name):
        return _by_options(arguments, place)
    version = release(tag)
    words = MODULE if version is not None and version < SERVE_SINCE else SERVE
    return tuple(Word(text=word, place=place) for word in words)


def _by_options(arguments: tuple[Word, ...], place: Place) -> tuple[Word, ...]:
    """An image of another name whose arguments begin with an option and hold vLLM's own."""
    if not arguments or not arguments[0].text.startswith("-"):
        return ()
    names = {word.text.partition("=")[0].replace("_", "-") for word in arguments}
    if not names.intersection(ENGINE_OPTIONS):
        return ()
    return tuple(Word(text=word, place=place) for word in SERVE)
