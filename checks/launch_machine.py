"""A launch for a machine of which nothing is known here."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator

from infer_doctor.facts.gpu import Gpus
from infer_doctor.fixes.machine import judge_for_machine
from infer_doctor.launch.model import Launch
from infer_doctor.launch.sizes import all_ranks
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.units import plural

WHAT = {
    "docker-run": "this docker run",
    "compose": "this service",
    "kubernetes": "this container",
    "helm": "these values",
    "skypilot": "this task",
    "systemd": "this unit",
    "dockerfile": "this image",
}


@check("launch-machine-unknown", severity="info", category="launch_argument", since="0.1")
def machine_unknown(launch: Launch, gpus: Gpus | None) -> Iterator[Finding]:
    """The launch is for another machine, of which nothing is known here.

    ## Why it matters
    Whether the model fits, whether its format and kernels run on the GPU, and whether there are as
    many GPUs as ranks depends on that machine. A report without errors does not say so then.

    ## How it decides
    A manifest, a Compose file, a unit, a Dockerfile or a `docker run` in a script is for another
    machine; facts of this one never judge it. The finding comes unless the GPUs of that machine were
    given. The number of ranks is the product of the parallel sizes that the launch writes.

    ## Fix safety
    Manual: the facts have to be taken on that machine.
    """
    if launch.machine == "local" or gpus is not None:
        return
    count = all_ranks(launch)
    needs = f"; it starts {plural(count, 'rank')}, a GPU each" if count else ""
    what = WHAT.get(launch.kind, "this launch")
    yield Finding(
        about=launch.name,
        message=f"the machine that will run {what} is not known: its GPUs, memory and driver were "
        f"not judged{needs}",
        evidence=(
            Evidence(
                source=launch.place.file,
                line=launch.place.line,
                excerpt=" ".join(launch.command)[:160],
            ),
        ),
        fixes=(judge_for_machine(shlex.quote(posixpath.normpath(launch.place.file))),),
    )
