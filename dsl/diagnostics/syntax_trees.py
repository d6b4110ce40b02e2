"""Syntax trees of Python text, in threads as well.

CPython before 3.11.8 counts the depth of all trees that are made at once in one number. Where threads parse side by
side, a correct text may then raise `SystemError: AST constructor recursion depth mismatch`
(https://github.com/python/cpython/issues/106905). A second attempt is right, unless it is disturbed as well.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import Final

ATTEMPTS: Final = 100


def syntax_tree(text: str | bytes, file: str = "<unknown>") -> ast.Module:
    """The syntax tree of a file's text.

    Raises:
        SyntaxError: it is not Python.
        ValueError: it has a null character.
        RecursionError, MemoryError: it nests too deeply.
    """
    tree = _parsed(text, file, "exec")
    assert isinstance(tree, ast.Module)
    return tree


def expression_tree(text: str) -> ast.expr:
    """The syntax tree of an expression; it raises what `syntax_tree` does."""
    tree = _parsed(text, "<unknown>", "eval")
    assert isinstance(tree, ast.Expression)
    return tree.body


def _parsed(text: str | bytes, file: str, mode: str) -> ast.AST:
    for _ in range(ATTEMPTS - 1):
        with suppress(SystemError):
            return ast.parse(text, file, mode)
    return ast.parse(text, file, mode)
