"""Reads Envoy's configuration (and Gateway objects of Istio) as far as it limits a request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infer_doctor.catalog.gateways import (
    API_PATH,
    ENVOY_ROUTE_S,
    ENVOY_STREAM_IDLE_S,
    INGRESS_PREFIX,
    NGINX_READ_S,
)
from infer_doctor.facts.server_limits import Buffering, Limit
from infer_doctor.launch.document import Node, documents
from infer_doctor.model import Evidence

HINTS = re.compile(
    r"^\s*-?\s*\"?(?:static_resources|virtual_hosts|route_config|virtualHosts)\"?\s*:"
    r"|kind:\s*[\"']?(?:Ingress|VirtualService|HTTPRoute)\b",
    re.M,
)
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0, "": 1.0}
DEEPEST = 60


def is_gateway(text: str) -> bool:
    """Whether a text may be a configuration of Envoy, an Ingress or a VirtualService."""
    return bool(HINTS.search(text))


def limits(text: str, file: str) -> tuple[tuple[Limit, ...], tuple[Buffering, ...]]:
    """The limits of routes that take the API; raises document.Broken."""
    found: list[Limit] = []
    buffers: list[Buffering] = []
    for node in documents(text, file):
        kind = _text(node.get("kind"))
        if kind == "Ingress":
            _ingress(node, file, found, buffers)
        elif kind in ("VirtualService", "HTTPRoute"):
            found += _routes_of_mesh(node, file, kind)
        else:
            found += _envoy(node, file)
    return tuple(found), tuple(buffers)


def _text(node: Node | None) -> str:
    return str(node.value) if node is not None and not (node.is_map or node.is_list) else ""


def seconds(text: str) -> float | None:
    """15s, 0.5s, 1h30m (Go); None for anything else. 0 is "no limit"."""
    parts = DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def _envoy(node: Node, file: str) -> Iterator[Limit]:
    idle_default = True
    for name, found, route in _walk(node, 0):
        if name == "stream_idle_timeout":
            idle_default = False
            yield from _limit("gateway", "stream_idle_timeout of envoy", found, "next byte", file)
        elif name == "route" and _takes_api(route):
            timeout = found.get("timeout")
            if timeout is None:
                yield Limit(
                    who="gateway",
                    name="route timeout of envoy",
                    seconds=ENVOY_ROUTE_S,
                    what="whole answer",
                    default=True,
                    evidence=Evidence(
                        source=file, line=found.line, excerpt="timeout: 15s (default)"
                    ),
                )
            else:
                yield from _limit(
                    "gateway", "route timeout of envoy", timeout, "whole answer", file
                )
            if (idle := found.get("idle_timeout")) is not None:
                yield from _limit("gateway", "route idle_timeout of envoy", idle, "next byte", file)
    if idle_default and node.get("static_resources") is not None:
        yield Limit(
            who="gateway",
            name="stream_idle_timeout of envoy",
            seconds=ENVOY_STREAM_IDLE_S,
            what="next byte",
            default=True,
            evidence=Evidence(source=file, line=1, excerpt="stream_idle_timeout: 300s (default)"),
        )


def _walk(node: Node, depth: int) -> Iterator[tuple[str, Node, Node]]:
    """(key, value, the map around it) of every key."""
    if depth > DEEPEST:
        return
    if node.is_map:
        for name, value in node.value.items():
            yield name, value, node
            yield from _walk(value, depth + 1)
    elif node.is_list:
        for value in node.value:
            yield from _walk(value, depth + 1)


def _takes_api(route: Node) -> bool:
    match = route.get("match")
    if match is None:
        return False
    prefix, path = _text(match.get("prefix")), _text(match.get("path"))
    if path:
        return path == API_PATH
    return API_PATH.startswith(prefix) if prefix else match.get("safe_regex") is not None


def _limit(who: str, name: str, node: Node, what: str, file: str) -> Iterator[Limit]:
    value = seconds(_text(node))
    if value:  # 0 turns it off
        yield Limit(
            who=who,
            name=name,
            seconds=value,
            what=what,
            default=False,
            evidence=Evidence(
                source=file, line=node.line, excerpt=f"{name.split(' of ')[0]}: {_text(node)}"
            ),
        )


def _routes_of_mesh(node: Node, file: str, kind: str) -> Iterator[Limit]:
    for name, found, _ in _walk(node, 0):
        if name in ("timeout", "request", "backendRequest") and not found.is_map:
            yield from _limit("gateway", f"timeout of {kind}", found, "whole answer", file)


def _ingress(node: Node, file: str, found: list[Limit], buffers: list[Buffering]) -> None:
    notes = node.get("metadata", "annotations")
    klass = _text(node.get("spec", "ingressClassName"))
    values = notes.value if notes is not None and notes.is_map else {}
    ours = {k.removeprefix(INGRESS_PREFIX): v for k, v in values.items() if INGRESS_PREFIX in k}
    if not ours and klass != "nginx":
        return
    read = ours.get("proxy-read-timeout")
    value = seconds(_text(read)) if read is not None else NGINX_READ_S
    place = read or node
    if value:
        found.append(
            Limit(
                who="gateway",
                name="proxy-read-timeout of the Ingress",
                seconds=value,
                what="next byte",
                default=read is None,
                evidence=Evidence(
                    source=file,
                    line=place.line,
                    excerpt=f"proxy-read-timeout: {_text(read) or '60 (default)'}",
                ),
            )
        )
    on = ours.get("proxy-buffering")
    if on is not None:  # ingress-nginx has it off by default
        buffers.append(
            Buffering(
                name="the Ingress",
                on=_text(on) == "on",
                evidence=Evidence(
                    source=file, line=on.line, excerpt=f"proxy-buffering: {_text(on)}"
                ),
            )
        )
