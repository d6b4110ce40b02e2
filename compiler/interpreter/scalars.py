"""Computes operations on single numbers: constants, casts, choices, index arithmetic.

See also `interpreter.rows` (regular operations).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import InternalError
from ..ir.opcodes import REAL, UDIV
from ..ir.program import Op, PointerType
from .casts import convert, reinterpret
from .machine import Evaluate, Machine, evaluates, number
from .rows import where


@evaluates("const")
def _const(op: Op, machine: Machine) -> Evaluate:
    value = number(op.attrs["value"], op.results[0].simd)
    return lambda: value


@evaluates("cast")
def _cast(op: Op, machine: Machine) -> Evaluate:
    source, to = op.operands[0].dtype, op.results[0].dtype
    return lambda value: convert(value, source, to)


@evaluates("bitcast")
def _bitcast(op: Op, machine: Machine) -> Evaluate:
    to = op.results[0].dtype
    return lambda value: reinterpret(value, to)


@evaluates("select")
def _select(op: Op, machine: Machine) -> Evaluate:
    if isinstance(op.results[0].type, PointerType):
        return lambda condition, a, b: a if condition else b
    return where


@evaluates("complex")
def _complex(op: Op, machine: Machine) -> Evaluate:
    dtype = op.results[0].dtype.to_numpy()

    def join(real: Any, imag: Any) -> Any:
        joined = np.empty(np.shape(real), dtype)  # `real + 1j * imag` changes infinities and zeros
        joined.real, joined.imag = real, imag
        return joined[()]

    return join


@evaluates("real", "imag")
def _part(op: Op, machine: Machine) -> Evaluate:
    return (lambda value: value.real[()]) if op.opcode is REAL else (lambda value: value.imag[()])


@evaluates("udiv", "urem")
def _index_division(op: Op, machine: Machine) -> Evaluate:
    function = np.floor_divide if op.opcode is UDIV else np.remainder

    def divide(a: Any, b: Any) -> Any:
        if b == 0:
            raise InternalError("index arithmetic divides by zero", place=op.location.place)
        return function(a.view(np.uint64), b.view(np.uint64)).view(np.int64)

    return divide
