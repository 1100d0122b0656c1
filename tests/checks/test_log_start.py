"""Where the time of a start went."""

from __future__ import annotations

from dataclasses import replace

from infer_doctor.checks.log_start import start_compiles, start_many_graphs, start_slow_weights
from infer_doctor.facts.log import ColdStart, Phase
from infer_doctor.model import Evidence
from infer_doctor.testing import contract, examine

READY = Evidence(source="serve.log", line=60)


def start(name: str, seconds: float, total: float = 120) -> ColdStart:
    phase = Phase(
        name=name, seconds=seconds, printed=True, evidence=Evidence(source="serve.log", line=30)
    )
    return ColdStart(phases=(phase,), seconds=total, unattributed=0, ready=READY)


COMPILES = replace(start("compile", 62), compiled=True)
SLOW = replace(start("weights", 80), weights_gib=15.0, weights_per_second=0.2, filesystem="NFS")
GRAPHS = replace(start("CUDA graphs", 40), graph_sizes=67)
FAST = replace(start("weights", 4, 40), weights_gib=15.0, weights_per_second=4.0)


def test_contract() -> None:
    contract(start_compiles, fires=[COMPILES], passes=[FAST])
    contract(start_slow_weights, fires=[SLOW], passes=[FAST])
    contract(start_many_graphs, fires=[GRAPHS], passes=[FAST])


def test_what_a_cache_gave_is_no_compilation() -> None:
    assert examine(start_compiles, replace(COMPILES, compiled=False)).outcome == "passed"


def test_long_but_not_dominant_is_left_alone() -> None:
    assert examine(start_compiles, replace(COMPILES, seconds=400)).outcome == "passed"


def test_a_large_model_on_a_fast_disk_is_not_slow() -> None:
    fast = replace(SLOW, weights_per_second=3.0, filesystem="EXT4", weights_gib=220.0)
    assert examine(start_slow_weights, fast).outcome == "passed"


def test_the_cure_follows_the_reason() -> None:
    assert examine(start_slow_weights, SLOW).findings[0].fixes[0].id == "log-prefetch"
    pickled = replace(SLOW, filesystem="EXT4", weight_format="pt")
    assert examine(start_slow_weights, pickled).findings[0].fixes[0].id == "log-safetensors"
