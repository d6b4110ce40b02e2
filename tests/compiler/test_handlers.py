"""The tables of the evaluator are whole: each has all that it is requested, and each file that fills one is listed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from einkorn.compiler import inference
from einkorn.compiler.inference import evaluator, handlers
from einkorn.compiler.inference.values import compile_time
from einkorn.dsl.frontend import syntax

ROOM = Path(str(inference.__file__)).parent
DECORATORS = {"expression", "statement", "rule", "named_value", "callable_", "member", "method"}
ANNOTATIONS = {syntax.Kind, syntax.OneOf, syntax.TupleOf}  # stand in the heads of functions alone
NO_STATEMENT = {syntax.Struct}  # a declaration of its file


def kinds(base: type) -> set[type]:
    """The classes of nodes of the syntax tree that derive from one."""
    return {c for c in vars(syntax).values() if isinstance(c, type) and issubclass(c, base) and c is not base}


def test_every_kind_of_node_has_a_handler() -> None:
    assert kinds(syntax.Expr) - ANNOTATIONS == evaluator.EXPRESSIONS.keys()
    assert kinds(syntax.Stmt) - NO_STATEMENT <= evaluator.STATEMENTS.keys()


def registers(file: Path) -> bool:
    """Whether a file registers something with the evaluator."""
    calls = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id in DECORATORS for call in calls)


@pytest.mark.parametrize("room", ["language", "members", "syntax"])
def test_every_file_that_registers_is_listed(room: str) -> None:
    files = {file.stem for file in (ROOM / room).glob("*.py") if registers(file)} - {"table"}
    modules = (getattr(handlers, name).__name__.split(".") for name in handlers.__all__)
    assert files == {parts[-1] for parts in modules if parts[-2] == room}


def test_everything_that_is_called_is_in_the_table_of_callables() -> None:
    named = {compile_time.Closure, compile_time.StubRef, compile_time.LibraryRef, compile_time.Bound}
    assert named | {compile_time.StructType, compile_time.StructValue} <= evaluator.CALLABLES.keys()
