"""Triton Inference Server without an OpenAI front end: KServe's protocol version 2.

docs.nvidia.com/deeplearning/triton-inference-server: protocol/extension_model_repository.md,
extension_generate.md. The TensorRT-LLM backend takes text_input and max_tokens.
"""

from __future__ import annotations

from infer_doctor.server.ask import Asker, parsed

PROMPT = "Count from one to ten."
PREFERRED = ("ensemble", "tensorrt_llm_bls", "vllm_model")
"""Models of the usual repositories that take text."""


async def probe(asker: Asker, root: str, model: str | None, limit_s: float) -> bool:
    """Whether this is a Triton; if so it is asked for a few tokens."""
    row, body = await asker.get("triton", f"{root}/v2", limit_s)
    found = parsed(body)
    if not row.fine or not isinstance(found, dict) or found.get("name") != "triton":
        return False
    await asker.get("triton-ready", f"{root}/v2/health/ready", limit_s)
    row, listed = await asker.post("triton-models", f"{root}/v2/repository/index", {}, limit_s)
    names = [
        str(entry.get("name"))
        for entry in (listed if isinstance(listed, list) else [])
        if isinstance(entry, dict) and entry.get("state") in ("READY", None)
    ]
    used = model or next((name for name in PREFERRED if name in names), None)
    if used is not None and asker.left > 1:
        request = {"text_input": PROMPT, "max_tokens": 4, "bad_words": "", "stop_words": ""}
        await asker.post("generate", f"{root}/v2/models/{used}/generate", request, limit_s)
    return True
