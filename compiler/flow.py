"""How blocks of statements end, and what is in them.

Input: statements and regions. Output: `Flow`, and answers about where a block leaves. Non-goals: no evaluation.
"""

from __future__ import annotations

from typing import Any

from ..dsl import syntax
from .program import Op, Region


class TooMany(Exception):
    """Enough mistakes for one go, or one that ends everything."""


class Flow:
    """How a block ended: `next` (ran off its end), `return` with a value, `break` or `continue`."""

    def __init__(self, kind: str, value: Any = None) -> None:
        self.kind = kind
        self.value = value


NEXT = Flow("next")


def leaves(stmt: syntax.If) -> bool:
    leaving = (syntax.Return, syntax.Break, syntax.Continue)
    return _contains_exit(stmt.then, leaving) or _contains_exit(stmt.otherwise, leaving)


def _contains_exit(statements: tuple[syntax.Stmt, ...], kinds: tuple[type[syntax.Stmt], ...]) -> bool:
    return syntax.contains(statements, kinds, into_loops=False)


def gives_value(statements: tuple[syntax.Stmt, ...]) -> bool:
    """Whether a function that stops at these statements would have given a value."""
    for stmt in statements:
        match stmt:
            case syntax.Return(value=value) if value is not None:
                return True
            case syntax.If():
                if gives_value(stmt.then + stmt.otherwise):
                    return True
            case syntax.For() | syntax.While():
                if gives_value(stmt.body):
                    return True
            case _:
                pass
    return False


def argument_node(node: syntax.Node, param: syntax.Param, params: tuple[syntax.Param, ...]) -> syntax.Node:
    """Where an argument of a plain call stands; the call itself when that cannot be told."""
    if not isinstance(node, syntax.Call) or any(isinstance(a, syntax.Starred) for a in node.arguments):
        return node
    named = {k.name: k.value for k in node.keywords}
    position = params.index(param)
    if param.name in named:
        return named[param.name]
    if len(node.arguments) + len(named) <= len(params) and position < len(node.arguments):
        return node.arguments[position]
    return node


def count_operations(region: Region) -> int:
    """How many operations a region holds, inner ones included."""
    total = 0
    stack: list[Op] = list(region.ops)
    while stack:
        op = stack.pop()
        total += 1
        for inner in op.regions:
            stack.extend(inner.ops)
    return total
