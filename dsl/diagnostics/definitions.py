"""Finds functions and classes in the text that they were made from.

A file may be written while the program that has loaded it runs, and several texts may have one name. So a text is
believed only where it compiles to the very code that runs, and kept from then on.

To parse a file takes as long as to compile a small kernel, so at first only the statement at the top level of the
module that the line lies in is parsed. Where it is cut off wrongly, in the middle of brackets or of a string, it is no
Python, or not what is looked for, and the whole file is parsed after it.

See also `diagnostics.text` (which of the nodes is meant; where texts come from).
"""

from __future__ import annotations
import __future__

import ast
from collections import deque
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any

from .cached import cached
from .code_keys import code_key
from .installation import is_own_module
from .syntax_trees import syntax_tree
from .text import Text, texts

Nodes = tuple[ast.AST, ...]

_KINDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LEAVES = frozenset([ast.Name, ast.Constant, ast.Load, ast.Store, *ast.operator.__subclasses__()])  # hold no definition
_FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


class SourcePiece:
    """A statement of a file, or the whole of it, and what it defines.

    Attributes:
        text: the file's text.
    """

    def __init__(self, file: str, text: Text, part: str) -> None:
        self.file = file
        self.text = text
        self.part = part
        self._codes: dict[int, frozenset[bytes]] = {}

    @cached
    def _tree(self) -> ast.Module | None:
        try:
            return syntax_tree(self.part, self.file)
        except SyntaxError:
            return None

    @cached
    def nodes(self) -> Nodes:
        """The functions and classes; none where the piece is not Python."""
        if self._tree is None:
            return ()
        left, definitions = deque[ast.AST]([self._tree]), list[ast.AST]()
        while left:
            node = left.popleft()
            if isinstance(node, _KINDS):
                definitions.append(node)
            if type(node) not in _LEAVES:  # these are most of a tree
                left += ast.iter_child_nodes(node)
        return tuple(definitions)

    def makes(self, *codes: CodeType) -> bool:
        """Whether the piece compiles to all of these codes, to the column."""
        return self._tree is not None and all(
            code_key(code) in self._compiled(code.co_flags & _FUTURES) for code in codes
        )

    def _compiled(self, flags: int) -> frozenset[bytes]:
        if flags not in self._codes:
            assert self._tree is not None
            try:
                code = compile(self._tree, self.file, "exec", flags, dont_inherit=True)
                results: set[bytes] = set()
                code_key(code, results)
                self._codes[flags] = frozenset(results)
            except SyntaxError:  # of those that the parser does not see, such as a `return` outside functions
                self._codes[flags] = frozenset()
        return self._codes[flags]


_pieces: dict[tuple[str, int], SourcePiece] = {}  # by file and line; line 0 for the whole file


def pieces(file: str, names: dict[str, Any], line: int, defined: str) -> Iterator[SourcePiece]:
    """What may hold the definition of a name at a line, in each of the texts that the file's code may come from.

    The statement comes first, the whole file after it.
    """
    seen: set[str] = set()
    for text in texts(file, names, defined):
        if text.text not in seen:
            seen.add(text.text)
            yield from _pieces_of(file, text, line)


def _pieces_of(file: str, text: Text, line: int) -> Iterator[SourcePiece]:
    for at in (line, 0):
        known = _pieces.get((file, at))
        if known is None or known.text != text:
            part = "\n" * (at - 1) + _statement(text.text.split("\n"), at) if at else text.text
            known = _pieces[file, at] = SourcePiece(file, text, part)
        yield known


def is_checked(names: dict[str, Any]) -> bool:
    """Whether the text of a module has to compile to its code.

    It need not where an import hook, such as pytest's, makes other code of it; and the language's own files stay as
    they are.
    """
    loader = names.get("__loader__")
    if is_own_module(str(names.get("__name__"))):
        return False
    if not isinstance(loader, SourceFileLoader):
        return loader is None
    own = type(loader)
    return own.get_code is SourceFileLoader.get_code and own.source_to_code is SourceFileLoader.source_to_code


def first_line(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """The line that a definition begins at, its decorators included."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


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
