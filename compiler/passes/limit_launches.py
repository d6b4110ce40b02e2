"""Refuses launches that no device could take: too much shared memory, storage of the host.

See also `passes.host_and_device`, `lowering.launches` (which are checked where kernels are launched).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...dsl.diagnostics.errors import CompileError, EinkornError, joined
from ...dsl.diagnostics.places import Label, Place
from ..ir.opcodes import LAUNCH
from ..ir.program import Op, PointerType, Program, ProgramFunction, Value, captures, walk
from ..ir.shared_memory import shared_bytes, static_shared, static_tensors
from ..targets.base import Target


def limit_launches(program: Program, target: Target) -> None:
    """Refuses what is wrong with launches.

    Raises:
        CompileError (EK0604, EK0821): a kernel shares more than the target has; it uses storage of the host.
    """
    mistakes: list[EinkornError] = []
    for function in program.functions:
        for op in walk(function.body):
            if op.opcode is LAUNCH:
                mistakes += _of_storage(function, op)
                mistakes += _of_shared_memory(function, op, target)
    if mistakes:
        raise joined(mistakes)


def _of_storage(function: ProgramFunction, launch: Op) -> Iterator[CompileError]:
    """Storage of the host that a kernel uses."""
    for value in captures(launch.regions[0]):
        if isinstance(value.type, PointerType) and value.type.space == "stack":
            made = value.maker.location.author() if value.maker is not None else []
            here, *calls = _use(launch, value).location.author()
            yield CompileError(
                "this is storage of the host, which a kernel on a device cannot reach",
                code="EK0821",
                place=here,
                labels=(Label(here, "used by the kernel"), *(Label(place, "made on the host") for place in made[:1])),
                op=function.op or None,
                notes=[f"called at {place}" for place in calls[:3]],
                hint="gpu.scratch[T](n) in host code is memory of the device; stack[T](n) in the kernel is a thread's",
            )


def _use(launch: Op, value: Value) -> Op:
    return next(op for op in walk(launch.regions[0]) if any(operand is value for operand in op.operands))


def _of_shared_memory(function: ProgramFunction, launch: Op, target: Target) -> Iterator[CompileError]:
    """More shared memory than the target has."""
    total = static_shared(launch.regions[0])
    requested = launch.operands[6].const or 0
    limits = target.limits
    tensors = static_tensors(launch.regions[0])
    most = limits.shared_memory if launch.operands[6].const == 0 else limits.static_shared_memory
    if total > most:
        largest = max(tensors, key=shared_bytes)
        here, *calls = largest.location.author()
        several = len(tensors) > 1
        text = f"the {len(tensors)} gpu.shared[...] of this kernel hold {total:,} bytes together"
        text = text if several else f"the gpu.shared[...] of this kernel holds {total:,} bytes"
        error = _too_much(function, here, text, most, target, total)
        error.notes += [f"this one is the largest: {shared_bytes(largest):,} bytes"] if several else []
        error.notes += [f"called at {place}" for place in calls[:3]]
        if most < limits.shared_memory:
            error.hint = "the launch has shared= for gpu.dynamic_shared[T](n), which takes the place of gpu.shared[T]"
        else:
            error.hint = "take fewer elements, or give each block a smaller part of the work"
        yield error
    elif total and total + requested > limits.shared_memory >= requested:
        text = f"a block has {total:,} bytes of gpu.shared[...] and requests {requested:,} more"
        yield _too_much(function, launch.location.author()[0], text, limits.shared_memory, target, total + requested)


def _too_much(function: ProgramFunction, here: Place, text: str, most: int, target: Target, got: int) -> CompileError:
    expected = f"at most {most:,} bytes on {target.name}"
    return CompileError(text, code="EK0604", place=here, op=function.op or None, expected=expected, got=got)
