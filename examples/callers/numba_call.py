"""Calls kernels inside of a function that numba compiles, and makes a ufunc of one."""

from __future__ import annotations

from typing import TypeVar

import einkorn.numba
import numba
import numpy as np

from einkorn.dsl import Floating, InputTensor, MutableInputTensor, OutputTensor, foreach, register, sqrt

T = TypeVar("T", bound=Floating)


@register("distances")
def distances(out: OutputTensor[T, "n"], points: InputTensor[T, "n 2"], x: T, y: T) -> None:
    """The distance of each point from (x, y)."""

    def element(i):
        across, up = points[i[0], 0] - x, points[i[0], 1] - y
        return sqrt(across * across + up * up)

    foreach(out, element)


@register("pull")
def pull(points: MutableInputTensor[T, "n 2"], x: T, y: T, *, by: float = 0.5) -> None:
    """Moves each point towards (x, y)."""
    foreach(points, lambda i: points[i] + by * ((x if i[1] == 0 else y) - points[i]))


@register("softsign")
def softsign(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]) -> None:
    foreach(out, lambda i: x[i] / (1 + abs(x[i])))


distances_of, pull_to = einkorn.numba.function(distances), einkorn.numba.function(pull, by=0.25)


@numba.njit(parallel=True)
def nearest(clouds: np.ndarray, x: float, y: float) -> np.ndarray:
    """The least distance in each cloud of points, after its points were pulled."""
    distances = np.empty(clouds.shape[0])
    for cloud in numba.prange(clouds.shape[0]):
        pull_to(clouds[cloud], x, y)
        distances[cloud] = distances_of(clouds[cloud], x, y).min()
    return distances


if __name__ == "__main__":
    clouds = np.random.default_rng(0).standard_normal((20, 500, 2))
    wanted = np.linalg.norm(0.75 * (clouds - [1, 2]), axis=2).min(axis=1)
    assert np.allclose(nearest(clouds, 1.0, 2.0), wanted)
    print("matches NumPy, from 20 rounds of a prange")

    x = np.arange(-6, 6).reshape(3, 4)
    assert np.allclose(
        softsign.ufunc(x[:, ::2], where=x[:, ::2] > 0, out=np.zeros((3, 2))), np.maximum(x / (1 + abs(x)), 0)[:, ::2]
    )
    print(f"matches as a ufunc, too: {softsign.ufunc.types}")
