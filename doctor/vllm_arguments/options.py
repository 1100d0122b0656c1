"""A launch of vLLM and the table of a version -> EngineOptions."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

from infer_doctor.facts.engine_options import EngineOptions, Option, OptionProblem
from infer_doctor.launch.command import SHELLS
from infer_doctor.launch.images import SERVE_SINCE as IMAGE_SERVES
from infer_doctor.launch.judge import CALLS
from infer_doctor.launch.model import Keyword, Launch, Unknown
from infer_doctor.vllm_arguments.history import best_choice, missing_field, missing_option, nearest
from infer_doctor.vllm_arguments.parse import Bad, Parsed, Setting, parse
from infer_doctor.vllm_arguments.placed import misplaced
from infer_doctor.vllm_arguments.table import TAKES_NOTHING, Row, Table, catalogue, ordered
from infer_doctor.vllm_arguments.values import choice_problem, listed, range_problem

SERVERS = ("serve", "api_server")

LOWERED = ("dtype", "load_format", "quantization", "tokenizer_mode")
"""Fields that the config classes put into lower case (config/model.py and load.py, 0.6 to 0.33);
the parser of the command line compares them as they are."""

SERVE_SINCE = (*IMAGE_SERVES, 0, 0)
FORBIDS_SINCE = (0, 15, 0, 0, 0)
"""Config classes refuse unknown keys (config/utils.py, extra="forbid")."""


def options_of(launch: Launch, table: Table, basis: str, *, exact: bool) -> EngineOptions:
    """What the engine will take its settings from."""
    if launch.entry in CALLS:
        given, problems, gaps = _of_call(launch, table)
        model = given.pop("model", None)
    else:
        parsed = parse(launch.words, launch.config, table, serve=_takes_word(launch, table))
        given, problems, gaps = _of_words(parsed, table, launch.entry)
        problems = misplaced(launch, problems, table)
        model = _model(launch, parsed, given)
    return EngineOptions(
        engine="vllm",
        version=table.version,
        basis=basis,
        exact=exact,
        entry=launch.entry,
        model=model,
        given=given,
        problems=tuple(problems),
        defaults=table.defaults,
        gaps=(*launch.gaps, *gaps),
    )


def _takes_word(launch: Launch, table: Table) -> bool:
    """Whether the model is a word: not in images older than the release whose entry point is `serve`.

    An image with a tag that moves is read as one of today; --engine may name an older one.
    """
    if launch.entry != "serve":
        return False
    container = launch.container
    of_image = (
        container is not None
        and bool(launch.program)
        and launch.program[0].place == container.image_place
    )
    return not (of_image and ordered(table.version or "999") < SERVE_SINCE)


def _of_words(
    parsed: Parsed, table: Table, entry: str
) -> tuple[dict[str, Option], list[OptionProblem], list[str]]:
    given: dict[str, Option] = {}
    gaps = list(parsed.gaps)
    if entry != "serve" and parsed.model is not None and parsed.model.unknown and not gaps:
        gaps.append(f"words that are not in the file: {parsed.model.unknown}")
    problems = [_problem(bad, table, entry) for bad in _with_cause(parsed, entry)]
    for setting in parsed.settings:
        name = setting.row["dest"]
        before = given.get(name)
        option = _option(setting)
        if before is not None and setting.row.get("action") != "append":
            problems += _repeated(before, option, setting)
        given[name] = option
        problems += _keys(option, table)
        if setting.row.get("deprecated"):
            problems.append(_deprecated(option, table))
    problems += _parsers(given, table)
    for token in parsed.repeated:
        problems.append(
            OptionProblem(
                kind="duplicate",
                flag=token.written,
                text=None,
                place=token.place,
                message=f"{token.written.partition('=')[0]} is given more than once; "
                "the last one counts",
            )
        )
    return given, problems, gaps


def _with_cause(parsed: Parsed, entry: str) -> Iterator[Bad]:
    """The words that are refused; of `serve serve MODEL` the second `serve` is the one too many."""
    model = parsed.model
    if entry == "serve" and model is not None and model.unknown is None and _is_shell(model.text):
        yield Bad(fault="leftover", token=model, text=model.text)
        return
    first = next((bad for bad in parsed.bad if bad.fault == "leftover"), None)
    if entry != "serve" or model is None or model.text != "serve" or first is None:
        before = last = None
        for bad in parsed.bad:  # of `—max-model-len 512` the value is left over too
            if not (bad.fault == before == "leftover" and _dashed(last) and not _dashed(bad.text)):
                yield bad
            before, last = bad.fault, bad.text
        return
    yield Bad(fault="leftover", token=model, text="serve")
    yield from (bad for bad in parsed.bad if bad is not first)


DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
"""Hyphens and dashes that are not the one of the keyboard."""


def _dashed(text: str | None) -> bool:
    return (text or "-")[0] in DASHES


def _is_shell(text: str) -> bool:
    """A program that is meant to run in the image: no model is called so."""
    return posixpath.basename(text) in (*SHELLS, "python", "python3")


def _parsers(given: dict[str, Option], table: Table) -> Iterator[OptionProblem]:
    """--tool-call-parser and --reasoning-parser are checked when the server is built."""
    plugins = {"tool_call_parser": "tool_parser_plugin"}
    for name, known in table.parsers.items():
        option = given.get(name)
        plugin = plugins.get(name, f"{name}_plugin")
        if option is None or not known or plugin in given or not isinstance(option.value, str):
            continue
        if not option.value or option.value in known:
            continue
        near = best_choice(option.value, known)
        yield OptionProblem(
            kind="choice",
            flag=option.flag,
            text=option.text,
            place=option.place,
            message=f"{option.flag} {option.value} is none of {listed(known)}",
            successor=f"{option.flag} {near}" if near else None,
        )


def _option(setting: Setting) -> Option:
    return Option(
        name=setting.row["dest"],
        flag=setting.token.written.partition("=")[0],
        value=setting.value,
        text=" ".join(setting.texts),
        place=setting.token.place,
    )


def _model(launch: Launch, parsed: Parsed, given: dict[str, Option]) -> Option | None:
    """The word, else --model or the key of the file; python -m ...api_server ignores the word."""
    option = given.pop("model", None)
    if parsed.model is None or launch.entry != "serve":
        return option
    token = parsed.model
    value: Any = token.text if token.unknown is None else Unknown(token.unknown)
    return Option(name="model", flag="", value=value, text=token.text, place=token.place)


def _problem(bad: Bad, table: Table, entry: str) -> OptionProblem:
    """A word that the parser refuses, with its history."""
    token, who = bad.token, f"vLLM {table.version}" if table.version else "this vLLM"
    written = token.written.partition("=")[0]

    def made(kind: Any, message: str, successor: str | None = None) -> OptionProblem:
        return OptionProblem(
            kind=kind,
            flag=written,
            text=bad.text,
            place=token.place,
            message=message,
            successor=successor,
        )

    if bad.fault == "unknown-option":
        return missing_option(
            bad.option, bad.text, token.place, table, catalogue(), written=written
        )
    if bad.fault == "ambiguous":
        shown = ", ".join(bad.candidates[:6])
        return made("ambiguous", f"{written} may be any of {shown}: {who} refuses it")
    if bad.fault == "missing-value":
        return made("missing-value", f"{bad.option} {bad.words}, and none follows")
    if bad.fault == "no-value-taken":
        off = (bad.text or "").lower() in ("false", "0", "no", "off")
        negated = f"--no-{bad.option[2:]}"
        has = negated in table.by_option
        instead = (negated if has else None) if off else bad.option
        return made("type", f"{bad.option} takes no value, and ={bad.text} is refused", instead)
    if bad.fault == "one-word":
        value = token.text.partition(" ")[2].strip()
        return made(
            "type",
            f"{token.text!r} is one word, and {who} takes it for no option: {bad.option} and its "
            "value are two",
            f"{bad.option}={value}",
        )
    if bad.fault == "leftover":
        if _dashed(bad.text):
            name = "--" + (bad.text or "").lstrip(DASHES + "-")
            return made(
                "type",
                f"{bad.text} begins with {(bad.text or '')[:1]} (U+{ord((bad.text or '-')[0]):04X}), "
                "as word processors and web pages make it, and no hyphen: it is taken for no option",
                name,
            )
        if bad.option:
            return made(
                "type",
                f"{bad.option} takes no value: {bad.text} is left over, and {who} refuses it",
                bad.option if (bad.text or "").lower() in ("true", "1", "yes", "on") else None,
            )
        if not (bad.text or "").strip():
            return made(
                "unknown",
                f"the line ends with a backslash and a blank: {who} gets the blank as a word, and the "
                "lines below do not belong to the command",
            )
        if entry == "serve" and _is_shell(bad.text or ""):
            return made(
                "unknown",
                f"`vllm serve` runs already, as the image's entry point or as the words before: "
                f"{bad.text} is taken for the model, and what it should run is never run",
                f"--entrypoint {bad.text}",
            )
        if entry == "serve" and bad.text == "serve":
            return made(
                "unknown",
                "`vllm serve` runs already, as the image's entry point or as the words before: a second "
                "serve is taken for the model, and the model after it is refused",
            )
        if entry != "api_server":
            return made(
                "unknown", f"{bad.text} belongs to no option, and the model is named before it"
            )
        words = "api_server runs already, and takes the model with --model"
        successor = None if bad.text == "serve" else f"--model {bad.text}"
        return made("type", f"{bad.text} belongs to no option: {words}", successor)
    if bad.fault == "model-option":
        return made(
            "renamed",
            f"`vllm serve` of {who} takes the model as its first word and refuses --model",
            f"vllm serve {bad.text}" if bad.text else None,
        )
    if bad.fault == "name-before-model":
        return made(
            "missing-value",
            f"{written} stands before the model and takes it for one more name: {who} wants the "
            "model first",
        )
    return made(bad.fault, f"{bad.option} {bad.text} {bad.words}", _choice(bad))


def _choice(bad: Bad) -> str | None:
    """The nearest of the choices; a share of the memory that was given in percent."""
    if bad.fault == "range" and bad.option == "--gpu-memory-utilization":
        percent = float(bad.text or "nan")
        return f"{bad.option} {percent / 100:g}" if 10 <= percent <= 100 else None
    choices = [str(one) for one in (bad.row or {}).get("choices", ()) if one is not None]
    if bad.fault != "choice" or not choices or not bad.text:
        return None
    found = best_choice(bad.text, choices)
    return f"{bad.option} {found}" if found else None


def _repeated(before: Option, option: Option, setting: Setting) -> Iterator[OptionProblem]:
    """Given twice on the command line with different values; a file's value may be overridden."""
    if before.place.file != option.place.file or before.text == option.text:
        return
    if setting.row.get("action") in TAKES_NOTHING and before.value == option.value:
        return
    yield OptionProblem(
        kind="duplicate",
        flag=option.flag,
        text=option.text,
        place=option.place,
        message=f"{before.flag} {before.text} is overridden by {option.flag} {option.text}: "
        "the last one counts",
    )


def _deprecated(option: Option, table: Table) -> OptionProblem:
    return OptionProblem(
        kind="deprecated",
        flag=option.flag,
        text=option.text,
        place=option.place,
        message=f"{option.flag} is deprecated in vLLM {table.version or ''}".rstrip(),
    )


def _keys(option: Option, table: Table) -> Iterator[OptionProblem]:
    """Keys within JSON that the config class does not have."""
    known = table.keys_of(option.name)
    if not known or not isinstance(option.value, dict):
        return
    for key in option.value:
        if key in known or not isinstance(key, str):
            continue
        near = nearest(key, known)
        refused = ordered(table.version or "999") >= FORBIDS_SINCE
        then = "" if refused else ": it is refused or ignored"
        yield OptionProblem(
            kind="unknown",
            flag=f"{option.flag.partition('.')[0]}.{key}",
            text=None,
            place=option.place,
            message=f"{option.name} of vLLM {table.version} has no key {key}{then}",
            nearest=near,
        )


def _of_call(
    launch: Launch, table: Table
) -> tuple[dict[str, Option], list[OptionProblem], list[str]]:
    """Keywords of LLM(...), EngineArgs(...) and AsyncEngineArgs(...)."""
    given: dict[str, Option] = {}
    problems: list[OptionProblem] = []
    names = table.fields | (set(table.llm) if launch.entry == "LLM" else set())
    for keyword in launch.keywords:
        if keyword.name == "args" or keyword.name == "kwargs":
            continue
        text = _text(keyword)
        if keyword.name not in names:
            problems.append(
                missing_field(
                    keyword.name, text, keyword.place, table, catalogue(), call=launch.entry
                )
            )
            continue
        option = Option(
            name=keyword.name,
            flag=keyword.name,
            value=keyword.value,
            text=text,
            place=keyword.place,
        )
        given[keyword.name] = option
        problems += _value(option, table.row(keyword.name))
        problems += _keys(option, table)
    problems += _parsers(given, table)
    return given, problems, []


def _text(keyword: Keyword) -> str:
    value = keyword.value
    if isinstance(value, Unknown):
        return value.text
    return value if isinstance(value, str) else repr(value)


def _value(option: Option, row: Row | None) -> Iterator[OptionProblem]:
    """A plain value of a keyword against the choices and bounds of the field."""
    value = option.value
    if row is None or isinstance(value, Unknown) or value is None:
        return
    found: tuple[Any, str | None] = ("range", range_problem(value, row))
    if isinstance(value, str) and row.get("type", "").rstrip("?") == "str":
        text = value.lower() if option.name in LOWERED else value
        if option.name == "guided_decoding_backend":
            text = text.partition(":")[0]  # xgrammar:no-fallback, 0.8 (GuidedDecodingParams)
        found = ("choice", choice_problem(text, row))
    kind, words = found
    if words is None:
        return
    choices = [str(one) for one in row.get("choices", ()) if one is not None]
    near = best_choice(str(value), choices) if kind == "choice" else None
    yield OptionProblem(
        kind=kind,
        flag=option.name,
        text=option.text,
        place=option.place,
        message=f"{option.name}={value!r} {words}",
        successor=f"{option.name}={near!r}" if near else None,
    )
