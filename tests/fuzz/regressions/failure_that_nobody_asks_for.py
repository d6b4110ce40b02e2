"""An op that divides by zero, fused into one that takes its result and does not read it, computes nothing."""

from einkorn.dsl import *

INPUTS = (("int32", (33,)), ("int32", (33,), "buffer"))
SEED = 0
GRAPH = (("before", (0,)), ("k", (1, -1)))
CHECKS = "all"


@register("before")
def before(out: OutputTensor[int32, "n"], x: InputTensor[int32, "n"]):
    foreach(out, lambda i: x[i] % (x[i] - x[i]))


@register("k", reads={"unread": 100000})
def k(y: MutableInputTensor[int32, "n"], unread: InputTensor[int32, "n"]):
    foreach(y, lambda i: y[i] + 1)
