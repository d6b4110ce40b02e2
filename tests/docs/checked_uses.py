"""Uses of kernels for `test_type_checkers`: those marked `# wrong` are errors for a type checker, and no others."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import einkorn.tensor
import einkorn.torch
import numpy as np
import numpy.typing as npt
from einkorn.tensor import Tensor

import einkorn
from einkorn.dsl import (
    Bool,
    DeviceContext,
    Float32,
    Floating,
    InputTensor,
    Int32,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    VariadicTensors,
    autotune,
    float32,
    foreach,
    int32,
    register,
    struct,
)
from einkorn.graph import Buffer, DType, Graph, TensorType, TensorValue

T = TypeVar("T", bound=Numeric)
F = TypeVar("F", bound=Floating)


ZERO: Any = 0.0


@struct
class Complex(Generic[F]):
    """A complex number of any floating type."""

    re: F
    im: F = ZERO

    def __mul__(self, other):
        return Complex(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    @property
    def norm(self):
        return self.re * self.re + self.im * self.im


UNIT = Complex(0.0, 1.0)


@struct
class Ray:
    """A point, how far from it, and whether something is hit."""

    x: float32
    y: Float32
    steps: Int32
    hit: Bool

    def further(self):
        return Ray(self.x + 1, self.y * 2, self.steps + 1, self.hit)


RAY = Ray(0, 0.5, 3, False)


@register("add")
def add(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] + y[i])


@register("swiglu")
def swiglu(out: OutputTensor[F, "(n//2)"], x: InputTensor[F, "n"], *, beta: float = 1.0):
    foreach(out, lambda i: x[i[0]] * x[i[0] + out.dim(0)] * beta)


@register("axpy")
def axpy(out: OutputTensor[T, "n"], a: T, x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
    foreach(out, lambda i: a * x[i] + y[i])


@register("follow")
def follow(mean: MutableInputTensor[float32, "n"], x: InputTensor[float32, "n"], rate: float32) -> None:
    foreach(mean, lambda i: mean[i] + (x[i] - mean[i]) * rate)


@register("follow_twice")
def follow_twice(mean: MutableInputTensor[float32, "n"], x: InputTensor[float32, "n"], rate: float32) -> None:
    follow(mean, x, rate)
    follow(mean, x, x[0] * 0.5)


@register("halves")
def halves(low: OutputTensor[T, "(n//2)"], high: OutputTensor[T, "(n - n//2)"], x: InputTensor[T, "n"], *, by: int = 1):
    foreach(low, lambda i: x[i] * by)
    foreach(high, lambda i: x[x.dim(0) // 2 + i[0]] * by)


@register("joined")
def joined(out: OutputTensor[T, "n"], xs: VariadicTensors[T, "n"]):
    foreach(out, lambda i: xs[0][i])


@autotune({"width": (4, 8)})
@register("turned")
def turned(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext, *, width: int = 4):
    foreach(out, lambda i: x[i] * float32(width))


@register("both")
def both(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    add(out, x, x)
    axpy(out, 2, out, x)


@register("escape")
def escape(out: OutputTensor[int32, "n"], re: InputTensor[F, "n"], *, limit: int = 50):
    def steps(i):
        z = Complex(re[i], 0)
        for k in range(limit):
            if z.norm > 4:
                return int32(k)
            z = z * UNIT
        return int32(limit)

    foreach(out, steps)


@add.reference
def add_reference(x, y):
    return x + y


def value(x: TensorValue, y: TensorValue) -> TensorValue:
    return add(x, y)


x = np.ones(4, np.float32)
buffer = Buffer.from_numpy(x)
tensor = Tensor.ones((4,))

# Right.
print(Ray(0, 0, 0, hit=True).further().x)
print((RAY.x + 1) * RAY.steps)
add(x, x)
add(buffer, buffer)
add(tensor, tensor)
add(x, x, out=np.empty_like(x))
add(x, 1.0)
swiglu(x, beta=2)
swiglu(x)
axpy(2, x, x)
axpy(np.float32(2), x, x, out=x)
follow(x, x, 0.5)
print(einkorn.torch.op(add), einkorn.tensor.Tensor)
low, high = halves(x, by=2)
halves(x, out=(None, None))
joined(x, x, x)
joined([x, x])
turned(x, width=8)
turned(x, out=x)
escape(x, limit=3)
add.ufunc(x, x)
add.compile(x, x)(x, x)
add.benchmark(x, x, peers={"numpy": np.add})
Graph("sum", forward=lambda a, b: add(a, b), input_types=[TensorType(DType.float32, ["n"])] * 2)
print((Complex(1.0) * UNIT).norm)
total: np.ndarray = add(x, 1.0)
labels: npt.NDArray[np.int32] = escape(x) + add(x, x)
print(low.shape, high.astype(int), add(x, x).mean(axis=0), turned(x).ndim)
returned: Buffer = add(buffer, buffer)
eager: Tensor = axpy(2.0, tensor, tensor)
parts: tuple[Tensor, Tensor] = halves(tensor)

# Wrong.
Ray("far", 0, 0, True)  # wrong
Ray(0, 0, 0)  # wrong
print(RAY.length)  # wrong
add(x)  # wrong
add()  # wrong
add(x, x, x)  # wrong
add(x, x, z=x)  # wrong
add(x, "text")  # wrong
add([1.0, 2.0], x)  # wrong
add(x, None)  # wrong
add(x, x, ot=x)  # wrong
add(x, out=x)  # wrong
swiglu(x, bta=2)  # wrong
swiglu(x, 2.0)  # wrong
swiglu(x, beta="two")  # wrong
axpy(2, x)  # wrong
axpy("two", x, x)  # wrong
follow(x, x)  # wrong
follow(x, x, "half")  # wrong
halves(x, by=1.5)  # wrong
halves(x, x)  # wrong
turned(x, witdh=8)  # wrong
turned()  # wrong
add.uffunc(x, x)  # wrong
add.compiled(x, x)  # wrong
Complex()  # wrong
Complex(1.0, 2.0, 3.0)  # wrong
print(Complex(1.0).imag)  # wrong
print(add(x, x).shap)  # wrong
print(add(x, 1.0).numpy())  # wrong
print(halves(x).shape)  # wrong
print(follow(x, x, 0.5).shape)  # wrong
array: np.ndarray = add(tensor, tensor)  # wrong
one, two, three = halves(x)  # wrong
