"""Evaluates functions of the author's where they are called.

A function with loops, or one that calls itself, is computed at compile time if all that it is given is known (see
`calls.folding`). Every other call becomes the operations of the function's body.

See also `calls.arguments` (how arguments are bound).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ....dsl.diagnostics.places import is_shipped
from ....dsl.frontend import syntax
from ..budget import AT_A_STEP, CALL, copying
from ..debug_values import note_arguments
from ..evaluator import Point, callable_
from ..recovery import Cascade
from ..scoping import hide_outer_variables
from ..values.compile_time import Closure, Frame, Poisoned
from ..values.flow import ABSENT, Flow, NeverReturns
from .arguments import bind_params
from .folding import UNKNOWN, attempt, has_loops, is_known

MAX_DEPTH = 64
OF_SEVERAL = ("_gcd", "_lcm")  # functions of the library that combine two numbers, and take any number of them


@callable_(Closure)
def call_closure(call: Point, closure: Closure, args: list[Any], keywords: dict[str, Any]) -> Any:
    if closure.name in OF_SEVERAL and not keywords and is_shipped(closure.frame.file):
        if len(args) == 1:
            args = [*args, *args]
        while len(args) > 2:
            args = [inline(call, closure, args[:2], {}), *args[2:]]
    if call.evaluator.batch is not None:
        value = call.evaluator.batch.call(call, closure, args, keywords)
        if value is not UNKNOWN:
            return value
    return inline(call, closure, args, keywords)


def inline(here: Point, closure: Closure, args: list[Any], keywords: dict[str, Any]) -> Any:
    """Evaluates a function of the author's at this point."""
    function = closure.function
    recursive = here.frame.runs(closure.function)
    if len(here.frame.stack) > MAX_DEPTH:
        code = "EK0124" if here.evaluator.folding else "EK0108"
        raise here.error(code, f"calls are nested more than {MAX_DEPTH} deep")
    here.builder.steps += copying((*args, *keywords.values()))
    work = partial(_inlined, here, closure, args, keywords)
    if not here.evaluator.folding and (recursive or has_loops(function)) and is_known((*args, *keywords.values())):
        value = attempt(here.evaluator, work, again=not recursive)
        if value is not UNKNOWN:
            return value
    if recursive and not here.evaluator.folding:
        raise here.error(
            "EK0108",
            f"'{closure.name}' calls itself",
            label="recursion",
            hint="write a loop instead; only calls with compile-time values alone may be recursive",
        )
    return work()


def _inlined(here: Point, closure: Closure, args: list[Any], keywords: dict[str, Any]) -> Any:
    """The body of a function of the author's, in a frame of its own."""
    function, home = closure.function, closure.frame
    here.builder.steps += CALL + len(home.env) // AT_A_STEP
    inner = Frame(
        env=dict(home.env),
        program=home.program,
        file=home.file,
        typevars=dict(home.typevars),
        caller=here.frame.location(here.node),
        path=(*here.frame.path, id(here.node)),
        stack=(*here.frame.stack, function),
        origins=dict(home.origins),
    )
    hide_outer_variables(here, closure, inner)
    fits = bind_params(here, closure, args, keywords, inner)
    inner.given = tuple((p.name, inner.env[p.name]) for p in function.params)
    note_arguments(here.within(inner), closure)
    if isinstance(function, syntax.Lambda):
        try:
            value = here.evaluator.expr(function.body, inner)
        except NeverReturns:
            value = ABSENT
    else:
        value = _returned(here.within(inner), here.evaluator.block(function.body, inner, "function"), function)
    here.locate()
    if isinstance(value, Poisoned) or not fits:
        raise Cascade
    return value


def _returned(here: Point, flow: Flow, function: syntax.Function) -> Any:
    """What a function gives that ended in this way; ABSENT after a `raise`, which takes any type."""
    if not flow.kinds:
        return ABSENT
    value = None if flow.value is ABSENT else flow.value
    if flow.goes_on() and value is not None:
        raise here.on(function.body[-1]).error(
            "EK0109",
            f"'{function.name}' returns a value in some cases, and ends without one in others",
            hint="return a value at the end of the function, too",
        )
    return value
