"""Computes what authors name themselves. Functions of libraries are called, as are exchanges between ranks.
Instructions and intrinsics are refused, but for those of the standard library, whose results are rounded to the
nearest float32.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...dsl.diagnostics.errors import KernelError
from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Op, PointerType, Type
from .machine import Evaluate, Interrupted, Machine, evaluates
from .pointers import InterpretedPointer, address_of

_FLOATS = {DType.float32: ctypes.c_float, DType.float64: ctypes.c_double}


@evaluates("native", "native_pure")
def _native(op: Op, machine: Machine) -> Evaluate:
    if op.attrs["code"] in _OF_LIBRARY:
        return _OF_LIBRARY[op.attrs["code"]]
    if op.attrs["kind"] != "call":
        return lambda *operands: _refused(op, machine)
    function = getattr(ctypes.CDLL(None), op.attrs["code"])
    function.argtypes = [_ctype(value.type) for value in op.operands]
    function.restype = _ctype(op.results[0].type) if op.results else None

    def call(*operands: object) -> Any:
        given = [_given(value, operand.type) for value, operand in zip(operands, op.operands, strict=True)]
        result = function(*given)
        return None if not op.results else op.results[0].dtype.to_numpy().type(result)

    return call


@evaluates("exchange")
def _exchange(op: Op, machine: Machine) -> Evaluate:
    def move(to: InterpretedPointer, source: InterpretedPointer, *numbers: Any) -> None:
        assert machine.exchange is not None, "a collective outside of a session"
        addresses = address_of(to), address_of(source)
        if machine.exchange(op.attrs["site"], op.attrs["kind"], *addresses, *map(int, numbers)):
            raise Interrupted
        if to.memory.written is not None:
            to.memory.written[to.offset :] = True

    return move


def _exp2(x: Any) -> Any:
    return _normal_or_zero(np.exp2(np.float64(x)))


def _reciprocal(x: object) -> Any:
    with np.errstate(divide="ignore"):
        return _normal_or_zero(1 / np.float64(_normal_or_zero(x)))


def _normal_or_zero(x: object) -> Any:
    """As float32, and zero with its sign where that is subnormal."""
    with np.errstate(over="ignore"):
        number = np.asarray(x).astype(np.float32)
    return np.where(np.abs(number) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), number), number)[()]


# The code of instructions and intrinsics in the standard library, and what they compute. The empty code copies.
_OF_LIBRARY: Final[dict[str, Callable[[Any], Any]]] = {
    "": lambda x: x,
    "llvm.nvvm.ex2.approx.ftz.f": _exp2,
    "llvm.amdgcn.exp2.f32": _exp2,
    "llvm.nvvm.rcp.approx.ftz.f": _reciprocal,
}


def _refused(op: Op, machine: Machine) -> Any:
    raise KernelError(
        f"the interpreter runs no {op.attrs['kind']} of the machine: {op.attrs['code']!r}",
        code="EK0912",
        place=op.location.place,
        op=machine.op or None,
        hint="compile the kernel: interpret=False",
    )


def _ctype(type: Type) -> Any:
    if isinstance(type, PointerType):
        return ctypes.c_void_p
    if type.dtype in _FLOATS:
        return _FLOATS[type.dtype]
    if type.dtype is DType.bool:
        return ctypes.c_bool
    sign = "" if type.dtype.is_signed_integral() else "u"
    return getattr(ctypes, f"c_{sign}int{type.dtype.bits}")


def _given(value: Any, type: Type) -> Any:
    if isinstance(type, SIMDType):
        return value.item()
    return address_of(value)
