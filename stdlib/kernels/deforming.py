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
    int64,
    parallel_for,
    register,
    stack,
)
from ..algorithms.algorithm import unravelled, wide_dtype
from ..algorithms.rows import TASK
from .sampling import find_neighbours, sum_of_neighbours

NEIGHBOURS = 4  # of a place in an image

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
        starts = oh * stride_h - pad_h + tap // kw * dilation_h, ow * stride_w - pad_w + tap % kw * dilation_w

        def place(k: int):
            return Int(starts[k]).cast(wide) + offset[n, at + k, oh, ow].cast(wide)

        find_neighbours(x, place, places, weights, 2, "linear", "zeros", False)

    each = out.dim(1) // groups
    if compiled_for().is_gpu:

        def one(position: Index):
            n, channel, tap, oh, ow = unravelled(position, out.shape)
            places, weights = stack[int64](NEIGHBOURS, zeroed=False), stack[wide](NEIGHBOURS, zeroed=False)
            prepare(n, channel // each, tap, oh, ow, places, weights)
            out[n, channel, tap, oh, ow] = sum_of_neighbours(x, n, channel, places, weights, NEIGHBOURS)

        parallel_for(out.size, one)
    else:

        def row(task: Index):
            n, group, tap, oh = unravelled(task, (out.dim(0), groups, taps, out.dim(3)))
            places, weights = stack[int64](NEIGHBOURS, zeroed=False), stack[wide](NEIGHBOURS, zeroed=False)
            for ow in range(out.dim(4)):
                prepare(n, group, tap, oh, ow, places, weights)
                for c in range(each):
                    channel = group * each + c
                    out[n, channel, tap, oh, ow] = sum_of_neighbours(x, n, channel, places, weights, NEIGHBOURS)

        work = out.dim(4) * (16 + 8 * each) + 16
        parallel_for(out.dim(0) * groups * taps * out.dim(3), row, grain=ceildiv(TASK, work))
