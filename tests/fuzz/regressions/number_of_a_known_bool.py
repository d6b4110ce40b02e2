"""A number made of a bool that is known when the kernel is compiled was refused, one of any other bool was not."""

from einkorn.dsl import *

INPUTS = (("uint8", (12,)),)
SEED = 0


@register("k")
def k(out: OutputTensor[float32, "n"], x: InputTensor[uint8, "n"]):
    out[0] = Float32(any(Bool(True) for _ in (1, 2)))
    out[1] = UInt8(True).cast(float32) + int4(True).cast(float32)
    out[2] = SIMD[float32, 2](True, x[0] > 2)[0] + SIMD[int8, 2](False)[1].cast(float32)
    out[3] = Float32(Bool(2)) + Float32(Bool(0.0)) + Float32(bool8(x[1]))
    out[4] = Float32(x[1] > 2) + float64(False).cast(float32)
