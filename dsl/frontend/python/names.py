"""Finds the names around Python's `ast`: of its operators, of what a piece of text binds."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...diagnostics.errors import EinkornError

BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
}
UNARY = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert", ast.Not: "not_"}
CLOSED = (ast.Name, ast.Attribute, ast.ClassDef, ast.AsyncFunctionDef)  # with no parts to look at next to a mistake
COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}


class Unresolved(Exception):
    """Raised by `resolve` for an object that has no meaning in a kernel; the text says why, the hint what else."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.hint = hint


class AlreadyReported(Exception):
    """Raised for the use of something with a mistake in it, which says nothing more.

    `error` is that mistake, where it has been noted for another text.
    """

    def __init__(self, error: EinkornError | None = None) -> None:
        super().__init__()
        self.error = error


def names_assigned(nodes: Sequence[ast.AST]) -> set[str]:
    """Names that Python makes local to a function with this body, those of its nested functions aside."""
    names: set[str] = set()
    stack = list(nodes)
    while stack:
        item = stack.pop()
        if isinstance(item, ast.Name):
            if isinstance(item.ctx, ast.Store):
                names.add(item.id)
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(item.name)
        elif not isinstance(item, _NAMELESS):
            if isinstance(item, _BINDING):
                names |= _bound(item)
            stack.extend(ast.iter_child_nodes(item))
    return names


_NAMELESS = (ast.Lambda, ast.GeneratorExp, ast.Constant, ast.operator, ast.cmpop, ast.unaryop, ast.expr_context)
_BINDING = (ast.ExceptHandler, ast.pattern, ast.alias)


def names_bound(node: ast.AST) -> set[str]:
    """Names that something binds, those of its own comprehensions among them."""
    return {name for part in ast.walk(node) for name in _bound(part)}


def _bound(node: ast.AST) -> set[str]:
    """The name that a node itself binds, if it does; also where that is not in the language."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str() as name):
            return {name}
        case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
            return {name}
        case ast.alias(name=name, asname=other):
            return {other or name.partition(".")[0]}
    return set()


def sizes_of(node: ast.FunctionDef) -> dict[str, str]:
    """How a kernel writes the dims of its signature: `{"n": "x.dim(0)"}`, where their place is reported."""
    sizes: dict[str, str] = {}
    for argument in node.args.args:
        annotation = argument.annotation
        index = annotation.slice if isinstance(annotation, ast.Subscript) else None
        dims = index.elts[-1] if isinstance(index, ast.Tuple) and index.elts else None
        if not isinstance(dims, ast.Constant) or not isinstance(dims.value, str) or set(dims.value) & set("*({"):
            continue
        for axis, name in enumerate(dims.value.split()):
            sizes.setdefault(name, f"{argument.arg}.dim({axis})")
    return sizes


def yields(node: ast.AST) -> bool:
    """Whether a function with this in its body is a generator."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return False
    return isinstance(node, ast.Yield | ast.YieldFrom) or any(map(yields, ast.iter_child_nodes(node)))
