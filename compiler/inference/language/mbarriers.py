"""Evaluates `gpu.mbarrier`: barriers in shared memory, at which threads arrive without waiting, and copies too.

    full = gpu.mbarrier(2, 3)               three barriers; two arrivals end a phase of each
    full[k % 3].arrive()
    full[k % 3].wait(k // 3)                until phase number k // 3 has ended

Where hardware has none, a barrier is a number that counts arrivals (see `passes.expand_mbarriers`).
"""

from __future__ import annotations

import math

from ....dsl.types.dtype import INT, DType, SIMDType
from ...ir.program import PointerType, Value
from ..conversion import coerce
from ..evaluator import Point, rule
from ..members.spans import when
from ..members.table import item, method
from ..runtime_checks import add_check
from ..values.describe import describe
from ..values.mbarriers import MBarriers
from .grids import kernel_of, whole_number

MOST_ARRIVALS = (1 << 20) - 1
MOST_BARRIERS = 1 << 10
COUNT = SIMDType(DType.int64)


@rule("gpu.mbarrier")
def mbarrier(call: Point, count: object, stages: object = None) -> MBarriers:
    """A barrier, or as many as `stages` says.

    Raises:
        CompileError: EK0659, a number is none that is known; EK0658, in a role.
    """
    launched, builder = kernel_of(call, "mbarrier()"), call.builder
    if launched.role is not None:
        text = f"gpu.mbarrier is made by the whole block, and stands in role '{launched.role.name}'"
        raise call.error("EK0658", text, hint="make it before gpu.roles")
    for name, value, most in (("count", count, MOST_ARRIVALS), ("stages", stages, MOST_BARRIERS)):
        if (type(value) is not int or not 1 <= value <= most) and not (name == "stages" and value is None):
            text = f"{name}= of gpu.mbarrier is a number known at compile time, not {describe(value)}"
            raise call.error("EK0659", text, name, expected=f"1 to {most}")
    assert isinstance(count, int) and (stages is None or isinstance(stages, int))
    type_ = PointerType(DType.int64, "shared")
    words = builder.one("alloca", [], type_, count=stages or 1, zeroed=False, align=16)
    number = whole_number(call, launched.block)

    def make() -> None:
        for k in range(stages or 1):
            builder.add("mbarrier_begin", [words, builder.int_(k)], arrivals=count)

    when(builder, builder.compare("eq", number, builder.int_(0)), make)
    builder.add("barrier", [])
    return MBarriers(words, count, stages, None if stages is not None else builder.int_(0))


@item(MBarriers)
def one_of(call: Point, barriers: MBarriers, index: object) -> MBarriers:
    """`barriers[index]`: one of several.

    Raises:
        CompileError: EK0659, there are not several, or not so many.
    """
    if barriers.offset is not None or barriers.stages is None:
        hint = "gpu.mbarrier(count, stages) makes several"
        raise call.error("EK0659", f"{describe(barriers)} has no others in it", hint=hint)
    number = coerce(call.argument("index"), index, INT, "the number of a barrier is an Int")
    stages, builder = barriers.stages, call.builder
    if number.const is not None and not 0 <= number.const < stages:
        text = f"there is no barrier {number.const} of {stages}"
        raise call.error("EK0659", text, "index", expected=f"0 to {stages - 1}", got=number.const)
    checked = call.evaluator.checks.level != "off"
    if number.const is None and checked and not call.evaluator.ranges.is_inside(number, builder.int_(stages), 1):
        call.locate()
        low = builder.compare("ge", number, builder.int_(0))
        holds = builder.row("and_", [low, builder.compare("lt", number, builder.int_(stages))])
        add_check(call, "mbarrier", holds, ["there is no barrier ", number, f" of {stages}"], {}, [])
    return MBarriers(barriers.pointer, barriers.arrivals, stages, number)


def place_of(call: Point, value: object, argument: str) -> tuple[Value, Value, int]:
    """The pointer and the offset of a barrier, and how many arrivals end a phase of it.

    Raises:
        CompileError: EK0659, it is none, or several.
    """
    if not isinstance(value, MBarriers):
        raise call.error("EK0659", f"{argument}= is one gpu.mbarrier, not {describe(value)}", argument)
    if value.offset is None:
        text = f"{describe(value)} are several"
        raise call.error("EK0659", text, argument, hint="name one of them: full[k % STAGES]")
    return value.pointer, value.offset, value.arrivals


def arrive(call: Point, barrier: MBarriers, bytes: Value | None = None) -> None:
    """The thread arrives; the phase ends when so many bytes of bulk copies have come, too."""
    pointer, offset, arrivals = place_of(call, barrier, "arrive")
    count = call.builder.int_(0) if bytes is None else bytes
    call.builder.add("mbarrier_arrive", [pointer, offset, count], (), (), arrivals=arrivals, **scope_of(call))


@method(MBarriers, "arrive")
def _arrive(call: Point, owner: MBarriers, cluster: object = False) -> None:
    if type(cluster) is not bool:
        text = f"cluster= of arrive is True or False, known at compile time, not {describe(cluster)}"
        raise call.error("EK0659", text, "cluster")
    (arrive_everywhere if cluster else arrive)(call, owner)


def arrive_everywhere(call: Point, barrier: MBarriers, bytes: Value | None = None) -> None:
    """The thread arrives at this barrier of each block of the cluster, where so many bytes are to come, too."""
    pointer, offset, arrivals = place_of(call, barrier, "arrive")
    builder, blocks = call.builder, math.prod(kernel_of(call, "arrive()").cluster)
    if blocks == 1:
        arrive(call, barrier, bytes)
        return
    count, type = builder.int_(0) if bytes is None else bytes, PointerType(DType.int64, "cluster")
    for rank in range(blocks):
        there = builder.one("peer", [pointer, builder.int_(rank)], type, blocks=blocks)
        builder.add("mbarrier_arrive", [there, offset, count], arrivals=arrivals, scope="cluster")


@method(MBarriers, "wait")
def wait(call: Point, owner: MBarriers, phase: object) -> None:
    """Waits until a phase has ended; that before the first one has."""
    pointer, offset, arrivals = place_of(call, owner, "wait")
    number = coerce(call.argument("phase"), phase, INT, "phase= of wait is an Int")
    target = call.evaluator.target
    if call.evaluator.checks.level != "off" and (not target.has_grid or target.simulates):
        _check_phase(call, pointer, offset, number, arrivals)
    call.locate()
    call.builder.add("mbarrier_wait", [pointer, offset, number], (), (), arrivals=arrivals, **scope_of(call))


def scope_of(call: Point) -> dict[str, str]:
    """Whose threads a barrier orders: those of the cluster, where there is one, as these arrive at it, too."""
    return {"scope": "cluster"} if math.prod(kernel_of(call, "mbarrier").cluster) > 1 else {}


def _check_phase(call: Point, pointer: Value, offset: Value, phase: Value, arrivals: int) -> None:
    """Hardware has one bit of the number of a phase: it confuses phases that are two apart."""
    builder = call.builder
    call.locate()
    scope = scope_of(call).get("scope", "block")
    count = builder.one("atomic_load", [pointer, offset], COUNT, ordering="relaxed", scope=scope)
    current = builder.idiv(builder.one("cast", [count], INT), builder.int_(arrivals))
    ahead = builder.isub(phase, current)
    near = [builder.compare("ge", ahead, builder.int_(-1)), builder.compare("le", ahead, builder.int_(0))]
    message = ["phase ", phase, " is waited for, and the barrier is in phase ", current]
    add_check(call, "mbarrier", builder.row("and_", near), message, {}, [])
