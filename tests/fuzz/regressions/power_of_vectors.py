"""Found by fuzzing: `pow` took no vectors of integers."""

from einkorn.dsl import *

INPUTS = [("int32", (16,)), ("int32", (16,))]
SEED = 1


@register("k")
def k(out: OutputTensor[int32, "a"], x: InputTensor[int32, "a"], y: InputTensor[int32, "a"]):
    for i in range(0, 16, 8):
        out.store(pow(x.load(i, width=8), y.load(i, width=8)), i)
