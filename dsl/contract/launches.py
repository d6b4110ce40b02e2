"""Defines what is counted of a launch on a GPU: by a simulated one as it runs, or by the compiler without running it.

See also `graph.profiling.launch_counters`, `compiler.explorer.static_counts` (the two that count),
`graph.profiling.roofline` (the estimates).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ..diagnostics.dataclass import dataclass


@dataclass(frozen=True)
class LaunchCounters:
    """What a launch of a kernel did.

    Fields:
        blocks, threads, shared: of the grid; of a block, and its bytes of shared memory. A cluster counts as a block.
        lanes: threads of a warp.
        requests, bytes, sectors: of global memory, as in `LineCounters`.
        distinct: sectors that were moved, each once.
        cached: sectors that multiprocessors request: of what a block reads each once, as its own cache has it then, and
            all that its warps write.
        turns, conflicts: of shared memory, as in `LineCounters`.
        operations: of floats, by what computes them: `float32`, `float64`, and `dot.` with what a matrix product
            multiplies; a fused multiplication and addition is two.
        registers: of a thread; 0 where that is unknown.
        instructions: of all warps; 0 where they are not counted.
        chain: how many answers of memory a block waits for, one behind the other; 0 where that is unknown.
    """

    op: str
    kernel: str
    blocks: int
    threads: int
    shared: int
    lanes: int
    requests: int
    bytes: int
    sectors: int
    distinct: int
    cached: int
    turns: int
    conflicts: int
    operations: Mapping[str, int] = field(hash=False)
    registers: int = 0
    instructions: int = 0
    chain: float = 0.0

    @property
    def name(self) -> str:
        """The op and its kernel."""
        return self.op if self.kernel in ("", self.op) else f"{self.op}: {self.kernel.strip('_')}"
