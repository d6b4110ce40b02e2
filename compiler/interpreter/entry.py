"""The interpreter: runs a typed program on NumPy arrays, with exactly the semantics of compiled code.

It is the oracle of the tests, and what a debugger steps in: every operation is computed by itself, every access to
memory is checked, and the Python frames that run are those of the author's functions (see `interpreter.translate`).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ...dsl.contract import abi
from ...dsl.contract.exchange import SLOT_SIZE, exchange_at
from ...dsl.contract.unit import EntrySpec, FromBuffer, IfStep, Size, Slot, Step, WhileStep
from ...dsl.types.dtype import DType
from ...dsl.types.packing import pack, unpack
from ..ir.program import Program, Site
from .machine import Interrupted, Machine, Trap
from .pointers import Array, InterpretedPointer, buffer, window
from .translate import translate

Report = Callable[[int, list[int]], None]


class Interpreted:
    """An entry that is ready to be interpreted.

    Args:
        program: what `pipeline.typed_program` gives for `spec`. A program with notes shows a debugger the author's
            variables and stops at `breakpoint()`; one without is to the letter the one that is compiled.
    """

    def __init__(self, program: Program, spec: EntrySpec) -> None:
        self.spec = spec
        self.program = program
        self.machine = Machine(self.program, lambda site, values: None)
        self.functions = [translate(f, self.machine) for f in self.program.functions]
        self.names = _buffer_names(spec)
        # Which op each function of the program is, for messages.
        self.ops: dict[int, str] = {}
        for group, (function, _, _) in zip(spec.groups, self.program.calls, strict=True):
            self.ops.setdefault(function, group.nodes[group.root].kernel.schema.name)

    @property
    def sites(self) -> list[Site]:
        return self.program.sites

    def run(
        self,
        arrays: Sequence[Array],
        sizes: Sequence[int],
        report: Report,
        *,
        seed: int | None = None,
        stage: int = 0,
    ) -> list[int]:
        """Runs the groups of a stage; all of them where the entry has no stages. Gives, for each buffer, which one's
        place it has in the end: those of loops change places.

        Args:
            arrays: one for each buffer of the entry, contiguous; outputs and temporaries are written.
            sizes: the value of each dim slot.
            report: is called with a site and the patterns of its values for each print.
            seed: draws an order of parallel work and of GPU threads; without one they run in order.

        Raises:
            Trap: an assert failed.
            KernelError: an access outside of a buffer or to uninitialised memory; threads that part at a barrier.
        """
        machine = self.machine
        machine.report = report
        machine.random = None if seed is None else np.random.default_rng(seed)
        pointers = []
        for name, array, spec in zip(self.names, arrays, self.spec.buffers, strict=True):
            make = buffer if spec.strides is None else window
            written = spec.role in ("input", "constant") or stage > 0  # what stages before wrote is not known here
            pointers.append(make(array, name, _shape(spec.shape, sizes), written=written))
        buffers_at = {id(pointer): number for number, pointer in enumerate(pointers)}
        with np.errstate(all="ignore"):
            self._steps(self.program.stage(stage), pointers, sizes)
        return [buffers_at[id(pointer)] for pointer in pointers]

    def _steps(self, steps: Iterable[Step], pointers: list[InterpretedPointer], sizes: Sequence[int]) -> None:
        """Makes calls, as control flow says."""
        for step in steps:
            if isinstance(step, int):
                function, buffers, dims = self.program.calls[step]
                self.machine.op = self.ops[function]
                self.functions[function](*(pointers[b] for b in buffers), *map(np.int64, _shape(dims, sizes)))
            elif isinstance(step, IfStep):
                holds = pointers[step.condition].memory.data[0]
                self._steps(step.then if holds else step.otherwise, pointers, sizes)
            else:
                self._loop(step, pointers, sizes)

    def _loop(self, step: WhileStep, pointers: list[InterpretedPointer], sizes: Sequence[int]) -> None:
        while True:
            self._steps(step.predicate, pointers, sizes)
            if not pointers[step.condition].memory.data[0]:
                return
            self._steps(step.body, pointers, sizes)
            for one, other in step.swaps:
                pointers[one], pointers[other] = pointers[other], pointers[one]

    def entry(self, context_at: int, pointers_at: int, dims_at: int) -> int:
        """As compiled code is called (`dsl.contract.abi`): addresses of the context, of the pointers and of the
        sizes."""
        context = abi.Context.from_address(context_at)
        sizes = list((ctypes.c_int64 * self.spec.slots).from_address(dims_at)) if self.spec.slots else []
        places = (ctypes.c_void_p * len(self.spec.buffers)).from_address(pointers_at)
        addresses = list(places)
        arrays = []
        for spec, address in zip(self.spec.buffers, addresses, strict=True):
            strides = None if spec.strides is None else _shape(spec.strides, sizes)
            arrays.append(_array_at(address or 0, spec.dtype, _shape(spec.shape, sizes), strides))
        native = abi.ReportFunction(context.report)
        slots = context.collectives
        if slots:
            self.machine.exchange = lambda site, *given: exchange_at(context_at, slots + site * SLOT_SIZE, *given)

        def report(site: int, values: list[int]) -> None:
            native(context_at, site, (ctypes.c_int64 * max(1, len(values)))(*values))

        try:
            order = self.run(arrays, sizes, report, stage=context.stage)
            for number, place in enumerate(order):  # as compiled code leaves them
                if number != place:
                    places[number] = addresses[place]
        except Interrupted:
            return 1
        except Trap as stop:
            report(stop.site, stop.values)
            context.status = stop.site + 1
            return 1
        finally:
            for spec, array, address in zip(self.spec.buffers, arrays, addresses, strict=True):
                if not spec.dtype.is_packed():
                    continue
                before = _array_at(address or 0, spec.dtype, array.shape)
                if array.tobytes() != before.tobytes():
                    data = pack(array)
                    ctypes.memmove(address, data.ctypes.data, data.size)
        return 0


def _shape(shape: Sequence[Size], sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sizes[n.index] if isinstance(n, Slot) else n for n in shape)


def _array_at(address: int, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Array:
    """The memory at an address as an array; elements that share bytes are unpacked into one of their own."""
    count = math.prod(shape)
    if count == 0 or address == 0:
        return np.empty(shape, dtype.to_numpy())
    if strides is not None:
        size = dtype.size_in_bytes
        reach = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
        low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
        around = memoryview((ctypes.c_uint8 * ((high - low + 1) * size)).from_address(address + low * size))
        return np.ndarray(shape, dtype.to_numpy(), around, -low * size, [stride * size for stride in strides])
    raw = memoryview((ctypes.c_uint8 * dtype.bytes_for(count)).from_address(address))
    if dtype.is_packed():
        return unpack(np.frombuffer(raw, np.uint8), dtype, shape)
    return np.ndarray(shape, dtype.to_numpy(), buffer=raw)


def _buffer_names(spec: EntrySpec) -> list[str]:
    """The name of an argument that each buffer is: of the kernel that writes it, or of the first that reads it."""
    names: dict[int, str] = {}
    for group in spec.groups:
        for store in group.stores:
            names.setdefault(store.buffer, group.nodes[store.node].kernel.schema.outputs[store.output].name)
        for node in group.nodes:
            for operand, argument in zip(node.inputs, node.kernel.schema.inputs, strict=True):
                if isinstance(operand, FromBuffer):
                    names.setdefault(operand.buffer, argument.name)
    return [names.get(k, f"buffer {k}") for k in range(len(spec.buffers))]
