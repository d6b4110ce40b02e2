"""Calls anything that can be called, by the one table of callables.

A call of which something is poisoned gives nothing, but functions of the author's that take part in it are evaluated,
so that all independent mistakes are found in one go.
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
from .calls.arguments import bind_stub, check_number
from .calls.inlining import inline
from .calls.library import FAST, call_fast, takes_fast
from .calls.struct_methods import own_call
from .evaluator import CALLABLES, RULES, Point, callable_
from .recovery import Cascade
from .values.compile_time import (
    Bound,
    ClassValue,
    Closure,
    LibraryRef,
    LoopRange,
    Poisoned,
    StructValue,
    StubRef,
    is_comptime_number,
    is_poisoned,
)
from .values.describe import describe
from .values.launched import Launched
from .values.tiles import TileValue

Keywords = dict[str, Any]

ELEMENTWISE = ("select", "bitcast")  # those rules of the language that work on each element of a tile

GPU_IDS = [f"{what}.{axis}" for what in ("thread_idx", "block_idx", "block_dim", "grid_dim") for axis in "xyz"]


_NAMES = (LibraryRef, StubRef)


def call(here: Point, callee: Any, args: list[Any], keywords: Keywords) -> Any:
    """Calls anything that can be called; arguments are values."""
    if isinstance(callee, Poisoned) or is_poisoned((*args, *keywords.values())):
        return call_poisoned(here, callee, args, keywords)
    if isinstance(callee, _NAMES) and any(isinstance(arg, StructValue) for arg in args):
        own = own_call(here, callee.name, args)
        if own is not NotImplemented:
            return own
    if any(isinstance(arg, TileValue) for arg in args) and is_elementwise(callee):
        each = RULES["elementwise on tiles"]
        return each(here, lambda values: call(here, callee, values, keywords), args, callee.name)
    handler = CALLABLES.get(type(callee))
    if handler is None:
        function = here.node.function if isinstance(here.node, s.Call) else here.node
        hint = uncallable(callee, function, here.frame)
        raise here.on(function).error("EK0207", f"{describe(callee)} cannot be called", hint=hint)
    return handler(here.on(here.node), callee, args, keywords)


@callable_(Bound)
def call_bound(call: Point, callee: Bound, args: list[Any], keywords: Keywords) -> Any:
    return callee.call(call, *args, **keywords)


@callable_(StubRef)
def call_stub(call: Point, callee: StubRef, args: list[Any], keywords: Keywords) -> Any:
    """Calls a name of the language by its rule, or by its row."""
    name = callee.name
    if name in ("min", "max") and len(args) == 1 and not keywords:
        return RULES["smallest or largest"](call, name, args[0])
    if STUBS[name].folds and len(args) > 2:
        args = [_fold_left(call, name, args[:-1]), args[-1]]
    bound = bind_stub(call, name, args, keywords)
    function = RULES.get(name)
    if FAST in bound and takes_fast(call, name, bound) and not is_comptime_number(bound["x"]):
        check_number(call, name, bound["x"], "x")
        return call_fast(call, name, bound["x"])
    if function is None:
        return call_row(call, name, list(bound.values()))
    return function(call, **bound)


def _fold_left(call: Point, name: str, args: list[Any]) -> Any:
    value = args[0]
    for other in args[1:]:
        value = call_row(call, name, [value, other])
    return value


def is_elementwise(callee: object) -> bool:
    """Whether a name of the language works on single numbers, and so on each element of a tile."""
    if isinstance(callee, StubRef):
        return STUBS[callee.name].kind == "row" or callee.name in ELEMENTWISE
    return isinstance(callee, LibraryRef) and STUBS[callee.name].kind == "library"


def call_poisoned(here: Point, callee: Any, args: list[Any], keywords: Keywords) -> Any:
    """A call of which something is poisoned: functions of the author's are still looked into."""
    arguments = here.node.arguments if isinstance(here.node, s.Call) else ()
    if is_author_function(callee) and not any(isinstance(argument, s.Starred) for argument in arguments):
        if here.frame.runs(callee.function):
            raise Cascade
        return inline(here, callee, args, keywords)
    evaluate_uncalled(here, [callee, *args, *keywords.values()])
    if callee == StubRef("range") and not here.evaluator.folding:
        return LoopRange(0, Value(INT), 1)
    raise Cascade


def is_author_function(value: object) -> bool:
    """Whether a value is a function of the author's."""
    return isinstance(value, Closure) and not is_shipped(value.frame.file)


def evaluate_uncalled(here: Point, values: Iterable[Any]) -> None:
    """Evaluates those functions of the author's among these values that are never called, to find errors in them.

    Whether they would run in a launch is not known, so that they may do what only launched functions do.
    """
    launched = {
        "level": "device",
        "gpu_ids": {name: Value(INT) for name in GPU_IDS},
        "launched": Launched((1, 1, 1), (1, 1, 1), Value(INT)),
    }
    functions = [f for value in values for f in (value.members.values() if isinstance(value, ClassValue) else [value])]
    with here.evaluator.scope(**(launched if here.evaluator.level == "host" else {})):
        for value in functions:
            if is_author_function(value) and not here.frame.runs(value.function):
                unknown = {p.name: Poisoned(runtime=True) for p in value.function.params}
                here.recover(partial(inline, here, value, [], unknown))
