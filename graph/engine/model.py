"""Holds a graph that is ready to run, and calls it.

`Model.execute` checks the inputs against the signature, finds or makes the memory, and makes one native call. With the
sizes of the last call nothing is allocated but the outputs.

Input: tensors. Output: `Buffer`s. Non-goals: how a graph becomes a model (see `engine.session`).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...dsl.diagnostics.errors import EinkornError, GraphError, of_call
from ...dsl.diagnostics.places import user_place
from ...dsl.environment.tracebacks import bare
from ...dsl.types.dtype import DType
from ..driver.buffer import Buffer
from ..driver.device import Storage
from ..driver.devices import DeviceRef
from ..ir import GraphIR
from ..types.dims import StaticDim
from ..types.tensor_type import ShapedType
from .call import Caller
from .code import LoadedCode
from .inputs import WRONG_INPUT, InputCheck, wrong_inputs
from .outputs import Filling
from .unwritten import run_twice


@dataclass(frozen=True)
class TensorSpec:
    """What a model takes or gives at one position."""

    name: str
    dtype: DType
    shape: tuple[int | str, ...]
    device: DeviceRef


class Model:
    """A graph that is ready to run. Calls from several threads wait for each other; make one model for each thread."""

    def __init__(
        self,
        ir: GraphIR,
        load: Callable[[GraphIR], LoadedCode],
        filling: Filling | None = None,
        weights: Mapping[int, Storage] | None = None,
    ) -> None:
        self._filling = filling  # for runs that look for what nobody wrote
        self._ir = ir
        self._lock = threading.Lock()
        self._checks = [InputCheck(f"input{position}", type) for position, type in enumerate(ir.inputs)]
        self._call = Caller(ir, load, self._checks, filling, weights or {})
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
