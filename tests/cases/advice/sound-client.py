"""The same client as it should be: one layer that retries, a deadline, the key from outside."""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ["LLM_URL"],
    api_key=os.environ["LLM_KEY"],
    timeout=60.0,
    max_retries=1,
)


def ask(question: str) -> str:
    answer = client.chat.completions.create(
        model="main", messages=[{"role": "user", "content": question}]
    )
    return answer.choices[0].message.content
