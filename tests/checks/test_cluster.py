"""Checks over many machines: the odd one out is named, the majority is the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from nodes import alike, node, nodes, proven, silent

from infer_doctor.checks.cluster_addresses import address_shared, name_loopback
from infer_doctor.checks.cluster_links import link_slow, peer_unreachable
from infer_doctor.checks.cluster_machines import (
    clock_unset,
    gpu_differs,
    gpus_few,
    limits_differ,
    rdma_differs,
)
from infer_doctor.checks.cluster_model import model_differs
from infer_doctor.checks.cluster_network import interface_missing, subnet_differs
from infer_doctor.checks.cluster_ray import node_silent, ray_gpus_differ, ray_placement
from infer_doctor.checks.cluster_variables import master_differs, variable_differs
from infer_doctor.checks.cluster_versions import (
    driver_differs,
    engine_differs,
    library_differs,
    package_differs,
    python_differs,
    torch_differs,
)
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.engine_options import EngineOptions, Option
from infer_doctor.facts.environment import Distribution, Distributions, Interpreter
from infer_doctor.facts.gpu import Gpu, Gpus
from infer_doctor.facts.libraries import LibraryCopy, LoadedLibraries, LoadedLibrary
from infer_doctor.facts.limits import Limit, LockRight, ProcessLimits, Rdma
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_files import ModelFile, ModelFiles
from infer_doctor.facts.network import (
    Address,
    ClockState,
    GpuDirect,
    Interface,
    Interfaces,
    OwnName,
)
from infer_doctor.facts.nodes import Nodes
from infer_doctor.facts.peers import PeerLink, PeerLinks
from infer_doctor.facts.ray import RayNode
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.launch.command import read as launch_of
from infer_doctor.launch.model import Launch, Place
from infer_doctor.model import CheckResult, Evidence
from infer_doctor.testing import contract, examine


def driver(version: str) -> Driver:
    return Driver(version=version, cuda=(13, 0), evidence=Evidence(source="NVML"))


def engine(version: str) -> EngineFact:
    return EngineFact(
        name="vllm",
        version=version,
        distribution="vllm",
        package="/venv/vllm",
        build="cuda",
    )


def torch(version: str, cuda: str | None = "13.0") -> TorchBuild:
    return TorchBuild(version=version, cuda=cuda, source="/venv/torch/version.py")


def python(version: str) -> Interpreter:
    return Interpreter(
        executable="/venv/bin/python",
        version=version,
        full_version=None,
        prefix="/venv",
        base_prefix="/usr",
        kind="venv",
        found_by="given",
        folders=(),
        site="/venv/site",
        include="",
        managed=False,
    )


def packages(gaps: tuple[str, ...] = (), **versions: str) -> Distributions:
    rows = {
        name: Distribution(
            name=name,
            written_name=name,
            version=version,
            requires=(),
            requires_python=None,
            installer=None,
            project=None,
            record=True,
            metadata="",
        )
        for name, version in versions.items()
    }
    return Distributions(by_name=rows, shadowed=(), shared=(), source="/venv/site", gaps=gaps)


def libraries(**versions: str | None) -> LoadedLibraries:
    return LoadedLibraries(
        rows=tuple(
            LoadedLibrary(
                copy=LibraryCopy(
                    library=name,
                    path=f"/venv/lib{name}.so",
                    real=f"/venv/lib{name}.so",
                    soname=None,
                    version=version,
                    version_from="the distribution",
                    owner=f"nvidia-{name}-cu13",
                ),
                name=f"lib{name}.so",
                path=f"/venv/lib{name}.so",
                found_by="RPATH",
                needed_by="torch",
            )
            for name, version in versions.items()
        ),
        failures=(),
    )


def gpus(*names: str) -> Gpus:
    return Gpus(
        gpus=tuple(Gpu(index=i, name=name, uuid=None, bus_id=None) for i, name in enumerate(names)),
        source="NVML",
    )


def environ(**variables: str) -> Environ:
    return Environ(variables=variables)


def interfaces(
    name: str = "eth0", network: str = "10.0.0.0", address: str = "10.0.0.1", *, up: bool = True
) -> Interfaces:
    rows = (Address(address=address, network=network, prefix=24),) if address else ()
    return Interfaces(
        rows=(
            Interface(
                name=name,
                up=up,
                running=up,
                loopback=False,
                mtu=1500,
                speed=None,
                addresses=rows,
            ),
        )
    )


def limits(memlock: int | None, nofile: int) -> ProcessLimits:
    return ProcessLimits(
        memlock=Limit(soft=memlock, hard=memlock), nofile=Limit(soft=nofile, hard=nofile)
    )


def model(*names: str, config: dict[str, Any] | None = None, size: int = 4096) -> ModelFiles:
    return ModelFiles(
        model="/m",
        origin="folder",
        folder="/m",
        config=config,
        files=tuple(ModelFile(name=name, size=size) for name in names),
        documents={"config.json": config} if config else {},
    )


def meeting(*broken: tuple[int, int], slow: int | None = None, count: int = 4) -> Nodes:
    """n0, n1, ... that all met; `broken` are pairs of from and to, `slow` sends at a tenth."""
    rows = []
    for own in range(count):
        links = tuple(
            PeerLink(
                index=other,
                error="timed out" if (own, other) in broken else None,
                connect_ms=0.2,
                bytes_per_s=(1e8 if own == slow else 1e9) if other == (own + 1) % count else None,
            )
            for other in range(count)
            if other != own
        )
        rows.append(node(f"n{own}", PeerLinks(own=own, count=count, met=count, rows=links)))
    return nodes(*rows)


def ray_node(gpus: float) -> RayNode:
    return RayNode(id="3f2a", alive=True, gpus=gpus)


def launch(*words: str) -> Launch:
    found = launch_of(["vllm", "serve", "m", *words])
    assert found is not None
    return found


def options(**sizes: int) -> EngineOptions:
    given = {
        name: Option(
            name=name,
            flag=f"--{name.replace('_', '-')}",
            value=size,
            text=str(size),
            place=Place(file="command line"),
        )
        for name, size in sizes.items()
    }
    return EngineOptions(
        engine="vllm",
        version="0.26.0",
        basis="installed source",
        exact=True,
        entry="serve",
        model=None,
        given=given,
    )


def messages(result: CheckResult) -> list[str]:
    assert result.outcome == "failed", (result.outcome, result.reason)
    return [finding.message for finding in result.findings]


class TestContract:
    def test_driver(self) -> None:
        fires = alike(driver("580.1"), odd=driver("570.2"))
        contract(driver_differs, fires=[fires], passes=[alike(driver("580.1"))])

    def test_engine(self) -> None:
        fires = alike(engine("0.26.0"), odd=engine("0.25.0"))
        contract(engine_differs, fires=[fires], passes=[alike(engine("0.26.0"))])

    def test_torch(self) -> None:
        fires = alike(torch("2.11.0"), odd=torch("2.11.0", "12.9"))
        contract(torch_differs, fires=[fires], passes=[alike(torch("2.11.0"))])

    def test_python(self) -> None:
        fires = alike(python("3.12"), odd=python("3.11"))
        contract(python_differs, fires=[fires], passes=[alike(python("3.12"))])

    def test_library(self) -> None:
        same = libraries(nccl="2.28.9", cudnn="9.1", cudart="13.0", cublas="13.1")
        odd = libraries(nccl="2.27.0", cudnn="9.1", cudart="13.0", cublas="13.1")
        contract(library_differs, fires=[alike(same, odd=odd)], passes=[alike(same)])

    def test_package(self) -> None:
        same = packages(transformers="4.57", ray="2.5")
        fires = alike(same, odd=packages(transformers="4.56", ray="2.5"))
        contract(package_differs, fires=[fires], passes=[alike(same)])

    def test_gpus(self) -> None:
        fires = alike(gpus("H200", "H200"), odd=gpus("H200"))
        contract(gpu_differs, fires=[fires], passes=[alike(gpus("H200", "H200"))])

    def test_gpus_for_the_launch(self) -> None:
        two = alike(gpus("H200", "H200"), options(tensor_parallel_size=8), count=2)
        four = alike(gpus("H200", "H200"), options(tensor_parallel_size=8), count=4)
        contract(gpus_few, fires=[two, launch()], passes=[four, launch()])

    def test_rdma(self) -> None:
        card, direct = Rdma(devices=("mlx5_0",)), GpuDirect(module="nvidia_peermem")
        fires = alike(card, direct, odd=proven(Rdma, "no RDMA device"))
        contract(rdma_differs, fires=[fires], passes=[alike(card, direct)])

    def test_limits(self) -> None:
        fires = alike(limits(None, 65535), odd=limits(8 << 20, 65535))
        contract(limits_differ, fires=[fires], passes=[alike(limits(None, 65535))])

    def test_clock(self) -> None:
        good = ClockState(synchronised=True, max_error_us=100)
        bad = ClockState(synchronised=False, max_error_us=16_000_000)
        contract(clock_unset, fires=[alike(good, odd=bad)], passes=[alike(good)])

    def test_model(self) -> None:
        fires = alike(model("config.json", "a.safetensors"), odd=model("config.json"))
        passes = alike(model("config.json", "a.safetensors"))
        contract(model_differs, fires=[fires, launch()], passes=[passes, launch()])

    def test_interface(self) -> None:
        told = environ(NCCL_SOCKET_IFNAME="eth")
        fires = alike(told, interfaces(), odd=(told, interfaces("ens3")))
        contract(interface_missing, fires=[fires], passes=[alike(told, interfaces())])

    def test_subnet(self) -> None:
        told = environ(GLOO_SOCKET_IFNAME="eth0")
        fires = alike(told, interfaces(), odd=(told, interfaces("eth0", "10.9.0.0")))
        contract(subnet_differs, fires=[fires], passes=[alike(told, interfaces())])

    def test_address(self) -> None:
        same = alike(environ(VLLM_HOST_IP="10.0.0.1"), interfaces())
        own = nodes(
            *(
                node(
                    f"n{i}", environ(VLLM_HOST_IP=f"10.0.0.{i}"), interfaces(address=f"10.0.0.{i}")
                )
                for i in (1, 2)
            )
        )
        contract(address_shared, fires=[same], passes=[own])

    def test_master(self) -> None:
        same = environ(MASTER_ADDR="a", MASTER_PORT="29500")
        fires = alike(same, odd=environ(MASTER_ADDR="a", MASTER_PORT="29501"))
        contract(master_differs, fires=[fires], passes=[alike(same)])

    def test_variable(self) -> None:
        same = environ(NCCL_ALGO="Ring")
        fires = alike(same, odd=environ(NCCL_ALGO="Tree"))
        contract(variable_differs, fires=[fires], passes=[alike(same)])

    def test_name(self) -> None:
        good = OwnName(listed=(), addresses=("10.0.0.1",), error=None)
        bad = OwnName(listed=("127.0.1.1",), addresses=("127.0.1.1",), error=None)
        contract(name_loopback, fires=[alike(good, odd=bad)], passes=[alike(good)])

    def test_gpus_of_ray(self) -> None:
        has = (ray_node(2), gpus("H200", "H200"))
        fires = alike(*has, odd=(ray_node(0), gpus("H200", "H200")))
        contract(ray_gpus_differ, fires=[fires], passes=[alike(*has)])

    def test_peers(self) -> None:
        contract(peer_unreachable, fires=[meeting((0, 2))], passes=[meeting()])

    def test_slow_link(self) -> None:
        contract(link_slow, fires=[meeting(slow=1)], passes=[meeting()])

    def test_silence(self) -> None:
        dead = node("c", RayNode(id="1", alive=False, gpus=0), silence="Ray lists it as dead")
        seen = (node("a", ray_node(1)), node("b", ray_node(1)))
        contract(node_silent, fires=[nodes(*seen, dead)], passes=[nodes(*seen)])

    def test_placement_in_ray(self) -> None:
        row = (ray_node(2), options(tensor_parallel_size=2, pipeline_parallel_size=2))
        two, one = alike(*row, count=2), alike(*row, count=1)
        contract(ray_placement, fires=[one, launch()], passes=[two, launch()])


class TestRay:
    def test_a_gpu_that_does_not_exist_is_worse_than_one_kept_back(self) -> None:
        more = examine(ray_gpus_differ, alike(ray_node(2), gpus("H200"), count=2))
        fewer = examine(ray_gpus_differ, alike(ray_node(1), gpus("H200", "H200"), count=2))
        assert more.findings[0].severity == "error"
        assert fewer.findings[0].severity == "warning"

    def test_a_group_that_spans_nodes(self) -> None:
        rows = alike(ray_node(2), options(tensor_parallel_size=4), count=2)
        result = examine(ray_placement, rows, launch())
        assert result.findings[0].severity == "warning"
        assert result.findings[0].fixes[0].title == (
            "Start with --tensor-parallel-size 2 and --pipeline-parallel-size 2"
        )

    def test_snapshots_without_ray(self) -> None:
        without = proven(RayNode, "Ray was not asked")
        rows = nodes(node("a", without, gpus("H200")), node("b", without, gpus("H200")))
        assert examine(ray_gpus_differ, rows).outcome == "not_applicable"

    def test_silence_is_never_a_pass(self) -> None:
        rows = nodes(node("a"), node("b", silence="no answer within 18 s"))
        result = examine(node_silent, rows)
        assert (result.outcome, result.reason) == ("blocked", "b: no answer within 18 s")
        assert examine(node_silent, nodes(node("a"), node("b"))).outcome == "passed"


class TestLinks:
    def test_a_node_that_nobody_reaches_is_one_finding(self) -> None:
        result = examine(peer_unreachable, meeting((0, 2), (1, 2), (3, 2)))
        assert messages(result) == ["no other node reaches n2 by TCP: timed out"]

    def test_a_node_that_reaches_nobody_is_one_finding(self) -> None:
        result = examine(peer_unreachable, meeting((2, 0), (2, 1), (2, 3)))
        assert messages(result) == ["n2 reaches no other node by TCP: timed out"]

    def test_one_direction_of_one_pair(self) -> None:
        result = examine(peer_unreachable, meeting((3, 1)))
        assert messages(result) == ["n3 does not reach n1 by TCP: timed out"]

    def test_who_came_too_late_blocks(self) -> None:
        late = PeerLinks(own=0, count=2, met=1, rows=())
        rows = nodes(node("a", late), node("b", late))
        assert examine(peer_unreachable, rows).outcome == "blocked"

    def test_a_snapshot_that_is_not_here_blocks(self) -> None:
        here = nodes(*meeting((0, 3)).nodes[:3])
        result = examine(peer_unreachable, here)
        assert result.outcome == "blocked"
        assert "4 nodes met, and only 3 of their snapshots are here" in str(result.reason)


class TestWords:
    def test_the_odd_one_is_named_and_what_the_others_have(self) -> None:
        (text,) = messages(examine(driver_differs, alike(driver("580.1"), odd=driver("570.2"))))
        assert text == "the driver is 570.2 on d; 580.1 on 3 other nodes"

    def test_many_nodes_are_counted(self) -> None:
        rows = [node(f"n{i}", driver("580.1" if i < 90 else "570.2")) for i in range(100)]
        (text,) = messages(examine(driver_differs, nodes(*rows)))
        assert text == (
            "the driver is 570.2 on n90, n91, n92 and 7 more nodes; 580.1 on 90 other nodes"
        )

    def test_packages_that_differ_on_one_node_are_one_finding_and_ray_goes_first(self) -> None:
        same = packages(aiohttp="3", ray="2.50", transformers="4.57")
        odd = packages(aiohttp="4", ray="2.49", transformers="4.56")
        result = examine(package_differs, alike(same, odd=odd))
        (text,) = messages(result)
        assert text == (
            "3 packages differ: ray 2.49, aiohttp 4, transformers 4.56 on d; "
            "ray 2.50, aiohttp 3, transformers 4.57 on a, b and c"
        )
        assert result.findings[0].severity == "error"
        (action,) = result.findings[0].fixes[0].actions
        assert action.text == "pip install ray==2.50 aiohttp==3 transformers==4.57"

    def test_a_package_whose_library_is_told_is_not_told_again(self) -> None:
        rows = []
        for name, version in (("a", "2.28"), ("b", "2.28"), ("c", "2.27")):
            own = packages(**{"nvidia-nccl-cu13": version})
            rows.append(node(name, own, libraries(nccl=version), torch("2"), engine("1")))
        assert examine(package_differs, nodes(*rows)).outcome == "passed"
        assert messages(examine(library_differs, nodes(*rows))) == [
            "NCCL is 2.27 on c; 2.28 on a and b"
        ]

    def test_a_shard_less_and_another_configuration_are_told_together(self) -> None:
        same = model("config.json", "a.safetensors", config={"hidden_size": 4096})
        odd = model("config.json", config={"hidden_size": 2048})
        (text,) = messages(examine(model_differs, alike(same, odd=odd), launch()))
        assert "2 files of the model differ" in text
        assert "a.safetensors not there" in text

    def test_a_whole_model_that_is_not_there_is_one_finding(self) -> None:
        odd = ModelFiles(model="/m", origin="named")
        (text,) = messages(examine(model_differs, alike(model("config.json"), odd=odd), launch()))
        assert text == "the model is not there on d; there on 3 other nodes"

    def test_launch_variables_go_over_those_of_the_nodes(self) -> None:
        found = launch_of(["env", "NCCL_ALGO=Ring", "vllm", "serve", "m"])
        fires = alike(environ(NCCL_ALGO="Ring"), odd=environ(NCCL_ALGO="Tree"))
        assert examine(variable_differs, fires, found).outcome == "passed"


class TestUnknown:
    """What is not known of one node is no finding, and no pass either."""

    def test_a_silent_node_blocks(self) -> None:
        result = examine(driver_differs, alike(driver("580.1"), odd=silent(Driver)))
        assert result.outcome == "blocked"
        assert result.reason == "the driver: not known of d: no answer within 20 s"

    def test_a_silent_node_does_not_hide_what_differs(self) -> None:
        rows = (node("a", driver("1")), node("b", driver("1")), node("c", driver("2")), node("d"))
        (text,) = messages(examine(driver_differs, nodes(*rows)))
        assert text == "the driver is 2 on c; 1 on a and b"

    def test_an_environment_read_in_part_blocks(self) -> None:
        partly = packages(gaps=("site: 2 folders were not read",), ray="2")
        result = examine(package_differs, alike(packages(ray="2"), odd=partly))
        assert result.outcome == "blocked"

    def test_masks_of_different_keys_are_not_compared(self) -> None:
        row = environ(MASTER_ADDR="<ip:1.1>", MASTER_PORT="29500")
        other = environ(MASTER_ADDR="<ip:1.2>", MASTER_PORT="29500")
        rows = nodes(node("a", row, key=None), node("b", other, key=None))
        result = examine(master_differs, rows)
        assert result.outcome == "blocked"
        assert "--redact-key" in (result.reason or "")
        same = nodes(node("a", row, key="k"), node("b", other, key="k"))
        assert examine(master_differs, same).outcome == "failed"

    def test_a_node_without_gpus_has_no_driver_to_compare(self) -> None:
        rows = alike(driver("580.1"), odd=proven(Driver, "no GPU on the bus"))
        assert examine(driver_differs, rows).outcome == "passed"

    def test_gpus_of_a_silent_node_may_be_enough(self) -> None:
        rows = alike(gpus("H200", "H200"), options(tensor_parallel_size=8), odd=silent(Gpus))
        assert examine(gpus_few, rows, launch()).outcome == "blocked"


@pytest.mark.parametrize(
    ("value", "name", "outcome"),
    [
        ("eth", "eth0", "passed"),
        ("=eth", "eth0", "failed"),
        ("=eth0", "eth0", "passed"),
        ("ib,eth", "eth0", "passed"),
        ("^docker,lo", "eth0", "passed"),
        ("^eth", "eth0", "failed"),
        ("^=eth", "eth0", "passed"),
        ("eth0", "eth1", "failed"),
    ],
)
def test_names_as_nccl_reads_them(value: str, name: str, outcome: str) -> None:
    rows = alike(environ(NCCL_SOCKET_IFNAME=value), interfaces(name))
    assert examine(interface_missing, rows).outcome == outcome


def test_gloo_takes_whole_names() -> None:
    rows = alike(environ(GLOO_SOCKET_IFNAME="eth"), interfaces("eth0"))
    assert examine(interface_missing, rows).outcome == "failed"


def test_a_routed_fabric_is_no_fault() -> None:
    rows = [node(f"n{i}", environ(), interfaces(network=f"10.{i}.0.0")) for i in range(4)]
    assert examine(subnet_differs, nodes(*rows)).outcome == "passed"


def test_two_subnets_are_a_tie() -> None:
    rows: Nodes = nodes(
        *(
            node(n, environ(), interfaces(network=w))
            for n, w in (("a", "10.1.0.0"), ("b", "10.2.0.0"))
        )
    )
    result = examine(subnet_differs, rows)
    assert "neither is most" in messages(result)[0]
    assert result.findings[0].confidence == "possible"


def test_the_right_to_lock_counts_as_unlimited() -> None:
    free = (limits(8 << 20, 65535), LockRight(unlimited=True))
    assert examine(limits_differ, alike(limits(None, 65535), odd=free)).outcome == "passed"


def test_all_clocks_unset_is_no_difference() -> None:
    free = ClockState(synchronised=False, max_error_us=16_000_000)
    assert examine(clock_unset, alike(free)).outcome == "passed"


def test_nodes_that_were_not_seen_may_have_the_gpus() -> None:
    part = alike(gpus("H200", "H200"), options(tensor_parallel_size=16, nnodes=8), count=3)
    result = examine(gpus_few, part, launch())
    assert (result.outcome, result.reason) == (
        "blocked",
        "3 of the 8 nodes of the launch were seen",
    )
    every = alike(gpus("H200", "H200"), options(tensor_parallel_size=16, nnodes=3), count=3)
    assert examine(gpus_few, every, launch()).outcome == "failed"


def test_a_smaller_tensor_size_divides_the_one_that_was_wanted() -> None:
    """Heads are divided by it: 3 of 8 is none."""
    rows = alike(ray_node(3), options(tensor_parallel_size=8), count=4)
    (finding,) = examine(ray_placement, rows, launch()).findings
    assert finding.fixes[0].title == (
        "Start with --tensor-parallel-size 2 and --pipeline-parallel-size 4"
    )


def test_a_model_that_is_not_there_has_a_cure() -> None:
    here = model("config.json")
    rows = alike(here, odd=replace(here, origin="named", files=()))
    (finding,) = examine(model_differs, rows, launch()).findings
    assert finding.message.startswith("the model is not there on d")
    assert finding.fixes[0].title == "Copy the model to d, or mount the folder that has it"
