"""Fixes for what a launch asks of its model: options, variables, files."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence
from typing import Any

from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.fixes.launching import remove_option, set_option, set_variable
from infer_doctor.launch.judge import flag, setting
from infer_doctor.launch.model import Launch
from infer_doctor.model import Action, Fetch, Fix, Safety, WriteFile


def change_option(
    launch: Launch,
    options: EngineOptions,
    name: str,
    value: Any,
    title: str | None = None,
    *,
    why: str | None = None,
    safety: Safety = "safe",
) -> Fix:
    """Give an option another value; "Start with --max-model-len 32768"."""
    given = options.given.get(name)
    shown = setting(options, name, value) if value is not None else flag(options, name)
    long = "--" + name.replace("_", "-")
    return Fix(
        id=f"set-{name.replace('_', '-')}",
        title=title or f"Start with {shown}",
        safety=safety,
        restarts=True,
        why=why,
        actions=set_option(launch, long, value, given),
    )


def drop_option(launch: Launch, options: EngineOptions, *names: str, why: str | None = None) -> Fix:
    """Take options out, all of them or none."""
    given = [options.given[name] for name in names]
    written = [setting(options, row.name, row.text) if row.text else row.flag for row in given]
    return Fix(
        id=f"drop-{names[0].replace('_', '-')}",
        title=f"Start without {' and '.join(written)}",
        safety="safe",
        restarts=True,
        why=why,
        actions=tuple(
            action
            for row in given
            for action in remove_option(launch, row.flag, row.place, value=row.text or None)
        ),
    )


def change_variable(
    launch: Launch,
    name: str,
    value: str | None,
    *,
    why: str | None = None,
    safety: Safety = "safe",
) -> Fix:
    """Set a variable for the engine; None takes it out."""
    return Fix(
        id=f"set-{name.lower().replace('_', '-')}",
        title=f"Start with {name}={value}" if value is not None else f"Start without {name}",
        safety=safety,
        restarts=True,
        why=why,
        actions=set_variable(launch, name, value),
    )


def advise(
    id: str, title: str, *texts: str, commands: Sequence[str] = (), why: str | None = None
) -> Fix:
    """What only a person can do."""
    return Fix(
        id=id,
        title=title,
        safety="manual",
        restarts=True,
        why=why,
        actions=(
            *(Action(kind="command", text=command) for command in commands),
            *(Action(kind="text", text=text) for text in texts),
        ),
    )


CHATML = """\
{% for message in messages %}<|im_start|>{{ message["role"] }}
{{ message["content"] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}
"""
"""ChatML, whose turns end with <|im_end|>; transformers trims the line ends behind blocks
(utils/chat_template_utils.py)."""


def write_chat_template(folder: str) -> Fix:
    """The form that the tokenizer's own last token tells."""
    file = posixpath.join(folder, "chat_template.jinja")
    lines = " ".join(map(shlex.quote, CHATML.splitlines()))
    return Fix(
        id="write-chat-template",
        title=f"Write the template of ChatML to {file}: the model ends its turns with <|im_end|>",
        safety="unsafe",
        restarts=True,
        why="compare it with the model's card: tools and a system text of its own are not in it",
        actions=(
            WriteFile(
                text=f"printf '%s\\n' {lines} > {shlex.quote(file)}", file=file, content=CHATML
            ),
        ),
    )


def fetch_again(
    repository: str,
    files: Sequence[str],
    *,
    python: str | None,
    revision: str | None,
    folder: str | None,
) -> Fix:
    """Download files of a model once more."""
    words = ["hf", "download", repository, *files]
    if revision:
        words += ["--revision", revision]
    if folder:
        words += ["--local-dir", folder]
    command = shlex.join(words)
    many = f"{len(files)} files" if len(files) > 1 else files[0]
    shown = many if files else "the model"
    title = f"Download {shown} of {repository} again"
    if python is None or not files:
        return advise("fetch-model-files", title, commands=(command,))
    return Fix(
        id="fetch-model-files",
        title=title,
        safety="unsafe",
        restarts=True,
        why="needs the network and room for the files",
        actions=(
            Fetch(
                text=command,
                python=python,
                repository=repository,
                revision=revision,
                folder=folder,
                files=tuple(files),
            ),
        ),
    )
