"""Calls a graph's code: checks inputs, finds memory, makes one native call, raises what kernels report.

A `Caller` has four parts: a plan, which never changes (`call_plan`); memory (`call_memory`); a context for native code
(`native_call`); and what takes the reports of kernels (`call_reports`). On simulated devices `simulated_call` looks at
what kernels do.

See also `loading.load` (how code is made and loaded).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from ...dsl.contract import abi
from ..driver.arrays import check_memory
from ..driver.buffer import Buffer
from ..driver.device import Array, Storage
from ..driver.devices import Device
from ..driver.streams import current_stream
from ..ir import GraphIR
from ..loading.code import LoadedCode
from ..types.strides import Pattern, pattern_of
from .call_memory import CallMemory
from .call_plan import CallPlan
from .call_reports import ReportCollector
from .inputs import InputCheck, known_sizes
from .native_call import NativeCall
from .outputs import Filling, Output
from .simulated_call import SimulatedCall

ndarray = np.ndarray  # the hot path finds it faster so


class Caller:
    """Calls the code of a graph, one call at a time.

    Args:
        plan: how it is called.
        filling: of memory that kernels write; None leaves it as it is.
        like: a caller of the same code, with which it shares constants.

    Attributes:
        given: where the outputs of the call under way go; None where the caller of the model does not say.
        variants: the callers for arrays that are not contiguous, by pattern.
        known: callers that have the code for a pattern, of this caller and of all that are like it.
        late_sizes: the sizes that the last call computed on the way.
    """

    collector: ClassVar[type[ReportCollector]] = ReportCollector

    def __init__(self, plan: CallPlan, filling: Filling | None = None, like: Caller | None = None) -> None:
        self.plan = plan
        self.native = NativeCall(plan)
        held: CallMemory | None = None if like is None else like.memory
        self.memory: CallMemory = CallMemory(plan, self.native.table, filling, held)
        driver = plan.driver
        is_simulated = driver.draws or driver.checked is not None
        self.simulated = SimulatedCall(plan, self.memory, self.native) if is_simulated else None
        self.reports = self.collector(plan, self.native, self.simulated, filling)
        self.reports.memory = self.memory
        self.given: Sequence[Buffer | None] | None = None
        self.variants: dict[tuple[Pattern, ...], Caller] = {}
        self.known: dict[tuple[Pattern, ...], Caller] = {} if like is None else like.known
        self.late_sizes: dict[str, int] = {}
        self._address_of = driver.address_of
        self._finishes = bool(plan.copies) or self.simulated is not None

    @property
    def ir(self) -> GraphIR:
        """The graph, for inputs that lie as this caller takes them."""
        return self.plan.ir

    @property
    def code(self) -> LoadedCode:
        """The code that it calls."""
        return self.plan.code

    @property
    def checks(self) -> Sequence[InputCheck]:
        """What its inputs have to be."""
        return self.plan.checks

    @property
    def interrupt(self) -> BaseException | None:
        """What ends the call under way."""
        return self.reports.interrupt

    @property
    def output_class(self) -> Callable[..., Output]:
        """What the memory of results is taken from."""
        return self.memory.output_class

    @output_class.setter
    def output_class(self, chosen: Callable[..., Output]) -> None:
        self.memory.output_class = chosen

    @property
    def devices(self) -> list[Device]:
        """Where the graph runs."""
        return [self.plan.device]

    def all(self) -> list[Caller]:
        """It and the callers for other patterns."""
        return [self, *list(self.variants.values())]

    def codes(self) -> list[LoadedCode]:
        """The code that it calls."""
        return [self.plan.code]

    def held_memory(self) -> list[Storage]:
        """The storage of constants and weights."""
        return [*self.memory.constants.values()]

    def clone(self, filling: Filling | None = None) -> Caller:
        """Another caller of the same code, with memory of its own for its calls."""
        return type(self)(self.plan, filling or self.memory.filling, self)

    # *** calls ***

    def run(self, inputs: Sequence[object]) -> list[Buffer]:
        """One call. This is the hot path: the checks that always hold are one comparison each."""
        arrays, shapes, plain, address_of = [], [], True, self._address_of
        pointers = self.memory.pointers
        for value, (check, position) in zip(inputs, self.plan.inputs, strict=True):
            if check.special:
                value, shape = check.storage(value)
            else:
                if type(value) is not ndarray or value.dtype is not check.dtype or not value.flags.c_contiguous:
                    value = check.array(value)
                    plain = plain and value.flags.c_contiguous
                shape = value.shape
            address = address_of(value)
            if address & check.misalign:
                check.misplaced(value, address)
            arrays.append(value)
            shapes.append(shape)
            pointers[position] = address
        return self._go(arrays, shapes, shapes) if plain else self._run_views(arrays, shapes)

    def _run_views(self, arrays: list[Array], shapes: list[tuple[int, ...]]) -> list[Buffer]:
        """A call with arrays that are not contiguous: by code for their pattern, made at first use."""
        patterns = tuple(pattern_of(array) for array in arrays)
        call = self.variants.get(patterns)
        if call is None:
            if self.memory.outer is None:
                known_sizes(self.plan.checks, shapes)  # no code is made for sizes that the graph does not take
            # Code for elements that share memory would not compile.
            check_memory(self.plan.ir.argument_names, arrays, self.plan.changed)
            call = self.variant(patterns)
            self.known.setdefault(patterns, call)
        for array, (_, position) in zip(arrays, call.plan.inputs, strict=True):
            call.memory.pointers[position] = self._address_of(array)
        call.given = self.given
        try:
            return call._go(arrays, shapes, [shapes, [array.strides for array in arrays]])
        finally:
            call.given, self.late_sizes = None, call.late_sizes

    def variant(self, patterns: tuple[Pattern, ...]) -> Caller:
        """The caller for inputs that lie so; made at first use."""
        entry = self.variants.get(patterns)
        if entry is None:
            known = self.known.get(patterns)
            plan = self.plan.for_patterns(patterns) if known is None else known.plan
            entry = type(self)(plan, self.memory.filling, known)
            entry.memory.output_class, entry.memory.outer = self.memory.output_class, self.memory.outer
            self.variants[patterns] = entry
        return entry

    def _go(self, arrays: list[Array], shapes: list[tuple[int, ...]], layout: list[Any]) -> list[Buffer]:
        """The native call, with the pointers to the inputs in their places."""
        plan, memory, native = self.plan, self.memory, self.native
        if layout != memory.layout:
            memory.fit(arrays, shapes, layout)
        if plan.changed:
            check_memory(plan.ir.argument_names, arrays, plan.changed)
        pointers = memory.pointers
        for number, first in plan.repeats:
            pointers[number] = pointers[first]
        if memory.computed:
            return self._go_in_stages(arrays)
        results, address_of, device = [], self._address_of, plan.device
        for output in memory.outputs if self.given is None else memory.outputs_into(self.given, arrays):
            storage = output.take()
            if output.pointer is not None:
                pointers[output.pointer] = address_of(storage)
            results.append(output.buffer_over(storage, device, output.dtype, output.shape))
        if native.table is not None:
            self._begin(native.table, arrays, results, results)
        if (code := native.entry(native.context_at, memory.pointers_at, memory.dims_at)) or native.status[0]:
            self.reports.fail(arrays, code)
        if native.late_reports is not None:
            self.expect_reports()
        if self._finishes:
            self._finish(arrays, results)
        return results

    def _go_in_stages(self, arrays: list[Array]) -> list[Buffer]:
        """As `_go`, for an entry that computes sizes on the way: each stage is laid out when its sizes are known."""
        plan, memory, native = self.plan, self.memory, self.native
        made: dict[int, Buffer] = {}
        late: dict[str, int] = {}
        for number, stage in enumerate(plan.stages):
            if number > 0:
                late |= memory.computed_sizes(number - 1)
                memory.fit_late(number, late)
            outputs = memory.outputs if self.given is None else memory.outputs_into(self.given, arrays, stage.outputs)
            for position in stage.outputs:
                output = outputs[position]
                storage = output.take()
                if output.pointer is not None:
                    memory.pointers[output.pointer] = self._address_of(storage)
                made[position] = output.buffer_over(storage, plan.device, output.dtype, output.shape)
            native.context.stage = number
            memory.enter(number)
            if native.table is not None:
                self._begin(native.table, arrays, made.values(), [made[position] for position in stage.outputs])
            if (code := native.entry(native.context_at, memory.pointers_at, memory.dims_at)) or native.status[0]:
                self.reports.fail(arrays, code)
            self.expect_reports()
        self.late_sizes = late
        results = [made[position] for position in range(len(made))]
        if self._finishes:
            self._finish(arrays, results)
        return results

    def _begin(
        self, table: abi.DeviceTable, arrays: Sequence[object], results: Iterable[Buffer], fresh: Iterable[Buffer]
    ) -> None:
        """Before an entry that launches kernels: they come behind what other streams do with their memory.

        `fresh` are the results that this stage of the call makes.
        """
        if self.simulated is not None:
            self.simulated.begin(arrays, fresh)
        driver, memory = self.plan.driver, self.memory
        storages: tuple[object, ...] = ()
        if driver.streams > 1:
            outputs = (buffer._array for buffer in results)
            storages = (*arrays, *outputs, *memory.held_arenas(), *memory.constants.values())
        driver.begin(table, self.plan.ir.name, storages)
        if self.native.late_reports is not None:
            self.native.late_reports.begin()

    def _finish(self, arrays: list[Array], results: list[Buffer]) -> None:
        """What is left behind the entry."""
        self.memory.copy_outputs(arrays, results)
        if self.simulated is not None:
            self.simulated.check_stored(results)

    def enqueue(self, arrays: Sequence[Storage]) -> None:
        """Makes the last call again with all pointers as they stand, unchecked; `expect_reports` comes after it."""
        native, memory = self.native, self.memory
        if native.table is not None:
            self._begin(native.table, arrays, (), ())
        if (code := native.entry(native.context_at, memory.pointers_at, memory.dims_at)) or native.status[0]:
            self.reports.fail(arrays, code)

    def expect_reports(self) -> None:
        """What the kernels of a call report is delivered by the next wait, or at once where every call waits."""
        if self.native.late_reports is not None:
            self.native.late_reports.end(self.reports)
            if self.plan.code.waits:
                current_stream(self.plan.driver).synchronize()

    # *** between calls ***

    def lay_out_again(self, outer: dict[str, int]) -> None:
        """The next call of a part of a graph finds its memory anew: for these sizes, which the other parts know."""
        for each in self.all():
            each.memory.outer, each.memory.layout = outer, None

    def refill(self) -> None:
        """Fills all memory between the kernels anew."""
        for each in self.all():
            each.memory.refill()

    def cancel(self) -> None:
        """Called from another thread: ends the call that is under way."""
        for each in self.all():
            each.reports.cancel()

    def forget(self) -> None:
        """Whatever call was under way is over: it was interrupted, or this is the child of a fork."""
        for each in self.all():
            each.memory.layout = None
            each.reports.forget()
