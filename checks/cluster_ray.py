"""A Ray cluster: who answered, and whether Ray's resources are what is there and what is needed."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.cluster.compare import advise
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.gpu import Gpus
from infer_doctor.facts.nodes import Nodes
from infer_doctor.facts.ray import RayNode
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import evidence, whole
from infer_doctor.launch.model import Launch
from infer_doctor.model import Evidence, Finding, Missing
from infer_doctor.registry import check
from infer_doctor.units import names, plural

SIZES = ("tensor_parallel_size", "pipeline_parallel_size")


@check("cluster-node-silent", severity="warning", category="cluster_difference", since="0.3")
def node_silent(nodes: Nodes) -> Iterator[Finding]:
    """A node of the cluster is dead, or did not answer, so that nothing is known of it.

    ## Why it matters
    A verdict over a cluster holds for the nodes that were seen. One that hangs or is dead is the
    first suspect when the others are healthy.

    ## How it decides
    Each node has to hand back its facts within the time limit (--timeout). One that said nothing, or
    whose task failed, leaves this check undecided and the verdict unknown, with each such node and
    its reason: why it is silent was not seen. Where only nodes are missing that Ray itself lists as
    dead, that is the finding; an autoscaler leaves such rows too, so it is only likely.

    ## Fix safety
    Manual: a machine or its Ray.
    """
    silent = {node.name: node.silence for node in nodes.nodes if node.silence is not None}
    rows = {node.name: node.fact(RayNode) for node in nodes.nodes}
    dead = [name for name in silent if (row := rows[name]) is not None and not row.alive]
    if len(dead) < len(silent):
        raise Unavailable("; ".join(f"{name}: {why}" for name, why in list(silent.items())[:10]))
    if dead:
        yield Finding(
            about=f"nodes {' '.join(dead[:20])}",
            message=f"Ray lists {names(dead)} as dead; {plural(len(rows) - len(dead), 'node')} answered",
            confidence="likely",
            evidence=(
                Evidence(source="ray.nodes()", excerpt=f"Alive: False: {', '.join(dead[:20])}"),
            ),
            fixes=(
                advise("start-node", f"Start Ray on {names(dead)} again, or leave it out for good"),
            ),
        )


@check("cluster-ray-gpus-differ", severity="error", category="gpu_count_ray", since="0.3")
def ray_gpus_differ(nodes: Nodes) -> Iterator[Finding]:
    """Ray gives out another number of GPUs on a node than NVML lists there.

    ## Why it matters
    Ray counts GPUs once, when it is started on a node, by what it sees then: in a container without
    the devices, or with CUDA_VISIBLE_DEVICES set, it has fewer or none, and the engine waits for a
    placement group. With more than there are, a rank gets a GPU that does not exist.

    ## How it decides
    The resource "GPU" of ray.nodes() against the GPUs that NVML lists on the same node. Fewer in Ray
    than in NVML may be on purpose (`ray start --num-gpus`), so that is a warning.

    ## Fix safety
    Manual: Ray is started anew on that node.
    """
    unknown: list[str] = []
    alike: dict[tuple[float, int], list[str]] = {}
    asked = found = 0
    for node in nodes.nodes:
        row, gpus = node.get(RayNode), node.get(Gpus)
        if isinstance(row, Missing) or not row.alive:
            continue
        asked += 1
        if isinstance(gpus, Missing) and gpus.kind != "absent":
            unknown.append(f"the GPUs of {node.name} are not known: {gpus.reason}")
            continue
        there = 0 if isinstance(gpus, Missing) else len(gpus.gpus)
        if row.gpus != there:
            alike.setdefault((row.gpus, there), []).append(node.name)
    for (has, there), odd in alike.items():
        found += 1
        yield Finding(
            about=f"Ray's GPUs of {' '.join(odd[:20])}",
            message=f"Ray gives out {has:g} GPUs on {names(odd)}; NVML lists {there} there",
            severity="error" if has > there else "warning",
            confidence="certain" if has > there else "likely",
            evidence=(
                Evidence(source="ray.nodes()", excerpt=f"GPU: {has:g}"),
                Evidence(source="NVML", excerpt=plural(there, "GPU")),
            ),
            fixes=(
                advise(
                    "restart-ray",
                    f"Stop Ray on {names(odd)} and start it where all {plural(there, 'GPU')} are seen",
                ),
            ),
        )
    if not asked:
        raise NotApplicable("the nodes were not asked through Ray")
    if not found and unknown:
        raise Unavailable(unknown[0])


@check("cluster-ray-placement", severity="error", category="gpu_count_ray", since="0.3")
def ray_placement(nodes: Nodes, launch: Launch) -> Iterator[Finding]:
    """Ray has fewer GPUs than the launch has ranks, or no node has room for a tensor-parallel group.

    ## Why it matters
    vLLM asks Ray for one bundle for each rank. When they cannot be placed it waits, then stops with
    "Current node has no GPU available" or "placement group ... cannot be created". A
    tensor-parallel group over several nodes sums every layer over the network.

    ## How it decides
    Tensor x pipeline parallel size against the resource "GPU" of all nodes that are alive; then the
    tensor parallel size against the largest number on one node (a warning).

    ## Fix safety
    Manual: other sizes, or more nodes.
    """
    rows = {node.name: node.fact(RayNode) for node in nodes.nodes}
    gpus = {name: row.gpus for name, row in rows.items() if row is not None and row.alive}
    if not gpus:
        raise NotApplicable("the nodes were not asked through Ray")
    options = next((o for o in (n.fact(EngineOptions) for n in nodes.nodes) if o is not None), None)
    if options is None:
        raise Unavailable("the options of the launch are not known")
    tensor, pipeline = (whole(options, name, 1) for name in SIZES)
    ranks, total, most = tensor * pipeline, sum(gpus.values()), max(gpus.values())
    where = (
        *evidence(options, *SIZES),
        Evidence(
            source="ray.nodes()",
            excerpt=", ".join(f"{name} {count:g}" for name, count in list(gpus.items())[:20]),
        ),
    )
    if total < ranks:
        yield Finding(
            about="Ray's GPUs",
            message=f"tensor {tensor} x pipeline {pipeline} needs {plural(ranks, 'GPU')}; "
            f"Ray gives out {total:g} on {plural(len(gpus), 'node')}",
            evidence=where,
            fixes=(
                advise("fewer-ranks", f"Start with at most {total:g} ranks, or add nodes to Ray"),
            ),
        )
    elif tensor > most:
        sizes = (size for size in range(1, int(most) + 1) if tensor % size == 0)
        fits = max(sizes, default=1)
        yield Finding(
            about="tensor parallel group",
            message=f"tensor parallel size {tensor} does not fit on one node, which has {most:g} GPUs "
            "at most: every layer is summed over the network",
            severity="warning",
            evidence=where,
            fixes=(
                advise(
                    "pipeline-between-nodes",
                    f"Start with --tensor-parallel-size {fits} and --pipeline-parallel-size "
                    f"{ranks // fits}",
                ),
            ),
        )
