"""The same service as it should be: an engine of its own process, errors that are errors."""

import os

import openai
from fastapi import FastAPI, HTTPException
from openai import AsyncOpenAI
from pydantic import BaseModel

client = AsyncOpenAI(
    base_url=os.environ["LLM_URL"], api_key=os.environ["LLM_KEY"], timeout=60.0, max_retries=0
)
app = FastAPI()


class Question(BaseModel):
    prompt: str
    max_tokens: int = 512


@app.post("/v1/completions")
async def complete(question: Question):
    try:
        answer = await client.completions.create(
            model="main", prompt=question.prompt, max_tokens=question.max_tokens
        )
    except openai.APITimeoutError as error:
        raise HTTPException(status_code=504, detail="the engine did not answer") from error
    except openai.APIError as error:
        raise HTTPException(status_code=502, detail="the engine failed") from error
    return {"text": answer.choices[0].text}
