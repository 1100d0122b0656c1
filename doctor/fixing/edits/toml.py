"""Edits of TOML files; tomlkit keeps what it does not change."""

from __future__ import annotations

import json
from typing import Any

from infer_doctor.fixing.edits.common import CannotEdit
from infer_doctor.model import Edit


def edited(edit: Edit, text: str) -> str:
    """The text after a key was set, renamed, taken out, or a list got one more."""
    import tomlkit
    from tomlkit.exceptions import ParseError, TOMLKitError

    try:
        document = tomlkit.parse(text)
        table: Any = document
        for step in edit.path[:-1]:
            if isinstance(table, dict) and step not in table and edit.do in ("set", "append"):
                table[step] = tomlkit.table()
            table = table[step]
        name = edit.path[-1]
        if edit.do == "set":
            table[name] = json.loads(edit.value or "null")
        elif edit.do == "append":
            table.setdefault(name, []).append(json.loads(edit.value or "null"))
        elif edit.do == "remove":
            del table[name]
        else:
            raise CannotEdit("a key of TOML is not renamed in place")
        new = tomlkit.dumps(document)
    except ParseError as error:
        raise CannotEdit(f"it is not valid TOML: {error}") from None
    except (KeyError, IndexError, TypeError, AttributeError, TOMLKitError) as error:
        raise CannotEdit(f"{'.'.join(map(str, edit.path))} is not there: {error}") from None
    return new
