"""What get_kwargs() of vLLM makes of the fields of a config class: an annotation -> an argument.

Source: engine/arg_utils.py of 0.8.4 to 0.33.
"""

from __future__ import annotations

import ast
from typing import Any

from .vllm_classes import Ref, names_of
from .vllm_source import UNKNOWN, Module, Source
from .vllm_statements import PLAIN
from .vllm_values import Interpreter

Json = dict[str, Any]

TYPES = {
    "human_readable_int": "human",
    "human_readable_int_or_auto": "human-or-auto",
    "json.loads": "json",
    "nullable_kvs": "pairs",
    "nullable_str": "str?",
    "optional_arg": "any",
    "optional_float": "float?",
    "optional_int": "int?",
    "optional_str": "str?",
    "union_dict_and_str": "json-or-str",
    "parse_compilation_config": "json-or-str",
}
"""Functions that read a value, by their own names in vLLM; "?" allows "" and "None"."""

LAMBDAS = (("lower", "s.lower().replace('-', '_')"), ("ids", "[int(device_id) if"))
"""How the body of a lambda begins -> what it reads: --moe-backend, --device-ids."""


class Fields(Interpreter):
    """Fields of config classes as the keywords of add_argument()."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.classes: dict[str, list[str]] = {}
        """Config classes that a value is read into -> their fields."""
        self._human: dict[str, str] | None = None

    def kwargs(self, holder: Any) -> Any:
        """What get_kwargs() of vLLM makes of the fields of a config class."""
        if not isinstance(holder, Ref) or holder.kind != "class":
            return UNKNOWN
        return {name: self._field(name, *place) for name, place in self.fields(holder).items()}

    def _field(self, name: str, module: Module, node: ast.AnnAssign) -> Json:
        default, bounds = self.default(node, module)
        hints = self.hints(node.annotation, module, bounds)
        kinds = {kind for kind, _ in hints}
        found: Json = {"default": default}
        if bounds:
            found["bounds"] = bounds
        optional = "none" in kinds
        by_kind = dict(hints)
        if "dataclass" in kinds:
            found["type"] = f"config:{by_kind['dataclass'].name}"
            self.classes.setdefault(
                by_kind["dataclass"].name, list(self.fields(by_kind["dataclass"]))
            )
        elif kinds == {"bool", "str", "none"} and self._says(b"{bool, str, type(None)}"):
            found.update(type="str", nargs="?", const=True)
            return found
        elif "bool" in kinds:
            found["action"] = Ref("foreign", "argparse.BooleanOptionalAction", None)
            return found
        elif "literal" in kinds:
            choices = [value for kind, values in hints if kind == "literal" for value in values]
            self._literal(found, list(dict.fromkeys(choices)), free="str" in kinds)
        elif kinds & {"tuple", "list", "set"}:
            self._collection(
                found, next(k for k in ("tuple", "list", "set") if k in kinds), by_kind
            )
        elif "int" in kinds:
            found["type"] = self._humans().get(name, "int")
        elif "float" in kinds:
            found["type"] = "float"
        elif "dict" in kinds:
            free = "str" in kinds or "other" in kinds
            plain = "pairs" if self._says(b"nullable_kvs(val)") else "json"
            found["type"] = "json-or-str" if free else plain
        else:
            found["type"] = "str"
        if optional:
            found["type"] += "?"
            if "choices" in found:
                none = None if self._says(b'"choices"].append(None)') else "None"
                found["choices"].append(none)
        return found

    def _literal(self, found: Json, choices: list[Any], *, free: bool) -> None:
        found["type"] = type(choices[0]).__name__ if choices else "str"
        found["suggested" if free else "choices"] = sorted(choices)

    def _collection(self, found: Json, kind: str, by_kind: dict[str, Any]) -> None:
        elements, count = by_kind[kind]
        inner = dict(elements)
        found["nargs"] = count if kind == "tuple" and count else "+"
        if "literal" in inner and len(inner) == 1:
            self._literal(found, inner["literal"], free=False)
            return
        names = [one for one in inner if one != "none"]
        found["type"] = names[0] if names in (["int"], ["float"], ["str"]) else "str"

    def _says(self, words: bytes) -> bool:
        """Whether engine/arg_utils.py holds these words."""
        self.source.module("engine.arg_utils")
        return words in self.source.files.get("engine/arg_utils.py", b"")

    def _humans(self) -> dict[str, str]:
        """Field -> human_readable_int or ..._or_auto, off the comparisons in get_kwargs()."""
        if self._human is not None:
            return self._human
        self._human = {}
        module = self.source.module("engine.arg_utils")
        for function in ("get_kwargs", "_compute_kwargs"):
            body = module.defined.get(function) if module else None
            if not isinstance(body, ast.FunctionDef) or module is None:
                continue
            local: dict[str, Any] = {}
            for node in ast.walk(body):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Set):
                    for name in names_of(node):
                        local[name] = self.value(node.value, module, {})
            for node in ast.walk(body):
                if isinstance(node, ast.If) and isinstance(node.test, ast.Compare):
                    self._human.update(self._human_names(node, module, local))
        return self._human

    def _human_names(self, node: ast.If, module: Module, local: dict[str, Any]) -> dict[str, str]:
        test = node.test
        if not isinstance(test, ast.Compare) or getattr(test.left, "id", "") != "name":
            return {}
        names = self.value(test.comparators[0], module, local)
        for line in node.body:
            kind = getattr(getattr(line, "value", None), "id", "")
            if kind.startswith("human_readable"):
                listed = names if isinstance(names, list) else [names]
                return {name: TYPES.get(kind, "human") for name in listed if isinstance(name, str)}
        return {}

    def hints(
        self, node: ast.AST, module: Module, bounds: Json, depth: int = 0
    ) -> list[tuple[str, Any]]:
        """The alternatives of an annotation: (kind, what it needs)."""
        if depth > 12:
            return [("other", None)]
        if isinstance(node, ast.Constant):
            if node.value is None:
                return [("none", None)]
            if isinstance(node.value, str):
                inner = ast.parse(node.value, mode="eval").body
                return self.hints(inner, module, bounds, depth + 1)
            return [("other", None)]
        if isinstance(node, ast.BinOp):
            left = self.hints(node.left, module, bounds, depth + 1)
            return left + self.hints(node.right, module, bounds, depth + 1)
        if isinstance(node, ast.Subscript):
            return self._generic(node, module, bounds, depth)
        name = getattr(node, "id", getattr(node, "attr", ""))
        simple = {"bool", "int", "float", "str", "dict", "list", "set", "tuple"}
        if name in simple:
            return [(name, ([], None) if name in ("list", "set", "tuple") else None)]
        found = self.source.find(module, name) if isinstance(node, ast.Name) else None
        if found is None:
            return [("other", name)]
        place, target = found
        if isinstance(target, ast.ClassDef):
            return [self._class_hint(Ref("class", target.name, place, target))]
        if isinstance(target, (Module, ast.FunctionDef)):
            return [("other", name)]
        return self.hints(target, place, bounds, depth + 1)

    def _class_hint(self, holder: Ref) -> tuple[str, Any]:
        bases = [getattr(base, "value", base) for base in holder.node.bases]
        if any(getattr(base, "id", "") == "dict" for base in bases):
            return "dict", None
        for decorator in holder.node.decorator_list:
            inner = decorator.func if isinstance(decorator, ast.Call) else decorator
            if getattr(inner, "id", getattr(inner, "attr", "")) in ("config", "dataclass"):
                return "dataclass", holder
        return "other", holder.name

    def _generic(
        self, node: ast.Subscript, module: Module, bounds: Json, depth: int
    ) -> list[tuple[str, Any]]:
        name = getattr(node.value, "id", getattr(node.value, "attr", ""))
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]

        def of(part: ast.AST) -> list[tuple[str, Any]]:
            return self.hints(part, module, bounds, depth + 1)

        if name in ("Optional", "Union"):
            found = [hint for part in inner for hint in of(part)]
            return found + [("none", None)] * (name == "Optional")
        if name == "Annotated":
            for part in inner[1:]:
                if isinstance(part, ast.Call):
                    for one in part.keywords:
                        if one.arg in ("gt", "ge", "lt", "le"):
                            bounds[one.arg] = self.value(one.value, module, {})
            return of(inner[0])
        if name in ("SkipValidation", "Final", "Required"):
            return of(inner[0])
        if name == "Literal":
            choices = self.literal(node, module)
            return [("literal", choices)] if choices else [("str", None)]
        if name in ("list", "List", "set", "Set", "frozenset"):
            return [("list" if name.lower() == "list" else "set", (of(inner[0]), None))]
        if name in ("tuple", "Tuple"):
            open_ended = any(getattr(part, "value", 0) is Ellipsis for part in inner)
            return [("tuple", (of(inner[0]), None if open_ended else len(inner)))]
        if name in ("dict", "Dict"):
            return [("dict", None)]
        return [("other", name)]

    def literal(self, node: ast.Subscript, module: Module) -> list[Any]:
        """The values of Literal[...]; other names of literals within it are put in."""
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        found: list[Any] = []
        for part in inner:
            value = self.value(part, module, {})
            found += value if isinstance(value, list) else [value]
        known = [value for value in found if isinstance(value, PLAIN) and value is not None]
        return list(dict.fromkeys(known))


def type_name(value: Any) -> str:
    """The kind of value that `type=` of an argument reads."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Ref):
        return "any"
    name = value.name
    if value.kind == "lambda":
        body = ast.unparse(value.node.body)
        return next((kind for kind, start in LAMBDAS if body.startswith(start)), "any")
    if value.kind == "class":
        return "str" if name.endswith("Enum") else "any"
    return TYPES.get(name, name if name in ("int", "float", "str", "bool") else "any")
