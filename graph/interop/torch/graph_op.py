"""Makes ops of PyTorch of whole graphs: `@graph_op` over a function of graph values.

    @einkorn.torch.graph_op
    def grayscale(picture):
        return ops.sum(picture * np.array([0.21, 0.71, 0.07]), axis=-1)

    grayscale(result, picture)            # outputs come first, and are written

A graph is staged and compiled for the types of a call: for its sizes, or for all sizes where `input_types` name them.

See also `op` (ops of single kernels).
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from ....dsl.diagnostics.errors import GraphError, plural, shown_value
from ....dsl.diagnostics.forks import fork_lock
from ....dsl.diagnostics.places import user_place
from ....dsl.package.library import LoadedLibrary as Library
from ....dsl.package.library import load_library
from ...engine.model import Model
from ...engine.session import InferenceSession
from ...staging.graph import Graph
from ...staging.kernels import KernelLibrary
from ...types.tensor_type import TensorType
from .names import defined, library_of
from .python_fallback import on_current_stream, run_model
from .recording import check, refuse_tangents
from .tensors import device_of, dtype_of, memory_of

MakeModel = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], Model]


class TensorProcedure:
    """An op of PyTorch that reads some tensors and writes others: `op(outputs, inputs)`.

    Args:
        name: what it is called; a number is added where that is taken.
        make: gives the model for the tensors of a call: outputs, then inputs.
    """

    def __init__(self, name: str, make: MakeModel) -> None:
        self._make = make
        self.name = name
        self.torch = defined(name, "(Tensor(a!)[] outputs, Tensor[] inputs) -> ()", self._run, lambda *_: None)
        qualified = self.torch.name()
        check(qualified, library_of(qualified.partition("::")[0]), self._refuse)

    def _run(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        device = device_of(_named(outputs, inputs), self.name)
        model = self._make(outputs, inputs)
        with on_current_stream(device):
            run_model(model, [memory_of(tensor) for tensor in inputs], list(outputs))
        for tensor in outputs:
            if not tensor.is_inference():
                torch.autograd.graph.increment_version(tensor)

    def _refuse(self, values: Sequence[Any]) -> None:
        """Refuses to lose a derivative by writing into memory."""
        named = _named(*values)
        why = "none flows into outputs that are given"
        refuse_tangents(self.name, [name for name, _ in named], [tensor for _, tensor in named], why, kind="graph op")
        for name, tensor in named if torch.is_grad_enabled() else ():
            if tensor.requires_grad:
                raise GraphError(
                    f"graph op {self.name!r}: {name} requires a gradient, and {why}",
                    code="EK0881",
                    place=user_place(),
                    op=self.name,
                    argument=name,
                    expected="a tensor that requires no gradient",
                    got="requires_grad=True",
                    hint="call it under torch.no_grad(), or pass x.detach()",
                )


def _named(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    return [
        *((f"inputs[{k}]", t) for k, t in enumerate(inputs)),
        *((f"outputs[{k}]", t) for k, t in enumerate(outputs)),
    ]


class GraphOp:
    """A function of graph values, as an op that is given its outputs. See `graph_op`."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        library: KernelLibrary | Library | None,
        input_types: Sequence[TensorType] | None,
        output_types: Sequence[TensorType] | None,
        num_outputs: int,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function, self._library = function, library
        self._input_types, self._output_types = input_types, output_types
        self.num_outputs = num_outputs
        self._models: dict[object, Model] = {}
        self._lock = fork_lock()
        self._inputs = _number_of_inputs(function)
        self._procedure = TensorProcedure(name, self._model)
        self._given_name, self.name, self.torch = name, self._procedure.name, self._procedure.torch

    def __call__(self, *tensors: Any) -> None:
        """Computes the graph of the last tensors, and writes its outputs to the first ones."""
        count = self.num_outputs
        if len(tensors) < count or (self._inputs is not None and len(tensors) != count + self._inputs):
            self._refuse_number(len(tensors))
        for position, tensor in enumerate(tensors):
            if not isinstance(tensor, torch.Tensor):
                raise GraphError(
                    f"graph op {self.name!r}: argument {position} is not a tensor but {shown_value(tensor)}",
                    code="EK0883",
                    place=user_place(),
                    op=self.name,
                    expected="torch.Tensor",
                    got=type(tensor).__name__,
                )
        self.torch(list(tensors[:count]), list(tensors[count:]))

    def _refuse_number(self, got: int) -> None:
        wanted = f"{plural(self.num_outputs, 'output')} and then {plural(self._inputs or 0, 'input')}"
        raise GraphError(
            f"graph op {self.name!r} takes {wanted}, but got {plural(got, 'tensor')}",
            code="EK0883",
            place=user_place(),
            op=self.name,
            expected=self.num_outputs + (self._inputs or 0),
            got=got,
            hint="outputs come first: result = x.new_empty(...); op(result, x)",
        )

    def _model(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> Model:
        device = device_of([("inputs", tensor) for tensor in (*outputs, *inputs)], self.name)
        if self._input_types is not None:
            key: Any = device
        else:
            key = device, tuple((tensor.dtype, tuple(tensor.shape)) for tensor in inputs)
        model = self._models.get(key)
        if model is None:
            with self._lock:
                model = self._models.get(key)
                if model is None:
                    model = self._models[key] = self._made(inputs, device)
        return model

    def _made(self, inputs: Sequence[torch.Tensor], device: Any) -> Model:
        if self._input_types is not None:
            types = [TensorType(type.dtype, type.shape, device) for type in self._input_types]
        else:
            types = [TensorType(dtype_of(t, self.name, "inputs"), tuple(t.shape), device) for t in inputs]
        wanted = self._output_types
        given = None if wanted is None else [TensorType(type.dtype, type.shape, device) for type in wanted]
        graph = Graph(self.name, self._function, types, kernel_library=self._library, output_types=given)
        if len(graph.output_types) != self.num_outputs:
            raise GraphError(
                f"graph op {self.name!r} has {plural(len(graph.output_types), 'output')}, not {self.num_outputs}",
                code="EK0883",
                place=user_place(),
                op=self.name,
                expected=self.num_outputs,
                got=len(graph.output_types),
                hint=f"write @graph_op(num_outputs={len(graph.output_types)})",
            )
        return InferenceSession([device.to_device()]).load(graph)

    def __reduce__(self) -> str | tuple[Any, ...]:
        name: str = self._function.__qualname__
        if getattr(sys.modules.get(self._function.__module__), name, None) is self:
            return name  # a decorated function of a module, which is found by its name
        types = self._input_types, self._output_types
        return graph_op, (self._function, self._given_name, self._library, *types, self.num_outputs)

    def __copy__(self) -> GraphOp:
        return self

    def __deepcopy__(self, memo: object) -> GraphOp:
        return self

    def __repr__(self) -> str:
        return f"<einkorn.torch.GraphOp {self.torch.name()}>"


def _number_of_inputs(function: Callable[..., Any]) -> int | None:
    """How many tensors a function takes; None where it takes any number."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    star = any(p.kind is p.VAR_POSITIONAL for p in parameters) or any(p.default is not p.empty for p in positional)
    return None if star else len(positional)


def graph_op(
    fn: Callable[..., object] | None = None,
    name: str | None = None,
    kernel_library: str | Path | KernelLibrary | Library | None = None,
    input_types: Iterable[TensorType] | None = None,
    output_types: Iterable[TensorType] | None = None,
    num_outputs: int | None = None,
) -> Any:
    """Makes an op of PyTorch of a function of graph values. It is given its outputs first: `op(result, x)`.

    Args:
        fn: the function; left out, a decorator is returned.
        name: what the op is called; as the function by default.
        kernel_library: kernels for `ops.custom`: a path, or a library that is loaded.
        input_types, output_types: the types of the graph. Dims that they name may have any size, and one graph serves
            all; else one is compiled for the sizes of each call. Devices are those of the tensors.
        num_outputs: how many outputs there are, where `output_types` does not determine it; 1 by default.

    Raises:
        GraphError: EK0883, it is not a function, or the numbers contradict each other.
    """
    if fn is None:
        return lambda function: graph_op(function, name, kernel_library, input_types, output_types, num_outputs)
    if not callable(fn):
        raise GraphError(
            f"graph_op takes a function, not {shown_value(fn)}", code="EK0883", place=user_place(), argument="fn"
        )
    inputs, outputs = (None if types is None else list(types) for types in (input_types, output_types))
    if outputs is not None and num_outputs not in (None, len(outputs)):
        raise GraphError(
            f"graph_op has {plural(len(outputs), 'type')} in output_types, and num_outputs={num_outputs}",
            code="EK0883",
            place=user_place(),
            argument="num_outputs",
            expected=len(outputs),
            got=num_outputs,
        )
    count = len(outputs) if outputs is not None else num_outputs or 1
    library = kernel_library
    if library is not None and not isinstance(library, KernelLibrary | Library):
        library = load_library(library)
    return GraphOp(fn, name or str(getattr(fn, "__name__", "graph")), library, inputs, outputs, count)
