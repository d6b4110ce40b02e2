"""Passes the values of the author's variables to a debugger, statement by statement.

A `note` is an operation of the typed program that says so. Notes are made for the interpreter only; compiled code has
none, and they change no other operation.

See also `interpreter.translate` (what is done with it).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...dsl.frontend import syntax
from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Value
from ..ir.rules import Form
from .evaluator import Evaluator, Point
from .values.compile_time import Closure, StructValue
from .values.index import BodyIndex
from .values.tensors import Stored


def note(here: Point, variables: Mapping[str, object]) -> None:
    """Says what variables hold from `node` on; without variables, only that a statement begins there."""
    if not here.evaluator.debugging:
        return
    operands: list[Value] = []
    names: list[tuple[str, Form]] = []
    for name, value in variables.items():
        form = _form(here.evaluator, value, operands) if name.isidentifier() else None
        if form is not None:
            names.append((name, form))
    with here.builder.scope(location=here.frame.location(here.node)):
        here.builder.add("note", operands, names=tuple(names))


def note_arguments(here: Point, closure: Closure) -> None:
    """Says what a function that begins has: its arguments, and what it uses of the functions around it."""
    if not here.evaluator.debugging:
        return
    function = closure.function
    known = {param.name for param in function.params}
    known |= {node.id for node in syntax.walk(function) if isinstance(node, syntax.Name)}
    note(here.on(beginning(function)), {name: value for name, value in here.frame.env.items() if name in known})


def beginning(function: syntax.Function | syntax.Lambda) -> syntax.SyntaxNode:
    """Where a function begins to do something; a body may hold no more than a docstring."""
    if isinstance(function, syntax.Lambda):
        return function.body
    return function.body[0] if function.body else function


def _form(evaluator: Evaluator, value: object, operands: list[Value]) -> Form | None:
    def operand(one: Value) -> int:
        operands.append(one)
        return len(operands) - 1

    if isinstance(value, BodyIndex):
        value = value.components(evaluator.builder)
        value = value[0] if len(value) == 1 else value
    if isinstance(value, Value):
        return ("value", operand(value))
    if isinstance(value, tuple):
        forms = [_form(evaluator, item, operands) for item in value]
        return None if None in forms else ("tuple", tuple(forms))
    if isinstance(value, StructValue):
        forms = [_form(evaluator, part, operands) for part in value.parts]
        names = tuple(field.name for field in value.type.syntax.fields)
        return None if None in forms else ("struct", value.type.name, names, tuple(forms))
    if isinstance(value, Stored):
        return ("tensor", operand(value.pointer), tuple(operand(dim) for dim in value.dims))
    if value is None or isinstance(value, bool | int | float | complex | str | DType | SIMDType):
        return ("constant", value)
    return None
