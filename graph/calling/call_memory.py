"""Holds the memory of calls: pointers and sizes for native code, outputs, intermediate results, constants.

With the sizes of the last call nothing is laid out again. See also `passes.memory_plan` (where intermediate results lie
in their arena).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...dsl.contract import abi
from ...dsl.diagnostics.errors import DeviceError, GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import raise_if_of_handler
from ...dsl.types.packing import pack
from ..driver.arrays import check_outputs
from ..driver.buffer import Buffer
from ..driver.device import Array, Storage
from ..ir import ConstantTensor
from ..types.strides import stride_sizes
from .call_plan import CallPlan
from .inputs import known_sizes
from .outputs import FilledOutput, Filling, GivenOutput, Output

SCRATCH_ALIGNMENT = 256  # bytes: as `lowering.scratch` lays out pieces


class CallMemory:
    """The memory of the calls of one caller.

    Args:
        table: what the entry launches kernels through, which says where their scratch memory lies.
        filling: of memory that kernels write; None leaves it as it is.
        like: memory of another caller, which has the constants.

    Attributes:
        pointers, dims: what the entry gets, at the addresses `pointers_at` and `dims_at`.
        outputs: by position; those of a later stage are not up to date before it.
        output_class: what the memory of outputs is taken from.
        constants: the storage of constants and weights, by the number of the pointer.
        layout: of the inputs of the last call; what memory is laid out for. None where nothing is.
        sizes: the size of each symbol in the last call.
        outer: of a part of a graph: the sizes that the others know.
        computed: the sizes that the entry computes, a storage a step.
        arenas: of each stage.
    """

    def __init__(
        self, plan: CallPlan, table: abi.DeviceTable | None, filling: Filling | None, like: CallMemory | None
    ) -> None:
        self.plan, self.table, self.filling = plan, table, filling
        self.outer: Mapping[str, int] | None = None
        self._output_class: Callable[..., Output] = (
            Output if filling is None else partial(FilledOutput, filling=filling)
        )
        entry = plan.code.plan
        self.pointers = (ctypes.c_void_p * max(1, len(entry.buffers)))()
        self.dims = (ctypes.c_int64 * max(1, len(entry.slots)))()
        self.pointers_at = ctypes.addressof(self.pointers)
        self.dims_at = ctypes.addressof(self.dims)
        self.outputs: list[Output] = []
        self.constants: dict[int, Storage] = self._constants() if like is None else like.constants
        self.layout: list[object] | None = None
        self.sizes: dict[str, int] = {}
        count = len(plan.stages)
        self._known: list[tuple[int, ...]] = [()] * count  # the computed sizes that each stage is laid out for
        self.arenas: list[Storage | None] = [None] * count
        self._scratch: list[int] = [0] * count  # where what each stage takes for itself begins
        self.computed: list[Storage] = [plan.driver.place(np.zeros(len(s.names), np.int64)) for s in entry.steps]
        held = {**self.constants, **dict(zip(plan.computed, self.computed, strict=True))}
        for number, storage in held.items():
            self.pointers[number] = plan.driver.address_of(storage)

    def _constants(self) -> dict[int, Storage]:
        kept = {}
        for number, buffer in enumerate(self.plan.code.plan.buffers):
            if buffer.source[0] == "constant":
                node = self.plan.ir.nodes[buffer.source[1]]
                if isinstance(node, ConstantTensor):
                    array = pack(node.array) if buffer.dtype.is_packed() else node.array
                    kept[number] = self.plan.driver.place(array)
                else:
                    kept[number] = self.plan.weights[buffer.source[1]]
        return kept

    @property
    def output_class(self) -> Callable[..., Output]:
        return self._output_class

    @output_class.setter
    def output_class(self, chosen: Callable[..., Output]) -> None:
        self._output_class, self.layout = chosen, None

    # *** sizes ***

    def fit(self, arrays: list[Array], shapes: list[tuple[int, ...]], layout: list[object]) -> None:
        """Checks the shapes against the signature and lays out the memory for them."""
        plan = self.plan
        sizes = known_sizes(plan.checks, shapes) if self.outer is None else dict(self.outer)
        sizes |= dict(stride_sizes(arrays, plan.ir.patterns))
        self._fit_stage(0, sizes)
        self.sizes, self._known = sizes, [()] * len(plan.stages)
        self.layout = layout

    def fit_late(self, number: int, late: Mapping[str, int]) -> None:
        """Lays out the memory of a later stage, where the sizes that were computed are not those of the last call."""
        known = tuple(late.values())
        if known != self._known[number]:
            self._fit_stage(number, {**self.sizes, **late})
            self._known[number] = known

    def enter(self, number: int) -> None:
        """Says where the scratch memory of a stage lies."""
        if self.table is not None:
            self.table.scratch = self._scratch[number]

    def _fit_stage(self, number: int, sizes: dict[str, int]) -> None:
        """Checks what a stage relies on, and lays out its memory."""
        plan, driver = self.plan, self.plan.driver
        stage = plan.stages[number]
        stage.checks.check(sizes)
        slots = [(slot, dim.evaluate(sizes)) for slot, dim in stage.slots]
        outputs: list[Any] = [*self.outputs] if number else [None] * len(plan.ir.outputs)
        for position in stage.outputs:
            type = plan.ir.types[plan.ir.outputs[position]]
            shape = tuple(d.evaluate(sizes) for d in type.shape)
            outputs[position] = self._output_class(plan.device, type.dtype, shape, plan.output_pointers[position])
        offsets, total = stage.layout.place(sizes)
        scratch, size = -(-total // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT, self._scratch_size(number, slots)
        total = scratch + size if size else total
        try:
            arena = driver.allocate(total)
        except MemoryError as error:
            raise self._too_large(total, error) from None
        driver.attribute(arena, f"graph '{plan.ir.name}', for intermediate results")
        if self.filling is not None:
            driver.fill(arena, self.filling.byte)
        # Nothing failed: only now does the memory change, all at once.
        if number == 0:
            self.layout = None
        for slot, value in slots:
            self.dims[slot] = value
        self.outputs, self.arenas[number] = outputs, arena
        base = driver.address_of(arena)
        for buffer, offset in offsets.items():
            self.pointers[buffer] = base + offset
        if self.table is not None and size:
            self._scratch[number] = self.table.scratch = base + scratch
            self.table.scratch_size = size

    def _scratch_size(self, number: int, slots: Iterable[tuple[int, int]]) -> int:
        """How many bytes a stage takes for itself, with these values of dim slots."""
        launching = self.plan.code.launching
        if launching is None or launching.scratch is None:
            return 0
        dims = type(self.dims)(*self.dims)
        for slot, value in slots:
            dims[slot] = value
        return launching.scratch(ctypes.addressof(dims), number)

    def _too_large(self, size: int, error: MemoryError) -> DeviceError:
        raise_if_of_handler(error)
        return DeviceError(
            f"graph '{self.plan.ir.name}' needs {size:,} bytes for intermediate results, which cannot be allocated",
            code=getattr(error, "code", "EK0813"),
            place=user_place(),
            got=size,
            notes=getattr(error, "notes", [str(error)]),
        )

    def computed_sizes(self, number: int) -> dict[str, int]:
        """The dims that a step has computed."""
        step = self.plan.code.plan.steps[number]
        values = self.plan.driver.integers(self.computed[number], len(step.names))
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

    # *** outputs ***

    def outputs_into(
        self, given: Sequence[Buffer | None], arrays: Sequence[Storage], positions: Iterable[int] | None = None
    ) -> list[Output]:
        """The outputs of a call: those that the caller gives in their places, checked now that sizes are known."""
        outputs = list(self.outputs)
        for position in range(len(outputs)) if positions is None else positions:
            buffer = given[position]
            if buffer is not None:
                outputs[position] = GivenOutput(outputs[position], position, buffer)
        places = [None if buffer is None else buffer._array for buffer in given]
        check_outputs(self.plan.ir.argument_names, arrays, places)
        return outputs

    def copy_outputs(self, arrays: Sequence[Storage], results: Sequence[Buffer]) -> None:
        """Outputs that are inputs, constants, or given back twice."""
        for output, buffer in self.plan.copies:
            kind, number = self.plan.code.plan.buffers[buffer].source
            if kind == "constant":
                source = self.constants[buffer]
            else:
                source = arrays[number] if kind == "input" else results[number]._array
            self.plan.driver.copy(results[output]._array, source)

    def held_arenas(self) -> list[Storage]:
        """The memory of intermediate results."""
        return [arena for arena in self.arenas if arena is not None]

    def refill(self) -> None:
        """Fills all memory between the kernels anew."""
        assert self.filling is not None
        for arena in self.held_arenas():
            self.plan.driver.fill(arena, self.filling.byte)
