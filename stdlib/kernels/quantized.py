"""Decodes quantised tensors of GGUF's formats, and multiplies by them.

The last axis of a quantised tensor is bytes: blocks of a fixed number of elements one after the other, as
`algorithms.encodings` says. A product rounds its left operand to 8 bits in blocks of 32, each with a scale of its own;
products of integers are exact, and the blocks are summed in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...dsl import (
    SIMD,
    AnyTensor,
    DeviceContext,
    Floating,
    Index,
    InputTensor,
    OutputTensor,
    Parts,
    abs,
    ceildiv,
    dot4,
    float32,
    int8,
    int32,
    max,
    parallel_for,
    register,
    round,
    uint8,
    unroll,
)
from ..algorithms import encodings
from ..algorithms.algorithm import product, unravelled
from ..algorithms.block_products import multiply_blocks
from ..algorithms.encodings import PART, elements_of_part

F = TypeVar("F", bound=Floating)
GRAIN = 256  # parts that are worth a task of their own


def _decode(out: AnyTensor, q: AnyTensor, part: Callable[..., Parts], elements: int, bytes: int, bias: int) -> None:
    rows = q.shape[:-1]
    blocks = q.dim(-1) // bytes

    def block(task: Index):
        lead = unravelled(task // blocks, rows)
        b = task % blocks
        read = lambda at, width: q.load(*lead, b * bytes + at, width=width)  # noqa: E731
        for s in unroll(elements // PART):
            out.store(elements_of_part(part(read, s), bias), *lead, b * elements + s * PART)

    parallel_for(product(rows) * blocks, block, grain=GRAIN * PART // elements)


@register("round_to_8_bits", writes_once=True, reads={"x": 2})
def round_to_8_bits(
    out: OutputTensor[int8, "*s k"],
    scales: OutputTensor[float32, "*s (k // 32)"],
    sums: OutputTensor[float32, "*s (k // 32)"],
    offsets: OutputTensor[int32, "*s (k // 32 * halves)"],
    x: InputTensor[F, "*s k"],
    *,
    bias: int,
    halves: int,
) -> None:
    """Blocks of 32 elements as integers up to 127 times a scale.

    Also the sums of the rounded elements of blocks, and those of the integers of blocks or of their halves, times
    -bias: what a sum of products begins with, so that a digit that is too large by the bias counts for what it means.
    """
    rows = x.shape[:-1]
    groups = x.dim(-1) // PART

    def group(task: Index):
        lead = unravelled(task // groups, rows)
        g = task % groups
        v = x.load(*lead, g * PART, width=PART).cast(float32)
        most = max(v, -v).reduce_max()
        scale = most / 127.0
        rounded = round(v * (0.0 if scale == 0 else 1.0 / scale)).cast(int8, saturate=True)
        out.store(rounded, *lead, g * PART)
        scales[(*lead, g)] = scale
        sums[(*lead, g)] = scale * rounded.cast(float32).reduce_add()
        fours = dot4(SIMD[int32, PART // 4](0), rounded, SIMD[int8, PART](1))
        for h in unroll(halves):
            size = PART // 4 // halves
            offsets[(*lead, g * halves + h)] = fours.slice(h * size, size).reduce_add().cast(int32) * -bias

    parallel_for(product(rows) * groups, group, grain=GRAIN)


@register("round_rows_to_8_bits", writes_once=True, reads={"x": 2})
def round_rows_to_8_bits(
    out: OutputTensor[int8, "*s k"], scales: OutputTensor[float32, "*s 1"], x: InputTensor[F, "*s k"]
) -> None:
    """Rows as integers up to 127 times a scale each."""
    rows, depth = x.shape[:-1], x.dim(-1)
    whole = depth // PART * PART

    def row(task: Index):
        lead = unravelled(task, rows)
        most = SIMD[float32, PART](0)
        for k in range(0, whole, PART):
            v = x.load(*lead, k, width=PART).cast(float32)
            most = max(most, max(v, -v))
        highest = most.reduce_max()
        for k in range(whole, depth):
            highest = max(highest, abs(x[(*lead, k)].cast(float32)))
        scale = highest / 127.0
        inverse = 0.0 if scale == 0 else 1.0 / scale
        for k in range(0, whole, PART):
            v = x.load(*lead, k, width=PART).cast(float32)
            out.store(round(v * inverse).cast(int8, saturate=True), *lead, k)
        for k in range(whole, depth):
            out[(*lead, k)] = round(x[(*lead, k)].cast(float32) * inverse).cast(int8, saturate=True)
        scales[(*lead, 0)] = scale

    parallel_for(product(rows), row, grain=ceildiv(GRAIN * PART, depth + 16))


@register("dequantize_q4_0", writes_once=True)
def dequantize_q4_0(out: OutputTensor[float32, "*s (b // 18 * 32)"], q: InputTensor[uint8, "*s b"]) -> None:
    """The elements of Q4_0 blocks."""
    _decode(out, q, encodings.q4_0, 32, 18, 8)


@register("dequantize_q4_1", writes_once=True)
def dequantize_q4_1(out: OutputTensor[float32, "*s (b // 20 * 32)"], q: InputTensor[uint8, "*s b"]) -> None:
    """The elements of Q4_1 blocks."""
    _decode(out, q, encodings.q4_1, 32, 20, 0)


@register("dequantize_q5_0", writes_once=True)
def dequantize_q5_0(out: OutputTensor[float32, "*s (b // 22 * 32)"], q: InputTensor[uint8, "*s b"]) -> None:
    """The elements of Q5_0 blocks."""
    _decode(out, q, encodings.q5_0, 32, 22, 16)


@register("dequantize_q5_1", writes_once=True)
def dequantize_q5_1(out: OutputTensor[float32, "*s (b // 24 * 32)"], q: InputTensor[uint8, "*s b"]) -> None:
    """The elements of Q5_1 blocks."""
    _decode(out, q, encodings.q5_1, 32, 24, 0)


@register("dequantize_q8_0", writes_once=True)
def dequantize_q8_0(out: OutputTensor[float32, "*s (b // 34 * 32)"], q: InputTensor[uint8, "*s b"]) -> None:
    """The elements of Q8_0 blocks."""
    _decode(out, q, encodings.q8_0, 32, 34, 128)


@register("dequantize_iq4_nl", writes_once=True)
def dequantize_iq4_nl(out: OutputTensor[float32, "*s (b // 18 * 32)"], q: InputTensor[uint8, "*s b"]) -> None:
    """The elements of IQ4_NL blocks."""
    _decode(out, q, encodings.iq4_nl, 32, 18, 128)


@register("dequantize_mxfp4", writes_once=True)
def dequantize_mxfp4(out: OutputTensor[float32, "*s (b // 17 * 32)"], q: InputTensor[uint8, "*s b"]) -> None:
    """The elements of MXFP4 blocks."""
    _decode(out, q, encodings.mxfp4, 32, 17, 12)


@register("dequantize_nvfp4", writes_once=True)
def dequantize_nvfp4(out: OutputTensor[float32, "*s (b // 36 * 64)"], q: InputTensor[uint8, "*s b"]) -> None:
    """The elements of NVFP4 blocks."""
    _decode(out, q, encodings.nvfp4, 64, 36, 12)


@register("dequantize_q4_k", writes_once=True)
def dequantize_q4_k(out: OutputTensor[float32, "*s (b // 144 * 256)"], q: InputTensor[uint8, "*s b"]) -> None:
    """The elements of Q4_K blocks."""
    _decode(out, q, encodings.q4_k, 256, 144, 0)


@register("dequantize_q5_k", writes_once=True)
def dequantize_q5_k(out: OutputTensor[float32, "*s (b // 176 * 256)"], q: InputTensor[uint8, "*s b"]) -> None:
    """The elements of Q5_K blocks."""
    _decode(out, q, encodings.q5_k, 256, 176, 0)


@register("dequantize_q6_k", writes_once=True)
def dequantize_q6_k(out: OutputTensor[float32, "*s (b // 210 * 256)"], q: InputTensor[uint8, "*s b"]) -> None:
    """The elements of Q6_K blocks."""
    _decode(out, q, encodings.q6_k, 256, 210, 32)


@register("qmatmul_q4_0", writes_once=True)
def qmatmul_q4_0(
    out: OutputTensor[float32, "*s n"],
    x: InputTensor[int8, "*s k"],
    scales: InputTensor[float32, "*s g"],
    sums: InputTensor[float32, "*s g"],
    offsets: InputTensor[int32, "*s f"],
    w: InputTensor[uint8, "n b"],
    ctx: DeviceContext,
) -> None:
    """The products of rounded rows with rows of Q4_0 blocks."""
    multiply_blocks(ctx, out, (x, scales, sums, offsets), w, encodings.q4_0, (32, 18), 8)


@register("qmatmul_q4_1", writes_once=True)
def qmatmul_q4_1(
    out: OutputTensor[float32, "*s n"],
    x: InputTensor[int8, "*s k"],
    scales: InputTensor[float32, "*s g"],
    sums: InputTensor[float32, "*s g"],
    offsets: InputTensor[int32, "*s f"],
    w: InputTensor[uint8, "n b"],
    ctx: DeviceContext,
) -> None:
    """The products of rounded rows with rows of Q4_1 blocks."""
    multiply_blocks(ctx, out, (x, scales, sums, offsets), w, encodings.q4_1, (32, 20), 0)


@register("qmatmul_q5_0", writes_once=True)
def qmatmul_q5_0(
    out: OutputTensor[float32, "*s n"],
    x: InputTensor[int8, "*s k"],
    scales: InputTensor[float32, "*s g"],
    sums: InputTensor[float32, "*s g"],
    offsets: InputTensor[int32, "*s f"],
    w: InputTensor[uint8, "n b"],
    ctx: DeviceContext,
) -> None:
    """The products of rounded rows with rows of Q5_0 blocks."""
    multiply_blocks(ctx, out, (x, scales, sums, offsets), w, encodings.q5_0, (32, 22), 16)


@register("qmatmul_q5_1", writes_once=True)
def qmatmul_q5_1(
    out: OutputTensor[float32, "*s n"],
    x: InputTensor[int8, "*s k"],
    scales: InputTensor[float32, "*s g"],
    sums: InputTensor[float32, "*s g"],
    offsets: InputTensor[int32, "*s f"],
    w: InputTensor[uint8, "n b"],
    ctx: DeviceContext,
) -> None:
    """The products of rounded rows with rows of Q5_1 blocks."""
    multiply_blocks(ctx, out, (x, scales, sums, offsets), w, encodings.q5_1, (32, 24), 0)


@register("qmatmul_q8_0", writes_once=True)
def qmatmul_q8_0(
    out: OutputTensor[float32, "*s n"],
    x: InputTensor[int8, "*s k"],
    scales: InputTensor[float32, "*s g"],
    sums: InputTensor[float32, "*s g"],
    offsets: InputTensor[int32, "*s f"],
    w: InputTensor[uint8, "n b"],
    ctx: DeviceContext,
) -> None:
    """The products of rounded rows with rows of Q8_0 blocks."""
    multiply_blocks(ctx, out, (x, scales, sums, offsets), w, encodings.q8_0, (32, 34), 128)


@register("qmatmul_iq4_nl", writes_once=True)
def qmatmul_iq4_nl(
    out: OutputTensor[float32, "*s n"],
    x: InputTensor[int8, "*s k"],
    scales: InputTensor[float32, "*s g"],
    sums: InputTensor[float32, "*s g"],
    offsets: InputTensor[int32, "*s f"],
    w: InputTensor[uint8, "n b"],
    ctx: DeviceContext,
) -> None:
    """The products of rounded rows with rows of IQ4_NL blocks."""
    multiply_blocks(ctx, out, (x, scales, sums, offsets), w, encodings.iq4_nl, (32, 18), 128)


@register("qmatmul_mxfp4", writes_once=True)
def qmatmul_mxfp4(
    out: OutputTensor[float32, "*s n"],
    x: InputTensor[int8, "*s k"],
    scales: InputTensor[float32, "*s g"],
    sums: InputTensor[float32, "*s g"],
    offsets: InputTensor[int32, "*s f"],
    w: InputTensor[uint8, "n b"],
    ctx: DeviceContext,
) -> None:
    """The products of rounded rows with rows of MXFP4 blocks."""
    multiply_blocks(ctx, out, (x, scales, sums, offsets), w, encodings.mxfp4, (32, 17), 12)


@register("qmatmul_nvfp4", writes_once=True)
def qmatmul_nvfp4(
    out: OutputTensor[float32, "*s n"],
    x: InputTensor[int8, "*s k"],
    scales: InputTensor[float32, "*s g"],
    sums: InputTensor[float32, "*s g"],
    offsets: InputTensor[int32, "*s f"],
    w: InputTensor[uint8, "n b"],
    ctx: DeviceContext,
) -> None:
    """The products of rounded rows with rows of NVFP4 blocks."""
    multiply_blocks(ctx, out, (x, scales, sums, offsets), w, encodings.nvfp4, (64, 36), 12, 2)


@register("qmatmul_q4_k", writes_once=True)
def qmatmul_q4_k(
    out: OutputTensor[float32, "*s n"],
    x: InputTensor[int8, "*s k"],
    scales: InputTensor[float32, "*s g"],
    sums: InputTensor[float32, "*s g"],
    offsets: InputTensor[int32, "*s f"],
    w: InputTensor[uint8, "n b"],
    ctx: DeviceContext,
) -> None:
    """The products of rounded rows with rows of Q4_K blocks."""
    multiply_blocks(ctx, out, (x, scales, sums, offsets), w, encodings.q4_k, (256, 144), 0)


@register("qmatmul_q5_k", writes_once=True)
def qmatmul_q5_k(
    out: OutputTensor[float32, "*s n"],
    x: InputTensor[int8, "*s k"],
    scales: InputTensor[float32, "*s g"],
    sums: InputTensor[float32, "*s g"],
    offsets: InputTensor[int32, "*s f"],
    w: InputTensor[uint8, "n b"],
    ctx: DeviceContext,
) -> None:
    """The products of rounded rows with rows of Q5_K blocks."""
    multiply_blocks(ctx, out, (x, scales, sums, offsets), w, encodings.q5_k, (256, 176), 0)


@register("qmatmul_q6_k", writes_once=True)
def qmatmul_q6_k(
    out: OutputTensor[float32, "*s n"],
    x: InputTensor[int8, "*s k"],
    scales: InputTensor[float32, "*s g"],
    sums: InputTensor[float32, "*s g"],
    offsets: InputTensor[int32, "*s f"],
    w: InputTensor[uint8, "n b"],
    ctx: DeviceContext,
) -> None:
    """The products of rounded rows with rows of Q6_K blocks."""
    multiply_blocks(ctx, out, (x, scales, sums, offsets), w, encodings.q6_k, (256, 210), 32, 2)
