"""Behind a loop and a `return` in one arm, a tuple of tensors had "a value in one branch only"."""

from einkorn.dsl import *

INPUTS = (("bool", (5,)), ("uint64", (5,)), ("uint64", (5,)))
SEED = 0
GRAPH = (("k", (0, (1, 2))),)


@register("k")
def k(out: OutputTensor[uint64, "a"], x: InputTensor[bool8, "a"], xs: VariadicTensors[uint64, "a", 2]):
    def body(i):
        pair = (xs[0], xs[0][i], x)
        for _ in range(3):
            if xs[0][i] > 5:
                break
        for _ in unroll(2):
            if x[i]:
                pair = (xs[0], xs[1][i], x)
                return xs[1][i]
            pair = (pair[0], pair[1] + xs[1][i], x)
        return xs[0][i] + pair[0][i] + pair[1]

    foreach(out, body)
