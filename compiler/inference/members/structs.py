"""Structs in kernels: constructors, fields, methods and calls.

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
from ..calls.arguments import argument_node, matched
from ..calls.declarations import declared, of_python_type
from ..calls.inlining import inline
from ..calls.struct_methods import bound_frame, invoke, method_of
from ..evaluator import Call, Evaluator, callable_
from ..values.compile_time import Bound, Closure, Frame, StructType, StructValue, is_comptime_number
from ..values.describe import describe
from .table import ATTRIBUTES


@callable_(StructType)
def construct(call: Call, type: StructType, args: list[Any], keywords: dict[str, Any]) -> StructValue:
    """`Complex(re, im)`: fields by position or name, as their annotations want them."""
    evaluator, node, frame = call.evaluator, call.node, call.frame
    fields = type.syntax.fields
    home = replace(type.frame, env={}, typevars={})
    given = matched(evaluator, type.name, type.syntax, args, keywords, home, node, frame)
    # Run-time values say what the type variables are; numbers adopt it, wherever they stand.
    ranked = sorted(range(len(fields)), key=lambda k: _is_open(given[fields[k].name]))
    parts: dict[int, Any] = {}
    for k in ranked:
        at = argument_node(node, fields[k], fields)
        parts[k] = as_field(evaluator, type, k, given[fields[k].name], home, at, frame)
    return StructValue(type, tuple(parts[k] for k in range(len(fields))))


def _is_open(value: Any) -> bool:
    return is_comptime_number(value) or (isinstance(value, Value) and value.weak is not None)


def as_field(
    evaluator: Evaluator, type: StructType, number: int, value: Any, home: Frame, node: s.Node, frame: Frame
) -> Any:
    """A value as a field's annotation wants it."""
    field = type.syntax.fields[number]
    what = f"field '{field.name}' of '{type.name}' is declared as"
    if field.annotation is None or of_python_type(evaluator, field.annotation, value, home, node, frame, what):
        return value
    return declared(evaluator, field.annotation, value, home, node, frame, what)


def with_field(
    evaluator: Evaluator, owner: Any, node: s.Attribute, value: Any, source: s.Node, frame: Frame
) -> StructValue:
    """The struct that differs from `owner` in one field."""
    if not isinstance(owner, StructValue):
        hint = "tensors and their elements are stored to with x[i] = value" if hasattr(owner, "dims") else None
        text = f"{describe(owner)} has no field '{node.name}' to assign"
        raise evaluator.error("EK0122", text, node, frame, hint=hint)
    number = owner.part(node.name)
    if number is None:
        names = [field.name for field in owner.type.syntax.fields]
        text = f"'{owner.type.name}' has no field '{node.name}'"
        raise evaluator.error("EK0122", text, node, frame, hint=did_you_mean(node.name, names))
    new = as_field(evaluator, owner.type, number, value, bound_frame(owner), source, frame)
    old = owner.parts[number]
    if isinstance(old, Value) and isinstance(new, Value) and not (old.weak or new.weak) and old.type != new.type:
        raise evaluator.error(
            "EK0203",
            f"field '{node.name}' is {old.type} and cannot become {new.type}",
            node,
            frame,
            expected=str(old.type),
            got=str(new.type),
            hint=f"cast the value to {old.type.dtype}",
        )
    return StructValue(owner.type, (*owner.parts[:number], new, *owner.parts[number + 1 :]))


# *** attributes ***


def value_attribute(evaluator: Evaluator, owner: StructValue, node: s.Attribute, frame: Frame) -> Any:
    number = owner.part(node.name)
    return owner.parts[number] if number is not None else _member(evaluator, owner, owner.type, node, frame)


def type_attribute(evaluator: Evaluator, owner: StructType, node: s.Attribute, frame: Frame) -> Any:
    return _member(evaluator, owner, owner, node, frame)


def _member(evaluator: Evaluator, owner: Any, type: StructType, node: s.Attribute, frame: Frame) -> Any:
    """A method or a constant, of a struct or of its class."""
    method = method_of(type, node.name)
    if method is None:
        for constant in type.syntax.constants:
            if constant.name == node.name:
                return evaluator.expr(constant.value, type.frame)
        known = [field.name for field in type.syntax.fields] + [part.name for part in type.syntax.constants]
        known += [m.function.name for m in type.syntax.methods]
        hint = did_you_mean(node.name, known) or f"it has {', '.join(known)}"
        raise evaluator.error("EK0113", f"{describe(owner)} has no attribute '{node.name}'", node, frame, hint=hint)
    is_value = isinstance(owner, StructValue)
    if method.kind == "property" and is_value:
        return invoke(evaluator, owner, method, [], node, frame)
    first = [owner] if method.kind == "method" and is_value else [type] if method.kind == "class" else []
    closure = Closure(method.function, bound_frame(owner))

    def called(call: Call, *args: Any, **keywords: Any) -> Any:
        at = call.node
        if first and isinstance(at, s.Call):  # so that every argument is shown where it stands
            at = s.Call(at.function, (at.function, *at.arguments), at.keywords, span=at.span)
        return inline(call.evaluator, closure, [*first, *args], keywords, at, call.frame)

    return Bound(owner, node.name, called)


@callable_(StructValue)
def call_value(call: Call, owner: StructValue, args: list[Any], keywords: dict[str, Any]) -> Any:
    """`p(...)`, which `__call__` answers."""
    evaluator, node, frame = call.evaluator, call.node, call.frame
    assert isinstance(node, s.Call)
    if method_of(owner.type, "__call__") is None:
        hint = f"define __call__ in the struct '{owner.type.name}'"
        raise evaluator.error("EK0207", f"{describe(owner)} cannot be called", node.function, frame, hint=hint)
    member = s.Attribute(node.function, "__call__", span=node.span)
    return dispatch.call(evaluator, _member(evaluator, owner, owner.type, member, frame), args, keywords, node, frame)


ATTRIBUTES[StructValue] = value_attribute
ATTRIBUTES[StructType] = type_attribute
