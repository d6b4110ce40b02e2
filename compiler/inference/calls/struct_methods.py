"""Calls what structs define for themselves: operators, comparisons, and calls such as `abs(p)`.

An operator looks up the method in its left operand's struct, then the reflected one in its right operand's. Structs
that define no equality are equal when all their fields are.

See also `structs` (constructors and attributes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....dsl.frontend import syntax as s
from ...ir.program import Value
from ..evaluator import Evaluator, Point
from ..operator_methods import COMPARISONS, OPERATORS
from ..values.aggregates import is_number, same_constant
from ..values.compile_time import Closure, Frame, StructType, StructValue
from .declarations import typevar_in
from .inlining import inline

CALLS = {name: f"__{name}__" for name in ("abs", "len", "bool", "int", "float", "round", "floor", "ceil", "trunc")}


def method_of(type: StructType, name: str) -> s.Method | None:
    """The method of this name in the text of a struct."""
    return next((m for m in type.syntax.methods if m.function.name == name), None)


def bound_frame(owner: Any) -> Frame:
    """Where a method of a struct, or of a struct's class, is evaluated: its type variables are those of the fields."""
    type = owner.type if isinstance(owner, StructValue) else owner
    typevars = dict(type.frame.typevars)
    names = [f.annotation and typevar_in(f.annotation, type.frame) for f in type.syntax.fields]
    for name in filter(None, names):
        typevars.pop(name, None)  # the kernel's variable of this name is another one
    if isinstance(owner, StructValue):
        for name, part in zip(names, owner.parts, strict=True):
            if name is not None and isinstance(part, Value) and part.weak is None:
                typevars[name] = part.dtype
    return replace(type.frame, env={}, typevars=typevars)


def invoke(here: Point, owner: object, method: s.Method, args: list[Any]) -> Any:
    """Calls a method of a struct; `args` are those after self."""
    return inline(here, Closure(method.function, bound_frame(owner)), [owner, *args], {})


def special(here: Point, owner: object, name: str, args: list[Any]) -> Any:
    """Calls a method with a name of Python's, such as `__call__`; NotImplemented where the struct has none."""
    if not isinstance(owner, StructValue):
        return NotImplemented
    method = method_of(owner.type, name)
    return NotImplemented if method is None else invoke(here, owner, method, args)


def operate(here: Point, op: str, a: object, b: object) -> Any:
    """`a op b` where one of them is a struct; NotImplemented where neither defines it."""
    name = OPERATORS.get(op, op)
    result = special(here, a, f"__{name}__", [b])
    return result if result is not NotImplemented else special(here, b, f"__r{name}__", [a])


def compare(here: Point, op: str, a: object, b: object, parts_equal: Callable[[Any, Any], Any]) -> Any:
    """`a < b` and similar ones; `parts_equal` compares two fields."""
    result = special(here, a, f"__{op}__", [b])
    if result is NotImplemented:
        result = special(here, b, f"__{COMPARISONS[op]}__", [a])
    if result is NotImplemented and op == "ne":
        equal = compare(here, "eq", a, b, parts_equal)
        if equal is NotImplemented:
            return NotImplemented
        return here.builder.row("not_", [equal]) if isinstance(equal, Value) else not equal
    if result is NotImplemented and op == "eq":
        return _equal(here.evaluator, a, b, parts_equal)
    return result


def _equal(evaluator: Evaluator, a: object, b: object, parts_equal: Callable[[object, object], object]) -> Any:
    """Whether two of the same struct are equal, field by field."""
    if not (isinstance(a, StructValue) and isinstance(b, StructValue) and a.type == b.type):
        return NotImplemented
    return _all_equal(evaluator, a.parts, b.parts, parts_equal)


def _all_equal(
    evaluator: Evaluator, a: tuple[object, ...], b: tuple[object, ...], parts_equal: Callable[[object, object], object]
) -> Any:
    result: Any = True
    for x, y in zip(a, b, strict=True):
        if isinstance(x, tuple) and isinstance(y, tuple) and len(x) == len(y):
            same = _all_equal(evaluator, x, y, parts_equal)
        elif isinstance(x, StructValue) or (is_number(x) and is_number(y)):
            same = parts_equal(x, y)
        else:
            same = same_constant(x, y)
        if isinstance(result, Value) and isinstance(same, Value):
            result = evaluator.builder.row("and_", [result, same])
        elif result is True or same is False:
            result = same
    return result


def own_call(here: Point, name: str, args: list[Any]) -> Any:
    """`abs(p)`, `p ** n` and similar ones where p is a struct that defines them; else NotImplemented."""
    if name == "pow" and len(args) == 2:
        return operate(here, "pow", args[0], args[1])
    if name in CALLS and len(args) == 1:
        return special(here, args[0], CALLS[name], [])
    return NotImplemented
