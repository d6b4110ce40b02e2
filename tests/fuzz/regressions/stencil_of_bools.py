"""Found by fuzzing: what lies beyond a tensor of bools was 0, which is not a bool."""

from einkorn.dsl import *
from einkorn.stdlib import stencil

INPUTS = [("bool", (2, 5))]
SEED = 0


@register("k")
def k(out: OutputTensor[bool8, "a b"], more: OutputTensor[bool8, "a b"], x: InputTensor[bool8, "a b"]):
    stencil(out, x, lambda near, i: near(-1) & ~near(1), reach=(1,))
    stencil(more, x, lambda near, i: near(-1), reach=(1,), value=True)
