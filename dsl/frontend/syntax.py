"""Defines the syntax tree of a kernel: what the subset of Python allows, and nothing else.

A frontend makes it from a text, a package carries it as JSON, the compiler reads it. Names are already resolved:
`Name` is a local of the function or of one around it, `Global` is an entry of the program's table of globals (see
`program`). Every node has a `span`: line, column, end line, end column, counted as in `Place`.

See also `frontend.read_syntax`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import field
from typing import Any, ClassVar, dataclass_transform

Span = tuple[int, int, int, int]
NO_SPAN: Span = (1, 1, 1, 1)

# The operators that a tree may hold.
BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "shl", "shr", "and_", "or_", "xor")
UNARY = ("neg", "pos", "invert", "not_")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
MAX_NESTING = 150  # operators in operators, blocks in blocks


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class _Record:
    """A subclass lists its fields as annotations and is made like a dataclass, `Binary("add", a, b, span=...)`. It is
    none: thirty dataclasses take 20 ms to define, and these are defined in every process that loads a kernel.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, object]] = {}

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(name for name in inspect.get_annotations(cls) if name != "span")
        cls._defaults = {name: cls.__dict__[name] for name in cls._fields if name in cls.__dict__}

    def __init__(self, *values: object, span: Span = NO_SPAN, **named: object) -> None:
        if len(values) == len(self._fields) and not named:
            self.__dict__.update(zip(self._fields, values, strict=True), span=span)
            return
        fields = {**self._defaults, **dict(zip(self._fields, values, strict=False)), **named}
        if len(values) > len(self._fields) or fields.keys() != set(self._fields):
            raise TypeError(f"{type(self).__name__} takes {', '.join(self._fields)}")
        self.__dict__.update(fields, span=span)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __eq__(self, other: object) -> bool:
        """Equal in meaning: places do not count."""
        return type(self) is type(other) and all(getattr(self, n) == getattr(other, n) for n in self._fields)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self._fields)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(getattr(self, name)) for name in self._fields)})"


class SyntaxNode(_Record):
    """Anything with a place in the author's text."""

    span: Span = field(default=NO_SPAN, kw_only=True, compare=False)


class Expr(SyntaxNode):
    """An expression."""


class Stmt(SyntaxNode):
    """A statement."""


class Constant(Expr):
    value: bool | int | float | complex | str | None


class Name(Expr):
    """A local variable, parameter or nested function."""

    id: str


class Global(Expr):
    """An entry of the table of globals; `name` is how the author wrote it."""

    index: int
    name: str


class Attribute(Expr):
    value: Expr
    name: str


class Slice(Expr):
    lower: Expr | None
    upper: Expr | None
    step: Expr | None


class Subscript(Expr):
    value: Expr
    index: Expr


class Keyword(SyntaxNode):
    name: str
    value: Expr


class Call(Expr):
    function: Expr
    arguments: tuple[Expr, ...]
    keywords: tuple[Keyword, ...] = ()


class Binary(Expr):
    """`op` is one of `BINARY`: the name of a row in the table of operations."""

    op: str
    left: Expr
    right: Expr


class Unary(Expr):
    """`op` is one of `UNARY`."""

    op: str
    operand: Expr


class Compare(Expr):
    """A chain: `a < b <= c` has two ops and three operands."""

    ops: tuple[str, ...]
    operands: tuple[Expr, ...]


class Logical(Expr):
    """`and` or `or` over two or more operands, short-circuit."""

    op: str
    operands: tuple[Expr, ...]


class Conditional(Expr):
    """`then if test else otherwise`."""

    test: Expr
    then: Expr
    otherwise: Expr


class Tuple(Expr):
    items: tuple[Expr, ...]


class Clause(SyntaxNode):
    """`for target in iterable if test ...` within a generator expression."""

    target: Expr
    iterable: Expr
    tests: tuple[Expr, ...]


class Generator(Expr):
    """A generator expression over sequences that are known at compile time, as the argument of a call."""

    item: Expr
    clauses: tuple[Clause, ...]


class Starred(Expr):
    value: Expr


class Formatted(Expr):
    """An f-string: text and expressions by turns. `formats` holds the format of each expression, '' for none."""

    parts: tuple[Expr, ...]
    formats: tuple[str, ...]


class Wrong(Expr):
    """An expression with a mistake, which has been noted. No package holds one."""


class Kind(Expr):
    """An annotation that says what a value is, and converts nothing: a name of `kinds.KINDS`."""

    name: str


class OneOf(Expr):
    """An annotation `A | B`: a value is one of these, and is not converted. A constant among them is `None`."""

    members: tuple[Expr, ...]


class TupleOf(Expr):
    """An annotation `tuple[A, B]` that has a `Kind` in it, or `tuple[A, ...]`, where `repeated` is true."""

    items: tuple[Expr, ...]
    repeated: bool


TYPES = (Global, Subscript, Kind, OneOf, TupleOf)  # what an annotation may be


class Param(SyntaxNode):
    name: str
    default: Expr | None = None
    keyword_only: bool = False
    annotation: Expr | None = None


class Lambda(Expr):
    params: tuple[Param, ...]
    body: Expr


class Assign(Stmt):
    """`target = value`; the target is a Name, a Subscript, a field `p.x` of a variable, or a Tuple of these.

    `annotation` fixes the type.
    """

    target: Expr
    value: Expr
    annotation: Expr | None = None


class AugAssign(Stmt):
    target: Expr
    op: str
    value: Expr


class If(Stmt):
    test: Expr
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...]


class For(Stmt):
    target: Expr
    iterable: Expr
    body: tuple[Stmt, ...]


class While(Stmt):
    test: Expr
    body: tuple[Stmt, ...]


class Break(Stmt):
    pass


class Continue(Stmt):
    pass


class Return(Stmt):
    value: Expr | None


class Expression(Stmt):
    value: Expr


class Assert(Stmt):
    test: Expr
    message: Expr | None


class Raise(Stmt):
    """`raise Something("message")`; the class is shown with the message."""

    kind: str
    message: Expr | None


class Function(Stmt):
    """A kernel, a helper, or a nested function."""

    name: str
    params: tuple[Param, ...]
    body: tuple[Stmt, ...]


class Method(SyntaxNode):
    """A function of a struct; `kind` is `method`, `static`, `class` or `property`."""

    function: Function
    kind: str


class Struct(Stmt):
    """A class under `@struct`: its fields as parameters of the constructor, its methods, and its constants."""

    name: str
    fields: tuple[Param, ...]
    methods: tuple[Method, ...]
    constants: tuple[Keyword, ...]


CLASSES: dict[str, type[SyntaxNode]] = {
    cls.__name__: cls
    for cls in list(globals().values())
    if isinstance(cls, type) and issubclass(cls, SyntaxNode) and cls not in (SyntaxNode, Expr, Stmt)
}


def to_json(node: Any, *, spans: bool = True) -> Any:
    """Lists and scalars: `[class name, span, fields…]`. Without spans the result depends on meaning alone."""
    kind = type(node)
    if kind in _PLAIN:
        return node
    if kind is tuple:
        return {"t": [item if type(item) in _PLAIN else to_json(item, spans=spans) for item in node]}
    if kind is float:
        return {"f": node.hex()}
    if kind is complex:
        return {"c": [node.real.hex(), node.imag.hex()]}
    fields = vars(node)
    head: list[Any] = [kind.__name__, list(node.span)] if spans else [kind.__name__]
    for name in kind._fields:
        value = fields[name]
        head.append(value if type(value) in _PLAIN else to_json(value, spans=spans))
    return head


_PLAIN = frozenset({str, int, bool, type(None)})  # values that JSON has as they are


def walk(node: SyntaxNode) -> Iterator[SyntaxNode]:
    """A node and all that is in it, in the order of the text."""
    left = [node]
    while left:
        node = left.pop()
        yield node
        left += reversed([*children(node)])


def children(node: SyntaxNode) -> Iterator[SyntaxNode]:
    """The nodes that a node is made of, in the order of its fields."""
    fields = vars(node)
    for name in node._fields:
        value = fields[name]
        if isinstance(value, tuple):
            for item in value:
                if isinstance(item, SyntaxNode):
                    yield item
        elif isinstance(value, SyntaxNode):
            yield value


def assigned_names(statements: tuple[Stmt, ...]) -> list[str]:
    """The variables that these statements may assign, in order of first appearance, nested functions aside."""
    results: dict[str, None] = {}

    def target(expr: Expr) -> None:
        if isinstance(expr, Name):
            results.setdefault(expr.id)
        elif isinstance(expr, Tuple):
            for item in expr.items:
                target(item)
        elif isinstance(expr, Starred | Attribute):
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
                    results.setdefault(stmt.name)
                case _:
                    pass

    visit(statements)
    return list(results)


def names_with_stores(statements: tuple[Stmt, ...]) -> list[str]:
    """The variables of which these statements may store an element, in order of first appearance."""
    results: dict[str, None] = {}
    for node in (inner for stmt in statements for inner in walk(stmt)):
        if isinstance(node, Assign | AugAssign):
            for part in walk(node.target):
                if isinstance(part, Subscript) and isinstance(part.value, Name):
                    results.setdefault(part.value.id)
    return list(results)


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
