"""GPU test kernels whose blocks have several tiles."""

from __future__ import annotations

import numpy as np
from support.gpu_case import Array, GpuCase, numbers


def order_of(rows: int, columns: int, order: str) -> list[tuple[int, int]]:
    """The tiles in their order."""
    if order == "rows":
        return [(i, j) for i in range(rows) for j in range(columns)]
    if order == "columns":
        return [(i, j) for j in range(columns) for i in range(rows)]
    bands = [range(first, min(first + 8, rows)) for first in range(0, rows, 8)]
    return [(i, j) for band in bands for j in range(columns) for i in band]


def doubled(m: int, n: int, order: str, more: int = 1) -> GpuCase:
    def reference(x: Array) -> tuple[Array, Array]:
        rows, columns = -(-m // 16), -(-n // 64)
        blocks = np.zeros((rows, columns), np.int32)
        for number, place in enumerate(order_of(rows, columns, order)):
            blocks[place] = number % (2 * more)
        return x + x, blocks

    params = {"order": order, "more": more}
    name = f"persistent[{m}x{n}-{order}-{more}]"
    inputs = lambda: (numbers(np.float32, m, n),)  # noqa: E731
    return GpuCase(name, "persistent.py", "persistent::doubled", inputs, reference, params)


CASES = (
    doubled(150, 130, "grouped"),
    doubled(300, 70, "grouped", 2),
    doubled(70, 200, "rows"),
    doubled(70, 200, "columns", 3),
    doubled(3, 20, "grouped", 4),  # more blocks than tiles
)
