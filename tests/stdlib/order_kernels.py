"""Kernels that sort and kernels with stencils, for `test_sorting` and `test_stencils`."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import Element, Floating, InputTensor, Numeric, OutputTensor, abs, float32, int64, register
from einkorn.stdlib import argsort, sort, stencil, top_k

N = TypeVar("N", bound=Numeric)
E = TypeVar("E", bound=Element)
F = TypeVar("F", bound=Floating)


@register("sorted_rows")
def sorted_rows(
    out: OutputTensor[E, "*s"],
    places: OutputTensor[int64, "*s"],
    x: InputTensor[E, "*s"],
    *,
    axis: int = -1,
    descending: bool = False,
    limit: int = 1024,
):
    sort(out, x, axis=axis, descending=descending, limit=limit)
    argsort(places, x, axis=axis, descending=descending, limit=limit)


@register("by_size")
def by_size(out: OutputTensor[F, "m n"], x: InputTensor[F, "m n"]):
    sort(out, x, key=lambda v: abs(v), limit=128)


@register("best")
def best(
    values: OutputTensor[E, "m k"],
    places: OutputTensor[int64, "m k"],
    x: InputTensor[E, "m n"],
    *,
    k: int,
    descending: bool = True,
):
    top_k(values, places, x, k, descending=descending)


@register("best_of_columns")
def best_of_columns(places: OutputTensor[int64, "k n"], x: InputTensor[float32, "m n"], *, k: int):
    top_k(None, places, x, k, axis=0)


@register("smoothed")
def smoothed(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"], *, border: str):
    """Weights that distinguish all neighbours; the last axis only."""
    stencil(out, x, lambda near, i: near(-2) * 4 + near(-1) * 2 + near() + near(3) * 8, reach=(3,), border=border)


@register("crossed")
def crossed(
    out: OutputTensor[float32, "*b h w"], x: InputTensor[float32, "*b h w"], *, border: str, value: float = 0.0
):
    def body(near, i):
        total = near(0, 0)
        for a in (-1, 1):
            total += (3.0 + a) * near(a, 0) + (7.0 + a) * near(0, 2 * a) + near(a, a)
        return total

    stencil(out, x, body, reach=(1, 2), border=border, value=value)


@register("laplacian")
def laplacian(out: OutputTensor[float32, "d h w"], x: InputTensor[float32, "d h w"], *, border: str):
    def body(near, i):
        total = -6 * near()
        for a in (-1, 1):
            total += near(a) + near(0, a) + near(0, 0, a)
        return total + i[0].cast(float32)

    stencil(out, x, body, reach=(1, 1, 1), border=border)
