"""YAML with lines: anchors, merges, bombs, tabs, duplicates, templates, sizes."""

from __future__ import annotations

import contextlib

import pytest
import ruamel.yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from infer_doctor.launch.document import LIMIT, Broken, documents
from infer_doctor.launch.model import Unknown


def plain(text: str) -> object:
    return documents(text, "f.yaml")[0].plain()


def test_lines() -> None:
    (node,) = documents("a:\n  b: 1\n  c:\n    - x\n    - y\n", "f.yaml")
    assert [(row.string, row.line) for row in node.list("a", "c")] == [("x", 4), ("y", 5)]
    found = node.get("a", "c")
    assert found is not None
    assert (found.key_line, found.line) == (3, 4)


def test_merge_keys_and_anchors() -> None:
    text = "b: &b {x: 1, y: 2}\nc: &c {y: 3, z: 4}\na: {<<: [*b, *c], x: 9}\nd: {<<: *c}\n"
    assert plain(text) == {
        "b": {"x": 1, "y": 2},
        "c": {"y": 3, "z": 4},
        "a": {"x": 9, "y": 2, "z": 4},
        "d": {"y": 3, "z": 4},
    }


def test_a_hundred_documents() -> None:
    found = documents("".join(f"---\na: {number}\n" for number in range(100)), "f.yaml")
    assert [node.plain() for node in found] == [{"a": number} for number in range(100)]


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_a_bomb_of_aliases_is_only_multiplied_on_request() -> None:
    (node,) = documents(BOMB, "f.yaml")
    assert len(node.list("i")) == 9
    with pytest.raises(Broken, match=r"f\.yaml:\d+: aliases multiply"):
        node.plain()


def test_a_bomb_of_merges() -> None:
    rows = ["a0: &a0 {" + ", ".join(f"k{n}: 1" for n in range(500)) + "}"]
    rows += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 50)}]}}" for n in range(1, 60)]
    with pytest.raises(Broken, match="aliases multiply"):
        documents("\n".join(rows), "f.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\n\tb: 2\n", r"f\.yaml:2: .*takes no tab for indentation"),
        ("a: [1, 2\n", r"f\.yaml:2: "),
        ("a: 1\na: 2\n", r"f\.yaml:2: the key 'a' stands twice, first in line 1"),
        ("a: *nothing\n", r"f\.yaml:1: found undefined alias"),
        ("a: &a [*a]\n", r"f\.yaml:1: an alias refers to what it is part of"),
        ("? [x]\n: 1\n", r"f\.yaml:1: a key is a list or mapping"),
        ("a: {<<: 1}\n", r"f\.yaml:1: << takes a mapping"),
        ("[" * 100_000, "nested too deeply"),
        ("a: " + "x" * LIMIT, "are too many for YAML"),
    ],
)
def test_broken_texts_are_one_line(text: str, message: str) -> None:
    with pytest.raises(Broken, match=message) as raised:
        documents(text, "f.yaml")
    assert "\n" not in str(raised.value)


def test_the_last_of_two_keys_counts_where_it_does_for_the_engine() -> None:
    assert documents("a: 1\na: 2\n", "f.yaml", twice=True)[0].plain() == {"a": 2}


def test_templates_are_unknown() -> None:
    text = "{{- if .x }}\na: {{ .Values.a }}\nb: 'v{{ .b }}'\n{{- end }}\nc: 1\n"
    (node,) = documents(text, "f.yaml")
    assert node.plain() == {"a": Unknown("{{ .Values.a }}"), "b": Unknown("v{{ .b }}"), "c": 1}
    found = node.get("c")
    assert found is not None
    assert found.line == 5


def test_several_lines_of_a_text() -> None:
    (node,) = documents("a: |\n  x y\n  z\nb: >-\n  p\n  q\n", "f.yaml")
    a, b = node.get("a"), node.get("b")
    assert a is not None
    assert b is not None
    assert [place.line for place in a.lines(["x", "y", "z"])] == [2, 2, 3]
    assert [place.line for place in b.lines(["p", "q"])] == [5, 6]


SCALARS = st.sampled_from(
    ["1", "-7", "1.5", "1e3", "true", "False", "null", "~", "", "yes", "on", "x y", "0x1F", "'1'",
     '"true"', "!!str 5", "012", "1_000", ".5", "v1.2.3"]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(SCALARS, min_size=1, max_size=8))
def test_scalars_as_ruamel_constructs_them(values: list[str]) -> None:
    text = "".join(f"- {value}\n" for value in values)
    expected = ruamel.yaml.YAML(typ="safe", pure=True).load(text)
    odd = {"012", "1_000"}  # ruamel keeps habits of YAML 1.1 here
    for value, mine, theirs in zip(values, plain(text), expected, strict=True):  # type: ignore[call-overload]
        assert value in odd or mine == theirs


@settings(deadline=None)
@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@`#,? \n\t<~1\x00\u2028{{}}", max_size=60))
def test_any_text_is_read_or_one_line(text: str) -> None:
    with contextlib.suppress(Broken):
        for node in documents(text, "f.yaml"):
            node.plain()
