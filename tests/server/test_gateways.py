"""Time-outs of HAProxy, Envoy, and what stands before a Service in Kubernetes."""

from __future__ import annotations

from pathlib import Path

import pytest
from doctor_process import Run
from hypothesis import given
from hypothesis import strategies as st

from infer_doctor.facts.server_limits import Limit
from infer_doctor.server import envoy, haproxy, nginx
from infer_doctor.server.targets import read

HAPROXY = """
global
    log /dev/log local0
defaults
    mode http
    timeout connect 5s
    timeout client  30s
    timeout server  30s   # for pages
frontend api
    bind :443 ssl crt /etc/ssl/site.pem
    acl is_llm path_beg /v1 /llm
    acl is_static path_beg /static
    acl from_inside src 10.0.0.0/8
    use_backend static if is_static
    use_backend canary if is_llm from_inside
    use_backend llm if is_llm
    default_backend web
backend static
    timeout server 1s
    server s 10.0.0.1:80
backend canary
    timeout server 2m
    server c 10.0.0.2:8000
backend llm
    timeout server 600s
    server a 10.0.0.3:8000
backend web
    server w 10.0.0.4:80
listen statistics
    bind :9000
    stats enable
    timeout server 2s
"""


def seconds(limits: tuple[Limit, ...]) -> list[tuple[str, float]]:
    return [(row.name.split(" of ")[-1], row.seconds) for row in limits]


def test_haproxy_takes_the_first_backend_that_surely_holds() -> None:
    assert haproxy.is_haproxy(HAPROXY)
    limits = haproxy.limits(HAPROXY, "haproxy.cfg")[0]
    assert seconds(limits) == [("haproxy backend canary", 120.0), ("haproxy backend llm", 600.0)]
    assert (limits[0].evidence.line, limits[0].what) == (22, "next byte")
    other = haproxy.limits(HAPROXY, "haproxy.cfg", "/chat/v1/chat/completions")[0]
    assert seconds(other) == [("haproxy backend web", 30.0)]
    assert other[0].evidence.line == 8


@pytest.mark.parametrize(
    ("condition", "taken"),
    [
        ("if { path_beg /v1 }", True),
        ("if { path_beg -i /v1 }", True),
        ("if !{ path_beg /v1 }", False),
        ("unless { path /health }", True),
        ("if { path /health } || { path_sub chat }", True),
        ("if { path_end /models }", False),
        ("if { hdr(host) -i llm.example }", None),
        ("if unknown", None),
        ("", True),
    ],
)
def test_haproxy_conditions(condition: str, taken: bool | None) -> None:
    text = f"""
defaults
    mode http
frontend f
    use_backend one {condition}
    default_backend two
backend one
    timeout server 1000
backend two
    timeout server 2s
"""
    wanted = {True: [1.0], False: [2.0], None: [1.0, 2.0]}[taken]
    assert [row.seconds for row in haproxy.limits(text, "h")[0]] == wanted


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5000", 5),
        ("10us", pytest.approx(1e-5)),
        ("1h", 3600),
        ("1d", 86400),
        ("x", None),
        ("9" * 400, None),
    ],
)
def test_haproxy_times(text: str, value: float | None) -> None:
    assert haproxy.duration(text) == value


def test_unnamed_defaults_begin_anew_and_named_ones_are_taken_by_name() -> None:
    text = """
defaults base
    mode http
    timeout server 7s
defaults
    mode http
backend a
    server s 10.0.0.1:1
backend b from base
    server s 10.0.0.1:1
"""
    assert seconds(haproxy.limits(text, "h")[0]) == [("haproxy backend b", 7.0)]


@pytest.mark.parametrize("place", ["frontend", "backend", "defaults", ""])
def test_haproxy_waits_for_full_segments_unless_told(place: str) -> None:
    line = "    option http-no-delay\n"
    parts = {
        "defaults": "defaults\n    mode http\n",
        "frontend": "frontend f\n    default_backend b\n",
        "backend": "backend b\n    timeout server 9s\n",
    }
    text = "".join(part + (line if name == place else "") for name, part in parts.items())
    _, (buffer,) = haproxy.limits(text, "h")
    assert buffer.on is (place == "")


ROUTES = """
static_resources:
  listeners:
  - filter_chains:
    - filters:
      - typed_config:
          stream_idle_timeout: 0s
          route_config:
            virtual_hosts:
            - routes:
              - match: {path: "/health"}
                route: {cluster: a, timeout: 1s}
              - match: {prefix: "/v1/", headers: [{name: x}]}
                route: {cluster: a, timeout: 40s}
              - match: {safe_regex: {regex: "/v1/.*"}}
                route: {cluster: a, timeout: 0s, idle_timeout: 90s, retry_policy: {per_try_timeout: 2m}}
              - match: {prefix: "/"}
                route: {cluster: b}
"""


def test_envoy_takes_the_first_route_that_surely_holds() -> None:
    limits, _ = envoy.limits(ROUTES, "envoy.yaml")
    assert [(row.name, row.seconds, row.default) for row in limits] == [
        ("route timeout of envoy", 40.0, False),
        ("route idle_timeout of envoy", 90.0, False),
        ("per_try_timeout of envoy", 120.0, False),
    ]


def ingress(*annotations: str, kind: str = "Ingress", klass: str = "") -> str:
    rows = "".join(f"    {row}\n" for row in annotations)
    spec = f"spec:\n  ingressClassName: {klass}\n" if klass else "spec: {}\n"
    return f"apiVersion: v1\nkind: {kind}\nmetadata:\n  name: x\n  annotations:\n{rows}{spec}"


ALB = "alb.ingress.kubernetes.io"
OBJECTS = {
    "nginx": (
        ingress('nginx.ingress.kubernetes.io/proxy-read-timeout: "3600"'),
        [("next byte", 3600, False)],
    ),
    "nginx by class": (ingress("a: b", klass="nginx"), [("next byte", 60, True)]),
    "nginx of its makers": (
        ingress("nginx.org/proxy-read-timeout: 90s"),
        [("next byte", 90, False)],
    ),
    "load balancer": (
        ingress(f"{ALB}/load-balancer-attributes: a.b=true,idle_timeout.timeout_seconds=600"),
        [("next byte", 600, False)],
    ),
    "load balancer as it comes": (
        ingress(f"{ALB}/scheme: internal", klass="alb"),
        [("next byte", 60, True)],
    ),
    "classic balancer": (
        ingress(
            'service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout: "45"',
            kind="Service",
        ),
        [("next byte", 45, False)],
    ),
    "haproxy": (ingress("haproxy.org/timeout-server: 5000"), [("next byte", 5, False)]),
    "kong": (
        ingress('konghq.com/read-timeout: "60000"', kind="Service"),
        [("next byte", 60, False)],
    ),
    "application gateway": (
        ingress('appgw.ingress.kubernetes.io/request-timeout: "20"'),
        [("whole answer", 20, False)],
    ),
    "openshift": (
        ingress("haproxy.router.openshift.io/timeout: 5m", kind="Route"),
        [("next byte", 300, False)],
    ),
    "openshift as it comes": (ingress("a: b", kind="Route"), [("next byte", 30, True)]),
    "no class": (ingress("a: b"), []),
    "a plain service": (ingress("a: b", kind="Service"), []),
    "no number": (ingress("nginx.ingress.kubernetes.io/proxy-read-timeout: {{ t }}"), []),
    "mesh": (
        "kind: VirtualService\nmetadata: {name: x}\nspec:\n  http:\n"
        "  - match: [{uri: {exact: /health}}]\n    timeout: 1s\n"
        "  - match: [{uri: {prefix: /v1}}]\n    timeout: 20s\n    retries: {perTryTimeout: 8s}\n"
        "  - timeout: 3s\n",
        [("whole answer", 20, False), ("whole answer", 8, False)],
    ),
    "mesh by header": (
        "kind: VirtualService\nmetadata: {name: x}\nspec:\n  http:\n"
        "  - match: [{headers: {x: {exact: y}}}]\n    timeout: 4s\n  - timeout: 9s\n",
        [("whole answer", 4, False), ("whole answer", 9, False)],
    ),
    "gateway api": (
        "kind: HTTPRoute\nmetadata: {name: x}\nspec:\n  rules:\n"
        "  - timeouts: {request: 10s}\n"
        "  - matches: [{path: {type: PathPrefix, value: /v1}}]\n"
        "    timeouts: {request: 1m30s, backendRequest: 80s}\n"
        "  - matches: [{path: {value: /other}}]\n    timeouts: {request: 1s}\n",
        [("whole answer", 90, False), ("whole answer", 80, False)],
    ),
    "gateway api without a limit": (
        "kind: HTTPRoute\nmetadata: {name: x}\nspec: {rules: [{timeouts: {request: 0s}}]}\n",
        [],
    ),
    "contour": (
        "kind: HTTPProxy\nmetadata: {name: x}\nspec: {routes: [{timeoutPolicy: "
        "{response: infinity, idle: 30s}}]}\n",
        [("next byte", 30, False)],
    ),
    "gateway api of another method, and of some headers": (
        "kind: HTTPRoute\nmetadata: {name: x}\nspec:\n  rules:\n"
        "  - matches: [{path: {value: /v1}, method: GET}]\n    timeouts: {request: 5s}\n"
        "  - matches: [{path: {value: /v1/chat}, headers: [{name: a, value: b}]}]\n"
        "    timeouts: {request: 7s}\n"
        "  - timeouts: {request: 90s}\n",
        [("whole answer", 7, False), ("whole answer", 90, False)],
    ),
    "contour, the longest prefix": (
        "kind: HTTPProxy\nmetadata: {name: x}\nspec:\n  virtualhost: {fqdn: a.b}\n  routes:\n"
        "  - timeoutPolicy: {response: 15s}\n"
        "  - conditions: [{prefix: /static}]\n    timeoutPolicy: {response: 1s}\n"
        "  - conditions: [{prefix: /v1}]\n    timeoutPolicy: {response: 600s}\n",
        [("whole answer", 600, False)],
    ),
    "google": (
        "kind: BackendConfig\nmetadata: {name: x}\nspec: {timeoutSec: 40}\n",
        [("whole answer", 40, False)],
    ),
    "google as it comes": (
        "kind: GCPBackendPolicy\nmetadata: {name: x}\nspec: {default: {}}\n",
        [("whole answer", 30, True)],
    ),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects(name: str) -> None:
    text, wanted = OBJECTS[name]
    limits, _ = envoy.limits(text, "x.yaml")
    assert [(row.what, row.seconds, row.default) for row in limits] == wanted


@pytest.mark.parametrize(
    ("annotation", "buffers"),
    [
        ("nginx.ingress.kubernetes.io/proxy-buffering: 'on'", [True]),
        ("nginx.ingress.kubernetes.io/proxy-body-size: 8m", []),
        ("nginx.org/proxy-buffering: 'False'", [False]),
        ("nginx.org/client-max-body-size: 8m", [True]),
    ],
)
def test_buffering_of_an_ingress(annotation: str, buffers: list[bool]) -> None:
    _, found = envoy.limits(ingress(annotation), "x.yaml")
    assert [row.on for row in found] == buffers


def test_a_workload_beside_its_ingress_is_read_too(tmp_path: Path) -> None:
    pod = """
apiVersion: v1
kind: Pod
metadata: {name: llm}
spec:
  containers:
  - name: vllm
    image: vllm/vllm-openai:v0.12.0
    args: [--model, org/m]
    livenessProbe: {httpGet: {path: /health, port: 8000}, timeoutSeconds: 3}
"""
    file = tmp_path / "all.yaml"
    file.write_text(
        f"{pod}---\n{ingress('nginx.ingress.kubernetes.io/proxy-read-timeout: 30')}---\n"
        f"{ingress('a: b', kind='Service')}"
    )
    found = {(row.who, row.seconds) for row in read([str(file)]).limits}
    assert found == {("gateway", 30.0), ("probe", 3.0), ("engine", 300.0)}


def test_a_list_of_objects() -> None:
    one = ingress("haproxy.org/timeout-server: 7s").replace("\n", "\n  ").rstrip()
    text = f"apiVersion: v1\nkind: List\nitems:\n- {one}\n"
    assert envoy.is_gateway(text)
    limits, _ = envoy.limits(text, "x.yaml")
    assert [row.seconds for row in limits] == [7.0]


TELLS_NOT = {
    "x.yaml": ingress("nginx.ingress.kubernetes.io/proxy-read-timeout: {{ .Values.t | quote }}"),
    "x.cfg": "defaults\n  mode tcp\n  timeout server ${T}\nbackend b\n  server s 10.0.0.1:1\n",
}


@pytest.mark.parametrize("name", TELLS_NOT)
def test_a_time_of_a_template_is_a_gap(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(TELLS_NOT[name])
    found = read([str(tmp_path / name)])
    assert found.limits == []
    assert len(found.gaps) == 1


def test_a_file_that_tells_nothing_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(ingress("a: b", kind="Service"))
    done = Run(tmp_path)("probe", "service.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "service.yaml: nothing of a server" in done.stderr


# --- nginx


def test_files_that_nginx_includes(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "nginx.conf").write_text(
        "events {}\nhttp {\n  include mime.types;\n  proxy_read_timeout 1h;\n"
        "  include conf.d/*.conf;\n  include missing.conf;\n}\n"
    )
    (tmp_path / "conf.d" / "llm.conf").write_text(
        "server {\n  listen 80;\n  location /v1/ {\n    proxy_pass http://a;\n"
        "    include conf.d/stream.inc;\n  }\n}\n"
    )
    (tmp_path / "conf.d" / "stream.inc").write_text("# for streams\nproxy_buffering off;\n")
    (tmp_path / "conf.d" / "again.conf").write_text("include conf.d/*.conf;\n")
    found = read([str(tmp_path / "nginx.conf")])
    (limit,), (buffer,) = found.limits, found.buffering
    assert (limit.seconds, Path(limit.evidence.source).name, limit.evidence.line) == (
        3600.0,
        "nginx.conf",
        4,
    )
    assert (buffer.on, Path(buffer.evidence.source).name, buffer.evidence.line) == (
        False,
        "stream.inc",
        2,
    )
    assert found.gaps == ["include missing.conf: there is no such file"]


PREFIXES = """
server {
    location / { root /srv; try_files $uri @app; }
    location @app { proxy_pass http://pages; proxy_read_timeout 3s; }
    location /llm/one/ {
        rewrite ^/llm/one/(.*)$ /$1 break;
        proxy_pass http://one:8000/;
        proxy_read_timeout 700s;
    }
    location /triton { grpc_pass grpc://triton:8001; grpc_read_timeout 1d; }
}
"""


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/llm/one/v1/chat/completions", [700.0]),
        ("/v1/chat/completions", [3.0]),
        ("/triton/v1/chat/completions", [86400.0]),
    ],
)
def test_the_prefix_of_the_url_chooses_the_location(path: str, wanted: list[float]) -> None:
    limits, _ = nginx.limits(PREFIXES, "n", path)
    assert [row.seconds for row in limits] == wanted


def test_an_include_that_reads_the_disk_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "n.conf"
    file.write_text(
        "http {\n  include /*/*/*.conf;\n  server { proxy_read_timeout 9s; proxy_pass http://a; }\n}\n"
    )
    found = read([str(file)])
    assert found.gaps == ["include /*/*/*.conf: too many patterns to look through"]
    assert len(found.limits) == 1


@given(st.text(alphabet="abdefknoprstuw_./{}!|#\"'\\ \n:019", max_size=300))
def test_any_text_is_read(text: str) -> None:
    haproxy.limits(f"defaults\nfrontend f\n{text}\nbackend b\n{text}", "h")
    nginx.limits(f"server {{ {text}", "n")


def test_a_time_that_is_a_variable_is_a_gap(tmp_path: Path) -> None:
    file = tmp_path / "site.conf"
    file.write_text(
        "server { proxy_read_timeout ${READ}; location / { proxy_pass http://$up; } }\n"
    )
    found = read([str(file)])
    assert found.limits == []
    assert found.gaps == ["proxy_read_timeout of nginx location / is ${READ}"]


def test_what_an_unread_file_may_hold_is_not_told_as_the_default(tmp_path: Path) -> None:
    """The include is nearer than what the server says; what the location says itself holds."""
    file = tmp_path / "site.conf"
    file.write_text(
        "server { proxy_read_timeout 9s; location /v1/ { proxy_buffering off;\n"
        "include snippets/llm.conf; proxy_pass http://a; } }\n"
    )
    found = read([str(file)])
    assert found.limits == []
    assert [row.on for row in found.buffering] == [False]
    assert found.gaps == ["include snippets/llm.conf: there is no such file"]
    file.write_text("server { location / { proxy_pass http://a; proxy_buffering ${BUFFER}; } }\n")
    found = read([str(file)])
    assert (found.buffering, len(found.limits), len(found.gaps)) == ([], 1, 1)


def test_a_backend_that_a_map_chooses_is_a_gap(tmp_path: Path) -> None:
    text = HAPROXY.replace("use_backend canary", "use_backend %[req.hdr(host),map(/hosts.map)]")
    (tmp_path / "haproxy.cfg").write_text(text)
    found = read([str(tmp_path / "haproxy.cfg")])
    assert found.limits == []
    assert found.gaps == ["use_backend of frontend api is %[req.hdr(host),map(/hosts.map)]"]


def test_a_configuration_within_a_config_map(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: nginx\ndata:\n  default.conf: |\n"
        "    server {\n      listen 80;\n      location /v1/ {\n"
        "        proxy_pass http://engine:8000;\n        proxy_read_timeout 45s;\n      }\n    }\n"
    )
    (limit,) = read([str(file)]).limits
    assert (limit.seconds, limit.evidence.line) == (45.0, 11)
