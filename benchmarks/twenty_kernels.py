"""Twenty kernels as authors write them: ten that go element by element, ten that go row by row.

`tests/compiler/test_inner_loops.py` looks at the loops that are made of them; `run.py --only twenty` times them next to
NumPy, Numba and PyTorch. `w` and `b` are weights and offsets of a row's elements.
"""

from einkorn.dsl import (
    InputTensor,
    OutputTensor,
    erf,
    exp,
    float32,
    foreach,
    int8,
    int64,
    log,
    max,
    min,
    register,
    round,
    sqrt,
    store,
)
from einkorn.stdlib import ArgMax, LogSumExp, Max, Sum, Welford, reduce, rowwise, scan

COEFFICIENTS = (0.013, -0.07, 0.21, -0.5, 0.9, -1.3, 2.1, 0.4)

# *** element by element ***


@register("twenty::add_one")
def add_one(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: x[i] + 1)


@register("twenty::multiply_add")
def multiply_add(
    out: OutputTensor[float32, "*s"],
    x: InputTensor[float32, "*s"],
    y: InputTensor[float32, "*s"],
    z: InputTensor[float32, "*s"],
):
    foreach(out, lambda i: x[i] * y[i] + z[i])


@register("twenty::relu")
def relu(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: max(x[i], 0))


@register("twenty::gelu")
def gelu(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: 0.5 * x[i] * (1 + erf(x[i] * 0.7071067811865476)))


@register("twenty::silu")
def silu(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: x[i] / (1 + exp(-x[i])))


@register("twenty::softplus")
def softplus(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: max(x[i], 0) + log(1 + exp(min(x[i], -x[i]))))


@register("twenty::lerp")
def lerp(
    out: OutputTensor[float32, "*s"],
    x: InputTensor[float32, "*s"],
    y: InputTensor[float32, "*s"],
    *,
    share: float = 0.3,
):
    foreach(out, lambda i: x[i] + (y[i] - x[i]) * share)


@register("twenty::length")
def length(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"], y: InputTensor[float32, "*s"]):
    foreach(out, lambda i: sqrt(x[i] * x[i] + y[i] * y[i]))


@register("twenty::quantised")
def quantised(out: OutputTensor[int8, "*s"], x: InputTensor[float32, "*s"], *, scale: float = 30.0):
    foreach(out, lambda i: round(x[i] * scale).cast(int8))


@register("twenty::polynomial")
def polynomial(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    def value(i):
        result = x[i] * COEFFICIENTS[0] + COEFFICIENTS[1]
        for c in COEFFICIENTS[2:]:
            result = result * x[i] + c
        return result

    foreach(out, value)


# *** row by row ***


@register("twenty::row_sum")
def row_sum(out: OutputTensor[float32, "m"], x: InputTensor[float32, "m n"]):
    rowwise(x, Sum, lambda row, total: store(out, row, total))


@register("twenty::row_max")
def row_max(out: OutputTensor[float32, "m"], x: InputTensor[float32, "m n"]):
    rowwise(x, Max, lambda row, largest: store(out, row, largest))


@register("twenty::row_argmax")
def row_argmax(out: OutputTensor[int64, "m"], x: InputTensor[float32, "m n"]):
    rowwise(x, ArgMax, lambda row, place: store(out, row, place))


@register("twenty::row_moments")
def row_moments(out: OutputTensor[float32, "2 m"], x: InputTensor[float32, "m n"]):
    def body(row, moments):
        out[0, row], out[1, row] = moments

    rowwise(x, Welford, body)


@register("twenty::row_dot")
def row_dot(out: OutputTensor[float32, "m"], x: InputTensor[float32, "m n"], w: InputTensor[float32, "n"]):
    rowwise((x, w), Sum, lambda row, total: store(out, row, total), of=lambda a, b: a * b)


@register("twenty::logsumexp")
def logsumexp(out: OutputTensor[float32, "m"], x: InputTensor[float32, "m n"]):
    rowwise(x, LogSumExp, lambda row, value: store(out, row, value))


@register("twenty::rms_norm")
def rms_norm(
    out: OutputTensor[float32, "m n"],
    x: InputTensor[float32, "m n"],
    w: InputTensor[float32, "n"],
    *,
    eps: float = 1e-5,
):
    n = x.dim(1)

    def body(row, squares):
        scale = 1 / sqrt(squares / float32(n) + eps)
        for k in range(n):
            out[row, k] = x[row, k] * scale * w[k]

    rowwise(x, Sum, body, of=lambda v: v * v)


@register("twenty::layer_norm")
def layer_norm(
    out: OutputTensor[float32, "m n"],
    x: InputTensor[float32, "m n"],
    w: InputTensor[float32, "n"],
    b: InputTensor[float32, "n"],
    *,
    eps: float = 1e-5,
):
    n = x.dim(1)

    def body(row, total):
        mean = total / float32(n)
        squares = reduce(x[row, :], Sum, of=lambda v: (v - mean) * (v - mean))
        scale = 1 / sqrt(squares / float32(n) + eps)
        for k in range(n):
            out[row, k] = (x[row, k] - mean) * scale * w[k] + b[k]

    rowwise(x, Sum, body)


@register("twenty::softmax")
def softmax(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"]):
    n = x.dim(1)

    def body(row, largest):
        for k in range(n):
            out[row, k] = exp(x[row, k] - largest)
        scale = 1 / reduce(out[row, :], Sum)
        for k in range(n):
            out[row, k] = out[row, k] * scale

    rowwise(x, Max, body)


@register("twenty::row_cumsum")
def row_cumsum(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"]):
    scan(out, x, Sum)
