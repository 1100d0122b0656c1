"""Software that must be the same on all nodes: driver, engine, torch, Python, libraries, packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infer_doctor.cluster.compare import (
    Quantity,
    Reading,
    Value,
    advise,
    compared,
    fact,
    findings,
    judge,
)
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.libraries import LoadedLibraries
from infer_doctor.facts.nodes import Node, Nodes
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.model import Finding, Fix, Missing, Severity
from infer_doctor.registry import check

LIBRARIES: Mapping[str, tuple[str, Severity]] = {
    "nccl": ("NCCL", "error"),
    "cudnn": ("cuDNN", "warning"),
    "cudart": ("the CUDA runtime", "warning"),
    "cublas": ("cuBLAS", "warning"),
}
"""Names of `catalog/libraries.py`; NCCL's ranks speak its own protocol with each other."""

SPOKEN = ("ray", "pyzmq", "msgspec", "cloudpickle", "torch", "vllm", "tensorrt-llm", "mpi4py")
"""Packages by which the processes of several nodes speak with each other, or whose objects they send."""


@check("cluster-driver-differs", severity="warning", category="cluster_difference", since="0.3")
def driver_differs(nodes: Nodes) -> Iterator[Finding]:
    """The NVIDIA driver is not the same on all nodes.

    ## Why it matters
    The driver decides which CUDA runs, which kernels are compiled just in time and what NCCL can
    use. A node with another driver is the usual answer to "it works on all nodes but this one".

    ## How it decides
    The driver's version of each node, as NVML or /proc/driver/nvidia/version gives it, and the
    CUDA that it offers. What most nodes have is the reference; without a majority all groups are
    told. Nodes without a GPU are left out.

    ## Fix safety
    Manual: a driver is changed on its machine, with a restart.
    """
    yield from judge(
        nodes,
        [
            Quantity(
                name="the driver",
                read=fact(Driver, lambda row: row.version, lambda row: row.evidence.source),
                cure=lambda odd, most: advise(
                    "same-driver", f"Install driver {most} on {odd}, as on the other nodes"
                ),
            )
        ],
    )


@check("cluster-engine-differs", severity="error", category="cluster_difference", since="0.3")
def engine_differs(nodes: Nodes) -> Iterator[Finding]:
    """The engine is not the same on all nodes.

    ## Why it matters
    The ranks of one engine send each other Python objects and expect the same layers in the same
    order. Another version fails at the first message, or sums tensors of other layers.

    ## How it decides
    Name and version of the engine's distribution in the environment of each node.

    ## Fix safety
    Manual: it is installed on another machine.
    """
    yield from judge(nodes, [ENGINE])


def _engine(found: EngineFact) -> str | None:
    return f"{found.name} {found.version}" if found.version else None


ENGINE = Quantity(
    name="the engine",
    read=fact(EngineFact, _engine, lambda row: row.package),
    cure=lambda odd, most: advise(
        "same-engine",
        f"Install {most} on {odd}, as on the other nodes",
        f"pip install {most.replace(' ', '==')}",
    ),
)


@check("cluster-torch-differs", severity="error", category="cluster_difference", since="0.3")
def torch_differs(nodes: Nodes) -> Iterator[Finding]:
    """torch, or the CUDA that it was built for, is not the same on all nodes.

    ## Why it matters
    torch.distributed's ranks must agree on their protocol, and kernels of another build give other
    last digits: with tensor parallelism the ranks then disagree about the token.

    ## How it decides
    Version and CUDA of torch's own version.py on each node.

    ## Fix safety
    Manual: it is installed on another machine.
    """
    yield from judge(nodes, [TORCH])


TORCH = Quantity(
    name="torch",
    read=fact(
        TorchBuild,
        lambda row: f"{row.version} for {f'CUDA {row.cuda}' if row.cuda else row.kind}",
        lambda row: row.source,
    ),
    cure=lambda odd, most: advise(
        "same-torch", f"Install torch {most} on {odd}, as on the other nodes"
    ),
)


@check("cluster-python-differs", severity="error", category="cluster_difference", since="0.3")
def python_differs(nodes: Nodes) -> Iterator[Finding]:
    """Python is not the same on all nodes.

    ## Why it matters
    Ray refuses a node whose Python has another minor version ("Version mismatch"), and what is
    pickled by one may not be read by the other.

    ## How it decides
    The version of the interpreter of each node's environment, "3.12".

    ## Fix safety
    Manual: it is another environment on another machine.
    """
    yield from judge(
        nodes,
        [
            Quantity(
                name="Python",
                read=fact(Interpreter, lambda row: row.version, lambda row: row.executable),
                cure=lambda odd, most: advise(
                    "same-python", f"Make the environment on {odd} with Python {most}"
                ),
            )
        ],
    )


@check("cluster-library-differs", severity="error", category="cluster_difference", since="0.3")
def library_differs(nodes: Nodes) -> Iterator[Finding]:
    """NCCL, cuDNN, cuBLAS or the CUDA runtime is not the same on all nodes.

    ## Why it matters
    Ranks with different NCCL stop with "NCCL version mismatch" or hang in their first collective;
    other copies of cuBLAS and cuDNN compute other last digits.

    ## How it decides
    The copy that the engine's process would load on each node, as glibc's loader finds it, and
    the version that the copy itself or the package that owns it tells. NCCL is an error, the others
    a warning.

    ## Fix safety
    Manual: a package of another machine.
    """
    yield from judge(nodes, [_library(name) for name in LIBRARIES])


def _library(name: str) -> Quantity:
    title, severity = LIBRARIES[name]

    def read(node: Node) -> Reading:
        found = node.get(LoadedLibraries)
        if isinstance(found, Missing):
            return found
        row = next((row for row in found.rows if row.copy.library == name), None)
        if row is None:
            return Missing(
                fact="LoadedLibraries", reason=f"no {title} is loaded", kind="unavailable"
            )
        if row.copy.version is None:
            return Missing(
                fact="LoadedLibraries", reason=f"{row.path} tells no version", kind="unavailable"
            )
        return Value(text=row.copy.version, source=row.path)

    return Quantity(
        name=title,
        read=read,
        severity=severity,
        cure=lambda odd, most: advise(
            f"same-{name}", f"Install {title.removeprefix('the ')} {most} on {odd}"
        ),
    )


@check("cluster-package-differs", severity="warning", category="cluster_difference", since="0.3")
def package_differs(nodes: Nodes) -> Iterator[Finding]:
    """Python packages are not the same on all nodes.

    ## Why it matters
    Nodes that were built at different times differ in small things: a transformers that reads a
    configuration in another way, a Ray that another Ray does not talk to.

    ## How it decides
    Every distribution in the environment of each node, missing ones too. Packages that differ on
    the same nodes in the same way are one finding. What another cluster check tells (the engine,
    torch, the owners of CUDA libraries that differ) is left out. Ray and the packages by which
    processes of several nodes speak are an error.

    ## Fix safety
    Manual: it is installed on another machine.
    """
    tables = {id(found): found.by_name for found in _environments(nodes)}
    told = _told(nodes)
    names = sorted({name for table in tables.values() for name in table} - told)
    differing = [
        name
        for name in names
        if len({table[name].version if name in table else None for table in tables.values()}) > 1
    ]
    quantities = [_package(name) for name in differing]
    yield from judge(nodes, quantities or [ENVIRONMENT], together="packages")


def _environments(nodes: Nodes) -> Iterator[Distributions]:
    for node in nodes.nodes:
        if (found := node.fact(Distributions)) is not None:
            yield found


def _readable(node: Node) -> Distributions | Missing:
    found: Distributions | Missing = node.get(Distributions)
    if not isinstance(found, Missing) and found.gaps:
        return Missing(fact="Distributions", reason=found.gaps[0], kind="unavailable")
    return found


def _environment(node: Node) -> Reading:
    found = _readable(node)
    return found if isinstance(found, Missing) else Value(text="read", source=found.source)


ENVIRONMENT = Quantity(name="the environment", read=_environment)
"""When no package differs: what could not be read still counts."""


def _package(name: str) -> Quantity:
    def read(node: Node) -> Reading:
        found = _readable(node)
        if isinstance(found, Missing):
            return found
        row = found.by_name.get(name)
        return Value(text=row.version if row else "missing", source=found.source)

    def cure(odd: str, most: str) -> Fix:
        words = [word if "==" in word else f"{name}=={word}" for word in most.split()]
        words = [word for word in words if not word.endswith("==missing")]
        return advise(
            "same-packages",
            f"Install on {odd} what the other nodes have",
            f"pip install {' '.join(words[:20])}" if words else None,
        )

    spoken: Severity | None = "error" if name in SPOKEN else None
    return Quantity(name=name, read=read, severity=spoken, cure=cure)


def _told(nodes: Nodes) -> set[str]:
    """Packages whose difference the other checks of this module tell."""
    told: set[str] = set()
    for quantity, kind in ((ENGINE, EngineFact), (TORCH, TorchBuild)):
        if list(findings(quantity, compared(nodes, quantity.read))):
            for node in nodes.nodes:
                if kind is TorchBuild:
                    told.add("torch")
                elif (found := node.fact(EngineFact)) is not None and found.distribution:
                    told.add(found.distribution)
    for name in LIBRARIES:
        quantity = _library(name)
        if list(findings(quantity, compared(nodes, quantity.read))):
            for node in nodes.nodes:
                loaded = node.fact(LoadedLibraries)
                for row in loaded.rows if loaded else ():
                    if row.copy.library == name and row.copy.owner:
                        told.add(row.copy.owner.partition(" ")[0].lower())
    return told
