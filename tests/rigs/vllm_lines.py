"""Random command lines of `vllm serve`, good and bad, made from the table of a version."""

from __future__ import annotations

import json
import random
from typing import Any

from infer_doctor.vllm_arguments.table import TAKES_NOTHING, Row, Table

GOOD = {
    "int": ("1", "4", "0", "-1", "64"),
    "float": ("0.5", "1", ".9", "1e-1"),
    "human": ("32k", "32K", "1.5k", "2m", "4096", "1T"),
    "human-or-auto": ("auto", "-1", "32k", "8192", "AUTO"),
    "json": ('{"a": 1}', "[1, 2]", "{}", '{"a": {"b": "c d"}}'),
    "json-or-str": ('{"a": 1}', "word", "a=b"),
    "str": ("word", "a b", "x=y", "/models/m", "1"),
    "lower": ("word",),
}
BAD = {
    "int": ("four", "1.5", "32k", ""),
    "float": ("half", "1,5", ""),
    "human": ("1.5K", "k", "32kb", "ten"),
    "human-or-auto": ("1.5M", "max", ""),
    "json": ("{a: 1}", "{'a': 1}", "word"),
    "json-or-str": ("{a: 1}",),
}
NESTED = ("--compilation-config.level 3", "--hf-overrides.a.b 5", "--hf-overrides.list+ x,y")
ODD = (
    ["-O3"],
    ["-O", "2"],
    ["-O=1"],
    ["-tp", "2"],
    ["-tp=2"],
    ["-t", "2"],
    ["-n2"],
    ["-q", "awq"],
    ["--auto-warmup"],
    ["--swap-space", "4"],
    ["-dp=4"],
    ["--", "word"],
    ["stray"],
    ["-0.5"],
    ["--hf-overrides.rope.theta", "1e6"],
    ["--hf_overrides.rope_x.theta_y=5"],
    ["--hf-overrides.sizes+", "a,b", "--hf-overrides.sizes+=c"],
    ["--additional-config.size", "80k"],
    ["--additional-config.a.b", '{"c": [1]}', "--additional-config.a.d", "true"],
)


def lines(table: Table, count: int, seed: int) -> list[list[str]]:
    """`count` lines; the same for the same seed and table."""
    dice = random.Random(seed)
    rows = [row for row in table.rows if row["options"][0].startswith("-")]
    rows = [row for row in rows if row["dest"] not in ("config", "help", "model")]
    return [_line(dice, rows) for _ in range(count)]


def _line(dice: random.Random, rows: list[Row]) -> list[str]:
    words = ["m"] if dice.random() < 0.8 else []
    for _ in range(dice.randint(1, 3)):
        words += (
            list(dice.choice(ODD)) if dice.random() < 0.15 else _option(dice, dice.choice(rows))
        )
    if words[:1] != ["m"] and dice.random() < 0.5:
        words.append("m")
    return words


def _option(dice: random.Random, row: Row) -> list[str]:
    name = dice.choice(row["options"])
    form = dice.random()
    if name.startswith("--") and form < 0.15:
        name = "--" + name[2:].replace("-", "_")
    elif name.startswith("--") and form < 0.3:
        name = name[: dice.randint(min(6, len(name)), len(name))]
    elif form < 0.35:
        name += "x"
    if row.get("action") in TAKES_NOTHING:
        odd = dice.random()
        return [f"{name}=true"] if odd < 0.1 else [name, "true"] if odd < 0.15 else [name]
    values = _values(dice, row)
    if dice.random() < 0.05:
        values = []
    if len(values) == 1 and dice.random() < 0.4:
        return [f"{name}={values[0]}"]
    return [name, *values]


def _values(dice: random.Random, row: Row) -> list[str]:
    kind = str(row.get("type", "str")).rstrip("?")
    bad = dice.random() < 0.15
    choices = [str(one) for one in row.get("choices", ()) if one is not None]
    if choices:
        pool = ["nonsense", choices[0].upper()] if bad else choices
    elif kind.startswith("config:"):
        pool = ["{"] if bad else ["{}"]
    else:
        pool = list((BAD if bad and kind in BAD else GOOD).get(kind, ("word",)))
    if str(row.get("type", "")).endswith("?") and dice.random() < 0.1:
        pool = ["None", ""]
    wanted: Any = row.get("nargs")
    count = wanted if isinstance(wanted, int) else dice.randint(1, 3) if wanted == "+" else 1
    return [dice.choice(pool) for _ in range(count)]


def written(made: list[list[str]]) -> str:
    """One JSON list a line, for scripts/dump_vllm_parser.py --parse."""
    return "".join(json.dumps(line) + "\n" for line in made)
