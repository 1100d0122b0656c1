"""The parts of one GPU: what the engine would measure of each."""

from __future__ import annotations

from infer_doctor.frozen import frozen
from infer_doctor.memory import activation
from infer_doctor.memory.architecture import Architecture
from infer_doctor.memory.graphs import graph_bytes, reserved_bytes
from infer_doctor.memory.layout import Layout
from infer_doctor.memory.quantization import ALIASES, ONLINE, Scheme
from infer_doctor.memory.settings import CONSUMED_SINCE, Settings
from infer_doctor.memory.tensors import PACKED_STEP
from infer_doctor.memory.weights import Weight, merged_name, rank_bytes
from infer_doctor.units import MIB

CONFIG = "config.json"
"""The basis of weights that no header tells."""

CONTEXT_BYTES = 527 * MIB
"""CUDA context before the first snapshot, one GPU: 139.80 - 139.29 GiB (tests/memory, H200)."""

GROUP_BYTES = 1540 * MIB
"""The same with NCCL for two or more ranks: 139.80 - 138.27 (TP 2) and 138.38 GiB (PP 2)."""

SMALL_GROUP_BYTES = 600 * MIB
"""With NCCL over PCIe: 400 MiB on RTX 3090 (Sandermage/genesis-vllm-patches issue 24), rounded up."""

NVSWITCH = 70 << 30
"""GPUs from this size on stand in machines with NVLink, where NCCL takes more."""

NON_TORCH = 228 * MIB
"""Kernels and libraries loaded during the profile run, one GPU (tests/memory: 0.22 GiB)."""

NON_TORCH_GROUP = 62 * MIB
"""With NCCL most of them are loaded before the first snapshot (tests/memory: 0.06 GiB)."""

LOADER_REST = 14 * MIB
"""In "Model loading took" and in no tensor: blocks that torch's allocator reuses without a split
while weights are made; 0 to 37 MiB in the starts of tests/memory, the median."""

AFTER_NCCL = (0, 11)
"""Before, the first snapshot was taken before the CUDA context and NCCL, which the budget then
held (vLLM pull request 25359)."""

V0_NON_TORCH = 358 * MIB
"""All that V0 counted beside torch: 0.35 GiB on an RTX 3090 (vLLM issue 10517), 0.25 with two RTX
4090 (13061), 0.20 with 16 RTX 3090 (14447)."""

MARLIN_STEP = 256
"""Marlin wants the rows of a matrix divided by this: the hidden size of gpt-oss is padded from 2880 to
3072 (quantization/mxfp4.py; 13.72 GiB of gpt-oss-20b on an A100, 65.97 of 120b: issue 23278)."""

FUSED_ALL_REDUCE: dict[tuple[int, int], dict[int, float]] = {
    (9, 0): {2: 64, 4: 2, 8: 0.5},
    (10, 0): {2: 64, 4: 32, 8: 1, 16: 64},
    (10, 3): {2: 64, 4: 64, 8: 2, 16: 64},
}
"""MiB of the largest tensor by capability and tensor parallelism
(compilation/passes/fusion/allreduce_rms_fusion.py of vLLM 0.26.0)."""

FUSED_WORKSPACE = 13.4
"""Its workspace in such tensors: 0.84 GiB for 64 MiB on two H200 (tests/memory: 8b-tp2-compiled)."""

ALLOCATOR_STEP = 2 * MIB
ALLOCATOR_LARGE = 10 * MIB
ALLOCATOR_SPLIT = 1 * MIB
"""torch's allocator takes 10 MiB and more in steps of 2 MiB, and a rest of at most 1 MiB stays with
the tensor (c10/cuda/CUDACachingAllocator.cpp: kMinLargeAlloc, kRoundLarge, kSmallSize)."""


@frozen
class Gpu:
    """A GPU for the plan, in bytes; `used` is what others hold."""

    name: str
    usable: int
    total: int | None = None
    used: int = 0
    capability: tuple[int, int] | None = None
    exact: bool = True


@frozen
class Rank:
    """The parts of one GPU. `outside` is not in the engine's budget."""

    stage: int
    weights: int
    activation: int
    non_torch: int
    graphs_inside: int
    cache: int
    graphs: int
    before: int
    """CUDA context, NCCL and other processes before the engine's first snapshot."""
    buffers: int
    """Buffers of the runner that the budget of this version does not count."""


@frozen
class Model:
    """What is known of the model: its layers and its weights."""

    architecture: Architecture
    weights: tuple[Weight, ...]
    basis: str
    """"safetensors headers", "config.json" or "GGUF file"."""
    scheme: Scheme | None = None
    itemsize: int = 2


def rank_of(
    model: Model, settings: Settings, gpu: Gpu, layout: Layout, stage: int, budget: int
) -> Rank:
    """The parts of one GPU of a stage."""
    architecture = model.architecture
    batch = activation.Batch(
        tokens=settings.tokens,
        sequences=settings.sequences,
        context=settings.context,
        itemsize=settings.itemsize,
        sampler=settings.sampler,
        block=settings.block,
        compiled=not settings.eager,
        fp8_cache=settings.cache_dtype.startswith("fp8"),
        hopper=gpu.capability is None or gpu.capability[0] >= 9,
        expert_parallel=settings.expert_parallel,
        packed_experts=model.scheme is not None and model.scheme.experts_only,
        quantised=_covers(model, settings),
    )
    weights = _loaded(model, settings, layout, stage, gpu)
    weights += sum(rows * width * settings.itemsize for rows, width in architecture.rope)
    weights += LOADER_REST + lora_bytes(architecture, settings, layout, stage)
    weights = max(0, weights - settings.offload)
    ranks = layout.tensor * layout.stages
    group = ranks > 1
    graphs = graph_bytes(settings, architecture, layout, stage)
    buffers = _buffers(settings, architecture) if stage == layout.stages - 1 else 0
    peak = activation.peak(architecture, layout, stage, batch)
    non_torch = NON_TORCH_GROUP if group else NON_TORCH
    non_torch += _fused_all_reduce(settings, gpu, architecture)
    if settings.v0:
        non_torch = V0_NON_TORCH
    elif settings.version < AFTER_NCCL:
        non_torch += _before(gpu, group)
    if settings.version >= CONSUMED_SINCE:
        non_torch += buffers
        buffers = 0
    inside = reserved_bytes(settings, architecture, layout, stage)
    cache = budget - weights - peak - non_torch - inside
    if settings.cache_bytes:
        cache = settings.cache_bytes
    return Rank(
        stage=stage,
        weights=weights,
        activation=peak,
        non_torch=non_torch,
        graphs_inside=inside,
        cache=cache,
        graphs=graphs,
        before=gpu.used + _before(gpu, group),
        buffers=buffers,
    )


def _fused_all_reduce(settings: Settings, gpu: Gpu, model: Architecture) -> int:
    """FlashInfer's workspace, made when compiled code joins the all-reduce with the norm."""
    if settings.eager or settings.tensor == 1 or gpu.capability is None:
        return 0
    largest = FUSED_ALL_REDUCE.get(gpu.capability, {}).get(settings.tensor)
    if largest is None:
        return 0
    tensor = settings.tokens * model.hidden * settings.itemsize
    return int(FUSED_WORKSPACE * min(largest * MIB, tensor))


def _before(gpu: Gpu, group: bool) -> int:
    """Context and communicators, which the first snapshot already sees as used."""
    if not group:
        return CONTEXT_BYTES
    return GROUP_BYTES if gpu.usable >= NVSWITCH else SMALL_GROUP_BYTES


def _covers(model: Model, settings: Settings) -> bool:
    """Whether no layer but the head multiplies with cuBLAS: all are quantised."""
    if settings.quantization and online(settings.quantization):
        return True
    return model.scheme is not None and not model.scheme.experts_only


def online(method: str) -> float | None:
    """Bits a number of a method that quantises at load, None for one that only reads."""
    return ONLINE.get(ALIASES.get(method, method))


def _loaded(model: Model, settings: Settings, layout: Layout, stage: int, gpu: Gpu) -> int:
    """Bytes of the weights in torch's allocator, quantised at load where that is asked for.

    The engine holds query, key and value, gate and up, and all experts as one tensor each.
    """
    bits = online(settings.quantization) if settings.quantization and model.scheme is None else None
    padding = _expert_padding(model) * _hidden_padding(model, gpu)
    merged: dict[tuple[int | None, str], int] = {}
    for weight, size in rank_bytes(model.weights, layout, stage):
        if bits is not None and weight.linear:
            size = int(size * bits / (8 * model.itemsize))
        if weight.rule == "expert":
            size = int(size * padding)
        place = weight.layer, merged_name(weight.name)
        merged[place] = merged.get(place, 0) + size
    return sum(map(_allocated, merged.values()))


def _expert_padding(model: Model) -> float:
    """What the mxfp4 kernels add to the experts of a checkpoint."""
    if model.basis == CONFIG or model.scheme is None or not model.scheme.experts_only:
        return 1.0
    widths = [layer.experts.width for layer in model.architecture.layers if layer.experts]
    return -(-widths[0] // PACKED_STEP) * PACKED_STEP / widths[0] if widths else 1.0


def _hidden_padding(model: Model, gpu: Gpu) -> float:
    """What Marlin adds to mxfp4 experts on GPUs without another kernel for them."""
    if model.scheme is None or not model.scheme.experts_only or gpu.capability is None:
        return 1.0
    if gpu.capability[0] in (9, 10):
        return 1.0
    hidden = model.architecture.hidden
    return -(-hidden // MARLIN_STEP) * MARLIN_STEP / hidden


def lora_bytes(model: Architecture, settings: Settings, layout: Layout, stage: int) -> int:
    """Slots of LoRA adapters for every projection of attention and MLP.

    lora/layers/base_linear.py:104: for each slot rank x (in + out); a column parallel layer cuts
    what goes out, a row parallel one what comes in; query, key, value, gate and up have one each.
    """
    if not settings.loras:
        return 0
    first, end = layout.layers_of(stage)
    sides = 0
    for layer in model.layers[first:end]:
        if attention := layer.attention:
            key = max(1, attention.kv_heads // layout.tensor)
            out = attention.heads // layout.tensor * attention.head_dim
            both = key * (attention.head_dim + attention.value_dim)
            inner = attention.heads // layout.tensor * attention.value_dim
            sides += 3 * model.hidden + out + both + inner + model.hidden
        if layer.width:
            width = -(-layer.width // layout.tensor)
            ups = 2 if model.gated else 1
            sides += ups * (model.hidden + width) + width + model.hidden
    return settings.loras * settings.lora_rank * sides * settings.itemsize


def _allocated(size: int) -> int:
    rest = -size % ALLOCATOR_STEP
    return size + rest if size >= ALLOCATOR_LARGE and rest <= ALLOCATOR_SPLIT else size


def _buffers(settings: Settings, model: Architecture) -> int:
    """Counts of tokens for penalties: a row of the vocabulary for each sequence.

    v1/worker/gpu/sample/penalties.py of the V2 runner; the V1 runner has them on the host.
    """
    if settings.runner != 2:
        return 0
    return settings.sequences * (model.vocabulary * 4 + -(-model.vocabulary // 32) * 4)
