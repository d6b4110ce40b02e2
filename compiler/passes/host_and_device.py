"""Splits a program with launches into what the host runs and what the device runs.

    func f(x, n):                            host:    func f(x, n):
      %m = ...                                          %m = ...
      if %c {                                           if %c {
        launch %g, 1, 1, 256, 1, 1 {   =>                 enqueue %g, 1, 1, 0, x, %m {kernel=0, block=256,1,1}
          ...                                           }
        }                                    device:  kernel f_kernel_0(x, %m) block 256, 1, 1:
      }                                                 ...

A kernel is the region of a launch as it is: its parameters are the values that it takes from outside, in the order of
their first use, so that what is known of these is known in the kernel, too. The host's functions are made anew: passes
that decide something of them do not change the program that they come from.

See also `lowering.launches` (how kernels are launched).
"""

from __future__ import annotations

from dataclasses import replace

from ...dsl.diagnostics.errors import CompileError, InternalError
from ...dsl.types.dtype import SIMDType
from ..ir.builder import Builder
from ..ir.copying import Copier
from ..ir.opcodes import LAUNCH
from ..ir.program import (
    LAUNCH_SIZES,
    LaunchBounds,
    Op,
    PointerType,
    Program,
    ProgramFunction,
    Region,
    Value,
    captures,
    has_reports,
    of_clusters,
    walk,
)
from ..ir.shared_memory import static_shared
from ..targets import Target


def host_and_device(program: Program, target: Target, hosts: int = 1) -> tuple[list[Program], Program]:
    """The program that launches kernels by their numbers, once for each of so many hosts, and that of the kernels.

    Raises:
        CompileError: EK0604 a grid is too large for the device or is not a whole number of clusters, whatever the sizes
            are.
    """
    for function in program.functions:
        if any(_wide(launch) for launch in _launches(function)):
            _take_apart(function.body, Builder(function.bounds))
    return [host_half(program, target) for _ in range(hosts)], device_half(program)


def _wide(launch: Op) -> list[Value]:
    """The vectors and complex numbers that a kernel takes from the host's code."""
    numbers = [value for value in captures(launch.regions[0]) if not isinstance(value.type, PointerType)]
    return [value for value in numbers if value.simd.width > 1 or value.dtype.is_complex()]


def _take_apart(region: Region, builder: Builder) -> None:
    """Has launches hand over vectors lane by lane and complex numbers part by part: arguments have 8 bytes at most."""
    ops, region.ops = region.ops, []
    with builder.inside(region):
        for op in ops:
            builder.location = op.location
            if op.opcode is LAUNCH:
                while wide := _wide(op):  # lanes may be complex
                    for value in wide:
                        _piece_by_piece(value, op.regions[0], builder)
            else:
                for inner in op.regions:
                    _take_apart(inner, builder)
            region.ops.append(op)


def _piece_by_piece(old: Value, kernel: Region, builder: Builder) -> None:
    """The host takes a vector or a complex number apart, and the kernel puts it together."""
    if old.simd.width > 1:
        one = SIMDType(old.dtype)
        pieces = [builder.one("extract", [old], one, lane=lane) for lane in range(old.simd.width)]
        joined = "lanes"
    else:
        pieces = [builder.one(part, [old], SIMDType(old.dtype.part)) for part in ("real", "imag")]
        joined = "complex"
    with builder.inside(Region()) as before:
        whole = builder.one(joined, pieces, old.type)
    for op in walk(kernel):
        op.operands[:] = [whole if value is old else value for value in op.operands]
    kernel.ops[:0] = before.ops


def device_half(program: Program) -> Program:
    """The kernels of a program, each as a function; its place among them is its number."""
    device = Program(sites=program.sites, fastmath=program.fastmath, kernels=program.kernels)
    for function in program.functions:
        device.functions += [_kernel(function, number, op) for number, op in enumerate(_launches(function))]
    return device


def host_half(program: Program, target: Target) -> Program:
    """The functions of a program, with launches of kernels by their numbers; `target` is the device's."""
    host, first = replace(program, functions=[], on_device=True), 0
    for function in program.functions:
        numbers = {id(op): first + number for number, op in enumerate(_launches(function))}
        host.functions.append(_HostCode(function, numbers, target).function())
        first += len(numbers)
    return host


def _launches(function: ProgramFunction) -> list[Op]:
    return [op for op in walk(function.body) if op.opcode is LAUNCH]


def _kernel(function: ProgramFunction, number: int, launch: Op) -> ProgramFunction:
    params = captures(launch.regions[0])
    if any(isinstance(value.type, PointerType) and value.type.space not in ("global", "map") for value in params):
        raise InternalError("a kernel cannot take storage of the host")
    given = launch.attrs.get("max_registers"), launch.attrs.get("min_blocks")
    launched = LaunchBounds(block_of(launch), cluster_of(launch), launch.location, *given)
    name = f"{function.name}_kernel_{number}"
    return replace(function, name=name, params=params, body=launch.regions[0], launched=launched)


def block_of(launch: Op) -> tuple[int, int, int]:
    """The size of a launch's blocks."""
    x, y, z = (int(size.const) for size in launch.operands[3:6])
    return x, y, z


def cluster_of(launch: Op) -> tuple[int, int, int]:
    """The size of a launch's clusters."""
    x, y, z = launch.attrs.get("cluster", (1, 1, 1))
    return x, y, z


class _HostCode(Copier):
    """Copies a function, with kernels launched by their numbers."""

    def __init__(self, old: ProgramFunction, numbers: dict[int, int], target: Target) -> None:
        """`numbers` are those of the kernels, by the identities of their launches; `target` is the device's."""
        super().__init__()
        self.old = old
        self.numbers = numbers
        self.target = target

    def function(self) -> ProgramFunction:
        params = [self.fresh(value) for value in self.old.params]
        body = self.region(self.old.body)
        return replace(self.old, params=params, body=body, bounds=self.bounds(self.old.bounds))

    def copy(self, old: Op, region: Region) -> None:
        if old.opcode is LAUNCH:
            self.launch(old, region)
        else:
            super().copy(old, region)

    def launch(self, old: Op, region: Region) -> None:
        builder = Builder()
        builder.location = old.location
        with builder.inside(region):
            counts = [self.value(value) for value in old.operands[:3]]
            shared = self.value(old.operands[6])
            taken = [self.value(value) for value in captures(old.regions[0])]
            operands = [*counts, shared, *taken]
            number, block, cluster = self.numbers[id(old)], block_of(old), cluster_of(old)
            static = static_shared(old.regions[0])
            limits = (*self.target.most_blocks(block), self.target.limits.shared_memory - static)
            if not any(count.const == 0 for count in counts):
                for value, limit, words in zip(operands, limits, LAUNCH_SIZES, strict=False):
                    if value.const is not None and value.const > limit:
                        has = f"{self.target.name} has at most {limit:,}"
                        given = f"{int(value.const):,} {words}"
                        raise self.refused(old, int(value.const), limit, f"{given}, and {has}")
                for value, size, words in zip(counts, cluster, LAUNCH_SIZES, strict=False):
                    if value.const is not None and value.const % size:
                        given = f"{of_clusters(words, size)}{int(value.const):,}"
                        raise self.refused(old, int(value.const), size, given)
            builder.add("enqueue", operands, kernel=number, block=block, cluster=cluster, limits=limits)
            if static:
                region.ops[-1].attrs["static"] = static
            if not self.target.has_context and has_reports(old.regions[0]):
                region.ops[-1].attrs["reports"] = True

    def refused(self, launch: Op, size: int, limit: int, words: str) -> CompileError:
        text = f"a launch in op '{self.old.op}' requests {words}"
        place = launch.location.author()[0]
        return CompileError(text, code="EK0604", place=place, op=self.old.op, expected=limit, got=size)
