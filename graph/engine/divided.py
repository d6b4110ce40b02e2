"""Calls a graph whose values lie on several devices: its segments in their order, each by a caller of its own, and the
copies between them.

A segment is compiled, cached and found in packages as a graph of its own. A copy of a constant or of a weight is made
once, when the graph is loaded; the others are made at each call, into fresh memory that the call drops behind its last
reader. Sizes are checked once for the whole graph: a segment may depend on sizes that none of its inputs has.

See also `passes.devices` (which step runs when), `call` (one segment's call).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.types.packing import pack
from ..calling.call import Caller
from ..calling.call_plan import plan_calls
from ..calling.inputs import InputCheck, known_sizes
from ..calling.outputs import Filling, GivenOutput, Output
from ..calling.size_checks import SizeChecks
from ..checking.unwritten import run_twice
from ..driver.arrays import check_memory, check_outputs
from ..driver.buffer import Buffer
from ..driver.device import Storage
from ..driver.device_buffer import buffer_class
from ..driver.devices import CPU, Device, DeviceRef
from ..ir import ConstantTensor, External, GraphIR, Held, Node
from ..loading.code import LoadedCode
from ..passes.devices import Copy, Segment, Step, divide, names_in
from ..profiling.profile import MAX_ACCESSES, Profile, TracedCaller, counting, places_of

if TYPE_CHECKING:
    from ..profiling.memory_counters import MemoryCounters


@dataclass(eq=False)
class DividedPart:
    """A segment with the caller of its code. `run` is how a call of it is made."""

    segment: Segment
    caller: Caller
    run: Callable[[Sequence[Any]], list[Buffer]]
    sizes: dict[str, int] = field(default_factory=dict)  # that the caller's memory is laid out for


class DividedCaller:
    """Calls the code of a graph of several devices, and holds the memory of its calls: a `Caller` for such graphs.

    Args:
        kind: the class of the callers of segments; the other arguments are those of `plan_calls` and of a `Caller`.
    """

    def __init__(
        self,
        ir: GraphIR,
        load: Callable[[GraphIR], LoadedCode],
        checks: list[InputCheck],
        filling: Filling | None = None,
        weights: Mapping[int, Storage] | None = None,
        like: DividedCaller | None = None,
        threads: int | None = None,
        kind: type[Caller] = Caller,
    ) -> None:
        self.ir, self.load, self.checks, self.threads, self.kind = ir, load, checks, threads, kind
        self.filled = filling is not None  # whether unwritten elements are looked for in segments of the host
        self.weights = weights or {}
        # A session has devices of its own for names, which are known while a graph is loaded.
        self.places: dict[DeviceRef, Device] = (
            {device: device.to_device() for device in ir.devices} if like is None else like.places
        )
        self.steps: tuple[Step, ...] = divide(ir) if like is None else like.steps
        self.buffers = [k for k, check in enumerate(checks) if check.is_buffer]
        self.given: Sequence[Buffer | None] | None = None
        self.shapes: list[tuple[int, ...]] | None = None  # of the inputs of the last call
        self.sizes: dict[str, int] = {}
        self.outer: dict[str, int] = {}  # what is known in the call under way
        self.copied: dict[int, Output] = {}  # where the results of copies go
        self._output_class: Callable[..., Output] = Output
        self.profile: Profile | None = None
        self.counted: list[MemoryCounters] | None = None  # the counters of checked devices
        self.room = MAX_ACCESSES
        self.maker = {value: number for number, node in enumerate(ir.nodes) for value in node.results}
        late = {name for step in ir.steps for name in step.names}
        self.late = [not late.isdisjoint(type.shape.parameters) for type in ir.types]
        made = [value for node in ir.nodes if isinstance(node, Node) for value in node.results if not self.late[value]]
        early = [constraint for constraint in ir.constraints if late.isdisjoint(names_in(constraint))]
        self.size_checks = SizeChecks(ir, made, early)
        others: Sequence[DividedPart | None] = [None] * len(self.steps) if like is None else like.parts
        self.parts: list[DividedPart | None] = [
            self._part(step, other) if isinstance(step, Segment) else None
            for step, other in zip(self.steps, others, strict=True)
        ]
        self.held: dict[int, Buffer] = self._held() if like is None else like.held
        self.dropped = self._dropped()

    def _part(self, segment: Segment, like: DividedPart | None) -> DividedPart:
        filling = Filling() if self.filled and self.places[segment.device].is_host else None
        if like is None:
            checks = [
                self.checks[value] if value < len(self.checks) else InputCheck(f"%{value}", self.ir.types[value])
                for value in segment.takes
            ]
            weights = {k: self.weights[number] for k, number in enumerate(segment.nodes) if number in self.weights}
            caller = self.kind(plan_calls(segment.ir, self.load, checks, weights, self.threads), filling)
        else:
            caller = like.caller.clone(filling)
        caller.lay_out_again({})
        return DividedPart(segment, caller, caller.run if filling is None else partial(_twice, caller, filling))

    def _held(self) -> dict[int, Buffer]:
        """What lies in memory as long as the code is used: constants and weights, and copies of these."""
        results: dict[int, Buffer] = {}
        for step in self.steps:
            if isinstance(step, Copy):
                source = results.get(step.source) or self._constant(step.source)
                if source is not None:
                    results[step.result] = self._copy(step, source)
        for value in self.ir.outputs:
            constant = results.get(value) or self._constant(value)
            results |= {} if constant is None else {value: constant}
        return results

    def _constant(self, value: int) -> Buffer | None:
        """The memory of a constant or of a weight; None of other values."""
        number = self.maker.get(value)
        node = None if number is None else self.ir.nodes[number]
        if number is None or not isinstance(node, Held):
            return None
        device, dtype = self.places[node.type.device], node.type.dtype
        shape = tuple(int(dim) for dim in node.type.shape)
        if isinstance(node, External):
            return buffer_class(device, dtype)._over(self.weights[number], device, dtype, shape)
        assert isinstance(node, ConstantTensor)
        storage = device.driver.place(pack(node.array) if dtype.is_packed() else node.array)
        return buffer_class(device, dtype)._over(storage, device, dtype, shape)

    def _dropped(self) -> list[list[int]]:
        """By step, the values of which it is the last reader."""
        last: dict[int, int] = {}
        for number, step in enumerate(self.steps):
            if isinstance(step, Segment):
                last.update(dict.fromkeys(step.takes, number))
            elif step.result not in self.held:
                last[step.source] = number
        results: list[list[int]] = [[] for _ in self.steps]
        for value, number in last.items():
            if value not in self.ir.outputs and value not in self.held:
                results[number].append(value)
        return results

    def clone(self) -> DividedCaller:
        """Another caller of the same code, with memory of its own for its calls."""
        filling = Filling() if self.filled else None
        return DividedCaller(self.ir, self.load, self.checks, filling, self.weights, self, self.threads, self.kind)

    # *** calls ***

    def run(self, inputs: Sequence[object]) -> list[Buffer]:
        """One call."""
        values = self._begin(inputs)
        for number, (step, part) in enumerate(zip(self.steps, self.parts, strict=True)):
            if part is not None:
                self._run_part(part, values)
            elif isinstance(step, Copy) and step.result not in self.held:
                self._run_copy(number, step, values)
            for value in self.dropped[number]:
                del values[value]
        return self._results(values)

    def _begin(self, inputs: Sequence[object]) -> dict[int, Any]:
        """The values that are there before the first step: inputs, constants and weights."""
        values: dict[int, Any] = dict(self.held)
        storages, shapes = [], []
        for position, (value, check) in enumerate(zip(inputs, self.checks, strict=True)):
            if check.special:
                storage, shape = check.storage(value)
                value = buffer_class(check.device, check.type.dtype)._over(
                    storage, check.device, check.type.dtype, shape
                )
            else:
                value = storage = check.array(value)
                shape = value.shape
            storages.append(storage)
            shapes.append(shape)
            values[position] = value
        if shapes != self.shapes:
            self.shapes = None
            self.sizes = known_sizes(self.checks, shapes)
            self.size_checks.check(self.sizes)
            self.shapes, self.copied = shapes, {}
        if self.buffers:
            check_memory(self.ir.argument_names, storages, self.buffers)
        if self.given is not None:
            self._check_given(storages, self.given)
        self.outer = dict(self.sizes)
        return values

    def _check_given(self, storages: Sequence[Any], given: Sequence[Buffer | None]) -> None:
        """What the caller gives for outputs fits, where sizes are known before the call."""
        for position, (value, buffer) in enumerate(zip(self.ir.outputs, given, strict=True)):
            if buffer is not None and not self.late[value]:
                type = self.ir.types[value]
                shape = tuple(dim.evaluate(self.sizes) for dim in type.shape)
                GivenOutput(Output(self.places[type.device], type.dtype, shape, None), position, buffer)
        check_outputs(self.ir.argument_names, storages, [None if buffer is None else buffer._array for buffer in given])

    def _wanted(self, value: int) -> Buffer | None:
        """Where the caller wants a value, the first time that it is an output."""
        if self.given is None or self.late[value] or value not in self.ir.outputs:
            return None
        return self.given[self.ir.outputs.index(value)]

    def _run_part(self, part: DividedPart, values: dict[int, object]) -> None:
        caller, segment = part.caller, part.segment
        if part.sizes != self.outer:
            part.sizes = dict(self.outer)
            caller.lay_out_again(part.sizes)
        wanted = [self._wanted(value) for value in segment.gives]
        caller.given = wanted if any(each is not None for each in wanted) else None
        try:
            with self._counting(caller):
                results = part.run([values[value] for value in segment.takes])
        finally:
            caller.given = None
        values.update(zip(segment.gives, results, strict=True))
        if segment.ir.steps:
            self.outer |= caller.late_sizes

    def _run_copy(self, number: int, step: Copy, values: dict[int, Any]) -> None:
        start = time.perf_counter_ns() if self.profile is not None else 0
        source = values[step.source]
        values[step.result] = self._copy(step, source if isinstance(source, Buffer) else Buffer._wrap(source, CPU()))
        if self.profile is not None:
            node = self.ir.nodes[step.node]
            details = {
                "group": self._first_group(number),
                "ops": [getattr(node, "name", "")],
                "places": places_of([node]),
                "bytes": values[step.result].size_in_bytes,
            }
            ends = f"{self.ir.types[step.source].device} to {self.ir.types[step.result].device}"
            self.profile.add("copy", f"copy from {ends}", self.ir.name, start, details)

    def _copy(self, step: Copy, source: Buffer) -> Buffer:
        output = self.copied.get(step.result)
        if output is None or output.shape != tuple(source.shape):
            type = self.ir.types[step.result]
            output = self._output_class(self.places[type.device], type.dtype, tuple(source.shape), None)
            self.copied[step.result] = output
        return _filled(output, source, self._wanted(step.result))

    def _results(self, values: Mapping[int, Any]) -> list[Buffer]:
        """The outputs: what is an input, held, or given back twice is copied."""
        results: list[Buffer] = []
        for position, value in enumerate(self.ir.outputs):
            result, given = values[value], None if self.given is None else self.given[position]
            source = result if isinstance(result, Buffer) else Buffer._wrap(result, CPU())
            own = value >= len(self.checks) and value not in self.held and self.ir.outputs.index(value) == position
            if own and (given is None or given is source):
                results.append(source)
                continue
            output = Output(source.device, source.dtype, tuple(source.shape), None)
            results.append(_filled(output if given is None else GivenOutput(output, position, given), source, None))
        return results

    def _counting(self, caller: Caller) -> AbstractContextManager[None]:
        memory = caller.plan.driver.checked
        if self.counted is None or memory is None or memory.recording:
            return nullcontext()
        return counting(memory, caller, self.counted, self.room)

    # *** as a caller ***

    def all(self) -> list[Caller]:
        """The callers of the segments, and those for other patterns."""
        return [each for part in self.parts if part is not None for each in part.caller.all()]

    @property
    def devices(self) -> list[Device]:
        """Where the graph runs."""
        return list(self.places.values())

    @property
    def interrupt(self) -> BaseException | None:
        """What ends the call under way."""
        return next((each.interrupt for each in self.all() if each.interrupt is not None), None)

    @property
    def output_class(self) -> Callable[..., Output]:
        """What the memory of results is taken from."""
        return self._output_class

    @output_class.setter
    def output_class(self, chosen: Callable[..., Output]) -> None:
        self._output_class, self.copied = chosen, {}
        for each in self.all():
            each.output_class = chosen

    def cancel(self) -> None:
        """Called from another thread: ends the call that is under way."""
        for part in self.parts:
            if part is not None:
                part.caller.cancel()

    def forget(self) -> None:
        """Whatever call was under way is over."""
        for part in self.parts:
            if part is not None:
                part.caller.forget()

    def watch(self, profile: Profile | None) -> None:
        """Adds what the calls do to a profile; their segments have callers that trace."""
        self.profile, self.counted = profile, None if profile is None else profile.counted
        for number, part in enumerate(self.parts):
            if part is not None:
                assert isinstance(part.caller, TracedCaller)
                part.caller.watch(profile, self._first_group(number))

    def _first_group(self, number: int) -> int:
        """The number of a step's first group among those of the graph; a copy counts as one."""
        return sum(1 if part is None else len(part.caller.code.plan.groups) for part in self.parts[:number])

    def codes(self) -> list[LoadedCode]:
        """The code of the segments."""
        return [part.caller.code for part in self.parts if part is not None]

    def held_memory(self) -> list[Storage]:
        """The storage of constants and weights, with copies of them."""
        inner = [memory for part in self.parts if part is not None for memory in part.caller.held_memory()]
        return [*inner, *(buffer._array for buffer in self.held.values())]


def _twice(caller: Caller, filling: Filling, inputs: Sequence[object]) -> list[Buffer]:
    return run_twice(caller, inputs, filling)


def _filled(output: Output, source: Buffer, given: Buffer | None) -> Buffer:
    """A buffer with the elements of a source: that of an output, or the one that the caller gives."""
    if given is None:
        given = output.buffer_over(output.take(), output.device, output.dtype, output.shape)
    given._take(source)
    return given


class DividedTracing:
    """What a model of several devices runs instead of its calls while a profile is open; they wait for each other."""

    def __init__(self, caller: DividedCaller, profile: Profile) -> None:
        self.caller = caller
        self.profile = profile
        self.lock = fork_lock()

    def run(self, call: DividedCaller, inputs: Sequence[Any]) -> list[Buffer]:
        """A call of the traced code, in the place of `call`."""
        with self.lock:
            traced, start = self.caller, time.perf_counter_ns()
            traced.given = call.given
            traced.watch(self.profile)
            try:
                return traced.run(inputs)
            finally:
                traced.given = None
                shapes = [str(tuple(getattr(value, "shape", np.shape(value)))) for value in inputs]
                self.profile.add("call", traced.ir.name, traced.ir.name, start, {"shapes": ", ".join(shapes)})
