"""The syntax tree of a kernel: what the subset of Python allows, and nothing else.

`parse` makes it from Python source, a package carries it as JSON, the compiler reads it. Names are already resolved:
`Name` is a local of the function or of one around it, `Global` is an entry of the program's table of globals (see
`portable`). Every node has a `span`: line, column, end line, end column, counted as in `source.Place`.

Input: nothing. Output: frozen nodes, `to_json` and `from_json`. Non-goals: no checks beyond shape, no evaluation.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

Span = tuple[int, int, int, int]
NOWHERE: Span = (1, 1, 1, 1)


@dataclass(frozen=True)
class Node:
    """Anything with a place in the author's text."""

    span: Span = field(default=NOWHERE, kw_only=True, compare=False)


class Expr(Node):
    """An expression."""


class Stmt(Node):
    """A statement."""


@dataclass(frozen=True)
class Constant(Expr):
    value: bool | int | float | str | None


@dataclass(frozen=True)
class Name(Expr):
    """A local variable, parameter or nested function."""

    id: str


@dataclass(frozen=True)
class Global(Expr):
    """An entry of the table of globals; `name` is how the author wrote it."""

    index: int
    name: str


@dataclass(frozen=True)
class Attribute(Expr):
    value: Expr
    name: str


@dataclass(frozen=True)
class Slice(Expr):
    lower: Expr | None
    upper: Expr | None
    step: Expr | None


@dataclass(frozen=True)
class Subscript(Expr):
    value: Expr
    index: Expr


@dataclass(frozen=True)
class Keyword(Node):
    name: str
    value: Expr


@dataclass(frozen=True)
class Call(Expr):
    function: Expr
    arguments: tuple[Expr, ...]
    keywords: tuple[Keyword, ...] = ()


@dataclass(frozen=True)
class Binary(Expr):
    """`op` is the name of a row in the table of operations: `add`, `floordiv`, `shl`, …"""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Unary(Expr):
    """`op` is `neg`, `pos`, `invert` or `not`."""

    op: str
    operand: Expr


@dataclass(frozen=True)
class Compare(Expr):
    """A chain: `a < b <= c` has two ops and three operands."""

    ops: tuple[str, ...]
    operands: tuple[Expr, ...]


@dataclass(frozen=True)
class Logical(Expr):
    """`and` or `or` over two or more operands, short-circuit."""

    op: str
    operands: tuple[Expr, ...]


@dataclass(frozen=True)
class Conditional(Expr):
    """`then if test else otherwise`."""

    test: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True)
class Tuple(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True)
class Starred(Expr):
    value: Expr


@dataclass(frozen=True)
class Formatted(Expr):
    """An f-string: text and expressions by turns. `formats` holds the format of each expression, '' for none."""

    parts: tuple[Expr, ...]
    formats: tuple[str, ...]


@dataclass(frozen=True)
class Param(Node):
    name: str
    default: Expr | None = None
    keyword_only: bool = False
    annotation: Expr | None = None


@dataclass(frozen=True)
class Lambda(Expr):
    params: tuple[Param, ...]
    body: Expr


@dataclass(frozen=True)
class Assign(Stmt):
    """`target = value`; the target is a Name, a Subscript or a Tuple of these. `annotation` fixes the type."""

    target: Expr
    value: Expr
    annotation: Expr | None = None


@dataclass(frozen=True)
class AugAssign(Stmt):
    target: Expr
    op: str
    value: Expr


@dataclass(frozen=True)
class If(Stmt):
    test: Expr
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...]


@dataclass(frozen=True)
class For(Stmt):
    target: Expr
    iterable: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class While(Stmt):
    test: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class Break(Stmt):
    pass


@dataclass(frozen=True)
class Continue(Stmt):
    pass


@dataclass(frozen=True)
class Return(Stmt):
    value: Expr | None


@dataclass(frozen=True)
class Expression(Stmt):
    value: Expr


@dataclass(frozen=True)
class Assert(Stmt):
    test: Expr
    message: Expr | None


@dataclass(frozen=True)
class Raise(Stmt):
    """`raise Something("message")`; the class is shown with the message."""

    kind: str
    message: Expr | None


@dataclass(frozen=True)
class Function(Stmt):
    """A kernel, a helper, or a nested function."""

    name: str
    params: tuple[Param, ...]
    body: tuple[Stmt, ...]


_CLASSES: dict[str, type[Node]] = {
    cls.__name__: cls
    for cls in list(globals().values())
    if isinstance(cls, type) and issubclass(cls, Node) and cls not in (Node, Expr, Stmt)
}


def to_json(node: Any, *, spans: bool = True) -> Any:
    """Lists and scalars: `[class name, span, fields…]`. Without spans the result depends on meaning alone."""
    if isinstance(node, Node):
        head: list[Any] = [type(node).__name__]
        if spans:
            head.append(list(node.span))
        return head + [
            to_json(getattr(node, f.name), spans=spans) for f in dataclasses.fields(node) if f.name != "span"
        ]
    if isinstance(node, tuple):
        return {"t": [to_json(item, spans=spans) for item in node]}
    if isinstance(node, float):
        return {"f": node.hex()}
    return node


def from_json(data: Any) -> Any:
    """The inverse of `to_json` with spans. Raises KeyError, TypeError or ValueError on anything else."""
    if isinstance(data, list):
        cls = _CLASSES[data[0]]
        names = [f.name for f in dataclasses.fields(cls) if f.name != "span"]
        line, column, end_line, end_column = (int(n) for n in data[1])
        fields = dict(zip(names, map(from_json, data[2:]), strict=True))
        return cls(**fields, span=(line, column, end_line, end_column))
    if isinstance(data, dict):
        if "f" in data:
            return float.fromhex(data["f"])
        return tuple(from_json(item) for item in data["t"])
    return data


def assigned_names(statements: tuple[Stmt, ...]) -> list[str]:
    """The variables that these statements may assign, in order of first appearance, nested functions aside."""
    found: dict[str, None] = {}

    def target(expr: Expr) -> None:
        if isinstance(expr, Name):
            found.setdefault(expr.id)
        elif isinstance(expr, Tuple):
            for item in expr.items:
                target(item)
        elif isinstance(expr, Starred):
            target(expr.value)

    def visit(block: tuple[Stmt, ...]) -> None:
        for stmt in block:
            match stmt:
                case Assign() | AugAssign():
                    target(stmt.target)
                case If():
                    visit(stmt.then)
                    visit(stmt.otherwise)
                case For():
                    target(stmt.target)
                    visit(stmt.body)
                case While():
                    visit(stmt.body)
                case Function():
                    found.setdefault(stmt.name)
                case _:
                    pass

    visit(statements)
    return list(found)


def contains(statements: tuple[Stmt, ...], kinds: tuple[type[Stmt], ...], *, into_loops: bool = True) -> bool:
    """Whether a statement of these kinds occurs, nested functions aside; `into_loops=False` stays out of loops."""
    for stmt in statements:
        if isinstance(stmt, kinds):
            return True
        inner: tuple[Stmt, ...] = ()
        if isinstance(stmt, If):
            inner = stmt.then + stmt.otherwise
        elif isinstance(stmt, For | While) and into_loops:
            inner = stmt.body
        if inner and contains(inner, kinds, into_loops=into_loops):
            return True
    return False
