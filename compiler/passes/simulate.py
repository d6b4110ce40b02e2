"""Makes functions of the kernels of a simulated device: each launches its own threads, on the grid that it is given.

    kernel f_kernel_0(x, %m) block 256, 1, 1:       func f_kernel_0(x, %m, %gx, %gy, %gz, %shared):
      ...                                      =>     launch %gx, %gy, %gz, 256, 1, 1, %shared:
                                                        ...

What follows treats such a launch as one of the host: it becomes loops, or coroutines.

See also `lowering.launches` (how the host launches kernels), `lowering.simulated` (how these get what they are given).
"""

from __future__ import annotations

from ...dsl.types.dtype import INT
from ..ir.builder import Builder
from ..ir.program import Program, ProgramFunction, Region, Value
from ..targets import Target


def simulate(program: Program, target: Target) -> None:
    """Gives every kernel its launch."""
    for function in program.functions:
        _launch(function)


def _launch(function: ProgramFunction) -> None:
    launched = function.launched
    assert launched is not None
    builder, body = Builder(function.bounds), Region()
    builder.location = launched.location
    counts = [builder.counter(Value(INT)) for _ in range(3)]
    shared = Value(INT)
    with builder.inside(body):
        block = [builder.int_(size) for size in launched.block]
        builder.add("launch", [*counts, *block, shared], regions=[function.body], cluster=launched.cluster)
        builder.end()
    function.params = [*function.params, *counts, shared]
    function.body = body
