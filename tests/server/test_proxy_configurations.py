"""Time-outs and buffering out of configurations of proxies, manifests and code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doctor_process import Run

from infer_doctor.server import envoy, nginx

NGINX = """
http {
    proxy_read_timeout 1m;  # for all
    upstream engine { server 10.0.0.5:8000; }
    server {
        listen 80;
        location /static/ { root /srv; }
        location /v1/ {
            proxy_pass http://engine;
            proxy_read_timeout 5s;
            proxy_buffering off;
        }
        location / { proxy_pass http://engine; }
    }
    server {
        listen 81;
        location / { proxy_pass "http://engine"; }
    }
}
"""

ENVOY = """
static_resources:
  listeners:
  - filter_chains:
    - filters:
      - typed_config:
          route_config:
            virtual_hosts:
            - routes:
              - match: {prefix: "/health"}
                route: {cluster: engine, timeout: 1s}
              - match: {prefix: "/"}
                route: {cluster: engine}
"""

INGRESS = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: llm
  annotations:
    nginx.ingress.kubernetes.io/proxy-read-timeout: "30"
spec:
  ingressClassName: nginx
"""

CLIENT = """
from openai import OpenAI
client = OpenAI(base_url="http://engine:8000/v1", timeout=20.0)
client.chat.completions.create(model="m", messages=[])
"""


def test_nginx_takes_the_longest_prefix_and_inherits() -> None:
    limits, buffers = nginx.limits(NGINX, "nginx.conf")
    assert [(row.seconds, row.default, row.evidence.line) for row in limits] == [
        (5.0, False, 10),
        (60.0, False, 3),
    ]
    assert [row.on for row in buffers] == [False, True]


@pytest.mark.parametrize(
    ("location", "taken"),
    [
        ("location = /v1/chat/completions", True),
        ("location ^~ /v1", True),
        ("location ~ ^/v1/(chat/)?completions$", True),
        ("location ~* /V1/", True),
        ("location ~ (a+)+$", False),
        ("location /v2/", False),
    ],
)
def test_nginx_locations(location: str, taken: bool) -> None:
    text = "server { %s { proxy_pass http://a; proxy_read_timeout 7s; } location / { proxy_pass http://b; } }"
    limits, _ = nginx.limits(text % location, "n")
    assert (limits[0].seconds == 7) is taken


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5),
        ("300", 300),
        ("1m", 60),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("$x", None),
        ("", None),
        ("9" * 5000, None),
    ],
)
def test_nginx_times(text: str, seconds: float | None) -> None:
    assert nginx.duration((text,)) == seconds


def test_envoy_has_fifteen_seconds_for_the_whole_answer() -> None:
    limits, _ = envoy.limits(ENVOY, "envoy.yaml")
    assert [(row.name, row.seconds, row.what, row.default) for row in limits] == [
        ("route timeout of envoy", 15.0, "whole answer", True),
        ("stream_idle_timeout of envoy", 300.0, "next byte", True),
    ]


def test_an_ingress() -> None:
    limits, buffers = envoy.limits(INGRESS, "ingress.yaml")
    assert [(row.seconds, row.evidence.line) for row in limits] == [(30.0, 7)]
    assert buffers == ()


@pytest.mark.parametrize("text", [NGINX, NGINX[: len(NGINX) // 2], "{" * 100, "}" * 100, '"' * 9])
def test_cut_configurations_are_read(text: str) -> None:
    nginx.limits(text, "n")


def test_files_without_a_server_tell_what_fires_first(tmp_path: Path) -> None:
    (tmp_path / "nginx.conf").write_text(NGINX)
    (tmp_path / "client.py").write_text(CLIENT)
    (tmp_path / "ingress.yaml").write_text(INGRESS)
    files = ["nginx.conf", "client.py", "ingress.yaml"]
    done = Run(tmp_path)("probe", *files, "--format", "json", "--fail-on", "error")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    found = {row["check"]: row["findings"] for row in report["results"] if row["findings"]}
    assert found["server-timeout-first"][0]["message"].endswith(
        "fires first, after 5 s without the next byte"
    )
    assert [row["source"] for row in found["server-timeout-first"][0]["evidence"]] == [
        "nginx.conf",
        "client.py",
        "ingress.yaml",
        "nginx.conf",
    ]
    assert len(found["server-proxy-buffers"]) == 1
