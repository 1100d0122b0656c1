"""Every signature is complete, found by its own example, and wanted by the filter before it."""

from __future__ import annotations

import re

import pytest

from infer_doctor.logs.numbers import FUNCTIONS
from infer_doctor.logs.patterns import Patterns, alternatives, literals
from infer_doctor.logs.read import means
from infer_doctor.logs.scan import Scanner, whole_lines
from infer_doctor.logs.signatures import Signature, marks, patterns, signatures

SIGNATURES = signatures()
each = pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.id)


@each
class TestSignature:
    def test_its_example_is_found(self, signature: Signature) -> None:
        found = [owner.id for owner, _ in patterns().search(signature.example)]
        assert signature.id in found
        assert means(signature.example.encode())

    def test_it_says_cause_and_cure(self, signature: Signature) -> None:
        assert signature.cause
        if signature.effect in ("fatal", "stall", "request", "warning"):
            assert signature.fix or signature.numbers or signature.option
            assert signature.source.startswith("https://"), signature.source

    def test_names_in_its_sentences_are_groups_of_a_pattern(self, signature: Signature) -> None:
        groups = {name for text in signature.patterns for name in re.compile(text).groupindex}
        for text in (signature.cause, signature.fix, signature.confirm, signature.option):
            assert set(re.findall(r"\{(\w+)\}", text)) <= groups

    def test_its_function_exists(self, signature: Signature) -> None:
        assert signature.numbers in ("", *FUNCTIONS)


def test_ids_are_unique() -> None:
    ids = [signature.id for signature in SIGNATURES] + [mark.id for mark in marks()]
    assert len(ids) == len(set(ids))


def test_the_error_catalogues_of_both_engines_are_there() -> None:
    assert {signature.engine for signature in SIGNATURES} == {"vllm", "trtllm", "common"}
    assert sum(len(signature.patterns) for signature in SIGNATURES) > 800


def test_alternatives_are_cut_only_at_the_outside() -> None:
    assert alternatives(r"a|b(c|d)|[|]|e\|f") == ["a", "b(c|d)", "[|]", r"e\|f"]


def test_literals_are_in_every_match() -> None:
    (run,) = literals(r"max seq len \((?P<n>\d+)\) is larger")
    assert run.text == "max seq len ("
    assert [run.text for run in literals("(?:Received|Added) requests?")] == ["Received", "Added"]
    with pytest.raises(ValueError, match="no literal"):
        literals(r"\d+ (?:error)?")


def test_search_is_the_same_as_all_patterns_one_by_one() -> None:
    rows = [("cache blocks", "a"), (r"(?:free|Free) memory on (\w+)", "b"), (r"heads \(\d+\)", "c")]
    found = Patterns(rows)
    for text in (
        "no cache blocks",
        "Free memory on cuda",
        "the heads (7)",
        "nothing",
        "uncache blocks",
    ):
        slow = [owner for pattern, owner in rows if re.search(pattern, text)]
        assert [owner for owner, _ in found.search(text)] == slow


def test_scanner_numbers_lines_over_blocks() -> None:
    data = b"".join(b"boring %d\n" % n for n in range(5000)) + b"wanted\nboring 1\nwanted 2"
    cuts = [data[n : n + 777] for n in range(0, len(data), 777)]
    found = list(Scanner(lambda raw: b"wanted" in raw).lines(cuts))
    assert found == [(5001, b"wanted"), (5003, b"wanted 2")]


def test_scanner_counts_what_is_only_counted() -> None:
    data = b"".join(b'x "POST / HTTP/1.1" %d OK\n' % (200 + n % 2) for n in range(100))
    scanner = Scanner(lambda raw: False, lambda raw: "answers" if raw else None)
    assert list(scanner.lines([data])) == []
    assert (scanner.counts["answers"], scanner.last["answers"]) == (100, 100)


def test_whole_lines_keep_every_byte_of_short_ones() -> None:
    data = b"a\nbb\nccc\ndddd"
    for size in range(1, 14):
        cuts = [data[n : n + size] for n in range(0, len(data), size)]
        assert b"".join(whole_lines(cuts)) == data
