"""A launch for a machine of which nothing is known here."""

from __future__ import annotations

from dataclasses import replace

from infer_doctor.checks.launch_machine import machine_unknown
from infer_doctor.facts.gpu import Gpu, Gpus
from infer_doctor.launch.command import read
from infer_doctor.launch.model import Place
from infer_doctor.testing import contract, examine

HERE = read(["vllm", "serve", "m", "--tensor-parallel-size", "2"])
THERE = replace(HERE, machine="another", kind="compose", place=Place(file="c.yaml", line=3))
KNOWN = Gpus(gpus=(Gpu(index=0, name="NVIDIA H200", uuid="GPU-1", bus_id=None),), source="NVML")


def test_contract() -> None:
    contract(machine_unknown, fires=[THERE], passes=[HERE])


def test_known_gpus_are_judged_elsewhere() -> None:
    assert examine(machine_unknown, THERE, KNOWN).outcome == "passed"


def test_message_names_the_ranks_and_the_way_out() -> None:
    (finding,) = examine(machine_unknown, THERE).findings
    assert finding.message.endswith("were not judged; it starts 2 ranks, a GPU each")
    assert (finding.evidence[0].source, finding.evidence[0].line) == ("c.yaml", 3)
    assert finding.fixes[0].actions[1].text == "infer-doctor check c.yaml --snapshot host.json"


def test_a_size_that_is_not_known_is_not_named() -> None:
    open_ended = replace(THERE, words=read(["vllm", "serve", "m", "-tp", "$N"]).words)
    (finding,) = examine(machine_unknown, open_ended).findings
    assert "rank" not in finding.message
