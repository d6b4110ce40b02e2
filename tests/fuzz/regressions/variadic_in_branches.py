"""Found by fuzzing: tensors of a variadic argument were lost behind a branch within a branch that may return."""

from einkorn.dsl import *

INPUTS = (("int32", (5,), ""), ("int32", (5,), ""), ("int32", (5,), ""))
SEED = 0
GRAPH = (("k", (0, (1, 2))),)
CHECKS = "all"


@register("k")
def k(out: OutputTensor[int32, "a"], x: InputTensor[int32, "a"], xs: VariadicTensors[int32, "a", 2]):
    def body(i):
        if x[i] > 0:
            if x[i] > 1:
                return x[i]
            elif x[i] < 5:
                pass
        return xs[0][i]

    foreach(out, body)
