"""The report for a terminal: what was examined, and lists that stay short."""

from pathlib import Path

import pytest

from infer_doctor.cli import run

DOCKERFILE = (
    "FROM vllm/vllm-openai:v0.11.0\n"
    'CMD ["--model", "meta-llama/Llama-3.1-8B", "--tensor-parallel-size", "4"]\n'
)
CONFIG = (
    '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,'
    ' "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,'
    ' "vocab_size": 128256, "intermediate_size": 14336, "max_position_embeddings": 131072,'
    ' "torch_dtype": "bfloat16"}'
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_ids_that_cannot_apply_stay_few(capsys: pytest.CaptureFixture[str]) -> None:
    Path("Dockerfile").write_text(DOCKERFILE)
    assert run(["check", "Dockerfile"]) == 0
    lines = capsys.readouterr().out.splitlines()
    marks = [number for number, line in enumerate(lines) if line.startswith(("--", "??"))]
    group = lines[marks[0] : marks[1]]
    assert len(group) < 6
    assert "for other reasons (--format json has them)" in " ".join(" ".join(group).split())
    assert max(map(len, lines)) <= 80


def test_without_a_common_reason_only_the_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["probe", "http://127.0.0.1:9"]) == 1
    found = capsys.readouterr().out
    assert "cannot apply here: for different reasons (--format json has" in found
    assert "  server  http://127.0.0.1:9\n" in found


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["plan", "--gpu", "h200", "--", "vllm", "serve", "./m"], 0, "  gpu     1 x NVIDIA H200"),
        (["plan", "--gpu", "h200", "m"], 0, "  file    m"),
        (["check", "a.log"], 3, "  file    a.log"),
        (["diagnose", "a.log"], 3, "  log     a.log"),
        (["check", "Dockerfile"], 0, "  file    Dockerfile"),
    ],
)
def test_what_was_examined_has_its_right_name(
    words: list[str], code: int, line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "m").mkdir()
    (folder / "m" / "config.json").write_text(CONFIG)
    (folder / "a.log").write_text("hello world\n")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    assert run(words) == code
    assert capsys.readouterr().out.splitlines()[1] == line


def test_nothing_decided_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--gpu", "h200", "--", "vllm", "serve", "/not/there"]) == 3
    assert "\nNo check could be decided\nunknown: " in capsys.readouterr().out
