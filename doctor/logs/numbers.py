"""The numbers of a case: what a message's own values, and those of the start, say to do.

Each function takes a hit and its start and returns an Answer; what it leaves None is taken from the
signature. The arithmetic is the engine's own, and every value given passes the check that failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from infer_doctor.catalog.vllm import LORA_RANKS
from infer_doctor.fixes.log import cure
from infer_doctor.logs import arguments, budget, parallel, ports
from infer_doctor.logs.answers import Answer, number, since
from infer_doctor.logs.budget import down, utilisation
from infer_doctor.logs.figures import count, figure
from infer_doctor.logs.story import Hit, Start

__all__ = ["answer"]

UNITS = {"KiB": 1 / (1 << 20), "MiB": 1 / 1024, "GiB": 1.0, "TiB": 1024.0}
"""GiB."""


def answer(hit: Hit, start: Start) -> Answer:
    """What the numbers of the case say; raises nothing: a value that is not there is not used."""
    function = FUNCTIONS.get(hit.signature.numbers)
    return function(hit, start) if function else Answer()


def oom_torch(hit: Hit, start: Start) -> Answer:
    """What torch says of the GPU, and the cure of the stage."""
    text = hit.text
    total = _gib(re.search(r"(?:total capacity of |; )([\d.]+ [GM]iB)(?: total capacity)?", text))
    free = _gib(re.search(r"of which ([\d.]+ [KGM]iB) is free|([\d.]+ [KGM]iB) free", text))
    asked = hit.match.groupdict().get("asked")
    fact = f"{asked} could not be allocated" if asked else "an allocation failed"
    if total is not None and free is not None:
        fact += f": {free:.2f} of {total:.1f} GiB are free"
    stage = hit.stage
    if stage == "pinned":
        return Answer(
            message=f"main memory could not be pinned for swapping (reported as a CUDA error): {fact}",
            fixes=(
                cure(
                    "less-swap",
                    "Lower --swap-space (per GPU, in GiB), or give the machine more memory",
                ),
            ),
            wrong="Not GPU memory, although the error says CUDA",
        )
    share = utilisation(start)
    lower = cure(
        "lower-memory-utilization",
        f"Start with --gpu-memory-utilization {down(share - 0.05):g} (now {share:g})",
        why="leaves room outside the budget for CUDA graphs, NCCL and spikes",
    )
    if stage in ("graphs", "warmup"):
        fewer = "--enforce-eager (no graphs at all, slower answers)"
        if since(start, 0, 11, 1):
            fewer = "--cudagraph-capture-sizes 1 2 4 8 16"
        sizes = cure(
            "fewer-graphs",
            f"Or capture fewer sizes: lower --max-num-seqs, or {fewer}",
            why="each size costs memory",
        )
        message = f"out of memory while CUDA graphs were captured or warmed up: {fact}"
        return Answer(message=message, fixes=(lower, sizes))
    if stage in ("serving", "shutdown"):
        few = cure(
            "smaller-batches",
            "And lower --max-num-batched-tokens; avoid prompt_logprobs on long prompts",
            why="peaks that the profile does not see",
        )
        return Answer(message=f"out of memory while serving: {fact}", fixes=(lower, few))
    weights = start.number_of("weights")
    tensor = int(start.number_of("tensor_parallel_size") or 1)
    split = cure(
        "more-gpus",
        f"Split the model: --tensor-parallel-size {tensor * 2}, or serve a quantised checkpoint",
    )
    if stage == "profile":
        peak = cure(
            "lower-profile-peak",
            "Lower --max-num-batched-tokens and --max-num-seqs",
            why="the profiled peak shrinks with both, and for images and videos with "
            "--limit-mm-per-prompt",
        )
        after = f", after {weights:g} GiB of weights" if weights else ""
        return Answer(
            message=f"out of memory while the peak was measured{after}: {fact}",
            fixes=(peak, split),
        )
    if stage == "weights":
        return Answer(
            message=f"out of memory while weights were loaded: {fact}",
            fixes=(split,),
            wrong="Not cured by --gpu-memory-utilization when the weights themselves do not fit",
        )
    return Answer(
        message=f"out of memory on the GPU, at a stage that the log does not show: {fact}",
        fixes=(
            cure(
                "find-stage",
                "Look at the traceback above the line, or send it: in load_model the weights do not fit "
                f"(--tensor-parallel-size {tensor * 2} or a quantised checkpoint), in capture_model the "
                f"graphs (--gpu-memory-utilization {down(share - 0.05):g}), in execute_model a request's peak",
            ),
        ),
        unsure=True,
    )


def _gib(match: re.Match[str] | None) -> float | None:
    if match is None:
        return None
    text, unit = (next(group for group in match.groups() if group)).split()
    value = figure(text)
    return None if value is None else value * UNITS[unit]


ENGINE_PROCESS = re.compile(r"(?i)python|vllm|trt|triton|ray|sglang|mpi|engine|worker|server|pt_")
"""Names under which the kernel knows an engine's processes: python3, VLLM::EngineCor, ray::..."""


def oom_killed(hit: Hit, start: Start) -> Answer:
    """Whom the kernel killed: another program's end is not the engine's."""
    name = hit.match.groupdict().get("name")
    if name and not ENGINE_PROCESS.search(name):
        return Answer(drop=True)
    if not name:
        return Answer()
    pid = hit.match.groupdict().get("pid")
    who = f"{name} (PID {pid})" if pid else name
    return Answer(
        message=f"the kernel killed {who}: the machine's or container's main memory ran out (not the GPU's)"
    )


def oom_other(hit: Hit, start: Start) -> Answer:
    """Another process, or this one under its number on the host?

    In a container torch cannot tell its own process from others: then "this process has" is missing
    and the number may be our own.
    """
    own = "this process has" in hit.text
    if "Tried to allocate" in hit.text and not own:
        return Answer(drop=True)
    held = _gib(re.search(r"has ([\d.]+ [GM]iB)", hit.text))
    if held is not None and held < 1:
        return Answer(drop=True)
    return Answer(values={"pid": hit.match["pid"]})


def load_oom(hit: Hit, start: Start) -> Answer:
    """Weights that do not fit: only more GPUs or fewer bytes help."""
    tensor = int(start.number_of("tensor_parallel_size") or 1)
    return Answer(
        fixes=(
            cure(
                "more-gpus",
                f"Use --tensor-parallel-size {tensor * 2}",
                why="half of the weights on each",
            ),
            cure("quantise", "Or serve a quantised checkpoint, or --cpu-offload-gb N (slow)"),
        )
    )


def sampler_oom(hit: Hit, start: Start) -> Answer:
    """The rows of the sampler are max_num_seqs: a quarter of them take a quarter of the memory."""
    seqs = number(hit, "seqs")
    share = utilisation(start)
    lower = cure(
        "lower-memory-utilization",
        f"Or start with --gpu-memory-utilization {down(share - 0.05):g} (now {share:g})",
    )
    if seqs is None or seqs < 2:
        return Answer(fixes=(lower,))
    fewer = max(1, int(seqs) // 4)
    return Answer(
        message=f"the warm-up of the sampler with {seqs:.0f} sequences did not fit beside the KV cache",
        fixes=(
            cure(
                "fewer-sequences",
                f"Start with --max-num-seqs {fewer}",
                why="a quarter of the logits' memory",
            ),
            lower,
        ),
    )


def set_option(hit: Hit, start: Start) -> Answer:
    """An option that the signature itself names."""
    option = re.sub(r"\{(\w+)\}", lambda m: hit.match[m[1]], hit.signature.option)
    return Answer(fixes=(cure("set-option", f"Start with {option}"),))


def batched_tokens(hit: Hit, start: Start) -> Answer:
    """Without chunked prefill a whole prompt has to fit into one batch."""
    return Answer(
        fixes=(
            cure(
                "raise-batched-tokens", f"Start with --max-num-batched-tokens {hit.match['length']}"
            ),
            cure("chunk-prefill", "Or start with --enable-chunked-prefill"),
            cure("lower-max-model-len", f"Or start with --max-model-len {hit.match['batched']}"),
        )
    )


def max_len(hit: Hit, start: Start) -> Answer:
    """The model's own limit; it may be printed as a float."""
    limit = number(hit, "limit")
    if limit is None:
        return Answer()
    return Answer(
        message=f"--max-model-len {hit.match['length']} is longer than the {limit:.0f} tokens of the "
        "model's config.json",
        fixes=(cure("lower-max-model-len", f"Start with --max-model-len {limit:.0f}"),),
    )


def lora_rank(hit: Hit, start: Start) -> Answer:
    """The smallest rank that vLLM accepts and that is enough."""
    rank = number(hit, "rank")
    fit = next((allowed for allowed in LORA_RANKS if rank is not None and allowed >= rank), None)
    if fit is None:
        return Answer()
    return Answer(fixes=(cure("raise-lora-rank", f"Start with --max-lora-rank {fit}"),))


def quant_dtype(hit: Hit, start: Start) -> Answer:
    """A dtype that the method supports."""
    listed = re.findall(r"(float16|bfloat16|float32)", hit.match.groupdict().get("list") or "")
    if not listed:
        return Answer()
    flag = {"float16": "half"}.get(listed[0], listed[0])
    return Answer(fixes=(cure("set-dtype", f"Start with --dtype {flag}"),))


def driver_version(hit: Hit, start: Start) -> Answer:
    """cudaDriverGetVersion: 1000 x major + 10 x minor."""
    found = count(hit.match["found"])
    if not found:
        return Answer()
    cuda = f"{found // 1000}.{found % 1000 // 10}"
    return Answer(
        message=f"the loaded NVIDIA driver serves CUDA {cuda} at most; this torch is built for a newer one",
        fixes=(
            cure(
                "upgrade-driver",
                "Upgrade the NVIDIA driver to one that serves the CUDA of this torch",
            ),
            cure(
                "older-cuda-build", f"Or install a torch and engine built for CUDA {cuda} or older"
            ),
        ),
        values={"cuda": cuda},
    )


def no_gpu(hit: Hit, start: Start) -> Answer:
    """Ray hides all GPUs from a worker or replica that asked for none."""
    if not hit.tag.startswith(("Ray", "ServeReplica")):
        return Answer()
    return Answer(
        category="gpu_count_ray",
        message="Ray gave this process no GPU: it was started without a share of them",
        fixes=(
            cure(
                "ray-gpus",
                "Give the actor or replica its GPUs (num_gpus, or a placement group with GPU bundles), "
                "and compare ray status",
            ),
        ),
    )


def of_a_request(hit: Hit, start: Start) -> Answer:
    """Settings are read before the server is up: later the same words are about a request."""
    return Answer(drop=hit.stage == "serving")


def other_node(hit: Hit, start: Start) -> Answer:
    """Only what a worker of another node said is about the network between nodes."""
    return Answer(drop=not hit.node)


def trt_component(hit: Hit, start: Start) -> Answer:
    """The knob that belongs to the component that could not be made."""
    component = hit.match["component"].strip().rstrip(".")
    for word, knob in COMPONENTS:
        if word in component:
            return Answer(
                message=f"the GPU's memory did not suffice for: {component}",
                fixes=(cure("trt-knob", knob),),
            )
    return Answer(message=f"the GPU's memory did not suffice for: {component}")


COMPONENTS = (
    ("Initial KV", "Lower max_num_tokens"),
    (
        "KV cache",
        "Lower kv_cache_config.free_gpu_memory_fraction, or max_seq_len and max_batch_size",
    ),
    ("Draft", "Lower max_num_tokens, or shard the model (tp_size)"),
    ("Model resources", "Lower max_num_tokens"),
    ("Model", "Shard the model over more GPUs (tp_size, pp_size), or serve a quantised checkpoint"),
    ("Additional executor", "Lower max_num_tokens and max_batch_size"),
    ("Sampler", "Lower max_seq_len and max_batch_size"),
    ("Drafter", "Lower max_seq_len and max_draft_len"),
    ("Speculative", "Lower max_draft_len and max_batch_size"),
)
"""tensorrt_llm/_torch/pyexecutor/py_executor_creator.py, _maybe_explain_if_oom (1.2)."""


def trt_kv(hit: Hit, start: Start) -> Answer:
    """Two messages that look alike and want opposite changes."""
    if re.search(r"must be large enough|No free blocks|Impossible to fit|even a single", hit.text):
        return Answer(
            message="the KV cache of TensorRT-LLM is smaller than one sequence of full length",
            fixes=(
                cure(
                    "raise-kv-fraction",
                    "Raise kv_cache_free_gpu_mem_fraction (free_gpu_memory_fraction), "
                    "or max_tokens_in_paged_kv_cache to at least max_seq_len x beam width",
                ),
                cure("lower-max-seq-len", "Or lower max_seq_len (max_input_len + max_output_len)"),
            ),
            wrong="Not cured by a lower fraction: that makes the cache smaller still",
        )
    if "out of memory" in hit.text:
        return Answer(
            message="GPU memory ran out while TensorRT-LLM set up its engine, buffers or KV cache",
            fixes=(
                cure(
                    "lower-kv-fraction",
                    "Lower kv_cache_free_gpu_mem_fraction (free_gpu_memory_fraction) by 0.1, "
                    "and end other processes on this GPU",
                    "nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
                ),
                cure(
                    "lower-trt-limits",
                    "Or build again with a lower max_num_tokens and max_batch_size, or more tp",
                ),
            ),
        )
    return Answer()


FUNCTIONS: dict[str, Callable[[Hit, Start], Answer]] = {
    "oom_torch": oom_torch,
    "oom_killed": oom_killed,
    "oom_other": oom_other,
    "load_oom": load_oom,
    "sampler_oom": sampler_oom,
    "set_option": set_option,
    "batched_tokens": batched_tokens,
    "max_len": max_len,
    "lora_rank": lora_rank,
    "quant_dtype": quant_dtype,
    "driver_version": driver_version,
    "no_gpu": no_gpu,
    "of_a_request": of_a_request,
    "other_node": other_node,
    "trt_component": trt_component,
    "trt_kv": trt_kv,
    **arguments.FUNCTIONS,
    **budget.FUNCTIONS,
    **parallel.FUNCTIONS,
    **ports.FUNCTIONS,
}
