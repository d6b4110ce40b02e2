"""One program four ways: interpreted; compiled without optimisation; with all of it, and its ops fused together; and
this by two threads. All bits have to agree, and so have failures.

As a program, it is the child of a fuzzing campaign: one request a line on standard input, one answer a line on standard
output, both JSON. LLVM may abort it, or never come back; the parent notices.
"""

from __future__ import annotations

import functools
import io
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.compiler.interpreter.entry import Interpreted
from einkorn.compiler.ir.program import NotFusible
from einkorn.compiler.pipeline import compile_entry, typed_program
from einkorn.compiler.runtime.thread_pool import pool_object
from einkorn.compiler.targets import lookup
from einkorn.dsl.contract.checks import parse_checks
from einkorn.dsl.diagnostics.errors import CompileError, InternalError, KernelError
from einkorn.graph import CPU, Buffer, BufferType, BufferValue, DeviceRef, DType, Graph, Model, TensorType, ops
from einkorn.graph.calling import native_call as calls
from einkorn.graph.calling.outputs import Output
from einkorn.graph.driver.device import ALIGNMENT, CodeFile
from einkorn.graph.driver.shared_library import SharedLibrary
from einkorn.graph.driver.threads import ThreadPool
from einkorn.graph.findings.reports import reports_of
from einkorn.graph.ir import GraphIR
from einkorn.graph.loading.code import LoadedCode, open_code
from einkorn.graph.loading.compile import node_facts
from einkorn.graph.passes.fusion import partition
from einkorn.graph.passes.memory_plan import make_plan

sys.path.insert(0, str(Path(__file__).parent))

from answering import answer_lines
from programs import Program, arrays_of

Array = np.ndarray[Any, Any]
HOST = DeviceRef.CPU()
FIXED = (1, 16)  # sizes that signatures may have as numbers
GUARD = 64  # bytes around each output that nothing may write


@dataclass(frozen=True)
class Failure:
    """How a program stopped itself."""

    code: str
    line: int
    text: str
    index: str


Found = list[Array] | Failure


# *** graphs ***


def graph_of(program: Program, file: Path) -> Graph:
    """The calls of a program's ops; the outputs are what no call reads."""
    steps = program.graph or (("k", tuple(range(len(program.inputs)))),)

    def forward(*inputs: Any) -> list[Any]:
        results: list[Any] = []
        read: set[int] = set()

        def value(number: Any) -> Any:
            if not isinstance(number, int):
                return [value(n) for n in number]
            read.add(number)
            return inputs[number] if number >= 0 else results[-1 - number]

        for name, operands in steps:
            values = [value(number) for number in operands]
            if name == "value[::-1]":
                results.append(values[0][::-1])
            elif name.startswith("ops."):
                made = getattr(ops, name[4:])(*values)
                results += [made] if made is not None else []
            elif any(isinstance(value, BufferValue) for value in values):
                results += ops.inplace_custom(name, device=HOST, values=values)
            else:
                results += ops.custom(name, device=HOST, values=values)
        return [result for number, result in enumerate(results) if -1 - number not in read]

    def dim(size: int) -> int | str:
        return f"n{size}" if program.symbolic and size not in FIXED else size

    types = [
        (BufferType if "buffer" in layout else TensorType)(DType[dtype], [dim(n) for n in shape], HOST)
        for dtype, shape, *layout in program.inputs
    ]
    return Graph("fuzz", forward=forward, input_types=types, custom_extensions=[str(file)])


def interpreted(ir: GraphIR, checks: str, fuse: bool = False) -> LoadedCode:
    """A graph for the interpreter, one op after the other unless they are to be fused."""
    target = lookup("host")
    plan = make_plan(ir, partition(ir, functools.partial(node_facts, ir, target), fuse=fuse))
    assert plan.entry is not None
    spec = replace(plan.entry, checks=str(parse_checks(checks)))
    code = Interpreted(typed_program(spec, target), spec)
    return LoadedCode(code.entry, plan, reports_of(code.sites), "interpreter")


def compiled(ir: GraphIR, checks: str, level: int, fuse: bool) -> LoadedCode:
    """A graph as machine code."""
    target = replace(lookup("host"), level=level)
    plan = make_plan(ir, partition(ir, functools.partial(node_facts, ir, target), fuse=fuse))
    assert plan.entry is not None
    try:
        artifact = compile_entry(replace(plan.entry, checks=str(parse_checks(checks))), target)
    except NotFusible:
        if not fuse:
            raise
        return compiled(ir, checks, level, False)
    with tempfile.NamedTemporaryFile(suffix=".so") as shared:
        shared.write(artifact.code)
        shared.flush()
        file = CodeFile("so", target.key, Path(shared.name), len(artifact.code))
        return open_code([file], CPU(), plan, f"-O{level}")


# *** runs ***


@functools.cache
def _pool(*_: Any) -> ThreadPool:
    handle, name = tempfile.mkstemp(suffix=".so")
    os.write(handle, pool_object(lookup("host")))
    os.close(handle)
    pool = ThreadPool(SharedLibrary(Path(name)), 2)
    os.unlink(name)
    return pool


@contextmanager
def surroundings(threads: int) -> Iterator[list[Array]]:
    """Calls run on so many threads, and into memory that is full of a pattern and has guards around it: these."""
    guards: list[Array] = []

    def empty(shape: tuple[int, ...], dtype: Any) -> Array:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = np.full(size + 2 * GUARD + ALIGNMENT, 0xA5, np.uint8)
        first = GUARD + -(memory.ctypes.data + GUARD) % ALIGNMENT
        guards.extend((memory[:first], memory[first + size :]))
        return memory[first : first + size].view(dtype).reshape(shape)

    before = calls.thread_pool
    calls.thread_pool = _pool if threads > 1 else lambda *_: None
    try:
        with results_in(empty):
            yield guards
    finally:
        calls.thread_pool = before


@contextmanager
def results_in(empty: Callable[[tuple[int, ...], Any], Array]) -> Iterator[None]:
    """Results of calls lie in memory that `empty` gives."""

    def take(self: Output) -> Array:
        return empty((self.size,), np.uint8) if self.dtype.is_packed() else empty(self.shape, self.dtype.to_numpy())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Output, "take", take)
        yield


def run(ir: GraphIR, load: Callable[[GraphIR], LoadedCode], arrays: Sequence[Array], threads: int = 1) -> Found:
    """One call of a graph: its outputs, what it has changed in place, and what it has printed, in no order.

    Raises:
        AssertionError: something was written that is not an output.
    """
    changed = [isinstance(type, BufferType) for type in ir.inputs]
    given = [
        Buffer.from_numpy(array.copy()) if change else array for array, change in zip(arrays, changed, strict=True)
    ]
    before = [array.tobytes() for array in arrays]
    with surroundings(threads) as guards, redirect_stdout(io.StringIO()) as printed:
        try:
            collected: Found = [np.array(buffer.to_numpy()) for buffer in Model(ir, load)(*given)]
            collected += [np.array(buffer.to_numpy()) for buffer in given if isinstance(buffer, Buffer)]
            collected.append(np.frombuffer("".join(sorted(printed.getvalue().splitlines(True))).encode(), np.uint8))
        except KernelError as error:
            line = error.place.line if error.place is not None else 0
            collected = Failure(error.code, line, error.message, str(error.got))
    assert before == [array.tobytes() for array in arrays], "an input was written"
    for guard in guards:
        assert (guard == 0xA5).all(), "written outside an output"
    return collected


def outcomes(program: Program, file: Path) -> dict[str, Found]:
    """What each way gives."""
    arrays = arrays_of(program.inputs, program.seed)
    ir = graph_of(program, file).ir
    fast = functools.cache(lambda ir: compiled(ir, program.checks, 3, True))  # views have code of their own
    collected = {
        "interpreted": run(ir, lambda ir: interpreted(ir, program.checks), arrays),
        "-O0": run(ir, lambda ir: compiled(ir, program.checks, 0, False), arrays),
        "-O3": run(ir, fast, arrays),
        "two threads": run(ir, fast, arrays, 2),
    }
    alone = collected["interpreted"]
    if isinstance(alone, Failure) and collected["-O0"] == alone and not isinstance(collected["-O3"], Failure):
        # Within an op that does not read its elements, one that fails computes none of them, and does not fail.
        del collected["interpreted"], collected["-O0"]
        collected = {"fused": run(ir, lambda ir: interpreted(ir, program.checks, True), arrays), **collected}
    return collected


# *** comparisons ***


def difference(found: dict[str, Found]) -> str | None:
    """How the ways differ, or None."""
    (first, wanted), *others = found.items()
    for way, got in others:
        if isinstance(wanted, Failure) or isinstance(got, Failure):
            # Of several failures, the one that is reported is the first that a thread reaches.
            if type(wanted) is not type(got) or (way != "two threads" and wanted != got):
                return f"{first}: {shown(wanted)}; {way}: {shown(got)}"
            continue
        for number, (a, b) in enumerate(zip(wanted, got, strict=True)):
            if a.shape != b.shape:
                return f"output {number} has shape {a.shape} {first}, {b.shape} with {way}"
            wrong = _wrong(np.atleast_1d(a), np.atleast_1d(b))
            if wrong.any():
                at = tuple(int(k[0]) for k in np.nonzero(wrong))
                values = np.atleast_1d(a)[at], np.atleast_1d(b)[at]
                return f"output {number} at {at}: {values[0]!r} {first}, {values[1]!r} with {way}"
    return None


def shown(found: Found) -> str:
    return "results" if not isinstance(found, Failure) else f"{found.code}, line {found.line}: {found.text}"


def _wrong(a: Array, b: Array) -> Array:
    """Where elements differ; all NaN are one."""
    bits = f"u{a.dtype.itemsize}"
    wrong: Array = np.ascontiguousarray(a).view(bits) != np.ascontiguousarray(b).view(bits)
    if DType.from_numpy(a.dtype).is_float():
        with np.errstate(invalid="ignore"):
            wrong &= ~(np.isnan(a) & np.isnan(b))
    return wrong


def check(program: Program) -> tuple[str, str]:
    """What became of a program, and more about it.

    That is "same", "fails" (in the same way each time), "differs", "refused" (by the compiler) or "fault".
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.py"
        file.write_text(program.text)
        try:
            actual = outcomes(program, file)
        except InternalError as error:
            return "fault", str(error)
        except CompileError as error:
            return "refused", str(error)
        except Exception:
            return "fault", traceback.format_exc()
    wrong = difference(actual)
    if wrong is not None:
        return "differs", wrong
    first = next(iter(actual.values()))
    return ("fails", first.code) if isinstance(first, Failure) else ("same", "")


def main() -> None:
    answer_lines(lambda line: check(Program(**json.loads(line))))


if __name__ == "__main__":
    main()
