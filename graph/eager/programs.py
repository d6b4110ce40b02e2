"""Makes one graph of several calls, and runs it.

A program has an input for each tensor that it reads, one for all numbers of a dtype, and, where no tensor determines a
size of its calls, one without elements that has these sizes as its shape. So it serves all numbers and all sizes that
are equal in the same places.

See also `realize` (what is recorded).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import EinkornError
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.diagnostics.shield import raise_if_of_handler, shielded
from ...dsl.environment.compiling import compiling
from ...dsl.types.dtype import DType
from .. import ops
from ..calling.door_policy import PROGRAMS, CallCounter
from ..calling.doors import scalar_of
from ..calling.python_door import python_door
from ..driver.buffer import Buffer
from ..driver.devices import Device, DeviceRef
from ..engine.model import Model
from ..engine.session import InferenceSession
from ..loading.background import BACKGROUND
from ..staging.graph import Graph
from ..types.dims import Dim
from ..types.tensor_type import TensorType
from .kinds import TensorKind, kind_of, no_memory
from .patterns import Names, OpCall, carrier, names_of, types_of

_log = logging.getLogger("einkorn.eager")

# How many graphs were made ready, by how many calls they have: what tests count.
COUNTS = {"single": 0, "whole": 0}


@dataclass(frozen=True)
class Step:
    """A call of a program. Operands are numbers: of values as they are made, or -1, -2, … for inputs."""

    call: OpCall
    operands: tuple[int, ...]


class EagerProgram:
    """Several calls as one graph.

    Attributes:
        steps: its calls, in order.
        leaves: the kinds of its inputs.
        outputs: the numbers of the values that it gives.
        requests: how often it was wanted.
        model: what runs it, once it is compiled.
        door: a built-in function that runs it, when it has run a few times.
    """

    def __init__(self, steps: Sequence[Step], leaves: Sequence[TensorKind], outputs: Sequence[int]) -> None:
        self.steps = tuple(steps)
        self.leaves = tuple(leaves)
        self.outputs = tuple(outputs)
        self.device: Device = steps[0].call.device
        self.requests = 0
        self.queued = False
        self.model: Model | None = None
        self.door: Any = None
        self.counter = CallCounter(PROGRAMS)
        self.lock = fork_lock()
        dtypes = [dtype for step in steps for dtype in step.call.pattern.numbers]
        self.numbers = {dtype: [k for k, d in enumerate(dtypes) if d is dtype] for dtype in dict.fromkeys(dtypes)}
        self.names: Names = names_in(self.steps, self.leaves)
        self.carried = carrier(self.leaves, self.names)

    def sizes(self, steps: Sequence[Step], leaves: Sequence[TensorKind]) -> Any:
        """The tensor that has the sizes of these calls that no input determines; None where there are none."""
        if not self.carried:
            return None
        sizes = {name: size for size, name in names_in(steps, leaves).items()}
        empty = np.empty((*(sizes[name] for name in self.carried), 0), np.bool_)
        return empty if self.device.is_host else Buffer.from_numpy(empty).to(self.device)

    def run(self, leaves: Sequence[object], numbers: Sequence[object], sizes: object) -> list[Any]:
        """The values of its outputs, of values of the inputs and of all numbers in the order of the calls."""
        inputs = list(leaves)
        for dtype, places in self.numbers.items():
            alone = len(places) == 1
            inputs.append(numbers[places[0]] if alone else np.array([numbers[k] for k in places], dtype.to_numpy()))
        if sizes is not None:
            inputs.append(sizes)
        result = (self.door or self.opened())(*inputs)
        return list(result) if type(result) is tuple else [result]

    def opened(self) -> Callable[..., Any]:
        """What runs it: its model, and from the third time on a door to its code, where there can be one."""
        model = self.model or self.compiled()
        if self.counter.is_due(None) and self.device.is_host:
            BACKGROUND.submit(lambda: self._open_door(model))
        return self.door or self._by_model

    def _open_door(self, model: Model) -> None:
        single = [scalar_of(dtype) if len(places) == 1 else "" for dtype, places in self.numbers.items()]
        scalars = [""] * len(self.leaves) + single + [""] * bool(self.carried)
        self.door = python_door(model.first_caller, model.ir.name, self._by_model, scalars=scalars, out=False)

    def _by_model(self, *inputs: object) -> Any:
        """A value, or a tuple of several, by the model."""
        first = len(self.leaves)
        given = list(inputs)
        for k, dtype in enumerate(self.numbers, start=first):
            array = np.asarray(inputs[k], dtype.to_numpy())
            given[k] = array if self.device.is_host else Buffer.from_numpy(array).to(self.device)
        assert self.model is not None
        values = tuple(value_of(buffer) for buffer in self.model.execute(*given))
        return values[0] if len(values) == 1 else values

    def want(self) -> None:
        """Compiles it in the background."""
        if self.queued:
            BACKGROUND.resume()
            return
        self.queued = True
        BACKGROUND.submit(self._compile_if_possible)

    def _compile_if_possible(self) -> None:
        try:
            self.compiled()
        except EinkornError as error:  # it goes on op by op, where the same is said of the op
            _log.warning("several ops cannot become one graph: %s", error.message)

    @compiling
    def compiled(self) -> Model:
        """Its model, compiled if need be: by one thread, for which others wait."""
        with self.lock:
            if self.model is None:
                self.model = _session(self.device).load(self.graph())
                COUNTS["single" if len(self.steps) == 1 else "whole"] += 1
            return self.model

    def graph(self) -> Graph:
        """The graph of all its calls."""
        types = types_of(self.leaves, self.names)
        ref = DeviceRef.from_device(self.device)
        types += [
            TensorType(dtype, [len(places)] if len(places) > 1 else [], ref) for dtype, places in self.numbers.items()
        ]
        if self.carried:
            types.append(TensorType(DType.bool, [*self.carried, 0], ref))
        graph = self._operator_graph(types)
        with shielded(), graph:
            inputs = list(graph.inputs)
            numbers = self._numbers(inputs[len(self.leaves) :])
            values: list[Any] = []
            for step in self.steps:
                operands = [values[k] if k >= 0 else inputs[-1 - k] for k in step.operands]
                values += self._stage(step.call, operands, [next(numbers) for _ in step.call.pattern.numbers])
            graph.output(*[values[k] for k in self.outputs])
        return graph

    def _operator_graph(self, types: list[TensorType]) -> Graph:
        name = self.steps[0].call.name.replace(".", "_") if len(self.steps) == 1 else "eager"
        extensions = dict.fromkeys(path for step in self.steps for path in step.call.pattern.operator.extensions)
        return Graph(name, input_types=types, custom_extensions=list(extensions))

    def _numbers(self, inputs: Sequence[Any]) -> Any:
        """The numbers of all calls, in order."""
        results: dict[int, Any] = {}
        for value, places in zip(inputs, self.numbers.values(), strict=False):
            for position, place in enumerate(places):
                results[place] = value if len(places) == 1 else ops.slice_tensor(value, [position])
        return iter([results[k] for k in sorted(results)])

    def _stage(self, call: OpCall, operands: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        """The results of a call, under the names of their sizes."""
        sizes = [Dim(self.names.get(size, size)) for size in call.sizes]
        results = call.pattern.stage(operands, numbers, sizes, bool(self.names))
        if len(self.steps) == 1 or call.results is None:
            return results
        shapes = [[Dim(self.names.get(size, size)) for size in each.sizes] for each in call.results]
        pairs = zip(results, shapes, strict=True)
        return [value if list(value.shape) == shape else ops.rebind(value, shape) for value, shape in pairs]


def names_in(steps: Sequence[Step], leaves: Sequence[TensorKind]) -> dict[int, str]:
    """A name for each size of calls and inputs which no call has to know; of a single one those of results follow."""
    fixed = frozenset().union(*(step.call.fixed for step in steps))
    shapes = [leaf.sizes for leaf in leaves]
    for step in steps:
        shapes.append(step.call.sizes)
        if len(steps) > 1 and step.call.results is not None:
            shapes += [each.sizes for each in step.call.results]
    return names_of(shapes, (), fixed)


def value_of(buffer: Buffer) -> Any:
    """What a tensor keeps of a result of a model."""
    return buffer._array if kind_of(buffer).plain else buffer


_sessions: dict[Device, InferenceSession] = {}


def _session(device: Device) -> InferenceSession:
    if device not in _sessions:
        _sessions[device] = InferenceSession([device])
    return _sessions[device]


# *** one call alone ***


def run_call(call: OpCall, values: Sequence[object], numbers: Sequence[object]) -> list[Any]:
    """The values of the results of one call."""
    if call.shortcut is not None:
        try:
            return call.shortcut(values, numbers)
        except MemoryError as error:
            raise_if_of_handler(error)
            name, (result, *_) = call.pattern.operator.name, call.results or call.kinds
            raise no_memory(name, result.dtype, result.sizes) from error
    if call.run is None:
        program = call.pattern.program
        if program is None:
            outputs = range(len(call.pattern.results))
            step = Step(call, tuple(-1 - k for k in range(call.count)))
            program = call.pattern.program = EagerProgram([step], call.named, outputs)
        call.run = _CallRunner(call, program)
    value: list[Any] = call.run(values, numbers)
    return value


class _CallRunner:
    """Runs one call; when there is a door that it fits, the call has it."""

    def __init__(self, call: OpCall, program: EagerProgram) -> None:
        self.call, self.program = call, program
        self.sizes = program.sizes([Step(call, ())], call.named)

    def __call__(self, values: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        program, call = self.program, self.call
        if program.door is not None and self.sizes is None and call.result is not None and len(call.checks) < 2:
            call.door = program.door
        return program.run(values, numbers, self.sizes)
