"""Ports, shared memory and arguments: small answers with the numbers of the case."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from infer_doctor.facts.memory import SHM
from infer_doctor.fixes.log import cure
from infer_doctor.logs.answers import Answer, number
from infer_doctor.logs.figures import count
from infer_doctor.logs.story import Hit, Start

LAST_PORT = 65_535

SHM_FLOOR_GIB = 1
"""NVIDIA's images recommend at least 1 GiB."""


def port(hit: Hit, start: Start) -> Answer:
    """Which port, and whether it is the server's own: the engine also uses others between ranks."""
    found = hit.match.groupdict().get("port")
    if not 0 < count(found) <= LAST_PORT:
        found = None
    served = start.values.get("port")
    if not found:
        return Answer(
            message="a port that the engine wants is taken by another process",
            fixes=(
                cure(
                    "find-port-holder",
                    "Find who listens, and end it or choose another --port",
                    "ss -ltnp",
                ),
            ),
        )
    other = int(found) + 1 if int(found) < LAST_PORT else int(found) - 1
    end = cure(
        "find-port-holder",
        f"Find who holds port {found} and end it if it is an old server",
        f"ss -ltnp 'sport = :{found}'",
    )
    change = cure("other-port", f"Or start with --port {other}")
    if served and served != found:
        change = cure(
            "other-port",
            "Or set MASTER_PORT or VLLM_PORT to a free range: this is no port of "
            f"the API, which is {served}",
        )
    return Answer(
        message=f"port {found} is taken by another process",
        fixes=(end, change),
        values={"port": found},
    )


def shm(hit: Hit, start: Start) -> Answer:
    """The size that the engine names, else what NVIDIA recommends."""
    need, free, size = (number(hit, name) for name in ("need", "free", "size"))
    ranks = int(start.number_of("tensor_parallel_size") or 1)
    wanted = max(SHM_FLOOR_GIB, math.ceil((need or 0) * (ranks + 1) / 1024))
    if need is None:
        fix = cure(
            "enlarge-shm",
            "Start the container with --ipc=host, or with a --shm-size above what df -h /dev/shm shows now",
            text="in Kubernetes: an emptyDir with medium: Memory at /dev/shm, without a sizeLimit of 64Mi",
        )
    else:
        fix = cure(
            "enlarge-shm",
            f"Start the container with --shm-size={wanted}g or --ipc=host",
            text=f"in Kubernetes: an emptyDir with medium: Memory and sizeLimit {wanted}Gi at /dev/shm",
        )
    message = None
    if need is not None and free is not None:
        message = f"{SHM} has {free:g} MiB free; {need:g} MiB are needed"
    elif size:
        message = f"NCCL could not make a segment of {size / (1 << 20):.1f} MiB in {SHM}"
    return Answer(message=message, fixes=(fix,))


def unknown_argument(hit: Hit, start: Start) -> Answer:
    """What replaced an argument that is gone."""
    words = re.findall(r"--[A-Za-z][\w.-]*", hit.match.groupdict().get("args") or "")
    given = [word.replace("_", "-") if word.startswith("--") else word for word in words]
    if hit.signature.engine == "trtllm":
        known = [f"{word} -> {TRT[word]}" for word in words if word in TRT]
        if not known:
            return Answer()
        return Answer(fixes=(cure("replace-argument", "Write " + "; ".join(known)),))
    version = f"vLLM {start.version}" if start.version else "this vLLM"
    if not given:
        name = hit.match.groupdict().get("args") or ""
        if not name:
            return Answer()
        return Answer(
            message=f"{version} has no argument {name}",
            fixes=(cure("remove-argument", f"Remove {name}, or write what replaced it"),),
        )
    from infer_doctor.catalog.vllm_renamed import NOTES, SUCCESSORS

    if hit.match.groupdict().get("program") == "api_server.py" and (
        asked := [word for word in given if word in OPENAI_ONLY]
    ):
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
    fixes = []
    for word in dict.fromkeys(given):
        value = re.search(rf"{word.replace('-', '[-_]')}[ =]([^\s-]\S*)", hit.match["args"])
        if new := SUCCESSORS.get(word):
            new = new.replace("{value}", value[1] if value else "VALUE")
            fixes.append(cure("replace-argument", f"Write {new} instead of {word}"))
        else:
            fixes.append(cure("remove-argument", f"Remove {word}", why=NOTES.get(word)))
    return Answer(message=f"{version} has no {', '.join(given)}", fixes=tuple(fixes))


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

FUNCTIONS: dict[str, Callable[[Hit, Start], Answer]] = {
    "port": port,
    "shm": shm,
    "unknown_argument": unknown_argument,
}
