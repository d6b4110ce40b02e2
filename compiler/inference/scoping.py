"""Decides which variables a nested function sees: Python's scoping.

What a function assigns anywhere in its text is a variable of its own, without a value until then; a variable of the
same name around it stays as it is. Everything else around it is seen as it was when the function was made.

See also `inference.calls.declarations` (arguments).
"""

from __future__ import annotations

from typing import Any

from ...dsl.diagnostics.errors import CompileError
from ...dsl.diagnostics.places import Label, Place, is_shipped
from ...dsl.frontend import syntax as s
from ..ir.program import Location
from .evaluator import Evaluator, Point
from .values.compile_time import Closure, Frame, Poisoned, Undefined

LOOPS = ("foreach", "parallel_for", "parallel_chunks", "vectorize", "tile", "rare")
REDUCERS = {"add": "Sum", "sub": "Sum", "mul": "Product", "max": "Max", "min": "Min"}


def own_names(function: s.Function | s.Lambda) -> frozenset[str]:
    """The variables that Python makes local to a function, its parameters aside."""
    if isinstance(function, s.Lambda):
        return frozenset()
    assigned = s.assigned_names(function.body) if function.body else []
    return frozenset(assigned) - {param.name for param in function.params}


def is_own_name(name: str, frame: Frame) -> bool:
    """Whether a variable belongs to the function that a frame runs, and to none around it."""
    function: Any = frame.stack[-1]
    return any(param.name == name for param in function.params) or name in own_names(function)


def hide_outer_variables(here: Point, closure: Closure, inner: Frame) -> None:
    """Takes those variables out of a frame that begins which are the function's own."""
    function = closure.function
    if not inner.env or not isinstance(function, s.Function):
        return
    known = here.evaluator.own_names.get(id(function))
    if known is None:
        known = here.evaluator.own_names[id(function)] = (function, own_names(function))
    for name in known[1] & inner.env.keys():
        around = inner.env[name]
        inner.env.pop(name)
        origin = inner.origins.pop(name, None)
        if not isinstance(around, Undefined | Poisoned) and name != function.name:
            inner.env[name] = Undefined(
                lambda place, name=name, origin=origin: _unbound(  # type: ignore[misc]
                    here.evaluator, name, origin, closure, inner, _loop_of(here.node, here.frame), place
                )
            )


def _loop_of(node: s.SyntaxNode, frame: Frame) -> str | None:
    """The loop that calls a function: of the language, or of its library."""
    if is_shipped(frame.file):
        step: Location | None = frame.location(node)
        while step is not None and step.caller is not None and is_shipped(step.caller.place.file):
            step = step.caller
        return step.function if step is not None else None
    if not isinstance(node, s.Call) or not isinstance(node.function, s.Global):
        return None
    entry = frame.program.globals[node.function.index]
    return entry.value if entry.kind == "stub" and entry.value in LOOPS else None


def _unbound(
    evaluator: Evaluator,
    name: str,
    origin: Place | None,
    closure: Closure,
    inner: Frame,
    loop: str | None,
    place: Place,
) -> CompileError:
    """A variable of a function is read before it has a value, and there is one of that name around it."""
    function = closure.function
    assert isinstance(function, s.Function)
    stores = [node for node in s.walk(function) if isinstance(node, s.Assign | s.AugAssign) and _gives(node, name)]
    at = stores[0] if stores else function
    made = evaluator.error(
        "EK0125",
        f"'{name}' has no value yet: '{closure.name}' assigns to it, so it is a variable of '{closure.name}' alone",
        at,
        inner,
        notes=[f"the '{name}' around it, which stays as it is, is at {origin}"] if origin is not None else [],
        hint=_hint(name, at, loop),
    )
    made.place, made.labels = place, (Label(place, "read here"),)
    return made


def _gives(node: s.Assign | s.AugAssign, name: str) -> bool:
    return any(isinstance(part, s.Name) and part.id == name for part in s.walk(node.target))


def _hint(name: str, node: s.SyntaxNode, loop: str | None) -> str:
    if loop is None:
        return f"pass it as an argument and return the new value: `{name} = ...` where the function is called"
    monoid = REDUCERS.get(_operation(name, node) or "")
    if monoid is None:
        return f"rounds of {loop} share no variable: store into a tensor, or write a plain `for` loop"
    atomic = {"Sum": "`atomic.add` into a tensor, ", "Max": "`atomic.max` into a tensor, "}
    atomic["Min"] = atomic["Max"].replace("max", "min")
    return (
        f"rounds of {loop} share no variable: take `reduce(x, {monoid})` of einkorn.stdlib, "
        f"{atomic.get(monoid, '')}or a plain `for` loop"
    )


def _operation(name: str, node: s.SyntaxNode) -> str | None:
    """How an assignment makes the new value of a variable of the old one: `add`, `max`, …"""
    if isinstance(node, s.AugAssign):
        return node.op
    value = node.value if isinstance(node, s.Assign) else None
    operands: tuple[s.Expr, ...] = ()
    operation = None
    if isinstance(value, s.Binary):
        operation, operands = value.op, (value.left, value.right)
    elif isinstance(value, s.Call) and isinstance(value.function, s.Global):
        operation, operands = value.function.name, value.arguments
    return operation if any(isinstance(part, s.Name) and part.id == name for part in operands) else None
