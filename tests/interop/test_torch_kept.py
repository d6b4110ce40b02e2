"""What autograd keeps for the backward of an op, and what that may do with it."""

from __future__ import annotations

from typing import TypeVar

import pytest

torch = pytest.importorskip("torch")

import einkorn.torch as ek

from einkorn.dsl import (
    Floating,
    InputTensor,
    OutputTensor,
    VariadicTensors,
    exp,
    foreach,
    int32,
    register,
    sqrt,
    unroll,
)
from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.graph import ops
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
    collected = []

    def pack(tensor):
        collected.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    return result, sum(collected)


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


@register("kept_three")
def kept_three(
    out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], y: InputTensor[T, "m n"], bias: InputTensor[T, "m n"]
):
    foreach(out, lambda i: x[i] * y[i] + bias[i])


staged: list[tuple[bool, ...]] = []


@kept_three.backward(graph=True)
def kept_three_backward(context, grad):
    x, y, _ = context.inputs
    staged.append(context.needs_input_grad)
    return grad * y, grad * x if context.needs_input_grad[1] else None, grad


@register("kept_root")
def kept_root(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: sqrt(x[i]))


@kept_root.backward(graph=True)
def kept_root_backward(context, grad):
    return grad / (context.outputs[0] * 2.0)


def kept_memory(run):
    """The bytes behind the tensors that are kept."""
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    return result, sum(size for size in kept.values() if size > 4)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("needed", [(1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1)])
def test_graphs_keep_what_they_read(needed, compiled):
    op = ek.op(kept_three)
    values = [torch.rand(10, 100).requires_grad_(bool(need)) for need in needed]
    run = torch.compile(op, backend="aot_eager", fullgraph=True) if compiled else op
    staged.clear()
    result, count = kept_memory(lambda: run(*values))
    if not compiled:
        assert count == 4000 * (needed[0] + needed[1])
    (result**2).sum().backward()
    wanted = [value.detach().clone().requires_grad_(value.requires_grad) for value in values]
    ((wanted[0] * wanted[1] + wanted[2]) ** 2).sum().backward()
    for mine, theirs in zip(values, wanted, strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        if theirs.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad)
    assert all(each == tuple(map(bool, needed)) for each in staged)


def test_graphs_compute_what_is_requested_of_autograd():
    op = ek.op(kept_three)
    values = [torch.rand(3, 4, requires_grad=True) for _ in range(3)]
    result = op(*values)
    for k, wanted in enumerate((values[1], values[0], torch.ones(3, 4))):
        (found,) = torch.autograd.grad(result.sum(), [values[k]], retain_graph=True)
        torch.testing.assert_close(found, wanted.detach())
    for rows, columns in ((0, 4), (1, 1)):
        values = [torch.rand(rows, columns).T.requires_grad_() for _ in range(3)]
        op(*values).sum().backward()
        torch.testing.assert_close(values[0].grad, values[1].detach())
    per_example = torch.func.vmap(torch.func.grad(lambda *each: (op(*each) ** 2).sum(), (0, 2)))
    x, y, bias = (torch.rand(5, 2, 3) for _ in range(3))
    for found, wanted in zip(per_example(x, y, bias), (2 * (x * y + bias) * y, 2 * (x * y + bias)), strict=True):
        torch.testing.assert_close(found, wanted)


def test_graphs_keep_outputs():
    op, x = ek.op(kept_root), torch.rand(1000) + 1
    x.requires_grad_()
    result, count = kept_memory(lambda: op(x * 1))
    assert count == 4000
    result.sum().backward()
    torch.testing.assert_close(x.grad, 0.5 / x.detach().sqrt())
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        op(x).mul_(2).sum().backward()
    again = op(y := (x * 1))
    y.detach().zero_()  # the input is not read
    again.sum().backward()


@register("kept_growth")
def kept_growth(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], by: InputTensor[T, "*s"]):
    foreach(out, lambda i: exp(x[i]) * by[i])


@kept_growth.backward(graph=True)
def kept_growth_backward(context, grad):
    x, by = context.inputs
    if all(context.needs_input_grad):
        return grad * context.outputs[0], grad * context.outputs[0] / by
    return grad * ops.exp(x) * by, grad * ops.exp(x)  # reads more where fewer gradients are needed


def test_a_graph_that_would_read_what_is_not_kept():
    op, (x, by) = ek.op(kept_growth), (torch.rand(5) + 1 for _ in range(2))
    x.requires_grad_(), by.requires_grad_()
    result = op(x, by).sum()
    for value, wanted in ((x, x.detach().exp() * by.detach()), (by, x.detach().exp())):
        (actual,) = torch.autograd.grad(result, [value], retain_graph=True)
        torch.testing.assert_close(actual, wanted)
    (actual,) = torch.autograd.grad(op(x, by.detach()).sum(), [x])
    torch.testing.assert_close(actual, (x.exp() * by).detach())


@register("kept_sum")
def kept_sum(
    out: OutputTensor[T, "*s"], w: InputTensor[T, "*s"], xs: VariadicTensors[T, "*s"], a: T, n: InputTensor[int32, "*s"]
):
    def element(i):
        total = xs[0][i]
        for k in unroll(1, len(xs)):
            total = total + xs[k][i]
        return total * w[i] * a + n[i].cast(w.dtype)

    foreach(out, element)


@kept_sum.backward(graph=True)
def kept_sum_backward(context, grad):
    w, xs, a, _ = context.inputs
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return grad * total * a, [grad * w * a for _ in xs], None, None


@pytest.mark.parametrize("needed", [(1, 1, 1), (0, 1, 0), (1, 0, 0), (0, 0, 1)])
def test_graphs_of_lists_and_numbers(needed):
    whole = torch.ones(3, dtype=torch.int32)
    values = [torch.rand(3).requires_grad_(bool(need)) for need in needed]
    (ek.op(kept_sum)(values[0], values[1:], 2.0, whole) ** 2).sum().backward()
    wanted = [value.detach().clone().requires_grad_(value.requires_grad) for value in values]
    (((wanted[1] + wanted[2]) * wanted[0] * 2 + 1) ** 2).sum().backward()
    for mine, theirs in zip(values, wanted, strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        if theirs.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad)


@register("kept_second")
def kept_second(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] * 0 + y[i])


@kept_second.backward(graph=True)
def kept_second_backward(context, grad):
    return None, grad


def test_graphs_without_a_gradient_that_is_needed():
    x, y = torch.ones(3, requires_grad=True), torch.ones(3)
    ek.op(kept_second)(x, y).sum().backward()
    assert x.grad is None
