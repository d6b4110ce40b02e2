"""Layers that ranks share, and a step of training: a program of MPI, for `test_layers_on_processes`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from einkorn.distributed import Mesh, RankGroup, rank, size
from support.split_layers import DIM, HEADS, HIDDEN, Layer, f32, numbers

from einkorn.graph import Graph, InferenceSession, TensorValue, nn, ops


class Pair(nn.Module[[Any], Any]):
    """Two products: the first by columns, the second by rows."""

    def __init__(self, group: RankGroup | None) -> None:
        self.first = nn.Linear(DIM, HIDDEN, split_out=group)
        self.second = nn.Linear(HIDDEN, DIM, split_in=group)

    def forward(self, x: Any) -> Any:
        return self.second(ops.gelu(self.first(x)))


MADE: dict[str, Any] = {
    "linear": Pair,
    "mlp": lambda group: nn.MLP(DIM, HIDDEN, bias=True, split_hidden=group),
    "attention": lambda group: nn.Attention(DIM, HEADS, 4, bias=True, split_heads=group),
    "experts": lambda group: nn.MoE(DIM, 16, 8, 2, split_experts=group),
    "layer": Layer,
}


def layers(group: RankGroup) -> None:
    x = numbers(2, 7, DIM, seed=99)
    for name, make in MADE.items():
        whole, mine = make(None), make(group)
        state = {
            key: numbers(*(int(dim) for dim in each.shape), seed=k) for k, (key, each) in enumerate(whole.parameters)
        }
        whole.load_state_dict(state)
        mine.load_state_dict(state)
        wanted, actual = (each.compile(f32("b", 7, DIM))(x).numpy() for each in (whole, mine))
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)
        print(f"rank {rank()} of {size()}: {name} holds", flush=True)


def training(group: RankGroup) -> None:
    """Steps of least squares, each rank with its rows: the gradients are those of all rows, the same on all ranks."""
    x, y, w = numbers(16, 6, seed=1), numbers(16, 3, seed=2), numbers(6, 3, seed=3)

    def step(x: Any, y: Any, w: Any) -> Any:
        gradient = ops.transpose(x, 0, 1) @ (x @ w - y) * (2 / (16 // group.size))
        return w - 0.1 * cast(TensorValue, ops.allreduce.mean(gradient, group))

    model = InferenceSession(num_threads=1).load(Graph("step", step, [f32("n", 6), f32("n", 3), f32(6, 3)]))
    mine, wanted = w, w.astype(np.float64)
    for _ in range(5):
        mine = model(np.ascontiguousarray(group.part(x)), np.ascontiguousarray(group.part(y)), mine)[0].to_numpy()
        wanted = wanted - 0.1 * 2 / 16 * x.T @ (x @ wanted - y)
    np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5)
    everyone = InferenceSession(num_threads=1).load(Graph("all", lambda w: ops.allgather(w, group), [f32(6, 3)]))
    assert all(each.tobytes() == mine.tobytes() for each in np.split(everyone(mine)[0].to_numpy(), group.size))
    print(f"rank {rank()} of {size()}: training holds", flush=True)


if __name__ == "__main__":
    ranks = Mesh({"model": size()})["model"]
    layers(ranks)
    training(ranks)
