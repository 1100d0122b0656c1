"""Reads Envoy's configuration, and documents of Kubernetes, as far as they limit a request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infer_doctor.catalog.gateways import API_PATH, ENVOY_ROUTE_S, ENVOY_STREAM_IDLE_S
from infer_doctor.facts.server_limits import Buffering, Limit
from infer_doctor.launch.document import Node, documents
from infer_doctor.model import Evidence
from infer_doctor.server import kubernetes
from infer_doctor.server.durations import matches, seconds, text_of

HINTS = re.compile(
    r"^\s*-?\s*\"?(?:static_resources|virtual_hosts|route_config|virtualHosts)\"?\s*:"
    rf"|^\s*\"?kind\"?:\s*[\"']?(?:{'|'.join((*kubernetes.KINDS, 'List'))})\b",
    re.M,
)
DEEPEST = 60


def is_gateway(text: str) -> bool:
    """Whether a text may be a configuration of Envoy, an Ingress or a VirtualService."""
    return bool(HINTS.search(text))


def limits(
    text: str, file: str, path: str = API_PATH, gaps: list[str] | None = None
) -> tuple[tuple[Limit, ...], tuple[Buffering, ...]]:
    """The limits of routes that take the path; raises document.Broken."""
    found: list[Limit] = []
    buffers: list[Buffering] = []
    for node in (one for whole in documents(text, file) for one in kubernetes.objects(whole)):
        if kubernetes.is_object(node):
            more, kept = kubernetes.limits(node, file, path)
            found += more
            buffers += kept
            if gaps is not None:
                gaps += kubernetes.unread(node)
        else:
            found += _envoy(node, file, path)
    return tuple(found), tuple(buffers)


def _envoy(node: Node, file: str, path: str) -> Iterator[Limit]:
    idle_default = True
    for name, found in _walk(node, 0):
        if name == "stream_idle_timeout":
            idle_default = False
            yield from _limit("stream_idle_timeout of envoy", found, "next byte", file)
        elif name == "routes" and found.is_list:
            yield from _routes(found, file, path)
    if idle_default and node.get("static_resources") is not None:
        yield Limit(
            who="gateway",
            name="stream_idle_timeout of envoy",
            seconds=ENVOY_STREAM_IDLE_S,
            what="next byte",
            default=True,
            evidence=Evidence(source=file, line=1, excerpt="stream_idle_timeout: 300s (default)"),
        )


def _routes(rows: Node, file: str, path: str) -> Iterator[Limit]:
    """The first route that takes the path, and those before it of which that is not sure."""
    for row in rows.value:
        match, route = row.get("match"), row.get("route")
        taken = _takes(match, path) if match is not None else False
        if taken is False:
            continue
        if route is not None and route.is_map:
            yield from _of_route(route, file)
        if taken:
            return


def _of_route(route: Node, file: str) -> Iterator[Limit]:
    timeout = route.get("timeout")
    if timeout is not None:
        yield from _limit("route timeout of envoy", timeout, "whole answer", file)
    else:
        yield Limit(
            who="gateway",
            name="route timeout of envoy",
            seconds=ENVOY_ROUTE_S,
            what="whole answer",
            default=True,
            evidence=Evidence(source=file, line=route.line, excerpt="timeout: 15s (default)"),
        )
    if (idle := route.get("idle_timeout")) is not None:
        yield from _limit("route idle_timeout of envoy", idle, "next byte", file)
    if (each := route.get("retry_policy", "per_try_timeout")) is not None:
        yield from _limit("per_try_timeout of envoy", each, "whole answer", file)


def _walk(node: Node, depth: int) -> Iterator[tuple[str, Node]]:
    """(key, value) of every key."""
    if depth > DEEPEST:
        return
    if node.is_map:
        for name, value in node.value.items():
            yield name, value
            yield from _walk(value, depth + 1)
    elif node.is_list:
        for value in node.value:
            yield from _walk(value, depth + 1)


def _takes(match: Node, path: str) -> bool | None:
    """Whether a match takes the path; None when headers or the like decide too."""
    prefix, exact = text_of(match.get("prefix")), text_of(match.get("path"))
    parted, regex = match.get("path_separated_prefix"), match.get("safe_regex", "regex")
    taken = (
        (bool(prefix) and path.startswith(prefix))
        or exact == path
        or (parted is not None and f"{path}/".startswith(text_of(parted) + "/"))
        or (regex is not None and matches(text_of(regex), path, whole=True))
    )
    if not taken:
        return False
    more = {"headers", "query_parameters", "runtime_fraction", "grpc", "dynamic_metadata"}
    return None if more & set(match.value) else True


def _limit(name: str, node: Node, what: str, file: str) -> Iterator[Limit]:
    value = seconds(text_of(node))
    if value:  # 0 turns it off
        excerpt = f"{name.split(' of ')[0]}: {text_of(node)}"
        yield Limit(
            who="gateway",
            name=name,
            seconds=value,
            what=what,
            default=False,
            evidence=Evidence(source=file, line=node.line, excerpt=excerpt),
        )
