"""Estimates from a kernel's program how many registers a thread needs: the most numbers that are live at once.

Only floats, vectors and addresses count; integers of indices are computed anew where registers are short.
"""

from __future__ import annotations

from typing import Final

from ..ir.program import Op, PointerType, Region, Value, free_values

ALWAYS: Final = 24  # registers for indices, addresses and what an instruction needs


def live_registers(kernel: Region) -> int:
    """The registers of 32 bits of a thread."""
    return ALWAYS + _most(kernel, {})


def _most(region: Region, behind: dict[int, int]) -> int:
    """The most words that are live in a region, with what is live behind it, by serial."""
    live = dict(behind)
    now = most = sum(live.values())
    for op in reversed(region.ops):
        inner = max((_most(each, _around(op, each, live)) for each in op.regions), default=0)
        most = max(most, inner, now)
        for value in op.results:
            now -= live.pop(value.serial, 0)
        for value in op.operands:
            if value.serial not in live and (size := words(value)):
                live[value.serial] = size
                now += size
        for each in op.regions:
            for value in free_values(each):
                if value.serial not in live and (size := words(value)):
                    live[value.serial] = size
                    now += size
        most = max(most, now)
    return most


def _around(op: Op, region: Region, behind: dict[int, int]) -> dict[int, int]:
    """What is live all through a region: what is used behind it, and in its next round."""
    made = {value.serial for value in op.results}
    live = {serial: size for serial, size in behind.items() if serial not in made}
    if op.opcode.loops:
        live |= {value.serial: size for value in free_values(region) if (size := words(value))}
    return live


def words(value: Value) -> int:
    """The registers of a value."""
    if value.const is not None or (value.maker is not None and value.maker.name in ("const", "gpu_id")):
        return 0
    if isinstance(value.type, PointerType):
        return 2 if value.type.space == "global" and value.maker is not None else 0
    if value.simd.width == 1 and not value.dtype.is_float():
        return 0
    return max(-(-value.simd.width * value.dtype.bits // 32), 1) if value.dtype.kind != "bool" else 0
