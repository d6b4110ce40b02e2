"""Changes the size of an axis: elements between those that there are.

Where an element of the result lies among those of x, `coordinates` says, as ONNX names it: half_pixel,
half_pixel_symmetric, pytorch_half_pixel, align_corners, asymmetric, or tf_crop_and_resize (from `start` to `end`, which
count the axis as 1; what lies outside becomes `extrapolation`). `scale` is how many elements there are for one of x; 0
for what follows from the sizes. Places are computed in float64, sums in float32 for half types and in the elements' own
dtype otherwise.

An axis at a time: places and weights of its elements are computed once for many rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...dsl import (
    SIMD,
    AnyDType,
    AnyTensor,
    Element,
    Floating,
    Index,
    InputTensor,
    Int,
    OutputTensor,
    Parts,
    Storable,
    abs,
    ceil,
    ceildiv,
    compiled_for,
    float64,
    floor,
    fma,
    int64,
    max,
    min,
    parallel_for,
    register,
    select,
    stack,
    vectorize,
)
from ..algorithms.algorithm import product, unravelled, wide_dtype
from ..algorithms.rows import TASK

F = TypeVar("F", bound=Floating)
S = TypeVar("S", bound=Storable)

CROP = "tf_crop_and_resize"
TABLE = 8192  # places and weights that one task keeps
MAX_TASK_ELEMENTS = 512  # elements of the axis that one task makes, at most


@register("resize_nearest", writes_once=True)
def resize_nearest(
    out: OutputTensor[S, "*t"],
    x: InputTensor[S, "*s"],
    *,
    axis: int,
    coordinates: str,
    scale: float,
    start: float,
    end: float,
    extrapolation: float,
    rounding: str,
) -> None:
    """The nearest element; `rounding` is round_prefer_floor, round_prefer_ceil, floor or ceil."""
    n, m = x.dim(axis), out.dim(axis)

    def nearest(j: Index):
        """Its place; -1 for none."""
        place = _place(j, n, m, coordinates, scale, start, end)
        if rounding == "floor":
            near = floor(place)
        elif rounding == "ceil":
            near = ceil(place)
        else:
            near = ceil(place - 0.5) if rounding == "round_prefer_floor" else floor(place + 0.5)
        result = min(max(near.cast(int64), 0), n - 1)
        return select(_is_inside(place, n), result, -1) if coordinates == CROP else result

    def element(at: Index, lead: tuple[Index, ...], trail: tuple[Index, ...]):
        if coordinates == CROP and at < 0:
            return S(extrapolation)
        return x[(*lead, at, *trail)]

    if compiled_for().is_gpu:

        def one(position: Index):
            index = unravelled(position, out.shape)
            out[index] = element(nearest(index[axis]), index[:axis], index[axis + 1 :])

        parallel_for(out.size, one)
    else:

        def part(first: Index, count: Index, rows: Callable[..., Parts]):
            places = stack[int64](MAX_TASK_ELEMENTS, zeroed=False)
            for j in range(count):
                places[j] = nearest(first + j)

            def row(lead: tuple[Index, ...], trail: tuple[Index, ...]):
                if axis == x.rank - 1:
                    for j in range(count):
                        out[(*lead, first + j)] = element(places[j], lead, ())
                else:
                    for j in range(count):
                        at = places[j]
                        for b in range(out.dim(-1)):
                            out[(*lead, first + j, *trail, b)] = element(at, lead, (*trail, b))

            rows(row)

        _by_part(out, axis, MAX_TASK_ELEMENTS, part)


@register("resize_weighted", writes_once=True)
def resize_weighted(
    out: OutputTensor[F, "*t"],
    x: InputTensor[F, "*s"],
    *,
    axis: int,
    coordinates: str,
    scale: float,
    start: float,
    end: float,
    extrapolation: float,
    cubic: bool,
    coefficient: float,
    antialias: bool,
    exclude: bool,
) -> None:
    """A weighted sum of neighbours: of two, or of four by a cubic with this coefficient.

    With `antialias` of as many more as there are elements of x for one of the result. What lies outside is the
    outermost element; with `exclude` it has no weight.
    """
    wide = wide_dtype(F)
    n, m = Int(x.dim(axis)), Int(out.dim(axis))
    radius = 2 if cubic else 1
    shrunk = _shrunk(n, m, scale) if antialias else 1.0
    before = floor(-radius / shrunk).cast(int64) + 1 if antialias else 1 - radius
    taps = 2 - 2 * before

    def weigh(j: Index, use: Callable[..., Parts]):
        """Calls use(k, place, weight) for all neighbours of an element; the place of the first is -1 for none."""
        place = _place(j, n, m, coordinates, scale, start, end)
        low = floor(place).cast(int64) + before
        total = float64(0.0)
        for k in range(taps):
            total += _weight((Int(low + k).cast(float64) - place) * shrunk, cubic, coefficient, exclude, low + k, n)
        inside = _is_inside(place, n) if coordinates == CROP else True
        for k in range(taps):
            weight = _weight((Int(low + k).cast(float64) - place) * shrunk, cubic, coefficient, exclude, low + k, n)
            share = weight / total if antialias or exclude else weight
            at = min(max(low + k, 0), n - 1)
            use(k, at if inside else -1, share.cast(wide))

    if compiled_for().is_gpu:
        _by_thread(out, x, wide, axis, coordinates, extrapolation, weigh)
    else:
        _by_table(out, x, wide, axis, coordinates, extrapolation, taps, weigh)


def _by_thread(
    out: AnyTensor,
    x: AnyTensor,
    wide: AnyDType,
    axis: int,
    coordinates: str,
    extrapolation: float,
    weigh: Callable[..., Parts],
) -> None:
    """Each thread computes one element."""

    def one(position: Index):
        index = unravelled(position, out.shape)
        total = stack[wide](1)

        def use(k: Index, at: Index, weight: Floating):
            if coordinates == CROP and at < 0:
                total[0] = wide(extrapolation)
            else:
                total[0] = fma(x[(*index[:axis], at, *index[axis + 1 :])].cast(wide), weight, total[0])

        weigh(index[axis], use)
        out[index] = total[0].cast(out.dtype)

    parallel_for(out.size, one)


def _by_table(
    out: AnyTensor,
    x: AnyTensor,
    wide: AnyDType,
    axis: int,
    coordinates: str,
    extrapolation: float,
    taps: Index,
    weigh: Callable[..., Parts],
) -> None:
    """A task computes places and weights of a part of the axis, and uses them for many rows."""
    assert taps <= TABLE, f"an axis of {x.dim(axis)} elements is shrunk to {out.dim(axis)}: too much for antialias"
    lanes = max(compiled_for().vector_bits // wide.bits, 1)
    span = min(TABLE // taps, MAX_TASK_ELEMENTS)

    def part(first: Index, count: Index, rows: Callable[..., Parts]):
        places = stack[int64](TABLE + 64, zeroed=False)
        weights = stack[wide](TABLE + 64, zeroed=False)
        for j in range(count):

            def use(k: Index, at: Index, weight: Floating, j: Index = j):
                places[k * span + j] = at
                weights[k * span + j] = weight

            weigh(first + j, use)
        for k in range(taps):
            for j in range(count, ceildiv(count, lanes) * lanes):
                places[k * span + j], weights[k * span + j] = 0, wide(0)

        def along(lead: tuple[Index, ...], trail: tuple[Index, ...]):
            def some(j: Index, width: int, mask: Element):
                total = SIMD[wide, width](0)
                for k in range(taps):
                    at = places.load(k * span + j, width=width)
                    there = mask & (at >= 0) if coordinates == CROP else mask
                    value = x.gather(*lead, at, mask=there).cast(wide)
                    total = fma(value, weights.load(k * span + j, width=width), total)
                    if coordinates == CROP:
                        total = select(at < 0, wide(extrapolation), total)
                out.store(total.cast(out.dtype), *lead, first + j, mask=mask)

            vectorize(count, lanes, some, masked=True)

        def across(lead: tuple[Index, ...], trail: tuple[Index, ...]):
            for j in range(count):

                def some(b: Index, width: int, mask: Element, j: Index = j):
                    total = SIMD[wide, width](0)
                    for k in range(taps):
                        at = places[k * span + j]
                        if coordinates == CROP and at < 0:
                            total = SIMD[wide, width](extrapolation)
                        else:
                            value = x.load(*lead, at, *trail, b, width=width, mask=mask).cast(wide)
                            total = fma(value, weights[k * span + j], total)
                    out.store(total.cast(out.dtype), *lead, first + j, *trail, b, mask=mask)

                vectorize(out.dim(-1), lanes, some, masked=True)

        rows(along if axis == x.rank - 1 else across)

    _by_part(out, axis, span, part)


def _by_part(out: AnyTensor, axis: int, span: Index, part: Callable[..., Parts]) -> None:
    """Calls part(first, count, rows) for parts of an axis; rows(f) calls f(indices before, behind) for some rows.

    A row is the axis where it is the last one, and the last axis otherwise.
    """
    last = axis == out.rank - 1
    others = out.shape[:axis] if last else (*out.shape[:axis], *out.shape[axis + 1 : -1])
    count = product(others)
    parts = ceildiv(out.dim(axis), span)
    work = span if last else span * out.dim(-1)
    together = max(min(ceildiv(TASK, work + 16), count), 1)

    def task(number: Index):
        first = number % parts * span
        low = number // parts * together

        def rows(f: Callable[[tuple[Index, ...], tuple[Index, ...]], None]):
            for k in range(low, min(low + together, count)):
                index = unravelled(k, others)
                f(index[:axis], index[axis:])

        part(first, min(out.dim(axis) - first, span), rows)

    parallel_for(ceildiv(count, together) * parts, task)


# *** places and weights ***


def _place(j: Index, n: Index, m: Index, coordinates: str, scale: float, start: float, end: float) -> Any:
    """Where the element j of m lies among n elements, a float64."""
    at, before, after = Int(j).cast(float64), Int(n).cast(float64), Int(m).cast(float64)
    if coordinates == "align_corners":
        last = (scale * before if scale > 0 else after) - 1.0  # a length of 2.4 counts as that, as ONNX has it
        return select(last == 0.0, 0.0, at * (before - 1.0) / select(last == 0.0, 1.0, last))
    if coordinates == CROP:
        size = before - 1.0
        apart = (end - start) * size
        return start * size + select(m > 1, at * apart / max(after - 1.0, 1.0), apart * 0.5)
    if coordinates == "asymmetric":
        return at / scale if scale > 0 else at * before / after
    middle = ((at + 0.5) / scale if scale > 0 else (at + 0.5) * before / after) - 0.5
    if coordinates == "half_pixel_symmetric" and scale > 0:
        return middle + before / 2.0 * (1.0 - after / (scale * before))
    return select(m > 1, middle, 0.0) if coordinates == "pytorch_half_pixel" else middle


def _is_inside(place: Floating, n: Index) -> Any:
    return (place >= 0.0) & (place <= Int(n - 1).cast(float64))


def _shrunk(n: Index, m: Index, scale: float) -> Any:
    """How many elements of the result there are for one of x, 1 at most."""
    if scale > 0:
        return float64(min(scale, 1.0))
    return min(Int(m).cast(float64) / Int(n).cast(float64), 1.0)


def _weight(distance: Floating, cubic: bool, a: float, exclude: bool, place: Index, n: Index) -> Any:
    """The weight of a neighbour at this distance."""
    d = abs(distance)
    if cubic:
        near = ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
        far = ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
        result = select(d <= 1.0, near, select(d < 2.0, far, 0.0))
    else:
        result = max(1.0 - d, 0.0)
    return select((place >= 0) & (place < n), result, 0.0) if exclude else result
