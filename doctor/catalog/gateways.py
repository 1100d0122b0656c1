"""Time-outs that proxies have when nothing is written.

nginx: nginx.org, ngx_http_proxy_module (proxy_read_timeout, proxy_send_timeout, proxy_connect_timeout
60 s each, proxy_buffering on, proxy_buffers 8 of one memory page). ingress-nginx: the same
(docs, "Annotations"). Envoy: route.timeout 15 s for the whole answer, stream_idle_timeout 5 min,
connect_timeout of a cluster 5 s (envoyproxy.io, "How do I configure timeouts?"). Read 2026-12.
"""

from __future__ import annotations

NGINX_READ_S = 60.0
NGINX_BUFFERS = True

ENVOY_ROUTE_S = 15.0
ENVOY_STREAM_IDLE_S = 300.0

INGRESS_PREFIX = "nginx.ingress.kubernetes.io/"

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
