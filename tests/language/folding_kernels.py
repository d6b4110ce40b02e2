"""What Python computes while compiling, next to the same expressions computed when running."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    BFloat16,
    DType,
    Float16,
    Float32,
    Floating,
    InputTensor,
    Int32,
    OutputTensor,
    UInt8,
    abs,
    ceil,
    ceildiv,
    float32,
    float64,
    floor,
    fma,
    fmod,
    int32,
    int64,
    max,
    min,
    register,
    round,
    sqrt,
    trunc,
    unroll,
)

T = TypeVar("T", bound=Floating)

OPERANDS = ((7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (-6, 3), (0, 5), (1, 7), (-1, 7), (13, 13))
FLOATS = (
    (7.5, 2.0),
    (-7.5, 2.0),
    (7.5, -2.0),
    (-0.0, 3.0),
    (0.1, 0.3),
    (1e300, -7.0),
    (-2.5, 1.0),
    (0.0, -0.0),
    (-0.0, 0.0),
)
ROUNDED = (2.5, 3.5, -2.5, -0.5, 0.5, 0.49999999999999994, 7.0, -7.9, 1e15)
FUSED = ((1.0000000001, 1.0000000001, -1.0000000002), (0.1, 10.0, -1.0), (3.0, 4.0, 5.0), (1e308, 10.0, -1e308))


def integer_rows(x, y):
    return (
        *(x + y, x - y, x * y, x // y, x % y, x & y, x | y, x ^ y),
        *(-x, ~x, min(x, y), max(x, y), abs(x), ceildiv(x, y)),
    )


def float_rows(x, y):
    return x + y, x - y, x * y, -x, min(x, y), max(x, y), abs(x)


def division_rows(x, y):
    return x / y, x // y, x % y, fmod(x, y)


@register("fold_integers")
def fold_integers(
    folded: OutputTensor[int64, "k 14"], run: OutputTensor[int64, "k 14"], x: InputTensor[int64, "k 2"]
) -> None:
    for p in unroll(len(OPERANDS)):
        constants = integer_rows(OPERANDS[p][0], OPERANDS[p][1])
        values = integer_rows(x[p, 0], x[p, 1])
        for k in unroll(len(constants)):
            folded[p, k] = constants[k]
            run[p, k] = values[k]


@register("fold_floats")
def fold_floats(
    folded: OutputTensor[float64, "k 11"], run: OutputTensor[float64, "k 11"], x: InputTensor[float64, "k 2"]
) -> None:
    for p in unroll(len(FLOATS)):
        a, b = FLOATS[p]
        values = (*float_rows(x[p, 0], x[p, 1]), *division_rows(x[p, 0], x[p, 1]))
        constants = float_rows(a, b)
        if b != 0.0:
            constants = (*constants, *division_rows(a, b))
        for k in unroll(len(constants)):
            folded[p, k] = constants[k]
            run[p, k] = values[k]
        for k in unroll(len(constants), 11):
            folded[p, k] = 0.0
            run[p, k] = 0.0


@register("fold_rounding")
def fold_rounding(
    folded: OutputTensor[float64, "k 4"], run: OutputTensor[float64, "k 4"], x: InputTensor[float64, "k"]
) -> None:
    for p in unroll(len(ROUNDED)):
        v = ROUNDED[p]
        constants = (floor(v), ceil(v), round(v), trunc(v))
        values = (floor(x[p]), ceil(x[p]), round(x[p]), trunc(x[p]))
        for k in unroll(4):
            folded[p, k] = constants[k]
            run[p, k] = values[k]


@register("fold_fused")
def fold_fused(
    folded: OutputTensor[float64, "k 2"], run: OutputTensor[float64, "k 2"], x: InputTensor[float64, "k 3"]
) -> None:
    for p in unroll(len(FUSED)):
        a, b, c = FUSED[p]
        folded[p, 0] = fma(a, b, c)
        run[p, 0] = fma(x[p, 0], x[p, 1], x[p, 2])
        folded[p, 1] = sqrt(abs(a))
        run[p, 1] = sqrt(abs(x[p, 0]))


@register("adopt")
def adopt(out: OutputTensor[T, "8"], x: InputTensor[T, ""]) -> None:
    """Numbers adopt the type of their partner, rounded to nearest."""
    one = x[()]
    out[0] = one * 0.1
    out[1] = one * 3
    out[2] = 0.1
    out[3] = one * 1e-30
    out[4] = -1e-60
    out[5] = one * 1e300
    out[6] = 65280 * one
    out[7] = 1 / 3


@register("typed_numbers")
def typed_numbers(a: OutputTensor[float32, "3"], b: OutputTensor[int32, "4"]) -> None:
    a[0] = Float32(0.1)
    a[1] = Float16(0.1).cast(float32)
    a[2] = BFloat16(0.1).cast(float32)
    b[0] = Int32(7) // Int32(-2)
    b[1] = Int32(2147483647) + 1
    b[2] = UInt8(255).cast(int32)
    b[3] = (UInt8(255) + 1).cast(int32)


@register("python_values")
def python_values(
    out: OutputTensor[int64, "12"],
    *,
    flag: bool = True,
    count: int = 3,
    scale: float = 0.5,
    name: str = "a,b",
    dtype: DType = float32,
) -> None:
    out[0] = 1 if flag else 0
    out[1] = count**2
    out[2] = int(scale * 10)
    out[3] = len(name)
    out[4] = dtype.bits
    out[5] = 1 if dtype == float32 else 0
    out[6] = 1 if name == "a,b" else 0
    out[7] = 1 if dtype.is_float() and not flag else 0
    out[8] = 2 if 1 < count < 5 else 0
    out[9] = int(name[0] == "a")
    out[10] = tuple(range(count))[-1]
    out[11] = count // 2 if count > 2 else ceildiv(count, 2)


@register("sizes_shift")
def sizes_shift(out: OutputTensor[int64, "4"], x: InputTensor[float32, "n"], y: InputTensor[float32, "4"]) -> None:
    """Sizes that are known are folded, by the rules of run-time integers."""
    n = x.dim(0)
    out[0] = n << (n + 60)
    out[1] = n >> (n - 8)
    out[2] = y.dim(0) * n
    out[3] = (0 - n) // 3
