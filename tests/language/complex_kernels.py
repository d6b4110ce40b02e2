"""Kernels on complex numbers: operators, functions, literals, vectors, memory, control flow."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    SIMD,
    ComplexFloating,
    Floating,
    InputTensor,
    MutableInputTensor,
    Number,
    OutputTensor,
    abs,
    bool8,
    complex64,
    complex128,
    conj,
    cos,
    cosh,
    exp,
    float32,
    float64,
    foreach,
    imag,
    int32,
    isfinite,
    isinf,
    isnan,
    log,
    log2,
    log10,
    parallel_for,
    pow,
    real,
    register,
    select,
    sin,
    sinh,
    sqrt,
    stack,
    struct,
    tan,
    tanh,
    unroll,
)

C = TypeVar("C", bound=ComplexFloating)
F = TypeVar("F", bound=Floating)
N = TypeVar("N", bound=Number)
R = TypeVar("R", float32, float64)
J = 1j
FUNCTIONS = (exp, log, sqrt, sin, cos, tan, sinh, cosh, tanh, log2, log10, conj)


@register("operators")
def operators(out: OutputTensor[C, "7 n"], x: InputTensor[C, "n"], y: InputTensor[C, "n"]):
    def each(i):
        k = i[0]
        out[0, k] = x[k] + y[k]
        out[1, k] = x[k] - y[k]
        out[2, k] = x[k] * y[k]
        out[3, k] = x[k] / y[k]
        out[4, k] = -x[k]
        out[5, k] = x[k].conjugate() * 2
        out[6, k] = (1 - x[k]) * 0.5 + (2 + J)

    parallel_for(x.dim(0), lambda k: each((k,)))


@register("functions")
def functions(out: OutputTensor[C, "12 n"], x: InputTensor[C, "n"]):
    def each(k):
        for f in unroll(12):
            out[f, k] = FUNCTIONS[f](x[k])

    parallel_for(x.dim(0), each)


@register("parts")
def parts(out: OutputTensor[float32, "4 n"], x: InputTensor[complex64, "n"]):
    def each(k):
        out[0, k] = x[k].real
        out[1, k] = imag(x[k])
        out[2, k] = abs(x[k])
        out[3, k] = real(x[k]) + real(2.0) + imag(x[k].real)

    parallel_for(x.dim(0), each)


@register("tests")
def tests(out: OutputTensor[bool8, "6 n"], x: InputTensor[C, "n"], y: InputTensor[C, "n"]):
    def each(k):
        out[0, k] = x[k] == y[k]
        out[1, k] = x[k] != y[k]
        out[2, k] = isnan(x[k])
        out[3, k] = isinf(x[k])
        out[4, k] = isfinite(x[k])
        out[5, k] = x[k] == 0 or bool(y[k])

    parallel_for(x.dim(0), each)


@register("built")
def built(out: OutputTensor[complex64, "9 n"], re: InputTensor[float32, "n"], im: InputTensor[float32, "n"]):
    def each(k):
        a, b = re[k], im[k]
        out[0, k] = complex64(a, b)
        out[1, k] = complex(a, b)
        out[2, k] = complex64(a)
        out[3, k] = a.cast(complex64) + 1j * b.cast(complex64)
        out[4, k] = complex64(a, 1)
        out[5, k] = complex(2, b)
        out[6, k] = complex64(complex128(a, b) * 1j)
        out[7, k] = complex(1, 2) * complex64(3)
        out[8, k] = complex64(int32(7), b) ** 2

    parallel_for(re.dim(0), each)


@register("powers")
def powers(out: OutputTensor[C, "7 n"], x: InputTensor[C, "n"], y: InputTensor[C, "n"]):
    def each(k):
        out[0, k] = x[k] ** 2
        out[1, k] = x[k] ** 5
        out[2, k] = x[k] ** -1
        out[3, k] = x[k] ** 0
        out[4, k] = x[k] ** y[k]
        out[5, k] = x[k] ** 0.5
        out[6, k] = pow(2.0 + 0j, x[k])

    parallel_for(x.dim(0), each)


@register("escape")
def escape(out: OutputTensor[int32, "*s"], c: InputTensor[C, "*s"], *, limit: int = 40):
    """Numbers that begin a loop adopt the type that they are combined with."""

    def steps(i):
        z, w = 0j, 0
        for k in range(limit):
            if abs(z) > 2:
                return int32(k)
            z = z * z + c[i]
            w = w + z
        return int32(limit) if w == w else int32(-1)

    foreach(out, steps)


@register("total")
def total(out: OutputTensor[C, "m"], x: InputTensor[C, "m n"]):
    def row(i):
        acc = 0.0
        for k in range(x.dim(1)):
            acc += x[i, k] * x[i, k].conj()
        best = x[i, 0]
        for k in range(1, x.dim(1)):
            if abs(x[i, k]) > abs(best):
                best = x[i, k]
        out[i] = acc + best if x[i, 0].real > 0 else acc - best

    parallel_for(x.dim(0), row)


@register("vectors")
def vectors(out: OutputTensor[C, "8 n"], x: InputTensor[C, "n"]):
    """Lanes are loaded, moved, chosen, stored; under masks and with steps, too."""
    n = x.dim(0)

    def block(b):
        at = b * 4
        v = x.load(at, width=4)
        mask = SIMD[bool8, 4](True, False, True, at > 3)
        out.store(v.reverse(), 0, at)
        out.store(v * v[0] + 1j, 1, at)
        out.store(select(mask, v, -v), 2, at)
        out.store(SIMD[C, 4](v[3], v[2], 1, 2j), 3, at)
        out.store(x.load(at, width=4, mask=mask, other=5j), 4, at)
        out.store(v, 5, at)
        out.store(v + v, 5, at, mask=mask)
        w = x.load(at % 2, width=4, stride=2)
        out.store(w.with_lane(1, 7), 6, at)
        out.store(v.join(w).take(SIMD[int32, 4](7, 0, 5, 2)) + v.reduce_add(), 7, at)

    parallel_for(n // 4, block)


@register("memory")
def memory(out: OutputTensor[C, "n"], x: InputTensor[C, "n"], order: InputTensor[int32, "n"]):
    """Elements in storage of the thread, behind pointers, gathered and scattered."""

    def block(b):
        kept = stack[C](8)
        for k in range(8):
            kept[k] = x[b * 8 + k] * 1j
        p = kept.pointer(2)
        v = x.gather(order.load(b * 8, width=8))
        out.scatter(v + kept.load(0, width=8), order.load(b * 8, width=8))
        out[b * 8] = p.load(1)

    parallel_for(x.dim(0) // 8, block)


@struct
class Pair:
    z: C
    scale: F = 1.0

    def turned(self):
        return Pair(self.z * 1j, self.scale + 1)


@register("structs")
def structs(out: OutputTensor[C, "n"], x: InputTensor[C, "n"], scale: InputTensor[F, "n"]):
    def each(k):
        p = Pair(x[k], scale[k])
        for _ in range(3):
            p = p.turned()
        out[k] = p.z * C(p.scale)

    parallel_for(x.dim(0), each)


@register("in_place")
def in_place(x: MutableInputTensor[C, "n"]):
    for k in range(x.dim(0)):
        x[k] *= 1j
        x[k] += k.cast(C)


@register("any_number")
def any_number(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]):
    """One text for numbers of all kinds."""
    foreach(out, lambda i: x[i] * conj(x[i]) + (1 if not N.is_complex() else 1j))


@register("says")
def says(out: OutputTensor[C, "n"], x: InputTensor[C, "n"]):
    for k in range(x.dim(0)):
        print("z is", x[k], f"{x[k]:.2f}", 2 + 1j)
        assert x[k] != 3, f"three: {x[k]}"
        out[k] = x[k]


@register("wide")
def wide(out: OutputTensor[complex128, "*s"], x: InputTensor[complex64, "*s"], y: InputTensor[float64, "*s"]):
    foreach(out, lambda i: x[i].cast(complex128) * complex128(y[i]))


@register("with_floats")
def with_floats(out: OutputTensor[C, "5 n"], z: InputTensor[C, "n"], x: InputTensor[R, "n"]):
    total = C(0)
    for k in range(z.dim(0)):
        total += x[k]
        out[0, k] = z[k] * x[k] + x[k]
        out[1, k] = x[k] - z[k] / x[k]
        out[2, k] = x[k]
        out[3, k] = z[k] if x[k] > 0 else x[k]
        out[4, k] = z[k] + total


@register("sizes")
def sizes(out: OutputTensor[C, "n"], z: InputTensor[C, "n"]):
    foreach(out, lambda i: abs(z[i]))
