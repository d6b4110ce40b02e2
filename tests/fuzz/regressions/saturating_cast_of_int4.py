"""Found by fuzzing: a saturating cast of 4-bit integers computed on them, which nothing can."""

from einkorn.dsl import *

INPUTS = [("int4", (9,)), ("uint4", (9,))]
SEED = 0


@register("k")
def k(
    a: OutputTensor[uint16, "n"],
    b: OutputTensor[uint4, "n"],
    c: OutputTensor[int4, "n"],
    x: InputTensor[int4, "n"],
    y: InputTensor[uint4, "n"],
):
    def body(i):
        return x[i].cast(uint16, saturate=True), x[i].cast(uint4, saturate=True), y[i].cast(int4, saturate=True)

    foreach((a, b, c), body)
