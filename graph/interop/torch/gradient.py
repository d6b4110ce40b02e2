"""Registers the backward of a kernel with PyTorch's autograd.

Input: a name of PyTorch's and its kernel. Output: nothing; gradients flow. Non-goals: what a backward is (see
`interop.gradients`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from ....dsl.diagnostics.errors import GraphError
from ....dsl.diagnostics.places import user_place
from ....dsl.signature.parameters import bind_parameters
from ...engine.session import InferenceSession
from ..gradients import BackwardGraph, Context, gradients
from ..specialise import AnyKernel, Specialisation
from .graph_op import procedure_of
from .twin import Arguments, Twin

RunKernel = Callable[[AnyKernel, Sequence[Any], Mapping[str, Any]], Any]
_NONE: Mapping[str, Any] = MappingProxyType({})


class TorchRunner:
    """Runs parts of backwards on tensors: all of it by ops, so that programs can be traced."""

    def __init__(self, twin: Twin, run: RunKernel) -> None:
        self._twin = twin
        self.kernel = run

    def graph(self, backward: BackwardGraph, args: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        device = self._device.to_device()
        op = procedure_of(backward, backward.graph.name, lambda: InferenceSession([device]).load(backward.graph))
        made = [torch.empty_like(args[k], memory_format=torch.contiguous_format) for k in backward.positions]
        op.torch(made, list(args))
        return made

    def specialisation(self, kernel: AnyKernel, context: Context) -> Specialisation:
        special = self._twin.specialisation(Arguments(list(context.inputs), None, context.parameters))
        self._device = special.device
        return special


def register_backward(name: str, library: torch.library.Library, twin: Callable[[], Twin], run: RunKernel) -> None:
    """Registers what computes gradients: the backward of the kernel that a name stands for at that time.

    Raises:
        GraphError: EK0884, the kernel changes an argument in place.
    """
    schema = twin().schema
    if schema.mutable:
        raise GraphError(
            f"op {schema.name!r} changes {schema.mutable[0].name!r} in place: PyTorch takes no backward of such ops",
            code="EK0884",
            place=user_place(),
            op=schema.name,
            argument=schema.mutable[0].name,
            hint="let it return what it computes as an output",
        )

    def setup_context(ctx: Any, inputs: Any, output: Any, keyword_only_inputs: Mapping[str, Any] = _NONE) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        values = [*inputs, *outputs]
        flat = _flat(values)
        ctx.shape = [len(value) if isinstance(value, list | tuple) else None for value in values]
        ctx.count = len(inputs)
        ctx.others = [None if isinstance(each, torch.Tensor) else each for each in flat]
        ctx.save_for_backward(*(each for each in flat if isinstance(each, torch.Tensor)))
        ctx.parameters = dict(keyword_only_inputs)

    def backward(ctx: Any, *grads: Any) -> Any:
        here = twin()
        tensors = iter(ctx.saved_tensors)
        flat = iter([next(tensors) if each is None else each for each in ctx.others])
        values = [next(flat) if count is None else [next(flat) for _ in range(count)] for count in ctx.shape]
        parameters = bind_parameters(here.schema, here.parameters(ctx.parameters))
        context = Context(tuple(values[: ctx.count]), tuple(values[ctx.count :]), parameters)
        found = gradients(here.kernel, context, _materialised(grads, context), TorchRunner(here, run))
        return found[0] if len(found) == 1 else tuple(found)

    torch.library.register_autograd(name, backward, setup_context=setup_context, lib=library)


def _materialised(grads: Sequence[Any], context: Context) -> list[Any]:
    """Gradients of outputs, zeros for those that nothing was done with."""
    return [
        [torch.zeros_like(o) if g is None else g for g, o in zip(grad, output, strict=True)]
        if isinstance(output, list | tuple)
        else torch.zeros_like(output)
        if grad is None
        else grad
        for grad, output in zip(grads, context.outputs, strict=True)
    ]


def _flat(values: Sequence[Any]) -> list[Any]:
    return [each for value in values for each in (value if isinstance(value, list | tuple) else [value])]
