"""Parses a class under `@struct`: its fields, methods, constants."""

from __future__ import annotations

import ast
import dataclasses
from types import CodeType, FunctionType
from typing import Any

from ...diagnostics.collecting import BROKEN
from ...diagnostics.definitions import first_line, is_checked, pieces
from ...diagnostics.errors import CompileError, EinkornError
from ...diagnostics.places import Place
from ...diagnostics.text import believe, file_of
from ...language.structs import INFO, StructInfo
from .. import syntax as s
from ..reads import Reads
from .expressions import Resolve
from .names import AlreadyReported
from .statements import AGAIN, Parser, where_to_define

_KINDS = {"staticmethod": "static", "classmethod": "class", "property": "property"}


def parse_struct(cls: type, resolve: Resolve, reads: Reads) -> tuple[s.Struct | None, list[EinkornError]]:
    """The syntax tree of a struct, None where no value of it can be made, and the mistakes in its text.

    Raises:
        CompileError: its source is not at hand.
    """
    info: StructInfo = getattr(cls, INFO)
    node = _find(cls, info)
    parser = Parser(text_file(cls), info.names, {}, resolve, reads)
    reader = _StructReader(cls, parser)
    sound = True
    for part in node.body:
        try:
            reader.part(part)
        except CompileError as error:
            parser.note(error)
            sound = False
        except AlreadyReported as reported:
            parser.note(reported.error)
            sound = False
    parts = (tuple(reader.fields), tuple(reader.methods), tuple(reader.constants))
    return s.Struct(cls.__name__, *parts, span=parser.span(node)) if sound else None, parser.errors


def text_file(cls: type) -> str:
    """The name under which messages show the text of a struct that was found."""
    return file_of(cls, getattr(cls, INFO).file)


def _find(cls: type, info: StructInfo) -> ast.ClassDef:
    changed = False
    for piece in pieces(info.file, info.names, info.line, cls.__name__):
        for node in piece.nodes:
            if not isinstance(node, ast.ClassDef) or node.name != cls.__name__:
                continue
            if first_line(node) <= info.line <= node.lineno:
                if not is_checked(info.names) or piece.makes(*_codes(cls, info)):
                    believe(cls, info.file, piece.text, info.names)
                    return node
                changed = True
    what = f"the text of '{cls.__name__}' has changed since it was run"
    missing = f"the source of '{cls.__name__}' is not at hand"
    hint = where_to_define("structs", info.file)
    raise CompileError(
        what if changed else missing,
        code="EK0104",
        place=Place(info.file, info.line),
        hint=AGAIN if changed else hint,
    )


def _codes(cls: type, info: StructInfo) -> list[CodeType]:
    """The codes of a struct's methods, as far as they come from its text."""
    members = [getattr(member, "__func__", getattr(member, "fget", member)) for member in vars(cls).values()]
    codes = [member.__code__ for member in members if isinstance(member, FunctionType)]
    return [code for code in codes if code.co_filename == info.file]


class _StructReader:
    """Collects what the body of a struct defines."""

    def __init__(self, cls: type, parser: Parser) -> None:
        self.cls = cls
        self.parser = parser
        self.defaults = {field.name: field.default for field in dataclasses.fields(cls)}
        self.fields: list[s.Param] = []
        self.methods: list[s.Method] = []
        self.constants: list[s.Keyword] = []

    def part(self, node: ast.stmt) -> None:
        """One statement of the class."""
        match node:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return
            case ast.AnnAssign(target=ast.Name(id=name)) if name in self.defaults:
                self.field(name, node)
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                self.constants.append(s.Keyword(name, self.value(name, getattr(self.cls, name, None), node)))
            case ast.FunctionDef():
                self.method(node)
            case _:
                raise self.parser.refuse(node, "this statement in a struct", "a struct has fields, constants, methods")

    def field(self, name: str, node: ast.AnnAssign) -> None:
        default = None
        if node.value is not None:
            result = self.defaults[name]
            if result is dataclasses.MISSING:
                raise self.parser.refuse(node.value, "dataclasses.field", "write the default itself")
            default = self.value(name, result, node.value)
        annotation = self.parser.annotation(node.annotation)
        self.fields.append(s.Param(name, default, False, annotation, span=self.parser.span(node)))

    def value(self, name: str, value: object, node: ast.AST) -> s.Expr:
        """What a default or a constant was when the class was made."""
        return self.parser.constant(value, f"{self.cls.__name__}.{name}", node)

    def method(self, node: ast.FunctionDef) -> None:
        kind = "method"
        broken = self.parser.names.get(BROKEN, {})
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Name) and decorator.id in broken:
                raise AlreadyReported(broken[decorator.id])
            if not isinstance(decorator, ast.Name) or decorator.id not in _KINDS or len(node.decorator_list) > 1:
                hint = "methods may be under @staticmethod, @classmethod or @property"
                raise self.parser.refuse(decorator, "this decorator of a method", hint)
            kind = _KINDS[decorator.id]
        entry: Any = self.cls.__dict__.get(node.name)
        plain = getattr(entry, "fget", None) or getattr(entry, "__func__", entry)
        if not isinstance(plain, FunctionType) or plain.__code__.co_firstlineno > node.body[-1].lineno:
            return  # defined again below, or generated
        function = self.parser.function(node, [])
        if function is None:
            raise AlreadyReported
        self.methods.append(s.Method(function, kind, span=self.parser.span(node)))
