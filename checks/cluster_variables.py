"""Variables of the environment that all nodes must agree on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infer_doctor.checks.cluster_network import variables
from infer_doctor.cluster.compare import Quantity, Reading, Value, advise, judge
from infer_doctor.facts.network import IFNAMES
from infer_doctor.facts.nodes import Node, Nodes
from infer_doctor.launch.model import Launch
from infer_doctor.model import Finding, Fix, Missing
from infer_doctor.registry import check

SAME = re.compile(
    r"(?:NCCL|GLOO|VLLM|TORCH|PYTORCH|UCX|TLLM|TRTLLM|TENSORRT_LLM|CUDA|HF_HUB|TRANSFORMERS|OMP)_\w+"
    r"|LD_LIBRARY_PATH|LD_PRELOAD"
)
"""Variables that change what an engine does."""

OWN = re.compile(
    r"VLLM_HOST_IP|VLLM_DP_RANK\w*|VLLM_PORT|VLLM_\w*CACHE\w*|CUDA_VISIBLE_DEVICES|\w*_RANK|\w*_HOST"
    r"|(?:VLLM|CUDA)_\w+_(?:SERVICE|PORT)\w*|\w*_(?:TOKEN|KEY)|CUDA_(?:HOME|PATH|VERSION)"
    r"|(?:CUDA_CACHE_PATH|HF_HUB_CACHE|TRANSFORMERS_CACHE|TORCH_HOME|TORCH_EXTENSIONS_DIR)"
    r"|NCCL_(?:HOSTID|DEBUG_FILE)"
)
"""Those that each node has its own of, and paths of a toolkit or a cache."""

MASTER = ("MASTER_ADDR", "MASTER_PORT", "VLLM_DP_MASTER_IP", "VLLM_DP_MASTER_PORT")


@check("cluster-master-differs", severity="error", category="nccl_network", since="0.3")
def master_differs(nodes: Nodes, launch: Launch | None) -> Iterator[Finding]:
    """The nodes do not agree where the first rank is.

    ## Why it matters
    torch.distributed connects all ranks to MASTER_ADDR:MASTER_PORT. A node with another value waits
    until its time-out of ten minutes and more.

    ## How it decides
    MASTER_ADDR, MASTER_PORT, VLLM_DP_MASTER_IP and VLLM_DP_MASTER_PORT of each node, with the
    launch's own over them. A variable that no node has is not judged.

    ## Fix safety
    Manual: the environment of another machine.
    """
    yield from _judged(nodes, launch, [name for name in MASTER if _anywhere(nodes, launch, name)])


@check("cluster-variable-differs", severity="warning", category="cluster_difference", since="0.3")
def variable_differs(nodes: Nodes, launch: Launch | None) -> Iterator[Finding]:
    """Variables that change what an engine does are not the same on all nodes.

    ## Why it matters
    NCCL's ranks must choose the same protocol and the same transport; a variable that was exported
    in one shell makes one node choose another, and the first collective hangs.

    ## How it decides
    All variables of NCCL, Gloo, UCX, vLLM, TensorRT-LLM, torch and CUDA that a node has and another
    lacks or has with another value. Left out are those that belong to one node (VLLM_HOST_IP, ranks,
    CUDA_VISIBLE_DEVICES, the names of interfaces), secrets, and what other checks tell. Variables
    that differ on the same nodes are one finding.

    ## Fix safety
    Manual: the environment of another machine.
    """
    names: set[str] = set()
    for node in nodes.nodes:
        found = variables(node, launch)
        names |= set() if isinstance(found, Missing) else set(found)
    wanted = [
        name
        for name in sorted(names - {*MASTER, *IFNAMES})
        if SAME.fullmatch(name) and not OWN.fullmatch(name)
    ]
    yield from _judged(nodes, launch, wanted)


def _anywhere(nodes: Nodes, launch: Launch | None, name: str) -> bool:
    found = (variables(node, launch) for node in nodes.nodes)
    return any(name in row for row in found if not isinstance(row, Missing))


def _judged(nodes: Nodes, launch: Launch | None, names: list[str]) -> Iterator[Finding]:
    def environment(node: Node) -> Reading:
        found = variables(node, launch)
        return found if isinstance(found, Missing) else Value(text="read", source="")

    quantities = [_variable(name, launch) for name in names]
    known = Quantity(name="the environment", read=environment)
    yield from judge(nodes, quantities or [known], together="variables")


def _variable(name: str, launch: Launch | None) -> Quantity:
    def read(node: Node) -> Reading:
        found = variables(node, launch)
        if isinstance(found, Missing):
            return found
        return Value(text=found.get(name, "not set"), source="environment")

    def cure(odd: str, most: str) -> Fix:
        if "==" in most:
            return advise("same-variables", f"Set the same variables on {odd} as on the others")
        if most == "not set":
            return advise("same-variables", f"Take {name} out on {odd}", f"unset {name}")
        return advise("same-variables", f"Set {name}={most} on {odd}", f"export {name}={most}")

    return Quantity(name=name, read=read, cure=cure)
