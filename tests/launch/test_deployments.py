"""Forms of published deployments: Modal's and SkyPilot's files, LeaderWorkerSets, defaults that are empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from launch_files import facts, launches_in

from infer_doctor.checks.launch_arguments import argument_unknown, argument_value
from infer_doctor.checks.launch_conflicts import command_missing
from infer_doctor.checks.launch_gpus import gpus_too_few
from infer_doctor.checks.launch_model import context_too_long
from infer_doctor.checks.security import api_open
from infer_doctor.facts.engine_options import EngineQuestion
from infer_doctor.facts.model_config import published_config
from infer_doctor.facts.vllm_options import engine_options, vllm_table
from infer_doctor.launch.command import read
from infer_doctor.launch.model import Launch
from infer_doctor.model import CheckResult
from infer_doctor.targets import look
from infer_doctor.testing import examine

MODAL = """
import json, shlex, subprocess
import modal

image = modal.Image.debian_slim().uv_pip_install("vllm==0.19.0", "huggingface-hub==0.36.0")
MODEL = "org/model"
FAST_BOOT = True
N_GPU = 2

@modal.web_server(port=8000)
def serve():
    cmd = ["vllm", "serve", MODEL, "--port", str(8000)]
    cmd += ["--enforce-eager" if FAST_BOOT else "--no-enforce-eager"]
    cmd += ["--tensor-parallel-size", str(N_GPU)]
    cmd.extend(MORE)
    START
"""


def modal(start: str, more: str = "[]") -> list[Any]:
    (launch,) = launches_in(MODAL.replace("START", start).replace("MORE", more), "serve.py")
    return judged(launch)


def judged(launch: Launch) -> list[Any]:
    table = vllm_table(launch, None, None, None)
    return [launch, engine_options(launch, table)]


@pytest.mark.parametrize(
    "start",
    [
        'subprocess.Popen(" ".join(cmd), shell=True)',
        "subprocess.Popen(shlex.join(cmd), shell=True)",
        "subprocess.run(cmd)",
    ],
)
def test_a_list_of_words_that_is_joined(start: str) -> None:
    launch, options = modal(start)
    assert launch.command[:3] == ("vllm", "serve", "org/model")
    assert options.get("enforce_eager") is True
    assert options.get("tensor_parallel_size") == 2
    assert options.version == "0.19.0" and "serve.py:5 installs" in options.basis


def test_a_list_with_a_shell_loses_its_words() -> None:
    """subprocess: of a sequence and shell=True the first item is the text for the shell."""
    (launch,) = launches_in(
        MODAL.replace("START", "subprocess.Popen(cmd, shell=True)").replace("MORE", "[]"),
        "serve.py",
    )
    assert launch.command == ("vllm",)
    (finding,) = examine(command_missing, launch).findings
    assert "shell=True" in finding.message and finding.evidence[0].line == 12
    assert finding.fixes[0].title == "Give subprocess the list without shell=True"


def test_json_that_blanks_join_loses_its_quotes() -> None:
    more = '["--speculative-config", json.dumps({"method": "ngram", "num_speculative_tokens": 3})]'
    joined = modal('subprocess.Popen(" ".join(cmd), shell=True)', more)
    assert any("is no JSON" in row.message for row in examine(argument_value, *joined).findings)
    alone = modal("subprocess.Popen(cmd)", more)
    assert not examine(argument_value, *alone).findings
    assert alone[1].get("speculative_config") == {"method": "ngram", "num_speculative_tokens": 3}


TASK = """
envs:
  MODEL_NAME: org/model
  MAX_MODEL_LEN: 32768
secrets:
  HF_TOKEN: null
resources:
  image_id: docker:vllm/vllm-openai:v0.10.0
  accelerators: OFFERED
num_nodes: 2
run: |
  if [ "$SKYPILOT_NODE_RANK" == "0" ]; then
    vllm serve $MODEL_NAME \\
      --tensor-parallel-size $SKYPILOT_NUM_GPUS_PER_NODE \\
      --pipeline-parallel-size $SKYPILOT_NUM_NODES \\
      --max-model-len $MAX_MODEL_LEN
  fi
"""


@pytest.mark.parametrize(
    ("gpus", "size"),
    [
        ("H100:8", "8"),
        ("H100", "1"),
        ("{H100:8, H200:8}", "8"),
        ("{L4: 4}", "4"),
        ("[A100:4, A10G:4]", "4"),
        ("{L4:4, A100:1}", "$SKYPILOT_NUM_GPUS_PER_NODE"),
    ],
)
def test_a_task_of_skypilot(gpus: str, size: str) -> None:
    (launch,) = launches_in(TASK.replace("OFFERED", gpus), "task.yaml")
    assert (launch.kind, launch.machine, launch.place.line) == ("skypilot", "another", 13)
    words = [word.text for word in launch.words]
    assert words[:3] == ["org/model", "--tensor-parallel-size", size]
    assert words[3:] == ["--pipeline-parallel-size", "2", "--max-model-len", "32768"]
    assert judged(launch)[1].version == "0.10.0"
    token = next(row for row in launch.environment if row.name == "HF_TOKEN")
    assert (token.value, token.source) == (None, "sky launch --secret")


def test_a_workflow_of_something_else_is_no_task() -> None:
    text = "on: push\njobs:\n  a:\n    steps:\n      - run: echo\n"
    from infer_doctor.launch.recognise import launches

    assert launches(text, "ci.yaml", None) is None


def test_words_that_may_be_none_stand_before_the_model() -> None:
    """A LeaderWorkerSet that collects options in variables and names the model after them."""
    text = (
        "#!/bin/bash\n"
        'SPEC_ARGS=""\n'
        'if [ "$A" = 1 ]; then SPEC_ARGS="--seed 1"; fi\n'
        "exec vllm serve $PROFILER_ARGS $SPEC_ARGS org/model --port 8200\n"
    )
    (launch,) = launches_in(text, "serve.sh")
    given = judged(launch)
    assert given[1].model is not None and given[1].model.text == "org/model"
    assert not examine(argument_unknown, *given).findings
    assert given[1].gaps


def test_an_empty_default_is_left_to_the_caller() -> None:
    text = (
        "#!/bin/bash\n"
        "RANK=${START_RANK:-}\n"
        'vllm serve org/model --data-parallel-start-rank "$RANK" ${EXTRA:-} --seed 1\n'
    )
    (launch,) = launches_in(text, "serve.sh")
    given = judged(launch)
    assert not examine(argument_value, *given).findings
    assert not examine(argument_unknown, *given).findings
    assert any("EXTRA" in gap for gap in given[1].gaps)


def test_a_token_that_compose_takes_from_the_shell() -> None:
    text = (
        "services:\n  vllm:\n    image: vllm/vllm-openai:v0.20.0\n    environment:\n"
        "      - HF_TOKEN=${HF_TOKEN:-}\n"
        "    command: --model meta-llama/Llama-3.1-8B-Instruct\n"
    )
    (launch,) = launches_in(text, "compose.yaml")
    row = next(row for row in launch.environment if row.name == "HF_TOKEN")
    assert row.value is None
    assert row.source is not None and "HF_TOKEN" in row.source


def test_a_shell_behind_an_entry_point_that_serves() -> None:
    line = "docker run vllm/vllm-openai:v0.18.0 bash -lc 'pip install x && vllm serve m --seed 1'"
    (launch,) = launches_in(f"#!/bin/bash\n{line}\n", "run.sh")
    (finding,) = examine(argument_unknown, *judged(launch)).findings
    assert "bash is taken for the model" in finding.message
    assert finding.fixes[0].title == "Make bash the entry point instead of an argument"


def test_ranks_of_a_node_are_called_by_their_option() -> None:
    line = "vllm serve deepseek-ai/DeepSeek-V3 -dp 32 --data-parallel-size-local 8"
    given = facts(f"#!/bin/bash\n{line}\n", "serve.sh")
    (finding,) = examine(gpus_too_few, *given).findings
    assert finding.message.startswith("--data-parallel-size-local 8 needs 8 GPUs")
    assert "divide" not in finding.message


def test_the_options_for_rope_of_older_versions_change_the_limit() -> None:
    """--rope-scaling was an option until 0.11; YaRN's original length times its factor counts there."""
    rope = '{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}'
    line = f"vllm serve Qwen/Qwen3-8B --max-model-len 131072 --rope-scaling {rope}"
    question = EngineQuestion(name="vllm", version="0.10.0")

    def judged_line(text: str) -> CheckResult:
        launch = read(text.split())
        options = engine_options(launch, vllm_table(launch, None, None, question))
        return examine(context_too_long, launch, options, published_config(options))

    assert judged_line(line).outcome == "passed"
    assert judged_line(line.partition(" --rope")[0]).outcome == "failed"


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ("-p 8080:8080", ["-p"]),
        ("-e HF_TOKEN=a", ["-e"]),
        ("--gpus all --ipc=host --seed 1", ["--gpus", "--ipc"]),
    ],
)
def test_options_of_docker_behind_the_image(words: str, flags: list[str]) -> None:
    line = f"docker run vllm/vllm-openai:v0.20.0 --model m --max-model-len 512 {words}"
    (launch,) = launches_in(f"#!/bin/bash\n{line}\n", "run.sh")
    given = judged(launch)
    findings = examine(argument_unknown, *given).findings
    assert [row.about for row in findings] == flags
    assert "stands behind the image" in findings[0].message
    assert findings[0].fixes[0].title == f"Write {flags[0]} and its value before the image"
    assert not examine(argument_value, *given).findings


def test_the_device_of_an_older_vllm_is_not_dockers() -> None:
    line = "docker run vllm/vllm-openai:v0.8.5 --model m --device cuda"
    (launch,) = launches_in(f"#!/bin/bash\n{line}\n", "run.sh")
    assert examine(argument_unknown, *judged(launch)).outcome == "passed"


@pytest.mark.parametrize(
    ("line", "machine"),
    [
        ("tmux new-session -d -s vllm 'vllm serve org/model -tp 2'", "local"),
        ("screen -dmS vllm vllm serve org/model -tp 2", "local"),
        ('eval "vllm serve org/model -tp 2"', "local"),
        ('pm2 start "vllm serve org/model -tp 2" --name vllm', "local"),
        ("uvx --with x vllm serve org/model -tp 2", "local"),
        ("python3 $(which vllm) serve org/model -tp 2", "local"),
        ("$(command -v vllm) serve org/model -tp 2", "local"),
        ('ssh gpu1 "source /v/bin/activate && vllm serve org/model -tp 2"', "another"),
        ("docker exec -it box vllm serve org/model -tp 2", "another"),
        ("kubectl exec -it pod -- vllm serve org/model -tp 2", "another"),
        ("singularity exec --nv box.sif vllm serve org/model -tp 2", "another"),
        ("ray job submit -- vllm serve org/model -tp 2", "another"),
    ],
)
def test_programs_that_hold_a_command(line: str, machine: str) -> None:
    (launch,) = launches_in(f"#!/bin/bash\n{line}\n", "serve.sh")
    assert (launch.engine, launch.entry, launch.machine) == ("vllm", "serve", machine)
    assert [word.text for word in launch.words] == ["org/model", "-tp", "2"]


def test_programs_that_hold_something_else() -> None:
    from infer_doctor.launch.command import read as command

    for line in ("tmux attach -t vllm", "ssh vllm", "screen -r vllm", "ssh gpu1 tail vllm.log"):
        assert command(line.split()).engine is None


def test_an_open_address_is_shown_once() -> None:
    (launch,) = launches_in("#!/bin/bash\nvllm serve m --host 0.0.0.0 --port 8001\n", "serve.sh")
    (finding,) = examine(api_open, *judged(launch)).findings
    assert [row.excerpt for row in finding.evidence] == ["--host 0.0.0.0", "--port 8001"]


def test_a_folder_is_no_file_to_write_into(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (launch,) = look(str(tmp_path)).launches
    assert (launch.place.file, launch.name) == ("command line", str(tmp_path))
