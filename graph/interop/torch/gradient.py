"""Registers the backward of a kernel with PyTorch's autograd.

Input: a name of PyTorch's and its kernel. Output: nothing; gradients flow. Non-goals: what a backward is (see
`interop.gradients`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.autograd import forward_ad

from ....dsl.diagnostics.errors import GraphError
from ....dsl.diagnostics.places import user_place
from ....dsl.signature.parameters import bind_parameters
from ....dsl.signature.schema import OpSchema
from ...engine.session import InferenceSession
from ..gradients import BackwardGraph, Context, gradients
from ..specialise import AnyKernel, Specialisation
from .graph_op import procedure_of
from .twin import Arguments, Twin, tensors_of

RunKernel = Callable[[AnyKernel, Sequence[Any], Mapping[str, Any]], Any]
_NONE: Mapping[str, Any] = MappingProxyType({})


class TorchRunner:
    """Runs parts of backwards on tensors: all of it by ops, so that programs can be traced."""

    def __init__(self, twin: Twin, run: RunKernel) -> None:
        self._twin = twin
        self._run = run

    def kernel(self, kernel: AnyKernel, args: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        if kernel.gradient is not None:
            return self._run(kernel, args, parameters)
        return self._once(kernel.schema.name, args, lambda: self._run(kernel, args, parameters))

    def graph(self, backward: BackwardGraph, args: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        device = self._device.to_device()
        op = procedure_of(backward, backward.graph.name, lambda: InferenceSession([device]).load(backward.graph))

        def call() -> Any:
            made = [torch.empty_like(args[k], memory_format=torch.contiguous_format) for k in backward.positions]
            op.torch(made, list(args))
            return tuple(made)

        found: Sequence[torch.Tensor] = self._once(backward.graph.name, args, call)
        return found

    def _once(self, name: str, args: Sequence[Any], call: Callable[[], Any]) -> Any:
        """What a part of a backward gives that has no backward itself: who asks for its gradient hears so."""
        tensors = [each for value in args for each in tensors_of(value)]
        if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors):
            return call()
        with torch.no_grad():
            found = call()
        several = found if isinstance(found, tuple) else (found,)
        with _on_this_level():
            results = _Once.apply(name, len(several), *several, *tensors)
        return results if isinstance(found, tuple) else results[0]

    def specialisation(self, kernel: AnyKernel, context: Context) -> Specialisation:
        special = self._twin.specialisation(Arguments(list(context.inputs), None, context.parameters))
        self._device = special.device
        return special


# *** what autograd records, at whatever level of `torch.func` ***

try:
    from torch._functorch.utils import enable_single_level_autograd_function as _on_this_level
    from torch.autograd.function import _SingleLevelFunction as _Function

    _ON_LEVELS = True
except ImportError:  # then `torch.func` says itself that it does not take the op
    _on_this_level, _Function, _ON_LEVELS = contextlib.nullcontext, torch.autograd.Function, False


class _Once(_Function):  # type: ignore[misc]
    """Gives tensors back, of which no gradient can be had."""

    @staticmethod
    def forward(ctx: Any, name: str, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.name = name
        return tensors[:count]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise GraphError(
            f"a gradient of {ctx.name!r} is asked for, which computes gradients and has no backward itself",
            code="EK0881",
            place=user_place(),
            op=ctx.name,
            hint="derivatives of second order want a backward that is written with operations of torch",
        )


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

    if schema.variadic or not _ON_LEVELS:
        torch.library.register_autograd(name, backward, setup_context=setup_context, lib=library)
    else:
        plain = name.partition("::")[2]
        library.impl(plain, _recording(name, schema, setup_context, backward), "Autograd", with_keyset=True)


def _recording(name: str, schema: OpSchema, setup_context: Any, backward: Any) -> Any:
    """What the dispatcher calls for gradients: an op runs below, and is recorded where a gradient may be asked for."""
    namespace, _, plain = name.partition("::")
    op = getattr(getattr(torch.ops, namespace), plain).default

    def below(keys: Any, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(keys & torch._C._after_autograd_keyset, *inputs, **parameters)

    def forward(ctx: Any, keys: Any, parameters: Mapping[str, Any], *inputs: Any) -> Any:
        found = below(keys, inputs, parameters)
        setup_context(ctx, inputs, found, parameters)
        return found

    def backwards(ctx: Any, *grads: Any) -> Any:
        found = backward(ctx, *grads)
        return (None, None, *(found if isinstance(found, tuple) else (found,)))

    members = {"forward": staticmethod(forward), "backward": staticmethod(backwards)}
    function: Any = type(f"Backward_{plain}", (_Function,), members)

    def call(keys: Any, *inputs: Any, **parameters: Any) -> Any:
        if forward_ad._current_level >= 0:
            refuse_tangents(schema, inputs)
        if torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in inputs):
            with _on_this_level():
                return function.apply(keys, parameters, *inputs)
        return below(keys, inputs, parameters)

    return call


def refuse_tangents(schema: OpSchema, inputs: Sequence[Any]) -> None:
    """Refuses to lose a derivative of the forward mode.

    Raises:
        GraphError: EK0870.
    """
    for argument, value in zip(schema.inputs, inputs, strict=False):
        if any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors_of(value)):
            raise GraphError(
                f"op {schema.name!r}: argument {argument.name!r} has a tangent, and kernels have no forward mode",
                code="EK0870",
                place=user_place(),
                op=schema.name,
                argument=argument.name,
                expected="a tensor without a tangent",
                got="a dual tensor",
                hint="use the reverse mode: torch.func.vjp, grad or jacrev",
            )


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
