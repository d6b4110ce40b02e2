"""Records ops with PyTorch's autograd: in the reverse and the forward mode, at every level of `torch.func`.

Each level of `torch.func` dispatches an op anew. Below the level that records it, an op runs in the gradient modes of
its call. PyTorch switches both off while a function of autograd runs: the other levels would lose their derivatives.

A backward computes Jᵀu for gradients u of the outputs, which is linear in u. The forward mode wants Jt for tangents t
of the inputs: this is the gradient of Jᵀu with respect to u, in the direction t.

See also `gradient` (what a backward is).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Protocol

import torch
from torch._functorch.utils import enable_single_level_autograd_function as _on_this_level
from torch.autograd import forward_ad
from torch.autograd.forward_ad import _set_fwd_grad_enabled
from torch.autograd.function import _SingleLevelFunction

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.diagnostics.errors import GraphError
from ....dsl.diagnostics.places import user_place
from ..uses import Uses
from .names import untraced
from .tensors import flat, tensors_of


class DerivativeRule(Protocol):
    """How derivatives of an op are computed."""

    @property
    def op(self) -> str:
        """The name of the op, for messages."""

    @property
    def arguments(self) -> Sequence[str]:
        """The names of its inputs."""

    def obstacle(self, forward: bool) -> str:
        """Why there is no derivative in the reverse mode, or in the forward mode; "" where there is one."""

    def refuse(self, inputs: Sequence[object]) -> None:
        """Raises what says that a gradient would be lost; called where there is no derivative."""

    def uses(self, inputs: Sequence[object], parameters: Mapping[str, object], needs: Sequence[object]) -> Uses:
        """Which inputs and outputs `gradients` needs, where the gradients of these inputs are needed."""

    def gradients(
        self,
        inputs: Sequence[object],
        outputs: Sequence[object],
        grads: Sequence[object],
        parameters: Mapping[str, object],
        needs: Sequence[object] = (),
        kept: Uses | None = None,
    ) -> Sequence[Any]:
        """A gradient for each input, or None; lists for lists. `needs` says which are needed, `kept` which inputs and
        outputs have elements."""


class NotKept:
    """Stands for a tensor that a backward does not need.

    Raises:
        GraphError: EK0885, it is used anyway.
    """

    def __init__(self, op: str) -> None:
        self._op = op

    def __getattr__(self, name: str) -> Any:
        raise GraphError(
            f"the backward of op {self._op!r} uses a tensor that was not kept for it",
            code="EK0885",
            place=user_place(),
            op=self._op,
            hint="read it as context.inputs[0] or context.outputs[0] in the function itself",
        )


@dataclass(slots=True)
class _Call:
    """A call that is recorded: how its lists are flattened, and in which modes it runs."""

    keys: object
    parameters: Mapping[str, Any]
    inputs: Sequence[int | None]  # the length of each list; None for what is not a list
    dual: bool
    outputs: Sequence[int | None] = ()
    one: bool = True  # whether there is one output, which is returned as it is
    kept: list[Any] = field(default_factory=list)  # for each tensor and number None, or what stands for it
    modes: tuple[bool, bool] = (True, True)
    uses: Uses = field(default_factory=Uses)

    def values(self, saved: Sequence[torch.Tensor]) -> tuple[list[Any], list[Any]]:
        """The inputs and the outputs, of all of their tensors."""
        tensors = iter(saved)
        flat = [next(tensors) if each is None else each for each in self.kept]
        count = sum(1 if length is None else length for length in self.inputs)
        return grouped(flat[:count], self.inputs), grouped(flat[count:], self.outputs)

    def keep(self, op: str, values: Sequence[object], outputs: Sequence[object]) -> list[torch.Tensor]:
        """The tensors to keep, of all inputs and outputs one by one."""
        wanted = [
            positions is None or self.dual or k in positions
            for lengths, positions in ((self.inputs, self.uses.inputs), (self.outputs, self.uses.outputs))
            for k, length in enumerate(lengths)
            for _ in range(1 if length is None else length)
        ]
        every = [*values, *outputs]
        if self.uses.needs:
            pairs = zip(wanted, every, strict=True)
            every = [e if keep or not isinstance(e, torch.Tensor) else _sizes_of(e) for keep, e in pairs]
            wanted = [True] * len(every)
        self.kept = [
            None if keep and isinstance(each, torch.Tensor) else NotKept(op) if isinstance(each, torch.Tensor) else each
            for keep, each in zip(wanted, every, strict=True)
        ]
        return [
            each
            for each, other in zip(every, self.kept, strict=True)
            if isinstance(each, torch.Tensor) and other is None
        ]


def _sizes_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same sizes, all of whose elements are one in memory."""
    return tensor.new_zeros(()).expand(tensor.shape)


active: list[int] = []  # the threads that compute a backward, each as often as backwards call each other in it


@contextmanager
def _part_of_backward() -> Iterator[None]:
    me = threading.get_ident()
    active.append(me)
    try:
        yield
    finally:
        active.remove(me)


def in_backward() -> bool:
    """Whether this thread computes a backward. Ops without one are recorded there: to call them is not an error, to
    request a gradient of what they return is one."""
    return bool(active) and threading.get_ident() in active


def record(name: str, library: torch.library.Library, rule: DerivativeRule) -> Callable[..., Any]:
    """Registers with the dispatcher what an op does where a derivative may be requested, and returns it as a function
    of the op's arguments."""
    namespace, _, plain = name.partition("::")
    op = getattr(getattr(torch.ops, namespace), plain).default
    function = _function_of(op, plain, rule)

    def call(keys: object, *inputs: object, **parameters: object) -> Any:
        reverse = torch.is_grad_enabled() and any(_requires_grad(value) for value in inputs)
        dual = forward_mode() and has_tangent(inputs)
        if not (reverse or dual):
            return _below(op, keys, inputs, parameters)
        why = rule.obstacle(forward=True) if dual else ""
        if why:
            refuse_tangents(rule.op, rule.arguments, inputs, why)
        if reverse and not in_backward() and rule.obstacle(forward=False):
            rule.refuse(inputs)
        modes = torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled()
        this = _Call(keys, parameters, lengths(inputs), dual, modes=modes)
        with _on_this_level():
            result = function.apply(this, *flat(inputs))
        results = grouped(result, this.outputs)
        return results[0] if this.one else tuple(results)

    library.impl(plain, untraced(call), "Autograd", with_keyset=True)
    op._dispatch_cache.clear()  # of programs that were traced before
    return functools.partial(call, None)


def check(name: str, library: torch.library.Library, refuse: Callable[[Sequence[Any]], None]) -> Callable[..., Any]:
    """Registers what raises where an op that has no derivative would lose one, with all arguments of the call, and
    returns it as a function of the op's arguments."""
    namespace, _, plain = name.partition("::")
    op = getattr(getattr(torch.ops, namespace), plain).default

    def call(keys: object, *inputs: object, **parameters: object) -> Any:
        if torch.is_grad_enabled() or forward_mode():
            refuse(inputs)
        return _below(op, keys, inputs, parameters)

    library.impl(plain, untraced(call), "Autograd", with_keyset=True)
    return functools.partial(call, None)


def _below(op: Any, keys: Any, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        if keys is None:
            return op(*inputs, **parameters)
        return op.redispatch(keys & torch._C._after_autograd_keyset, *inputs, **parameters)


def _function_of(op: Any, name: str, rule: DerivativeRule) -> Any:
    """The function of autograd that records an op on one level."""

    def forward(ctx: Any, this: _Call, *values: Any) -> tuple[torch.Tensor, ...]:
        grad, tangents = this.modes
        with torch.set_grad_enabled(grad), _set_fwd_grad_enabled(tangents):
            result = _below(op, this.keys, grouped(values, this.inputs), this.parameters)
        this.one = not isinstance(result, tuple)
        results = (result,) if this.one else result
        this.outputs, outputs = lengths(results), flat(results)
        needs = grouped(ctx.needs_input_grad[1:], this.inputs)
        this.uses = rule.uses(grouped(values, this.inputs), this.parameters, needs)
        tensors = this.keep(rule.op, values, outputs)
        ctx.this = this
        ctx.save_for_backward(*tensors)
        if this.dual:
            ctx.save_for_forward(*tensors)
        return tuple(outputs)

    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        this: _Call = ctx.this
        why = rule.obstacle(forward=False)
        if why:
            raise GraphError(
                f"a gradient of {rule.op!r} is requested, which computes gradients and has no backward itself",
                code="EK0881",
                place=user_place(),
                op=rule.op,
                hint="derivatives of second order want a backward that is written with operations of torch",
            )
        inputs, outputs = this.values(ctx.saved_tensors)
        with _part_of_backward():
            needs = grouped(ctx.needs_input_grad[1:], this.inputs)
            result = rule.gradients(inputs, outputs, grouped(grads, this.outputs), this.parameters, needs, this.uses)
        return None, *_spread(result, this.inputs)

    def jvp(ctx: Any, _: None, *tangents: object) -> tuple[Any, ...]:
        this: _Call = ctx.this
        inputs, outputs = this.values([unpack(each).primal for each in ctx.saved_tensors])
        with torch.enable_grad(), _set_fwd_grad_enabled(this.modes[1]):
            return _forward_mode(op, rule, this, inputs, outputs, tangents)

    members = {"forward": forward, "backward": backward, "jvp": jvp}
    return type(f"Backward_{name}", (_SingleLevelFunction,), {k: staticmethod(untraced(v)) for k, v in members.items()})


def _forward_mode(
    op: Any, rule: DerivativeRule, this: _Call, inputs: list[Any], outputs: list[Any], tangents: Sequence[Any]
) -> tuple[Any, ...]:
    """The tangent of each output."""
    if any(tensor.requires_grad for value in inputs for tensor in tensors_of(value)):
        result = op(*inputs, **this.parameters)  # recorded: a gradient of the tangent may be requested
        outputs = [result] if this.one else list(result)
    made = flat(outputs)
    with torch._functorch.eager_transforms.enable_inplace_requires_grad(True):
        us = [torch.zeros_like(o) for o in made]
        us = [u.requires_grad_() if u.is_floating_point() or u.is_complex() else u for u in us]
    with _part_of_backward():
        result = rule.gradients(inputs, outputs, grouped(us, this.outputs), this.parameters)
    result = _spread(result, this.inputs)
    pairs = [(g, t) for g, t in zip(result, tangents, strict=True) if g is not None and t is not None]
    if any(not g.requires_grad for g, _ in pairs):
        _refuse_tangent(rule.op, rule.arguments[0], "its backward computes without operations of torch")
    wanted = [u for u in us if u.requires_grad]
    if pairs and wanted:
        columns = iter(
            torch.autograd.grad(
                [g for g, _ in pairs],
                wanted,
                [t.expand_as(g) for g, t in pairs],
                create_graph=True,  # else no level would record it
                allow_unused=True,
            )
        )
    else:
        columns = iter([None] * len(wanted))
    return tuple(_tangent(next(columns), u) if u.requires_grad else None for u in us)


def _tangent(tangent: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(like) if tangent is None else tangent


def _spread(gradients: Sequence[Any], counts: Sequence[int | None]) -> list[Any]:
    """Gradients of inputs, one for each tensor."""
    spread: list[Any] = []
    for each, count in zip(gradients, counts, strict=True):
        spread += [each] if count is None else [None] * count if each is None else each
    return spread


# *** what may be lost ***


unpack = functools.partial(forward_ad.unpack_dual, level=0)  # there is no other


def _requires_grad(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return bool(value.requires_grad)
    return isinstance(value, list | tuple) and any(map(_requires_grad, value))


def forward_mode() -> bool:
    """Whether tensors may carry tangents on this level. Compiled programs enter levels without `forward_ad`."""
    if forward_ad._current_level >= 0:
        return True
    interpreter: Any = torch._C._functorch.peek_interpreter_stack()
    return interpreter is not None and bool(interpreter.key() == torch._C._functorch.TransformType.Jvp)


def has_tangent(inputs: Sequence[object]) -> bool:
    """Whether one of the inputs carries a tangent of the forward mode."""
    tensors = (tensor for value in inputs for tensor in tensors_of(value))
    return any(unpack(tensor).tangent is not None for tensor in tensors)


def refuse_tangents(op: str, arguments: Sequence[str], inputs: Sequence[object], why: str, kind: str = "op") -> None:
    """Refuses to lose a derivative of the forward mode.

    Raises:
        GraphError: EK0870.
    """
    if forward_mode():
        for argument, value in zip(arguments, inputs, strict=False):
            if has_tangent([value]):
                _refuse_tangent(op, argument, why, kind)


def _refuse_tangent(op: str, argument: str, why: str, kind: str = "op") -> None:
    raise GraphError(
        f"{kind} {op!r}: argument {argument!r} has a tangent, and {why}",
        code="EK0870",
        place=user_place(),
        op=op,
        argument=argument,
        expected="a tensor without a tangent",
        got="a dual tensor",
        hint="write the backward with operations of torch, or use the reverse mode: torch.func.vjp, grad or jacrev",
    )


# *** lists among arguments ***


def lengths(values: Sequence[object]) -> list[int | None]:
    """The length of each list among the values; None for what is not a list."""
    return [len(value) if isinstance(value, list | tuple) else None for value in values]


def grouped(values: Sequence[object], counts: Sequence[int | None]) -> list[Any]:
    """What `flat` has made flat."""
    rest = iter(values)
    return [next(rest) if count is None else [next(rest) for _ in range(count)] for count in counts]
