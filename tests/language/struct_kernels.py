"""Structs in kernels; `test_structs` compares with the same algorithm in Python."""

from __future__ import annotations

from typing import Any, TypeVar

from einkorn.dsl import (
    SIMD,
    Float32,
    Floating,
    InputTensor,
    Int,
    Integral,
    OutputTensor,
    float32,
    float64,
    foreach,
    int64,
    map_parts,
    parallel_for,
    register,
    sqrt,
    static_assert,
    struct,
    unroll,
)

T = TypeVar("T", bound=Floating)
I = TypeVar("I", bound=Integral)  # noqa: E741
S = TypeVar("S")


@struct
class Complex:
    """A complex number of any floating type."""

    re: S
    im: S = 0.0

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.re + other.re, self.im + other.im)

    def __sub__(self, other):
        return Complex(self.re - other.re, self.im - other.im)

    def __mul__(self, other):
        return Complex(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    def __rmul__(self, factor):
        return Complex(factor * self.re, factor * self.im)

    def __neg__(self):
        return Complex(-self.re, -self.im)

    def __pow__(self, n):
        out = Complex(S(1), S(0))
        for _ in unroll(n):
            out = out * self
        return out

    def __abs__(self):
        return sqrt(self.norm)

    def __bool__(self):
        return self.re != 0 or self.im != 0

    @property
    def norm(self):
        return self.re * self.re + self.im * self.im

    def conjugate(self):
        return Complex(self.re, -self.im)

    @staticmethod
    def of(pair):
        return Complex(*pair)

    @classmethod
    def real(cls, re):
        return cls(re)


UNIT = Complex(0.0, 1.0)


@register("mandelbrot")
def mandelbrot(
    out: OutputTensor[int64, "n"], re: InputTensor[T, "n"], im: InputTensor[T, "n"], *, limit: int = 30
) -> None:
    def steps(i):
        c = Complex(re[i], im[i])
        z = Complex(T(0))
        for k in range(limit):
            if z.norm > 4:
                return k
            z = z * z + c
        return Int(limit)

    foreach(out, steps)


@register("algebra")
def algebra(out: OutputTensor[T, "8 n"], re: InputTensor[T, "n"], im: InputTensor[T, "n"]) -> None:
    def column(i):
        z = Complex(re[i], im[i])
        turned = UNIT * z
        out[0, i], out[1, i] = turned.re, turned.im
        cube = z**3 - (-z)
        out[2, i], out[3, i] = cube.re, cube.im
        unequal = z != Complex(re[i], im[i])
        twice = 2.0 * Complex.of((re[i], im[i])).conjugate()
        out[4, i], out[5, i] = twice.re, abs(twice)
        out[6, i] = 1.0 if z == Complex(re[i], im[i]) and not unequal else 0.0
        out[7, i] = Complex.real(re[i]).im if z else 7.0

    parallel_for(re.dim(0), column)


@struct
class Welford:
    """Count, mean and sum of squared deviations."""

    count: Any = 0
    mean: Any = 0.0
    m2: Any = 0.0

    def add(self, x):
        count = self.count + 1
        delta = x - self.mean
        mean = self.mean + delta / count.cast(x.dtype)
        return Welford(count, mean, self.m2 + delta * (x - mean))


@register("welford")
def welford(mean: OutputTensor[T, "m"], m2: OutputTensor[T, "m"], x: InputTensor[T, "m n"]) -> None:
    def row(i):
        state = Welford(Int(0))
        for j in range(x.dim(1)):
            state = state.add(x[i, j])
        mean[i], m2[i] = state.mean, state.m2

    parallel_for(x.dim(0), row)


@struct
class Box:
    """A struct in a struct, with a field that is known at compile time."""

    low: Complex
    high: Complex
    name: str = "box"
    sides: int = 4

    def __getitem__(self, k):
        return self.low if k == 0 else self.high

    def __call__(self, z, *, grow=0.0):
        return self.low.re - grow <= z.re <= self.high.re + grow and self.low.im <= z.im <= self.high.im

    def __lt__(self, other):
        return self.high.re < other.low.re


@register("boxes")
def boxes(out: OutputTensor[int64, "7 n"], re: InputTensor[float32, "n"], im: InputTensor[float32, "n"]) -> None:
    def column(i):
        z = Complex(re[i], im[i])
        box = Box(Complex(Float32(-1), Float32(-1)), Complex(Float32(1), Float32(1)), sides=5)
        out[0, i] = 1 if box(z) else 0
        out[1, i] = 1 if box(z, grow=1.0) else 0
        box.high.re = re[i]  # a new box, in the variable of this name
        box.low.im -= 0.5
        out[2, i] = 1 if box[1].re == z.re else 0
        out[3, i] = 1 if box(z) else 0
        other = box
        other.low.re = Float32(2)
        out[4, i] = 1 if box < other else 0
        out[5, i] = box.sides + (1 if box.name == "box" else 0)
        if re[i] > 0:
            box = other
        elif im[i] > 0:
            box.low = z
        out[6, i] = 1 if box.low == other.low else 2 if box.low == z else 0

    parallel_for(re.dim(0), column)


@struct
class Best:
    """A value and where it is."""

    value: Float32
    at: Int

    def better(self, value, at):
        if value > self.value:
            return Best(value, at)
        return self


@register("argmax_pair")
def argmax_pair(out: OutputTensor[float32, "m"], at: OutputTensor[int64, "m"], x: InputTensor[float32, "m n"]) -> None:
    """Two structs in a tuple, carried through a loop and returned out of it."""

    def search(i):
        best, least = Best(x[i, 0], 0), Best(-x[i, 0], 0)
        both = (best, least)
        for j in range(x.dim(1)):
            if x[i, j] > 2:
                return both[0]
            both = (both[0].better(x[i, j], j), both[1].better(-x[i, j], j))
        k = 0
        while k < 3:
            best.value += 0.5
            k += 1
        return both[0] if both[0].value > -both[1].value + 1 else both[1]

    def row(i):
        result = search(i)
        out[i], at[i] = result.value, result.at

    parallel_for(x.dim(0), row)


@struct
class Lanes:
    """A vector and a mask of it."""

    v: SIMD[S, 4]
    w: tuple[Float32, SIMD[float32, 4]]


@register("lanes")
def lanes(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]) -> None:
    def group(k):
        pair = Lanes(x.load(k * 4, width=4), (1.0, 2.0))
        pair.v += pair.v
        pair.v = pair.v * T(2)
        out.store(pair.v, k * 4)

    parallel_for(x.dim(0) // 4, group)


@register("parts")
def parts(out: OutputTensor[float64, "n"], x: InputTensor[float64, "n"]) -> None:
    """Numbers of any form and in any place, and what is not a number stays what it is."""

    def one(i):
        seen = (Complex(x[i], 1.0), ("seen", 3, (x[i], float64)))
        twice = map_parts(lambda a, b: a + b, seen, map_parts(lambda a: a * 2, seen))
        z, (name, three, (last, dtype)) = twice
        static_assert(name == "seen" and three == 9 and dtype == float64)
        return z.re + z.im * 10 + last * 100

    foreach(out, one)


@register("choices")
def choices(out: OutputTensor[float64, "n"], x: InputTensor[float64, "n"]) -> None:
    def one(i):
        a = Complex(x[i]) if x[i] > 0 else Complex(0.5, x[i])
        b = (a, 1) if x[i] > 1 else (a * a, 2)
        t = Complex(a.re, 0.25)
        for z in (a, t, b[0]):
            t = t + z
        print(f"{t}", b)
        assert t.re == t.re, t
        return t.re + t.im + float64(b[1])

    foreach(out, one)
