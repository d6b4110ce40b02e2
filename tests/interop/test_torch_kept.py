"""What autograd keeps for the backward of an op, and what that may do with it."""

from __future__ import annotations

from typing import TypeVar

import pytest

torch = pytest.importorskip("torch")

import einkorn.torch as ek

from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register
from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.graph.interop.torch.recording import NotKept
from einkorn.graph.interop.uses import Uses, uses_of

T = TypeVar("T", bound=Floating)


@register("kept_times")
def kept_times(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"], *, factor: float = 1.0):
    foreach(out, lambda i: x[i] * y[i] * factor)


@register("kept_scale")
def kept_scale(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, factor: float = 2.0):
    foreach(out, lambda i: x[i] * factor)


@register("kept_slope")
def kept_slope(grad_x: OutputTensor[T, "*s"], y: InputTensor[T, "*s"], grad_out: InputTensor[T, "*s"]):
    foreach(grad_x, lambda i: y[i] * grad_out[i])


def nothing(context, grad):
    return grad * context.parameters["factor"], None


def first(context, grad):
    return None, grad * context.inputs[0]


def last_and_output(context, grad):
    return grad * context.inputs[-1], grad * context.outputs[0]


def by_names(context, grad):
    x, y = context.inputs  # noqa: RUF059  only one is read
    return None, grad * x


def in_a_helper(context, grad):
    def other():
        return context.inputs[1]

    return grad * other(), None


def sliced(context, grad):
    return [grad * each for each in context.inputs[::-1]]


def handed_on(context, grad):
    return sliced(context, grad)


def by_number(context, grad):
    k = 1
    return grad * context.inputs[k], None


def other_name(context, grad):
    c = context
    return grad * c.inputs[1], None


def all_variables(context, grad):
    return grad * locals()["context"].inputs[1], None


EXPECTED = [
    (nothing, (set(), set())),
    (first, ({0}, set())),
    (last_and_output, ({1}, {0})),
    (by_names, ({0}, set())),
    (in_a_helper, ({1}, set())),
    (sliced, (None, set())),
    (handed_on, (None, None)),
    (by_number, (None, set())),
    (other_name, (None, None)),
    (all_variables, (None, None)),
]


@pytest.mark.parametrize(("backward", "expected"), EXPECTED, ids=[each.__name__ for each, _ in EXPECTED])
def test_what_is_read(backward, expected):
    ek.op(kept_times).backward(backward)
    assert uses_of(kept_times.schema, kept_times.gradient) == Uses(
        *(e if e is None else frozenset(e) for e in expected)
    )


def test_a_text_that_is_another_by_now():
    names: dict = {}
    exec("def backward(context, grad):\n    return grad, grad", names)
    ek.op(kept_times).backward(names["backward"])
    assert uses_of(kept_times.schema, kept_times.gradient) == Uses()
    ek.op(kept_times).backward(kept_slope)
    assert uses_of(kept_times.schema, kept_times.gradient) == Uses(frozenset({1}), frozenset())


def kept_bytes(run):
    found = []

    def pack(tensor):
        found.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    return result, sum(found)


def test_memory():
    x, y = torch.ones(1000, requires_grad=True), torch.full((1000,), 3.0, requires_grad=True)
    op = ek.op(kept_scale)
    op.backward(lambda context, grad: grad * context.parameters["factor"])
    result, count = kept_bytes(lambda: op(x))
    assert count == 0
    result.relu_().sum().backward()
    assert torch.equal(x.grad, torch.full((1000,), 2.0))
    times = ek.op(kept_times)
    times.backward(by_names)
    result, count = kept_bytes(lambda: times(x, y))
    assert count == 4000
    result.sum().backward()
    assert torch.equal(y.grad, torch.ones(1000))


def test_an_op_behind_it_may_write():
    op = ek.op(kept_scale)
    op.backward(lambda context, grad: op(grad))
    for follow in (torch.relu_, lambda t: t.mul_(3), lambda t: t.add_(1)):
        x = torch.tensor([-1.0, 2.0], requires_grad=True)
        follow(op(x)).sum().backward()
        mine, x.grad = x.grad, None
        follow(x * 2).sum().backward()
        assert torch.equal(mine, x.grad)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    assert torch.autograd.gradgradcheck(op, (x.detach().double().requires_grad_(),))
    assert torch.func.jvp(op, (x.detach(),), (torch.ones(2),))[1].tolist() == [2.0, 2.0]
    compiled = torch.compile(lambda t: op(t).relu_(), backend="aot_eager", fullgraph=True)
    compiled(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_which_gradients_are_needed():
    seen = []

    def backward(context, grad):
        seen.append(context.needs_input_grad)
        return [grad if needed else None for needed in context.needs_input_grad]

    op = ek.op(kept_times)
    op.backward(backward)
    x, y = torch.ones(2, requires_grad=True), torch.ones(2)
    op(x, y).sum().backward()
    op(y, x).sum().backward()
    op(x, x).sum().backward()
    assert seen == [(True, False), (False, True), (True, True)]


def test_what_was_not_kept():
    with pytest.raises(GraphError, match="EK0885"):
        NotKept("kept_times").shape  # noqa: B018  reading it raises
