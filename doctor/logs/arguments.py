"""Arguments that an engine does not take: what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable

from infer_doctor.fixes.log import cure
from infer_doctor.logs.answers import Answer
from infer_doctor.logs.story import Hit, Start
from infer_doctor.model import Fix

OPENAI_ONLY = frozenset(
    {
        "--api-key",
        "--served-model-name",
        "--chat-template",
        "--response-role",
        "--lora-modules",
        "--enable-auto-tool-choice",
        "--tool-call-parser",
    }
)
"""Arguments that the OpenAI server has had since 0.2 to 0.6 and vllm/entrypoints/api_server.py never."""

TRT = {
    "--max_output_len": "--max_seq_len (input plus output, from 0.11)",
    "--model_dir": "--checkpoint_dir (a converted checkpoint)",
    "--quantization": "quantize.py --qformat, before the build",
    "--use_custom_all_reduce": "nothing: removed after 0.11",
    "--enable_xqa": "nothing: removed in 0.16",
    "--builder_force_num_profiles": "the variable BUILDER_FORCE_NUM_PROFILES",
    "--use_inflight_batching": "nothing: on by default",
    "--dtype": "the dtype of the checkpoint",
    "--tp_size": "the tp_size of the checkpoint",
}
"""trtllm-build 0.11 to 1.2: what is gone -> what to write."""


def unknown_argument(hit: Hit, start: Start) -> Answer:
    """What replaced an argument that is gone, or which version has it."""
    groups = hit.match.groupdict()
    text = groups.get("args") or ""
    words = re.findall(r"--[A-Za-z][\w.-]*", text)
    if hit.signature.engine == "trtllm":
        known = [f"{word} -> {TRT[word]}" for word in words if word in TRT]
        if not known:
            return Answer()
        return Answer(fixes=(cure("replace-argument", "Write " + "; ".join(known)),))
    given = list(dict.fromkeys(word.replace("_", "-") for word in words))
    version = f"vLLM {start.version}" if start.version else "this vLLM"
    module = groups.get("program") == "api_server.py"
    if not given:
        return _no_option(text, version, module) if text else Answer()
    if module and (asked := [word for word in given if word in OPENAI_ONLY]):
        return Answer(
            message=f"the server that was started has no {', '.join(asked)}: it is the demo server, "
            "not the OpenAI one",
            fixes=(
                cure(
                    "openai-server",
                    "Start python -m vllm.entrypoints.openai.api_server (vllm serve from 0.5) instead "
                    "of vllm.entrypoints.api_server",
                    why="the demo has neither the OpenAI routes nor an API key",
                ),
            ),
        )
    return Answer(
        message=f"{version} has no {', '.join(given)}",
        fixes=tuple(_instead(word, text) for word in given),
    )


def _no_option(text: str, version: str, module: bool) -> Answer:
    """Words that are no options: a path, or an option with one hyphen."""
    from infer_doctor.vllm_arguments.table import catalogue

    word = text.split()[0].partition("=")[0]
    long = f"-{word.replace('_', '-')}"
    if word.startswith("-") and catalogue().spans_of_option(long):
        fix = cure("replace-argument", f"Write {long}, with two hyphens, instead of {word}")
    elif module and not word.startswith("-"):
        fix = cure(
            "replace-argument",
            f"Write --model {word}: only vllm serve takes the model without it",
        )
    else:
        fix = cure("remove-argument", f"Remove {text}, or write what replaced it")
    return Answer(message=f"{version} has no argument {text}", fixes=(fix,))


def _instead(word: str, text: str) -> Fix:
    """The cure for one option, by the versions that have it."""
    from infer_doctor.catalog.vllm_renamed import NOTES, SUCCESSORS
    from infer_doctor.vllm_arguments.table import catalogue

    if new := SUCCESSORS.get(word):
        value = re.search(rf"{word.replace('-', '[-_]')}[ =]([^\s-]\S*)", text)
        new = new.replace("{value}", value[1] if value else "VALUE")
        return cure("replace-argument", f"Write {new} instead of {word}")
    known = catalogue()
    spans = known.spans_of_option(word)
    if word in NOTES or not spans:
        return cure("remove-argument", f"Remove {word}", why=NOTES.get(word))
    first, last = spans[0][0], spans[-1][1]
    if last is not None:
        return cure("remove-argument", f"Remove {word}", why=f"gone since {known.after(last)}")
    if first == known.versions[0]:
        return cure(
            "argument-words",
            f"Give {word} and its value as two words (two items of a list), or upgrade vLLM",
            why=f"every version from {first} on has {word}",
        )
    return cure(
        "upgrade-for-argument",
        f"Upgrade to vLLM {first} or newer, or remove {word}",
        why=f"{word} came with {first}",
    )


FUNCTIONS: dict[str, Callable[[Hit, Start], Answer]] = {"unknown_argument": unknown_argument}
