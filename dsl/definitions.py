"""Where functions and classes stand in the text of their file.

To parse a file takes as long as to compile a small kernel, so at first only the statement at the top level of the
module that the line lies in is parsed. Where it is cut off wrongly, in the middle of brackets or of a string, it is no
Python, or not what is looked for, and the whole file is parsed after it.

Input: a file, the names of its module, and a line. Output: nodes of Python's `ast` with the lines of the file.
Non-goals: which of them is meant.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from typing import Any

from .kernel_files import SOURCE

Nodes = tuple[ast.AST, ...]

_KINDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_parsed: dict[tuple[str, int], tuple[str, Nodes]] = {}  # by file and first line: the file's text, and what was found


def definitions(file: str, names: dict[str, Any], line: int) -> Iterator[Nodes]:
    """The functions and classes of the statement at a line, then those of the whole file.

    The text is the one that the module keeps, else that of the file as it is now.
    """
    linecache.checkcache(file)
    text = names.get(SOURCE) or "".join(linecache.getlines(file))
    known = _parsed.get((file, line))
    if known is None or known[0] != text:
        try:
            known = text, _nodes("\n" * (line - 1) + _statement(text.split("\n"), line), file)
        except SyntaxError:
            known = text, ()
        _parsed[file, line] = known
    yield known[1]
    whole = _parsed.get((file, 0))
    if whole is None or whole[0] != text:
        whole = _parsed[file, 0] = text, _nodes(text, file)
    yield whole[1]


def first_line(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """The line that a definition begins at, its decorators included."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _nodes(text: str, file: str) -> Nodes:
    return tuple(node for node in ast.walk(ast.parse(text, filename=file)) if isinstance(node, _KINDS))


def _statement(lines: list[str], line: int) -> str:
    """The statement at the top level that begins at a line; nothing where that is the middle of one."""
    if not 0 < line <= len(lines) or not _begins(lines[line - 1]):
        return ""
    end = line
    decorated = lines[line - 1].startswith("@")
    while end < len(lines) and (decorated or not _begins(lines[end])):
        if decorated and _begins(lines[end]):
            decorated = lines[end].startswith("@")
        end += 1
    return "\n".join(lines[line - 1 : end])


def _begins(line: str) -> bool:
    """Whether a line begins a statement at the top level, or looks like it."""
    return line != "" and line[0] not in " \t\r\f#)]}"
