"""Compose, Kubernetes, systemd, Dockerfiles, values: what the container is started with, and where."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infer_doctor.launch.document import Broken
from infer_doctor.launch.model import Launch, Unknown
from infer_doctor.launch.quantities import docker_size, go_time, kubernetes_size, quantity
from infer_doctor.launch.recognise import NoLaunch, launches

CASES = Path(__file__).parent.parent / "cases" / "launch"


def read(text: str, file: str, beside: dict[str, str] | None = None) -> list[Launch]:
    from infer_doctor.host import Unavailable

    def look(path: str) -> str:
        if path not in (beside or {}):
            raise Unavailable("no such file")
        return (beside or {})[path]

    found = launches(text, file, look)
    assert found is not None
    return found[0]


def case(name: str) -> list[Launch]:
    return read((CASES / name).read_text(), name)


def shown(launch: Launch) -> list[str]:
    return [f"{word.text}@{word.place.line}" for word in launch.words]


def test_compose() -> None:
    (launch,) = case("compose-tensor-parallel.yaml")
    container = launch.container
    assert container is not None
    assert shown(launch)[:4] == [
        "--model@5",
        "Qwen/Qwen2.5-72B-Instruct-AWQ@6",
        "--tensor-parallel-size@7",
        "2@8",
    ]
    assert (container.gpus, container.gpu_devices) == (2, ("0", "1"))
    assert (container.shm_size, container.shm_place and container.shm_place.line) == (16 << 30, 14)
    assert container.ports[0].address == "127.0.0.1"
    (probe,) = container.probes
    assert (probe.path, probe.initial_delay_s, probe.period_s, probe.failures) == (
        "/health",
        900,
        30,
        5,
    )
    assert [(row.name, row.source) for row in launch.environment] == [("*", "llm.env")]


COMPOSE = """\
services:
  a:
    image: vllm/vllm-openai:${TAG:-v0.9.0}
    command: >
      --model ${MODEL}
      --port $PORT
      --chat-template '{"a": "$$x"}'
    env_file: e.env
    environment: [A=1, B]
"""


def test_compose_puts_variables_in() -> None:
    beside = {".env": "MODEL=m/n\nPORT=\n", "e.env": "C=3\n"}
    (launch,) = read(COMPOSE, "compose.yaml", beside)
    assert shown(launch) == [
        "--model@5",
        "m/n@5",
        "--port@6",
        "@6",
        "--chat-template@7",
        '{"a": "$x"}@7',
    ]
    assert launch.container is not None
    assert launch.container.image == "vllm/vllm-openai:v0.9.0"
    assert [(row.name, row.value, row.source) for row in launch.environment] == [
        ("C", "3", None),
        ("A", "1", None),
        ("B", None, "shell"),
    ]
    (other,) = read(COMPOSE, "compose.yaml")
    assert other.words[1].unknown == "${MODEL}"


def test_compose_extends_a_service_of_another_file() -> None:
    base = "services:\n  base:\n    image: vllm/vllm-openai:v0.9.0\n    ipc: host\n    environment: {A: 1, B: 2}\n"
    own = "services:\n  llm:\n    extends: {file: base.yaml, service: base}\n    command: [--model, m]\n    environment: [B=3]\n"
    (launch,) = read(own, "compose.yaml", {"base.yaml": base})
    assert launch.container is not None
    assert launch.container.ipc == "host"
    assert {row.name: row.value for row in launch.environment} == {"A": "1", "B": "3"}


def test_compose_keys_that_stand_twice() -> None:
    with pytest.raises(Broken, match=r"c\.yaml:4: the key 'image' stands twice, first in line 3"):
        read("services:\n  a:\n    image: x\n    image: y\n", "c.yaml")


def test_kubernetes() -> None:
    (launch,) = case("k8s-deployment.yaml")
    container = launch.container
    assert container is not None
    assert launch.name == "k8s-deployment.yaml: Deployment/mistral: server"
    assert [word.text for word in launch.program] == ["vllm", "serve"]
    assert {word.place.line for word in launch.words} == {29}
    assert [(v.kind, v.target, v.size) for v in container.volumes] == [
        ("pvc", "/root/.cache/huggingface", None),
        ("emptyDir-memory", "/dev/shm", 2 << 30),
    ]
    assert (container.gpus, container.memory_limit, container.shm_size) == (1, 40 << 30, 2 << 30)
    assert [(p.kind, p.period_s, p.failures, p.timeout_s) for p in container.probes] == [
        ("startup", 10, 120, 1),
        ("liveness", 10, 3, 1),
        ("readiness", 5, 3, 1),
    ]
    (variable,) = launch.environment
    assert (variable.name, variable.value, variable.source) == ("HF_TOKEN", None, "secret hf-token")


def test_kubernetes_puts_its_variables_in() -> None:
    (launch,) = case("k8s-statefulset.yaml")
    assert shown(launch) == ["--model=Qwen/Qwen2.5-32B-Instruct@15", "--tensor-parallel-size=2@16"]
    assert launch.container is not None
    assert launch.container.replicas == 2


def test_a_leader_worker_set_counts_its_group() -> None:
    (launch,) = case("k8s-leader-worker-set.yaml")
    assert launch.container is not None
    assert (launch.container.group_size, launch.container.gpus) == (2, 8)
    assert [word.text for word in launch.words][-2:] == ["--pipeline-parallel-size", "2"]


def test_claims_of_dynamic_resources() -> None:
    (launch,) = case("k8s-dynamic-resources.yaml")
    assert launch.container is not None
    assert launch.container.gpu_claims == ("gpu",)
    assert launch.container.gpus is None


def test_a_config_map_of_the_same_file_is_read() -> None:
    (launch,) = case("k8s-config-map.yaml")
    assert [(key.name, key.value) for key in launch.config] == [
        ("model", "Qwen/Qwen3-8B"),
        ("max-model-len", 16384),
    ]
    assert [(row.name, row.value) for row in launch.environment] == [("VLLM_LOGGING_LEVEL", "INFO")]


def test_a_runtime_gives_its_words_to_the_service_that_names_it() -> None:
    runtime, service = case("kserve-runtime.yaml")
    assert runtime.words[-1].unknown == "{{.Name}}" or "{{.Name}}" in runtime.words[-1].text
    assert service.words[-1].text == "--max-model-len=8192"
    assert service.words[0].text == "--port=8080"
    assert service.container is not None
    assert service.container.gpus == 1


def test_a_manifest_as_json_and_a_list() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "c", "image": "vllm/vllm-openai", "args": ["--model", "m"]}]
        },
    }
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod, pod]}, indent=1)
    assert [word.text for word in read(text, "-")[1].words] == ["--model", "m"]


def test_helm_values_and_templates() -> None:
    (launch,) = case("helm-values-vllm-chart.yaml")
    assert launch.words[0].text == "/data/"
    assert launch.container is not None
    assert (launch.container.image, launch.container.gpus) == ("vllm/vllm-openai:v0.10.2", 1)
    template = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}\nspec:\n"
        "  template:\n    spec:\n      containers:\n        - name: vllm\n"
        "          image: {{ .Values.image }}\n          {{- if .Values.x }}\n"
        "          command: [vllm, serve, '{{ .Values.model }}']\n          {{- end }}\n"
        "          resources: {limits: {nvidia.com/gpu: {{ .Values.gpus }}}}\n"
    )
    (other,) = read(template, "templates/deployment.yaml")
    assert other.words[0].unknown == "{{ .Values.model }}"
    assert other.container is not None
    assert isinstance(other.container.gpus, Unknown)


def test_systemd() -> None:
    text = (
        "[Service]\nEnvironment=M=a/b 'X=1 2'\nEnvironmentFile=-/etc/x\nExecStartPre=/bin/true\n"
        'ExecStart=-/v/bin/vllm serve ${M} \\\n  # no\n  --name "a b" --p=%i $M\n'
    )
    (launch,) = read(text, "x.service")
    assert shown(launch) == ["a/b@5", "--name@7", "a b@7", "--p=%i@7", "a/b@7"]
    assert launch.words[3].unknown == "%i"
    assert [(row.name, row.value) for row in launch.environment] == [
        ("M", "a/b"),
        ("X", "1 2"),
        ("*", None),
    ]
    (docker,) = case("vllm-docker.service")
    assert docker.kind == "docker-run"


def test_dockerfile_shell_form_over_lines() -> None:
    """Docker joins the lines before a shell sees them: options of the later ones count."""
    from infer_doctor.launch.dockerfile import read

    text = (
        "FROM vllm/vllm-openai:v0.9.2\n"
        "ENTRYPOINT python3 -m vllm.entrypoints.openai.api_server \\\n"
        "    # a comment between\n"
        "    --model m \\\n"
        "    --max-model-len 4096\n"
    )
    (launch,) = read(text, "Dockerfile")
    assert [(word.text, word.place.line) for word in launch.words] == [
        ("--model", 4),
        ("m", 4),
        ("--max-model-len", 5),
        ("4096", 5),
    ]


def test_dockerfile() -> None:
    (launch,) = case("Dockerfile.derived")
    assert (launch.entry, shown(launch)[0]) == ("api_server", "--model@4")
    (stages,) = case("Dockerfile.stages")
    assert stages.container is not None
    assert (stages.container.user, stages.container.ports[0].container) == ("engine", 8000)
    assert shown(stages) == ["Qwen/Qwen3-8B@13", "--host@14", "0.0.0.0@14"]
    shell = "FROM x\nENV M=m\nCMD exec vllm serve $M --port ${P:-1}\n"
    assert [word.text for word in read(shell, "Dockerfile")[0].words] == ["m", "--port", "1"]


def test_configuration_files_alone() -> None:
    (launch,) = case("vllm-config.yaml")
    assert (launch.engine, launch.kind, launch.config[0].value) == (
        "vllm",
        "config",
        "Qwen/Qwen2.5-7B-Instruct",
    )
    (other,) = case("trtllm-options.yaml")
    assert other.engine == "tensorrt-llm"


@pytest.mark.parametrize(
    ("text", "file", "message"),
    [
        ("services:\n  db:\n    image: postgres\n", "c.yaml", r"Docker Compose \(db\) that starts"),
        (
            "apiVersion: v1\nkind: Service\n",
            "s.yaml",
            r"Kubernetes \(Service\) that starts neither",
        ),
        ("FROM ubuntu\nRUN true\n", "Dockerfile", "a Dockerfile that starts neither"),
        ("#!/bin/sh\ntrue\n", "x", "a shell script that starts neither"),
    ],
)
def test_known_kinds_without_an_engine(text: str, file: str, message: str) -> None:
    with pytest.raises(NoLaunch, match=message):
        read(text, file)


@pytest.mark.parametrize("text", ["hello\n", "a,b\n1,2\n", "{}", "- 1\n- 2\n", "foo: bar\n"])
def test_other_texts_are_not_known(text: str) -> None:
    assert launches(text, "x", None) is None


@pytest.mark.parametrize("path", sorted(CASES.iterdir()), ids=lambda path: path.name)
def test_a_file_that_ends_early_is_read_or_one_line(path: Path) -> None:
    text = path.read_text()
    for cut in range(0, len(text), 17):
        with contextlib.suppress(Broken, NoLaunch):
            launches(text[:cut], path.name, None)


KEYS = st.sampled_from(
    [
        "services",
        "image",
        "command",
        "environment",
        "deploy",
        "resources",
        "limits",
        "args",
        "spec",
        "containers",
        "template",
        "env",
        "name",
        "value",
        "apiVersion",
        "kind",
        "volumes",
        "ports",
        "healthcheck",
        "test",
        "shm_size",
        "extends",
        "env_file",
    ]
)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(KEYS, TREES), st.sampled_from(["apiVersion", "services", "image", ""]))
def test_trees_of_other_forms_crash_nothing(tree: dict[str, object], key: str) -> None:
    if key == "apiVersion":
        tree = {"apiVersion": "v1", "kind": "Deployment", "spec": {"template": {"spec": tree}}}
    elif key == "services":
        tree = {"services": {"a": {"image": "vllm/vllm-openai", **tree}}}
    elif key == "image":
        tree = {"image": tree, "args": ["--max-model-len"]}
    with contextlib.suppress(Broken, NoLaunch):
        launches(json.dumps(tree), "x.yaml", None)


def test_quantities() -> None:
    assert [docker_size(text) for text in ("16g", "512MB", "1gib", "64", "x")] == [
        16 << 30,
        512 << 20,
        1 << 30,
        64,
        None,
    ]
    assert [kubernetes_size(text) for text in ("16Gi", "1G", "100Ki", "1e3", "-1", None)] == [
        16 << 30,
        10**9,
        100 << 10,
        1000,
        None,
        None,
    ]
    assert quantity("500m") == 0.5
    assert [go_time(text) for text in ("1m30s", "5s", "2h", "", "x")] == [90, 5, 7200, None, None]
