"""Containers and images as subjects: their facts, their launch, their log, the daemon's GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from infer_doctor.containers.ask import Daemon, NoAnswer
from infer_doctor.containers.launch import launch_of
from infer_doctor.engine import Subject
from infer_doctor.examine import NO_LAUNCH, OF_THE_HOST, Examination
from infer_doctor.facts.docker import DockerContainer, DockerImage, container_of, image_of
from infer_doctor.facts.environment import Question
from infer_doctor.facts.image import ImageRequirements
from infer_doctor.facts.log import EngineLog
from infer_doctor.hands import VERSIONS
from infer_doctor.host import Capture, Host
from infer_doctor.launch.model import Launch
from infer_doctor.live import LiveHost
from infer_doctor.model import Missing
from infer_doctor.registry import Registry

OUTSIDE = "not seen from outside the container"

ABOUT = (DockerContainer, DockerImage, EngineLog, ImageRequirements, Launch)
"""What is judged from outside; the machine around is examined by `check` without --container."""


def examination(
    registry: Registry,
    containers: Sequence[str],
    images: Sequence[str],
    host: LiveHost | None,
    timeout_s: float,
) -> Examination:
    """All containers and images that were named; raises NoAnswer."""
    daemon = Daemon(timeout_s)
    try:
        machine = None
        if host is not None and daemon.local:
            machine = Subject("host", registry, host=host, given=[Question(python=None)])
        subjects = [_container(registry, daemon, name) for name in containers]
        subjects += [_image(registry, daemon, name) for name in images]
        for subject in subjects:
            for kind in OF_THE_HOST if machine else ():
                subject.give(kind, machine.get(kind) if machine else None)
    finally:
        daemon.close()
    return Examination(subjects, about={subject.name: ABOUT for subject in subjects})


def _container(registry: Registry, daemon: Daemon, name: str) -> Subject:
    found = daemon.container(name)
    try:
        image = daemon.image(str(found.get("Image", "")))
    except NoAnswer:  # it was removed, the container goes on
        image = {}
    gaps = []
    try:
        log = daemon.log(name)
    except NoAnswer as error:  # a log driver that keeps nothing
        log = b""
        gaps.append(str(error))
    lines = log.decode("utf-8", "backslashreplace").splitlines()
    fact = container_of(found, [line.rstrip() for line in lines], gaps)
    subject = _subject(registry, f"container {fact.name}", fact.variables)
    subject.give(DockerContainer, fact)
    if image:
        subject.give(DockerImage, image_of(image, daemon.info))
    launch = launch_of(found, image)
    if launch is not None:
        subject.give(Launch, launch)
    _give_log(subject, fact.name, log)
    return subject


def _give_log(subject: Subject, name: str, log: bytes) -> None:
    from infer_doctor.logs.read import read_texts
    from infer_doctor.logs.source import NotALog
    from infer_doctor.logs.subject import give

    try:
        facts = read_texts(log.decode("utf-8", "replace").splitlines(), f"docker logs {name}")
    except NotALog:
        return
    story = facts.get(EngineLog)
    if isinstance(story, EngineLog) and story.engine is not None:
        give(subject, facts)


def _image(registry: Registry, daemon: Daemon, name: str) -> Subject:
    fact = image_of(daemon.image(name), daemon.info)
    subject = _subject(registry, f"image {name}", fact.variables)
    subject.give(DockerImage, fact)
    return subject


def _subject(registry: Registry, name: str, variables: object) -> Subject:
    """A host that only has the environment: with it secrets are known and masked everywhere."""
    environ = Capture(
        operation="environ",
        arguments={},
        version=VERSIONS["environ"],
        value={"variables": dict(variables) if isinstance(variables, dict) else {}},
    )
    subject = Subject(
        name,
        registry,
        host=Host([environ], missing=OUTSIDE),
        given=[Question(python=None)],
        unasked=OUTSIDE,
        whole=True,
    )
    subject.give(Launch, Missing(fact="Launch", reason=NO_LAUNCH, kind="absent"))
    return subject
