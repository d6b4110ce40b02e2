"""Runs prints and asserts: they report the values to show as the 64-bit patterns that compiled code reports."""

from __future__ import annotations

from typing import cast

import numpy as np

from ...dsl.types.dtype import DType
from ..ir.program import Op, PointerType
from .casts import convert
from .machine import Evaluate, Machine, Trap, evaluates
from .pointers import InterpretedPointer, address_of


def _patterns(op: Op, values: tuple[object, ...], first: int) -> list[int]:
    """Values as the 64-bit patterns that compiled code reports."""
    out = []
    for value, operand in zip(values, op.operands[first:], strict=True):
        if isinstance(operand.type, PointerType):
            out.append(address_of(cast(InterpretedPointer, value)))
            continue
        wide = DType.float64 if operand.dtype.is_float() else DType.int64
        out.append(int(convert(value, operand.dtype, wide).view(np.int64)))
    return out


@evaluates("assert")
def _assert(op: Op, machine: Machine) -> Evaluate:
    def check(condition: object, *values: object) -> None:
        if not condition:
            raise Trap(op.attrs["site"], _patterns(op, values, 1))

    return check


@evaluates("print")
def _print(op: Op, machine: Machine) -> Evaluate:
    return lambda *values: machine.report(op.attrs["site"], _patterns(op, values, 0))
