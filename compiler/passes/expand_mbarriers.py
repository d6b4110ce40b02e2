"""Makes numbers that count arrivals of `gpu.mbarrier` where hardware has no such barriers.

    mbarrier_arrive %m, k, 0            atomic add 1 to %m[k], release
    mbarrier_wait %m, k, phase          while %m[k], acquire, < (phase + 1) * arrivals: pass

A processor that runs the threads of a grid sees such a loop as one that waits for others (see `passes.mark_spins`): it
lets them continue, and reports where threads wait that none of the others can help.
"""

from __future__ import annotations

from ...dsl.types.dtype import DType, SIMDType
from ..ir.builder import Builder
from ..ir.copy_opcodes import MBARRIER_ARRIVE, MBARRIER_BEGIN, MBARRIER_WAIT
from ..ir.program import Op, Program, Region, Value, walk
from ..targets import Target

_COUNT = SIMDType(DType.int64)
_MBARRIERS = (MBARRIER_ARRIVE, MBARRIER_BEGIN, MBARRIER_WAIT)


def expand_mbarriers(program: Program, target: Target) -> None:
    """Expands every barrier, unless the target has them."""
    if target.has_mbarriers:
        return
    for function in program.functions:
        if any(op.opcode in _MBARRIERS for op in walk(function.body)):
            _visit(Builder(function.bounds), function.body)


def _visit(builder: Builder, region: Region) -> None:
    ops, region.ops = region.ops, []
    with builder.inside(region):
        for op in ops:
            for inner in op.regions:
                _visit(builder, inner)
            if op.opcode in _MBARRIERS:
                builder.location = op.location
                _expand(builder, op)
            else:
                region.ops.append(op)


def _expand(builder: Builder, op: Op) -> None:
    place, scope = op.operands[:2], op.attrs.get("scope", "block")
    if op.opcode is MBARRIER_BEGIN:
        builder.add("store", [builder.const(0, _COUNT), *place])
    elif op.opcode is MBARRIER_ARRIVE:
        one = builder.const(1, _COUNT)
        builder.one("atomic", [one, *place], _COUNT, kind="add", ordering="acq_rel", scope=scope)
    else:
        _await(builder, op, place)


def _await(builder: Builder, op: Op, place: list[Value]) -> None:
    arrivals = builder.int_(op.attrs["arrivals"])
    wanted = builder.one("cast", [builder.imul(builder.iadd(op.operands[2], builder.int_(1)), arrivals)], _COUNT)
    test, body = Region(), Region()
    with builder.inside(test):
        scope = op.attrs.get("scope", "block")
        count = builder.one("atomic_load", place, _COUNT, ordering="acquire", scope=scope)
        builder.add("condition", [builder.row("lt", [count, wanted])])
    with builder.inside(body):
        builder.end()
    builder.add("while", [], regions=[test, body], spins="wait")
