"""Computes calls at compile time, where a function gets compile-time values and needs no others.

    def powers(base, n):                 powers(3, 4)  is the tuple (1, 3, 9, 27), also in the argument of stack[T](...)
        out = ()
        for k in range(n):               its loops and its recursion are Python's
            out = (*out, base**k)
        return out

The attempt ends where an operation of the running program would be needed; then the call is compiled like any other.

Mathematics that the library writes in the language (`exp(1.0)`) is computed by the interpreter, from what would be
compiled for float64: so folding gives the bits of running.

See also `arithmetic.fold` (operators).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from ....dsl.diagnostics.errors import CompileError
from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import DType, SIMDType
from ...interpreter.machine import Machine
from ...interpreter.pointers import InterpretedPointer, storage
from ...interpreter.translate import translate
from ...ir.builder import NotPure
from ...ir.program import PointerType, Program, ProgramFunction, Region, Value
from ..evaluator import Evaluator
from ..recovery import Cascade
from ..values.aggregates import PLAIN, parts_of, with_parts
from ..values.compile_time import Closure, LibraryRef, is_comptime_number
from ..values.flow import NEXT, Flow

UNKNOWN = object()
FOLDING_CODES = ("EK0124",)  # mistakes that only such a computation can make


def is_known(value: object) -> bool:
    """Whether a value, with all its parts, exists at compile time."""
    parts = parts_of(value)
    if parts is not None:
        return all(is_known(part) for part in parts)
    return is_comptime_number(value) or isinstance(value, (*PLAIN, Closure, LibraryRef))


def has_loops(function: s.Function | s.Lambda) -> bool:
    """Whether a function has loops of its own: without any, it is computed as far as it can be anyhow."""
    if not isinstance(function, s.Function):
        return False
    known = _LOOPS.get(id(function))
    if known is None or known[0] is not function:
        if len(_LOOPS) >= _LOOPS_KEPT:
            _LOOPS.clear()
        known = _LOOPS[id(function)] = (function, s.contains(function.body, (s.For, s.While)))
    return known[1]


_LOOPS: dict[int, tuple[s.Function, bool]] = {}  # of functions seen before; hashing one takes longer
_LOOPS_KEPT = 1 << 12


def attempt(evaluator: Evaluator, call: Callable[[], Any], *, again: bool) -> Any:
    """What `call` gives if it needs no operation of the running program, else UNKNOWN; leaves no trace then.

    On an error it is evaluated `again`, for the running program. When there are mistakes then, too, or it
    may not be, the first one is reported.
    """
    try:
        return _attempt(evaluator, call)
    except CompileError as error:
        if error.code in FOLDING_CODES:
            raise
        mark = len(evaluator.errors)
        with suppress(CompileError, Cascade):
            value = call() if again else None
            if again and len(evaluator.errors) == mark:
                return value
        del evaluator.errors[mark:]
        raise


def _attempt(evaluator: Evaluator, call: Callable[[], Any]) -> Any:
    builder = evaluator.builder
    had_errors = bool(evaluator.errors)
    try:
        with (
            evaluator.discarding(),
            evaluator.scope(folding=True),
            builder.scope(pure=True, location=builder.location),
            builder.inside(Region()),
        ):
            value = call()
        return value if is_known(value) else UNKNOWN
    except Cascade:
        if had_errors:  # after an error, it is unknown whether it could have been computed
            raise
        return UNKNOWN
    except (NotPure, RecursionError):
        return UNKNOWN


def repeated(values: Iterable[object], once: Callable[[Any], Flow]) -> Flow:
    """A loop whose rounds are known, as far as its rounds are requested."""
    for value in values:
        flow = once(value).catch("continue")
        if not flow.goes_on():
            return flow.catch("break")
    return NEXT


# *** the library's mathematics ***


def interpreted(evaluator: Evaluator, emit: Callable[[], object]) -> Any:
    """The numbers that the operations of `emit` compute, which depend on nothing but constants."""
    builder = evaluator.builder
    region = Region()
    with builder.scope(pure=False, memo=[{}]), builder.inside(region):  # no value from outside
        value = emit()
        results = _numbers(value)
        pointers = [Value(PointerType(result.dtype)) for result in results]
        for result, pointer in zip(results, pointers, strict=True):
            builder.add("store", [result, pointer, builder.int_(0)])
        builder.end()
    memory = [storage(result.dtype, 1, "", zeroed=True) for result in results]
    with np.errstate(all="ignore"):
        translate(ProgramFunction("folded", pointers, region), Machine(Program(), lambda site, values: None))(*memory)
    outcome = iter(zip(results, memory, strict=True))
    return _replaced(value, lambda: _as_python(*next(outcome)))


def _numbers(value: object) -> list[Value]:
    parts = parts_of(value)
    if parts is not None:
        return [number for part in parts for number in _numbers(part)]
    return [value] if isinstance(value, Value) else []


def _replaced(value: object, number: Callable[[], Any]) -> Any:
    parts = parts_of(value)
    if parts is not None:
        return with_parts(value, tuple(_replaced(part, number) for part in parts))
    return number() if isinstance(value, Value) else value


def _as_python(value: Value, pointer: InterpretedPointer) -> bool | int | float | complex:
    element = pointer.memory.data[0].item()
    assert isinstance(element, bool | int | float | complex)
    return element


def library_value(evaluator: Evaluator, name: str, operands: list[Any], emit: Callable[[list[object]], object]) -> Any:
    """A function of the library on compile-time numbers: floats are float64 here, and whole numbers become floats.

    Where one is complex, all are complex128.

    Raises:
        ValueError: the result is not a number.
    """
    whole = 1 if name in ("pow", "ldexp") else len(operands)  # the exponent of these may stay an int
    python: type[float] | type[complex] = float
    if any(isinstance(v, complex) for v in operands):
        python, whole = complex, len(operands)
    floats = [python(v) if k < whole or isinstance(v, float) else v for k, v in enumerate(operands)]
    key = (name, *(v.hex() if isinstance(v, float) else repr(v) if isinstance(v, complex) else v for v in floats))
    if key not in _KNOWN:
        double = SIMDType(DType.float64 if python is float else DType.complex128)

        def constants() -> Any:
            return emit([evaluator.builder.const(v, double) if isinstance(v, python) else v for v in floats])

        _KNOWN[key] = interpreted(evaluator, constants)
    value = _KNOWN[key]
    if isinstance(value, float) and math.isnan(value) and all(v == v for v in floats):
        raise ValueError("the result is not a number")
    return value


_KNOWN: dict[object, object] = {}  # the library is the same in all programs of a process
