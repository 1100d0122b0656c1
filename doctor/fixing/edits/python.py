"""Edits of Python scripts with libcst: keywords of a call, and os.environ["X"] = "1"."""

from __future__ import annotations

import ast
from typing import Any

from infer_doctor.fixing.edits.common import CannotEdit
from infer_doctor.model import Edit


def edited(edit: Edit, text: str) -> str:
    """The text after a keyword or a variable was changed; everything else stays as it is."""
    import libcst as cst
    from libcst import metadata

    try:
        wrapper = metadata.MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    except cst.ParserSyntaxError as error:
        raise CannotEdit(f"it is not valid Python: {error.message}") from None
    places = wrapper.resolve(metadata.PositionProvider)
    lines = {node: (place.start.line, place.end.line) for node, place in places.items()}
    if edit.what == "variable":
        old, new = _assignment(edit, wrapper.module, lines)
    else:
        old, new = _call(edit, wrapper.module, lines)
    made: str = (
        wrapper.module.deep_replace(old, new).code
        if new is not None
        else (_without(wrapper.module, old).code)
    )
    try:
        ast.parse(made)
    except SyntaxError as error:
        raise CannotEdit(f"{edit.text}: {error.msg}") from None
    return made


def _without(module: Any, statement: Any) -> Any:
    import libcst as cst

    class Remove(cst.CSTTransformer):
        def on_leave(self, original: Any, updated: Any) -> Any:
            return cst.RemoveFromParent() if original is statement else updated

    return module.visit(Remove())


def _nodes(module: Any, kind: type) -> list[Any]:
    import libcst as cst

    found: list[Any] = []

    class Collect(cst.CSTVisitor):
        def on_visit(self, node: Any) -> bool:
            if isinstance(node, kind):
                found.append(node)
            return True

    module.visit(Collect())
    return found


def _called(call: Any) -> str:
    """The last name of what is called: LLM of vllm.LLM(...)."""
    function = call.func
    return str(getattr(getattr(function, "attr", function), "value", ""))


def _call(edit: Edit, module: Any, lines: Any) -> tuple[Any, Any]:
    """The call of the edit, and what it becomes."""
    import libcst as cst

    calls = _nodes(module, cst.Call)
    if edit.anchor is not None:
        at = [call for call in calls if _called(call).endswith(edit.anchor)]
        at = [call for call in at if edit.line is None or lines[call][0] == edit.line] or at
        if len(at) != 1:
            raise CannotEdit(f"the call of {edit.anchor} no longer stands in line {edit.line}")
        for row in at[0].args:
            if row.keyword is not None and row.keyword.value == edit.name:
                return row, row.with_changes(value=_expression(edit.value or "None"))
        return at[0], _with_more(module, at[0], edit)
    rows = [
        (call, row)
        for call in calls
        for row in call.args
        if row.keyword is not None and row.keyword.value == edit.name
    ]
    here = [pair for pair in rows if lines[pair[1]][0] <= (edit.line or 0) <= lines[pair[1]][1]]
    if not here and len(rows) != 1:
        raise CannotEdit(f"{edit.name} no longer stands in line {edit.line}")
    call, row = (here or rows)[-1]
    if edit.do == "set":
        return row, row.with_changes(value=_expression(edit.value or "None"))
    if edit.do == "rename":
        name, _, value = (edit.value or "").partition(" ")
        new = row.with_changes(keyword=cst.Name(name))
        return row, new.with_changes(value=_expression(value)) if value else new
    left = [other for other in call.args if other is not row]
    if left and call.args[-1] is row:
        left[-1] = _now_last(left[-1], row)
    return call, call.with_changes(args=left)


def _tail(argument: Any) -> Any:
    """The white space behind an argument and its comma; a comment on its line is in there."""
    import libcst as cst

    if isinstance(argument.comma, cst.Comma):
        return argument.comma.whitespace_after
    return argument.whitespace_after_arg


def _with_tail(argument: Any, comma: Any, tail: Any) -> Any:
    """The argument with a comma, if `comma` is one, and this behind it."""
    import libcst as cst

    if isinstance(comma, cst.Comma):
        return argument.with_changes(
            comma=comma.with_changes(whitespace_after=tail),
            whitespace_after_arg=cst.SimpleWhitespace(""),
        )
    return argument.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=tail)


def _lines(first: Any, last: Any) -> Any:
    """The comment of one white space, and the indentation that follows of another."""
    import libcst as cst

    if not isinstance(last, cst.ParenthesizedWhitespace):
        return last
    line = first.first_line if isinstance(first, cst.ParenthesizedWhitespace) else None
    return last.with_changes(first_line=line or cst.TrailingWhitespace())


def _now_last(argument: Any, was_last: Any) -> Any:
    return _with_tail(argument, was_last.comma, _lines(_tail(argument), _tail(was_last)))


def _expression(text: str) -> Any:
    import libcst as cst

    try:
        return cst.parse_expression(text)
    except cst.ParserSyntaxError:
        return cst.SimpleString(repr(text))


def _with_more(module: Any, call: Any, edit: Edit) -> Any:
    """One more keyword, set off as the last one is."""
    import libcst as cst

    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    more = cst.Arg(
        keyword=cst.Name(edit.name), value=_expression(edit.value or "None"), equal=equal
    )
    if not call.args:
        return call.with_changes(args=[more])
    last = call.args[-1]
    opened = call.whitespace_before_args
    if len(call.args) > 1:
        gap = _tail(call.args[-2])
    elif isinstance(opened, cst.ParenthesizedWhitespace):
        gap = opened
    else:
        gap = cst.SimpleWhitespace(" ")
    before = _with_tail(last, cst.Comma(), _lines(_tail(last), gap))
    return call.with_changes(
        args=[*call.args[:-1], before, _with_tail(more, last.comma, _lines(None, _tail(last)))]
    )


def _assignment(edit: Edit, module: Any, lines: Any) -> tuple[Any, Any]:
    """os.environ["X"] = "1": another value, or the line goes (then the second is None)."""
    import libcst as cst

    found = [
        line
        for line in _nodes(module, cst.SimpleStatementLine)
        if len(line.body) == 1
        and isinstance(line.body[0], cst.Assign)
        and ast.unparse(ast.parse(module.code_for_node(line.body[0].targets[0].target)))
        == f"os.environ[{edit.name!r}]"
    ]
    here = [line for line in found if lines[line][0] <= (edit.line or 0) <= lines[line][1]]
    if not here and len(found) != 1:
        raise CannotEdit(f"{edit.name} no longer stands in line {edit.line}")
    line = (here or found)[-1]
    if edit.do == "remove":
        return line, None
    assign = line.body[0].with_changes(value=cst.SimpleString(repr(edit.value)))
    return line, line.with_changes(body=[assign])
