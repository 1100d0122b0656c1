"""Time-outs that proxies have when nothing is written.

nginx: nginx.org, ngx_http_proxy_module (proxy_read_timeout, proxy_send_timeout, proxy_connect_timeout
60 s each, proxy_buffering on, proxy_buffers 8 of one memory page). ingress-nginx: the same
(docs, "Annotations"). Envoy: route.timeout 15 s for the whole answer, stream_idle_timeout 5 min,
connect_timeout of a cluster 5 s (envoyproxy.io, "How do I configure timeouts?"). Read 2026-12.

Of Kubernetes: kubernetes-sigs.github.io/aws-load-balancer-controller ("idle_timeout.timeout_seconds",
60 s); docs.nginx.com, NGINX Ingress Controller ("nginx.org/proxy-read-timeout"); haproxy-ingress and
haproxytech's controller (50 s each); docs.konghq.com (milliseconds, 60 s); Azure's Application Gateway
(seconds, 20 s in an own probe, 30 s by default); docs.openshift.com, Route ("haproxy.router.openshift.io
/timeout", 30 s); cloud.google.com, BackendConfig and GCPBackendPolicy (timeoutSec, 30 s for the whole
answer). Read 2026-12.
"""

from __future__ import annotations

from dataclasses import dataclass

NGINX_READ_S = 60.0
NGINX_BUFFERS = True

ENVOY_ROUTE_S = 15.0
ENVOY_STREAM_IDLE_S = 300.0

API_PATH = "/v1/chat/completions"

VLLM_EXECUTE_S = 300.0
"""VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS: one step of the model (vllm/envs.py, 0.8 to 0.33)."""

VLLM_EXECUTE = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"

GATEWAY_ONLY = (502, 504)
"""No engine answers so: vLLM, SGLang, TGI, llama.cpp's server and trtllm-serve know 500 and 503."""

GATEWAY_WORDS = {
    "No server is available to handle this request": "haproxy",
    "The server returned an invalid or incomplete response": "haproxy",
    "The server didn't respond in time": "haproxy",
    "Your browser sent an invalid request": "haproxy",
    "no available server": "traefik",
    "no healthy upstream": "envoy",
    "upstream connect error or disconnect/reset before headers": "envoy",
    "upstream request timeout": "envoy",
    "stream timeout": "envoy",
    "no Route matched with those values": "kong",
}
"""HAProxy (src/http.c, http_err_msgs) and Traefik send no header Server; Envoy's own answers may lose
it in a mesh. Read 2026-12."""


GATEWAYS = (
    "nginx",
    "envoy",
    "istio-envoy",
    "openresty",
    "haproxy",
    "traefik",
    "caddy",
    "cloudflare",
    "awselb",
    "apache",
    "kong",
    "litellm",
    "squid",
    "varnish",
    "gunicorn",
    "microsoft-azure-application-gateway",
    "cloudfront",
    "apisix",
    "tengine",
)
"""First words of the header Server that no engine sends: vLLM and TensorRT-LLM say uvicorn."""


@dataclass(frozen=True)
class Annotation:
    """A time-out that a Kubernetes object carries; `default` holds for the class when it does not."""

    name: str
    title: str
    unit: float = 1.0
    """Seconds of a number without a unit."""
    what: str = "next byte"
    attribute: str = ""
    """Of a list such as a=1,b=2: the entry that counts."""
    default: float | None = None
    classes: tuple[str, ...] = ()
    """ingressClassName, or the prefix of annotations that shows the class."""


ANNOTATIONS = (
    Annotation(
        name="nginx.ingress.kubernetes.io/proxy-read-timeout",
        title="proxy-read-timeout of the Ingress",
        default=60.0,
        classes=("nginx", "nginx.ingress.kubernetes.io/"),
    ),
    Annotation(
        name="nginx.org/proxy-read-timeout",
        title="proxy-read-timeout of the Ingress",
        default=60.0,
        classes=("nginx.org/",),
    ),
    Annotation(
        name="alb.ingress.kubernetes.io/load-balancer-attributes",
        title="idle time-out of the load balancer",
        attribute="idle_timeout.timeout_seconds",
        default=60.0,
        classes=("alb", "alb.ingress.kubernetes.io/"),
    ),
    Annotation(
        name="service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout",
        title="idle time-out of the load balancer",
    ),
    Annotation(
        name="haproxy.org/timeout-server", title="timeout-server of the Ingress", unit=0.001
    ),
    Annotation(
        name="haproxy-ingress.github.io/timeout-server", title="timeout-server of the Ingress"
    ),
    Annotation(name="konghq.com/read-timeout", title="read-timeout of Kong", unit=0.001),
    Annotation(
        name="appgw.ingress.kubernetes.io/request-timeout",
        title="request-timeout of the Application Gateway",
        what="whole answer",
    ),
    Annotation(
        name="haproxy.router.openshift.io/timeout",
        title="time-out of the Route",
        default=30.0,
        classes=("Route",),
    ),
)

BUFFERS = {
    "nginx.ingress.kubernetes.io/proxy-buffering": ("on", None),
    "nginx.org/proxy-buffering": ("true", True),
}
"""Annotation -> the value that turns it on, and whether it is on when nothing is said (None: not told,
as a ConfigMap may say otherwise)."""

CLOUD_WHOLE_S = 30.0
"""GKE's backend service: from the request to the last byte of the answer."""
