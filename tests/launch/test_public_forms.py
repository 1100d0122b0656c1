"""Forms seen in launch files of public repositories, names and values replaced."""

from __future__ import annotations

import pytest

from infer_doctor.launch.model import Launch, Unknown
from infer_doctor.launch.recognise import launches


def one(text: str, file: str) -> Launch:
    found = launches(text, file, None)
    assert found is not None
    (launch,) = found[0]
    return launch


def words(launch: Launch) -> list[str]:
    return [word.text for word in launch.words]


def test_a_scope_of_systemd_around_a_module() -> None:
    launch = one(
        "#!/bin/bash\nexport NCCL_P2P_DISABLE=1\nexport LIBRARY_PATH=/usr/lib:$LIBRARY_PATH\n"
        'source /home/me/env/bin/activate\necho "Starting (4096) with safety..."\n'
        "systemd-run --user --scope -p MemoryMax=90% \\\n"
        "    python3 -m vllm.entrypoints.openai.api_server \\\n    --model m --swap-space 1\n",
        "start.sh",
    )
    assert (launch.entry, words(launch)) == ("api_server", ["--model", "m", "--swap-space", "1"])
    assert [(row.name, row.value) for row in launch.environment] == [
        ("NCCL_P2P_DISABLE", "1"),
        ("LIBRARY_PATH", None),
    ]


def test_arguments_that_a_loop_makes_out_of_variables() -> None:
    launch = one(
        '#!/bin/bash\nbash /usr/local/bin/t.sh >/dev/null 2>&1 || true\nPREFIX="SM_"\n'
        "ARGS=(--port 8080)\nwhile IFS='=' read -r key value; do\n"
        '    name=$(echo "${key#"${PREFIX}"}" | tr \'_\' \'-\')\n    ARGS+=("--${name}")\n'
        '    if [ -n "$value" ]; then\n        ARGS+=("$value")\n    fi\n'
        'done < <(env | grep "^${PREFIX}")\n'
        'exec python3 -m vllm.entrypoints.openai.api_server "${ARGS[@]}"\n',
        "entrypoint.sh",
    )
    assert [word.unknown for word in launch.words] == ["${ARGS[@]}"]


def test_two_branches_are_two_launches() -> None:
    text = (
        '#!/bin/bash\nif [ "$1" = "serve" ]; then\n'
        "    exec python3 -m vllm.entrypoints.openai.api_server --port 8080\nelse\n"
        '    exec python3 -m vllm.entrypoints.openai.api_server "$@"\nfi\n'
    )
    found = launches(text, "start.sh", None)
    assert found is not None
    assert [words(launch) for launch in found[0]] == [["--port", "8080"], ["$@"]]


def test_an_engine_in_a_folder_that_is_not_known() -> None:
    launch = one(
        '#!/usr/bin/env bash\nROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"\n'
        'BIN="$ROOT/.venv/bin/vllm"\nget() {\n  local value="${!key-}"\n'
        '  awk -F= \'$1 == k {print $0; exit}\' "$ENV_FILE"\n}\nHOST="$(get HOST)"\n'
        'HOST="${HOST:-0.0.0.0}"\nnohup "$BIN" serve "${MODEL:-$ROOT/m}" --host "$HOST" '
        '--port "${PORT:-8001}" >> "$LOG" 2>&1 &\n',
        "service.sh",
    )
    assert (launch.engine, launch.entry) == ("vllm", "serve")
    assert launch.words[0].unknown is not None
    assert words(launch)[-2:] == ["--port", "8001"]


def test_a_model_as_an_argument_or_a_variable() -> None:
    launch = one(
        '#!/usr/bin/env bash\nMODEL="${1:-${MODEL:-}}"\nif [[ -z "${MODEL}" ]]; then\n'
        '  echo "Usage: $(basename "$0") <model> [args...]" >&2\n  exit 2\nfi\nshift || true\n\n'
        'vllm serve "${MODEL}" \\\n   --max_num_seqs 16 \\\n   "$@"\n',
        "serve.sh",
    )
    assert launch.words[0].unknown is not None
    assert words(launch)[1:3] == ["--max_num_seqs", "16"]
    assert launch.words[3].unknown == "$@"


def test_compose_with_the_module_in_its_command() -> None:
    launch = one(
        "name: t\nservices:\n  v:\n    image: vllm/vllm-openai:v0.6.3\n    entrypoint: python3\n"
        "    command: -m vllm.entrypoints.openai.api_server --port=5000 ${VLLM_ARGS}\n"
        "    deploy: {resources: {reservations: {devices: [{capabilities: [ gpu ], "
        "device_ids: ['0,1,2,3']}]}}}\n",
        "compose.yaml",
    )
    assert (launch.entry, words(launch)) == ("api_server", ["--port=5000", "${VLLM_ARGS}"])
    assert launch.container is not None
    assert launch.container.gpus == 4


def test_an_older_compose_with_an_empty_command() -> None:
    launch = one(
        'version: "3.9"\nservices:\n  v:\n    image: vllm/vllm-openai:latest\n    runtime: nvidia\n'
        "    network_mode: host\n    command: []\n    ulimits: {memlock: -1, stack: 67108864}\n"
        "    environment:\n      - HUGGING_FACE_HUB_TOKEN=\n",
        "docker-compose.yml",
    )
    assert (launch.entry, words(launch)) == ("serve", [])
    assert launch.container is not None
    assert launch.container.ulimits == (("memlock", "-1"), ("stack", "67108864"))
    assert launch.environment[0].value == ""


def test_a_manifest_for_envsubst() -> None:
    launch = one(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: v}\nspec:\n  template:\n    spec:\n"
        "      containers:\n        - name: v\n          image: vllm/vllm-openai:latest\n"
        '          resources: {limits: {nvidia.com/gpu: "${TP}"}}\n'
        '          command: [python3, -m, vllm.entrypoints.openai.api_server, --model, "${MODEL}"]\n',
        "v.yaml.tpl",
    )
    assert launch.words[1].unknown == "${MODEL}"
    assert launch.container is not None
    assert launch.container.gpus == Unknown("${TP}")


@pytest.mark.parametrize(
    "text",
    [
        "FROM python:3.10-slim\nRUN pip install vllm ray\nARG model\nARG gpu\nENV model=$model\n"
        "ENV gpu=$gpu\n\nCMD python -m vllm.entrypoints.api_server --model $model "
        "--tensor-parallel-size $gpu",
    ],
)
def test_a_dockerfile_whose_arguments_come_from_the_build(text: str) -> None:
    launch = one(text, "Dockerfile")
    assert launch.entry == "demo_server"
    assert [word.unknown is not None for word in launch.words] == [False, True, False, True]


def test_a_line_of_powershell() -> None:
    launch = one(
        "docker run --rm --gpus all -v $PWD/.cache/huggingface:/root/.cache/huggingface -p 8000:8000 "
        "--ipc=host vllm/vllm-openai:v0.6.6.post1 --model m --trust-remote-code\n",
        "run.ps1",
    )
    assert (launch.kind, words(launch)) == ("docker-run", ["--model", "m", "--trust-remote-code"])
