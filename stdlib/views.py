"""Elements of views: where they lie in the memory, whether they are there, how they are read, stored and copied.

See also `layout_tensor` (the views).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..dsl import SIMD, AnyTensor, Int, Parts, gpu, int32, iota, static_assert, struct, unroll
from .algorithms.algorithm import unravelled
from .layout import Layout

__all__: list[str] = []


@struct
class Reshaped:
    """A view as memory: a layout gives the row-major position of each coordinate in it."""

    inner: Parts
    layout: Layout
    depth: int = 1


Memory = AnyTensor | Reshaped

if TYPE_CHECKING:

    class Viewed(Protocol):
        """The attributes of a view, as `LayoutTensor` has them."""

        @property
        def memory(self) -> Parts: ...
        @property
        def starts(self) -> Parts: ...
        @property
        def along(self) -> Parts: ...
        @property
        def steps(self) -> Parts: ...
        @property
        def sizes(self) -> Parts: ...
        @property
        def width(self) -> int: ...
        @property
        def masked(self) -> bool: ...


def is_none(part: Parts) -> bool:
    return isinstance(part, tuple) and len(part) == 0


def parts_of(index: Parts) -> Parts:
    """A coordinate or a shape as a tuple."""
    return index if isinstance(index, tuple) else (index,)


def given(i: Parts, j: Parts, k: Parts, n: Parts, m: Parts = ()) -> Parts:
    """The arguments that a call has."""
    if is_none(j):
        return parts_of(i) if isinstance(i, tuple) else (i,)
    if is_none(k):
        return (i, j)
    if is_none(n):
        return (i, j, k)
    return (i, j, k, n) if is_none(m) else (i, j, k, n, m)


def all_known(sizes: Parts) -> bool:
    """Whether all sizes are known at compile time."""
    known = True
    for size in sizes:
        known = known and isinstance(size, int)
    return known


# *** memory: a tensor, or a view in another shape ***


def memory_dtype(memory: Memory) -> Parts:
    """The dtype of the tensor behind views in other shapes."""
    tensor: Parts = memory
    for _ in (0,) * levels(memory):
        tensor = tensor.inner.memory
    return tensor.dtype


def memory_shape(memory: Memory) -> Parts:
    return mode_sizes(memory.layout) if isinstance(memory, Reshaped) else memory.shape


def memory_strides(memory: Memory) -> Parts:
    return memory.layout.stride if isinstance(memory, Reshaped) else memory.strides


def mode_sizes(layout: Layout) -> Parts:
    """The sizes of the modes of a layout."""
    return tuple(layout.mode(k).size for k in range(layout.rank))


def last_mode(layout: Layout) -> Parts:
    """Size and stride of the innermost part of the last mode, which goes fastest."""
    shape: Parts = layout.mode(layout.rank - 1).shape
    stride: Parts = layout.mode(layout.rank - 1).stride
    for _ in (0,) * layout.depth:
        if isinstance(shape, tuple):
            shape = shape[0]
            stride = stride[0]
    return (shape, stride)


def has_vectors(memory: Memory, width: int) -> bool:
    """Whether `width` elements along the last axis are neighbours."""
    if not isinstance(memory, Reshaped):
        return True
    size, stride = last_mode(memory.layout)
    inner = memory.inner
    known = isinstance(size, int) and isinstance(inner.sizes[-1], int) and not isinstance(inner.memory, Reshaped)
    if not known or inner.steps[-1] != 1 or stride != 1:
        return False
    fits: bool = size % width == 0 and inner.sizes[-1] % width == 0
    return fits and inner.along[-1] == len(memory_shape(inner.memory)) - 1


def resolved(memory: Memory, place: Parts) -> Parts:
    """The tensor behind views in other shapes, and where a coordinate lies in it."""
    resolved_place: Parts = (memory, place)
    for _ in (0,) * levels(memory):
        resolved_place = _within(resolved_place[0], resolved_place[1])
    return resolved_place


def levels(memory: Memory) -> Parts:
    """How many views in other shapes lie between memory and its tensor."""
    return memory.depth if isinstance(memory, Reshaped) else 0


def _within(memory: Reshaped, place: Parts) -> Parts:
    inner = memory.inner
    number = memory.layout(place if len(place) > 1 else place[0])
    return (inner.memory, place_of(inner, unravelled(number, inner.sizes)))


def load_at(memory: Memory, place: Parts, width: int) -> Parts:
    tensor, there = resolved(memory, place)
    return tensor[there] if width == 1 else tensor.load(there, width=width)


def store_at(memory: Memory, place: Parts, value: Parts) -> None:
    tensor, there = resolved(memory, place)
    tensor.store(value, there)


# *** places ***


def place_of(view: Viewed, index: Parts) -> Parts:
    """The coordinate in the memory of an element of a view."""
    static_assert(
        len(index) == len(view.sizes), f"a view of {len(view.sizes)} axes has no element of {len(index)} coordinates"
    )
    place = view.starts
    for axis in unroll(len(view.sizes)):
        there = view.along[axis]
        step = view.steps[axis]
        moved = index[axis] if isinstance(step, int) and step == 1 else index[axis] * step
        place = tuple(part + moved if at == there else part for at, part in enumerate(place))
    return place


def is_inside(view: Viewed, place: Parts) -> Parts:
    """Whether the first number of an element is in the memory."""
    if not view.masked:
        return True
    inside: Parts = True
    for axis in unroll(len(place)):
        size = memory_shape(view.memory)[axis]
        inside = inside and place[axis] < size
    return inside


def has_whole(view: Viewed, place: Parts) -> Parts:
    """Whether all numbers of a vector are in the memory, at a multiple of its bytes."""
    if view.width == 1:
        return True
    ends = place[-1] + view.width <= memory_shape(view.memory)[-1]
    return ends and view.memory.is_aligned(view.width * memory_dtype(view.memory).bits // 8, place)


def lanes_inside(view: Viewed, place: Parts) -> Parts:
    """Which numbers of a vector are in the memory."""
    count = memory_shape(view.memory)[-1] - place[-1]
    return iota(int32, view.width) < Int(count).cast(int32)


# *** elements that may be beyond the end ***


def load_inside(view: Viewed, index: Parts, fill: Parts) -> Parts:
    """An element of a view; `fill` where it lies beyond the memory."""
    place = place_of(view, index)
    if not view.masked:
        return load_at(view.memory, place, view.width)
    dtype = memory_dtype(view.memory)
    if view.width == 1:
        return load_at(view.memory, place, 1) if is_inside(view, place) else dtype(fill)
    empty = SIMD[dtype, view.width](fill)
    if not is_inside(view, place):
        return empty
    if has_whole(view, place):
        return view.memory.load(place, width=view.width, align=view.width * dtype.bits // 8)
    return view.memory.load(place, width=view.width, mask=lanes_inside(view, place), other=fill)


def store_inside(view: Viewed, index: Parts, value: Parts) -> None:
    """Stores an element of a view, unless it lies beyond the memory."""
    place = place_of(view, index)
    if not view.masked:
        store_at(view.memory, place, value)
    else:
        if is_inside(view, place):
            if view.width == 1:
                store_at(view.memory, place, value)
            elif has_whole(view, place):
                view.memory.store(value, place, align=view.width * memory_dtype(view.memory).bits // 8)
            else:
                view.memory.store(value, place, mask=lanes_inside(view, place))


def copy_async_at(to: Memory, to_place: Parts, source: Memory, place: Parts, width: int) -> None:
    """Begins to copy `width` neighbours."""
    gpu.copy_async(neighbours(to, to_place, width), neighbours(source, place, width))


def neighbours(memory: Memory, place: Parts, width: int) -> Parts:
    """`width` elements along the last axis, as a tensor of one axis."""
    static_assert(not isinstance(memory, Reshaped), "an asynchronous copy is of a view in the shape of its memory")
    tensor: Parts = memory
    rank = len(place)
    last = place[-1]
    if rank == 1:
        return tensor[last : last + width]
    if rank == 2:
        return tensor[place[0], last : last + width]
    if rank == 3:
        return tensor[place[0], place[1], last : last + width]
    static_assert(rank == 4, f"an asynchronous copy is of memory of one to four axes, not of {rank}")
    return tensor[place[0], place[1], place[2], last : last + width]
