"""Products by the tiles of built-in ops, of one shape of tiles each."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import DeviceContext, InputTensor, Numeric, OutputTensor, register
from einkorn.stdlib.algorithms.tile_products import has_tensor_maps, launch_tiles

T = TypeVar("T", bound=Numeric)


@register("built_in_tiles::product")
def product(
    out: OutputTensor[T, "b m n"],
    a: InputTensor[T, "b m k"],
    b: InputTensor[T, "b i j"],
    ctx: DeviceContext,
    *,
    M: int = 128,
    N: int = 128,
    warps: int = 4,
    transposed: bool = False,
) -> None:
    """`transposed`: b is a batch of n x k."""
    sizes = (a.dim(0), a.dim(1), out.dim(2), a.dim(2))
    launch_tiles(
        sizes,
        lambda batch: a[batch, :, :],
        lambda batch: b[batch, :, :],
        lambda batch: out[batch, :, :],
        transposed,
        (M, N, warps),
        1,
        has_tensor_maps(),
    )


@register("built_in_tiles::pieces")
def pieces(
    out: OutputTensor[T, "p m n"], a: InputTensor[T, "m k"], b: InputTensor[T, "k n"], ctx: DeviceContext
) -> None:
    """The sums of as many pieces of the inner axis as there are results."""
    sizes = (1, a.dim(0), b.dim(1), a.dim(1))
    launch_tiles(
        sizes,
        lambda batch: a,
        lambda batch: b,
        lambda p: out[p, :, :],
        False,
        (128, 64, 4),
        out.dim(0),
        has_tensor_maps(),
    )
