"""Snapshots of many nodes out of the one of a real machine, with what differs from node to node."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent.parent / "cases"
KEY = "0123456789"

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
