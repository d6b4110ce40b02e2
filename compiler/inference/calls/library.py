"""Calls functions that the standard library writes in the language: `exp(x)`, `x ** y`, `x % y` of floats.

On run-time values the library's function is inlined; on compile-time numbers it is computed for float64, with the bits
that running it gives. Small whole powers become products. The liberties that a kernel requests with `fastmath=` are its
own: the library's functions are exact as they are written.

See also `stdlib.math.functions` (the functions themselves).
"""

from __future__ import annotations

from typing import Any, Final

from ....dsl.frontend import syntax
from ....dsl.frontend.python.collect import operator_program
from ....dsl.frontend.python.register import complex_name, fast_name, has_implementation
from ....dsl.types.dtype import APPROXIMATED, SIMDType
from ...ir.program import Value
from ..budget import exceeds_limit
from ..conversion import DEFAULTS, PYTHON_ERRORS, coerce
from ..evaluator import Point, callable_
from ..values.compile_time import Closure, Frame, LibraryRef, is_comptime_number
from ..values.describe import describe
from .arguments import bind_stub, check_number
from .folding import library_value
from .inlining import inline

FAST: Final = "fast"  # the argument that requests instructions of the target


@callable_(LibraryRef)
def call_library(call: Point, ref: LibraryRef, args: list[Any], keywords: dict[str, Any]) -> Any:
    """`exp(x)`: the standard library's function, computed now on compile-time numbers."""
    arguments = bind_stub(call, ref.name, args, keywords)
    fast = takes_fast(call, ref.name, arguments)
    for key, operand in arguments.items():
        check_number(call, ref.name, operand, key)
    bound = list(arguments.values())
    if all(is_comptime_number(v) for v in bound):
        return _folded(call, ref, bound)
    return call_fast(call, ref.name, bound[0]) if fast else _run(call, ref, bound)


def takes_fast(call: Point, name: str, arguments: dict[str, Any]) -> bool:
    """Whether `fast=True` stands among the arguments of a name of the language, from which it is removed."""
    fast = arguments.pop(FAST, False)
    if not isinstance(fast, bool):
        text = f"'fast' of '{name}' is True or False when the kernel is compiled, not {describe(fast)}"
        raise call.error("EK0208", text, FAST)
    return fast


def call_fast(call: Point, name: str, operand: object) -> Value:
    """`exp(x, fast=True)`: the function of the library that takes instructions of the target, inlined."""
    value = _settle(call, operand)
    if not (isinstance(value, Value) and value.dtype in APPROXIMATED):
        known = ", ".join(str(dtype) for dtype in APPROXIMATED)
        text = f"'{name}' with fast=True works on {known}, not on {describe(value)}"
        hint = "cast the value to float32 first, or write fast=v.dtype == float32 for a value v of several dtypes"
        raise call.error("EK0204", text, hint=hint, got=describe(value))
    return call_operator(call, fast_name(name), [value])


def _folded(call: Point, ref: LibraryRef, bound: list[Any]) -> Any:
    """Powers of whole numbers are Python's; all else is what the library's function gives for float64."""
    try:
        if exceeds_limit(ref.name, bound):
            raise call.error("EK0206", "this compile-time value grows too large")
        if ref.name == "pow" and all(isinstance(v, int) for v in bound):
            return pow(*bound)
        return library_value(call.evaluator, ref.name, bound, lambda operands: _run(call, ref, operands))
    except PYTHON_ERRORS as error:
        raise call.error("EK0206", f"this cannot be computed at compile time: {error}") from None


def _run(call: Point, ref: LibraryRef, bound: list[object]) -> Any:
    """The library's function, inlined."""
    settled = [_settle(call, v) for v in bound]
    if ref.name == "pow" and type(bound[1]) is int and isinstance(settled[0], Value):
        multiplied = power(call, settled[0], bound[1])
        if multiplied is not None:
            return multiplied
    if any(isinstance(v, complex) or (isinstance(v, Value) and v.dtype.is_complex()) for v in settled):
        return _of_complex(call, ref.name, settled)
    return _inlined(call, ref.closure, settled)


def call_operator(here: Point, name: str, operands: list[Value]) -> Value:
    """`x % y` of floats. A number of open type is computed in the type that it would have."""
    complex_ = operands[0].dtype.is_complex()
    program = operator_program(complex_name(name) if complex_ else name)
    function = program.functions[0]
    assert isinstance(function.syntax, syntax.Function)
    closure = Closure(function.syntax, Frame({}, program, function.file, {}, None, ()))
    settled = [v if v.weak is None else here.builder.one("cast", [v], v.type) for v in operands]
    value = _inlined(here, closure, settled)
    assert isinstance(value, Value)
    return value


def _of_complex(call: Point, name: str, settled: list[object]) -> Value:
    """A function of the library where one of its arguments is a complex number: the others become one, too."""
    if not has_implementation(complex_name(name)):
        hint = "work on its parts, z.real and z.imag, or on abs(z)"
        raise call.error("EK0231", f"'{name}' does not work on complex numbers", hint=hint)
    types = [v.simd for v in settled if isinstance(v, Value)]
    widest = max(types, key=lambda type: type.width)
    numbers = [type.dtype for type in types if type.dtype.is_complex()]
    wanted = widest.with_dtype(numbers[0])
    return call_operator(call, name, [coerce(call, v, wanted) for v in settled])


def _inlined(here: Point, closure: Closure, operands: list[Any]) -> Any:
    builder = here.builder
    plain = all(isinstance(v, Value) and v.const is None for v in operands)
    key = (id(closure.function), *(v.type for v in operands)) if plain and not builder.pure else None
    if here.evaluator.trial and key in here.evaluator.library_types:
        return builder.one("add", operands, here.evaluator.library_types[key])  # what it is made of is followed
    with builder.scope(fastmath=frozenset()):
        value = inline(here, closure, operands, {})
    if key is not None and isinstance(value, Value) and value.weak is None:
        here.evaluator.library_types[key] = value.type
    return value


def power(call: Point, value: Value, exponent: int) -> Value | None:
    """`x ** 2` as products, where these are as exact as the function: up to the 4th power, any for integers."""
    builder, dtype = call.builder, value.dtype
    exact, complex_ = dtype.is_integral(), dtype.is_complex()
    most = 64 if exact or complex_ else 2 if dtype.is_half() else 4
    if not isinstance(value.type, SIMDType) or not (exact or complex_ or dtype.is_float()):
        return None
    if not -1 <= exponent <= most or (exponent < 0 and exact):
        return None

    def combined(name: str, a: Value, b: Value) -> Value:
        return call_operator(call, name, [a, b]) if complex_ else builder.row(name, [a, b])

    if exponent < 1:
        one = builder.const(1 if exact else 1.0, value.type)
        return one if exponent == 0 else combined("truediv", one, value)
    result: Value | None = None
    while exponent:
        if exponent & 1:
            result = value if result is None else combined("mul", result, value)
        exponent >>= 1
        if exponent:
            value = combined("mul", value, value)
    return result


def _settle(call: Point, value: object) -> Any:
    """A number whose run-time type is still open computes as its default here."""
    if isinstance(value, Value) and value.weak is not None:
        return coerce(call, value, DEFAULTS[value.weak])
    return value
