"""How many lines an edit of YAML moves, beside a round trip of ruamel.yaml: python bench/edits.py FOLDER

FOLDER is searched for YAML files with comments, at most 200. In each a value is changed, a key added,
a key taken out and a list made longer, at every place where that can be done, at most five of a kind.
"""

from __future__ import annotations

import difflib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from infer_doctor.fixing.edits import nodes, tree
from infer_doctor.fixing.edits.common import CannotEdit

MOST = 200
EACH = 5


def files(folder: Path) -> list[tuple[Path, str]]:
    """Files that hold comments and can be read."""
    found = []
    for path in sorted((*folder.rglob("*.yaml"), *folder.rglob("*.yml"))):
        try:
            text = path.read_text()
            tree.loaded(text)
        except (OSError, UnicodeDecodeError, CannotEdit):
            continue
        if "#" in text and len(found) < MOST:
            found.append((path, text))
    return found


def changes(text: str) -> Iterator[tuple[str, str | None]]:
    """What was done, and the text after it; None where the editor refused."""
    roots = tree.parsed(text)
    counts: dict[str, int] = {}
    for at in tree.walk(roots):
        tries: list[tuple[str, tuple[str | int, ...], str, str | None]] = []
        if tree.is_scalar(at.node) and at.path:
            tries.append(("set", (), "set", json.dumps("changed")))
        if tree.is_mapping(at.node):
            tries.append(("add", ("infer-doctor-new",), "set", json.dumps({"a": [1, "b"]})))
        if tree.is_sequence(at.node):
            tries.append(("append", (), "append", json.dumps("infer-doctor-new")))
        if at.key is not None:
            tries.append(("remove", (), "remove", None))
        for name, missing, do, value in tries:
            if counts.get(name, 0) >= EACH:
                continue
            counts[name] = counts.get(name, 0) + 1
            try:
                yield name, nodes.change(text, roots, (at, missing), do, value)
            except CannotEdit:
                yield name, None


def moved(old: str, new: str) -> int:
    """Blocks of lines that differ: one is the change itself."""
    match = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
    return sum(code[0] != "equal" for code in match.get_opcodes())


def round_trip(text: str) -> int:
    """Lines that ruamel.yaml writes differently although nothing was changed."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    out = io.StringIO()
    try:
        yaml.dump_all(list(yaml.load_all(text)), out)
    except Exception:  # what it cannot read or write counts as all of it
        return len(text.splitlines())
    rows = difflib.ndiff(text.splitlines(), out.getvalue().splitlines())
    return sum(row[0] == "-" for row in rows)


def main() -> None:
    """Files, edits, those with more than one block, refusals; lines the round trip moves."""
    rows = files(Path(sys.argv[1]))
    edits = refused = several = lost = 0
    for path, text in rows:
        for name, new in changes(text):
            edits += 1
            if new is None:
                refused += 1
                continue
            if moved(text, new) > 1:
                several += 1
                print(f"more than one block: {name} in {path}")
            if name in ("set", "add", "append") and new.count("#") < text.count("#"):
                lost += 1
                print(f"a comment was lost: {name} in {path}")
    rival = [round_trip(text) for _, text in rows]
    print(f"{len(rows)} files with comments, {edits} edits, {refused} refused")
    print(f"edits that move lines they should not: {several}; that lose a comment: {lost}")
    print(f"rival: a round trip moves lines in {sum(map(bool, rival))} files, {sum(rival)} lines")


if __name__ == "__main__":
    main()
