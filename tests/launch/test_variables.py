"""Which variables an engine will see: of this machine, of its launch, of neither."""

from __future__ import annotations

import pytest

from infer_doctor.facts.machine import Environ
from infer_doctor.host import Unavailable
from infer_doctor.launch.command import read
from infer_doctor.launch.model import Launch
from infer_doctor.launch.recognise import launches
from infer_doctor.launch.variables import of_engine, own, untold, variable

HERE = Environ(variables={"HF_HOME": "/here", "PATH": "/bin"})


def pod(environment: str) -> Launch:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: llm}\nspec:\n  containers:\n  - name: c\n"
        "    image: vllm/vllm-openai:v0.12.0\n    args: [--model, m/m]\n    env:\n" + environment
    )
    found = launches(text, "pod.yaml", None)
    assert found is not None
    return found[0][0]


def script(text: str) -> Launch:
    found = launches(f"#!/bin/sh\n{text}\n", "start.sh", None)
    assert found is not None
    return found[0][0]


def test_a_launch_here_inherits_and_sets() -> None:
    launch = read(["env", "HF_HOME=/own", "vllm", "serve", "m"])
    assert of_engine(launch, HERE) == {"HF_HOME": "/own", "PATH": "/bin"}
    assert of_engine(read(["vllm", "serve", "m"]), HERE) == dict(HERE.variables)
    assert of_engine(None, HERE) == dict(HERE.variables)
    assert of_engine(None, None) == {}


def test_a_pod_inherits_nothing() -> None:
    launch = pod("    - {name: HF_HUB_OFFLINE, value: '1'}\n")
    assert of_engine(launch, HERE) == own(launch) == {"HF_HUB_OFFLINE": "1"}


def test_a_value_that_is_not_told_is_not_that_of_this_machine() -> None:
    launch = script("export HF_HOME=$(pick)\nvllm serve m")
    assert untold(launch, "PATH", "HF_HOME") == (
        "the launch sets HF_HOME to a value that it does not tell"
    )
    assert of_engine(launch, HERE) == {"PATH": "/bin"}
    assert of_engine(launch, HERE, "PATH") == {"PATH": "/bin"}
    with pytest.raises(Unavailable, match="sets HF_HOME to a value"):
        of_engine(launch, HERE, "HF_HOME")
    with pytest.raises(Unavailable, match="sets HF_HOME to"):
        variable(launch, "HF_HOME")


def test_the_last_value_counts() -> None:
    launch = script("export HF_HOME=$(pick)\nexport HF_HOME=/last\nvllm serve m")
    assert untold(launch, "HF_HOME") is None
    assert own(launch)["HF_HOME"] == "/last"
