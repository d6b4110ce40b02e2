"""Cases of repeating, padding and rolling."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.op_cases import T, case

from einkorn.graph import ops

N = [{"n": 3, "m": 4}, {"n": 1, "m": 4}, {"n": 0, "m": 4}, {"n": 17, "m": 33}]
FULL = [{"n": 3, "m": 4}, {"n": 1, "m": 1}, {"n": 2, "m": 17}]
MODES = ("edge", "replicate", "reflect", "symmetric", "wrap", "circular")
NUMPY = {"replicate": "edge", "circular": "wrap"}


def counts(shape: Any, dtype: Any, sizes: Any, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 4, shape)


CASES = [
    case("tile", lambda x: np.tile(x, (2, 3)), x=T("n", "m"), sizes=N),
    case(
        "tile",
        lambda x: np.tile(x, (3, 1, 2, 1)),
        call=lambda x: ops.tile(x, [3, 1, 2, 1]),
        x=T(2, "n", 2, "m"),
        sizes=N,
    ),
    case("tile", lambda x: x, call=lambda x: ops.tile(x, []), x=T()),
    case("repeat_interleave", lambda x: np.repeat(x, 2, 1), x=T("n", "m"), sizes=N),
    case(
        "repeat_interleave",
        lambda x: np.repeat(x, 3),
        call=lambda x: ops.repeat_interleave(x, 3),
        x=T("n", "m"),
        sizes=N,
    ),
    case(
        "repeat_interleave",
        lambda x, repeats: np.repeat(x, repeats, 1),
        x=T(2, "n", "m"),
        sizes=N,
        alone=True,
        repeats=T("n", dtype=np.int32, make=counts),
        call=lambda x, repeats: ops.repeat_interleave(x, repeats, 1, out_dim="many"),
    ),
    case(
        "repeat_interleave",
        lambda x, repeats: np.repeat(x, repeats),
        x=T("n", 2),
        sizes=N,
        alone=True,
        repeats=T(dtype=np.uint8, make=counts),
        call=lambda x, repeats: ops.repeat_interleave(x, repeats, out_dim="some"),
    ),
    case("pad", lambda x: np.pad(x, ((0, 0), (1, 2))), input=T("n", "m"), sizes=N),
    case(
        "pad",
        lambda x, v: np.pad(x, ((2, 0), (0, 1), (1, 1)), constant_values=v),
        input=T("n", "m", 2),
        value=T(),
        call=lambda x, v: ops.pad(x, [2, 0, 0, 1, 1, 1], value=v),
        sizes=N,
    ),
    case(
        "pad",
        lambda x: np.pad(x[:, 1:], ((0, 2), (0, 3))),
        input=T("n", "m"),
        sizes=N,
        call=lambda x: ops.pad(x, [0, 2, -1, 3]),
    ),
    *(
        case(
            "pad",
            lambda x, mode=mode: np.pad(x, ((2, 3), (0, 0), (1, 5)), mode=NUMPY.get(mode, mode)),
            input=T("n", 2, "m"),
            call=lambda x, mode=mode: ops.pad(x, [2, 3, 0, 0, 1, 5], mode),
            sizes=FULL,
        )
        for mode in MODES
    ),
    case("flip", lambda x: x[::-1], x=T("n", "m"), sizes=N),
    case("flip", lambda x: x[::-1, :, ::-1], call=lambda x: ops.flip(x, (0, -1)), x=T("n", 2, "m"), sizes=N),
    case("flip", lambda x: x[::-1, ::-1], call=ops.flip, x=T("n", "m"), sizes=N),
    case("roll", lambda x: np.roll(x, 1, 0), x=T("n", "m"), sizes=N),
    case(
        "roll",
        lambda x: np.roll(x, (-5, 40), (0, 1)),
        call=lambda x: ops.roll(x, [-5, 40], [0, 1]),
        x=T("n", "m"),
        sizes=N,
    ),
    case("roll", lambda x: np.roll(x, 3), call=lambda x: ops.roll(x, 3), x=T("n", "m"), sizes=N),
]
