"""Finds attributes and methods by the class of their owner and their name, in one table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from ....dsl.diagnostics.errors import did_you_mean
from ....dsl.frontend import syntax as s
from ....dsl.language import foreign_names
from ....dsl.types.dtype import DType
from ...ir.program import PointerType, Value
from ..calls.arguments import bind_signature
from ..calls.inlining import inline
from ..evaluator import Point
from ..names import ClassMethod
from ..spelling import source_of
from ..values.compile_time import Bound, ClassValue, is_comptime_number
from ..values.describe import describe
from ..values.index import BodyIndex
from ..values.tensors import KernelTensor

Member = Callable[[Point, Any], Any]

# Classes of values that find all of their attributes themselves: `f(here, owner, name)`.
ATTRIBUTES: dict[type, Callable[[Point, Any, str], Any]] = {}
MEMBERS: dict[tuple[type, str], Member] = {}


def member(owner: type, name: str) -> Callable[[Member], Member]:
    """Registers an attribute of a class of values."""

    def add(function: Member) -> Member:
        MEMBERS[owner, name] = function
        return function

    return add


def item(owner: type) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Registers what `owner[index]` is: `f(call, owner, index)`."""

    def add(function: Callable[..., object]) -> Callable[..., object]:
        MEMBERS[owner, "__getitem__"] = lambda here, value: partial(function, here, value)
        return function

    return add


def method(owner: type, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a method of a class of values: `f(call, owner, *args, **keywords)`."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        whole = inspect.signature(function)
        signature = whole.replace(parameters=list(whole.parameters.values())[2:])

        def bind(here: Point, value: Any) -> Bound:
            def invoke(call: Point, *args: object, **keywords: object) -> Any:
                bind_signature(call, name, signature, list(args), keywords)
                return function(call, value, *args, **keywords)

            return Bound(value, name, invoke)

        MEMBERS[owner, name] = bind
        return function

    return add


def attribute(here: Point, owner: object, node: s.Attribute) -> Any:
    """`owner.name`."""
    if isinstance(owner, ClassValue) and node.name in owner.members:
        return of_class(owner, node.name)
    if type(owner) in ATTRIBUTES:
        return ATTRIBUTES[type(owner)](here, owner, node.name)
    is_pointer = isinstance(owner, Value) and isinstance(owner.type, PointerType)
    kinds = (PointerType,) if is_pointer else type(owner).__mro__
    for cls in kinds:
        entry = MEMBERS.get((cls, node.name))
        if entry is not None:
            here.locate()
            return entry(here, owner)
    known = sorted({name for cls, name in MEMBERS if cls in kinds})
    if isinstance(owner, ClassValue):
        known = sorted(owner.members)
    hint = did_you_mean(node.name, known) or (f"it has {listed(known)}" if known else None)
    if is_comptime_number(owner) and (Value, node.name) in MEMBERS:
        hint = "a compile-time number takes the type of its partner; Float32(...) makes a run-time value of it"
    elif isinstance(owner, KernelTensor):
        text = source_of(node.value, here.frame)
        if (Value, node.name) in MEMBERS:
            hint = f"work on elements: {text}[i].{node.name} in the body of a foreach"
        hint = foreign_names.of_tensor(node.name, text) or hint
    elif isinstance(owner, Value) and not is_pointer:
        hint = foreign_names.of_value(node.name, source_of(node.value, here.frame)) or hint
    elif isinstance(owner, DType) and node.name in ("inf", "nan"):
        hint = f"from math import {node.name}; then {owner}({node.name})"
    elif isinstance(owner, str) and node.name == "format":
        hint = 'write an f-string: f"{x}", or f"{x:.3f}"'
    elif isinstance(owner, BodyIndex):
        hint = "take a component of the index: `i[0]`, or unpack it: `y, x = i`"
    raise here.error("EK0113", f"{describe(owner)} has no attribute '{node.name}'", hint=hint)


def listed(names: list[str], most: int = 8) -> str:
    """Names for a hint; of many, the first ones."""
    first = ", ".join(names[:most])
    return first if len(names) <= most else f"{first}, …"


def of_class(owner: ClassValue, name: str) -> Any:
    """A member of a class; a class method waits for its call with the class in hand."""
    result = owner.members[name]
    if not isinstance(result, ClassMethod):
        return result
    closure = result.closure

    def invoke(call: Point, *args: object, **keywords: object) -> Any:
        return inline(call, closure, [owner, *args], keywords)

    return Bound(owner, name, invoke)
