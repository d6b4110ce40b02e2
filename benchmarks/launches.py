"""Measures what a launch costs before the driver: ops of a graph launched through a table whose function does nothing.

    python benchmarks/launches.py          nanoseconds a launch, for graphs of 1 to 512 ops

Each op is a launch of its own; the entry is called alone, as a replay does it. The table's function is a few
instructions that count, so that what is left is the host's half: the description, the arguments, the call, the checks.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from einkorn.compiler.codegen import llvm
from einkorn.compiler.targets import host
from einkorn.dsl.contract import abi
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.driver import devices
from einkorn.graph.driver.device import Backend, Code, CodeFile
from einkorn.graph.driver.halves import open_halves
from einkorn.graph.driver.host import HostDriver
from einkorn.graph.driver.shared_library import SharedLibrary

# Counts in a field that nothing else uses.
NOTHING = f"""
define i32 @nothing(ptr %device, ptr %launch, ptr %arguments) {{
  %at = getelementptr i8, ptr %device, i64 {abi.DeviceTable.reports.offset}
  %before = load i64, ptr %at
  %after = add i64 %before, 1
  store i64 %after, ptr %at
  ret i32 0
}}
"""
BOUND = 50  # nanoseconds a launch


class NothingDriver(HostDriver):
    """Memory of the host, and launches that do nothing."""

    api = "nothing"
    targets = ("host", "sm_80")

    def __init__(self) -> None:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(llvm.compile_module(NOTHING, host()).link())
            file.flush()
            self.library = SharedLibrary(Path(file.name))

    def load(self, files: Sequence[CodeFile]) -> Code:
        half = open_halves(files)
        return Code(half.entry, half.reports, half.keep, half.kernels, (), half.scratch)

    def table(self, code: Code) -> abi.DeviceTable:
        return abi.DeviceTable(self.library.address("nothing"))


def chain(count: int) -> Callable[[Any], Any]:
    """So many ops that are not fused: each sums up along another axis than the one before wrote."""

    def forward(x: Any) -> Any:
        for k in range(count):
            x = ops.cumsum(x, axis=k % 2)
        return x

    return forward


def nanoseconds(entry: Callable[..., int], arguments: tuple[int, ...], calls: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(calls):
        entry(*arguments)
    return (time.perf_counter_ns() - start) / calls


def main() -> int:
    """Prints a line a graph, and what a launch adds; 1 when that is more than the bound."""
    devices.KINDS.append(Backend("gpu", lambda: 1, lambda number: NothingDriver()))
    gpu, rows = DeviceRef.GPU(), []
    for count in (1, 8, 64, 512):
        graph = Graph(f"chain{count}", chain(count), [TensorType(DType.float32, ["m", "n"], gpu)])
        model = InferenceSession(devices=[Accelerator(0)]).load(graph)
        kept = model.execute(Buffer(DType.float32, (300, 300), gpu))
        call, table = model.first_caller, model.first_caller.native.table
        assert table is not None and model.code.launching is not None and model.code.launching.kernels is not None
        entry, arguments = model.code.entry, (call.native.context_at, call.memory.pointers_at, call.memory.dims_at)
        table.reports = 0
        assert entry(*arguments) == 0
        launches = table.reports or 0
        taken = [nanoseconds(entry, arguments, max(50_000 // (count + 50), 1)) for _ in range(15)]
        rows.append((launches, min(taken)))
        print(
            f"{count:4} ops, {launches:3} launches: {min(taken):9.0f} ns a call, median {statistics.median(taken):9.0f}"
        )
        del kept
    first, last = rows[1], rows[-1]
    each = (last[1] - first[1]) / (last[0] - first[0])
    print(f"a launch more: {each:.1f} ns (bound {BOUND})")
    return int(each > BOUND)


if __name__ == "__main__":
    sys.exit(main())
