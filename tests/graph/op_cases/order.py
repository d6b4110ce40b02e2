"""Cases of what orders elements: rounded numbers, of which some are equal, NaN and zeros of both signs among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.op_cases import T, any_numbers, case

from einkorn.graph import ops

SIZES = [{"m": 3, "n": 7}, {"m": 1, "n": 6}, {"m": 0, "n": 7}, {"m": 5, "n": 33}, {"m": 2, "n": 700}]
EMPTY = [*SIZES, {"m": 2, "n": 0}]


def rounded(shape: Any, dtype: Any, sizes: Any, seed: int) -> Any:
    array = any_numbers(shape, dtype, sizes, seed)
    return array if array.dtype.kind in "iub" else np.round(array)


def order(x: Any, descending: bool, axis: int) -> Any:
    """Places by a stable sort of keys in which NaN is last."""
    if x.dtype.kind in "iub":
        wide = x if x.dtype == np.uint64 else x.astype(np.int64)
        return np.argsort(~wide if descending else wide, axis, kind="stable")
    wide = x.astype(np.float64)
    return np.argsort(-wide if descending else wide, axis, kind="stable")


def values(x: Any, descending: bool, axis: int) -> Any:
    return np.take_along_axis(x, order(x, descending, axis), axis)


def first(k: int, descending: bool, axis: int) -> Any:
    def reference(x: Any) -> Any:
        places = np.take(order(x, descending, axis), range(k), axis)
        return [np.take_along_axis(x, places, axis), places]

    return reference


def arranged(shape: Any, dtype: Any, sizes: Any, seed: int) -> Any:
    return values(rounded(shape, dtype, sizes, seed), False, -1)


def places(row: Any, x: Any, side: Any) -> Any:
    if row.dtype.kind not in "iub":
        row, x = row.astype(np.float64), x.astype(np.float64)
    return np.searchsorted(row, x, side).reshape(x.shape)


X = T("m", "n", make=rounded)
CASES = [
    case("argsort", lambda x: order(x, False, 0), x=X, sizes=EMPTY),
    case("argsort", lambda x: order(x, True, 1), call=lambda x: ops.argsort(x, False, axis=-1), x=X, sizes=EMPTY),
    case("sort", lambda x: values(x, False, -1), x=X, sizes=EMPTY),
    case("sort", lambda x: values(x, True, 0), call=lambda x: ops.sort(x, 0, descending=True), x=X, sizes=EMPTY),
    case("sort", lambda x: values(x, True, 0), call=lambda x: ops.sort(x, descending=True), x=T("n", make=rounded),
         sizes=EMPTY, dtypes=[np.int32, np.float64]),
    case("argsort", lambda x: order(x, True, 1), call=lambda x: ops.argsort(x, axis=-1, descending=True), x=X,
         sizes=EMPTY, dtypes=[np.int32, np.float64]),
    case("searchsorted", lambda row, x: places(row, x, "left"), row=T("n", make=arranged), x=X, sizes=EMPTY),
    case("searchsorted", lambda row, x: places(row, x, "right"), call=lambda row, x: ops.searchsorted(row, x, True),
         row=T("n", make=arranged), x=X, sizes=EMPTY),
    case("top_k", first(2, True, -1), input=X, sizes=SIZES),
    case("top_k", first(3, True, 1), call=lambda input: ops.top_k(input, k=3, axis=1),
         input=T("m", "n", 2, make=rounded),
         sizes=SIZES),
    case("top_k", first(70, True, 0), call=lambda input: ops.top_k(input, 70, 0), input=T(100, "n", make=rounded),
         sizes=SIZES),
    case("top_k", first(0, True, -1), call=lambda input: ops.top_k(input, 0), input=X, sizes=SIZES),
    case("bottom_k", first(2, False, -1), input=X, sizes=SIZES),
]  # fmt: skip
