"""Counts the floating-point operations of a region, by what a GPU would compute them with.

    float32 12, dot.bfloat16 4096     in each round: 12 operations of floats, 4096 of products of bfloat16 matrices

A fused multiplication and addition is two operations, a vector as many as it has lanes. Loops whose rounds are known
count as often; what a thread decides at run time is left out: it is counted where it reports itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..ir.opcodes import FOR, IF, WHILE
from ..ir.program import Op, Region

_OF_ONE = {"fma": 2}
_MOVES = frozenset({"neg", "abs", "copysign", "min", "max"})  # no arithmetic unit's work, or half an instruction


def operations(regions: Sequence[Region]) -> Counter[str]:
    """The operations of one run through regions, without branches and loops that report themselves."""
    total: Counter[str] = Counter()
    for region in regions:
        for op in region.ops:
            total.update(operations_of(op))
    return total


def written(regions: Sequence[Region]) -> str:
    """The same as a text."""
    return ", ".join(f"{name} {count}" for name, count in sorted(operations(regions).items()))


def reports_itself(op: Op) -> bool:
    """Whether a branch or loop is reported each time that a thread comes to it."""
    if op.opcode is IF:
        return op.operands[0].const is None
    if op.opcode is FOR:
        return any(value.const is None for value in op.operands[:3])
    return op.opcode is WHILE


def operations_of(op: Op) -> Counter[str]:
    """Those of one operation, its regions included."""
    if op.regions:
        if reports_itself(op):
            return Counter()
        if op.opcode is FOR:
            return _rounds(op)
        return operations([op.regions[0 if op.operands[0].const else 1]] if op.opcode is IF else op.regions)
    if op.opcode.row is None or op.opcode.row.result != "same" or not op.results:
        return Counter()
    result = op.results[0]
    if not result.dtype.is_float() or op.opcode.name in _MOVES:
        return Counter()
    name = "float64" if result.dtype.bits == 64 else "float32"
    return Counter({name: _OF_ONE.get(op.opcode.name, 1) * result.simd.width})


def _rounds(op: Op) -> Counter[str]:
    """All rounds of a loop whose bounds are known; a loop over the inner axis of a product counts as that."""
    low, high, step = (int(value.const) for value in op.operands[:3])
    once, rounds = operations(op.regions), max(0, -(-(high - low) // step))
    product = op.attrs.get("product")
    if product is not None:
        lanes = sum(value.simd.width for value in op.regions[0].args[1:])
        return Counter({f"dot.{product}": 2 * lanes * max(0, high - low)})
    return Counter({name: count * rounds for name, count in once.items()})
