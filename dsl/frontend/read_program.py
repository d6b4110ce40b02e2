"""Reads a portable program from JSON: what `PortableKernel.to_json` wrote, checked as a whole.

A program comes out of a file of unknown origin, and the compiler believes what it is given. So everything
is looked at when it is read: each node of each tree (see `frontend.read_syntax`), each entry of the table of globals,
that indices are of things of the right kind, that every name is bound around its use, and that loops are around what
leaves them. What is wrong is named with its place: `functions[2].syntax.body[0].value.left`.

Raises: PackageError (EK0510).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

from ..diagnostics.errors import PackageError
from ..diagnostics.json_reading import (
    Misread,
    count,
    each,
    expected,
    field,
    identifier,
    listed,
    of_fields,
    one_of,
    text,
)
from ..diagnostics.places import SHIPPED
from ..language.stubs import STUBS
from ..signature.late_dims import shape_schema
from ..signature.read_schema import read_schema
from ..signature.schema import OpSchema
from ..types.dtype import DType, SIMDType
from . import syntax as s
from .program import GlobalEntry, PortableKernel, SourceFunction
from .read_syntax import TreeReader

MARKERS = ("SIMD", "stack", "scratch", "Pointer", "gpu.shared", "gpu.dynamic_shared", "gpu.scratch", "gpu.tile")
MAX_WIDTH = 1 << 16  # of a vector type
HINT = "build it again from its sources with this Einkorn (`einkorn build`)"


def read_program(data: object, where: str = "the portable program", schema: OpSchema | None = None) -> PortableKernel:
    """The program that `to_json` wrote; `where` names it in messages, `schema` is the one that it must have.

    Raises:
        PackageError: EK0510, the data is not such a program.
    """
    try:
        program = _program(data)
        if schema is not None and program.schema != schema:
            raise Misread("should be the schema of the manifest and is another one").below(".schema")
        return program
    except Misread as wrong:
        at = wrong.at() or "it"
        raise PackageError(
            f"{where} cannot be read: {at} {wrong.what}", code="EK0510", argument=at, hint=HINT
        ) from None


def _program(data: object, of: OpSchema | None = None) -> PortableKernel:
    """A program; with `of`, the shape function of that op."""
    fields = of_fields(data, ("schema", "functions", "globals"), ("shape",))
    schema = field(fields, "schema", read_schema)
    if of is not None and schema != shape_schema(of):
        raise Misread("is not that of the op's shape function").below(".schema")
    count_ = len(fields["globals"]) if type(fields["globals"]) is list else 0
    functions = field(fields, "functions", lambda v: listed(v, lambda f: _function(f, count_)))
    if not functions or not isinstance(functions[0].syntax, s.Function):
        raise Misread("holds no kernel").below(".functions")
    globals_ = field(fields, "globals", lambda v: listed(v, lambda g: _global(g, functions, 0)))
    names = {argument.name for argument in schema.arguments} | {p.name for p in schema.parameters}
    names |= {argument.group for argument in schema.tensors if argument.group} | {n for n, _ in schema.counts}
    for number, function in enumerate(functions):
        try:
            _Names(names if number == 0 else set()).top(function.syntax)
        except Misread as wrong:
            raise wrong.below(".syntax").below(f"[{number}]").below(".functions") from None
    if ("shape" in fields) is not bool(schema.late):
        raise Misread(
            "lacks its shape function" if schema.late else "has a shape function and nothing for it to compute"
        )
    shape = field(fields, "shape", lambda v: _program(v, schema)) if schema.late else None
    return PortableKernel(schema, functions, globals_, shape)


def _function(data: object, globals_: int) -> SourceFunction:
    fields = of_fields(data, ("file", "syntax"))
    tree = field(fields, "syntax", lambda v: TreeReader(globals_).node(v, (s.Function, s.Struct)))
    return SourceFunction(tree, field(fields, "file", _file))


def _file(data: object) -> str:
    """The name of a file without its folder, as messages show it."""
    plain = text(data).removeprefix(SHIPPED)
    odd = any(unicodedata.category(c) in ("Cc", "Cs") or c in "/\\" for c in plain)
    return expected("the name of a file without a folder", data) if odd or plain in (".", "..") else text(data)


def _global(data: object, functions: tuple[SourceFunction, ...], depth: int) -> GlobalEntry:
    """An entry of the table of globals; tuples, classes and structs hold further ones."""
    if type(data) is not list or len(data) != 2:
        expected("an entry [kind, value]", data)
    if depth > 50:
        raise Misread("is nested too deeply")
    kind = one_of(data[0], _ENTRIES)
    return GlobalEntry(kind, _ENTRIES[kind](data[1], functions, depth + 1))


def _pair(data: object, what: str) -> tuple[Any, Any]:
    return (data[0], data[1]) if type(data) is list and len(data) == 2 else expected(what, data)


def _index(data: object, functions: tuple[SourceFunction, ...], kind: type[s.Stmt]) -> int:
    """The index of a function, or of a struct, in the table of functions; the kernel itself is never called."""
    if not (type(data) is int and 0 < data < len(functions) and isinstance(functions[data].syntax, kind)):
        expected(f"the index of a {kind.__name__.lower()}", data)
    return int(data)


def _dtype(data: object) -> DType:
    return DType[one_of(data, DType.__members__)]


def _type(data: object) -> SIMDType:
    dtype, width = _pair(data, "[dtype, width]")
    if not 0 < count(width) <= MAX_WIDTH or width & (width - 1):
        expected("a number of lanes", width)
    return SIMDType(_dtype(dtype), width)


def _library(data: object, functions: tuple[SourceFunction, ...]) -> tuple[str, int]:
    stub, index = _pair(data, "[name, function]")
    known = [n for n, result in STUBS.items() if result.kind == "library"]
    return one_of(stub, known), _index(index, functions, s.Function)


def _instance(data: object, functions: tuple[SourceFunction, ...], depth: int) -> tuple[int, tuple[GlobalEntry, ...]]:
    index, parts = _pair(data, "[struct, fields]")
    struct = functions[_index(index, functions, s.Struct)].syntax
    read = listed(parts, lambda part: _global(part, functions, depth))
    if len(read) != len(struct.fields):
        raise Misread(f"has {len(read)} of the {len(struct.fields)} fields of '{struct.name}'")
    return index, read


def _constant(data: object, functions: tuple[SourceFunction, ...], depth: int) -> Any:
    if type(data) is list:
        return each(data, lambda item: _global(item, functions, depth))
    return TreeReader(0).node(["Constant", [1, 1, 1, 1], data], (s.Constant,)).value


def _class(data: object, functions: tuple[SourceFunction, ...], depth: int) -> tuple[str, tuple[tuple[str, Any], ...]]:
    called, members = _pair(data, "[name, members]")

    def member(item: object) -> tuple[str, GlobalEntry]:
        own, entry = _pair(item, "[name, entry]")
        return identifier(own), _global(entry, functions, depth)

    entries = listed(members, member)
    if len({own for own, _ in entries}) != len(entries):
        raise Misread("has two members of one name")
    return identifier(called), entries


_ENTRIES: Mapping[str, Any] = {
    "function": lambda data, functions, depth: _index(data, functions, s.Function),
    "classmethod": lambda data, functions, depth: _index(data, functions, s.Function),
    "library": lambda data, functions, depth: _library(data, functions),
    "struct": lambda data, functions, depth: _index(data, functions, s.Struct),
    "instance": _instance,
    "stub": lambda data, functions, depth: one_of(
        data, (n for n, f in STUBS.items() if f.kind not in ("library", "written"))
    ),
    "dtype": lambda data, functions, depth: _dtype(data),
    "type": lambda data, functions, depth: _type(data),
    "typevar": lambda data, functions, depth: identifier(data),
    "constant": _constant,
    "marker": lambda data, functions, depth: one_of(data, MARKERS),
    "class": _class,
}


class _Names:
    """Walks a function with the names that are bound around each place; what it finds wrong is a `Misread`."""

    def __init__(self, given: set[str]) -> None:
        self.scopes: list[set[str]] = [given]
        self.loops = 0

    def top(self, node: s.Function | s.Struct) -> None:
        if isinstance(node, s.Function):
            self.function(node)
        else:
            self.parts(node)

    def visit(self, node: s.SyntaxNode) -> None:
        match node:
            case s.Name(id=called):
                if not any(called in scope for scope in self.scopes):
                    raise Misread(f"is a name that nothing around it binds: {called!r}")
            case s.Function():
                self.function(node)
            case s.Lambda():
                self.parts(node, skip="body")
                self.scopes.append({p.name for p in node.params})
                self.parts(node, only="body")
                self.scopes.pop()
            case s.Generator():
                self.generator(node)
            case s.For() | s.While():
                self.parts(node, skip="body")
                self.loops += 1
                self.parts(node, only="body")
                self.loops -= 1
            case s.Break() | s.Continue():
                if not self.loops:
                    raise Misread(f"is a {type(node).__name__.lower()} outside of loops")
            case _:
                self.parts(node)

    def function(self, node: s.Function) -> None:
        self.parts(node, skip="body")
        loops, self.loops = self.loops, 0
        self.scopes.append({p.name for p in node.params} | set(s.assigned_names(node.body)))
        self.parts(node, only="body")
        self.scopes.pop()
        self.loops = loops

    def generator(self, node: s.Generator) -> None:
        """All names of its clauses are bound within it; the first iterable stands outside."""
        names = {n.id for clause in node.clauses for n in s.walk(clause.target) if isinstance(n, s.Name)}
        self.visit(node.clauses[0].iterable)
        self.scopes.append(names)
        for number, clause in enumerate(node.clauses):
            for part in (*(() if number == 0 else (clause.iterable,)), *clause.tests):
                self.visit(part)
        self.visit(node.item)
        self.scopes.pop()

    def parts(self, node: s.SyntaxNode, skip: str = "", only: str = "") -> None:
        for called in node._fields:
            value = getattr(node, called)
            if called == skip or (only and called != only):
                continue
            for number, item in enumerate(value) if isinstance(value, tuple) else [(-1, value)]:
                if isinstance(item, s.SyntaxNode):
                    try:
                        self.visit(item)
                    except Misread as wrong:
                        if number >= 0:
                            wrong.below(f"[{number}]")
                        raise wrong.below(f".{called}") from None
