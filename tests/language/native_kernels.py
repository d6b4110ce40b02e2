"""Kernels with tables of constants, blocks of memory, pointers to another dtype, and code that they name themselves."""

from __future__ import annotations

from typing import Any, TypeVar

from einkorn.dsl import (
    InputTensor,
    Numeric,
    OutputTensor,
    constant_table,
    external_call,
    float32,
    float64,
    foreach,
    inline_assembly,
    int16,
    int32,
    int64,
    llvm_intrinsic,
    memcpy,
    memset,
    register,
    stack,
    uint8,
    uint32,
    uint64,
    unroll,
)

N = TypeVar("N", bound=Numeric)

WEIGHTS = (1.0, 2.5, -3.25, 0.0)
ROWS = ((1, 2, 3), (-4, 5, 6))


@register("looked_up")
def looked_up(out: OutputTensor[float32, "n"], k: InputTensor[int32, "n"]) -> None:
    """Elements of two tables, by numbers of the running program."""
    weights, rows = constant_table(WEIGHTS, float32), constant_table(ROWS, int16)

    def one(i: Any) -> Any:
        at = k[i].cast(int64)
        return weights[at] + rows[1, at % 3].cast(float32) * rows.dim(1)

    foreach(out, one)


@register("rounded_table")
def rounded_table(out: OutputTensor[N, "3"]) -> None:
    """A table in any dtype."""
    table = constant_table((0, 1, 2), N)
    foreach(out, lambda i: table[i])


@register("bytes_of")
def bytes_of(out: OutputTensor[uint8, "n 4"], x: InputTensor[float32, "n"]) -> None:
    """The bytes of each element."""
    bits = x.pointer().bitcast(uint8)
    for i in range(x.dim(0)):
        for k in unroll(4):
            out[i, k] = bits[4 * i + k]


@register("from_bytes")
def from_bytes(out: OutputTensor[uint64, "n"], x: InputTensor[uint8, "n 8"]) -> None:
    """Eight bytes each as a number, by way of storage whose dtype is another."""
    kept = stack[uint32](2, zeroed=False)
    for i in range(x.dim(0)):
        memcpy(kept.pointer().bitcast(uint8), x.pointer(i, 0), 8)
        out[i] = kept.pointer().bitcast(uint64)[0]


@register("blocks")
def blocks(out: OutputTensor[N, "n"], x: InputTensor[N, "n"]) -> None:
    """The first half of x, and 7."""
    n = x.dim(0)
    memset(out.pointer(), 7, n)
    memcpy(out.pointer(), x.pointer(), n // 2)


@register("counted")
def counted(out: OutputTensor[int32, "n"], x: InputTensor[int32, "n"]) -> None:
    """How many bits are set, by an intrinsic."""
    foreach(out, lambda i: llvm_intrinsic("llvm.ctpop.i32", int32, x[i], has_side_effects=False))


@register("funnelled")
def funnelled(out: OutputTensor[uint32, "n"], x: InputTensor[uint32, "n"], y: InputTensor[uint32, "n"]) -> None:
    """The upper half of two numbers behind each other, shifted by 5."""
    for i in range(x.dim(0)):
        out[i] = llvm_intrinsic("llvm.fshl.i32", uint32, x[i], y[i], uint32(5))


@register("byte_swapped")
def byte_swapped(out: OutputTensor[uint32, "n"], x: InputTensor[uint32, "n"]) -> None:
    """An instruction of x86 processors."""
    for i in range(x.dim(0)):
        out[i] = inline_assembly("bswap $0", uint32, x[i], constraints="=r,0")


@register("hypotenuse")
def hypotenuse(out: OutputTensor[float64, "n"], x: InputTensor[float64, "n"]) -> None:
    """`hypot(x, 4)` of the C library."""
    foreach(out, lambda i: external_call("hypot", float64, x[i], float64(4)))


@register("copied_by_c")
def copied_by_c(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]) -> None:
    """`memcpy` of the C library."""
    external_call("memcpy", None, out.pointer(), x.pointer(), uint64(4) * x.dim(0).cast(uint64))
