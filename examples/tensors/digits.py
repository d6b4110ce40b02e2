"""A network of two layers learns digits that this program draws: forward, backward and update as one graph.

    python examples/tensors/digits.py

Every step is written in ops of tensors. `F.functional` makes it one graph, compiled once; NumPy does the same next to.
"""

from __future__ import annotations

import numpy as np
from einkorn.tensor import Tensor

from einkorn import functional as F
from einkorn import random
from einkorn.graph import DType

GLYPHS = """
    .###. ..#.. ###.. ###.. #..#. ##### .###. ##### .###. .###.
    #...# .##.. ...#. ...#. #..#. #.... #.... ....# #...# #...#
    #...# ..#.. .##.. .##.. ##### ####. ####. ...#. .###. .####
    #...# ..#.. #.... ...#. ...#. ....# #...# ..#.. #...# ....#
    .###. .###. ##### ###.. ...#. ####. .###. ..#.. .###. .###.
"""
STEPS, HIDDEN, COPIES = 80, 32, 20


def digits(noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of 5 x 5 points, and which digit each shows."""
    rows = [line.split() for line in GLYPHS.split("\n") if line.strip()]
    drawn = np.array([[[dot == "#" for dot in row[k]] for row in rows] for k in range(10)], np.float32).reshape(10, 25)
    labels = np.repeat(np.arange(10), COPIES)
    blur = np.random.default_rng(0).normal(0, noise, (len(labels), 25))
    return (drawn[labels] + blur).astype(np.float32), labels


@F.functional
def step(pictures, wanted, weights, rate):
    """One step of gradient descent: the new weights, and the loss before."""
    first, bias, second = weights
    hidden = F.relu(pictures @ first.T + bias)
    guessed = F.softmax(hidden @ second.T)
    loss = -F.mean(F.log(F.sum(guessed * wanted)), axis=None)
    wrong = (guessed - wanted) / float(len(pictures))
    back = F.where(hidden > 0, wrong @ second, 0.0)
    new = (first - rate * (back.T @ pictures), bias - rate * F.sum(back, axis=0), second - rate * (wrong.T @ hidden))
    return new, loss


def numpy_step(pictures, wanted, weights, rate):
    """The same in NumPy."""
    first, bias, second = weights
    hidden = np.maximum(pictures @ first.T + bias, 0)
    guessed = np.exp(hidden @ second.T)
    guessed /= guessed.sum(1, keepdims=True)
    wrong = (guessed - wanted) / np.float32(len(pictures))
    back = (wrong @ second) * (hidden > 0)
    rate = np.float32(rate)
    return first - rate * back.T @ pictures, bias - rate * back.sum(0), second - rate * wrong.T @ hidden


def main() -> None:
    random.set_seed(3)
    pictures, labels = digits(noise=0.2)
    x, wanted = Tensor.constant(pictures), F.one_hot(Tensor.constant(labels), 10)
    weights = random.kaiming_uniform([HIDDEN, 25]), Tensor.zeros([1, HIDDEN]), random.xavier_uniform([10, HIDDEN])
    in_numpy = [each.numpy() for each in weights]
    for k in range(STEPS):
        rate = 0.5 / (1 + k / 40)
        weights, loss = step(x, wanted, weights, rate)
        in_numpy = numpy_step(pictures, wanted.numpy(), in_numpy, rate)
        if k % 20 == 0:
            print(f"step {k:2}: loss {loss.item():.3f}")
    assert all(np.allclose(a.numpy(), b, rtol=1e-2, atol=1e-3) for a, b in zip(weights, in_numpy, strict=True))
    guessed = F.argmax(F.relu(x @ weights[0].T + weights[1]) @ weights[2].T)
    right = F.mean((guessed == Tensor.constant(labels).reshape([-1, 1])).cast(DType.float32), axis=None)
    print(f"right: {right.item():.1%}, as with NumPy")
    assert right > 0.95


if __name__ == "__main__":
    main()
