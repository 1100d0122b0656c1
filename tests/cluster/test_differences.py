"""One field of one of N snapshots is changed: it is always found, and exactly once."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import cluster
import model_folder
import pytest
from cluster import Document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infer_doctor.cluster.compare import Compared, Group
from infer_doctor.cluster.reading import Reader, ReadNode
from infer_doctor.examine import Examination
from infer_doctor.hands.model_files import model_files
from infer_doctor.model import CheckResult
from infer_doctor.registry import load

REGISTRY = load()
CLUSTER = [check for id, check in REGISTRY.checks.items() if id.startswith("cluster-")]
BASE = cluster.document()
PACKAGES = sorted(
    row["name"]
    for row in cluster.value(BASE, "distributions")["distributions"]
    if row["name"] and row["version"]
)
MOST = 7
MODEL = "/models/m"
LAUNCH = ["vllm", "serve", MODEL, "--tensor-parallel-size", "2"]


def text(made: Document) -> str:
    return json.dumps(made, indent=1) + "\n"


@cache
def model() -> Any:
    """What the hands find in a folder with a model."""
    with tempfile.TemporaryDirectory() as folder:
        return model_files(str(model_folder.folder(Path(folder) / "m", generation_config={"a": 1})))


@cache
def equal(number: int, count: int) -> str:
    """Node `number` of `count` like ones: all that a check of a cluster looks at is there."""
    made = cluster.met(cluster.with_rdma(cluster.node(number, BASE)), number, count)
    cluster.add_asked(made, "stat", cluster.FOLDER, path=MODEL)
    cluster.add_asked(made, "model_files", model(), path=MODEL)
    return text(made)


def judged(count: int, **changed: Document) -> list[CheckResult]:
    """Equal nodes n0, n1, ..., of which some are changed."""
    reader = Reader()
    rows = [
        ReadNode(
            name=f"n{i}",
            snapshot=reader.read(text(changed[f"n{i}"]) if f"n{i}" in changed else equal(i, count)),
        )
        for i in range(count)
    ]
    return Examination.of(REGISTRY, cluster=rows, command=LAUNCH).run(CLUSTER)


def _package(name: str) -> Callable[[Document], None]:
    def change(node: Document) -> None:
        found = cluster.value(node, "distributions")["distributions"]
        row = next(row for row in found if row["name"] == name)
        row["version"] += ".post9"

    return change


def _uninstalled(name: str) -> Callable[[Document], None]:
    def change(node: Document) -> None:
        answer = cluster.value(node, "distributions")
        answer["distributions"] = [row for row in answer["distributions"] if row["name"] != name]

    return change


def _driver(node: Document) -> None:
    cluster.value(node, "nvml")["driver"] = "590.1.2"


def _gpu_model(node: Document) -> None:
    cluster.value(node, "nvml")["gpus"][0]["Name"] = "NVIDIA H100 80GB HBM3"


def _gpu_gone(node: Document) -> None:
    del cluster.value(node, "nvml")["gpus"][1]


def _gpu_memory(node: Document) -> None:
    for gpu in cluster.value(node, "nvml")["gpus"]:
        gpu["MemoryInfo_v2"]["total"] //= 2


def _mig(node: Document) -> None:
    cluster.value(node, "nvml")["gpus"][1]["MigMode"] = [1, 1]


def _variable(name: str, text: str | None) -> Callable[[Document], None]:
    def change(node: Document) -> None:
        variables = cluster.value(node, "environ")["variables"]
        if text is None:
            del variables[name]
        else:
            variables[name] = text

    return change


def _limit(name: str) -> Callable[[Document], None]:
    def change(node: Document) -> None:
        cluster.value(node, "limits")[name] = [4242, 4242]

    return change


def _locked(node: Document) -> None:
    """Without CAP_IPC_LOCK, beside which the limit is none."""
    _limit("memlock")(node)
    status = cluster.value(node, "read", path="/proc/self/status")
    status["text"] = re.sub(r"CapEff:\s*\w+", f"CapEff:\t{0:016x}", status["text"])


def _clock(node: Document) -> None:
    cluster.value(node, "clock")["synchronised"] = False


def _interface(**fields: Any) -> Callable[[Document], None]:
    def change(node: Document) -> None:
        cluster.value(node, "interfaces")["interfaces"][0] |= fields

    return change


def _subnet(node: Document) -> None:
    address = cluster.value(node, "interfaces")["interfaces"][0]["addresses"][0]
    address["network"] = "<ip:bb.0>"


def _name(node: Document) -> None:
    cluster.value(node, "own_name")["addresses"] = ["127.0.1.1"]


def _text(path: str, old: str, new: str) -> Callable[[Document], None]:
    """A file of the machine with other words in it."""

    def change(node: Document) -> None:
        answer = cluster.value(node, "read", path=path)
        assert old in answer["text"]
        answer["text"] = answer["text"].replace(old, new)

    return change


def _python(node: Document) -> None:
    """The same environment, of another Python."""
    other = json.dumps(node).replace("python3.12", "python3.11").replace("3.12.3", "3.11.9")
    node.update(json.loads(other))


def _library_mark(node: Document) -> None:
    """Another copy of NCCL in the place of the package's own."""
    marks = cluster.value(node, "library_marks")["marks"]
    (row,) = [row for row in marks if isinstance(row, list) and "NCCL" in str(row)]
    row[:] = ["NCCL version 2.21.5"]


def _rdma_gone(node: Document) -> None:
    cluster.value(node, "list", path="/sys/class/infiniband")["names"].pop()


def _rdma_closed(node: Document) -> None:
    cluster.value(node, "list", path="/dev/infiniband")["names"].clear()


def _direct_gone(node: Document) -> None:
    for path in ("/sys/module/nvidia_peermem", "/sys/module/nv_peer_mem"):
        cluster.add_asked(node, "stat", None, path=path)
        row = node["captures"][-1]
        del row["value"]
        row["error"] = {"code": "ENOENT", "message": "No such file or directory"}


def _config(node: Document) -> None:
    cluster.value(node, "model_files")["json"]["config.json"]["rope_theta"] = 5e5


def _tokenizer(node: Document) -> None:
    cluster.value(node, "model_files")["files"]["tokenizer.json"] += 7


def _shard(change: str) -> Callable[[Document], None]:
    def apply(node: Document) -> None:
        found = cluster.value(node, "model_files")
        name = sorted(file for file in found["files"] if file.endswith(".safetensors"))[-1]
        if change == "gone":
            del found["files"][name]
        else:
            found["files"][name] //= 2

    return apply


def _link(**fields: Any) -> Callable[[Document], None]:
    def change(node: Document) -> None:
        cluster.value(node, "links")["rows"][0] |= fields

    return change


def _rank(**fields: Any) -> Callable[[Document], None]:
    def change(node: Document) -> None:
        cluster.value(node, "allreduce")["ranks"][1] |= fields

    return change


VENV = "/opt/venv/lib/python3.12/site-packages"


def _other_address(node: Document) -> None:
    cluster.value(node, "environ")["variables"]["VLLM_HOST_IP"] = "<ip:cc.1>"


SINGLE: list[tuple[str, Callable[[Document], None]]] = [
    ("driver", _driver),
    ("GPU model", _gpu_model),
    ("a GPU less", _gpu_gone),
    ("GPU memory", _gpu_memory),
    ("MIG", _mig),
    ("locked memory", _locked),
    ("open files", _limit("nofile")),
    ("clock", _clock),
    ("interface renamed", _interface(name="ens7")),
    ("interface down", _interface(up=False)),
    ("subnet", _subnet),
    ("name", _name),
    ("address of another", _other_address),
    ("no master", _variable("MASTER_ADDR", None)),
    ("torch's CUDA", _text(f"{VENV}/torch/version.py", "'13.0'", "'12.9'")),
    ("Python", _python),
    ("NCCL's file", _library_mark),
    ("an RDMA device less", _rdma_gone),
    ("RDMA that no process can open", _rdma_closed),
    ("GPUDirect", _direct_gone),
    ("config of the model", _config),
    ("tokenizer", _tokenizer),
    ("a shard less", _shard("gone")),
    ("a shard cut", _shard("cut")),
    ("a blocked link", _link(error="timed out", connect_ms=None, bytes_per_s=None)),
    ("a rank that fails", _rank(step="all_reduce", error="RuntimeError: x", failed_s=1.0)),
    ("a rank that hangs", _rank(step="all_reduce")),
    ("a wrong sum", _rank(wrong=3)),
]

CHANGES = st.one_of(
    st.sampled_from(PACKAGES).map(lambda name: (f"version of {name}", _package(name))),
    st.sampled_from(PACKAGES).map(lambda name: (f"no {name}", _uninstalled(name))),
    st.sampled_from(SINGLE),
    st.tuples(
        st.sampled_from(
            [
                "NCCL_P2P_DISABLE",
                "NCCL_ALGO",
                "NCCL_IB_HCA",
                "VLLM_USE_V1",
                "VLLM_ATTENTION_BACKEND",
                "UCX_TLS",
                "MASTER_PORT",
                "TLLM_LOG_LEVEL",
                "TORCH_CUDA_ARCH_LIST",
                "PYTORCH_CUDA_ALLOC_CONF",
                "CUDA_DEVICE_MAX_CONNECTIONS",
                "OMP_NUM_THREADS",
                "HF_HUB_OFFLINE",
                "LD_PRELOAD",
            ]
        ),
        st.text("abcdef0123456789", min_size=1, max_size=6),
    ).map(lambda pair: (f"{pair[0]}={pair[1]}", _variable(*pair))),
)


def test_equal_nodes_have_no_finding() -> None:
    results = judged(4)
    assert [(row.check, row.reason) for row in results if row.outcome == "blocked"] == []
    assert [row for row in results if row.outcome in ("failed", "crashed")] == []
    assert {row.subject for row in results} == {"cluster"}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), count=st.integers(3, MOST), change=CHANGES)
def test_one_change_is_found_exactly_once(
    data: st.DataObject, count: int, change: tuple[str, Callable[[Document], None]]
) -> None:
    odd = data.draw(st.integers(0, count - 1))
    made = json.loads(equal(odd, count))
    change[1](made)
    results = judged(count, **{f"n{odd}": made})
    found = [finding for row in results for finding in row.findings]
    assert [row.reason for row in results if row.outcome == "crashed"] == []
    assert len(found) == 1, (change[0], [(f.check, f.message) for f in found])
    assert f"n{odd}" in found[0].message
    others = [f"n{i}" for i in range(count) if i != odd]
    assert not any(f"{name}," in found[0].about for name in others)


def test_each_change_of_the_list_is_drawn() -> None:
    """By hand, once each: a hundred random examples may leave some out."""
    for name, change in SINGLE:
        made = json.loads(equal(1, 4))
        change(made)
        found = [finding for row in judged(4, n1=made) for finding in row.findings]
        assert len(found) == 1, (name, [(f.check, f.message) for f in found])
        assert "n1" in found[0].message, name


def test_what_differs_by_nature_is_no_finding() -> None:
    """Kernels, clocks within their bounds, serials, bus addresses, free memory, a head without GPUs."""
    changed: dict[str, Document] = {}
    for i in range(6):
        made = json.loads(equal(i, 6))
        cluster.value(made, "identity")["kernel"] = f"6.8.0-{40 + i}-generic"
        cluster.value(made, "clock")["max_error_us"] = 1000 * (i + 1)
        for index, gpu in enumerate(cluster.value(made, "nvml")["gpus"]):
            gpu["Serial"] = f"16{i}{index}"
            gpu["PciInfo"]["busId"] = f"00000000:{i + 1:02X}:0{index}.0"
        meminfo = cluster.value(made, "read", path="/proc/meminfo")
        meminfo["text"] = meminfo["text"].replace("MemFree:        2617", f"MemFree:        2{i}17")
        changed[f"n{i}"] = made
    head = changed["n0"]
    error = {"code": "ENOENT", "message": "libnvidia-ml.so.1: cannot open shared object file"}
    cluster.add_asked(head, "nvml", {"error": error})
    cluster.add_asked(head, "pci", {"devices": 8, "nvidia": []})
    cluster.value(head, "identity")["devices"] = []
    for folder in ("/sys/class/infiniband", "/dev/infiniband"):
        cluster.value(head, "list", path=folder)["names"] = []
    for i in range(6):
        answer = cluster.value(changed[f"n{i}"], "allreduce")
        answer["counts"] = [0, 2, 2, 2, 2, 2]
        answer["ranks"] = [] if i == 0 else answer["ranks"]
        for number, row in enumerate(answer["ranks"]):
            row["rank"] = 2 * (i - 1) + number
    results = judged(6, **changed)
    assert [(f.check, f.message) for row in results for f in row.findings] == []
    undecided = [
        (row.check, row.reason) for row in results if row.outcome in ("blocked", "crashed")
    ]
    assert undecided == []


def test_two_odd_ones_are_two_findings_and_three_kinds_a_tie() -> None:
    odd = {name: json.loads(equal(int(name[1]), 7)) for name in ("n1", "n5")}
    cluster.value(odd["n1"], "nvml")["driver"] = "570.1.1"
    cluster.value(odd["n5"], "nvml")["driver"] = "590.1.2"
    found = [finding for row in judged(7, **odd) for finding in row.findings]
    assert sorted(finding.message for finding in found) == [
        "the driver is 570.1.1 on n1; 580.159.04 on 5 other nodes",
        "the driver is 590.1.2 on n5; 580.159.04 on 5 other nodes",
    ]
    three = {f"n{i}": json.loads(equal(i, 6)) for i in range(6)}
    for i in range(6):
        cluster.value(three[f"n{i}"], "nvml")["driver"] = f"58{i // 2}.1.1"
    (tie,) = [finding for row in judged(6, **three) for finding in row.findings]
    assert tie.message == (
        "the driver differs, and no value is that of most nodes: 580.1.1 on n0 and n1; "
        "581.1.1 on n2 and n3; 582.1.1 on n4 and n5"
    )
    assert tie.fixes == ()


@pytest.mark.parametrize("count", [2, 4])
def test_a_tie_is_told_as_a_tie(count: int) -> None:
    changed = {f"n{i}": json.loads(equal(i, count)) for i in range(count // 2, count)}
    for made in changed.values():
        _driver(made)
    (found,) = [finding for row in judged(count, **changed) for finding in row.findings]
    assert "no value is that of most nodes" in found.message
    assert all(f"n{i}" in found.message for i in range(count))
    assert found.fixes == ()


def test_two_of_five_are_not_most() -> None:
    groups = [Group(text=t, source="", nodes=n) for t, n in (("a", ("n0", "n1")), ("b", ("n2",)))]
    more = [Group(text=t, source="", nodes=(f"n{t}",)) for t in ("3", "4")]
    assert not Compared(groups=tuple(groups), unknown=(), absent=()).tie
    assert Compared(groups=(*groups, *more), unknown=(), absent=()).tie
