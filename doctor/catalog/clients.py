"""What clients of an HTTP API do when nothing is said, and what the sources of it are.

openai 3.57.0 (_constants.py: DEFAULT_TIMEOUT 600 s with 5 s to connect, DEFAULT_MAX_RETRIES 2,
DEFAULT_CONNECTION_LIMITS 1000 connections; _base_client.py retries 408, 409, 429, 5xx, time-outs and
lost connections), httpx 0.28.1 (_config.py: 5 s for each of connect, read, write, pool; 100
connections), aiohttp 3.14.5 (client.py: 300 s in all), requests 2.34 (docs, "Timeouts": none).
Read 2026-12; the first four are the same in openai 1.0 and httpx 0.23.
"""

from __future__ import annotations

OPENAI_READ_S = 600
OPENAI_RETRIES = 2
OPENAI_CONNECTIONS = 1000

HTTPX_READ_S = 5

PUBLIC_HOSTS = (
    "api.openai.com",
    "openai.azure.com",
    "openrouter.ai",
    "api.together.xyz",
    "api.groq.com",
    "api.mistral.ai",
    "api.deepseek.com",
    "api.fireworks.ai",
    "generativelanguage.googleapis.com",
    "api.anthropic.com",
    "dashscope.aliyuncs.com",
    "integrate.api.nvidia.com",
    "router.huggingface.co",
    "api.perplexity.ai",
    "api.x.ai",
)
"""Hosted services: how long they take is not in the hands of who runs an engine."""
