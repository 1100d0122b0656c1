"""The image of an engine and where its downloads stay."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infer_doctor.catalog.cold_start import PLAIN_RATE
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.fixes.manifest import keep_cache, pin_image
from infer_doctor.host import Unavailable
from infer_doctor.launch.images import split_image
from infer_doctor.launch.judge import value_of
from infer_doctor.launch.model import Container, Launch, Volume
from infer_doctor.launch.surroundings import require_container, weights_of, written
from infer_doctor.model import Finding
from infer_doctor.registry import check

MOVING = ("latest", "nightly", "main", "dev", "master")

OFFICIAL = re.compile(
    r"(?:^|/)(?:vllm-openai(?:-[\w-]+)?|tensorrt-llm/release|tritonserver|llm-d|vllm)$"
)
"""Images that bring an engine and no model."""

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

ROOT_CACHE = "/root/.cache"
LOST = ("emptyDir", "emptyDir-memory", "tmpfs")


@check("manifest-image-moving", severity="info", category="container", since="0.2")
def image_moving(launch: Launch) -> Iterator[Finding]:
    """The image is named by a tag that moves: the next start may be another engine.

    ## Why it matters
    A restart at night brings a version that nobody tested: other arguments, other defaults, another
    CUDA than the driver takes. And nobody can say which one ran before.

    ## How it decides
    No tag, or one of latest, nightly, main, dev, master, and no digest. Kubernetes pulls an image
    without a tag or with `latest` anew at each start of a pod (imagePullPolicy defaults to Always,
    kubernetes.io, "Images"); Docker only when it is not there.

    ## Fix safety
    Manual.
    """
    container = require_container(launch)
    image = container.image
    if image is None or "$" in image or "{" in image:
        raise Unavailable("the name of the image is not in the file")
    _, tag, digest = split_image(image)
    if digest is not None or (tag is not None and tag not in MOVING):
        return
    pulled = (
        "; Kubernetes pulls it anew at each start of a pod"
        if launch.kind == "kubernetes" and tag in (None, "latest")
        else ""
    )
    place = container.image_place or container.place
    said = "has no tag" if tag is None else f"is tagged {tag}, which moves"
    yield Finding(
        about=launch.name,
        message=f"the image {image} {said}{pulled}",
        evidence=(written(launch, place, f"image: {image}"),),
        fixes=(pin_image(image, place),),
    )


@check("manifest-cache-lost", severity="warning", category="cold_start", since="0.2")
def cache_lost(
    launch: Launch, options: EngineOptions, files: ModelFiles | None
) -> Iterator[Finding]:
    """The model is downloaded anew for each container.

    ## Why it matters
    Each start, each restart by a probe and each new replica waits for the whole download, and fails
    when the hub is slow, limits the rate or cannot be reached: a local fault becomes an outage.

    ## How it decides
    The model is a hub id, and the folder of the cache (--download-dir, HF_HUB_CACHE, HF_HOME,
    XDG_CACHE_HOME, else /root/.cache/huggingface/hub) lies on an emptyDir or tmpfs, or, in an image
    that brings no model (vllm/vllm-openai, nvcr.io TensorRT-LLM and Triton), on no volume at all.
    Other images may hold the model. A pod's emptyDir outlives its containers: only new pods
    download again. A model that is streamed from a store is not judged.

    ## Fix safety
    Safe where a named volume is added; manual in Kubernetes, where somebody has to make the claim.
    """
    container = require_container(launch, "kubernetes", "compose", "docker-run")
    model = options.model.value if options.model else None
    if not isinstance(model, str):
        raise Unavailable("the model is not named in the file")
    if not HUB_ID.fullmatch(model) or options.get("load_format") == "dummy":
        raise NotApplicable(f"{model} is no hub id")
    if any(row.name == "VLLM_USE_MODELSCOPE" for row in launch.environment):
        raise NotApplicable("ModelScope has a cache of its own")
    folder = _cache(launch, options)
    volume = _volume(container, folder)
    image = split_image(container.image)[0] if container.image else ""
    if volume is None:
        if not OFFICIAL.search(image):
            raise Unavailable("whether the image holds the model is not known")
        where = "in the container's own layer"
    elif volume.kind in LOST:
        where = f"on {'an' if volume.kind.startswith('e') else 'a'} {volume.kind}"
    else:
        return
    weights = weights_of(options, files)
    size = ""
    if weights is not None:
        minutes = weights.size / PLAIN_RATE / 60
        size = f": {weights.size / 1e9:.0f} GB {weights.basis}, {minutes:.0f} min at 200 MB/s"
    each = "pod" if launch.kind == "kubernetes" else "container"
    yield Finding(
        about=launch.name,
        message=f"{folder} is {where}: each new {each} downloads {model} again{size}",
        evidence=(written(launch, volume.place if volume else None, f"{folder} {where}"),),
        fixes=(keep_cache(launch, folder.removesuffix("/hub")),),
    )


def _cache(launch: Launch, options: EngineOptions) -> str:
    """The folder that the downloads go to."""
    given = value_of(options, "download_dir")
    if isinstance(given, str) and given:
        return given.rstrip("/")
    for name, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "/hub"),
        ("XDG_CACHE_HOME", "/huggingface/hub"),
    ):
        rows = [row for row in launch.environment if row.name == name]
        if not rows:
            continue
        if rows[-1].value is None:
            raise Unavailable(f"{name} is not in the file")
        return rows[-1].value.rstrip("/") + below
    if any(row.name == "*" for row in launch.environment):
        raise Unavailable("some variables come from elsewhere")
    user = launch.container.user if launch.container else None
    home = next((row.value for row in launch.environment if row.name == "HOME"), None)
    if home is None and user not in (None, "0", "root", "0:0"):
        raise Unavailable(f"the home folder of user {user} is not known")
    return f"{home.rstrip('/')}/.cache/huggingface/hub" if home else f"{ROOT_CACHE}/huggingface/hub"


def _volume(container: Container, folder: str) -> Volume | None:
    """The mount that a folder lies on: the deepest one."""
    around = [
        row
        for row in container.volumes
        if folder == row.target or folder.startswith(row.target.rstrip("/") + "/")
    ]
    return max(around, key=lambda row: len(row.target), default=None)
