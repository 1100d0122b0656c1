"""The driver of `check --ray`, a process of its own: `python -m infer_doctor.cluster.ray_driver`.

Settings as JSON on standard input; a line of JSON for the list of nodes, then one for each that
answered, as it answers. Ray's own output goes to standard error. It may hang at any point and is killed
then: `cluster/rays.py` has what came until then. When standard input ends the doctor is gone, however
that came: the driver ends too, and with it Ray ends its tasks.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
import threading
import time
from importlib.util import find_spec
from typing import Any

SHIPPED = ("pynvml", "packaging")
"""What the doctor imports of others to look at a machine."""

KEEP_DEVICES = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
}
"""Else Ray empties CUDA_VISIBLE_DEVICES for a task that asks for no GPU, and that would be judged."""

ON_THE_WAY_S = 5.0
"""The start of a worker with the shipped doctor takes 3 to 5 s before a node's own time begins."""

FOLDER = threading.Lock()
"""Held while the folder is written or removed, and by the end of the process: it waits for a removal."""

LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


def take(settings: dict[str, Any]) -> Any:
    """On a node: the text of its snapshot, and its part in a meeting."""
    from infer_doctor.cluster.node import snapshot_of_this_node

    return snapshot_of_this_node(settings)


def ship(folder: str) -> None:
    """This very infer-doctor and what it needs, as a folder that the tasks import from."""
    import infer_doctor
    from infer_doctor import checks, fixes

    package = os.path.join(folder, "infer_doctor")
    shutil.copytree(os.path.dirname(infer_doctor.__file__), package, ignore=LEFT_OUT)
    for part in (checks, fixes):
        target = os.path.join(package, part.__name__.rpartition(".")[2])
        if not os.path.isdir(target):  # an editable installation maps folders of other places
            shutil.copytree(os.path.dirname(str(part.__file__)), target, ignore=LEFT_OUT)
    for name in SHIPPED:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            continue
        if spec.submodule_search_locations:
            source = os.path.dirname(spec.origin)
            shutil.copytree(source, os.path.join(folder, name), ignore=LEFT_OUT)
        else:
            shutil.copy(spec.origin, folder)


def end_with_the_doctor(folder: str) -> None:
    """Ctrl-C or a kill of the doctor leaves neither tasks nor the folder; by read(2), for the lock of
    sys.stdin would be held when Python ends."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        with FOLDER:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what Ray prints is not an answer

    def say(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    ended = time.monotonic() + settings["limit_s"]
    end_with_the_doctor(settings["folder"])
    try:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    except ImportError as error:
        say(failed=f"{sys.executable} cannot import Ray: {error}")
        return
    os.environ["RAY_DEDUP_LOGS"] = "0"
    with FOLDER:
        ship(settings["folder"])
    try:
        ray.init(
            address=settings["address"],
            logging_level=logging.ERROR,
            log_to_driver=False,
            runtime_env={"working_dir": settings["folder"], "env_vars": KEEP_DEVICES},
        )
    except Exception as error:
        say(failed=f"Ray at {settings['address']}: {type(error).__name__}: {error}")
        return
    rows = ray.nodes()
    say(nodes=[_node(row) for row in rows], version=ray.__version__)
    task = ray.remote(num_cpus=0, max_retries=0)(take)
    places = {
        row["NodeID"]: NodeAffinitySchedulingStrategy(row["NodeID"], soft=False)
        for row in rows
        if row["Alive"]
    }
    linkers = _linkers(ray, places) if settings["deep"] else {}
    waiting = {}
    left = max(2.0, (ended - time.monotonic()) * settings["share"])
    for node, place in places.items():
        own = {**settings, "limit_s": left}
        waiting[task.options(scheduling_strategy=place).remote(own)] = node
    parts: dict[str, Any] = {}

    def hear(until: float) -> None:
        while waiting and time.monotonic() < until:
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=0.5)
            for reference in done:
                node = waiting.pop(reference)
                try:
                    text, part = ray.get(reference)
                except Exception as error:
                    say(node=node, error=_words(error))
                    continue
                say(node=node, snapshot=text)
                if part is not None:
                    parts[node] = part

    if linkers:
        from infer_doctor.cluster.ray_links import meet

        hear(time.monotonic() + left + ON_THE_WAY_S)
        meet(ray, linkers, parts, ended, say)
    hear(ended)
    say(ended=True)
    with contextlib.suppress(Exception):
        ray.shutdown()


def _linkers(ray: Any, places: dict[str, Any]) -> dict[str, Any]:
    """An actor on each node, started while the nodes look at themselves."""
    from infer_doctor.cluster.ray_links import Linker

    actor = ray.remote(num_cpus=0, max_restarts=0)(Linker)
    return {
        node: actor.options(scheduling_strategy=place).remote() for node, place in places.items()
    }


def _node(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["NodeID"],
        "alive": bool(row["Alive"]),
        "host": row.get("NodeManagerHostname") or row.get("NodeManagerAddress") or "",
        "address": row.get("NodeManagerAddress") or "",
        "resources": {
            name: amount
            for name, amount in (row.get("Resources") or {}).items()
            if isinstance(amount, (int, float)) and not name.startswith("node:")
        },
    }


def _words(error: BaseException) -> str:
    """The kind of a failure and its first words: Ray's texts are pages."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return f"{type(cause).__name__}: {lines[0][:200] if lines else 'no words'}"


if __name__ == "__main__":
    try:
        main()
    finally:
        FOLDER.acquire()
