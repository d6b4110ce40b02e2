"""Reads windows of images at places that are moved by offsets: deformable convolutions.

Places and weights are computed in float32 for half types, and in the elements' own dtype otherwise.
"""

from __future__ import annotations

from typing import TypeVar

from ...dsl import (
    AnyTensor,
    Floating,
    Index,
    InputTensor,
    Int,
    OutputTensor,
    ceildiv,
    compiled_for,
    floor,
    fma,
    int64,
    parallel_for,
    register,
    select,
    stack,
    unroll,
)
from ..algorithms.algorithm import unravelled, wide_dtype
from ..algorithms.rows import TASK

F = TypeVar("F", bound=Floating)


@register("deformed_windows", writes_once=True)
def deformed_windows(
    out: OutputTensor[F, "n c (kh * kw) oh ow"],
    x: InputTensor[F, "n c h w"],
    offset: InputTensor[F, "n (groups * kh * kw * 2) oh ow"],
    *,
    groups: int,
    kh: int,
    kw: int,
    stride_h: int,
    stride_w: int,
    dilation_h: int,
    dilation_w: int,
    pad_h: int,
    pad_w: int,
) -> None:
    """The elements that each tap of a window reads, for each place of the window.

    The channels are divided into `groups`, each with offsets of its own: (y, x) of each tap. A tap between elements is
    the bilinear mean of its four neighbours, of which those outside are 0.
    """
    wide = wide_dtype(F)
    taps = kh * kw

    def prepare(n: Index, group: Index, tap: Index, oh: Index, ow: Index, places: AnyTensor, weights: AnyTensor):
        at = (group * taps + tap) * 2
        top = Int(oh * stride_h - pad_h + tap // kw * dilation_h).cast(wide)
        left = Int(ow * stride_w - pad_w + tap % kw * dilation_w).cast(wide)
        y = top + offset[n, at, oh, ow].cast(wide)
        z = left + offset[n, at + 1, oh, ow].cast(wide)
        low, near = floor(y), floor(z)
        for t in unroll(4):
            row = low.cast(int64) + t // 2
            column = near.cast(int64) + t % 2
            part = y - low if t // 2 == 1 else 1 - (y - low)
            share = z - near if t % 2 == 1 else 1 - (z - near)
            there = (row >= 0) & (row < x.dim(2)) & (column >= 0) & (column < x.dim(3))
            places[t] = select(there, row * x.dim(3) + column, -1)
            weights[t] = part * share

    def sampled(n: Index, channel: Index, places: AnyTensor, weights: AnyTensor):
        base = (n * x.dim(1) + channel) * x.dim(2) * x.dim(3)
        total = wide(0)
        for t in unroll(4):
            if places[t] >= 0:
                total = fma(x.at(base + places[t]).cast(wide), weights[t], total)
        return total.cast(F)

    each = out.dim(1) // groups
    if compiled_for().is_gpu:

        def one(position: Index):
            n, channel, tap, oh, ow = unravelled(position, out.shape)
            places, weights = stack[int64](4, zeroed=False), stack[wide](4, zeroed=False)
            prepare(n, channel // each, tap, oh, ow, places, weights)
            out[n, channel, tap, oh, ow] = sampled(n, channel, places, weights)

        parallel_for(out.size, one)
    else:

        def row(task: Index):
            n, group, tap, oh = unravelled(task, (out.dim(0), groups, taps, out.dim(3)))
            places, weights = stack[int64](4, zeroed=False), stack[wide](4, zeroed=False)
            for ow in range(out.dim(4)):
                prepare(n, group, tap, oh, ow, places, weights)
                for c in range(each):
                    channel = group * each + c
                    out[n, channel, tap, oh, ow] = sampled(n, channel, places, weights)

        work = out.dim(4) * (16 + 8 * each) + 16
        parallel_for(out.dim(0) * groups * taps * out.dim(3), row, grain=ceildiv(TASK, work))
