"""What the HTML report draws: the memory plan, the phases of a start, latencies. SVG without script."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from infer_doctor.units import gib

Escape = Callable[[object], str]

PARTS = {
    "weights_bytes": "weights",
    "kv_cache_bytes": "KV cache",
    "activation_bytes": "activations",
    "cuda_graph_bytes": "CUDA graphs",
    "non_torch_bytes": "outside torch",
    "used_by_others_bytes": "other processes",
}
"""Fields of the report's plan, bytes for each GPU -> their names."""

COLOURS = 6

DEEPEST = 6

FULL = 1000
"""Width of a bar in the units of its own SVG."""

DURATIONS = ("seconds", "duration_s", "s")
BOUNDS = ("le", "up_to", "upper", "up_to_s", "up_to_ms")
"""Names that a measured row may have; `le` is that of Prometheus."""


def memory(plan: Mapping[str, Any] | None, e: Escape) -> Iterator[str]:
    """The memory of one GPU as a bar, with what is left or missing."""
    if not plan:
        return
    parts = {
        name: int(plan[key])
        for key, name in PARTS.items()
        if isinstance(plan.get(key), (int, float)) and plan[key] > 0
    }
    total = plan.get("total_bytes")
    used = sum(parts.values())
    yield "<h2>Memory of each GPU</h2>"
    if isinstance(total, (int, float)) and parts:
        whole = max(total, used)
        yield f'<svg viewBox="0 0 {FULL} 20" preserveAspectRatio="none" role="img" '
        yield f'aria-label="{e(_words(parts, total))}">'
        yield f'<rect class="room" width="{FULL}" height="20"/>'
        left = 0.0
        for number, size in enumerate(parts.values()):
            width = size / whole * FULL
            yield f'<rect class="c{number % COLOURS}" x="{left:.2f}" width="{width:.2f}" height="20"/>'
            left += width
        yield "</svg><p>"
        for number, (name, size) in enumerate(parts.items()):
            yield _key(number, f"{name} {gib(size)}", e)
        rest = total - used
        text = f"{gib(rest)} left of {gib(total)}" if rest >= 0 else f"{gib(-rest)} too much"
        yield f'<span class="key">{e(text)}</span></p>'
    if plan.get("reason"):
        yield f"<p>{e(plan['reason'])}</p>"
    for title, key in (
        ("What each change buys", "changes"),
        ("The fewest GPUs of each kind", "kinds"),
    ):
        yield from _rows(title, plan.get(key), e)
    yield from _values("Plan", {k: v for k, v in plan.items() if k not in ("changes", "kinds")}, e)


def _rows(title: str, rows: Any, e: Escape) -> Iterator[str]:
    """Objects with the same keys as a table: the first key names the row."""
    if not isinstance(rows, (list, tuple)) or not rows:
        return
    yield f"<h3>{e(title)}</h3><table>"
    for row in rows:
        if not isinstance(row, Mapping):
            continue
        (_, first), *more = row.items()
        shown = [f"{k.replace('_', ' ')}: {_shown(k, v)}" for k, v in more if v is not None]
        yield f"<tr><th>{e(first)}</th><td>{e('; '.join(shown))}</td></tr>"
    yield "</table>"


def measured(measurements: Mapping[str, Any] | None, e: Escape) -> Iterator[str]:
    """Rows of names and seconds as bars, rows of bounds and counts as a histogram, the rest as text."""
    if not measurements:
        return
    yield "<h2>Measured</h2>"
    rest: dict[str, Any] = {}
    for path, value in _leaves(measurements, ()):
        name = ", ".join(path).replace("_", " ")
        if rows := _bars(value):
            yield f"<h3>{e(name)}</h3>"
            yield from _chart(rows, e)
        else:
            rest[name] = value
    yield from _values("Values", rest, e)


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Everything that is no table, by the names on the way to it."""
    if isinstance(value, Mapping) and value and len(path) < DEEPEST:
        for name, item in value.items():
            yield from _leaves(item, (*path, str(name)))
    else:
        yield path, value


def _bars(value: Any) -> list[tuple[str, float, str]]:
    """(name, length, words) of rows that can be drawn; nothing when any of them cannot."""
    rows = []
    for row in value if isinstance(value, (list, tuple)) else ():
        if not isinstance(row, Mapping):
            return []
        seconds = next(
            (row[key] for key in DURATIONS if isinstance(row.get(key), (int, float))), None
        )
        bound = next((row[key] for key in BOUNDS if key in row), None)
        count = row.get("count")
        if seconds is not None and row.get("name"):
            rows.append((str(row["name"]), float(seconds), _duration(float(seconds))))
        elif bound is not None and isinstance(count, (int, float)):
            rows.append((f"up to {bound}", float(count), f"{count:g}"))
        else:
            return []
    return [(name, max(length, 0.0), text) for name, length, text in rows]


def _duration(seconds: float) -> str:
    """Milliseconds where tenths of a second would be nothing."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _chart(rows: list[tuple[str, float, str]], e: Escape) -> Iterator[str]:
    longest = max(length for _, length, _ in rows) or 1.0
    for name, length, text in rows:
        width = length / longest * FULL
        yield (
            f'<div class="row"><span>{e(name)}</span><svg viewBox="0 0 {FULL} 20" '
            f'preserveAspectRatio="none" aria-hidden="true"><rect class="c0" width="{width:.2f}" '
            f'height="20"/></svg><span>{e(text)}</span></div>'
        )


def _values(title: str, values: Mapping[str, Any], e: Escape) -> Iterator[str]:
    if not values:
        return
    yield f"<details><summary>{e(title)}</summary><table>"
    for name, value in values.items():
        shown = [(name, value)]
        if isinstance(value, (list, tuple)) and any(isinstance(row, Mapping) for row in value):
            shown = [(f"{name} {number}", row) for number, row in enumerate(value, 1)]
        for label, item in shown:
            text = e(_shown(name, item))
            yield f"<tr><th>{e(str(label).replace('_', ' '))}</th><td>{text}</td></tr>"
    yield "</table></details>"


def _shown(name: str, value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if str(name).endswith("_bytes") and isinstance(value, (int, float)):
        return f"{value:,} ({gib(int(value))})"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        parts = ((key, _shown(str(key), item)) for key, item in value.items())
        return ", ".join(f"{key.replace('_', ' ')} {text}" for key, text in parts if text != "-")
    if isinstance(value, (list, tuple)):
        return "; ".join(_shown("", item) for item in value)
    return str(value)


def _words(parts: Mapping[str, int], total: float) -> str:
    names = ", ".join(f"{name} {gib(size)}" for name, size in parts.items())
    return f"{names} of {gib(int(total))}"


def _key(number: int, text: str, e: Escape) -> str:
    return (
        f'<span class="key"><svg viewBox="0 0 10 10" aria-hidden="true">'
        f'<rect class="c{number % COLOURS}" width="10" height="10"/></svg>{e(text)}</span>'
    )
