"""Buffers of storage types could not be read as tensors, nor overwritten."""

from einkorn.dsl import *

INPUTS = (("float8_e5m2", (33,), "buffer"), ("int32", (33,)), ("int4", (5,), "buffer"), ("int4", (5,)))
SEED = 0
GRAPH = (
    ("ops.buffer_load", (0,)),
    ("k", (0, 1)),
    ("ops.buffer_load", (0,)),
    ("ops.buffer_load", (2,)),
    ("ops.buffer_store", (2, 3)),
    ("ops.buffer_load", (2,)),
)


@register("k")
def k(y: MutableInputTensor[float8_e5m2, "a"], x: InputTensor[int32, "a"]):
    def body(i):
        y[i] = x[i].cast(float8_e5m2)

    parallel_for(y.dim(0), body)
