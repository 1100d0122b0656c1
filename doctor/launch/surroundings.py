"""What the checks of containers share: how many GPUs a pod needs, what the model weighs."""

from __future__ import annotations

import re

from infer_doctor.catalog.model_names import bytes_by_name
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.frozen import frozen
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import value_of, whole
from infer_doctor.launch.model import Container, Launch, Place
from infer_doctor.model import Evidence
from infer_doctor.models.folder import WEIGHTS

OTHER_DEVICE = re.compile(
    r"(?:^|[/_.:@-])(cpu|rocm|amd|tpu|hpu|gaudi|habana|xpu|intel|openvino|neuron|ascend|npu|musa"
    r"|spyre|maca|mlu)(?:\d*$|[/_.:\d-])",
    re.I,
)
"""Words in names of images that are built for something else than NVIDIA GPUs."""

OTHER_VARIABLES = (
    "VLLM_CPU_KVCACHE_SPACE",
    "VLLM_CPU_OMP_THREADS_BIND",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ROCM_PATH",
    "PYTORCH_ROCM_ARCH",
    "ASCEND_RT_VISIBLE_DEVICES",
    "HABANA_VISIBLE_DEVICES",
    "TPU_VISIBLE_CHIPS",
    "ZE_AFFINITY_MASK",
)
OTHER_TARGETS = ("cpu", "rocm", "tpu", "xpu", "hpu", "neuron", "openvino")
"""VLLM_TARGET_DEVICE for other devices."""

OTHER_HARDWARE = re.compile(
    r"^/dev/(?:kfd|dri|accel|vfio|davinci|neuron|hl)"
    r"|^(?:amd\.com|habana\.ai|google\.com/tpu|gpu\.intel\.com|aws\.amazon\.com/neuron|huawei\.com"
    r"|cambricon\.com|metax-tech\.com|mthreads\.com|iluvatar)"
)
"""Device nodes and extended resources of AMD, Intel, Habana, Google, AWS, Huawei and others."""

SIZE = re.compile(r"parallel.size|^-(?:tp|pp|dp|dpl|n)$|nnodes")
"""Options that say how many ranks there are."""

GROUPING = re.compile(r": (\w+)/")
SINGLE_PODS = (
    "Pod",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "CronJob",
    "InferenceService",
    "LLMInferenceService",
    "ServingRuntime",
    "ClusterServingRuntime",
    "LeaderWorkerSet",
)
"""Objects whose engine lives in one pod, or whose group of pods is read from the file."""


@frozen
class Weights:
    """Bytes of the weights and how that is known."""

    size: float
    basis: str
    named: bool


FILES = {
    "dockerfile": "a Dockerfile",
    "docker-run": "a `docker run` line",
    "helm": "a file of Helm values",
    "compose": "a compose file",
    "kubernetes": "a manifest of Kubernetes",
}
"""Kinds of launches that have a container, in words."""


PATCHED = re.compile(r": (?:Deployment|StatefulSet|DaemonSet|Job|CronJob|Pod|LeaderWorkerSet)/")
"""Kinds whose containers need an image, so that a file without one is a patch (Kustomize)."""


def require_container(launch: Launch, *kinds: str) -> Container:
    """The container of a launch; `kinds` are those of which the whole file is there."""
    if launch.container is None:
        raise NotApplicable("no container is described")
    if kinds and launch.kind not in kinds:
        what = FILES.get(launch.kind, "this launch")
        raise NotApplicable(f"{what} does not say with what the container runs")
    if launch.container.image is None and PATCHED.search(launch.name):
        raise Unavailable("no image: the file is a patch, and what it is laid over was not read")
    return launch.container


def require_nvidia(launch: Launch, container: Container) -> None:
    """What is built for other devices needs no NVIDIA GPU."""
    image = OTHER_DEVICE.search(container.image or "")
    if image is not None:
        raise NotApplicable(f"the image is built for {image[1].lower()}")
    for row in launch.environment:
        target = row.name == "VLLM_TARGET_DEVICE" and row.value in OTHER_TARGETS
        if row.name in OTHER_VARIABLES or target:
            raise NotApplicable(f"{row.name} is for other devices than NVIDIA GPUs")
    for device in container.other_devices:
        if OTHER_HARDWARE.match(device) and not container.gpus:
            raise NotApplicable(f"{device} is no NVIDIA GPU")
    for name, _ in container.node_selector:
        if "tpu" in name or "amd.com" in name or "habana" in name:
            raise NotApplicable(f"the node selector {name} chooses other devices")


def written(launch: Launch, place: Place | None, excerpt: str) -> Evidence:
    """What the file says; where nothing is written, the place of the container."""
    at = place or (launch.container.place if launch.container else launch.place)
    return Evidence(source=at.file, line=at.line, excerpt=excerpt)


def ranks_in_pod(launch: Launch, options: EngineOptions) -> int:
    """GPUs that the processes of one container use; raises Unavailable when that is not known."""
    if options.gaps:
        raise Unavailable(options.gaps[0])
    for problem in options.problems:
        if problem.kind in ("type", "missing-value", "ambiguous") and SIZE.search(problem.flag):
            raise Unavailable(problem.message)
    tensor = whole(options, "tensor_parallel_size", 0) or whole(options, "tp_size", 1)
    pipeline = whole(options, "pipeline_parallel_size", 0) or whole(options, "pp_size", 1)
    replica = tensor * pipeline * whole(options, "prefill_context_parallel_size", 1)
    data = whole(options, "data_parallel_size", 1)
    local = value_of(options, "data_parallel_size_local")
    if local is not None:
        return replica * int(local)
    if "data_parallel_rank" in options.given:
        data = 1
    container = launch.container
    group = (container.group_size if container else None) or 1
    pods = max(whole(options, "nnodes", 1), group)
    backends = {
        value_of(options, "distributed_executor_backend"),
        value_of(options, "data_parallel_backend"),
    }
    if "ray" in backends and pods == 1:
        raise Unavailable("Ray may place ranks in other pods, which are not in the file")
    kind = GROUPING.search(launch.name) if launch.kind == "kubernetes" else None
    if kind is not None and kind[1] not in SINGLE_PODS and pods == 1 and replica * data > 1:
        raise Unavailable(f"a {kind[1]} may spread the ranks over several pods")
    ranks, rest = divmod(replica * data, pods)
    if rest:
        raise Unavailable(f"{replica * data} ranks do not divide into {pods} pods")
    return max(ranks, 1)


def weights_of(options: EngineOptions, files: ModelFiles | None) -> Weights | None:
    """The weights by the model's files, else by its name; None when neither tells it."""
    if files is not None and not files.gaps and not files.missing_shards:
        sizes = [row.size for row in files.files if row.name.endswith(WEIGHTS)]
        safe = [row.size for row in files.files if row.name.endswith(".safetensors")]
        if sizes:
            return Weights(size=sum(safe or sizes), basis="by its files", named=False)
    model = options.model.value if options.model else None
    named = bytes_by_name(model) if isinstance(model, str) else None
    return None if named is None else Weights(size=named, basis="by its name", named=True)


def model_name(options: EngineOptions) -> str:
    """The model as the launch names it."""
    return str(options.model.value) if options.model else "the model"
