"""Computes what authors name themselves: functions of libraries are called; instructions and intrinsics are refused."""

from __future__ import annotations

import ctypes
from typing import Any

from ...dsl.diagnostics.errors import KernelError
from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Op, PointerType, Type
from .machine import Evaluate, Machine, evaluates

_FLOATS = {DType.float32: ctypes.c_float, DType.float64: ctypes.c_double}


@evaluates("native", "native_pure")
def _native(op: Op, machine: Machine) -> Evaluate:
    if op.attrs["kind"] != "call":
        return lambda *operands: _refused(op, machine)
    function = getattr(ctypes.CDLL(None), op.attrs["code"])
    function.argtypes = [_ctype(value.type) for value in op.operands]
    function.restype = _ctype(op.results[0].type) if op.results else None

    def call(*operands: Any) -> Any:
        given = [_given(value, operand.type) for value, operand in zip(operands, op.operands, strict=True)]
        result = function(*given)
        return None if not op.results else op.results[0].dtype.to_numpy().type(result)

    return call


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
    return value.memory.data.ctypes.data + value.offset * value.memory.data.itemsize
