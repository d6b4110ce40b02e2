"""Computes gradients of ops of PyTorch by the backwards of their kernels.

See also `interop.gradients` (what a backward is), `recording` (when a gradient is computed).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ....dsl.diagnostics.errors import EinkornError, GraphError
from ....dsl.diagnostics.places import user_place
from ....dsl.diagnostics.shield import shielded
from ....dsl.frontend.python.register import Kernel
from ....dsl.package.library import LibraryKernel
from ....dsl.signature.parameters import bind_parameters
from ....dsl.signature.schema import OpSchema
from ...engine.session import InferenceSession
from ...types.tensor_type import ShapedType
from ..gradients import BackwardGraph, GradientContext, backward_graph, gradients
from ..specialise import AnyKernel, Specialisation
from ..uses import Uses, uses_of
from .names import defined, library_of
from .python_fallback import Arguments, PythonFallback, on_current_stream, run_model
from .recording import record
from .tensors import TORCH_DTYPES, flat, memory_of
from .vmap import register_rounds

RunKernel = Callable[[AnyKernel, Sequence[Any], Mapping[str, Any]], Any]


class TorchRunner:
    """Runs parts of backwards on tensors: all of it by ops, so that programs can be traced."""

    def __init__(self, fallback: PythonFallback, run: RunKernel) -> None:
        self._fallback = fallback
        self._run = run

    def kernel(self, kernel: AnyKernel, args: Sequence[object], parameters: Mapping[str, object]) -> Any:
        return self._run(kernel, args, parameters)

    def graph(self, backward: BackwardGraph, args: Sequence[object]) -> Sequence[torch.Tensor]:
        op = _ops.get(backward)
        if op is None:
            op = _ops[backward] = _BackwardOp(backward, self._special)
        device = next(each.device for each in args if isinstance(each, torch.Tensor))
        types = backward.graph.ir.inputs
        result: Sequence[torch.Tensor] = op.torch([_tensor(*pair, device) for pair in zip(args, types, strict=True)])
        return result

    def specialisation(self, kernel: AnyKernel, context: GradientContext) -> Specialisation:
        self._special = self._fallback.specialisation(Arguments(list(context.inputs), None, context.parameters))
        return self._special


def _tensor(value: object, type: ShapedType, device: torch.device) -> torch.Tensor:
    """What a graph takes: a number as a tensor without axes."""
    if isinstance(value, torch.Tensor):
        return value
    return torch.full((), value, dtype=TORCH_DTYPES[type.dtype], device=device)


class KernelRule:
    """Computes derivatives of an op by the backward of the kernel that its name stands for at that time."""

    def __init__(self, fallback: Callable[[], PythonFallback], run: RunKernel) -> None:
        self._fallback, self._run = fallback, run
        self._uses: tuple[object, Uses] | None = None  # of a backward

    @property
    def op(self) -> str:
        return self._fallback().schema.name

    @property
    def arguments(self) -> list[str]:
        return [argument.name for argument in self._fallback().schema.inputs]

    def obstacle(self, forward: bool) -> str:
        record = self._fallback().kernel.gradient
        if record is None:
            return "the op has no backward"
        if forward and record.is_graph:
            return "its backward is a graph, which has no derivative"
        if forward and isinstance(record.compute, Kernel | LibraryKernel) and record.compute.gradient is None:
            return f"its backward is the kernel {record.compute.schema.name!r}, which has no backward itself"
        return ""

    def refuse(self, inputs: Sequence[object]) -> None:
        self._fallback().check_gradients(Arguments(list(inputs), None, {}))

    def uses(self, inputs: Sequence[object], parameters: Mapping[str, object], needs: Sequence[object]) -> Uses:
        here = self._fallback()
        kernel = here.kernel
        record = kernel.gradient
        if record is not None and record.is_graph:
            try:
                special = here.specialisation(Arguments(list(inputs), None, here.parameters(parameters)))
                return backward_graph(special, tuple(map(bool, flat(needs)))).uses
            except EinkornError:  # the backward says what is wrong
                return Uses()
        if self._uses is None or self._uses[0] is not record:
            self._uses = record, uses_of(kernel.schema, record)
        return self._uses[1]

    def gradients(
        self,
        inputs: Sequence[object],
        outputs: Sequence[object],
        grads: Sequence[object],
        parameters: Mapping[str, object],
        needs: Sequence[object] = (),
        kept: Uses | None = None,
    ) -> list[Any]:
        here = self._fallback()
        bound = bind_parameters(here.schema, here.parameters(parameters))
        context = GradientContext(tuple(inputs), tuple(outputs), bound, tuple(needs))
        return gradients(here.kernel, context, _materialised(grads, outputs), TorchRunner(here, self._run), kept)


def check_can_have_backward(schema: OpSchema) -> None:
    """Checks that PyTorch takes a backward of such ops.

    Raises:
        GraphError: EK0884, the kernel changes an argument in place.
    """
    if schema.mutable:
        raise GraphError(
            f"op {schema.name!r} changes {schema.mutable[0].name!r} in place: PyTorch takes no backward of such ops",
            code="EK0884",
            place=user_place(),
            op=schema.name,
            argument=schema.mutable[0].name,
            hint="let it return what it computes as an output",
        )


def _materialised(grads: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """Gradients of outputs, zeros for those that nothing was done with."""
    return [
        [torch.zeros_like(o) if g is None else g for g, o in zip(grad, output, strict=True)]
        if isinstance(output, list | tuple)
        else torch.zeros_like(output)
        if grad is None
        else grad
        for grad, output in zip(grads, outputs, strict=True)
    ]


# *** backwards that are graphs ***

_ops: weakref.WeakKeyDictionary[BackwardGraph, _BackwardOp] = weakref.WeakKeyDictionary()


class _BackwardOp:
    """A backward graph as an op of PyTorch, which itself has no derivative."""

    def __init__(self, backward: BackwardGraph, special: Specialisation) -> None:
        self.op = backward.graph.name
        self.arguments: Sequence[str] = ("inputs",)
        device = special.device
        model = functools.cache(lambda: InferenceSession([device.to_device()]).load(backward.graph))

        def fake(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            return [torch.empty_like(inputs[k], memory_format=torch.contiguous_format) for k in positions]

        def run(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            made = fake(inputs)
            memory = [
                memory_of(tensor)
                if k in backward.read
                else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
                for k, tensor in enumerate(inputs)
            ]
            with on_current_stream(device):
                run_model(model(), memory, made)
            return made

        positions = backward.positions
        self.torch = defined(self.op, "(Tensor[] inputs) -> Tensor[]", run, fake)
        name = self.torch.name()
        library = library_of(name.partition("::")[0])
        with shielded():
            register_rounds(name, library, self.torch)
            record(name, library, self)

    def obstacle(self, forward: bool) -> str:
        return "it is a graph, which has no derivative"

    def refuse(self, inputs: Sequence[object]) -> None:
        raise GraphError(
            f"a gradient would flow through {self.op!r}, which computes gradients and has no backward itself",
            code="EK0881",
            place=user_place(),
            op=self.op,
            hint="call it under torch.no_grad()",
        )

    def uses(self, inputs: Sequence[object], parameters: Mapping[str, object], needs: Sequence[object]) -> Uses:
        return Uses()

    def gradients(self, *_: object) -> list[Any]:
        raise AssertionError("there is no derivative")
