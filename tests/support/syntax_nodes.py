"""The nodes of syntax trees, listed once per tree and by their classes: `ast.walk` takes seconds for all modules."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)


def listed(root: ast.AST) -> list[ast.AST]:
    """The root and all nodes below it, as `ast.walk` gives them, without `Load`, `Store` and `Del`."""
    collected = [root]
    for node in collected:
        for name, value in vars(node).items():
            if isinstance(value, ast.AST):
                if name != "ctx":
                    collected.append(value)
            elif type(value) is list:
                collected += [each for each in value if isinstance(each, ast.AST)]
    return collected


@cache
def _by_class(root: ast.AST) -> dict[type[ast.AST], list[ast.AST]]:
    classes = defaultdict(list)
    for node in listed(root):
        classes[type(node)].append(node)
    return dict(classes)


def nodes(root: ast.AST, kind: type[Node], *others: type[Node]) -> Sequence[Node]:
    """The nodes of these classes in the tree of a module; those of one class are in the order of `ast.walk`."""
    actual = _by_class(root)
    result: list[Node] = []
    for each in (kind, *others):
        result += actual.get(each, [])  # type: ignore[arg-type]
    return result
