"""Where caches are, and what is said of their file systems."""

from __future__ import annotations

from typing import Any

import pytest

from infer_doctor.facts.engine_options import EngineOptions, EngineQuestion
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.storage import Stores, local_model, places, stores
from infer_doctor.facts.trt_release import trt_release
from infer_doctor.facts.vllm_options import VllmTable, engine_options
from infer_doctor.hands import VERSIONS
from infer_doctor.host import Capture, Host
from infer_doctor.launch.command import read as launch_of
from infer_doctor.launch.model import Launch

DISK = {"device": 1, "mount": "/", "type": "ext4", "total": 100, "free": 50, "inodes": 9}
DISK |= {"inodes_free": 8, "read_only": False, "writable": True}


def options_of(launch: Launch | None) -> EngineOptions | None:
    """What an engine of a known version takes its settings from."""
    if launch is None or launch.engine is None:
        return None
    if launch.engine == "tensorrt-llm":
        question = EngineQuestion(name="tensorrt-llm", version="1.0.0")
        return engine_options(launch, None, trt_release(launch, None, None, question, None, None))
    table = VllmTable(basis="a test", exact=True, version="0.32.0", release="0.32.0")
    return engine_options(launch, table)


def paths(**variables: str) -> dict[str, str]:
    return {role: path for role, path, _ in places(variables, None)}


def test_defaults() -> None:
    assert paths(HOME="/root") == {
        "model cache": "/root/.cache/huggingface/hub",
        "vLLM cache": "/root/.cache/vllm",
        "Triton cache": "/root/.triton/cache",
        "FlashInfer cache": "/root/.cache/flashinfer",
        "temporary files": "/tmp",
    }


def test_an_arbitrary_user_of_a_container_has_the_root_as_home() -> None:
    found = paths(HOME="/")
    assert found["model cache"] == "/.cache/huggingface/hub"
    assert found["Triton cache"] == "/.triton/cache"


def test_xdg_moves_what_follows_it() -> None:
    found = paths(HOME="/root", XDG_CACHE_HOME="/x")
    assert found["model cache"] == "/x/huggingface/hub"
    assert found["vLLM cache"] == "/x/vllm"
    assert found["FlashInfer cache"] == "/root/.cache/flashinfer"


@pytest.mark.parametrize(
    ("variables", "path"),
    [
        ({"HF_HOME": "/hf"}, "/hf/hub"),
        ({"HF_HOME": "~/hf/"}, "/root/hf/hub"),
        ({"HF_HOME": "/hf", "HUGGINGFACE_HUB_CACHE": "/old"}, "/old"),
        ({"HF_HOME": "/hf", "HUGGINGFACE_HUB_CACHE": "/old", "HF_HUB_CACHE": "/new"}, "/new"),
        ({"HF_HOME": "", "XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
    ],
)
def test_the_model_cache_in_the_order_of_huggingface_hub(
    variables: dict[str, str], path: str
) -> None:
    assert paths(HOME="/root", **variables)["model cache"] == path


def test_variables_of_the_compilers() -> None:
    found = paths(
        HOME="/root",
        VLLM_CACHE_ROOT="/v",
        TRITON_HOME="/t",
        FLASHINFER_WORKSPACE_BASE="/f",
        TORCHINDUCTOR_CACHE_DIR="/i",
        TMPDIR="/scratch",
    )
    assert found["vLLM cache"] == "/v"
    assert found["Triton cache"] == "/t/.triton/cache"
    assert found["FlashInfer cache"] == "/f/.cache/flashinfer"
    assert found["Inductor cache"] == "/i"
    assert found["temporary files"] == "/scratch"
    assert paths(HOME="/r", TRITON_CACHE_DIR="/c", TRITON_HOME="/t")["Triton cache"] == "/c"


@pytest.mark.parametrize(
    ("command", "model"),
    [
        ("vllm serve /models/x --port 1", "/models/x"),
        ("vllm serve meta-llama/Llama-3.1-8B", None),
        ("python -m vllm.entrypoints.openai.api_server --model /models/x/", "/models/x"),
        ("vllm serve --model=/models/x", "/models/x"),
        ("trtllm-serve /engines/x", "/engines/x"),
        ("vllm serve", None),
    ],
)
def test_the_model_that_a_launch_names_by_path(command: str, model: str | None) -> None:
    assert local_model(options_of(launch_of(command.split()))) == model


def asked(
    variables: dict[str, str], answers: dict[str, dict[str, Any] | str], command: str = ""
) -> Stores:
    """The stores of a host that answers so for each path; a text is the code of an error."""
    captures = [
        Capture(operation="identity", arguments={}, version=VERSIONS["identity"], value={"uid": 0})
    ]
    for path, answer in answers.items():
        captures.append(
            Capture(
                operation="space",
                arguments={"path": path},
                version=VERSIONS["space"],
                value={"path": path, "real": path, **DISK, **answer}
                if isinstance(answer, dict)
                else None,
                error={"code": answer, "message": "no answer within 3.0 s"}
                if isinstance(answer, str)
                else None,
            )
        )
    launch = launch_of(command.split()) if command else None
    return stores(Host(captures), Environ(variables=variables), launch, options_of(launch))


HOME = {
    "/root/.cache/huggingface/hub": {},
    "/root/.cache/vllm": {"path": "/root/.cache"},
    "/root/.triton/cache": {},
    "/root/.cache/flashinfer": {},
    "/tmp": {"device": 2, "mount": "/tmp", "type": "tmpfs"},
}


def test_places_of_one_device_are_one_store() -> None:
    found = asked({"HOME": "/root"}, HOME)
    assert [store.about for store in found.stores] == [
        "model cache, vLLM cache, Triton cache, FlashInfer cache",
        "temporary files",
    ]
    assert [place.there for place in found.stores[0].places] == [True, False, True, True]
    assert found.offline is None
    assert not found.gaps


def test_a_mount_that_hangs_is_a_gap() -> None:
    found = asked({"HOME": "/root"}, {**HOME, "/root/.cache/huggingface/hub": "timeout"})
    assert found.gaps == ("/root/.cache/huggingface/hub: no answer within 3.0 s",)
    assert len(found.stores) == 2


def test_a_relative_path_or_one_with_a_variable_is_a_gap() -> None:
    found = asked({"HOME": "/root", "HF_HOME": "cache", "VLLM_CACHE_ROOT": "$SCRATCH/v"}, HOME)
    assert found.gaps == (
        "HF_HOME: 'cache/hub' is no absolute path",
        "VLLM_CACHE_ROOT: '$SCRATCH/v' is no absolute path",
    )


def test_no_download_is_possible() -> None:
    assert asked({"HOME": "/root", "HF_HUB_OFFLINE": "1"}, HOME).offline == "HF_HUB_OFFLINE=1"
    named = asked({"HOME": "/root"}, {**HOME, "/models/x": {"device": 3}}, "vllm serve /models/x")
    assert named.offline == "/models/x is a local folder"
    assert named.stores[0].about == "model"
    assert asked({"HOME": "/root", "HF_HUB_OFFLINE": "0"}, HOME).offline is None


def test_what_the_launch_sets_goes_first() -> None:
    answers = {**HOME, "/own/hub": {"device": 3}, "/mine/hub": {"device": 3}}
    found = asked({"HOME": "/root", "HF_HOME": "/mine"}, answers, "env HF_HOME=/own vllm serve m")
    (hub,) = [p for store in found.stores for p in store.places if p.role == "model cache"]
    assert (hub.path, hub.source) == ("/own/hub", "HF_HOME")


def test_a_model_that_keywords_or_a_file_name_is_found_too() -> None:
    assert local_model(options_of(launch_of(["vllm", "serve", "--port", "1", "/m/x/"]))) == "/m/x"
    assert local_model(None) is None
