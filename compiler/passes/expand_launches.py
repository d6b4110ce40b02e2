"""Turns grids into loops where no hardware runs them: blocks in parallel, the threads of a block in order.

    launch gx, gy, gz, bx, by, bz              parallel gx * gy * gz, 1 (low, high)
      t = gpu_id {which=thread_idx.x}    =>      for block in [low, high)
      ...                                          for z in [0, bz), for y in [0, by), for t in [0, bx)
                                                     ...

See also `lowering.coroutines` (launches whose threads wait for each other or share memory; these stay).
"""

from __future__ import annotations

from ...dsl.types.dtype import INT
from ..ir.builder import Builder
from ..ir.indices import WITHIN_BLOCKS
from ..ir.opcodes import GPU_ID, LAUNCH
from ..ir.program import Op, Program, ProgramFunction, Region, Value, walk
from ..ir.simulation import cooperates
from ..targets import Target


def expand_launches(program: Program, target: Target) -> None:
    """Turns every launch of threads that do not know of each other into loops."""
    if not target.has_grid or target.simulates:
        for function in program.functions:
            if not target.checks_memory and any(_is_plain(op) for op in walk(function.body)):
                _Expander(function).region(function.body)


def _is_plain(op: Op) -> bool:
    return op.opcode is LAUNCH and not cooperates(op.regions[0])


class _Expander:
    def __init__(self, function: ProgramFunction) -> None:
        self.bounds = function.bounds
        self.builder = Builder(function.bounds)

    def region(self, region: Region) -> None:
        ops, region.ops = region.ops, []
        with self.builder.inside(region):
            for op in ops:
                for inner in op.regions:
                    self.region(inner)
                if _is_plain(op):
                    self.expand(op)
                else:
                    region.ops.append(op)

    def expand(self, launch: Op) -> None:
        builder = self.builder
        builder.location = launch.location
        counts, sizes = launch.operands[:3], launch.operands[3:6]
        total = builder.product(counts)
        low, high = builder.counter(Value(INT)), builder.counter(Value(INT), high=total, closed=True)
        region = Region([low, high])
        with builder.inside(region):
            blocks = builder.for_loop(low, high)
            with builder.inside(blocks):
                rest = builder.idiv(blocks.args[0], counts[0])
                numbers = {
                    "block_idx.x": builder.irem(blocks.args[0], counts[0]),
                    "block_idx.y": builder.irem(rest, counts[1]),
                    "block_idx.z": builder.idiv(rest, counts[1]),
                }
                for value, count in zip(numbers.values(), counts, strict=True):
                    if value.const is None:
                        builder.counter(value, None, count)
                self.threads(launch.regions[0], sizes, "zyx", numbers)
                builder.end()
            builder.end()
        builder.add("parallel", [total, builder.int_(1)], regions=[region])

    def threads(self, body: Region, sizes: list[Value], axes: str, numbers: dict[str, Value]) -> None:
        """The loops over the threads of a block, the first axis outermost, with the body in the last."""
        if not axes:
            self.number(body, numbers)
            self.builder.region.ops += body.ops
            return
        loop = self.builder.for_loop(self.builder.int_(0), sizes["xyz".index(axes[0])])
        with self.builder.inside(loop):
            self.threads(body, sizes, axes[1:], numbers | {f"thread_idx.{axes[0]}": loop.args[0]})
            if len(axes) > 1:
                self.builder.end()

    def number(self, body: Region, numbers: dict[str, Value]) -> None:
        """Puts the numbers of thread and block in the place of the operations that request them."""
        ids = [op for op in walk(body) if op.opcode is GPU_ID]
        for op in ids:
            which = op.attrs["which"]
            if which not in numbers:
                numbers[which] = self.derived(which, op.attrs["of"], numbers)
        known = {op.results[0].serial: numbers[op.attrs["which"]] for op in ids}
        _drop(body)
        for op in walk(body):
            op.operands[:] = [known.get(value.serial, value) for value in op.operands]
        for bounds in self.bounds.values():
            bounds[:] = [
                (low and known.get(low.serial, low), high and known.get(high.serial, high), closed)
                for low, high, closed in bounds
            ]

    def derived(self, which: str, of: tuple[int, ...], numbers: dict[str, Value]) -> Value:
        """A number that follows from those of thread and block."""
        builder = self.builder
        what, _, axis = which.partition(".")
        if what in WITHIN_BLOCKS:
            x, y, z = (numbers[f"thread_idx.{axis}"] for axis in "xyz")
            rows = builder.iadd(y, builder.imul(builder.int_(of[1]), z))
            number = builder.iadd(x, builder.imul(builder.int_(of[0]), rows))
        else:
            number = numbers[f"block_idx.{axis}"]
        divide = builder.irem if what in ("lane_idx", "block_in_cluster") else builder.idiv
        return divide(number, builder.int_(of[-1]))


def _drop(region: Region) -> None:
    region.ops = [op for op in region.ops if op.opcode is not GPU_ID]
    for op in region.ops:
        for inner in op.regions:
            _drop(inner)
