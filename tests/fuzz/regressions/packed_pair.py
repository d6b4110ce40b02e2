"""Found by fuzzing: a vector of two 4-bit elements could not be stored."""

from einkorn.dsl import *

INPUTS = [("int8", (7,))]
SEED = 0


@register("k")
def k(out: OutputTensor[int4, "a"], x: InputTensor[int8, "a"]):
    vectorize(out.dim(0), 2, lambda i, width: out.store(x.load(i, width=width).cast(int4), i))
