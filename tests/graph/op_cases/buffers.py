"""Cases of buffers: a call gives what they hold afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from support.op_cases import MOVED, T, case

from einkorn.graph import BufferType, DeviceRef, DType, ops

N = [{"n": 4}, {"n": 3}, {"n": 65}]
ELEMENTS = tuple(dtype for dtype in MOVED if dtype is not ml_dtypes.int4)  # a packed buffer is not an array


def changed(change: Callable[..., None]) -> Callable[..., Any]:
    """The call that changes its first argument, and then reads it."""

    def call(buffer: Any, *values: Any) -> Any:
        change(buffer, *values)
        return ops.buffer_load(buffer)

    return call


def created() -> Any:
    buffer = ops.buffer_create(BufferType(DType.float32, [4], DeviceRef.CPU()))
    ops.buffer_store(buffer, 2.5)
    return ops.buffer_load(buffer)


def part_written(buffer: Any, source: Any) -> Any:
    buffer[1:3] = source
    return buffer


CASES = [
    case("buffer_create", lambda: np.full(4, 2.5, np.float32), call=created, dtypes=[np.float32]),
    case("buffer_load", lambda x: x, x=T("n", buffer=True), sizes=[*N, {"n": 0}], dtypes=ELEMENTS, views=False),
    case(
        "buffer_store",
        lambda x, y: y,
        call=changed(ops.buffer_store),
        sizes=[*N, {"n": 0}],
        dtypes=ELEMENTS,
        destination=T("n", buffer=True),
        source=T("n"),
        views=False,
    ),
    case(
        "buffer_store_slice",
        part_written,
        sizes=N,
        dtypes=ELEMENTS[:-1],
        views=False,
        call=changed(lambda x, y: ops.buffer_store_slice(x, y, [slice(1, 3)])),
        destination=T("n", buffer=True),
        source=T(2),
    ),
]
