"""Found by fuzzing: of a last vector with one element, LLVM stored eight bytes instead of one."""

from einkorn.dsl import *

INPUTS = [("int64", (5,))]
SEED = 3


@register("k")
def k(out: OutputTensor[uint8, "a"], x: InputTensor[int64, "a"]):
    def lanes(i, width, mask):
        out.store(x.load(i, width=width, mask=mask).cast(uint8), i, mask=mask)

    vectorize(out.dim(0), 4, lanes, masked=True)
