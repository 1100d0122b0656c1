"""What an installed engine's sources say of a model, on a small copy of their form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launches import config, launch, options

from infer_doctor.catalog import architectures
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Interpreter
from infer_doctor.facts.model_support import ModelSupport, model_support
from infer_doctor.host import Unavailable
from infer_doctor.live import LiveHost

REGISTRY = """
_TEXT_GENERATION_MODELS = {
    "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
    "Qwen2ForCausalLM": (
        "qwen2",
        "Qwen2ForCausalLM",
    ),
    # "GoneForCausalLM": ("gone", "GoneForCausalLM"),
}
_PREVIOUSLY_SUPPORTED_MODELS = {
    "MPTForCausalLM": "0.28.0",
}
_OOT_SUPPORTED_MODELS = {
    "BartModel": "https://example.com/bart-plugin",
}
"""
OWN = '_CONFIG_REGISTRY = LazyConfigDict(\n    chatglm="ChatGLMConfig",\n    kimi_k2="DeepseekV3Config",\n)\n'
MAPPING = 'CONFIG_MAPPING_NAMES = OrderedDict(\n    [\n        ("llama", "LlamaConfig"),\n        ("qwen2", "Qwen2Config"),\n    ]\n)\n'
CLASSES = 'MODEL = OrderedDict([("mpt", "MptForCausalLM"), ("olmo", "OlmoForCausalLM")])\n'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name, text in {
        "vllm/__init__.py": "",
        "vllm/model_executor/models/registry.py": REGISTRY,
        "vllm/transformers_utils/config.py": OWN,
        "vllm/model_executor/models/llama.py": "\nclass LlamaForCausalLM(\n    nn.Module, SupportsPP,\n):\n",
        "transformers/__init__.py": "",
        "transformers/models/auto/configuration_auto.py": MAPPING,
        "transformers/models/auto/modeling_auto.py": CLASSES,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def host() -> Iterator[LiveHost]:
    with LiveHost() as live:
        yield live


def ask(host: LiveHost, site: Path, architecture: str, kind: str = "llama") -> ModelSupport:
    model = config("Qwen--Qwen3-8B", architectures=[architecture], model_type=kind)
    engine = EngineFact(
        name="vllm", version="0.32.0", distribution="vllm", package=f"{site}/vllm", build="cuda"
    )
    interpreter = Interpreter(
        executable="/v/bin/python",
        version="3.12",
        full_version="3.12.3",
        prefix="/v",
        base_prefix="/usr",
        kind="venv",
        found_by="--python",
        folders=(str(site),),
        site=str(site),
        include="/v/include",
        managed=False,
    )
    return model_support(host, launch(), options(), None, model, None, engine, interpreter, None)


def test_known(host: LiveHost, site: Path) -> None:
    assert ask(host, site, "Qwen2ForCausalLM", "qwen2").known == ("Qwen2ForCausalLM",)
    assert ask(host, site, "Qwen2ForSequenceClassification").known
    found = ask(host, site, "GoneForCausalLM")
    assert (found.known, found.removed, found.in_transformers) == ((), {}, ())
    assert ask(host, site, "Nope.*").architectures == ()  # no name: never part of a pattern


def test_bases_of_the_class(host: LiveHost, site: Path) -> None:
    found = ask(host, site, "LlamaForCausalLM")
    assert found.bases == ("nn.Module", "SupportsPP")
    assert found.class_source == f"{site}/vllm/model_executor/models/llama.py"
    assert ask(host, site, "Qwen2ForCausalLM").bases is None  # its file is not there


def test_removed_and_moved(host: LiveHost, site: Path) -> None:
    assert ask(host, site, "MPTForCausalLM").removed == {"MPTForCausalLM": "0.28.0"}
    assert list(ask(host, site, "BartModel").plugins) == ["BartModel"]
    assert ask(host, site, "OlmoForCausalLM").in_transformers == ("OlmoForCausalLM",)


@pytest.mark.parametrize(
    ("kind", "known"), [("llama", True), ("chatglm", True), ("nope9000", False), ("lla", False)]
)
def test_model_type(host: LiveHost, site: Path, kind: str, known: bool) -> None:
    assert ask(host, site, "LlamaForCausalLM", kind).type_known is known


def catalogued(version: Any, architecture: str) -> ModelSupport:
    model = config("Qwen--Qwen3-8B", architectures=[architecture])
    with LiveHost() as host:
        return model_support(
            host, launch("another"), options(version=version), None, model, None, None, None, None
        )


def test_catalogue() -> None:
    assert catalogued("0.32.0", "Qwen3ForCausalLM").known == ("Qwen3ForCausalLM",)
    assert catalogued("0.33.0", "MPTForCausalLM").removed == {"MPTForCausalLM": "0.28.0"}
    assert catalogued("0.20.0", "MPTForCausalLM").known == ("MPTForCausalLM",)
    with pytest.raises(Unavailable, match="since which version"):
        catalogued("0.20.0", "Qwen3ForCausalLM")
    with pytest.raises(Unavailable, match="is not known"):
        catalogued(None, "Qwen3ForCausalLM")


def test_catalogue_is_of_the_version_it_says() -> None:
    assert len(architectures.known()) > 380
    assert "LlamaForCausalLM" in architectures.known()
    assert not architectures.known() & architectures.removed().keys()
