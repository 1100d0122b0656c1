"""Files that are easily damaged, through the whole command: refused and left alone, or changed in the
one place; what is printed for others does the same."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from doctor_process import Run

PUBLIC = Path(__file__).parent / "public"

OTHER_ENDS = [
    "compose-windows-path.yaml",
    "compose-folded-crlf.yaml",
    "deployment-crlf-no-end.yaml",
    "long-line.sh",
    "compose-spaced-lists.yaml",
    "docker.service",
    "equal-signs.sh",
]
"""CRLF, a byte order mark, no newline at the end."""


@pytest.mark.parametrize("name", OTHER_ENDS)
def test_a_patch_does_what_apply_does(name: str, tmp_path: Path) -> None:
    run, file = Run(tmp_path), tmp_path / name
    before = (PUBLIC / name).read_bytes()
    file.write_bytes(before)
    words = ("fix", name, "--unsafe")
    patch = run.start(*words, "--emit", "patch", text=False)
    made, _ = patch.communicate(timeout=60)
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=made, check=True)
    by_patch = file.read_bytes()
    assert by_patch != before
    file.write_bytes(before)
    run(*words, "--apply", "--yes")
    assert file.read_bytes() == by_patch
    run("undo", "--yes")
    assert file.read_bytes() == before


ODD_NAMES = ["it's/a $(x) b.sh", "./-dash.sh", './ü"q.sh', "./tab\there.sh", "./back\\slash.sh"]


def test_odd_names_in_what_is_printed_for_others(tmp_path: Path) -> None:
    """A patch for git and for patch, a script that is run twice; a file in each of them."""
    before = b"vllm serve Qwen/Qwen3-8B --swap-space 4\n"
    run = Run(tmp_path)
    files = [tmp_path / name for name in ODD_NAMES]

    def again() -> None:
        for file in files:
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(before)

    again()
    words = ("fix", *ODD_NAMES, "--select", "launch-argument-removed")
    patch = run(*words, "--emit", "patch").stdout.encode()
    script = run(*words, "--emit", "sh").stdout.encode()
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    for command, text in (
        (["git", "apply", "-"], patch),
        (["patch", "-p1"], patch),
        (["sh"], script),
    ):
        again()
        done = subprocess.run(command, cwd=tmp_path, input=text, capture_output=True, check=False)
        assert done.returncode == 0, (command, done)
        assert {file.read_bytes() for file in files} == {before.replace(b" --swap-space 4", b"")}
    there = set(tmp_path.rglob("*"))
    twice = subprocess.run(["sh"], cwd=tmp_path, input=script, capture_output=True, check=False)
    assert twice.returncode == 1
    assert set(tmp_path.rglob("*")) == there
    assert {file.read_bytes() for file in files} == {before.replace(b" --swap-space 4", b"")}


def test_line_ends_of_windows_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "long-line.sh").write_bytes((PUBLIC / "long-line.sh").read_bytes())
    shown = Run(tmp_path)("fix", "long-line.sh", "--unsafe").stdout
    assert "-                 --swap-space 4 \\\n" in shown
    assert "x0d" not in shown


def test_a_key_that_stands_twice(tmp_path: Path) -> None:
    text = (
        "services:\n  llm:\n    image: vllm/vllm-openai:v0.27.0\n    shm_size: 64m\n"
        '    shm_size: 128m  # again\n    command: ["--model", "m", "--swap-space", "4"]\n'
    )
    (tmp_path / "c.yaml").write_text(text)
    done = Run(tmp_path)("fix", "c.yaml", "--apply", "--yes", "--unsafe")
    assert done.returncode == 2
    assert "c.yaml:5: the key 'shm_size' stands twice, first in line 4" in done.stderr
    assert (tmp_path / "c.yaml").read_text() == text


TEMPLATE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  template:
    spec:
      containers:
      - name: a
        image: vllm/vllm-openai:v0.27.0
        args: ["--model", "Qwen/Qwen3-8B", "--swap-space", "4"]
        {{- with .Values.resources }}
        resources: {{- toYaml . | nindent 10 }}
        {{- end }}
"""


def test_a_template(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TEMPLATE)
    run = Run(tmp_path)
    done = run("fix", "t.yaml", "--apply", "--yes", "--unsafe")
    told = " ".join(done.stdout.split())
    assert "refused: Start without --swap-space 4" in told
    assert "it is a template: edit it by hand, or give what `helm template` makes of it" in told
    assert (tmp_path / "t.yaml").read_text() == TEMPLATE
    assert run("history").stdout == "nothing was changed yet\n"


def test_another_document_and_another_service_stay(tmp_path: Path) -> None:
    """Two engines of the same words: each fix lands in its own."""
    one = "\n".join(TEMPLATE.splitlines()[:-3])
    (tmp_path / "k.yaml").write_text(f"{one}\n---\n{one.replace('name: a', 'name: b')}\n")
    done = Run(tmp_path)("fix", "k.yaml", "--select", "launch-argument-removed", "--apply", "--yes")
    assert done.stdout.count("cured: ") == 2
    plain = one.replace(', "--swap-space", "4"', "")
    assert (
        tmp_path / "k.yaml"
    ).read_text() == f"{plain}\n---\n{plain.replace('name: a', 'name: b')}\n"


WORDS = [
    "vllm", "serve", "/models/my model", "--served-model-name", "a b", "it's", "--swap-space", "4",
    "--hf-overrides", '{"a": "$HOME `id` \\\\ b"}', "--chat-template", "-\n-", "--x", "", "*", "~",
]  # fmt: skip


def test_the_emitted_command_is_these_words_in_a_shell(tmp_path: Path) -> None:
    made = Run(tmp_path)(
        "fix", "--select", "launch-argument-removed", "--emit", "command", "--", *WORDS
    )
    shown = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {made.stdout.rstrip()}"],
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = [word for word in WORDS if word not in ("--swap-space", "4")]
    assert shown.stdout.split("\0")[:-1] == wanted


def test_the_words_of_a_script_keep_their_quotes(tmp_path: Path) -> None:
    line = (
        """vllm serve "$MODEL" --served-model-name 'a b' "it's" --swap-space 4 """
        """--hf-overrides '{"a": "b c"}' --api-key=$(cat key) --middleware a\\ b"""
    )
    (tmp_path / "s.sh").write_text(f"MODEL='/my model'\n{line}\n")
    made = Run(tmp_path)("fix", "s.sh", "--select", "launch-argument-removed", "--emit", "command")
    assert made.stdout == line.replace("--swap-space 4 ", "") + "\n"
    assert shlex.split(made.stdout)[3:6] == ["--served-model-name", "a b", "it's"]
