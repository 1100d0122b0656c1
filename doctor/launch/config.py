"""The configuration file that a command line names, as keywords of its Launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Keyword, Launch, Word

OPTIONS = {
    "vllm": ("--config",),
    "tensorrt-llm": ("--extra-llm-api-options", "--config", "--config-file"),
}
"""vLLM reads the keys as long options; TensorRT-LLM as arguments of LLM(...)."""


def with_config(launch: Launch, read: Callable[[str], str] | None) -> Launch:
    """The launch with the keys of its configuration file, or with the gap that it leaves."""
    word = named(launch)
    if word is None:
        return launch
    if word.unknown is not None:
        return _gap(launch, f"the configuration file {word.text} is not known")
    from infer_doctor.launch.document import Broken

    try:
        if read is None:
            raise Unavailable("was not read")
        keywords = keys(read(word.text), word.text)
    except Unavailable as error:
        reason = error.reason.removeprefix(f"{word.text}: ")
        return _gap(launch, f"the configuration file {word.text}: {reason}")
    except Broken as error:
        return _gap(launch, f"the configuration file {error}")
    return replace(launch, config=keywords)


def named(launch: Launch) -> Word | None:
    """The word that names the configuration file, the last one given."""
    found = None
    wanted = OPTIONS.get(launch.engine or "", ())
    for index, word in enumerate(launch.words):
        name, equals, value = word.text.partition("=")
        if name.replace("_", "-") not in wanted:
            continue
        if equals:
            found = Word(text=value, place=word.place, unknown=word.unknown)
        elif index + 1 < len(launch.words):
            found = launch.words[index + 1]
    return found


def keys(text: str, file: str) -> tuple[Keyword, ...]:
    """The top-level keys of a YAML file; raises Broken. Of a key that stands twice the last counts."""
    from infer_doctor.launch.document import Broken, documents

    found = documents(text, file, twice=True)
    if not found:
        return ()
    if len(found) > 1:
        raise Broken(f"{file}:{found[1].line}: a second document begins; the engine takes one")
    if not found[0].is_map:
        raise Broken(f"{file}:{found[0].line}: is no mapping of options to values")
    return tuple(
        Keyword(name=name, value=node.plain(), place=node.place(key=True))
        for name, node in found[0].items()
    )


def _gap(launch: Launch, gap: str) -> Launch:
    return replace(launch, gaps=(*launch.gaps, gap))
