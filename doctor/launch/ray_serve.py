"""Ray Serve LLM's configuration -> the engines of its models: a file of `serve deploy`, a RayService.

Read is what serve hands to vLLM: `engine_kwargs` of each of `llm_configs`, the model of its
`model_loading_config` (docs.ray.io, "Serving LLMs"; ray.llm/_internal/serve, 2.43 to 2.49).
"""

from __future__ import annotations

from collections.abc import Sequence

from infer_doctor.launch.document import Node, documents
from infer_doctor.launch.model import Keyword, Launch, Unknown, Variable

FRONTEND = frozenset(
    [
        "chat_template",
        "chat_template_content_format",
        "enable_auto_tool_choice",
        "enable_prompt_tokens_details",
        "exclude_tools_when_tool_choice_none",
        "lora_modules",
        "response_role",
        "return_tokens_as_token_ids",
        "tool_call_parser",
        "tool_parser_plugin",
    ]
)
"""Of engine_kwargs, what Ray gives to the server in front of the engine."""


def is_application(node: Node) -> bool:
    return any(_configs(row) for row in node.list("applications") if row.is_map)


def in_service(node: Node) -> Node | None:
    """The applications of a RayService, which stand in a text of their own."""
    held = node.get("spec", "serveConfigV2")
    if node.text("kind") != "RayService" or held is None or held.is_map or held.is_list:
        return None
    above = "\n" * ((held.first().line or 1) - 1)
    found = documents(above + held.string, held.file)
    return found[0] if found and found[0].is_map else None


def read(node: Node, file: str) -> list[Launch]:
    """An engine for each model."""
    return [
        _launch(config, file)
        for row in node.list("applications")
        if row.is_map
        for config in _configs(row)
    ]


def keywords_of(loading: Sequence[Keyword], engine: Sequence[Keyword]) -> list[Keyword]:
    """What vLLM's AsyncEngineArgs are given."""
    by_name = {row.name: row for row in loading}
    model = by_name.get("model_source") or by_name.get("model_id")
    rows = [row for row in engine if row.name not in FRONTEND]
    if model is None or any(row.name == "model" for row in rows):
        return rows
    value = model.value if isinstance(model.value, (str, Unknown)) else Unknown(str(model.value))
    return [Keyword(name="model", value=value, place=model.place), *rows]


def _configs(application: Node) -> list[Node]:
    rows = application.list("args", "llm_configs")
    return [row for row in rows if row.is_map and (row.text("llm_engine") or "vLLM") == "vLLM"]


def _launch(config: Node, file: str) -> Launch:
    held = [_keywords(config.get(name)) for name in ("model_loading_config", "engine_kwargs")]
    variables = config.get("runtime_env", "env_vars")
    return Launch(
        name=f"{file}:{config.line}: LLMConfig",
        kind="python",
        machine="another",
        engine="vllm",
        entry="AsyncEngineArgs",
        origin="ray.serve.llm.LLMConfig",
        place=config.place(),
        keywords=tuple(keywords_of(*held)),
        environment=tuple(
            Variable(
                name=name,
                value=row.string if row.unknown is None else None,
                place=row.place(key=True),
                source=row.unknown,
            )
            for name, row in (variables.items() if variables else [])
        ),
    )


def _keywords(node: Node | None) -> list[Keyword]:
    rows = node.items() if node is not None else []
    return [Keyword(name=name, value=row.plain(), place=row.place()) for name, row in rows]
