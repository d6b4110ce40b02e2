"""Reads a syntax tree from JSON: what `syntax.to_json` wrote, and nothing else.

The fields of each node are read by what its class in `syntax` says of them: a field `value: Expr | None` takes an
expression or nothing. What an annotation cannot say stands in one table: which names and operators there are, and
which expressions may stand where (a slice only within brackets, a target is not a sum). So a tree that was read here is
one that `parse` could have made from a text, and all that walks it later may believe it.

Raises: `Misread`, with the place in the tree. See also `frontend.read_program` (what the program's functions and
globals mean to each other).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..diagnostics.json_reading import Misread, count, each, expected, identifier, one_of, shown, switch, text
from ..language.kinds import KINDS
from . import syntax as s

MAX_DEPTH = s.MAX_NESTING + 20  # expressions in expressions, statements in statements; targets are not counted there
MAX_PLACE = 1 << 31
REPORTED = (
    "assert",
    "print",
    "bounds",
    "division",
    "nan",
    "parted",
    "grid",
)  # what is reported and is not an exception of the author's
METHODS = ("method", "static", "class", "property")

Read = Callable[["TreeReader", Any], Any]

_ONLY_WITHIN = (
    s.Slice,
    s.Starred,
    s.Generator,
    s.Wrong,
    s.Kind,
    s.OneOf,
    s.TupleOf,
)  # expressions that may not stand wherever one may
_ANYWHERE = tuple(c for c in s.CLASSES.values() if issubclass(c, s.Expr) and c not in _ONLY_WITHIN)
_PARTS = (s.Keyword, s.Clause, s.Param, s.Method)  # which the parser does not count as nesting
_STATEMENTS = tuple(c for c in s.CLASSES.values() if issubclass(c, s.Stmt) and c is not s.Struct)


class TreeReader:
    """Reads nodes of one program. `globals` is how many entries its table of globals has."""

    def __init__(self, globals: int) -> None:
        self.globals = globals
        self.depth = 0

    def node(self, data: object, allowed: Collection[type[s.SyntaxNode]]) -> Any:
        """A node of one of these classes."""
        if type(data) is not list or len(data) < 2 or type(data[0]) is not str:
            expected(f"a node ({_names(allowed)})", data)
        cls = s.CLASSES.get(data[0])
        if cls is None or cls not in allowed:
            expected(f"a node of {_names(allowed)}", data[0])
        readers = _FIELDS.get(cls) or _readers(cls)
        if len(data) != len(readers) + 2:
            raise Misread(f"should be a {cls.__name__} of {len(readers)} fields and has {len(data) - 2}")
        deeper = cls not in _PARTS
        self.depth += deeper
        if self.depth > MAX_DEPTH:
            raise Misread("is nested too deeply")
        values = []
        for (name, read), value in zip(readers, data[2:], strict=True):
            try:
                values.append(read(self, value))
            except Misread as wrong:
                raise wrong.below(f".{name}") from None
        self.depth -= deeper
        node = cls(*values, span=_span(data[1]))
        check = _WHOLE.get(cls)
        if check is not None:
            check(node)
        return node


def _names(allowed: Collection[type[s.SyntaxNode]]) -> str:
    if len(allowed) > 5:
        return "an expression" if s.Name in allowed else "a statement"
    return " or ".join(cls.__name__ for cls in allowed)


def _span(data: object) -> s.Span:
    if type(data) is list and len(data) == 4:
        line, column, end_line, end_column = data
        whole = type(line) is type(column) is type(end_line) is type(end_column) is int
        if whole and min(data) >= 0 and max(data) < MAX_PLACE:
            return (line, column, end_line, end_column)
    expected("a place of four numbers", data)


# *** fields ***


def _items(data: object) -> list[Any]:
    if type(data) is dict and len(data) == 1 and type(data.get("t")) is list:
        return list(data["t"])
    expected('a sequence, {"t": [...]}', data)


def one(*allowed: type[s.SyntaxNode]) -> Read:
    """A field that holds one node."""
    return lambda reader, data: reader.node(data, allowed)


def several(*allowed: type[s.SyntaxNode]) -> Read:
    """A field that holds a sequence of nodes."""

    def read(reader: TreeReader, data: object) -> tuple[Any, ...]:
        nodes = []
        for number, item in enumerate(_items(data)):
            try:
                nodes.append(reader.node(item, allowed))
            except Misread as wrong:
                raise wrong.below(f"[{number}]") from None
        return tuple(nodes)

    return read


def optional(read: Read) -> Read:
    return lambda reader, data: None if data is None else read(reader, data)


def plain(read: Callable[[Any], Any]) -> Read:
    return lambda reader, data: read(data)


def local(data: object) -> str:
    """A variable: an author's name, or one of those that no author can write, `$sizes`."""
    return "$" + identifier(data[1:]) if type(data) is str and data.startswith("$") else identifier(data)


def _exception(data: object) -> str:
    """The class of an exception as the author wrote it, `ValueError` or `errors.Late`; "" in a bare `raise`."""
    if type(data) is str and data not in REPORTED and (data == "" or all(n.isidentifier() for n in data.split("."))):
        return data
    expected("the name of an exception", data)


def _constant(data: object) -> Any:
    if data is None or type(data) in (bool, int, str):
        return data
    if type(data) is dict and len(data) == 1 and type(data.get("f")) is str:
        try:
            return float.fromhex(data["f"])
        except (ValueError, OverflowError):
            pass
    if type(data) is dict and [*data] == ["c"] and type(data["c"]) is list and [str, str] == [*map(type, data["c"])]:
        try:
            return complex(*map(float.fromhex, data["c"]))
        except (ValueError, OverflowError):
            pass
    expected('a constant (a float as {"f": hexadecimal})', data)


def _index(reader: TreeReader, data: Any) -> int:
    if count(data) >= reader.globals:
        raise Misread(f"should be one of the {reader.globals} globals and is {shown(data)}")
    return int(data)


def _within_brackets(reader: TreeReader, data: object) -> Any:
    """What stands in `x[...]`: an expression, a slice, or several of them."""
    if type(data) is list and data[:1] == ["Tuple"] and len(data) == 3:
        reader.depth += 1
        items = _several_within_brackets(reader, data[2])
        reader.depth -= 1
        return s.Tuple(items, span=_span(data[1]))
    return reader.node(data, (*_ANYWHERE, s.Slice))


_several_within_brackets = several(*_ANYWHERE, s.Slice, s.Starred)


def _target(
    reader: TreeReader, data: object, parts: tuple[type[s.SyntaxNode], ...] = (s.Subscript, s.Attribute)
) -> Any:
    """What may be assigned to: a name, or a tuple of targets, or with `parts` an element or a field."""
    if type(data) is list and data[:1] == ["Tuple"] and len(data) == 3:
        reader.depth += 1
        if reader.depth > MAX_DEPTH:
            raise Misread("is nested too deeply")
        items = each(_items(data[2]), lambda item: _target(reader, item, parts))
        reader.depth -= 1
        return s.Tuple(items, span=_span(data[1]))
    return reader.node(data, (s.Name, *parts))


def _loop_target(reader: TreeReader, data: object) -> Any:
    return _target(reader, data, ())


_expr = one(*_ANYWHERE)
_BY_ANNOTATION: Mapping[str, Read] = {
    "str": plain(text),
    "bool": plain(switch),
    "Expr": _expr,
    "Expr | None": optional(_expr),
    "Function": one(s.Function),
    "tuple[str, ...]": lambda reader, data: each(_items(data), text),
    "tuple[Expr, ...]": several(*_ANYWHERE),
    "tuple[Stmt, ...]": several(*_STATEMENTS),
    "tuple[Keyword, ...]": several(s.Keyword),
    "tuple[Clause, ...]": several(s.Clause),
    "tuple[Param, ...]": several(s.Param),
    "tuple[Method, ...]": several(s.Method),
}
_BY_FIELD: Mapping[tuple[type[s.SyntaxNode], str], Read] = {
    (s.Constant, "value"): plain(_constant),
    (s.Name, "id"): plain(local),
    (s.Global, "index"): _index,
    (s.Attribute, "name"): plain(identifier),
    (s.Subscript, "index"): _within_brackets,
    (s.Keyword, "name"): plain(identifier),
    (s.Call, "arguments"): several(*_ANYWHERE, s.Starred, s.Generator),
    (s.Binary, "op"): plain(lambda data: one_of(data, s.BINARY)),
    (s.AugAssign, "op"): plain(lambda data: one_of(data, s.BINARY)),
    (s.AugAssign, "target"): one(s.Name, s.Subscript, s.Attribute),
    (s.Unary, "op"): plain(lambda data: one_of(data, s.UNARY)),
    (s.Compare, "ops"): lambda reader, data: each(_items(data), lambda op: one_of(op, s.COMPARE)),
    (s.Logical, "op"): plain(lambda data: one_of(data, ("and", "or"))),
    (s.Tuple, "items"): several(*_ANYWHERE, s.Starred),
    (s.Clause, "target"): _loop_target,
    (s.Kind, "name"): plain(lambda data: one_of(data, KINDS.values())),
    (s.OneOf, "members"): several(*s.TYPES, s.Constant),
    (s.TupleOf, "items"): several(*s.TYPES),
    (s.Param, "name"): plain(identifier),
    (s.Param, "annotation"): optional(one(*s.TYPES)),
    (s.Assign, "target"): _target,
    (s.Assign, "annotation"): optional(one(*s.TYPES)),
    (s.For, "target"): _loop_target,
    (s.Function, "name"): plain(lambda data: data if data == "lambda" else identifier(data)),
    (s.Method, "kind"): plain(lambda data: one_of(data, METHODS)),
    (s.Raise, "kind"): plain(_exception),
    (s.Struct, "name"): plain(identifier),
    (s.Struct, "constants"): several(s.Keyword),
}


_FIELDS: dict[type[s.SyntaxNode], tuple[tuple[str, Read], ...]] = {}


def _readers(cls: type[s.SyntaxNode]) -> tuple[tuple[str, Read], ...]:
    """How each field of a node is read, in their order; found at its first use."""
    said = inspect.get_annotations(cls)
    readers = tuple((n, _BY_FIELD.get((cls, n)) or _BY_ANNOTATION[str(said[n])]) for n in cls._fields)
    _FIELDS[cls] = readers
    return readers


# *** what the fields of a node say together ***


def _pairs_of_operators(node: s.Compare) -> None:
    if not node.ops or len(node.operands) != len(node.ops) + 1:
        raise Misread(f"compares {len(node.operands)} operands by {len(node.ops)} operators")


def _operands(node: s.Logical) -> None:
    if len(node.operands) < 2:
        raise Misread("should have two operands or more")


def _formats(node: s.Formatted) -> None:
    if len(node.parts) != len(node.formats):
        raise Misread(f"has {len(node.parts)} parts and {len(node.formats)} formats")


def _clauses(node: s.Generator) -> None:
    if not node.clauses:
        raise Misread("goes over nothing")


def _members(node: s.OneOf) -> None:
    if any(isinstance(member, s.Constant) and member.value is not None for member in node.members):
        raise Misread("has a constant that is not None")


def _distinct(node: s.Function | s.Lambda | s.Struct) -> None:
    names = [p.name for p in (node.fields if isinstance(node, s.Struct) else node.params)]
    if len(set(names)) != len(names):
        raise Misread("has two parameters of one name")


def _field_of_a_variable(node: s.Assign | s.AugAssign) -> None:
    targets: list[s.Expr] = [node.target]
    for target in targets:  # grows while it is read
        if isinstance(target, s.Tuple):
            targets += target.items
        owner: s.Expr = target
        while isinstance(owner, s.Attribute):
            owner = owner.value
        if isinstance(target, s.Attribute) and not isinstance(owner, s.Name):
            raise Misread("assigns to a field of something that is not a variable")


_WHOLE: Mapping[type[s.SyntaxNode], Callable[[Any], None]] = {
    s.Compare: _pairs_of_operators,
    s.Logical: _operands,
    s.Formatted: _formats,
    s.Generator: _clauses,
    s.OneOf: _members,
    s.Function: _distinct,
    s.Lambda: _distinct,
    s.Struct: _distinct,
    s.Assign: _field_of_a_variable,
    s.AugAssign: _field_of_a_variable,
}
