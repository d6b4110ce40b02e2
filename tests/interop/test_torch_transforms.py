"""Derivatives of ops under torch.func: in compositions, next to autograd of the caller, in compiled programs."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from typing import TypeVar

import einkorn.torch as ek
from support import torch_transforms as t
from torch import func
from torch.autograd import forward_ad
from torch.library import opcheck
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register
from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.dsl.frontend.python.import_file import import_file
from einkorn.graph import ops as graph_ops

T = TypeVar("T", bound=Floating)
X = torch.tensor([0.5, 1.25], dtype=torch.float64)


def cubed(x):
    return (t.OPS["scale"](x) ** 3).sum()


def cubed_natively(x):
    return ((x * 2) ** 3).sum()


@pytest.mark.parametrize("name", t.SUBJECTS)
def test_compositions(name):
    subject, number = t.SUBJECTS[name], list(t.SUBJECTS).index(name)
    pairs = itertools.islice(t.compositions(2), number % 4, None, 1 if name == "scale" else 4)
    deep = itertools.islice(t.compositions(3), number * 7, None, 71)  # all of them: support/torch_transforms.py
    for names in (*t.compositions(1), *pairs, *deep):
        outcome = t.outcome(subject, names)
        refused = outcome in ("refused: EK0870", "refused: EK0881")
        assert outcome == "equal" or (refused and subject.orders < 9), (names, outcome)
    assert subject.orders == 0 or {t.outcome(subject, (n,)) for n in ("grad", "vjp", "jacrev", "vmap")} == {"equal"}


def test_a_step_of_meta_learning():
    def loss_after_a_step(loss):
        return func.grad(lambda w: loss(w - 0.1 * func.grad(loss)(w)))(X)

    assert_close(loss_after_a_step(cubed), loss_after_a_step(cubed_natively))


def test_transforms_within_autograd():
    def slope(f):
        x = X.clone().requires_grad_()
        func.grad(f)(x).sum().backward()
        return x.grad

    assert_close(slope(cubed), slope(cubed_natively))

    def through(f):
        x = X.clone().requires_grad_()
        func.jvp(f, (x,), (torch.ones_like(x),))[1].backward()
        return x.grad

    assert_close(through(cubed), through(cubed_natively))


def test_duals_of_autograd():
    def twice(f):
        x = X.clone().requires_grad_()
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones_like(x)))).tangent
        return torch.autograd.grad(tangent, x)[0]

    assert_close(twice(cubed), twice(cubed_natively))
    assert torch.autograd.gradcheck(t.OPS["product"], (X.clone().requires_grad_(), X), check_forward_ad=True)
    x = X.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(t.OPS["product"], (x, X), check_fwd_over_rev=True, check_rev_over_rev=True)


def test_autograd_twice():
    def twice(f):
        x = X.clone().requires_grad_()
        (first,) = torch.autograd.grad(f(x), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), x)[0]

    assert_close(twice(cubed), twice(cubed_natively))
    for reentrant in (False, True):
        x = X.clone().requires_grad_()
        checkpoint(cubed, x, use_reentrant=reentrant).backward()
        assert_close(x.grad, func.grad(cubed_natively)(X))


def test_gradient_modes():
    with torch.no_grad():
        assert_close(func.grad(cubed)(X), func.grad(cubed_natively)(X))
        assert_close(func.hessian(cubed)(X), func.hessian(cubed_natively)(X))
    with torch.inference_mode():
        assert_close(t.OPS["scale"](X), X * 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(func.grad(cubed)(X), func.grad(cubed_natively)(X))

    def partly(f):
        def g(x):
            with torch.no_grad():
                constant = f(x)
            return f(x) * constant

        return func.grad(lambda x: func.grad(g)(x).sum())(X)

    assert_close(partly(cubed), partly(cubed_natively))
    assert not t.OPS["scale"](X.clone().requires_grad_()).detach().requires_grad


def test_compiled_transforms():
    for transform in (func.grad, func.hessian):
        compiled = torch.compile(transform(cubed), fullgraph=True, backend="aot_eager")
        assert_close(compiled(X), transform(cubed_natively)(X))
    lost = torch.compile(func.grad(lambda x: (x * t.OPS["without"](x)).sum()), backend="aot_eager")
    with pytest.raises(Exception, match=r"requires a gradient, and the op has no backward"):
        lost(X)


def test_the_example_has_its_first_derivatives():
    example = import_file(Path(__file__).parents[2] / "examples" / "callers" / "torch_op.py")
    x, weight = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)

    def ours(x, weight):
        return (example.norm(x, weight)[0] ** 3).sum()

    def theirs(x, weight):
        return (torch.nn.functional.rms_norm(x, [4], weight, 1e-6) ** 3).sum()

    assert_close(func.grad(ours, (0, 1))(x, weight), func.grad(theirs, (0, 1))(x, weight))
    rows = [func.vmap(func.grad(f), (0, None))(x[:, None], weight) for f in (ours, theirs)]
    assert_close(*rows)
    x.requires_grad_()
    (first,) = torch.autograd.grad(ours(x, weight), x, create_graph=True)
    with pytest.raises(GraphError, match="a gradient of 'rms_norm_gradient' is requested") as caught:
        first.sum().backward()
    assert caught.value.code == "EK0881"
    with pytest.raises(GraphError, match="'rms_norm_gradient'"):
        func.hessian(lambda x: ours(x, weight))(x.detach())


def test_memory_that_is_given_has_no_derivative():
    out = torch.empty_like(X)

    @ek.graph_op
    def doubled(x):
        return graph_ops.mul(x, 2.0)

    library = ek.CustomOpLibrary(t.__file__)
    calls = {
        "out=": lambda x: t.scale(x, out=out),
        "a library": lambda x: library["transformed::scale"](out, x),
        "a graph": lambda x: doubled(out, x),
    }
    for name, call in calls.items():

        def used(x, call=call):
            call(x)
            return (x * out).sum()

        with pytest.raises(GraphError, match="requires a gradient") as caught:
            func.grad(used)(X)
        assert caught.value.code == "EK0881", name
        with pytest.raises(GraphError, match="has a tangent") as caught:
            func.jvp(used, (X,), (X,))
        assert caught.value.code == "EK0870", name
        call(X)
        assert_close(out, X * 2)


# *** backwards that are recorded late ***


def late(name):
    @register(name)
    def kernel(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
        foreach(out, lambda i: x[i] * 3)

    return kernel


def use_of(op, path):
    x = torch.ones(3)
    if path == "compiled":
        torch.compile(lambda x: op(x) ** 2, fullgraph=True, backend="aot_eager")(x)
    elif path == "checked":
        opcheck(op.torch, (x,))
    elif path == "batched":
        torch.vmap(op)(x[None])
    else:
        for _ in range(3):
            op(x)


@pytest.mark.parametrize(
    ("path", "on"),
    [("called", "kernel"), ("compiled", "op"), ("compiled", "kernel"), ("checked", "op"), ("batched", "op")],
)
def test_a_backward_after_the_op_was_used(path, on):
    kernel = late(f"late_{path}_{on}")
    op = ek.op(kernel)
    use_of(op, path)
    compiled = torch.compile(lambda x: op(x) ** 2, fullgraph=True, backend="aot_eager")
    (op if on == "op" else kernel).backward(lambda context, grad: grad * 3)
    for function in (compiled, lambda x: op(x) ** 2, lambda x: op.torch(x) ** 2):
        x = torch.ones(3, requires_grad=True)
        function(x).sum().backward()
        assert x.grad.tolist() == [18.0] * 3
    assert func.hessian(lambda x: (op(x) ** 2).sum())(torch.ones(1)).tolist() == [[18.0]]
    op.backward(lambda context, grad: grad * 4)  # recorded anew
    assert func.grad(lambda x: op(x).sum())(torch.ones(1)).tolist() == [4.0]


def test_a_backward_of_one_op_of_a_name_is_that_of_all(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(
        "from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register\n"
        '@register("by_name")\n'
        'def by_name(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):\n'
        "    foreach(out, lambda i: x[i] * 3)\n"
    )
    first, second = (ek.op("by_name", extensions=[file]) for _ in range(2))
    second.backward(lambda context, grad: grad * 3)
    third = ek.op("by_name", extensions=[file])
    for op in (first, second, third):
        x = torch.ones(3, requires_grad=True)
        op(x).sum().backward()
        assert x.grad.tolist() == [3.0] * 3
