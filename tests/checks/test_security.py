"""Who can reach an engine and who can read its keys, read from files."""

from __future__ import annotations

from typing import Any

import pytest
from launch_files import facts, facts_of, launches_in

from infer_doctor.checks.security import (
    api_open,
    cors_open,
    host_shared,
    key_exposed,
    remote_code,
)
from infer_doctor.launch.command import read as read_command
from infer_doctor.launch.secrets import masked
from infer_doctor.model import Finding
from infer_doctor.testing import contract, examine

KEY = "9f8e7d6c5b4a3f2e1d0c"


def line(command: str) -> list[Any]:
    return facts_of(masked(read_command(command.split())))


def script(text: str) -> list[Any]:
    return facts(f"#!/bin/bash\n{text}\n", "run.sh")


def compose(service: str, command: str = "--model m/m") -> list[Any]:
    text = f"services:\n  llm:\n    image: vllm/vllm-openai:v0.27.0\n    command: {command}\n"
    return facts(text + service, "compose.yaml")


def pod(container: str = "", spec: str = "", more: str = "") -> list[Any]:
    text = f"""apiVersion: apps/v1
kind: Deployment
metadata: {{name: llm}}
spec:
  template:
    metadata: {{labels: {{app: llm}}}}
    spec:
      {spec or "hostPID: false"}
      containers:
      - name: engine
        image: vllm/vllm-openai:v0.27.0
        args: [--model, m/m]
        {container or "stdin: false"}
{more}"""
    return facts(text, "deploy.yaml")


def service(kind: str, app: str = "llm") -> str:
    return (
        "---\napiVersion: v1\nkind: Service\nmetadata: {name: front}\n"
        f"spec: {{type: {kind}, selector: {{app: {app}}}, ports: [{{port: 80}}]}}\n"
    )


def only(check: Any, given: list[Any]) -> Finding:
    (finding,) = examine(check, *given).findings
    return finding


def test_contracts() -> None:
    contract(
        api_open,
        fires=line("vllm serve m/m --host 0.0.0.0"),
        passes=line("vllm serve m/m --host 127.0.0.1"),
    )
    contract(
        key_exposed,
        fires=line(f"vllm serve m/m --api-key {KEY}")[:1],
        passes=line("vllm serve m/m")[:1],
    )
    contract(
        remote_code,
        fires=line("vllm serve m/m --trust-remote-code"),
        passes=line("vllm serve m/m"),
    )
    contract(host_shared, fires=compose("    privileged: true\n")[:1], passes=compose("")[:1])
    contract(
        cors_open,
        fires=line('vllm serve m/m --allow-credentials --allowed-origins ["*"]'),
        passes=line('vllm serve m/m --allowed-origins ["*"]'),
    )


@pytest.mark.parametrize(
    ("given", "severity"),
    [
        (line("vllm serve m/m"), "info"),
        (line("vllm serve m/m --host 10.0.0.7"), "warning"),
        (line("vllm serve m/m --host localhost"), None),
        (line(f"vllm serve m/m --host 0.0.0.0 --api-key {KEY}"), None),
        (line(f"VLLM_API_KEY={KEY} vllm serve m/m --host 0.0.0.0"), None),
        (script("vllm serve m/m --host 0.0.0.0 --api-key $KEY"), None),
        (compose("    ports: ['8000:8000']\n"), "warning"),
        (compose("    ports: ['80:8000']\n"), "warning"),
        (compose("    ports: ['127.0.0.1:8000:8000']\n"), None),
        (compose("    ports: ['9000:9000']\n"), None),
        (compose("    expose: ['8000']\n"), None),
        (compose("    network_mode: host\n"), "warning"),
        (compose("    network_mode: host\n", "--model m/m --host 127.0.0.1"), None),
        (compose("    ports: ['8000:8000']\n    environment: [VLLM_API_KEY]\n"), None),
        (pod(), None),
        (pod("ports: [{containerPort: 8000, hostPort: 8000}]"), "warning"),
        (pod(spec="hostNetwork: true"), "warning"),
        (pod(more=service("LoadBalancer")), "warning"),
        (pod(more=service("NodePort")), "warning"),
        (pod(more=service("ClusterIP")), None),
        (pod(more=service("LoadBalancer", "other")), None),
        (
            pod(
                "env: [{name: VLLM_API_KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}]",
                more=service("LoadBalancer"),
            ),
            None,
        ),
    ],
)
def test_api_open(given: list[Any], severity: str | None) -> None:
    result = examine(api_open, *given)
    assert [row.severity for row in result.findings] == ([severity] if severity else [])
    assert result.outcome == ("failed" if severity else "passed")


@pytest.mark.parametrize("command", ["vllm bench serve", "vllm serve m/m --uds /run/v.sock"])
def test_what_listens_at_no_port(command: str) -> None:
    launch = read_command(command.split())
    if launch.entry == "serve":
        assert examine(api_open, *facts_of(launch)).outcome == "not_applicable"
    else:
        assert examine(api_open, launch).outcome == "blocked"


def test_api_open_message() -> None:
    finding = only(api_open, pod(more=service("LoadBalancer")))
    assert finding.message == (
        "vLLM without a key can be reached by others: the service front is a LoadBalancer"
    )
    assert finding.evidence[0].line == 18


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (line(f"vllm serve m/m --api-key {KEY}"), "--api-key"),
        (line(f"vllm serve m/m --api-key={KEY}"), "--api-key"),
        (script(f"export HF_TOKEN=hf_{KEY}\nvllm serve m/m"), "HF_TOKEN"),
        (compose(f"    environment:\n      HF_TOKEN: hf_{KEY}\n"), "HF_TOKEN"),
        (
            pod(f"env: [{{name: HUGGING_FACE_HUB_TOKEN, value: hf_{KEY}}}]"),
            "HUGGING_FACE_HUB_TOKEN",
        ),
    ],
)
def test_keys_are_named_and_never_shown(given: list[Any], name: str) -> None:
    finding = only(key_exposed, given[:1])
    assert finding.message.startswith("a key stands in plain text in ")
    assert finding.message.endswith(f": {name}")  # "--api-key is" would lose its "is" to the masks
    assert KEY not in repr(finding)


@pytest.mark.parametrize(
    "given",
    [
        line("vllm serve m/m --api-key EMPTY"),
        line("vllm serve m/m --max-tokens-cap 3"),
        script("vllm serve m/m --api-key $KEY"),
        script("export HF_TOKEN=$(cat /run/token)\nvllm serve m/m"),
        compose("    environment:\n      HF_TOKEN: ${HF_TOKEN}\n"),
        compose("    environment: [HF_TOKEN]\n"),
        compose("    environment:\n      HF_TOKEN: <your token>\n"),
        pod("env: [{name: HF_TOKEN, valueFrom: {secretKeyRef: {name: s, key: k}}}]"),
        pod("env: [{name: HF_TOKEN_PATH, value: /run/secrets/hf}]"),
    ],
)
def test_references_and_placeholders_are_no_keys(given: list[Any]) -> None:
    assert examine(key_exposed, given[0]).outcome == "passed"


def test_masks_keep_what_only_stands_for_a_key() -> None:
    shown = masked(read_command(["vllm", "serve", "m", "--api-key", "EMPTY"]))
    hidden = masked(read_command(["vllm", "serve", "m", "--api-key", KEY]))
    assert [row.words[-1].text for row in (shown, hidden)] == ["EMPTY", "<token>"]


@pytest.mark.parametrize(
    ("command", "severity"),
    [
        ("vllm serve m/m --trust-remote-code", "warning"),
        ("vllm serve m/m --trust-remote-code --revision 0123abc", "info"),
        ("vllm serve /models/m --trust-remote-code", "info"),
        ("vllm serve m/m --no-trust-remote-code", None),
    ],
)
def test_remote_code(command: str, severity: str | None) -> None:
    findings = examine(remote_code, *line(command)).findings
    assert [row.severity for row in findings] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("given", "about"),
    [
        (compose("    privileged: true\n"), ["privileged"]),
        (
            compose("    volumes: ['/var/run/docker.sock:/var/run/docker.sock']\n"),
            ["/var/run/docker.sock"],
        ),
        (compose("    volumes: ['/:/host']\n"), ["/"]),
        (compose("    volumes: ['/data:/data', 'models:/models']\n"), []),
        (compose("    network_mode: host\n"), ["network"]),
        (compose("    network_mode: host\n    user: '1000'\n"), []),
        (pod("securityContext: {privileged: true}"), ["privileged"]),
        (pod(spec="hostNetwork: true"), ["network"]),
        (pod("securityContext: {runAsUser: 1000}", spec="hostNetwork: true"), []),
        (pod("securityContext: {runAsNonRoot: true}", spec="hostNetwork: true"), []),
    ],
)
def test_rights(given: list[Any], about: list[str]) -> None:
    findings = examine(host_shared, given[0]).findings
    assert [row.about.split()[-1] for row in findings] == about


@pytest.mark.parametrize(
    ("image", "outcome"), [("v0.27.0", "failed"), ("v0.32.0", "passed"), ("latest", "passed")]
)
def test_default_origins_by_version(image: str, outcome: str) -> None:
    text = (
        f"services:\n  llm:\n    image: vllm/vllm-openai:{image}\n"
        "    command: --model m/m --allow-credentials\n"
    )
    assert examine(cors_open, *facts(text, "compose.yaml")).outcome == outcome


@pytest.mark.parametrize("origins", ["null", "5", "{}"])
def test_origins_that_are_no_list_are_undecided(origins: str) -> None:
    given = line(f"vllm serve m/m --allow-credentials --allowed-origins {origins}")
    assert examine(cors_open, *given).outcome == "blocked"


def test_the_readers_see_every_container_of_a_file() -> None:
    text = "services:\n" + "".join(
        f"  llm{n}:\n    image: vllm/vllm-openai:v0.27.0\n    command: --model m/m\n"
        "    privileged: true\n"
        for n in range(3)
    )
    found = [examine(host_shared, row).outcome for row in launches_in(text, "compose.yaml")]
    assert found == ["failed"] * 3


def test_key_that_may_come_with_others() -> None:
    shown = service("LoadBalancer")
    hidden = pod("envFrom: [{secretRef: {name: llm}}]", more=shown)
    assert examine(api_open, *hidden).outcome == "blocked"
    assert examine(api_open, *pod(more=shown)).findings


def test_port_that_the_file_does_not_tell() -> None:
    command = "--model m/m --port ${PORT}"
    published = "    ports: ['8000:8000']\n"
    assert examine(api_open, *compose(published, command)).outcome == "blocked"
