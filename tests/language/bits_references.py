"""What the rows on bits mean, in plain Python over texts of digits, and in NumPy for floats.

Independent of the compiler. An integer function takes the width in bits and three numbers; its result wraps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from references import extreme

Array = np.ndarray[Any, Any]


def digits(width: int, x: int) -> str:
    """The bits of a number, highest first."""
    return format(x % (1 << width), f"0{width}b")


def turned(width: int, x: int, count: int) -> int:
    text = digits(width, x)
    count %= width
    return int(text[count:] + text[:count], 2)


def swapped(width: int, x: int) -> int:
    text = digits(width, x)
    return int("".join(reversed([text[k : k + 8] for k in range(0, width, 8)])), 2)


INTEGERS_OF: dict[str, Callable[[int, int, int, int], int]] = {
    "popcount": lambda w, x, y, z: digits(w, x).count("1"),
    "clz": lambda w, x, y, z: len(digits(w, x).split("1")[0]),
    "ctz": lambda w, x, y, z: len(digits(w, x).split("1")[-1]),
    "bit_width": lambda w, x, y, z: len(format(abs(x), "b")) if x else 0,
    "bit_reverse": lambda w, x, y, z: int(digits(w, x)[::-1], 2),
    "byte_swap": lambda w, x, y, z: swapped(w, x),
    "rotl": lambda w, x, y, z: turned(w, x, y),
    "rotr": lambda w, x, y, z: turned(w, x, -y),
    "add_sat": lambda w, x, y, z: x + y,  # the test holds them
    "sub_sat": lambda w, x, y, z: x - y,
    "mul_high": lambda w, x, y, z: (x * y) // (1 << w),
    "avg_floor": lambda w, x, y, z: (x + y) // 2,
    "avg_ceil": lambda w, x, y, z: -((-x - y) // 2),
    "abs_diff": lambda w, x, y, z: abs(x - y),
    "clamp": lambda w, x, y, z: min(max(x, y), z),
    "sign": lambda w, x, y, z: (x > 0) - (x < 0),
    "bit_and_not": lambda w, x, y, z: x & ~y,
}

FLOATS_OF: dict[str, Callable[[Array, Array, Array], Array]] = {
    "copysign": lambda x, y, z: np.copysign(x, y),
    "abs_diff": lambda x, y, z: np.abs(x - y),
    "clamp": lambda x, y, z: extreme(True)(extreme(False)(x, y), z),
    "sign": lambda x, y, z: np.sign(x),
}
