"""A kernel within PyTorch: a fused RMS norm with its gradient, inside a training step that is compiled as one graph.

    python torch_op.py                 with PyTorch's graph run op by op
    python torch_op.py inductor        with PyTorch's compiler, which wants a C++ compiler and takes its time

The norm takes one pass over each row, and so does its gradient: what PyTorch would do in six kernels each.
"""

from __future__ import annotations

import sys
from typing import TypeVar

import einkorn.torch
import torch

from einkorn.dsl import Floating, InputTensor, OutputTensor, parallel_for, register, rsqrt

T = TypeVar("T", bound=Floating)


@register("rms_norm")
def rms_norm(
    out: OutputTensor[T, "rows n"],
    inverse: OutputTensor[T, "rows"],
    x: InputTensor[T, "rows n"],
    weight: InputTensor[T, "n"],
    *,
    epsilon: float = 1e-6,
):
    """Each row over its root mean square, times `weight`; `inverse` is one over the root, for the gradient."""

    def row(r):
        total = 0.0
        for k in range(x.dim(1)):
            total += x[r, k] * x[r, k]
        scale = rsqrt(total / x.dim(1).cast(T) + epsilon)
        inverse[r] = scale
        for k in range(x.dim(1)):
            out[r, k] = x[r, k] * scale * weight[k]

    parallel_for(x.dim(0), row)


@register("rms_norm_gradient")
def rms_norm_gradient(
    grad_x: OutputTensor[T, "rows n"],
    grad: InputTensor[T, "rows n"],
    x: InputTensor[T, "rows n"],
    weight: InputTensor[T, "n"],
    inverse: InputTensor[T, "rows"],
):
    """What a change of `x` does to the loss: the change of the scale touches the whole row."""

    def row(r):
        along = 0.0
        for k in range(x.dim(1)):
            along += grad[r, k] * weight[k] * x[r, k]
        shared = along * inverse[r] * inverse[r] / x.dim(1).cast(T)
        for k in range(x.dim(1)):
            grad_x[r, k] = inverse[r] * (grad[r, k] * weight[k] - x[r, k] * shared)

    parallel_for(x.dim(0), row)


norm = einkorn.torch.op(rms_norm)
norm_gradient = einkorn.torch.op(rms_norm_gradient)


@norm.backward
def backward(context, grad, _):
    x, weight = context.inputs
    _, inverse = context.outputs
    return norm_gradient(grad.contiguous(), x, weight, inverse), (grad * x * inverse[:, None]).sum(0)


class Network(torch.nn.Module):
    """Two layers with a norm between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(2, width), torch.nn.Linear(width, 2)
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        hidden, _ = norm(self.first(points).relu(), self.weight)
        return self.last(hidden)


def spirals(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of two spirals, and which of the two each is of."""
    kind = torch.arange(count) % 2
    radius = torch.linspace(0.2, 1, count)
    angle = radius * 6 + kind * torch.pi
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), kind


def check_gradient() -> None:
    """The gradient is that of differences, and the norm is PyTorch's."""
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(7, dtype=torch.float64, requires_grad=True)
    wanted = torch.nn.functional.rms_norm(x, [7], weight, 1e-6)
    torch.testing.assert_close(norm(x, weight)[0], wanted)
    assert torch.autograd.gradcheck(lambda a, b: norm(a, b)[0], (x, weight))


def main(backend: str) -> None:
    torch.manual_seed(0)
    check_gradient()
    network = Network(64)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)

    @torch.compile(fullgraph=True, dynamic=True, backend=backend)
    def loss_of(points: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(network(points), kind)

    points, kind = spirals(400)
    for step in range(200):
        chosen = torch.randperm(400)[: 100 + step]  # of another size each time, and compiled once
        optimizer.zero_grad()
        loss = loss_of(points[chosen], kind[chosen])
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step:3}: loss {loss.item():.3f}")
    with torch.no_grad():
        right = (network(points).argmax(1) == kind).float().mean().item()
    print(f"{right:.0%} of the points are distinguished")
    assert right > 0.9
    print("the norm matches PyTorch's, its gradient matches finite differences")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "aot_eager")
