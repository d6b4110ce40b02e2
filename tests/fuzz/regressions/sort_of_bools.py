"""Found by fuzzing: bools could not be sorted; they have no `<`."""

from einkorn.dsl import *
from einkorn.stdlib import sort, top_k

INPUTS = [("bool", (3, 5))]
SEED = 0


@register("k")
def k(out: OutputTensor[bool8, "a b"], first: OutputTensor[int64, "a 2"], x: InputTensor[bool8, "a b"]):
    sort(out, x, descending=True, limit=16)
    top_k(None, first, x, 2)
