"""Calls a graph's code: checks inputs, finds memory, makes one native call, raises what kernels report.

Input: tensors. Output: `Buffer`s. Non-goals: how code is made and loaded (see `engine.load`).
"""

from __future__ import annotations

import ctypes
import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dsl.contract import abi
from ...dsl.diagnostics.errors import DeviceError, EinkornError, GraphError, KernelError
from ...dsl.diagnostics.places import Place, is_shipped, shown_path, user_place
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.stacks import with_room
from ...dsl.frontend.anchors import place_at
from ...dsl.frontend.program import PortableKernel
from ...dsl.types.packing import pack
from ..driver.arrays import check_memory, check_outputs
from ..driver.buffer import Buffer
from ..driver.device import Array, Storage
from ..driver.devices import Device
from ..driver.streams import current_stream
from ..ir import Constant, GraphIR, Node
from ..types.strides import Pattern, pattern_of, stride_sizes
from .code import LoadedCode
from .data_races import ACCESS, BEGIN, Accesses, records_accesses
from .inputs import InputCheck, known_sizes
from .outputs import FilledOutput, Filling, GivenOutput, Output
from .prints import OP as TENSORS
from .prints import PrintOptions, TensorPrints
from .report_callbacks import REPORT, owner_number, silent_report
from .reports import Failure, failure_error, nan_notes, read_failure, render
from .stages import stages_of
from .stored import check_stored, expect_stores
from .thread_pool import thread_pool
from .waiting import WAITING, waiting_error

if TYPE_CHECKING:
    from ...dsl.contract.checking import CheckState, Finding
    from .device_reports import CallReports
    from .schedules import Rehearsal

SCRATCH_ALIGNMENT = 256  # bytes: as `lowering.scratch` lays out pieces
ndarray = np.ndarray  # the hot path finds it faster so


def _identity(found: tuple[Finding, CheckState] | None, failure: Failure | None) -> tuple[object, ...] | None:
    """What tells failures apart, whichever threads they are of; None for none."""
    if found is not None:
        return found[0].found, frozenset((found[0].site, found[0].other_site))
    return None if failure is None else (id(failure.report),)


class Caller:
    """Calls the code of a graph, and holds the memory of its calls."""

    quiet = False  # whether prints are left out
    outer: Mapping[str, int] | None = None  # of a part of a graph: the sizes that the others know

    def __init__(
        self,
        ir: GraphIR,
        load: Callable[[GraphIR], LoadedCode],
        checks: list[InputCheck],
        filling: Filling | None = None,
        weights: Mapping[int, Storage] | None = None,
        like: Caller | None = None,
        threads: int | None = None,
    ) -> None:
        self.threads = threads  # how many take part in a call; None leaves it to the environment
        self.weights = weights or {}  # by the number of the node; shared with other models, and never written
        self.filling = filling  # of memory that kernels write; None leaves it as it is
        self.ir = ir
        self.load = load
        self.checks = checks
        self.code: LoadedCode = load(ir) if like is None else like.code
        code = self.code
        self.output_class: Callable[..., Output] = Output if filling is None else partial(FilledOutput, filling=filling)
        self.given: Sequence[Buffer | None] | None = None  # where the caller wants the outputs of this call
        self.entry, self.repeats, self.copies = with_room(code.entry), code.plan.repeats, code.plan.copies
        self.variants: dict[tuple[Pattern, ...], Caller] = {}
        self.known: dict[tuple[Pattern, ...], Caller] = {} if like is None else like.known  # has the code for a pattern
        self.device = code.device
        self.driver = code.device.driver
        self.address_of = self.driver.address_of
        plan = code.plan
        self.pointers = (ctypes.c_void_p * max(1, len(plan.buffers)))()
        self.dims = (ctypes.c_int64 * max(1, len(plan.slots)))()
        self.pointers_at = ctypes.addressof(self.pointers)
        self.dims_at = ctypes.addressof(self.dims)
        again = {number for number, _ in plan.repeats}
        pointer_of = {b.source: n for n, b in enumerate(plan.buffers) if b.source[0] != "temp" and n not in again}
        self.inputs = [(check, pointer_of["input", k]) for k, check in enumerate(checks)]
        self.buffers = [k for k, check in enumerate(checks) if check.is_buffer]
        copied = {output for output, _ in plan.copies}
        self.output_pointers = [None if k in copied else pointer_of["output", k] for k in range(len(ir.outputs))]
        self.outputs: list[Output] = []  # by position; those of a later stage are not up to date before it
        self.constants: dict[int, Storage] = self._constants() if like is None else self._shared(like.constants)
        self.layout: list[Any] | None = None  # of the inputs of the last call; what memory is laid out for
        self.stages = stages_of(ir, plan)
        self.sizes: dict[str, int] = {}
        self.late_sizes: dict[str, int] = {}  # that the last call computed on the way
        self.laid_out: list[tuple[int, ...]] = [()] * len(self.stages)  # the late sizes that each is laid out for
        self.computed: list[Storage] = [self.driver.place(np.zeros(len(s.names), np.int64)) for s in plan.steps]
        for number, memory in enumerate(self.computed):
            self.pointers[pointer_of["sizes", number]] = self.address_of(memory)
        self.arenas: list[Storage | None] = [None] * len(self.stages)
        self.scratch: list[int] = [0] * len(self.stages)  # where what each takes for itself begins
        self.failure: Failure | None = None
        self.accesses = Accesses()
        self.prints = TensorPrints(code.prints) if code.prints != PrintOptions() else None
        self.interrupt: BaseException | None = None  # that came in the middle of a report
        self.rehearsal: Rehearsal | None = None  # of the call under way, where a device draws an order of threads
        self.context = abi.Context()
        self._silent_report: Any = None  # kept: native code holds its address
        self.table = None if code.launching is None else self.driver.table(code.launching) or abi.Device()
        self.late_reports: CallReports | None = None  # of kernels that cannot call back
        self.reported_by, self.late = "", False  # which thread has reported, and whether that is later than the call
        self._prepare_context()

    def _prepare_context(self) -> None:
        """Says to native code who runs its parallel regions, who launches kernels, and who hears its reports."""
        memory = self.driver.checked
        self.watched = memory if memory is not None and memory.knows_values else None
        self.finishes = bool(self.copies) or self.watched is not None
        if self.table is not None:
            self.context.device = ctypes.addressof(self.table)
            launching = self.code.launching
            if launching is not None and launching.kernels is not None and launching.kernels.report:
                with shielded():
                    from .device_reports import CallReports  # few devices have kernels that cannot call back
                self.late_reports = CallReports(self.driver, self.table, self.entry)
                self.entry = self.late_reports.entry
        self.context_at = ctypes.addressof(self.context)
        self.context.report, self.context.owner = REPORT, owner_number(self)
        if self.code.abi == abi.SILENT_ABI:
            self._silent_report = silent_report(self, self.context_at)
            self.context.report = ctypes.cast(self._silent_report, ctypes.c_void_p)
        self.context.threads = 1
        self.pool = pool = thread_pool(self.threads)
        if pool is not None:
            self.context.pool, self.context.poll = pool.address, pool.poll
        in_order = self.driver.in_order or records_accesses(self.code.reports)
        if pool is not None and pool.threads > 1 and not in_order:
            self.context.parallel, self.context.threads = pool.run, pool.threads
        self.status = (ctypes.c_int64 * 1).from_buffer(self.context, abi.STATUS_OFFSET)
        if self.table is not None:
            self.table.context = self.context_at

    def _constants(self) -> dict[int, Storage]:
        """The storage of each buffer that is a constant or a weight."""
        kept = {}
        for number, buffer in enumerate(self.code.plan.buffers):
            if buffer.source[0] == "constant":
                node = self.ir.nodes[buffer.source[1]]
                if isinstance(node, Constant):
                    kept[number] = self.driver.place(pack(node.array) if buffer.dtype.is_packed() else node.array)
                else:
                    kept[number] = self.weights[buffer.source[1]]
                self.pointers[number] = self.address_of(kept[number])
        return kept

    def _shared(self, constants: dict[int, Storage]) -> dict[int, Storage]:
        for number, storage in constants.items():
            self.pointers[number] = self.address_of(storage)
        return constants

    def all(self) -> list[Caller]:
        """It and the callers for other patterns."""
        return [self, *list(self.variants.values())]

    @property
    def devices(self) -> list[Device]:
        """Where the graph runs."""
        return [self.device]

    def codes(self) -> list[LoadedCode]:
        """The code that it calls."""
        return [self.code]

    def held_memory(self) -> list[Storage]:
        """The storage of constants and weights."""
        return [*self.constants.values()]

    def clone(self) -> Caller:
        """Another caller of the same code, with memory of its own for its calls."""
        return Caller(self.ir, self.load, self.checks, self.filling, self.weights, self, self.threads)

    def run(self, inputs: Sequence[Any]) -> list[Buffer]:
        """One call. This is the hot path: the checks that always hold are one comparison each."""
        pointers, arrays, shapes, plain, address_of = self.pointers, [], [], True, self.address_of
        for value, (check, position) in zip(inputs, self.inputs, strict=True):
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
        """A call with arrays that are not contiguous: by code for their pattern, made when it is first met."""
        patterns = tuple(pattern_of(array) for array in arrays)
        call = self.variants.get(patterns)
        if call is None:
            check_memory(arrays, self.buffers)  # code for elements that share memory would not compile
            call = self.variants[patterns] = self._variant(patterns)
            self.known.setdefault(patterns, call)
        for array, (_, position) in zip(arrays, call.inputs, strict=True):
            call.pointers[position] = self.address_of(array)
        call.given = self.given
        try:
            return call._go(arrays, shapes, [shapes, [array.strides for array in arrays]])
        finally:
            call.given, self.late_sizes = None, call.late_sizes

    def _variant(self, patterns: tuple[Pattern, ...]) -> Caller:
        """A caller for inputs that lie so."""
        known = (self.load, self.checks, self.filling, self.weights, self.known.get(patterns), self.threads)
        call = type(self)(dataclasses.replace(self.ir, patterns=patterns), *known)
        call.output_class, call.outer = self.output_class, self.outer
        return call

    def _go(self, arrays: list[Array], shapes: list[tuple[int, ...]], layout: list[Any]) -> list[Buffer]:
        """The native call, with the pointers to the inputs in their places."""
        pointers = self.pointers
        if layout != self.layout:
            self._fit(arrays, shapes, layout)
        if self.buffers:
            check_memory(arrays, self.buffers)
        for number, first in self.repeats:
            pointers[number] = pointers[first]
        if self.computed:
            return self._go_in_stages(arrays)
        results, address_of = [], self.address_of
        for output in self.outputs if self.given is None else self._into(arrays):
            storage = output.take()
            if output.pointer is not None:
                pointers[output.pointer] = address_of(storage)
            results.append(output.buffer_over(storage, self.device, output.dtype, output.shape))
        if self.table is not None:
            self._begin(self.table, arrays, results, results)
        if (code := self.entry(self.context_at, self.pointers_at, self.dims_at)) or self.status[0]:
            self._fail(arrays, code)
        if self.late_reports is not None:
            self.expect_reports()
        if self.finishes:
            self._finish(arrays, results)
        return results

    def _begin(
        self, table: abi.Device, arrays: Sequence[Any], results: Iterable[Buffer], fresh: Iterable[Buffer]
    ) -> None:
        """Before an entry that launches kernels: they come behind what other streams do with their memory.

        `fresh` are the results that this stage of the call makes.
        """
        if self.watched is not None:
            expect_stores(self.watched, fresh)
        if self.driver.draws:
            with shielded():
                from .schedules import Rehearsal  # few devices draw anything

            self.rehearsal = Rehearsal(self, arrays, fresh)
        storages: tuple[Any, ...] = ()
        if self.driver.streams > 1:
            arenas = [arena for arena in self.arenas if arena is not None]
            storages = (*arrays, *(buffer._array for buffer in results), *arenas, *self.constants.values())
        self.driver.begin(table, self.ir.name, storages)
        if self.late_reports is not None:
            self.late_reports.begin()

    def _go_in_stages(self, arrays: list[Array]) -> list[Buffer]:
        """As `_go`, for an entry that computes sizes on the way: each stage is laid out when its sizes are known."""
        made: dict[int, Buffer] = {}
        late: dict[str, int] = {}
        for number, stage in enumerate(self.stages):
            if number > 0:
                late |= self._computed_sizes(number - 1)
                known = tuple(late.values())
                if known != self.laid_out[number]:
                    self._fit_stage(number, self.sizes | late)
                    self.laid_out[number] = known
            outputs = self.outputs if self.given is None else self._into(arrays, stage.outputs)
            for position in stage.outputs:
                output = outputs[position]
                storage = output.take()
                if output.pointer is not None:
                    self.pointers[output.pointer] = self.address_of(storage)
                made[position] = output.buffer_over(storage, self.device, output.dtype, output.shape)
            self.context.stage = number
            if self.table is not None:
                self.table.scratch = self.scratch[number]
                self._begin(self.table, arrays, made.values(), [made[position] for position in stage.outputs])
            if (code := self.entry(self.context_at, self.pointers_at, self.dims_at)) or self.status[0]:
                self._fail(arrays, code)
            self.expect_reports()
        self.late_sizes = late
        results = [made[position] for position in range(len(made))]
        if self.finishes:
            self._finish(arrays, results)
        return results

    def _into(self, arrays: Sequence[Storage], positions: Iterable[int] | None = None) -> list[Output]:
        """The outputs of this call: those that the caller gives in their places, checked now that sizes are known."""
        assert self.given is not None
        outputs = list(self.outputs)
        for position in range(len(outputs)) if positions is None else positions:
            buffer = self.given[position]
            if buffer is not None:
                outputs[position] = GivenOutput(outputs[position], position, buffer)
        check_outputs(arrays, [None if buffer is None else buffer._array for buffer in self.given])
        return outputs

    def _computed_sizes(self, number: int) -> dict[str, int]:
        """The dims that a step has computed."""
        step = self.code.plan.steps[number]
        values = self.driver.integers(self.computed[number], len(step.names))
        if min(values, default=0) < 0:
            value, name = next((value, name) for value, name in zip(values, step.names, strict=True) if value < 0)
            raise GraphError(
                f"the shape function of op '{step.op}' gives {value} for dim '{name}'",
                code="EK0465",
                place=user_place(),
                op=step.op,
                expected="a size from 0 on",
                got=value,
                notes=[f"op '{step.op}' is staged at {step.place}"] if step.place else [],
            )
        return dict(zip(step.names, values, strict=True))

    def _finish(self, arrays: list[Array], results: list[Buffer]) -> None:
        """What is left behind the entry."""
        self.copy_outputs(arrays, results)
        if self.watched is not None:
            check_stored(self.ir, self.watched, results)

    def copy_outputs(self, arrays: list[Array], results: list[Buffer]) -> None:
        """Outputs that are inputs, constants, or given back twice."""
        for output, buffer in self.copies:
            kind, number = self.code.plan.buffers[buffer].source
            if kind == "constant":
                source = self.constants[buffer]
            else:
                source = arrays[number] if kind == "input" else results[number]._array
            self.driver.copy(results[output]._array, source)

    # sizes

    def _fit(self, arrays: list[Array], shapes: list[tuple[int, ...]], layout: list[Any]) -> None:
        """Checks the shapes against the signature and lays out the memory for them."""
        sizes = known_sizes(self.checks, shapes) if self.outer is None else dict(self.outer)
        sizes |= dict(stride_sizes(arrays, self.ir.patterns))
        self._fit_stage(0, sizes)
        self.sizes, self.laid_out = sizes, [()] * len(self.stages)
        self.layout = layout

    def _fit_stage(self, number: int, sizes: dict[str, int]) -> None:
        """Checks what a stage relies on, and lays out its memory."""
        stage, plan = self.stages[number], self.code.plan
        stage.checks.check(sizes)
        slots = [(slot, dim.evaluate(sizes)) for slot, dim in stage.slots]
        outputs: list[Any] = [*self.outputs] if number else [None] * len(self.ir.outputs)
        for position in stage.outputs:
            type = self.ir.types[self.ir.outputs[position]]
            shape = tuple(d.evaluate(sizes) for d in type.shape)
            outputs[position] = self.output_class(self.device, type.dtype, shape, self.output_pointers[position])
        offsets, total = plan.place(sizes, number)
        scratch, size = -(-total // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT, self._scratch_size(number, slots)
        total = scratch + size if size else total
        try:
            arena = self.driver.allocate(total)
        except MemoryError as error:
            raise self._too_large(total, error) from None
        self.driver.attribute(arena, f"graph '{self.ir.name}', for intermediate results")
        if self.filling is not None:
            self.driver.fill(arena, self.filling.byte)
        # Nothing failed: only now does the model change, all at once.
        if number == 0:
            self.layout = None
        for slot, value in slots:
            self.dims[slot] = value
        self.outputs, self.arenas[number] = outputs, arena
        base = self.address_of(arena)
        for buffer, offset in offsets.items():
            self.pointers[buffer] = base + offset
        if self.table is not None and size:
            self.scratch[number] = self.table.scratch = base + scratch
            self.table.scratch_size = size

    def _scratch_size(self, number: int, slots: Iterable[tuple[int, int]]) -> int:
        """How many bytes a stage takes for itself, with these values of dim slots."""
        launching = self.code.launching
        if launching is None or launching.scratch is None:
            return 0
        dims = type(self.dims)(*self.dims)
        for slot, value in slots:
            dims[slot] = value
        return launching.scratch(ctypes.addressof(dims), number)

    def _too_large(self, size: int, error: MemoryError) -> DeviceError:
        return DeviceError(
            f"graph '{self.ir.name}' needs {size:,} bytes for its intermediate results, which cannot be had",
            code=getattr(error, "code", "EK0813"),
            place=user_place(),
            got=size,
            notes=getattr(error, "notes", [str(error)]),
        )

    def refill(self) -> None:
        """Fills all memory between the kernels anew."""
        assert self.filling is not None
        for arena in self.arenas:
            if arena is not None:
                self.driver.fill(arena, self.filling.byte)
        for variant in self.variants.values():
            variant.refill()

    def cancel(self) -> None:
        """Called from another thread: ends the call that is under way."""
        self.interrupt = KernelError("the call was cancelled", code="EK0707", place=user_place())
        self.context.status = abi.INTERRUPTED
        for variant in list(self.variants.values()):
            variant.cancel()

    def enqueue(self, arrays: Sequence[Storage]) -> None:
        """Makes the last call again with all pointers as they stand, unchecked; `expect_reports` comes after it."""
        if self.table is not None:
            self._begin(self.table, arrays, (), ())
        if (code := self.entry(self.context_at, self.pointers_at, self.dims_at)) or self.status[0]:
            self._fail(arrays, code)

    def expect_reports(self) -> None:
        """What the kernels of a call report is delivered by the next wait, or at once where every call waits."""
        if self.late_reports is not None:
            self.late_reports.end(self)
            if self.code.waits:
                current_stream(self.driver).synchronize()

    def forget(self) -> None:
        """Whatever call was under way is over: it was interrupted, or this is the child of a fork."""
        self.layout, self.failure, self.interrupt = None, None, None
        self.context.status = 0
        for variant in self.variants.values():
            variant.forget()

    # reports

    def on_interrupt(self, context: int, error: BaseException) -> None:
        """Ends the call, which raises this exception."""
        self.interrupt, self.context.status = error, abi.INTERRUPTED

    def on_report(self, context: int, site: int, arguments: Any) -> None:
        """Called by native code, from any thread: prints, or notes the first failure."""
        try:
            failure = self.read_report(site, arguments)
            if self.failure is None:
                self.failure = failure
        except BaseException as error:  # of a handler of a signal, or of the stream; it cannot cross native code
            self.on_interrupt(context, error)

    def read_report(self, site: int, arguments: Any) -> Failure | None:
        """Prints a report, or gives the failure that it is."""
        report = self.code.reports[site]
        if report.kind in (BEGIN, ACCESS):
            race = self.accesses.take(report, arguments)
            if race is not None:
                self.context.status = site + 1  # the code that reports accesses does not fail by itself
            return race
        if report.kind != "print":
            return read_failure(report, arguments)
        if self.quiet or (self.filling is not None and self.filling.quiet):
            return None
        if self.prints is not None and report.op == TENSORS:
            self.prints.take(report, arguments)
        else:
            sys.stdout.write(render(report, arguments))
            sys.stdout.flush()
        return None

    def raise_reported(self, by: str, late: bool) -> None:
        """Raises the failure that was noted, of a thread of the device."""
        self.reported_by, self.late = by, late and not self.code.waits
        try:
            self._fail((), 0)
        finally:
            self.late = False

    def _fail(self, arrays: Sequence[Any], code: int) -> None:
        """Raises what a kernel reported, or else what the device says of the code that the entry gave back."""
        status, self.context.status = self.context.status, 0
        failure, self.failure = self.failure, None
        if self.table is not None:
            if failure is None and status == 0 and self.table.failed_code:
                raise self._not_launched(self.table)
            self.table.failed_kernel = self.table.failed_code = 0
        if status == abi.INTERRUPTED:
            interrupt, self.interrupt = self.interrupt, None
            if interrupt is not None:
                raise interrupt
        # Of a race, an index out of bounds may be the consequence: what was found in memory is told first.
        found = self.driver.finding() if status == abi.STOPPED or failure is not None else None
        rehearsal, self.rehearsal = self.rehearsal, None
        failed = _identity(found, failure)
        drawn = [*self.driver.notes(), *(rehearsal.notes(failed) if rehearsal and failed else [])]
        if found is not None:
            with shielded():
                from .findings import finding_error  # few devices find anything

            raise finding_error(*found, self.code.reports, self.programs(), [*drawn, self._called()])
        by, self.reported_by = [self.reported_by] if self.reported_by else [], ""
        known = self.driver.error(code) if failure is None else ""
        raise self.error_of(status, failure, arrays, [f"{self.device}: {known}"] if known else [*by, *drawn])

    def ended(self) -> tuple[object, ...] | None:
        """How the entry has ended, when it was called once more: what is told apart of failures; None for none."""
        status, self.context.status = self.context.status, 0
        failure, self.failure = self.failure, None
        if self.table is not None:
            self.table.failed_kernel = self.table.failed_code = 0
        if status == abi.INTERRUPTED:
            raise self.error_of(status, None, ()) if self.interrupt is None else self.interrupt
        return _identity(self.driver.finding(), failure)

    def error_of(
        self, status: int, failure: Failure | None, arrays: Sequence[Any], notes: Sequence[str] = ()
    ) -> BaseException:
        """What a call raises that ended with this status, and has reported this."""
        if status == abi.INTERRUPTED:
            return self.pool.raised() if self.pool is not None else KeyboardInterrupt()
        if status == abi.NO_MEMORY:
            text, hint = (
                "the system has no memory for the threads of a block",
                "launch smaller blocks, on fewer threads",
            )
            return KernelError(text, code="EK0733", place=user_place(), hint=hint)
        if failure is None:
            reason = "a kernel failed without saying why"
            return KernelError(reason, code="EK0702", place=user_place(), notes=list(notes))
        if failure.report.kind == WAITING:
            return waiting_error(failure, self.code.reports, self.programs(), [*notes, self._called()])
        found = nan_notes(failure, arrays) if self.device.is_host else []
        staged = self._staged(failure.report.op)
        return failure_error(failure, self.programs(), staged, [*notes, *found, self._called()])

    def _called(self) -> str:
        if self.late:
            return f"graph '{self.ir.name}' was called before; with checks=\"all\" the call itself raises this"
        place = user_place()
        return f"graph '{self.ir.name}' was called " + (f"at {place}" if place else "on a thread that is not Python's")

    def programs(self) -> list[PortableKernel]:
        """The kernels whose text reports are about."""
        programs = [node.kernel.portable for node in self.ir.nodes if isinstance(node, Node)]
        return [*programs, *(program.shape for program in programs if program.shape is not None)]

    def _not_launched(self, table: abi.Device) -> EinkornError:
        """What a device refused to do."""
        number, code, launching = table.failed_kernel, table.failed_code, self.code.launching
        table.failed_kernel = table.failed_code = 0
        known = self.driver.error(code)
        kernels = () if launching is None or launching.kernels is None else launching.kernels.kernels
        kernel = kernels[number] if 0 <= number < len(kernels) else None
        programs = [node.kernel.portable for node in self.ir.nodes if isinstance(node, Node)]
        place = None if kernel is None else place_at(kernel.anchor, programs)
        what = "copy memory" if kernel is None else f"launch kernel '{kernel.symbol}' of op '{kernel.op}'"
        staged = [] if kernel is None else self._staged(kernel.op)
        about = [f"the device was to {what}", self._called()]
        about += [f"the op is staged at {shown_path(at.file)}:{at.line}" for at in staged]
        explained = self.driver.launch_error(code, about)
        if explained is not None:
            return explained
        return DeviceError(
            f"{self.device} could not {what}: {known or f'code {code}'}",
            code="EK0624",
            place=place if place is not None and not is_shipped(place.file) else next(iter(staged), user_place()),
            op=None if kernel is None else kernel.op,
            got=code,
            notes=[self._called()],
        )

    def _staged(self, op: str) -> list[Place]:
        """Where an op was staged; several places when the graph has several of that name."""
        return [n.place for n in self.ir.nodes if isinstance(n, Node) and n.name == op and n.place is not None]
