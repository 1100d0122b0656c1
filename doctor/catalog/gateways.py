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
