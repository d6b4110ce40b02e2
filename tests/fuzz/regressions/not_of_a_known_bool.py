"""Found by fuzzing: `~` of a Bool that is known when the kernel is compiled was -1 or -2, both of them true."""

from einkorn.dsl import *

INPUTS = [("int8", (4,))]
SEED = 0


@register("k")
def k(out: OutputTensor[bool8, "4"], x: InputTensor[int8, "4"]):
    out[0] = ~any(Bool(False) for v in (1, 2))
    out[1] = False
    if ~(x.dim(0) > 3 and len(x) == 4):
        out[1] = True
    out[2] = ~all(Bool(True) for v in (1, 2))
    static_assert(not ~(2 > 1), "of a bool that Python computes, too")
    out[3] = ~(2 > 1)
