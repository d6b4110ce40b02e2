"""Constructs structs, and answers their fields, methods and calls.

A struct is a value with one value for each field; it lives in no memory. `p.x = v` gives the variable p a struct that
differs in one field.

Registers the class and its values in the tables of callables and of attributes. Operators are in
`inference.calls.struct_methods`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....dsl.diagnostics.errors import did_you_mean
from ....dsl.frontend import syntax as s
from ...ir.program import Value
from .. import dispatch
from ..calls.arguments import argument_node, match_arguments
from ..calls.declarations import as_declared, of_python_type
from ..calls.inlining import inline
from ..calls.struct_methods import bound_frame, invoke, method_of
from ..evaluator import Point, callable_
from ..values.compile_time import Bound, Closure, Frame, StructType, StructValue, is_comptime_number
from ..values.describe import describe
from ..widening import may_widen, widen
from .table import ATTRIBUTES


@callable_(StructType)
def construct(call: Point, type: StructType, args: list[Any], keywords: dict[str, Any]) -> StructValue:
    """`Complex(re, im)`: fields by position or name, as their annotations want them."""
    fields = type.syntax.fields
    home = replace(type.frame, env={}, typevars={})
    given = match_arguments(call, type.name, type.syntax, args, keywords, home)
    # Run-time values say what the type variables are; numbers adopt it, wherever they stand.
    ranked = sorted(range(len(fields)), key=lambda k: _is_open(given[fields[k].name]))
    parts: dict[int, Any] = {}
    for k in ranked:
        at = argument_node(call.node, fields[k], fields)
        parts[k] = as_field(call.on(at), type, k, given[fields[k].name], home)
    return StructValue(type, tuple(parts[k] for k in range(len(fields))))


def _is_open(value: object) -> bool:
    return is_comptime_number(value) or (isinstance(value, Value) and value.weak is not None)


def as_field(here: Point, type: StructType, number: int, value: object, home: Frame) -> Any:
    """A value as a field's annotation wants it."""
    field = type.syntax.fields[number]
    what = f"field '{field.name}' of '{type.name}' is declared as"
    if field.annotation is None or of_python_type(here, field.annotation, value, home, what):
        return value
    return as_declared(here, field.annotation, value, home, what)


def with_field(here: Point, owner: object, node: s.Attribute, value: object, source: s.SyntaxNode) -> StructValue:
    """The struct that differs from `owner` in one field."""
    if not isinstance(owner, StructValue):
        hint = "tensors and their elements are stored to with x[i] = value" if hasattr(owner, "dims") else None
        text = f"{describe(owner)} has no field '{node.name}' to assign"
        raise here.error("EK0122", text, hint=hint)
    number = owner.part(node.name)
    if number is None:
        names = [field.name for field in owner.type.syntax.fields]
        text = f"'{owner.type.name}' has no field '{node.name}'"
        raise here.error("EK0122", text, hint=did_you_mean(node.name, names))
    new = as_field(here.on(source), owner.type, number, value, bound_frame(owner))
    old = owner.parts[number]
    if isinstance(old, Value) and old.weak is None and may_widen(new, old.type):
        new = widen(here.on(source), new, old.dtype)
    if isinstance(old, Value) and isinstance(new, Value) and not (old.weak or new.weak) and old.type != new.type:
        raise here.error(
            "EK0203",
            f"field '{node.name}' is {old.type} and cannot become {new.type}",
            expected=str(old.type),
            got=str(new.type),
            hint=f"cast the value to {old.type.dtype}",
        )
    return StructValue(owner.type, (*owner.parts[:number], new, *owner.parts[number + 1 :]))


# *** attributes ***


def value_attribute(here: Point, owner: StructValue, name: str) -> Any:
    number = owner.part(name)
    return owner.parts[number] if number is not None else _member(here, owner, owner.type, name)


def type_attribute(here: Point, owner: StructType, name: str) -> Any:
    return _member(here, owner, owner, name)


def _member(here: Point, owner: StructValue | StructType, type: StructType, name: str) -> Any:
    """A method or a constant, of a struct or of its class."""
    method = method_of(type, name)
    if method is None:
        for constant in type.syntax.constants:
            if constant.name == name:
                return here.evaluator.expr(constant.value, type.frame)
        known = [field.name for field in type.syntax.fields] + [part.name for part in type.syntax.constants]
        known += [m.function.name for m in type.syntax.methods]
        hint = did_you_mean(name, known) or f"it has {', '.join(known)}"
        raise here.error("EK0113", f"{describe(owner)} has no attribute '{name}'", hint=hint)
    is_value = isinstance(owner, StructValue)
    if method.kind == "property" and is_value:
        return invoke(here, owner, method, [])
    first = [owner] if method.kind == "method" and is_value else [type] if method.kind == "class" else []
    closure = Closure(method.function, bound_frame(owner))

    def called(call: Point, *args: object, **keywords: object) -> Any:
        at = call.node
        if first and isinstance(at, s.Call):  # so that every argument is shown where it stands
            at = s.Call(at.function, (at.function, *at.arguments), at.keywords, span=at.span)
        return inline(call.on(at), closure, [*first, *args], keywords)

    return Bound(owner, name, called)


@callable_(StructValue)
def call_value(call: Point, owner: StructValue, args: list[Any], keywords: dict[str, Any]) -> Any:
    """`p(...)`, which `__call__` answers."""
    function = call.node.function if isinstance(call.node, s.Call) else call.node
    if method_of(owner.type, "__call__") is None:
        hint = f"define __call__ in the struct '{owner.type.name}'"
        raise call.on(function).error("EK0207", f"{describe(owner)} cannot be called", hint=hint)
    return dispatch.call(call, _member(call, owner, owner.type, "__call__"), args, keywords)


ATTRIBUTES[StructValue] = value_attribute
ATTRIBUTES[StructType] = type_attribute
