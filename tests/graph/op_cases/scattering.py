"""Cases of writing updates by indices; some share one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from support.op_cases import T, case, places, plain_numbers

from einkorn.graph import ops

N = [{"n": 5, "m": 4, "k": 3}, {"n": 1, "m": 2, "k": 7}, {"n": 3, "m": 4, "k": 0}, {"n": 33, "m": 17, "k": 40}]
HALVES = (np.float16, ml_dtypes.bfloat16)
HOW: dict[str, Callable[..., Any]] = {
    "": lambda old, new: new,
    "_add": lambda old, new: old + new,
    "_mul": lambda old, new: old * new,
    "_max": np.maximum,
    "_min": np.minimum,
}


def reached(how: str, old: Any, new: Any) -> Any:
    wide = np.float32 if old.dtype in HALVES else old.dtype
    return HOW[how](old.astype(wide), new.astype(wide)).astype(old.dtype)


def scattered(how: str, axis: int) -> Callable[..., Any]:
    def reference(x: Any, updates: Any, indices: Any) -> Any:
        for at in np.ndindex(indices.shape):
            place = (*at[:axis], int(indices[at]), *at[axis + 1 :])
            x[place] = reached(how, x[place], updates[at])
        return x

    return reference


def scattered_nd(how: str) -> Callable[..., Any]:
    def reference(x: Any, updates: Any, indices: Any) -> Any:
        for at in np.ndindex(indices.shape[:-1]):
            place = tuple(int(k) for k in indices[at])
            x[place] = reached(how, x[place], updates[at])
        return x

    return reference


def masked(x: Any, mask: Any, updates: Any) -> Any:
    flags = np.broadcast_to(mask, x.shape)
    x[flags] = updates.reshape(-1)[: flags.sum()]
    return x


X, U = T("m", "n", make=plain_numbers), T("m", "k", make=plain_numbers)
CASES = [
    *(
        case(f"scatter{how}", scattered(how, 1), input=X, updates=U, indices=places("m", "k", below="n"), sizes=N)
        for how in HOW
    ),
    case(
        "scatter",
        scattered("", 0),
        input=T("n", "m"),
        updates=T("k", 1),
        indices=places("k", 1, below="n", dtype=np.int32),
        sizes=N,
        call=lambda x, u, i: ops.scatter(x, u, i, axis=0),
    ),
    case(
        "scatter_add",
        lambda x, i: scattered("_add", 2)(x, np.ones(i.shape, x.dtype), i),
        sizes=N,
        input=T(2, "m", "n", make=plain_numbers),
        indices=places(2, "m", "k", below="n"),
        call=lambda x, i: ops.scatter_add(x, 1, i),
    ),
    *(
        case(
            f"scatter_nd{how}",
            scattered_nd(how),
            input=T("n", "n", "m", make=plain_numbers),
            sizes=N,
            updates=T("k", "m", make=plain_numbers),
            indices=places("k", 2, below="n"),
        )
        for how in HOW
    ),
    case(
        "scatter_nd",
        scattered_nd(""),
        input=T("n", "n"),
        updates=T("m", "k"),
        indices=places("m", "k", 2, below="n"),
        sizes=N,
        call=ops.scatter_nd,
    ),
    case(
        "scatter_nd_add",
        scattered_nd("_add"),
        input=T("n", 200, make=plain_numbers),
        sizes=N,
        updates=T("k", 200, make=plain_numbers),
        indices=places("k", 1, below="n"),
        call=ops.scatter_nd_add,
    ),
    case(
        "masked_scatter",
        masked,
        input=T("n", "m"),
        mask=T("n", "m", dtype=np.bool_),
        updates=T("n", "m"),
        sizes=N,
        alone=True,
    ),
    case(
        "masked_scatter",
        masked,
        input=T("n", 300, "k"),
        mask=T(300, 1, dtype=np.bool_),
        updates=T("n", "k", 300),
        sizes=N,
        call=lambda x, m, u: ops.masked_scatter(x, m, u, "set"),
        alone=True,
    ),
    case(
        "masked_scatter",
        lambda x, m: np.where(m, x.dtype.type(2), x),
        input=T("n"),
        mask=T("n", dtype=np.bool_),
        sizes=N,
        call=lambda x, m: ops.masked_scatter(x, m, 2, "filled"),
        alone=True,
    ),
]
