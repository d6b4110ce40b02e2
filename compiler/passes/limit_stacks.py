"""Adds up what a function takes of a thread's stack, and refuses what is too much.

Every `stack[...]` has a place of its own for the life of a function, whatever loop it stands in. A function of the host
and one of its parallel regions may be on the stack of one thread at the same time.

See also `dsl.environment.stacks` (how large threads' stacks are).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...dsl.diagnostics.errors import CompileError, EinkornError, joined
from ...dsl.diagnostics.places import Place, is_shipped
from ..ir.opcodes import ALLOCA
from ..ir.program import NotFusible, Op, Program, ProgramFunction, Region
from ..ir.shared_memory import is_shared
from ..targets.base import Target

MAX_THREAD_BYTES = 4 << 20  # of all storage at a time; `dsl.environment.stacks` sees to it that threads have more
_ALIGNMENT = 64


def limit_stacks(program: Program, target: Target) -> None:
    """Refuses functions that take more of a stack than a thread has.

    Raises:
        CompileError (EK0217): one does.
        NotFusible: one does in which kernels are fused.
    """
    mistakes: list[EinkornError] = []
    apart: set[int] = set()
    for number, function in enumerate(program.functions):
        most = _most(function)
        if _total(most) > MAX_THREAD_BYTES:
            if function.fused:
                apart.add(number)
            else:
                mistakes.append(_too_much(function, most))
    if mistakes:
        raise joined(mistakes)
    if apart:
        groups = [group for group, call in enumerate(program.calls) if call[0] in apart]
        raise NotFusible("these kernels have too much storage together", groups)


def stack_bytes(program: Program) -> int:
    """The most bytes of storage that a function of a program has on the stack of one thread at a time."""
    return max((_total(_most(function)) for function in program.functions), default=0)


def _most(function: ProgramFunction) -> list[Op]:
    """The storage of a function and of that of its parallel regions which has most."""
    regions = [list(_storage(op.regions[0])) for op in _parallel(function.body)]
    return [*_storage(function.body), *max(regions, key=_total, default=[])]


def _too_much(function: ProgramFunction, most: list[Op]) -> CompileError:
    largest = max(most, key=_size)
    place, calls = _author(largest)
    kept = f"{largest.attrs['count']} elements of {largest.results[0].dtype}"
    return CompileError(
        f"the {len(most)} stack[...] that are in a thread at a time hold {_total(most):,} bytes together",
        code="EK0217",
        place=place,
        op=function.op or None,
        expected=f"at most {MAX_THREAD_BYTES:,} bytes in a thread",
        got=_total(most),
        notes=[f"this one is the largest, with {kept}: {_size(largest):,} bytes of {MAX_THREAD_BYTES:,}", *calls],
        hint="unrolled rounds and inlined functions have storage of their own each: make it once and pass it on",
    )


def _storage(region: Region) -> Iterator[Op]:
    """The storage of a region, that of parallel ones within left out."""
    for op in region.ops:
        if op.opcode is ALLOCA and not is_shared(op):
            yield op
        if not op.opcode.spreads:
            for inner in op.regions:
                yield from _storage(inner)


def _parallel(region: Region) -> Iterator[Op]:
    for op in region.ops:
        if op.opcode.spreads:
            yield op
        else:
            for inner in op.regions:
                yield from _parallel(inner)


def _size(op: Op) -> int:
    size = op.results[0].dtype.bytes_for(op.attrs["count"])
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _total(ops: list[Op]) -> int:
    return sum(map(_size, ops))


def _author(op: Op) -> tuple[Place, list[str]]:
    """Where the author has storage made, and the calls that led there."""
    chain = op.location.chain()
    own = [place for place in chain if not is_shipped(place.file)] or chain
    return own[0], [f"called at {place}" for place in own[1:4]]
