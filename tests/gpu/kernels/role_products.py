"""Products by the kernels of built-in ops, of tiles that a test names."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import DeviceContext, InputTensor, Numeric, OutputTensor, register
from einkorn.stdlib.algorithms.role_products import launch_by_roles

T = TypeVar("T", bound=Numeric)


@register("roles_of_tiles::product")
def product(
    out: OutputTensor[T, "m n"],
    a: InputTensor[T, "m k"],
    b: InputTensor[T, "k n"],
    ctx: DeviceContext,
    *,
    M: int = 128,
    N: int = 128,
    warps: int = 4,
) -> None:
    sizes = (1, out.dim(0), out.dim(1), a.dim(1))
    launch_by_roles(sizes, lambda batch: a, lambda batch: b, lambda batch: out, False, (M, N, warps), 1)
