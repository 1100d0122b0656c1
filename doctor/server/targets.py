"""What stands on the command line of a probe, told apart: URLs, saved metrics, configurations."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

from infer_doctor.catalog.gateways import API_PATH
from infer_doctor.facts.server import ServerMetrics
from infer_doctor.facts.server_limits import Buffering, Limit
from infer_doctor.server import chain, envoy, exposition, haproxy, kubernetes, metrics, nginx
from infer_doctor.server.address import Address, BadAddress, is_url, parse
from infer_doctor.targets import NoTarget, look, read_text

KIND = re.compile(r"^\s*\"?kind\"?:\s*[\"']?(\w+)", re.M)

SOON_S = 1.0
"""Seconds between two files below which their times tell nothing."""


@dataclass
class Targets:
    """What a probe works with."""

    address: Address | None = None
    metrics_address: Address | None = None
    saved: list[tuple[str, metrics.Scrape, float]] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    buffering: list[Buffering] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)

    @property
    def known(self) -> bool:
        """Whether a file told anything."""
        return bool(self.saved or self.limits or self.buffering or self.gaps)


def read(words: Sequence[str]) -> Targets:
    """All targets; raises NoTarget with one sentence."""
    found = Targets()
    for word in words:
        if is_url(word):
            _url(word, found)
    path = f"{found.address.api}/chat/completions" if found.address is not None else API_PATH
    for word in words:
        if not is_url(word):
            _file(word, found, path)
    if found.address is None and not found.known:
        raise NoTarget(
            f"{', '.join(words)}: nothing of a server, of time-outs or of buffering in it"
        )
    if len(found.saved) > 2:
        raise NoTarget("give one or two saved /metrics, not more")
    if found.saved and found.address is not None:
        raise NoTarget("give a URL or saved /metrics, not both")
    return found


def _url(word: str, found: Targets) -> None:
    try:
        address = parse(word)
    except BadAddress as error:
        raise NoTarget(str(error)) from None
    if address.given.endswith("/metrics") and found.address is not None:
        found.metrics_address = address
    elif found.address is None:
        found.address = address
    else:
        raise NoTarget("give one URL of a server, and at most that of its /metrics beside it")


def _file(path: str, found: Targets, api: str) -> None:
    socket = path.removeprefix("unix://")
    if _is_socket(socket):
        raise NoTarget(
            f"{socket} is a Unix socket, and a probe takes http://; this makes one of it: "
            f"socat TCP-LISTEN:8000,bind=127.0.0.1,fork UNIX-CONNECT:{socket}"
        )
    text = read_text(path)
    name = "standard input" if path == "-" else path
    if exposition.is_exposition(text) or text.lstrip()[:1] == "[":
        scrape = metrics.read(text)
        if scrape is None:
            raise NoTarget(f"{path}: holds no metrics of vLLM, TensorRT-LLM or Triton")
        found.saved.append((name, scrape, _written(path)))
    elif envoy.is_gateway(text):
        _documents(path, text, name, found, api)
    elif haproxy.is_haproxy(text):
        limits, buffers = haproxy.limits(text, name, api, found.gaps)
        found.limits += limits
        found.buffering += buffers
    elif nginx.is_nginx(text):
        limits, buffers = nginx.limits(text, name, api, found.gaps)
        found.limits += limits
        found.buffering += buffers
    else:
        _launches(path, found)


def _documents(path: str, text: str, name: str, found: Targets, api: str) -> None:
    """Envoy's configuration, or objects of Kubernetes, perhaps with workloads beside them."""
    from infer_doctor.launch.document import Broken

    try:
        limits, buffers = envoy.limits(text, name, api, found.gaps)
    except Broken as error:
        raise NoTarget(str(error)) from None
    found.limits += limits
    found.buffering += buffers
    if set(KIND.findall(text)) <= {*kubernetes.KINDS, "List"}:
        return
    try:
        _launches(path, found)
    except NoTarget:
        if not limits and not buffers:
            raise


def _launches(path: str, found: Targets) -> None:
    try:
        known = look(path)
    except NoTarget as error:
        raise NoTarget(
            f"{error}; a probe takes a URL, saved /metrics, the configuration of nginx, HAProxy or "
            "Envoy, an Ingress or a route, a launch, a manifest or client code"
        ) from None
    for launch in known.launches:
        found.limits += chain.of_launch(launch)
        found.gaps += launch.gaps
    if known.code is not None:
        found.limits += chain.of_code(known.code)
        found.gaps += known.code.gaps


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _written(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def saved_metrics(found: Targets) -> ServerMetrics | None:
    """The fact of one saved file, or of two in the order of their counters or times."""
    if not found.saved:
        return None
    rows = sorted(found.saved, key=lambda row: (_made(row[1]), row[2]))
    name = " and ".join(row[0] for row in rows)
    if len(rows) == 1:
        return metrics.between(name, rows[0][1], None)
    apart = rows[1][2] - rows[0][2]
    return metrics.between(
        name, rows[0][1], rows[1][1], seconds=round(apart, 1) if apart >= SOON_S else None
    )


def _made(scrape: metrics.Scrape) -> float:
    """Tokens that were ever made, steps or requests: the later scrape has more."""
    return sum(
        state.tokens or state.iterations or state.finished or 0 for state in scrape.engines.values()
    )
