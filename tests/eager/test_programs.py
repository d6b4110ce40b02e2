"""Programs that people write on the first day agree with NumPy, and loops compile no more than one round does."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from einkorn.tensor import Tensor

from einkorn import functional as F
from einkorn import random
from einkorn.graph import DType
from einkorn.graph.eager.programs import COUNTS
from einkorn.graph.loading.background import BACKGROUND

ROOT = Path(__file__).resolve().parents[2]
AROUND = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]


def test_a_game_of_life() -> None:
    grid = np.random.default_rng(0).integers(0, 2, (24, 40)).astype(np.int32)
    board = Tensor.constant(grid)
    assert board.dtype is DType.int32
    for _ in range(12):
        neighbours: Any = sum(F.roll(F.roll(board, dy, 0), dx, 1) for dy, dx in AROUND)
        board = ((neighbours == 3) | ((neighbours == 2) & (board == 1))).cast(DType.int32)
        counted = sum(np.roll(grid, each, (0, 1)) for each in AROUND)
        grid = ((counted == 3) | ((counted == 2) & (grid == 1))).astype(np.int32)
    np.testing.assert_array_equal(board.numpy(), grid)


def test_k_means() -> None:
    rng = np.random.default_rng(1)
    points = np.concatenate([rng.normal(c, 0.3, (50, 2)) for c in ((0, 0), (3, 3), (0, 4))]).astype(np.float32)
    x, centres, expected = Tensor.constant(points), Tensor.constant(points[::50]), points[::50]
    for _ in range(5):
        distances = F.sum((F.unsqueeze(x, 1) - F.unsqueeze(centres, 0)) ** 2).reshape([150, 3])
        nearest = F.argmin(distances).reshape([150])
        member = F.one_hot(nearest, 3)
        centres = (member.T @ x) / F.sum(member, axis=0).reshape([3, 1])
        closest = ((points[:, None] - expected[None]) ** 2).sum(2).argmin(1)
        expected = np.stack([points[closest == k].mean(0) for k in range(3)])
    np.testing.assert_allclose(centres.numpy(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(nearest.numpy(), closest)


def test_mandelbrot() -> None:
    real, imaginary = np.meshgrid(np.linspace(-2, 1, 48, dtype=np.float32), np.linspace(-1, 1, 32, dtype=np.float32))
    cr, ci = Tensor.constant(real), Tensor.constant(imaginary)

    def step(zr: Any, zi: Any, count: Any) -> Any:
        zr, zi = zr * zr - zi * zi + cr, 2.0 * zr * zi + ci
        return zr, zi, count + (zr * zr + zi * zi < 4.0).cast(DType.int32)

    one = F.functional(step)
    state = alone = Tensor.zeros([32, 48]), Tensor.zeros([32, 48]), Tensor.zeros([32, 48], dtype=DType.int32)
    for _ in range(30):
        state, alone = one(*state), step(*alone)
    for fused, single in zip(state, alone, strict=True):
        np.testing.assert_array_equal(fused.numpy(), single.numpy())
    z, count = np.zeros((32, 48), np.complex64), np.zeros((32, 48), np.int32)
    with np.errstate(all="ignore"):
        for _ in range(30):
            z = z * z + (real + 1j * imaginary)
            count += np.abs(z) < 2
    assert (state[2].numpy() != count).mean() < 0.02


def test_gradient_descent() -> None:
    random.set_seed(3)
    x, true, w = random.normal([64, 8]), random.normal([1, 8]), random.xavier_uniform([1, 8])
    y = x @ true.T
    for k in range(80):
        if k == 2:
            BACKGROUND.wait()
            before = dict(COUNTS)
        error = x @ w.T - y
        w = w - 0.3 / (1 + k / 1000) * (error.T @ x) / 64.0
    assert before == COUNTS
    np.testing.assert_allclose(w.numpy(), true.numpy(), atol=1e-3)


def test_the_example_of_digits(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "tensors" / "digits.py"), run_name="__main__")
    assert "right: 100.0%, as with NumPy" in capsys.readouterr().out
