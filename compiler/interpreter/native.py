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


Computed = Callable[[Any], Any]


def _near(function: Computed) -> Computed:
    """The nearest float32 to a function, where subnormal arguments and results count as 0."""

    def nearest(x: object) -> object:
        with np.errstate(all="ignore"):
            return _normal_or_zero(function(np.float64(_normal_or_zero(x))))

    return nearest


def _normal_or_zero(x: object) -> Any:
    """As float32, and zero with its sign where that is subnormal."""
    with np.errstate(over="ignore"):
        number = np.asarray(x).astype(np.float32)
    return np.where(np.abs(number) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), number), number)[()]


_EXP2, _LOG2, _SQRT = _near(np.exp2), _near(np.log2), _near(np.sqrt)
_RSQRT, _RECIPROCAL = _near(lambda x: 1 / np.sqrt(x)), _near(lambda x: 1 / x)

# The code of instructions and intrinsics in the standard library, and what they compute. The empty code copies.
_OF_LIBRARY: Final[dict[str, Computed]] = {
    "": lambda x: x,
    "llvm.nvvm.ex2.approx.ftz.f": _EXP2,
    "llvm.nvvm.lg2.approx.ftz.f": _LOG2,
    "llvm.nvvm.sin.approx.ftz.f": _near(np.sin),
    "llvm.nvvm.cos.approx.ftz.f": _near(np.cos),
    "llvm.nvvm.sqrt.approx.ftz.f": _SQRT,
    "llvm.nvvm.rsqrt.approx.ftz.f": _RSQRT,
    "llvm.nvvm.rcp.approx.ftz.f": _RECIPROCAL,
    "tanh.approx.f32 $0, $1;": _near(np.tanh),
    "llvm.amdgcn.exp2.f32": _EXP2,
    "llvm.amdgcn.log.f32": _LOG2,
    "llvm.amdgcn.sin.f32": _near(lambda turns: np.sin(2 * np.pi * turns)),
    "llvm.amdgcn.cos.f32": _near(lambda turns: np.cos(2 * np.pi * turns)),
    "llvm.amdgcn.fract.f32": _near(lambda x: x - np.floor(x)),
    "llvm.amdgcn.sqrt.f32": _SQRT,
    "llvm.amdgcn.rsq.f32": _RSQRT,
    "llvm.amdgcn.rcp.f32": _RECIPROCAL,
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
