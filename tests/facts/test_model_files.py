"""Where the model of a launch is looked for, and what is taken from there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import model_folder
import pytest

from infer_doctor.facts.engine_options import EngineOptions, Option
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_files import ModelFiles, model_files
from infer_doctor.host import Host, Unavailable
from infer_doctor.launch.model import Container, Launch, Place, Unknown, Variable, Volume
from infer_doctor.live import LiveHost
from infer_doctor.snapshot import read, write

HERE = Place(file="command line")


@pytest.fixture
def host() -> Iterator[LiveHost]:
    with LiveHost() as live:
        yield live


def options(model: Any, **given: Any) -> EngineOptions:
    def option(name: str, value: Any) -> Option:
        return Option(name=name, flag=f"--{name}", value=value, text=str(value), place=HERE)

    return EngineOptions(
        engine="vllm",
        version="0.32.0",
        basis="installed source",
        exact=True,
        entry="serve",
        model=option("model", model),
        given={name: option(name, value) for name, value in given.items()},
    )


def launch(
    machine: Any = "local", container: Container | None = None, **environment: str
) -> Launch:
    return Launch(
        name="command line",
        kind="command",
        machine=machine,
        engine="vllm",
        entry="serve",
        place=HERE,
        container=container,
        environment=tuple(
            Variable(name=name, value=value, place=HERE) for name, value in environment.items()
        ),
    )


def find(host: Host, model: str, environ: dict[str, str], **given: Any) -> ModelFiles:
    return model_files(host, options(model, **given), None, Environ(variables=environ))


def test_folder(host: LiveHost, tmp_path: Path) -> None:
    model_folder.folder(tmp_path)
    found = find(host, str(tmp_path), {})
    assert (found.origin, found.folder, found.gaps) == ("folder", str(tmp_path), ())
    assert found.config == model_folder.TINY
    assert [tensor.name for tensor in found.tensors] == [
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
    ]
    assert sum(tensor.size for tensor in found.tensors) == 512
    assert found.missing_shards == ()


@pytest.mark.parametrize(
    "variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "download_dir"]
)
def test_cache(host: LiveHost, tmp_path: Path, variable: str) -> None:
    model_folder.cached(tmp_path / "c", "org/m", model_folder.folder(tmp_path / "m"))
    where = str(tmp_path / "c")
    environ = {"HOME": str(tmp_path), **({} if variable == "download_dir" else {variable: where})}
    given = {"download_dir": where} if variable == "download_dir" else {}
    found = find(host, "org/m", environ, **given)
    assert (found.origin, found.revision, len(found.tensors)) == ("cache", "a" * 40, 2)


def test_variables_of_the_launch_come_first(host: LiveHost, tmp_path: Path) -> None:
    model_folder.cached(tmp_path / "home/hub", "org/m", model_folder.folder(tmp_path / "m"))
    found = model_files(
        host,
        options("org/m"),
        launch(HF_HOME=str(tmp_path / "home")),
        Environ(variables={"HF_HOME": "/nowhere"}),
    )
    assert found.origin == "cache"


def test_other_revision_is_not_the_cached_one(host: LiveHost, tmp_path: Path) -> None:
    model_folder.cached(tmp_path, "org/m", model_folder.folder(tmp_path / "m"))
    environ = {"HF_HUB_CACHE": str(tmp_path)}
    assert find(host, "org/m", environ, revision="v2").origin == "named"
    assert find(host, "org/m", environ, revision="a" * 40).origin == "cache"


def test_weights_elsewhere_than_the_configuration(host: LiveHost, tmp_path: Path) -> None:
    full = model_folder.folder(tmp_path / "m")
    small = tmp_path / "s"
    small.mkdir()
    (full / "config.json").rename(small / "config.json")
    model_folder.cached(tmp_path / "weights", "org/m", full)
    model_folder.cached(tmp_path / "cache", "org/m", small)
    environ = {"HF_HUB_CACHE": str(tmp_path / "cache")}
    found = find(host, "org/m", environ, download_dir=str(tmp_path / "weights"))
    assert found.config == model_folder.TINY
    assert len(found.tensors) == 2


def test_unfinished_download(host: LiveHost, tmp_path: Path) -> None:
    snapshot = model_folder.cached(tmp_path, "org/m", model_folder.folder(tmp_path / "m"))
    lost = snapshot / "model-00002-of-00002.safetensors"
    lost.resolve().rename(tmp_path / "models--org--m/blobs/abc.incomplete")
    found = find(host, "org/m", {"HF_HUB_CACHE": str(tmp_path)})
    assert found.missing_shards == ("model-00002-of-00002.safetensors",)
    assert found.dangling == ("model-00002-of-00002.safetensors",)
    assert [file.name for file in found.partial] == ["abc.incomplete"]


def test_consolidated_file_is_not_counted_twice(host: LiveHost, tmp_path: Path) -> None:
    model_folder.folder(tmp_path)
    one = {"layers.0.attention.wq.weight": ("BF16", (16, 16))}
    model_folder.safetensors(tmp_path / "consolidated.safetensors", one)
    assert sum(tensor.size for tensor in find(host, str(tmp_path), {}).tensors) == 512


def test_one_broken_shard_leaves_no_half_table(host: LiveHost, tmp_path: Path) -> None:
    model_folder.folder(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(b"1234")
    found = find(host, str(tmp_path), {})
    assert found.tensors == ()
    assert list(found.broken) == ["model-00002-of-00002.safetensors"]


def test_name_that_is_nowhere(host: LiveHost, tmp_path: Path) -> None:
    found = find(host, "org/m", {"HF_HUB_CACHE": str(tmp_path)})
    assert (found.origin, found.folder) == ("named", None)
    found = find(host, str(tmp_path / "gone"), {})
    assert (found.origin, found.folder) == ("named", str(tmp_path / "gone"))
    assert find(host, "s3://bucket/m", {}).gaps == ("s3://bucket/m: object storage was not read",)


def test_unknown_model(host: LiveHost) -> None:
    with pytest.raises(Unavailable, match="which the launch does not tell"):
        model_files(host, options(Unknown("$MODEL")), None, None)


def test_gguf(host: LiveHost, tmp_path: Path) -> None:
    model_folder.gguf(
        tmp_path / "m.gguf", {"general.architecture": "qwen2", "qwen2.block_count": 2}
    )
    found = find(host, str(tmp_path / "m.gguf"), {})
    assert found.gguf is not None
    assert (found.origin, found.gguf.architecture) == ("gguf", "qwen2")
    assert found.gguf.number("block_count") == 2


def test_model_of_another_machine(host: LiveHost, tmp_path: Path) -> None:
    """A bind mount of a compose file leads here; any other path says nothing."""
    model_folder.folder(tmp_path / "m")
    mount = Volume(kind="bind", source=str(tmp_path), target="/models", place=HERE)
    container = Container(platform="compose", name="vllm", volumes=(mount,), place=HERE)
    far = launch("another", container)
    found = model_files(host, options("/models/m"), far, Environ(variables={}))
    assert (found.origin, found.elsewhere, len(found.tensors)) == ("folder", True, 2)
    found = model_files(host, options(str(tmp_path / "m")), far, Environ(variables={}))
    assert (found.origin, len(found.gaps)) == ("named", 1)


def test_replay_gives_the_same(host: LiveHost, tmp_path: Path) -> None:
    model_folder.folder(tmp_path)
    live = find(host, str(tmp_path), {})
    text = write(
        host.captures.values(), version="0", created_at="2026-11-30T00:00:00Z", python=None
    )
    assert find(read(text).host, str(tmp_path), {}) == live


def test_modelscope(host: LiveHost, tmp_path: Path) -> None:
    model_folder.folder(tmp_path / "models/org/m___1")
    scope = launch(VLLM_USE_MODELSCOPE="True", MODELSCOPE_CACHE=str(tmp_path))
    found = model_files(host, options("org/m.1"), scope, Environ(variables={}))
    assert (found.origin, len(found.tensors)) == ("cache", 2)
    assert model_files(host, options("org/x"), scope, Environ(variables={})).origin == "named"


def test_modelscope_as_vllm_reads_it(host: LiveHost, tmp_path: Path) -> None:
    model_folder.cached(tmp_path, "org/m", model_folder.folder(tmp_path / "m"))
    environ = Environ(variables={"HF_HUB_CACHE": str(tmp_path)})
    one, word = launch(VLLM_USE_MODELSCOPE="1"), launch(VLLM_USE_MODELSCOPE="YES")
    new, old = options("org/m"), replace(options("org/m"), version="0.20.0")
    assert model_files(host, new, word, environ).origin == "cache"
    assert model_files(host, new, one, environ).origin == "named"
    with pytest.raises(Unavailable, match=r"whether vLLM 0\.20\.0 takes VLLM_USE_MODELSCOPE=1"):
        model_files(host, old, one, environ)


def test_a_pod_does_not_get_its_model_from_the_modelscope_of_this_machine(
    host: LiveHost, tmp_path: Path
) -> None:
    model_folder.cached(tmp_path, "org/m", model_folder.folder(tmp_path / "m"))
    environ = Environ(variables={"HF_HUB_CACHE": str(tmp_path), "VLLM_USE_MODELSCOPE": "1"})
    there = replace(launch(), machine="another")
    found = model_files(host, options("org/m"), there, environ)
    assert (found.origin, found.elsewhere) == ("cache", True)
    assert model_files(host, options("org/m"), launch(), environ).origin == "named"


@pytest.mark.parametrize("name", ["download_dir", "revision"])
def test_place_or_revision_that_the_launch_does_not_tell(
    host: LiveHost, tmp_path: Path, name: str
) -> None:
    model_folder.cached(tmp_path, "org/m", model_folder.folder(tmp_path / "m"))
    environ = {"HF_HUB_CACHE": str(tmp_path)}
    with pytest.raises(Unavailable, match=r"is \$X, which the launch does not tell"):
        find(host, "org/m", environ, **{name: Unknown("$X")})


def test_cache_that_the_launch_does_not_tell(host: LiveHost, tmp_path: Path) -> None:
    hidden = Variable(name="HF_HOME", value=None, place=HERE, source="shell")
    started = replace(launch(), environment=(hidden,))
    folder = model_folder.folder(tmp_path / "m")
    environ = Environ(variables={"HOME": str(tmp_path)})
    with pytest.raises(Unavailable, match="sets HF_HOME to a value that it does not tell"):
        model_files(host, options("org/m"), started, environ)
    assert model_files(host, options(str(folder)), started, environ).origin == "folder"
