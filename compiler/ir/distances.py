"""Computes the distance of two Ints, where it is known at compile time.

    flat[(1 - stage) * 128 + i : (1 - stage) * 128 + i + 4]        4 elements

Both numbers become polynomials over values that are neither sum nor product. Two operations with the same name,
attributes and operands count as one value, if they do nothing but compute. Int arithmetic is arithmetic modulo 2**64,
and the polynomials are, too, so that sums which wrap give the right answer.

See also `ranges` (how large either of the two is).
"""

from __future__ import annotations

from typing import Any

from ...dsl.types.dtype import INT
from .opcodes import CAST
from .polynomials import Poly, combined, minus
from .program import Value

WRAP = 1 << 64
MAX_TERMS = 24
MAX_DEPTH = 64


def distance(first: Value | None, last: Value) -> int | None:
    """`last - first`, where it is known; without `first`, `last` itself."""
    known = _Known()
    end = known.poly(last)
    left = end if first is None else minus(end, known.poly(first))
    left = {monomial: factor for monomial, factor in left.items() if factor % WRAP}
    if any(left):  # a monomial that is not ()
        return None
    apart = left.get((), 0) % WRAP
    return apart - WRAP if apart >= WRAP // 2 else apart


class _Known:
    """The values seen so far, with one number for all that are provably equal."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}  # what makes a value -> its number
        self.of: dict[int, int] = {}  # serial -> number
        self.polys: dict[int, Poly] = {}

    def poly(self, value: Value, depth: int = 0) -> Poly:
        if value.const is not None:
            return {(): int(value.const)} if value.const else {}
        if value.serial not in self.polys:
            self.polys[value.serial] = self._poly(value, depth)
        return self.polys[value.serial]

    def _poly(self, value: Value, depth: int) -> Poly:
        op = value.maker
        if op is not None and value.type == INT and depth < MAX_DEPTH:
            if op.opcode is CAST and op.operands[0].type == INT:
                return self.poly(op.operands[0], depth + 1)
            if op.name in ("add", "sub", "mul", "neg"):
                made = combined(op.name, [self.poly(operand, depth + 1) for operand in op.operands])
                if len(made) <= MAX_TERMS:
                    return made
        return {(self.number(value, depth),): 1}

    def number(self, value: Value, depth: int) -> int:
        """The same number for values that are surely equal."""
        if value.serial not in self.of:
            key = self._key(value, depth)
            self.of[value.serial] = self.numbers.setdefault(key, len(self.numbers))
        return self.of[value.serial]

    def _key(self, value: Value, depth: int) -> Any:
        op = value.maker
        if op is None or not op.opcode.is_pure or len(op.results) != 1 or depth >= MAX_DEPTH:
            return value.serial
        operands = tuple(self._operand(operand, depth + 1) for operand in op.operands)
        return op.name, str(value.type), tuple(sorted((k, repr(v)) for k, v in op.attrs.items())), operands

    def _operand(self, value: Value, depth: int) -> Any:
        if value.type == INT:
            return tuple(sorted(self.poly(value, depth).items()))
        return ("const", repr(value.const)) if value.const is not None else self.number(value, depth)
