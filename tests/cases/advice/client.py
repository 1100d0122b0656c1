"""A client with retries inside retries, no deadline and its key in the source."""

from openai import OpenAI
from tenacity import retry, stop_after_attempt, wait_fixed

client = OpenAI(
    base_url="http://llm.internal:8000/v1",
    api_key="prod-58c1d09e7a24",
    max_retries=3,
)


@retry(stop=stop_after_attempt(3), wait=wait_fixed(1))
def ask(question: str) -> str:
    answer = client.chat.completions.create(
        model="main", messages=[{"role": "user", "content": question}]
    )
    return answer.choices[0].message.content
