"""A kernel that stops in the debugger, and the program that runs it; a child process of `test_debugger`."""

import sys
from typing import TypeVar

import numpy as np

from einkorn.dsl import Floating, InputTensor, Int, OutputTensor, foreach, register, sqrt, struct
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

T = TypeVar("T", bound=Floating)


@struct
class Sum:
    total: T
    count: Int = 0

    def more(self, x):
        return Sum(self.total + x, self.count + 1)


def squared(value):
    double = value * value
    return double


@register("row_norm")
def row_norm(out: OutputTensor[T, "m"], x: InputTensor[T, "m n"], *, scale: float = 2.0):
    n = x.dim(1)

    def norm(i):
        total = 0.0
        pair = (x[i[0], 1], 7)
        if x[i[0], 0] == 4:
            breakpoint()
        for k in range(n):
            y = x[i[0], k]
            total += squared(y) * scale
        half = total / pair[1]
        sum = Sum(half).more(half)
        half = sum.total / 2
        return sqrt(half)

    foreach(out, norm)


def main() -> None:
    host = DeviceRef.CPU()
    given, made = TensorType(DType.float32, (3, 4), host), TensorType(DType.float32, (3,), host)

    def forward(x):
        return ops.custom("row_norm", host, [x], [made])[0]

    graph = Graph("norms", forward=forward, input_types=[given], custom_extensions=[__file__])
    model = InferenceSession(interpret="compile" not in sys.argv).load(graph)
    (norms,) = model(np.arange(12, dtype=np.float32).reshape(3, 4))
    print("norms", norms.to_numpy())


if __name__ == "__main__":
    main()
