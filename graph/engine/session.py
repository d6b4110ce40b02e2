"""Sessions and models: a graph made ready to run, and its calls.

`InferenceSession.load` gets the graph's code; `Model.execute` checks the inputs against the signature, finds or makes
the memory, and makes one native call. With the sizes of the last call nothing is allocated but the outputs.

Input: a `Graph`, then tensors. Output: `Buffer`s. Non-goals: how code is made (see `engine.load`).
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...dsl.contract.checks import parse_checks
from ...dsl.diagnostics.errors import DeviceError, EinkornError, GraphError, of_call, shown_value
from ...dsl.environment.knobs import knobs
from ...dsl.environment.tracebacks import bare, without_internals
from ...dsl.types.dtype import DType
from ..arguments import flag_of, list_of, wrong
from ..driver.buffer import Buffer
from ..driver.device import CPU, Device, DeviceRef
from ..ir import GraphIR
from ..places import user_place
from ..staging.graph import Graph
from ..types.dims import StaticDim
from ..types.tensor_type import ShapedType
from .call import Call
from .inputs import WRONG_INPUT, InputCheck, wrong_inputs
from .load import LoadedCode, chosen_checks, interpret_graph, load_graph
from .outputs import Filling
from .unwritten import run_twice


@dataclass(frozen=True)
class TensorSpec:
    """What a model takes or gives at one position."""

    name: str
    dtype: DType
    shape: tuple[int | str, ...]
    device: DeviceRef


class InferenceSession:
    """Loads graphs for a set of devices.

    Args:
        devices: what the graphs may run on; the host when left out.
        interpret: whether kernels are interpreted instead of compiled: slowly, with the same results to the bit, with
            every access to memory checked, and with `breakpoint()` in them. `EINKORN_INTERPRET` says when left out.
        checks: what kernels check as they run: "off" (nothing, not even `assert`), "safe" (asserts, and what costs
            nothing noticeable), "all" (every access and every integer division); behind it "+nan" or "+inf", to stop at
            the first NaN (or infinity) that an op stores. When left out, EINKORN_CHECKS says it, or it is "safe".

    Raises:
        DeviceError: a device is no device of this machine.
        EinkornError (EK0710): checks= is none of these.
    """

    def __init__(
        self, devices: Sequence[Device] | None = None, *, interpret: bool | None = None, checks: str | None = None
    ) -> None:
        self.checks = None if checks is None else parse_checks(checks)
        self.devices = [CPU()] if devices is None else list_of("devices", devices, "devices", "EK0811")
        self.interpret = knobs.interpret if interpret is None else flag_of("interpret", interpret)
        if not self.devices:
            wrong("devices", self.devices, "one device or more", code="EK0811", hint="leave it out for the host")
        for device in self.devices:
            if not isinstance(device, Device):
                hint = f"{device!r}.to_device() gives it" if isinstance(device, DeviceRef) else "CPU() is the host"
                wrong("devices", device, "a list of devices", code="EK0811", kind=DeviceError, hint=hint)

    @without_internals
    def load(self, graph: Graph, *, checks: str | None = None) -> Model:
        """The graph, compiled or found ready, as a model; `checks` as for the session, for this graph alone.

        Raises:
            CompileError: a mistake in a kernel.
            DeviceError: the graph uses a device that the session does not have.
            GraphError: the graph has no output yet.
        """
        if not isinstance(graph, Graph):
            raise GraphError(
                f"load takes a Graph, not {shown_value(graph)}", code="EK0409", place=user_place(), argument="graph"
            )
        ir = graph.ir
        here = {DeviceRef.from_device(device) for device in self.devices}
        for used in ir.types:
            if used.device not in here:
                names = ", ".join(sorted(map(str, here)))
                raise DeviceError(
                    f"graph '{ir.name}' uses {used.device}, and the session has {names}",
                    code="EK0806",
                    place=user_place(),
                    expected=str(used.device),
                    got=names,
                )
        wanted = self.checks if checks is None else parse_checks(checks)
        load = functools.partial(interpret_graph if self.interpret else load_graph, checks=wanted)
        level = chosen_checks(wanted)
        return Model(ir, load, Filling() if level is not None and level.level == "all" else None)


class Model:
    """A graph that is ready to run. Calls from several threads wait for each other; make one model for each thread."""

    def __init__(self, ir: GraphIR, load: Callable[[GraphIR], LoadedCode], filling: Filling | None = None) -> None:
        self._filling = filling  # for runs that look for what nobody wrote
        self._ir = ir
        self._lock = threading.Lock()
        self._checks = [InputCheck(position, type) for position, type in enumerate(ir.inputs)]
        self._call = Call(ir, load, self._checks, filling)
        self._code = self._call.code
        _models.add(self)

    def _forget_calls(self) -> None:
        """In the child of a fork, where a call of another thread would hold the lock for ever."""
        self._lock = threading.Lock()
        self._call.forget()

    @property
    def input_metadata(self) -> list[TensorSpec]:
        """Name, dtype, shape and device of each input; a dim is a size or a name."""
        return [_spec(f"input{k}", type) for k, type in enumerate(self._ir.inputs)]

    @property
    def output_metadata(self) -> list[TensorSpec]:
        """Name, dtype, shape and device of each output; a dim is a size, a name or an expression."""
        return [_spec(f"output{k}", type) for k, type in enumerate(self._ir.output_types)]

    def execute(self, *inputs: Any) -> list[Buffer]:
        """Runs the graph once.

        Args:
            inputs: one for each input type: `Buffer`s, NumPy arrays, or anything that speaks DLPack, of the declared
                dtype and shape, on the declared device. Python and NumPy scalars serve inputs of rank 0. Views
                (transposed, with steps, broadcast) are read where they lie; the first call with a new kind of view
                compiles code for it.

                An input of a `BufferType` is changed in place: it has to be writable memory that shares nothing with
                the other inputs, and numbers do not serve. When a kernel stops itself, or Ctrl-C ends the call, what
                was changed stays changed.

        Returns:
            One buffer for each output.

        Raises:
            GraphError: a wrong number of inputs, a wrong shape, memory that is not aligned to its elements, or memory
                that is changed in place and is read-only or shared.
            DTypeError: a wrong dtype, or something that is no tensor.
            KernelError: a kernel stopped itself.
            KeyboardInterrupt: Ctrl-C ended the call; the model can be called again.
        """
        if len(inputs) != len(self._checks):
            raise GraphError(
                f"graph '{self._ir.name}' takes {len(self._checks)} inputs, {len(inputs)} are given",
                code="EK0451",
                place=user_place(),
                expected=len(self._checks),
                got=len(inputs),
            )
        with self._lock:
            try:
                return self._call.run(inputs) if self._filling is None else run_twice(self._call, self._filling, inputs)
            except EinkornError as error:
                wrong = wrong_inputs(self._checks, inputs) if error.code in WRONG_INPUT else []
                if len(wrong) > 1:
                    raise of_call(wrong) from None
                raise bare(error) from error.__cause__
            except BaseException:  # Ctrl-C, at any step of the call
                self._call.forget()
                raise

    __call__ = execute

    def __repr__(self) -> str:
        takes = ", ".join(str(t) for t in self._ir.inputs)
        gives = ", ".join(str(t) for t in self._ir.output_types)
        return f"Model({self._ir.name!r}: ({takes}) -> ({gives}))"


def _spec(name: str, type: ShapedType) -> TensorSpec:
    shape = tuple(int(d) if isinstance(d, StaticDim) else str(d) for d in type.shape)
    return TensorSpec(name, type.dtype, shape, type.device)


_models: weakref.WeakSet[Model] = weakref.WeakSet()


def _forget_all() -> None:
    for model in list(_models):
        model._forget_calls()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
