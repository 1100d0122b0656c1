"""Reads the time-outs of what stands before a Service in Kubernetes: Ingress, routes, meshes, balancers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from infer_doctor.catalog.gateways import ANNOTATIONS, BUFFERS, CLOUD_WHOLE_S, Annotation
from infer_doctor.facts.server_limits import Buffering, Limit
from infer_doctor.launch.document import Node
from infer_doctor.model import Evidence
from infer_doctor.server.durations import matches, seconds, text_of

KINDS = (
    "Ingress",
    "Service",
    "Route",
    "VirtualService",
    "HTTPRoute",
    "HTTPProxy",
    "BackendConfig",
    "GCPBackendPolicy",
)
Taken = tuple[int, bool]
"""How specific a match of the path is, and whether nothing else decides."""

ROUTED = ("Ingress", "Route")
"""Kinds for which what is not written has a default."""


def is_object(node: Node) -> bool:
    """Whether a document is an object that may hold a time-out of a gateway."""
    return text_of(node.get("kind")) in KINDS and node.get("metadata") is not None


def objects(node: Node) -> Iterator[Node]:
    """The document, or what a List of it holds."""
    if text_of(node.get("kind")) == "List":
        yield from _items(node.get("items"))
    else:
        yield node


def unread(node: Node) -> Iterator[str]:
    """Time-outs that are written and cannot be read, such as those of a template."""
    for known in ANNOTATIONS:
        given = _notes(node).get(known.name)
        if given is not None and _value(known, given) == 0.0 and text_of(given) not in ("0", "0s"):
            yield f"{known.name} in line {given.line} cannot be read as a time"


def limits(node: Node, file: str, path: str) -> tuple[list[Limit], list[Buffering]]:
    """What it says of a request of this path."""
    kind = text_of(node.get("kind"))
    found = list(_annotated(node, kind, file))
    if kind == "VirtualService":
        found += _mesh(node, file, path)
    elif kind == "HTTPRoute":
        found += _route(node, file, path)
    elif kind == "HTTPProxy":
        found += _contour(node, file, path)
    elif kind in ("BackendConfig", "GCPBackendPolicy"):
        found += _cloud(node, kind, file)
    return found, list(_buffers(node, kind, file))


def _limit(name: str, node: Node, what: str, file: str, unit: float = 1.0) -> Iterator[Limit]:
    """The limit that a value is; 0 and what cannot be read is none."""
    value = seconds(text_of(node), unit)
    if value:
        yield _made(name, value, what, file, node.line, f"{name.split(' of ')[0]}: {text_of(node)}")


def _made(
    name: str, value: float, what: str, file: str, line: int, excerpt: str, *, default: bool = False
) -> Limit:
    evidence = Evidence(source=file, line=line, excerpt=excerpt)
    return Limit(
        who="gateway", name=name, seconds=value, what=what, default=default, evidence=evidence
    )


# --- annotations


def _notes(node: Node) -> dict[str, Node]:
    found = node.get("metadata", "annotations")
    return found.value if found is not None and found.is_map else {}


def _annotated(node: Node, kind: str, file: str) -> Iterator[Limit]:
    notes = _notes(node)
    classes = {text_of(node.get("spec", "ingressClassName")), kind if kind == "Route" else ""}
    old = notes.get("kubernetes.io/ingress.class")
    classes |= {text_of(old), *(f"{name.split('/')[0]}/" for name in notes)} - {""}
    for known in ANNOTATIONS:
        given = notes.get(known.name)
        value = _value(known, given)
        if given is not None and value:
            excerpt = f"{known.name}: {text_of(given)}"
            yield _made(known.title, value, known.what, file, given.line, excerpt)
        elif known.default and kind in ROUTED and classes & set(known.classes) and value is None:
            excerpt = f"{known.name}: {known.default:g} s (default)"
            yield _made(
                known.title, known.default, known.what, file, node.line, excerpt, default=True
            )


def _value(known: Annotation, given: Node | None) -> float | None:
    """Seconds; None where it is not said, 0 where it cannot be read."""
    if given is None:
        return None
    text = text_of(given)
    if known.attribute:
        pairs = dict(part.strip().partition("=")[::2] for part in text.split(","))
        if known.attribute not in pairs:
            return None
        text = pairs[known.attribute]
    return seconds(text, known.unit) or 0.0


def _buffers(node: Node, kind: str, file: str) -> Iterator[Buffering]:
    notes = _notes(node)
    for name, (word, usual) in BUFFERS.items():
        given = notes.get(name)
        of_class = any(key.startswith(f"{name.split('/')[0]}/") for key in notes)
        if given is None and not (usual and of_class and kind == "Ingress"):
            continue
        said = text_of(given).lower() if given is not None else f"{word} (default)"
        yield Buffering(
            name="the Ingress",
            on=given is None or said == word,
            evidence=Evidence(
                source=file, line=(given or node).line, excerpt=f"{name.split('/')[1]}: {said}"
            ),
        )


# --- routes


def _items(node: Node | None) -> list[Node]:
    return list(node.value) if node is not None and node.is_list else []


def _mesh(node: Node, file: str, path: str) -> Iterator[Limit]:
    """Istio takes the first route that matches; without a timeout it has none."""
    for route in _items(node.get("spec", "http")):
        tests = [_uri(row, path) for row in _items(route.get("match"))]
        if tests and True not in tests and None not in tests:
            continue
        if (whole := route.get("timeout")) is not None:
            yield from _limit("timeout of VirtualService", whole, "whole answer", file)
        if (each := route.get("retries", "perTryTimeout")) is not None:
            yield from _limit("perTryTimeout of VirtualService", each, "whole answer", file)
        if not tests or True in tests:
            return


def _uri(match: Node, path: str) -> bool | None:
    """Whether a match takes the path; None when something else decides too."""
    names = set(match.value) if match.is_map else set()
    uri = match.get("uri")
    if uri is not None:
        exact, prefix, regex = (text_of(uri.get(name)) for name in ("exact", "prefix", "regex"))
        taken = (
            exact == path
            or (bool(prefix) and path.startswith(prefix))
            or (bool(regex) and matches(regex, path, whole=True))
        )
        if not taken:
            return False
    return True if names <= {"uri", "name"} else None


def _route(node: Node, file: str, path: str) -> Iterator[Limit]:
    """Gateway API: the most specific path wins, however the rules stand."""
    rules = _items(node.get("spec", "rules"))
    for rule in _most_specific([(rule, _matches(rule, path)) for rule in rules]):
        for name in ("request", "backendRequest"):
            if (value := rule.get("timeouts", name)) is not None:
                yield from _limit(f"timeouts.{name} of HTTPRoute", value, "whole answer", file)


def _most_specific(rules: list[tuple[Node, list[Taken]]]) -> list[Node]:
    """The rules of the longest path that surely holds, and those as long that may hold."""
    longest = max((length for _, rows in rules for length, sure in rows if sure), default=0)
    return [rule for rule, rows in rules if any(length >= longest for length, _ in rows)]


def _matches(rule: Node, path: str) -> list[Taken]:
    """Of a rule of the Gateway API; all tokens are asked for with POST."""
    found = []
    for row in _items(rule.get("matches")):
        length = _length(row, path)
        if length is not None and text_of(row.get("method")) in ("", "POST"):
            found.append((length, row.get("headers") is None and row.get("queryParams") is None))
    return found if _items(rule.get("matches")) else [(1, True)]


def _length(match: Node, path: str) -> int | None:
    """How specific a match of the path is; None when it is another path."""
    kind = text_of(match.get("path", "type")) or "PathPrefix"
    value = text_of(match.get("path", "value")) or "/"
    if kind == "RegularExpression":
        return len(value) if matches(value, path, whole=True) else None
    if kind == "Exact":
        return 10_000 if value == path else None
    inside = path == value or path.startswith(value.rstrip("/") + "/")
    return len(value) if inside else None


def _contour(node: Node, file: str, path: str) -> Iterator[Limit]:
    """The longest prefix wins; what another object includes has that one's conditions too."""
    routes = _items(node.get("spec", "routes"))
    if node.get("spec", "virtualhost") is not None:
        routes = _most_specific([(route, _conditions(route, path)) for route in routes])
    for route in routes:
        if (whole := route.get("timeoutPolicy", "response")) is not None:
            yield from _limit("timeoutPolicy.response of HTTPProxy", whole, "whole answer", file)
        if (idle := route.get("timeoutPolicy", "idle")) is not None:
            yield from _limit("timeoutPolicy.idle of HTTPProxy", idle, "next byte", file)


def _conditions(route: Node, path: str) -> list[Taken]:
    """Of a route of Contour, which all have to hold; nothing when one of the path does not."""
    length, sure = 1, True
    for row in _items(route.get("conditions")):
        prefix, exact = text_of(row.get("prefix")), text_of(row.get("exact"))
        if not path.startswith(prefix) or (exact and exact != path):
            return []
        length = max(length, len(prefix or exact))
        sure = sure and bool(prefix or exact)
    return [(length, sure)]


def _cloud(node: Node, kind: str, file: str) -> Iterable[Limit]:
    """GKE's load balancer: for the whole answer, also of a stream."""
    below = ("spec",) if kind == "BackendConfig" else ("spec", "default")
    value = node.get(*below, "timeoutSec")
    name = f"timeoutSec of {kind}"
    if value is not None:
        return _limit(name, value, "whole answer", file)
    excerpt = f"timeoutSec: {CLOUD_WHOLE_S:g} (default)"
    return [_made(name, CLOUD_WHOLE_S, "whole answer", file, node.line, excerpt, default=True)]
