"""What follows the call of a function that always raises is never reached."""

from einkorn.dsl import *

INPUTS = (("float32", (5,)),)
SEED = 1
STATUS = "fails"


def fails(v):
    if True:
        raise ValueError("always")
    return v


def deep(v):
    w = fails(v).cast(int32) + 1
    a, b = w, fails(w)
    return -a + b


@register("k")
def k(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    def body(i):
        a = fails(x[i]) if x[i] > 1e9 else x[i]
        b = x[i] if x[i] < 1e9 else -fails(x[i]).cast(float32)
        if x[i] > 1e9 and fails(x[i]).cast(float32) > 0:
            a += 1
        if x[i] > 1e9 and 0 < fails(x[i]) < 2:
            a += 1
        if x[i] > 1e9:
            while fails(x[i]) > 1:
                a += 1
            c = (fails(x[i]), deep(x[i])[0])
            d, e = deep(a)
            a += e
            a += d + c[0]
            for j in range(fails(a)):
                b += j
            b += (lambda v: fails(v).foo)(b)
            assert fails(b), f"{fails(b)}"
        out[i] = a + b

    parallel_for(out.dim(0), body)
