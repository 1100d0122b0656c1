"""Values, prefixes and the words before argparse, one case each."""

from __future__ import annotations

from typing import Any

import pytest
from vllm_parsers import read_line

from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.launch.command import read
from infer_doctor.launch.model import Keyword, Launch, Place, Unknown, Word
from infer_doctor.vllm_arguments.options import options_of
from infer_doctor.vllm_arguments.table import catalogue

NEW = catalogue().table("0.32.0")


def given(line: str, version: str = "0.32.0") -> dict[str, Any]:
    options = read_line(line.split(), catalogue().table(version))
    assert options.problems == ()
    return {name: option.value for name, option in options.given.items()}


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("m --max-model-len 32k", "max_model_len", 32_000),
        ("m --max-model-len 32K", "max_model_len", 32_768),
        ("m --max-model-len auto", "max_model_len", -1),
        ("m --max_model_len=4096", "max_model_len", 4096),
        ("m --gpu-mem 0.5", "gpu_memory_utilization", 0.5),
        ("m -tp=2", "tensor_parallel_size", 2),
        ("m -tp 2", "tensor_parallel_size", 2),
        ("m --no-enable-prefix-caching", "enable_prefix_caching", False),
        ("m --kv-cache-dtype fp8", "kv_cache_dtype", "fp8"),
        ("m --hf-overrides.a.b 5", "hf_overrides", {"a": {"b": 5}}),
        ("m --compilation-config.cudagraph_capture_sizes+ 1,2", "compilation_config", None),
        ("m --served-model-name a b", "served_model_name", ["a", "b"]),
        ("m --device-memory-utilization 0.4", "gpu_memory_utilization", 0.4),
        ("m -n2", "nnodes", 2),
    ],
)
def test_forms_of_an_option(line: str, name: str, value: Any) -> None:
    found = given(line)[name]
    assert found == value if value is not None else isinstance(found, dict)


@pytest.mark.parametrize(
    ("line", "kind", "part"),
    [
        ("m --enable-l", "ambiguous", "--enable-lora"),
        ("m --max-num-seqs many", "type", "is not a whole number"),
        ("m --max-model-len 1.5K", "type", "decimals before K"),
        ("m --max-num-seqs", "missing-value", "needs a value"),
        ("m --kv-cache-dtype fp9", "choice", "is none of"),
        ("m --gpu-memory-utilization 1.2", "range", "must be at most 1"),
        ("m --enforce-eager=true", "type", "takes no value"),
        ("m --enforce-eager true", "type", "true is left over"),
        ("m stray", "unknown", "stray belongs to no option"),
        ("m --speculative-config {model:x}", "type", "the shell took the quotes away"),
        ("m --speculative-config {'model':'x'}", "type", "JSON wants double quotes"),
        ("m --speculative-config.num_spec_tokens 3", "unknown", "has no key num_spec_tokens"),
        ("m --tool-call-parser hermess", "choice", "is none of"),
    ],
)
def test_what_is_refused(line: str, kind: str, part: str) -> None:
    (problem,) = read_line(line.split(), NEW).problems
    assert problem.kind == kind
    assert part in problem.message


@pytest.mark.parametrize(
    ("version", "line", "kind", "successor"),
    [
        ("0.32.0", "m --swap-space 4", "removed", None),
        ("0.32.0", "m --task embed", "renamed", "--runner pooling --convert embed"),
        ("0.32.0", "m --guided-decoding-backend xgrammar", "renamed",
         "--structured-outputs-config.backend xgrammar"),
        ("0.32.0", "m --max-seq-len-to-capture 8192", "removed", None),
        ("0.32.0", "m --cuda-graph-sizes 512", "renamed", "--max-cudagraph-capture-size 512"),
        ("0.32.0", "m --num-speculative-tokens 5", "renamed",
         "--speculative-config.num_speculative_tokens 5"),
        ("0.8.5", "m --num-speculative-tokens 5", "renamed",
         "--speculative-config '{\"num_speculative_tokens\": 5}'"),
        ("0.8.5", "m --enable-log-requests", "not-yet", None),
        ("0.32.0", "m --disable-log-requests", "removed", None),
        ("0.6.3", "m --attention-backend FLASH_ATTN", "not-yet", None),
    ],
)  # fmt: skip
def test_history(version: str, line: str, kind: str, successor: str | None) -> None:
    (problem,) = read_line(line.split(), catalogue().table(version)).problems
    assert (problem.kind, problem.successor) == (kind, successor)


@pytest.mark.parametrize(
    ("line", "nearest"),
    [
        ("m --gpu-memory-utilisation 0.9", "--gpu-memory-utilization"),
        ("m --tensor-paralel-size 2", "--tensor-parallel-size"),
        ("m --mem-fraction-static 0.8", "--gpu-memory-utilization"),
        ("m --context-length 4096", "--max-model-len"),
        ("m --auto-warmup", None),
        ("m --temperature 0.7", None),
    ],
)
def test_names_nobody_had(line: str, nearest: str | None) -> None:
    (problem,) = read_line(line.split(), NEW).problems
    assert (problem.kind, problem.nearest) == ("unknown", nearest)


def test_a_value_that_only_the_machine_knows_is_not_judged() -> None:
    place = Place(file="run.sh", line=3)
    words = [
        Word(text="m", place=place),
        Word(text="--max-num-seqs", place=place),
        Word(text="$SEQS", place=place, unknown="$SEQS"),
        Word(text="$MORE", place=place, unknown="$MORE"),
    ]
    options = options_of(launch("serve", words=tuple(words)), NEW, "", exact=True)
    assert options.problems == ()
    assert options.given["max_num_seqs"].value == Unknown("$SEQS")
    assert options.gaps == ("words that are not in the file: $MORE",)


def test_the_command_line_wins_over_the_file() -> None:
    file = Place(file="serve.yaml", line=2)
    keys = (
        Keyword(name="max-num-seqs", value=8, place=file),
        Keyword(name="enforce-eager", value=True, place=file),
        Keyword(name="enable_prefix_caching", value=False, place=file),
        Keyword(name="compilation-config", value={"level": 3}, place=file),
        Keyword(name="model", value="from/file", place=file),
    )
    there = Place(file="command line")
    words = tuple(
        Word(text=text, place=there) for text in ["--config", "f.yaml", "--max-num-seqs", "4"]
    )
    options = options_of(launch("serve", words=words, config=keys), NEW, "", exact=True)
    assert options.get("max_num_seqs") == 4
    assert options.get("enforce_eager") is True
    assert options.model is not None and options.model.value == "from/file"
    assert options.given["enforce_eager"].place == file
    assert [problem.kind for problem in options.problems] == ["unknown"]  # level went in 0.12


def test_a_file_that_is_not_read_sets_nothing() -> None:
    keys = (Keyword(name="max-num-seqs", value=8, place=Place(file="serve.yaml", line=2)),)
    there = Place(file="command line")
    words = tuple(Word(text=text, place=there) for text in ("m", "--config=serve.yaml"))
    options = options_of(launch("serve", words=words, config=keys), NEW, "", exact=True)
    assert "max_num_seqs" not in options.given


def test_python_keywords_are_fields() -> None:
    place = Place(file="app.py", line=4)
    keywords = (
        Keyword(name="model", value="m", place=place),
        Keyword(name="auto_warmup", value=True, place=place),
        Keyword(name="max_num_seqs", value=0, place=place),
        Keyword(name="dtype", value="half", place=place),
        Keyword(name="swap_space", value=4, place=place),
        Keyword(name="tensor_parallel_size", value=Unknown("size()"), place=place),
    )
    options = options_of(launch("LLM", keywords=keywords), NEW, "", exact=True)
    assert options.model is not None and options.model.value == "m"
    assert [(p.kind, p.flag) for p in options.problems] == [
        ("unknown", "auto_warmup"),
        ("range", "max_num_seqs"),
        ("removed", "swap_space"),
    ]


def test_an_option_and_its_value_in_one_word() -> None:
    (problem,) = read_line(["m", "--dtype auto"], NEW).problems
    assert (problem.kind, problem.successor) == ("type", "--dtype=auto")
    assert "'--dtype auto' is one word" in problem.message


def test_serve_given_to_the_server_s_own_module() -> None:
    line = ["python", "-m", "vllm.entrypoints.openai.api_server", "serve", "org/m"]
    old = options_of(read(line), catalogue().table("0.9.2"), "", exact=True)
    assert [problem.successor for problem in old.problems] == [None, "--model org/m"]
    new = options_of(read(line), NEW, "", exact=True)
    assert [problem.text for problem in new.problems] == ["org/m"]
    assert new.model is None


def test_one_dash_instead_of_two() -> None:
    (problem,) = read_line(["m", "-language-model-only"], NEW).problems
    assert (problem.kind, problem.nearest) == ("unknown", "--language-model-only")


def test_a_model_is_not_taken_for_the_value_of_an_unknown_flag() -> None:
    options = read_line(["--auto-warmup", "org/model"], NEW)
    assert options.model is not None and options.model.value == "org/model"
    (problem,) = options.problems
    assert problem.text is None


def test_defaults_are_those_of_the_version() -> None:
    assert read_line(["m"], catalogue().table("0.19.1")).get("gpu_memory_utilization") == 0.9
    assert read_line(["m"], catalogue().table("0.20.0")).get("gpu_memory_utilization") == 0.92
    assert read_line(["m"], NEW).get("gpu_memory_utilization") == 0.92


def launch(entry: str, **parts: Any) -> Launch:
    kind = "python" if entry == "LLM" else "command"
    return Launch(
        name="test",
        kind=kind,  # type: ignore[arg-type]
        machine="local",
        engine="vllm",
        entry=entry,
        place=Place(file="command line"),
        **parts,
    )


def test_options_say_where_they_stand() -> None:
    options: EngineOptions = read_line(["m", "--max-num-seqs", "4"], NEW)
    option = options.given["max_num_seqs"]
    assert (option.flag, option.text, option.place.file) == ("--max-num-seqs", "4", "command line")
