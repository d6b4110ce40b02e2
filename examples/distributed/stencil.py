"""Smooths an image in blocks of a Dask array by a kernel that reads neighbours: python examples/distributed/stencil.py

Dask gives each block some rows and columns of its neighbours (`map_overlap`), so that the result is that of the whole
image, to the bit. The blocks are computed on threads; on a cluster the program is the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import dask.array as da
import numpy as np
from PIL import Image

from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register

T = TypeVar("T", bound=Floating)
SIDE, BLOCK, STEPS = 384, 128, 24


@register("example_smooth")
def smooth(out: OutputTensor[T, "n m"], x: InputTensor[T, "n m"]):
    """The mean of an element and its four neighbours; elements at the edges stay as they are."""

    def mean(i):
        row, column = i[0], i[1]
        if row > 0 and row + 1 < x.dim(0) and column > 0 and column + 1 < x.dim(1):
            near = x[row - 1, column] + x[row + 1, column] + x[row, column - 1] + x[row, column + 1]
            return (x[i] + near) / 5
        return x[i]

    foreach(out, mean)


def rings() -> np.ndarray:
    """Rings around two places, with noise."""
    rng = np.random.default_rng(0)
    row, column = np.mgrid[:SIDE, :SIDE] / SIDE
    wave = np.sin(40 * np.hypot(row - 0.3, column - 0.4)) + np.sin(30 * np.hypot(row - 0.8, column - 0.7))
    return (0.5 + wave / 4 + rng.normal(0, 0.25, (SIDE, SIDE))).astype(np.float32)


def main() -> None:
    image = rings()
    blocks = da.from_array(image, chunks=BLOCK)
    whole = image
    for _ in range(STEPS):
        blocks = blocks.map_overlap(smooth, depth=1, boundary="none", dtype=image.dtype)
        whole = smooth(whole)
    result = blocks.compute()
    same = result.tobytes() == whole.tobytes()
    print(f"{blocks.npartitions} blocks, {STEPS} steps: {'the bits of the whole image' if same else 'differs'}")
    file = Path("output", "stencil.png")
    file.parent.mkdir(exist_ok=True)
    both = np.concatenate([image, result], axis=1)
    Image.fromarray((255 * np.clip(both, 0, 1)).astype(np.uint8)).save(file)
    print(f"wrote {file}")


if __name__ == "__main__":
    main()
