"""Forms in which people keep launches: README, recipes, workflows, quadlets, batch scripts, Ray Serve.

Each is the form of a public file, with its details replaced.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from launch_files import facts, facts_of, launches_in

from infer_doctor.checks.launch_arguments import argument_unknown, argument_value
from infer_doctor.checks.launch_machine import machine_unknown
from infer_doctor.checks.manifest import gpu_missing
from infer_doctor.checks.manifest_start import readiness_missing
from infer_doctor.checks.security import key_exposed
from infer_doctor.launch.recognise import NoLaunch
from infer_doctor.launch.secrets import masked
from infer_doctor.model import CheckResult
from infer_doctor.targets import look
from infer_doctor.testing import examine

README = """
# Serving

vllm serve in 4090 x4

```console
$ vllm serve org/model --tensor-parallel-size 4
```

~~~json
{"vllm serve": "nothing"}
~~~

1. Or:

    ```bash
    MODEL=org/other
    vllm serve $MODEL --port 8001
    ```
"""


def words(text: str, file: str) -> list[tuple[int | None, str]]:
    return [(row.place.line, " ".join(row.command)) for row in launches_in(text, file)]


def test_the_blocks_of_a_readme_count_and_its_sentences_do_not() -> None:
    assert words(README, "README.md") == [
        (7, "vllm serve org/model --tensor-parallel-size 4"),
        (18, "vllm serve org/other --port 8001"),
    ]


def test_a_readme_without_blocks_is_read_as_it_was() -> None:
    text = "# Run it\n\n    vllm serve org/model \\\n      --port 8001\n"
    assert words(text, "README.md") == [(3, "vllm serve org/model --port 8001")]


def test_a_readme_whose_blocks_start_nothing_says_so() -> None:
    with pytest.raises(NoLaunch, match="Markdown whose blocks of commands start neither"):
        launches_in("vllm serve org/model\n```yaml\na: 1\n```\n", "README.md")


def test_a_makefile_of_targets_alone_is_no_yaml() -> None:
    text = "start:\n\tuv run main.py\n\ndeploy:\n\tvllm serve org/model --dtype auto\n"
    assert words(text, "Makefile") == [(5, "vllm serve org/model --dtype auto")]


@pytest.mark.parametrize("written", ["{{model}}", "{{ model }}", "{{- model | default('a/b') }}"])
def test_what_a_template_puts_in_is_not_known(written: str) -> None:
    text = f'run-vllm model="org/model":\n    vllm serve --port=11434 {written}\n'
    (launch,) = launches_in(text, "justfile")
    assert len(launch.words) == 2 and launch.words[1].unknown
    assert not examine(argument_unknown, *facts_of(launch)).findings


def test_json_with_two_braces_is_no_template() -> None:
    text = "vllm serve org/model --override-generation-config '{{\"a\": null}}'\n"
    (finding,) = examine(argument_value, *facts(text, "serve.sh")).findings
    assert "is no JSON" in finding.message


def test_a_template_of_a_script_is_no_snapshot(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(
        '{% extends "base.sh" %}\n{% if gpu %}\nvllm serve {{ model["id"] }}\n{% endif %}\n'
    )
    (launch,) = look(str(file)).launches
    assert launch.place.line == 3
    file.write_text('{"kind": ')
    assert look(str(file)).snapshot is not None


def test_assignments_of_another_language_start_nothing() -> None:
    with pytest.raises(NoLaunch, match="not of a form that is read"):
        launches_in(
            "{ pkgs, ... }: {\n  containers = {\n    vllm = {\n      a = 1;\n    };\n  };\n}\n",
            "a.nix",
        )


QUADLET = """[Unit]
Description=vLLM

[Container]
Image=docker.io/vllm/vllm-openai:v0.10.0
AddDevice=nvidia.com/gpu=all
PublishPort=127.0.0.1:8000:8000
ShmSize=8g
Environment=HF_HUB_OFFLINE=1 "A=b c"
Secret=hf,type=env,target=HF_TOKEN
Exec=--model org/model \\
  --max-model-len 16384

[Service]
Restart=always
"""


def test_a_container_unit_of_podman() -> None:
    (launch,) = launches_in(QUADLET, "vllm.container")
    assert [word.text for word in launch.words] == [
        "--model",
        "org/model",
        "--max-model-len",
        "16384",
    ]
    assert [word.place.line for word in launch.words] == [11, 11, 12, 12]
    assert [(row.name, row.value) for row in launch.environment] == [
        ("HF_HUB_OFFLINE", "1"),
        ("A", "b c"),
        ("HF_TOKEN", None),
    ]
    container = launch.container
    assert container is not None and container.gpus == "all" and container.restart == "always"
    assert container.shm_size == 8 << 30 and container.ports[0].address == "127.0.0.1"
    assert facts_of(launch)[1].version == "0.10.0"


WORKFLOW = """on: [push]
env:
  MODEL: org/model
jobs:
  gpu:
    runs-on: [self-hosted, gpu]
    steps:
      - uses: actions/checkout@v4
      - run: pip install vllm==0.11.0
      - name: serve
        run: |
          vllm serve $MODEL --port ${{ inputs.port }} &
          sleep 60
"""
GITLAB = """variables:
  MODEL: org/model
e2e:
  image: vllm/vllm-openai:v0.8.5
  script:
    - python3 -m vllm.entrypoints.openai.api_server --model $MODEL &
    - pytest
"""
PLAYBOOK = """- hosts: gpu
  tasks:
    - name: start
      ansible.builtin.shell: |
        nohup /opt/vllm/bin/vllm serve org/model --port {{ port | default(8000) }} &
"""
TASKFILE = """version: '3'
tasks:
  serve:
    cmds:
      - vllm serve org/model
      - task: other
"""


@pytest.mark.parametrize(
    ("text", "line", "version"),
    [(WORKFLOW, 12, "0.11.0"), (GITLAB, 6, "0.8.5"), (PLAYBOOK, 5, None), (TASKFILE, 5, None)],
)
def test_shell_texts_in_yaml(text: str, line: int, version: str | None) -> None:
    (launch,) = launches_in(text, "file.yml")
    assert (launch.place.line, launch.machine) == (line, "another")
    assert "org/model" in launch.command
    if version:
        assert facts_of(launch)[1].version == version


BATCH = """#!/bin/bash
#SBATCH --gres=gpu:4
python3 -m vllm.entrypoints.openai.api_server --model org/model --tensor-parallel-size 4
"""


def test_slurm_runs_a_batch_script_elsewhere() -> None:
    (launch,) = launches_in(BATCH, "job.sh")
    assert launch.machine == "another"
    assert examine(machine_unknown, *facts_of(launch)).findings
    (here,) = launches_in(BATCH.replace("#SBATCH", "# SBATCH"), "job.sh")
    assert here.machine == "local"


@pytest.mark.parametrize(("program", "count"), [("sbatch", 1), ("bash -s", 1), ("cat", 0)])
def test_a_document_that_a_shell_is_given(program: str, count: int) -> None:
    text = f"TP=2\n{program} <<EOT\n#!/bin/bash\nvllm serve org/model -tp $TP\nEOT\necho done\nvllm serve org/last\n"
    found = words(text, "start.sh")
    assert found[:count] == [(4, "vllm serve org/model -tp 2")][:count]
    assert found[count:] == [(7, "vllm serve org/last")]


PATCH = """apiVersion: apps/v1
kind: Deployment
metadata: {name: vllm}
spec:
  template:
    spec:
      containers:
      - name: vllm
        args: ["--model", "org/model", "--gpu-memory-utilization", "0.9"]
"""


def test_a_patch_of_kustomize_is_not_the_whole_deployment() -> None:
    for check in (gpu_missing, readiness_missing):
        result = examine(check, *facts(PATCH, "patch.yaml"))
        assert isinstance(result, CheckResult) and result.outcome == "blocked", check
        whole = PATCH.replace("args:", "image: vllm/vllm-openai:v0.10.0\n        args:")
        assert examine(check, *facts(whole, "deploy.yaml")).findings, check


def test_a_workflow_of_argo_has_one_container_a_template() -> None:
    text = """apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: batch-}
spec:
  templates:
  - name: main
    container:
      image: vllm/vllm-openai:v0.10.1
      command: [bash, -c]
      args: ["vllm serve org/model & python3 batch.py"]
"""
    given = facts(text, "workflow.yaml")
    assert given[0].command == ("vllm", "serve", "org/model")
    assert examine(readiness_missing, *given).outcome == "not_applicable"


RAY_PYTHON = """
from ray.serve.llm import LLMConfig, build_openai_app
config = LLMConfig(
    model_loading_config=dict(model_id="small", model_source="org/model"),
    engine_kwargs={
        "tensor_parallel_size": 2, "max_modle_len": 8192, "enable_auto_tool_choice": True,
    },
)
"""
RAY_YAML = """applications:
- name: llms
  import_path: ray.serve.llm:build_openai_app
  args:
    llm_configs:
      - model_loading_config: {model_id: small, model_source: org/model}
        engine_kwargs: {tensor_parallel_size: 2, tool_call_parser: hermes,
          max_modle_len: 8192}
"""
RAY_SERVICE = """apiVersion: ray.io/v1
kind: RayService
metadata: {name: llm}
spec:
  serveConfigV2: |
""" + "".join(f"    {row}\n" for row in RAY_YAML.splitlines())


@pytest.mark.parametrize(
    ("text", "file", "line"),
    [(RAY_PYTHON, "app.py", 6), (RAY_YAML, "serve.yaml", 8), (RAY_SERVICE, "rayservice.yaml", 13)],
)
def test_models_of_ray_serve(text: str, file: str, line: int) -> None:
    given = facts(text, file)
    assert given[0].machine == "another"
    assert {row.name: row.value for row in given[0].keywords}["model"] == "org/model"
    (finding,) = examine(argument_unknown, *given).findings
    assert "max_modle_len" in finding.message and "max_model_len" in finding.fixes[0].title
    assert finding.evidence[0].line == line


def test_ray_serve_with_another_engine_is_no_vllm() -> None:
    other = "from ray.llm.examples.sglang.builder import build_sglang_openai_app\n"
    text = RAY_PYTHON.replace("engine_kwargs={", "server_cls=Other, engine_kwargs={")
    for source in (text, other + RAY_PYTHON):
        assert launches_in(source, "app.py") == []


def test_langchain_hands_some_of_its_arguments_to_the_engine() -> None:
    text = """
from langchain_community.llms import VLLM
llm = VLLM(
    model="org/model", trust_remote_code=True, max_new_tokens=128, top_k=10, temperature=0.8,
    vllm_kwargs={"quantization": "awq", "max_modle_len": 8192},
)
"""
    launch, options = facts(text, "chain.py")
    assert (launch.entry, launch.machine) == ("LLM", "local")
    names = [row.name for row in launch.keywords]
    assert names == ["model", "trust_remote_code", "quantization", "max_modle_len"]
    (finding,) = examine(argument_unknown, launch, options).findings
    assert "max_modle_len" in finding.message


def test_a_short_form_of_the_batched_tokens_is_no_key() -> None:
    text = "vllm serve org/model --max-num-batched-token=65536 --max-num-batched-token 4096\n"
    (launch,) = launches_in(text, "serve.sh")
    launch = masked(launch)
    assert [word.text for word in launch.words][1:] == [
        "--max-num-batched-token=65536",
        "--max-num-batched-token",
        "4096",
    ]
    given = facts_of(launch)
    assert (
        not examine(key_exposed, *given).findings and not examine(argument_value, *given).findings
    )


@pytest.mark.parametrize(("image", "count"), [("vllm-cpu-env:latest", 1), ("other:latest", 0)])
def test_an_image_that_somebody_built(image: str, count: int) -> None:
    text = f"docker run --rm {image} --model=org/model --dtype=bfloat16\nvllm serve org/last\n"
    assert len(words(text, "run.sh")) == count + 1


@pytest.mark.parametrize(
    ("start", "machine"),
    [
        ("srun -p gpu --gres=gpu:8 -n1", "another"),
        ("srun --gpus-per-node 8", "another"),
        ("srun -n 2 --mpi=pmix", "local"),
        ("nice -n 5", "local"),
    ],
)
def test_where_srun_runs(start: str, machine: str) -> None:
    (launch,) = launches_in(f"{start} vllm serve org/model\n", "serve.sh")
    assert launch.machine == machine


@pytest.mark.parametrize(("name", "mark"), [("run.ps1", "`"), ("run.bat", "^"), ("run.cmd", "^")])
def test_scripts_for_windows(name: str, mark: str) -> None:
    image = "vllm/vllm-openai:v0.9.1"
    folder = '-v "$env:HOME\\models:/models"'
    text = f"set A=0\r\ndocker run --gpus all {folder} {mark}\r\n  {image} {mark}\r\n  --model org/model {mark}\r\n"
    (launch,) = launches_in(text + "  --max-model-len 8192\r\n", name)
    assert [(word.text, word.place.line) for word in launch.words][-1] == ("8192", 5)
    assert launch.container is not None and launch.container.volumes[0].target == "/models"
