"""Snapshots of many nodes out of the one of a real machine, with what differs from node to node."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infer_doctor.host import TEXT_LIMIT

CASES = Path(__file__).parent.parent / "cases"
KEY = "0123456789"

FOLDER = {"kind": "folder", "mode": 493, "uid": 0, "size": 0, "writable": True, "executable": True}

Document = dict[str, Any]


def document(case: str = "h200-x2") -> Document:
    loaded: Document = json.loads((CASES / case / "snapshot.json").read_text())
    return loaded


def rows(node: Document, operation: str, **arguments: Any) -> list[dict[str, Any]]:
    return [
        row
        for row in node["captures"]
        if row["operation"] == operation
        and all(row["arguments"].get(name) == value for name, value in arguments.items())
    ]


def value(node: Document, operation: str, **arguments: Any) -> Any:
    return rows(node, operation, **arguments)[0]["value"]


def add(node: Document, operation: str, answer: object) -> None:
    node["captures"].append(
        {
            "operation": operation,
            "arguments": {},
            "version": 1,
            "value": answer,
            "duration_ms": 0.5,
        }
    )


def interface(name: str, network: str, host: int) -> dict[str, Any]:
    return {
        "name": name,
        "up": True,
        "running": True,
        "loopback": False,
        "mtu": 9000,
        "speed": 100_000,
        "addresses": [
            {"address": f"<ip:{network}.a{host:06x}>", "network": f"<ip:{network}.0>", "prefix": 24}
        ],
    }


def node(number: int, base: Document | None = None) -> Document:
    """The machine as node `number`: its own name, GPUs, addresses and loads."""
    made = copy.deepcopy(base or document())
    made["options"] |= {"redact_key": KEY, "machine": f"{number:012x}"}
    value(made, "identity")["hostname"] = f"<host:{number:010x}>"
    for index, gpu in enumerate(value(made, "nvml")["gpus"]):
        gpu["UUID"] = f"GPU-{number:08x}-{index:04x}-0000-0000-000000000001"
        gpu["MemoryInfo"]["free"] -= 4096 * (number % 7)
    for row in made["captures"]:
        row["duration_ms"] = 0.5 + number % 11
    variables = value(made, "environ")["variables"]
    variables |= {
        "NCCL_SOCKET_IFNAME": "eth",
        "GLOO_SOCKET_IFNAME": "eth0",
        "VLLM_HOST_IP": f"<ip:aa.a{number:06x}>",
        "MASTER_ADDR": "<ip:aa.a000000>",
        "MASTER_PORT": "29500",
    }
    add(made, "interfaces", {"interfaces": [interface("eth0", "aa", number)]})
    add(
        made,
        "own_name",
        {"listed": [], "addresses": [f"<ip:aa.a{number:06x}>"], "error": None},
    )
    add(made, "clock", {"synchronised": True, "max_error_us": 2000})
    return made


def add_asked(node: Document, operation: str, answer: object, **arguments: Any) -> None:
    """The answer to a question, in place of the one that is there."""
    node["captures"] = [
        row
        for row in node["captures"]
        if (row["operation"], row["arguments"]) != (operation, arguments)
    ]
    add(node, operation, answer)
    node["captures"][-1]["arguments"] = arguments


def with_rdma(node: Document, count: int = 2) -> Document:
    """The node with InfiniBand devices that a process can use, and GPUDirect."""
    names = [f"mlx5_{i}" for i in range(count)]

    def listed(path: str, *found: str) -> None:
        add_asked(node, "list", {"names": list(found), "truncated": False}, path=path)

    listed("/sys/class/infiniband", *names)
    listed("/dev/infiniband", *(f"uverbs{i}" for i in range(count)))
    add_asked(node, "stat", FOLDER, path="/sys/module/nvidia_peermem")
    for name in names:
        ports = f"/sys/class/infiniband/{name}/ports"
        listed(ports, "1")
        for file, text in (("state", "4: ACTIVE\n"), ("rate", "400 Gb/sec (4X NDR)\n")):
            answer = {"text": text, "truncated": False}
            add_asked(node, "read", answer, path=f"{ports}/1/{file}", limit=TEXT_LIMIT)
    return node


def met(node: Document, own: int, count: int) -> Document:
    """The node after a meeting of `count`: links to all others, and a sum over InfiniBand."""
    others = [i for i in range(count) if i != own]
    rows = [
        {
            "index": i,
            "error": None,
            "connect_ms": 0.2,
            "bytes_per_s": 1e9 if i == (own + 1) % count else None,
        }
        for i in others
    ]
    add(node, "links", {"own": own, "count": count, "met": count, "rows": rows})
    rank = {"step": "the end", "wrong": 0, "seconds": 0.01, "error": None, "tried_s": 20.0}
    rank |= {"via": ["NET/IB/0/GDRDMA"], "networks": ["IB"], "warnings": [], "set": []}
    add(
        node,
        "allreduce",
        {
            "own": own,
            "backend": "nccl",
            "counts": [2] * count,
            "bytes": 256 << 20,
            "patience_s": 40.0,
            "ranks": [{**rank, "rank": 2 * own}, {**rank, "rank": 2 * own + 1}],
        },
    )
    return node


def write(folder: Path, nodes: list[Document]) -> list[str]:
    """The files in the form that the doctor writes."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, made in enumerate(nodes):
        path = folder / f"node-{number:04d}.json"
        path.write_text(json.dumps(made, indent=1) + "\n")
        paths.append(str(path))
    return paths


def rows_of(paths: list[str], capsys: Any, *words: str) -> dict[str, dict[str, Any]]:
    """The row of each check over all nodes."""
    from infer_doctor.cli import run

    capsys.readouterr()
    run(["check", "--snapshot", *paths, "--select", "cluster-*", "--format", "json", *words])
    report = json.loads(capsys.readouterr().out)
    return {row["check"]: row for row in report["results"]}


def findings_of(
    paths: list[str], capsys: Any, *words: str, select: str = "cluster-*"
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The outcome of each check over all nodes, and the findings."""
    from infer_doctor.cli import run

    capsys.readouterr()
    run(["check", "--snapshot", *paths, "--select", select, "--format", "json", *words])
    report = json.loads(capsys.readouterr().out)
    outcomes = {row["check"]: row["outcome"] for row in report["results"]}
    found = [finding for row in report["results"] for finding in row["findings"]]
    return outcomes, found


Change = Callable[[Document], None]
