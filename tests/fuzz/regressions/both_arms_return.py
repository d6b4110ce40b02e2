"""Found by fuzzing: behind a branch of which one arm returns in both arms of another, tensors were gone."""

from einkorn.dsl import *

INPUTS = [("int16", (5,))]
SEED = 0


@register("k")
def k(out: OutputTensor[int16, "a"], x: InputTensor[int16, "a"]):
    def body(i):
        if x[i] > 0:
            pass
        else:
            if x[i] > -5:
                if x[i] > -3:
                    return x[i]
                return x[i] + 1
        return x[i] + 2

    foreach(out, body)
