"""An engine that is to warm itself up, and pools its embeddings."""

import os

from vllm import LLM, PoolingType

MODEL = os.environ["MODEL"]

engine = LLM(
    model=MODEL,
    tensor_parallel_size=8,
    auto_warmup=True,
    ngram_parallel_finder=None,
    quantization="fp8",
    gpu_memory_utilization=0.9,
)


def complete(prompt: str) -> str:
    limits = SamplingParams(max_tokens=256, temperature=0.2)
    return engine.generate([prompt], limits)[0].outputs[0].text


def embed(text: str, kind: PoolingType = PoolingType.MEAN) -> list[float]:
    return engine.embed([text])[0].outputs.embedding
