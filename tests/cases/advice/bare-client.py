"""A client as short as it can be."""

import os

from openai import OpenAI

client = OpenAI(base_url=os.environ["LLM_URL"], api_key=os.environ["LLM_KEY"])


def ask(question: str) -> str:
    answer = client.chat.completions.create(
        model="main", messages=[{"role": "user", "content": question}]
    )
    return answer.choices[0].message.content
