"""Calls anything that can be called, by the one table of callables.

A call of which something is poisoned gives nothing, but functions of the author's that take part in it are evaluated,
so that all independent mistakes are found in one go.

Input: a callee and its arguments. Output: what the call gives. Non-goals: what each kind of callee does (the modules
that know it register that).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ...dsl.diagnostics.places import is_shipped
from ...dsl.frontend import syntax as s
from ...dsl.language.stubs import STUBS
from ...dsl.types.dtype import INT
from ..ir.program import Value
from .advice import uncallable
from .arithmetic import call_row
from .calls.arguments import bind_stub
from .calls.inlining import inline
from .calls.struct_methods import own_call
from .evaluator import CALLABLES, RULES, Call, Evaluator, callable_
from .recovery import Cascade
from .values.compile_time import (
    Bound,
    ClassValue,
    Closure,
    Frame,
    LibraryRef,
    LoopRange,
    Poisoned,
    StructValue,
    StubRef,
    is_poisoned,
)
from .values.describe import describe

Keywords = dict[str, Any]

GPU_IDS = [f"{what}.{axis}" for what in ("thread_idx", "block_idx", "block_dim", "grid_dim") for axis in "xyz"]


def call(evaluator: Evaluator, callee: Any, args: list[Any], keywords: Keywords, node: s.Call, frame: Frame) -> Any:
    """Calls anything that can be called; arguments are values."""
    if isinstance(callee, Poisoned) or is_poisoned((*args, *keywords.values())):
        return call_poisoned(evaluator, callee, args, keywords, node, frame)
    if any(isinstance(arg, StructValue) for arg in args) and isinstance(callee, LibraryRef | StubRef):
        own = own_call(evaluator, callee.name, args, node, frame)
        if own is not NotImplemented:
            return own
    handler = CALLABLES.get(type(callee))
    if handler is None:
        hint = uncallable(callee, node.function, frame)
        raise evaluator.error("EK0207", f"{describe(callee)} cannot be called", node.function, frame, hint=hint)
    return handler(Call(evaluator, node, frame), callee, args, keywords)


@callable_(Bound)
def call_bound(call: Call, callee: Bound, args: list[Any], keywords: Keywords) -> Any:
    return callee.call(call, *args, **keywords)


@callable_(StubRef)
def call_stub(call: Call, callee: StubRef, args: list[Any], keywords: Keywords) -> Any:
    """Calls a name of the language by its rule, or by its row."""
    name = callee.name
    if name in ("min", "max") and len(args) == 1 and not keywords:
        return RULES["smallest or largest"](call, name, args[0])
    if STUBS[name].folds and len(args) > 2:
        args = [_fold_left(call, name, args[:-1]), args[-1]]
    bound = bind_stub(call, name, args, keywords)
    function = RULES.get(name)
    if function is None:
        return call_row(call, name, list(bound.values()))
    return function(call, **bound)


def _fold_left(call: Call, name: str, args: list[Any]) -> Any:
    value = args[0]
    for other in args[1:]:
        value = call_row(call, name, [value, other])
    return value


def call_poisoned(
    evaluator: Evaluator, callee: Any, args: list[Any], keywords: dict[str, Any], node: s.Call, frame: Frame
) -> Any:
    """A call of which something is poisoned: functions of the author's are still looked into."""
    if is_own(callee) and not any(isinstance(argument, s.Starred) for argument in node.arguments):
        if frame.runs(callee.function):
            raise Cascade
        return inline(evaluator, callee, args, keywords, node, frame)
    look_into(evaluator, [callee, *args, *keywords.values()], node, frame)
    if callee == StubRef("range") and not evaluator.folding:
        return LoopRange(0, Value(INT), 1)
    raise Cascade


def is_own(value: Any) -> bool:
    """Whether a value is a function of the author's."""
    return isinstance(value, Closure) and not is_shipped(value.frame.file)


def look_into(evaluator: Evaluator, values: Iterable[Any], node: s.Node, frame: Frame) -> None:
    """Evaluates those functions of the author's among these values that nobody will call, for mistakes in them.

    Whether they would run in a launch is not known, so that they may do what only launched functions do.
    """
    launched = {"level": "device", "gpu_ids": {name: Value(INT) for name in GPU_IDS}}
    functions = [f for value in values for f in (value.members.values() if isinstance(value, ClassValue) else [value])]
    with evaluator.scope(**(launched if evaluator.level == "host" else {})):
        for value in functions:
            if is_own(value) and not frame.runs(value.function):
                unknown = {p.name: Poisoned(runtime=True) for p in value.function.params}
                evaluator.caught(partial(inline, evaluator, value, [], unknown, node, frame), node, frame)
