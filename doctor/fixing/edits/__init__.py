"""Edit -> the new text of a file: only the lines of the change differ.

The parsers are libraries (ruamel.yaml, tomlkit, libcst); what is written are pieces of text at the
places that they tell, because a round trip of a whole YAML file re-indents lines nobody asked about.
Every new text is read again and compared with what the change should have made of the old data.
"""

from __future__ import annotations

from infer_doctor.fixing.edits.common import AlreadySo, CannotEdit
from infer_doctor.model import Edit

MARK = "\ufeff"
"""What Windows writes before UTF-8."""


def edited(edit: Edit, text: str) -> str:
    """The text after one change; raises CannotEdit. Line ends, a final newline and a byte order mark
    are kept."""
    if text.startswith(MARK):
        return MARK + edited(edit, text.removeprefix(MARK))
    if "\r\n" in text:
        if text.count("\r\n") != text.count("\n"):
            raise CannotEdit("its lines end in two different ways")
        return edited(edit, text.replace("\r\n", "\n")).replace("\n", "\r\n")
    try:
        new = _edited(edit, text)
    except RecursionError:
        raise CannotEdit("it is nested too deep") from None
    except ModuleNotFoundError as error:  # the single-file build has no compiled libraries
        raise CannotEdit(
            f"{error.name} is not here to edit it: `pip install infer-doctor` brings it"
        ) from None
    if new == text:
        raise AlreadySo(f"it already says so: {edit.text.partition(': ')[2] or edit.text}")
    return new


def _edited(edit: Edit, text: str) -> str:
    if edit.what == "keyword" or edit.format == "python":
        from infer_doctor.fixing.edits import python

        return python.edited(edit, text)
    if edit.format in ("yaml", "json"):
        from infer_doctor.fixing.edits import nodes, yaml_words

        return nodes.edited(edit, text) if edit.what == "key" else yaml_words.edited(edit, text)
    if edit.format == "toml":
        from infer_doctor.fixing.edits import toml

        return toml.edited(edit, text)
    if edit.format in ("env", "metadata"):
        from infer_doctor.fixing.edits import lines

        return lines.edited(edit, text) if edit.format == "env" else lines.header(edit, text)
    from infer_doctor.fixing.edits import scripts

    return scripts.edited(edit, text)
