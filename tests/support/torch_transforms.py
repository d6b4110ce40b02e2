"""Compares derivatives of ops with those of the same formulas in PyTorch, under compositions of torch.func.

    python tests/support/torch_transforms.py [DEPTH]

An op is used nonlinearly, so that a derivative which is lost at an outer level changes the result.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import einkorn.torch
import torch
from torch import func

from einkorn.dsl import Floating, InputTensor, OutputTensor, VariadicTensors, exp, foreach, int64, register, unroll
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import ops as graph_ops

T = TypeVar("T", bound=Floating)
Function = Callable[[Any], Any]
REFUSED = "refused"


@register("transformed::scale")
def scale(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, factor: float = 2.0):
    foreach(out, lambda i: x[i] * factor)


@scale.backward
def scale_backward(context, grad):
    return scale(grad, factor=context.parameters["factor"])  # a direct call of the kernel


@register("transformed::product")
def product(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] * y[i])


@product.backward
def product_backward(context, grad):
    x, y = context.inputs
    return grad * y, grad * x


@register("transformed::exponential")
def exponential(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):  # no pack: batches are called one by one
    foreach(out, lambda i: exp(x[i]))


@exponential.backward
def exponential_backward(context, grad):
    return grad * context.outputs[0]


@register("transformed::parts")
def parts(
    double: OutputTensor[T, "n"], square: OutputTensor[T, "n"], place: OutputTensor[int64, "n"], x: InputTensor[T, "n"]
):
    foreach(double, lambda i: x[i] * 2)
    foreach(square, lambda i: x[i] * x[i])
    foreach(place, lambda i: int64(i[0]))


@parts.backward
def parts_backward(context, double, square, _):
    (x,) = context.inputs
    return double * 2 + square * 2 * x


@register("transformed::total")
def total(out: OutputTensor[T, "n"], xs: VariadicTensors[T, "n"]):
    def element(i):
        value = xs[0][i]
        for k in unroll(1, len(xs)):
            value += xs[k][i] * xs[k][i]
        return value

    foreach(out, element)


@total.backward
def total_backward(context, grad):
    (xs,) = context.inputs
    return ([grad, *(2 * x * grad for x in xs[1:])],)


@register("transformed::cube")
def cube(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] * x[i] * x[i])


@register("transformed::cube_backward")
def cube_backward(grad_x: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], grad_out: InputTensor[T, "*s"]):
    foreach(grad_x, lambda i: grad_out[i] * 3 * x[i] * x[i])


cube.backward(cube_backward)


@cube_backward.backward
def cube_backward_backward(context, grad):
    x, grad_out = context.inputs
    return grad * grad_out * 6 * x, grad * 3 * x * x


@register("transformed::by_kernel")
def by_kernel(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] * x[i])


@register("transformed::by_kernel_backward")
def by_kernel_backward(grad_x: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], grad_out: InputTensor[T, "*s"]):
    foreach(grad_x, lambda i: grad_out[i] * 2 * x[i])


by_kernel.backward(by_kernel_backward)


@register("transformed::by_function_of_kernels")
def by_function_of_kernels(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] * x[i])


@by_function_of_kernels.backward
def by_function_of_kernels_backward(context, grad):
    return by_kernel_backward(context.inputs[0], grad) * 1.0


@register("transformed::by_graph")
def by_graph(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] * x[i])


@by_graph.backward(graph=True)
def by_graph_backward(context, grad):
    return graph_ops.mul(grad * 2.0, context.inputs[0])


@register("transformed::without")
def without(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] * 3)


OPS = {kernel.__name__: einkorn.torch.op(kernel) for kernel in (scale, product, exponential, parts, total, cube)}
OPS |= {kernel.__name__: einkorn.torch.op(kernel) for kernel in (by_kernel, by_function_of_kernels, by_graph, without)}


@dataclass(frozen=True)
class Subject:
    """A function of an op, and the same in PyTorch. `orders`: of how many derivatives it is differentiable."""

    ours: Function
    theirs: Function
    orders: int = 9


def _parts(x: Any) -> Any:
    double, square, place = OPS["parts"](x)
    return double**2 * square + place


SUBJECTS = {
    "scale": Subject(lambda x: OPS["scale"](x) ** 3, lambda x: (x * 2) ** 3),
    "scale of scale": Subject(lambda x: OPS["scale"](OPS["scale"](x) ** 2) ** 2, lambda x: 64 * x**4),
    "product": Subject(lambda x: OPS["product"](x, x.sin()) ** 2, lambda x: (x * x.sin()) ** 2),
    "exponential": Subject(lambda x: OPS["exponential"](x) ** 2, lambda x: (2 * x).exp()),
    "parts": Subject(_parts, lambda x: (2 * x) ** 2 * x**2 + torch.arange(2)),
    "total": Subject(lambda x: OPS["total"]([x, x * x, x]) ** 2, lambda x: (x + x**4 + x**2) ** 2),
    "cube": Subject(lambda x: OPS["cube"](x) ** 2, lambda x: x**6, 2),
    "by kernel": Subject(lambda x: OPS["by_kernel"](x) ** 2, lambda x: x**4, 1),
    "by a function of kernels": Subject(lambda x: OPS["by_function_of_kernels"](x) ** 2, lambda x: x**4, 1),
    "by graph": Subject(lambda x: OPS["by_graph"](x) ** 2, lambda x: x**4, 1),
    "without": Subject(lambda x: OPS["without"](x) ** 2, lambda x: 9 * x**2, 0),
}

TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "grad": lambda f: func.grad(lambda x: f(x).sum()),
    "vjp": lambda f: lambda x: func.vjp(f, x)[1](torch.cos(f(x)))[0],
    "jacrev": lambda f: func.jacrev(f),
    "jacfwd": lambda f: func.jacfwd(f),
    "hessian": lambda f: func.hessian(f),
    "jvp": lambda f: lambda x: func.jvp(f, (x,), (torch.sin(x),))[1],
    "vmap": lambda f: lambda x: func.vmap(f)(torch.stack([x, x * x])),
}


def compositions(depth: int) -> Iterator[tuple[str, ...]]:
    """All compositions of that many transforms, the innermost first."""
    yield from itertools.product(TRANSFORMS, repeat=depth)


def outcome(subject: Subject, names: Sequence[str]) -> str:
    """What a composition gives: "equal", "refused: EK…", or what is wrong."""
    ours, theirs = subject.ours, subject.theirs
    for name in names:
        ours, theirs = TRANSFORMS[name](ours), TRANSFORMS[name](theirs)
    x = torch.tensor([0.5, 1.25], dtype=torch.float64)
    wanted = theirs(x)
    try:
        got = ours(x)
    except EinkornError as error:
        return f"{REFUSED}: {error.code}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "equal" if got.shape == wanted.shape and torch.allclose(got, wanted) else "WRONG"


def main(depth: int) -> None:
    for name, subject in SUBJECTS.items():
        result = {names: outcome(subject, names) for n in range(1, depth + 1) for names in compositions(n)}
        print(name, dict(Counter(result.values())), flush=True)
        for names, got in result.items():
            if got != "equal" and not got.startswith(REFUSED):
                print("   ", names, got)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
