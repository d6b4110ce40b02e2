"""Views of tensors that are divided into tiles, vectors and shares of threads, and the copies between such views.

    tile = LayoutTensor(x).tile(i, j, (64, 16))                   rows 64 i to 64 i + 63, columns 16 j to 16 j + 15
    share = tile.vectorize(1, 4).distribute((16, 4), thread)      what one of 64 threads has of it, four at a time
    copy_dram_to_sram(LayoutTensor(shared), tile, (16, 4))        each thread of the block copies its share

A view holds no elements: it says for each of its axes along which axis of the memory it goes, how far apart its
elements lie, and how many there are. Sizes that are known at compile time stay known.

See also `layout` (functions from coordinates to offsets), `tensor_core` (products of views).
"""

from __future__ import annotations

from collections.abc import Callable

from ..dsl import SIMD, AnyDType, AnyTensor, Index, Parts, ceildiv, fma, gpu, max, stack, static_assert, struct, unroll
from .algorithms.algorithm import product, unravelled
from .layout import Layout
from .views import (
    Memory,
    Reshaped,
    all_known,
    copy_async_at,
    given,
    has_vectors,
    has_whole,
    is_inside,
    levels,
    load_at,
    load_inside,
    memory_dtype,
    memory_shape,
    memory_strides,
    parts_of,
    place_of,
    store_at,
    store_inside,
)

MOST_UNROLLED = 256  # elements of a view that are copied without a loop

__all__ = [
    "LayoutTensor",
    "LayoutTensorIter",
    "copy_dram_to_local",
    "copy_dram_to_sram",
    "copy_dram_to_sram_async",
    "copy_local_to_dram",
    "copy_local_to_shared",
    "copy_sram_to_dram",
    "copy_sram_to_local",
    "outer_product_acc",
]


@struct
class LayoutTensor:
    """A view of a tensor, of shared memory or of `stack` storage.

    `LayoutTensor(x)` has the axes of `x`. Methods that store nothing give numbers or other views.

    Attributes:
        memory: what the elements lie in.
        starts: for each axis of the memory, where the view begins.
        along: for each axis of the view, the axis of the memory.
        steps: for each axis of the view, how many elements of the memory lie between neighbours.
        sizes: for each axis of the view, how many elements it has.
        width: how many neighbours along the last axis of the memory are one element.
        masked: whether elements of the view may lie beyond the end of the memory.
    """

    memory: Memory
    starts: Parts = ()
    along: Parts = ()
    steps: Parts = ()
    sizes: Parts = ()
    width: int = 1
    masked: bool = False

    @staticmethod
    def stack_allocation(dtype: AnyDType, shape: Parts, space: str = "local") -> LayoutTensor:
        """Storage for a view of up to four axes: `"local"` of one thread, zeros; `"shared"` of the block, unwritten.

        Raises:
            EinkornError: EK0215, another space, or more axes.
        """
        known = space == "local" or space == "shared"
        static_assert(known, f"stack_allocation: space is 'local' or 'shared', not '{space}'")
        sizes = parts_of(shape)
        static_assert(len(sizes) < 5, f"stack_allocation: {len(sizes)} axes, and four are the most")
        if space == "shared":
            return LayoutTensor(_allocated(gpu.shared[dtype], sizes))
        return LayoutTensor(_allocated(stack[dtype], sizes))

    @property
    def dtype(self) -> Parts:
        """The dtype of the numbers."""
        return memory_dtype(self.memory)

    @property
    def shape(self) -> Parts:
        """How many elements each axis has; a vector is one element."""
        return _opened(self).sizes

    @property
    def rank(self) -> Parts:
        """How many axes the view has."""
        return len(_opened(self).sizes)

    @property
    def size(self) -> Parts:
        """How many elements there are."""
        return product(_opened(self).sizes)

    @property
    def element_size(self) -> Parts:
        """How many numbers an element has."""
        return self.width

    def dim(self, axis: int) -> Parts:
        """The size of an axis."""
        return _opened(self).sizes[axis]

    def stride(self, axis: int) -> Parts:
        """How many numbers of the memory lie between neighbours along an axis."""
        own = _opened(self)
        return memory_strides(own.memory)[own.along[axis]] * own.steps[axis]

    def __getitem__(self, index: Parts) -> Parts:
        """The element at a coordinate: a number, or a vector of `width` numbers; checked as `x[i]` is."""
        own = _opened(self)
        return load_at(own.memory, place_of(own, parts_of(index)), own.width)

    def __setitem__(self, index: Parts, value: Parts) -> None:
        """Stores an element."""
        own = _opened(self)
        store_at(own.memory, place_of(own, parts_of(index)), value)

    def load(self, i: Parts, j: Parts = (), k: Parts = (), n: Parts = (), width: int = 1) -> Parts:
        """`width` neighbours along the last axis of the memory, from a coordinate on."""
        own = _opened(self)
        return load_at(own.memory, place_of(own, given(i, j, k, n)), max(width, own.width))

    def store(self, value: Parts, i: Parts, j: Parts = (), k: Parts = (), n: Parts = ()) -> None:
        """Stores a number or a vector at a coordinate."""
        own = _opened(self)
        store_at(own.memory, place_of(own, given(i, j, k, n)), value)

    def prefetch(self, i: Parts, j: Parts = (), k: Parts = (), n: Parts = ()) -> None:
        """Prefetches the cache line of an element of a tensor of the op."""
        own = _opened(self)
        own.memory.prefetch(place_of(own, given(i, j, k, n)))

    def tile(self, i: Parts, j: Parts = (), k: Parts = (), n: Parts = (), sizes: Parts = ()) -> LayoutTensor:
        """Tile (i, j, …) of these sizes: `t.tile(i, j, (64, 16))`, `t.tile(i, 64)`. The last tile may be ragged.

        Raises:
            EinkornError: EK0215, not a coordinate and a size for each axis.
        """
        own = _opened(self)
        parts = given(i, j, k, n, sizes)
        count = parts_of(parts[-1])
        static_assert(
            len(count) == len(own.sizes) and len(parts) == len(own.sizes) + 1,
            f"tile: a view of {len(own.sizes)} axes takes as many coordinates, then a tuple of as many sizes,"
            f" not {len(parts) - 1} coordinates and {len(count)} sizes",
        )
        return _tile(own, parts[:-1], count)

    def tiled_iterator(
        self,
        i: Parts,
        j: Parts = (),
        k: Parts = (),
        n: Parts = (),
        sizes: Parts = (),
        axis: int = 0,
        circular: bool = False,
    ) -> LayoutTensorIter:
        """Goes from tile (i, j, …) on along an axis; with `circular`, from the last one to the first."""
        parts = given(i, j, k, n, sizes)
        rank = len(_opened(self).sizes)
        static_assert(axis >= 0 and axis < rank, f"tiled_iterator: no axis {axis} of a view of {rank} axes")
        return LayoutTensorIter(self, parts[:-1], parts_of(parts[-1]), axis, circular)

    def split(self, count: int, axis: int, k: Parts) -> LayoutTensor:
        """Part k of `count` equal parts along an axis.

        Raises:
            EinkornError: EK0215, the size is not known, or not a multiple of `count`.
        """
        own = _opened(self)
        size = own.sizes[axis]
        static_assert(isinstance(size, int), f"split: the size of axis {axis} is not known at compile time")
        if isinstance(size, int):
            static_assert(size % count == 0, f"split: {size} elements are not {count} equal parts")
        sizes = tuple(size // count if at == axis else other for at, other in enumerate(own.sizes))
        places = tuple(k if at == axis else 0 for at in range(len(own.sizes)))
        return _tile(own, places, sizes)

    def vectorize(self, i: int, j: int = 0, k: int = 0, n: int = 0) -> LayoutTensor:
        """A view whose elements are vectors: `t.vectorize(1, 4)` takes four numbers of a row at a time.

        Raises:
            EinkornError: EK0215, numbers that are not neighbours in memory, or a size that is not a multiple.
        """
        own = _opened(self)
        counts = tuple(count for count in (i, j, k, n) if count != 0)
        rank = len(own.sizes)
        static_assert(len(counts) == rank, f"vectorize: {len(counts)} counts for a view of {rank} axes")
        width = product(counts)
        if width == 1:
            return own
        text = "vectorize: a vector is of neighbours along the last axis of the memory, which this view has as axis"
        for axis in unroll(rank):
            last = own.along[axis] == len(memory_shape(own.memory)) - 1 and own.steps[axis] == 1
            static_assert(counts[axis] == 1 or last, f"{text} {_last_axis(own)}, not as axis {axis}")
            size = own.sizes[axis]
            if isinstance(size, int):
                text = f"vectorize: {size} elements along axis {axis} are no vectors of {counts[axis]}"
                static_assert(size % counts[axis] == 0, text)
        static_assert(has_vectors(own.memory, width), f"vectorize: the layout has no {width} neighbours in a row")
        sizes = tuple(ceildiv(size, count) for size, count in zip(own.sizes, counts, strict=True))
        steps = tuple(step * count for step, count in zip(own.steps, counts, strict=True))
        ragged = own.masked or not all_known(own.sizes)
        return LayoutTensor(own.memory, own.starts, own.along, steps, sizes, width, ragged)

    def distribute(self, threads: Parts, thread: Index) -> LayoutTensor:
        """What one thread has of the view: neighbours are of different threads.

        `threads` is a `Layout` of the threads' numbers, or a shape, whose last axis goes fastest.

        Raises:
            EinkornError: EK0215, a known size that is not a multiple of the threads along its axis.
        """
        own = _opened(self)
        layout = _threads(threads, len(own.sizes))
        for axis in unroll(len(own.sizes)):
            size = own.sizes[axis]
            if isinstance(size, int):
                text = f"distribute: {size} elements along axis {axis} for {layout.shape[axis]} threads"
                static_assert(size % layout.shape[axis] == 0, text)
        own = _moved(own, _coordinate(layout, thread))
        steps = tuple(step * count for step, count in zip(own.steps, layout.shape, strict=True))
        sizes = tuple(ceildiv(size, count) for size, count in zip(own.sizes, layout.shape, strict=True))
        return LayoutTensor(
            own.memory, own.starts, own.along, steps, sizes, own.width, own.masked or not all_known(own.sizes)
        )

    def slice(self, i: Parts, j: Parts = (), k: Parts = (), n: Parts = ()) -> LayoutTensor:
        """A part of each axis: `t.slice((0, 4), (8, 16))` has rows 0 to 3, columns 8 to 15."""
        own = _opened(self)
        bounds = given(i, j, k, n)
        static_assert(len(bounds) == len(own.sizes), "slice: a pair of bounds for each axis")
        moved = _moved(own, tuple(pair[0] for pair in bounds))
        sizes = tuple(pair[1] - pair[0] for pair in bounds)
        return LayoutTensor(own.memory, moved.starts, own.along, own.steps, sizes, own.width, own.masked)

    def row(self, i: Parts) -> LayoutTensor:
        """Row i: the view without its first axis."""
        own = _moved(_opened(self), (i,))
        return LayoutTensor(own.memory, own.starts, own.along[1:], own.steps[1:], own.sizes[1:], own.width, own.masked)

    def transpose(self) -> LayoutTensor:
        """The view with its axes in the opposite order."""
        own = _opened(self)
        return LayoutTensor(
            own.memory, own.starts, own.along[::-1], own.steps[::-1], own.sizes[::-1], own.width, own.masked
        )

    def reshape(self, shape: Parts) -> LayoutTensor:
        """The same elements in another shape, in their row-major order; or at the positions that a `Layout` gives.

        Raises:
            EinkornError: EK0215, another number of elements, or a ragged view.
        """
        own = _opened(self)
        layout = shape if isinstance(shape, Layout) else Layout.row_major(parts_of(shape))
        static_assert(not own.masked, "reshape: a view that may reach beyond its memory keeps its shape")
        if all_known(own.sizes):
            whole = product(own.sizes)
            fits = layout.cosize <= whole if isinstance(shape, Layout) else layout.size == whole
            static_assert(fits, f"reshape: {layout.shape} has another number of elements than {whole}")
        return LayoutTensor(Reshaped(own, layout, levels(own.memory) + 1))

    def flatten(self) -> LayoutTensor:
        """All elements along one axis."""
        return self.reshape(product(_opened(self).sizes))

    def fill(self, value: Parts) -> None:
        """Stores a number in all elements; what lies beyond the memory is left out."""
        own = _opened(self)
        full = own.dtype(value) if own.width == 1 else SIMD[own.dtype, own.width](own.dtype(value))
        _each(own, lambda index: store_inside(own, index, full))

    def copy_from(self, source: LayoutTensor, fill: Parts = 0) -> None:
        """Stores the elements of another view, cast to this dtype; `fill` where the source has none.

        Raises:
            EinkornError: EK0215, another number of elements, or vectors of another width.
        """
        own = _opened(self)
        other = _opened(source)
        _check_copy(own, other)
        _each(own, lambda index: store_inside(own, index, _element(other, own, index, fill).cast(own.dtype)))

    def copy_from_async(self, source: LayoutTensor) -> None:
        """Begins to copy another view into this one, which is shared memory; zeros where the source has no elements.

        An element has 4, 8 or 16 bytes: `vectorize` both views. `gpu.commit()` then makes a group of these copies.

        Raises:
            EinkornError: EK0215, another number of elements, or other vectors; EK0646, not 4, 8 or 16 bytes.
        """
        own = _opened(self)
        other = _opened(source)
        _check_copy(own, other)
        _each(own, lambda index: _copy_async(own, other, index))


@struct
class LayoutTensorIter:
    """Tiles of a view, one after the other: `at = at.next()`."""

    tensor: LayoutTensor
    place: Parts
    sizes: Parts
    axis: int
    circular: bool

    def get(self) -> LayoutTensor:
        """The tile here."""
        return _tile(_opened(self.tensor), self.place, self.sizes)

    def next(self, count: Index = 1) -> LayoutTensorIter:
        """The tile `count` further on."""
        there = self.place[self.axis] + count
        if self.circular:
            there = there % ceildiv(_opened(self.tensor).sizes[self.axis], self.sizes[self.axis])
        place = tuple(there if at == self.axis else part for at, part in enumerate(self.place))
        return LayoutTensorIter(self.tensor, place, self.sizes, self.axis, self.circular)

    def __add__(self, count: Index) -> LayoutTensorIter:
        return self.next(count)


# *** parts of views ***


def _opened(view: LayoutTensor) -> LayoutTensor:
    """The view with all of its attributes: of `LayoutTensor(x)` those of the axes of x."""
    if len(view.along) > 0 or len(view.starts) > 0:
        return view
    shape = memory_shape(view.memory)
    axes = tuple(range(len(shape)))
    return LayoutTensor(view.memory, (0,) * len(shape), axes, (1,) * len(shape), shape, 1, False)


def _allocated(kind: Callable[..., AnyTensor], sizes: Parts) -> Parts:
    if len(sizes) == 1:
        return kind(sizes[0])
    if len(sizes) == 2:
        return kind(sizes[0], sizes[1])
    return kind(sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 else kind(sizes[0], sizes[1], sizes[2], sizes[3])


def _last_axis(view: LayoutTensor) -> str:
    """The axis of a view that goes along the last axis of the memory, as text."""
    for axis in unroll(len(view.sizes)):
        if view.along[axis] == len(memory_shape(view.memory)) - 1:
            return str(axis)
    return "none"


def _moved(view: LayoutTensor, index: Parts) -> LayoutTensor:
    """The view that begins at a coordinate of another one."""
    rest = (0,) * (len(view.sizes) - len(index))
    starts = place_of(view, (*index, *rest))
    return LayoutTensor(view.memory, starts, view.along, view.steps, view.sizes, view.width, view.masked)


def _tile(view: LayoutTensor, place: Parts, sizes: Parts) -> LayoutTensor:
    """A tile of a view: it may be ragged unless the sizes of the view are multiples of its sizes."""
    whole = not view.masked
    for size, part in zip(view.sizes, sizes, strict=True):
        whole = whole and isinstance(size, int) and size % part == 0
    moved = _moved(view, tuple(at * part for at, part in zip(place, sizes, strict=True)))
    return LayoutTensor(view.memory, moved.starts, view.along, view.steps, sizes, view.width, not whole)


def _threads(threads: Parts, rank: int) -> Layout:
    """The layout of threads along the axes of a view."""
    layout = threads if isinstance(threads, Layout) else Layout.row_major(parts_of(threads))
    static_assert(layout.rank == rank, f"threads along {layout.rank} axes for a view of {rank}")
    return Layout(parts_of(layout.shape), parts_of(layout.stride))


def _coordinate(layout: Layout, thread: Index) -> Parts:
    """The coordinate of a thread's number in a layout whose modes are numbers."""
    pairs = tuple(zip(layout.shape, layout.stride, strict=True))
    return tuple(0 if size == 1 else thread // stride % size for size, stride in pairs)


def _each(view: LayoutTensor, body: Callable[[Parts], None]) -> None:
    """Calls `body` with each coordinate of a view: written out where the view is small."""
    count = product(view.sizes)
    if all_known(view.sizes) and count <= MOST_UNROLLED:
        for number in unroll(count):
            body(unravelled(number, view.sizes))
    else:
        for number in range(count):
            body(unravelled(number, view.sizes))


def _element(other: LayoutTensor, own: LayoutTensor, index: Parts, fill: Parts) -> Parts:
    """The element of a second view at the row-major position that an index has in the first."""
    return load_inside(other, _there(other, own, index), fill)


def _there(other: LayoutTensor, own: LayoutTensor, index: Parts) -> Parts:
    if other.sizes == own.sizes if all_known(own.sizes) and all_known(other.sizes) else True:
        return index
    return unravelled(_position(index, own.sizes), other.sizes)


def _position(index: Parts, sizes: Parts) -> Parts:
    """The row-major position of a coordinate."""
    total: Parts = 0
    for part, size in zip(index, sizes, strict=True):
        total = total * size + part
    return total


def _copy_async(own: LayoutTensor, other: LayoutTensor, index: Parts) -> None:
    here, at = place_of(own, index), _there(other, own, index)
    there = place_of(other, at)
    if not other.masked:
        copy_async_at(own.memory, here, other.memory, there, own.width)
    else:
        if is_inside(other, there) and has_whole(other, there):
            copy_async_at(own.memory, here, other.memory, there, own.width)
        else:
            store_at(own.memory, here, load_inside(other, at, 0))


def _check_copy(own: LayoutTensor, other: LayoutTensor) -> None:
    """Refuses copies between views that do not fit."""
    static_assert(
        own.width == other.width, f"a copy of vectors of {other.width} to vectors of {own.width}: vectorize both views"
    )
    if all_known(own.sizes) and all_known(other.sizes):
        fits = product(own.sizes) == product(other.sizes)
        static_assert(fits, f"a copy of a view of {other.sizes} elements to one of {own.sizes}")
    else:
        static_assert(
            len(own.sizes) == len(other.sizes), "a copy of views of different rank, whose sizes are not known"
        )


# *** copies by the threads of a block ***


def copy_dram_to_sram(to: LayoutTensor, source: LayoutTensor, threads: Parts) -> None:
    """Copies a view of a tensor into shared memory: each thread its share, as `distribute` says.

    `threads` is a layout or a shape of threads along the axes of both views; more threads of the block copy nothing.
    Both views have one shape and one `width`. A barrier stands between this and the reads of other threads.

    Raises:
        EinkornError: EK0215, shapes that do not divide, or differ.
    """
    _copy_together(to, source, threads, lambda own, other: own.copy_from(other))


def copy_sram_to_dram(to: LayoutTensor, source: LayoutTensor, threads: Parts) -> None:
    """Copies shared memory into a view of a tensor, as `copy_dram_to_sram` does; what lies beyond it is left out."""
    _copy_together(to, source, threads, lambda own, other: own.copy_from(other))


def copy_dram_to_sram_async(to: LayoutTensor, source: LayoutTensor, threads: Parts) -> Parts:
    """Begins to copy a view of a tensor into shared memory, and gives the group of these copies.

    `group.wait()`, then a barrier, stand before the elements are read. Elements have 4, 8 or 16 bytes.

    Raises:
        EinkornError: EK0215, shapes that do not divide, or differ; EK0646, other sizes of elements.
    """
    _copy_together(to, source, threads, lambda own, other: own.copy_from_async(other))
    return gpu.commit()


def copy_dram_to_local(to: LayoutTensor, source: LayoutTensor, threads: Parts) -> None:
    """Copies the thread's share of a view into storage of its own."""
    to.copy_from(source.distribute(threads, _thread()))


def copy_sram_to_local(to: LayoutTensor, source: LayoutTensor, threads: Parts) -> None:
    """Copies the thread's share of shared memory into storage of its own."""
    to.copy_from(source.distribute(threads, _thread()))


def copy_local_to_dram(to: LayoutTensor, source: LayoutTensor, threads: Parts) -> None:
    """Copies storage of each thread into its share of a view; what lies beyond the tensor is left out."""
    to.distribute(threads, _thread()).copy_from(source)


def copy_local_to_shared(to: LayoutTensor, source: LayoutTensor, threads: Parts) -> None:
    """Copies storage of each thread into its share of shared memory."""
    to.distribute(threads, _thread()).copy_from(source)


def outer_product_acc(sums: LayoutTensor, left: LayoutTensor, right: LayoutTensor) -> None:
    """Adds `left[i] * right[j]` to `sums[i, j]`, floats by `fma`: views of a column, a row and a matrix of known sizes.

    Raises:
        EinkornError: EK0215, sizes that do not fit.
    """
    own, a, b = _opened(sums), _opened(left), _opened(right)
    fits = len(own.sizes) == 2 and len(a.sizes) == 1 and len(b.sizes) == 1 and own.sizes == (a.sizes[0], b.sizes[0])
    static_assert(fits, f"outer_product_acc: sums of {own.sizes} for {a.sizes} by {b.sizes}")
    rows = tuple(load_at(a.memory, place_of(a, (i,)), 1).cast(own.dtype) for i in range(a.sizes[0]))
    columns = tuple(load_at(b.memory, place_of(b, (j,)), 1).cast(own.dtype) for j in range(b.sizes[0]))
    for i in unroll(own.sizes[0]):
        for j in unroll(own.sizes[1]):
            place = place_of(own, (i, j))
            total = load_at(own.memory, place, 1)
            if own.dtype.is_float():
                store_at(own.memory, place, fma(rows[i], columns[j], total))
            else:
                store_at(own.memory, place, total + rows[i] * columns[j])


def _copy_together(
    to: LayoutTensor, source: LayoutTensor, threads: Parts, copy: Callable[[LayoutTensor, LayoutTensor], None]
) -> None:
    """Calls `copy` with what each of so many threads of the block has of two views."""
    layout = _threads(threads, len(_opened(to).sizes))
    thread = _thread()

    def copy_share() -> None:
        copy(to.distribute(layout, thread), source.distribute(layout, thread))

    if gpu.threads_per_block == layout.size:
        copy_share()
    else:
        static_assert(
            layout.size < gpu.threads_per_block,
            f"a copy by {layout.size} threads in a block of {gpu.threads_per_block}",
        )
        if thread < layout.size:
            copy_share()


def _thread() -> Parts:
    """The thread's number in its block."""
    return gpu.warp_idx * gpu.warp_size + gpu.lane_idx
