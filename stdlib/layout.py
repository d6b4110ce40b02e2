"""Layouts: functions from coordinates to offsets, and their algebra, at compile time.

    Layout((4, 8), (8, 1))((1, 2))                     the offset of row 1, column 2 of a 4 x 8 matrix that lies by rows
    zipped_divide(Layout.row_major((64, 64)), (8, 8))  the offsets within tiles of 8 x 8, and of the tiles

A shape is a number, or a tuple of shapes; strides have the same form. Coordinates are tuples of that form; one number
stands for a coordinate at any level, the first part of it going fastest. Shapes and strides may hold values of the
running program (`Layout((x.dim(0), 8), (8, 1))`) where offsets are requested; the algebra wants numbers that are known.

All of it runs in Python, and in kernels when they are compiled: layouts are structs, and these functions are written
in the kernel language.

See also `drawn_layouts` (tiles of tensors; pictures).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

from ..dsl import Index, Parts, static_assert, struct
from .drawn_layouts import DrawnLayout

if TYPE_CHECKING:
    from .drawn_layouts import Shaped

Tree = Parts  # a shape, a stride or a coordinate: an integer, or a tuple of trees
Modes = tuple[tuple[Index, Index], ...]  # pairs of size and stride
Function = Union["Layout", "ComposedLayout", "Swizzle"]

__all__ = [
    "ComposedLayout",
    "Layout",
    "Swizzle",
    "blocked_product",
    "coalesce",
    "complement",
    "composition",
    "left_inverse",
    "logical_divide",
    "logical_product",
    "raked_product",
    "right_inverse",
    "tiled_divide",
    "zipped_divide",
]


@struct
class Layout(DrawnLayout):
    """A function from coordinates to offsets: the sum of each part of a coordinate times its stride.

    Attributes:
        shape: how many coordinates there are, a number or a nested tuple of numbers.
        stride: in the same form, how far apart neighbours are.
    """

    shape: Any
    stride: Any

    @staticmethod
    def row_major(shape: Tree) -> Layout:
        """The layout of a shape whose last axis lies close together, as NumPy's arrays do."""
        return Layout(shape, _compact(shape, True))

    @staticmethod
    def column_major(shape: Tree) -> Layout:
        """The layout of a shape whose first axis lies close together; the offset of the number i is i."""
        return Layout(shape, _compact(shape, False))

    @property
    def size(self) -> Any:
        """How many coordinates there are."""
        return _product(self.shape)

    @property
    def cosize(self) -> Any:
        """One more than the greatest offset, where no stride is negative; 0 where there are no coordinates."""
        if self.size == 0:
            return 0
        last = 1
        for size, step in zip(_flat(self.shape), _flat(self.stride), strict=True):
            last = last + (size - 1) * step
        return last

    @property
    def rank(self) -> Any:
        """How many modes there are: parts of the outermost tuple; 1 for a number."""
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    @property
    def depth(self) -> Any:
        """How deep tuples are nested: 0 for a number."""
        return _depth(self.shape)

    def __call__(self, i: Tree, j: Tree = (), k: Tree = (), n: Tree = ()) -> Any:
        """The offset of a coordinate: `layout(i)`, `layout(i, j)`, `layout((i, (j, k)))`."""
        return _offset(_coordinate(i, j, k, n), self.shape, self.stride)

    def mode(self, k: int) -> Layout:
        """The layout of one mode by itself."""
        if isinstance(self.shape, tuple):
            return Layout(self.shape[k], self.stride[k])
        return self


@struct
class Swizzle(DrawnLayout):
    """A permutation of offsets: `bits` bits, `base + shift` from below, are combined by xor into those from `base` on.

    A negative shift takes the lower bits into the upper ones. Twice the same swizzle changes nothing.
    """

    bits: int
    base: int
    shift: int

    def __call__(self, offset: Index) -> Any:
        """The offset that takes the place of another."""
        if self.bits == 0:
            return offset
        mask = (1 << self.bits) - 1
        if self.shift > 0:
            return offset ^ ((offset >> (self.base + self.shift)) & mask) << self.base
        return offset ^ ((offset >> self.base) & mask) << (self.base - self.shift)

    @property
    def size(self) -> Any:
        """After how many offsets the pattern repeats."""
        return 1 << (self.bits + self.base + max(self.shift, -self.shift))


@struct
class ComposedLayout(DrawnLayout):
    """A layout whose offsets, moved by `offset`, go through a second function: a swizzle, or another layout."""

    outer: Any
    inner: Any
    offset: Any = 0

    @property
    def shape(self) -> Any:
        """The shape of its coordinates."""
        return self.inner.shape

    @property
    def size(self) -> Any:
        """How many coordinates there are."""
        return self.inner.size

    @property
    def cosize(self) -> Any:
        """One more than the greatest offset."""
        result = 0
        for k in range(self.inner.size):
            result = max(result, self.outer(self.offset + self.inner(k)) + 1)
        return result

    @property
    def rank(self) -> Any:
        """How many modes there are."""
        return self.inner.rank

    @property
    def depth(self) -> Any:
        """How deep tuples are nested."""
        return self.inner.depth

    def __call__(self, i: Tree, j: Tree = (), k: Tree = (), n: Tree = ()) -> Any:
        """The offset of a coordinate, as a `Layout` takes it."""
        return self.outer(self.offset + self.inner(i, j, k, n))


def _is_none(part: Tree) -> bool:
    return isinstance(part, tuple) and len(part) == 0


def _coordinate(i: Tree, j: Tree, k: Tree, n: Tree) -> Any:
    """The arguments of a call as one coordinate."""
    if _is_none(j):
        return i
    if _is_none(k):
        return (i, j)
    return (i, j, k) if _is_none(n) else (i, j, k, n)


def _offset(coordinate: Tree, shape: Tree, stride: Tree) -> Any:
    """The offset of a coordinate. No recursion: the coordinate may be a value of the running program."""
    parts = ((coordinate, shape, stride),)
    for _ in (0,) * _depth(shape):
        parts = _opened(parts)
    total = 0
    for place, sizes, steps in parts:
        flat = _flat(sizes)
        rest = place
        for size, step in tuple(zip(flat, _flat(steps), strict=True))[:-1]:
            total = total + rest % size * step
            rest = rest // size
        total = total + rest * _flat(steps)[-1]
    return total


def _opened(parts: tuple[tuple[Tree, Tree, Tree], ...]) -> Any:
    """Coordinates that are tuples, part by part next to their shapes and strides."""
    results: Any = ()
    for place, sizes, steps in parts:
        if isinstance(place, tuple):
            static_assert(
                isinstance(sizes, tuple) and len(sizes) == len(place),
                "a coordinate has as many parts as the shape, or is a number",
            )
            results = (*results, *zip(place, sizes, steps, strict=True))
        else:
            results = (*results, (place, sizes, steps))
    return results


def _flat(tree: Tree) -> Any:
    """The numbers of a nested tuple, from left to right."""
    if not isinstance(tree, tuple):
        return (tree,)
    results: Any = ()
    for part in tree:  # only tuples go deeper: a call of itself with a value of the running program would be refused
        results = (*results, *_flat(part)) if isinstance(part, tuple) else (*results, part)
    return results


def _product(tree: Tree) -> Any:
    result = 1
    for part in _flat(tree):
        result = result * part
    return result


def _depth(tree: Tree) -> int:
    if not isinstance(tree, tuple):
        return 0
    deepest = 0
    for part in tree:
        if isinstance(part, tuple):
            deepest = max(deepest, _depth(part))
    return deepest + 1


def _compact(shape: Tree, last_first: bool) -> Any:
    """Strides in which nothing is left free."""
    flat = _flat(shape)
    steps: Any = ()
    step = 1
    for size in flat[::-1] if last_first else flat:
        steps = (step, *steps) if last_first else (*steps, step)
        step = step * size
    return _like(shape, steps)


def _like(shape: Tree, flat: tuple[Index, ...]) -> Any:
    """Numbers in the form of a shape."""
    if not isinstance(shape, tuple):
        return flat[0]
    results: Any = ()
    at = 0
    for part in shape:
        if isinstance(part, tuple):
            count = len(_flat(part))
            results = (*results, _like(part, flat[at : at + count]))
            at = at + count
        else:
            results = (*results, flat[at])
            at = at + 1
    return results


def _modes(layout: Layout) -> Any:
    """The numbers of a layout's shape and stride, side by side."""
    return tuple(zip(_flat(layout.shape), _flat(layout.stride), strict=True))


def _of_modes(modes: Modes) -> Layout:
    """The layout of pairs of size and stride; of none, that of one element."""
    if len(modes) == 0:
        return Layout(1, 0)
    if len(modes) == 1:
        return Layout(modes[0][0], modes[0][1])
    return Layout(tuple(size for size, _ in modes), tuple(step for _, step in modes))


def _joined(layouts: tuple[Layout, ...]) -> Layout:
    """The layout whose modes are these."""
    return Layout(tuple(part.shape for part in layouts), tuple(part.stride for part in layouts))


def _by_modes(layout: Layout) -> tuple[Layout, ...]:
    """The layouts of all modes."""
    return tuple(layout.mode(k) for k in range(layout.rank))


def coalesce(layout: Layout, by: Tree | None = None) -> Layout:
    """The same function of one number, with as few modes as there can be.

    `by` is a form, as `(1, 1)`: each mode that stands next to a part of it is coalesced by itself, the others stay.

    Raises:
        EinkornError: EK0215, `by` has more parts than the layout.
    """
    if isinstance(by, tuple):
        static_assert(len(by) <= layout.rank, "coalesce: by has no more parts than the layout has modes")
        modes = _by_modes(layout)
        done = tuple(coalesce(mode, part) for mode, part in zip(modes, by, strict=False))
        return _joined((*done, *modes[len(by) :]))
    results: Any = ()
    for size, step in _modes(layout):
        if size == 1:
            continue
        if len(results) > 0 and results[-1][0] * results[-1][1] == step:
            results = (*results[:-1], (results[-1][0] * size, results[-1][1]))
        else:
            results = (*results, (size, step))
    return _of_modes(results)


def composition(a: Function, b: Shaped | tuple[Shaped, ...]) -> Any:
    """The layout of `a(b(coordinate))`; its coordinates are those of `b`.

    `b` may be a tuple of layouts, one for each mode of `a`. Offsets of `b` beyond the size of `a` go on along the last
    mode of `coalesce(a)`. `a` may be a `Swizzle` or a `ComposedLayout`.

    Raises:
        EinkornError: EK0215, no layout does that: sizes do not divide each other.
    """
    if isinstance(a, Swizzle):
        return ComposedLayout(a, b)
    if isinstance(a, ComposedLayout):
        return ComposedLayout(a.outer, composition(a.inner, b), a.offset)
    if isinstance(b, tuple):
        static_assert(len(b) <= a.rank, "composition: b has no more parts than a has modes")
        modes = _by_modes(a)
        done = tuple(composition(mode, part) for mode, part in zip(modes, b, strict=False))
        return _joined((*done, *modes[len(b) :]))
    return _composed(_modes(coalesce(a)), b.shape, b.stride)


def _composed(modes: Modes, shape: Tree, stride: Tree) -> Layout:
    if isinstance(shape, tuple):
        return _joined(tuple(_composed(modes, size, step) for size, step in zip(shape, stride, strict=True)))
    if shape == 1 or stride == 0:
        return Layout(shape, 0)
    return _of_modes(_walked(modes, shape, stride))


def _walked(modes: Modes, count: Index, distance: Index) -> Any:
    """`count` elements, `distance` apart, of the modes of a layout."""
    results: Any = ()
    left = count
    step = distance
    for size, apart in modes[:-1]:
        if left > 1:
            if (left - 1) * step < size:  # all of them lie in this mode
                results = (*results, (left, step * apart))
                left = 1
            elif step % size == 0:
                step = step // size
            else:
                text = (
                    f"composition: {count} elements, {distance} apart, do not fit a mode of {size} in front of others"
                )
                static_assert(size % step == 0 and left % (size // step) == 0, text)
                results = (*results, (size // step, step * apart))
                left = left // (size // step)
                step = 1
    return results if left == 1 else (*results, (left, step * modes[-1][1]))


def complement(layout: Layout, size: int) -> Layout:
    """The layout of what `layout` leaves free among `size` offsets.

    Its offsets are ascending. Every sum of an offset of `layout` and one of the result is another number, and from 0 on
    all numbers below `size` are among them; as many more as fill the last piece.

    Raises:
        EinkornError: EK0215, the offsets of `layout` do not lie so.
    """
    results: Any = ()
    at = 1
    for count, step in _by_stride(layout):
        if count > 1 and step != 0:
            static_assert(step > 0 and step % at == 0, f"complement: a stride of {step} is not a multiple of {at}")
            results = (*results, (step // at, at))
            at = count * step
    return coalesce(_of_modes((*results, ((size + at - 1) // at, at))))


def _by_stride(layout: Layout) -> Any:
    """The modes of a layout, those with the least stride first."""
    results: Any = ()
    for mode in _modes(layout):
        before = 0
        for other in results:
            if (other[1], other[0]) <= (mode[1], mode[0]):
                before = before + 1
        results = (*results[:before], mode, *results[before:])
    return results


def _as_layout(tiler: Layout | Tree) -> Layout:
    return tiler if isinstance(tiler, Layout) else Layout(tiler, 1)


def logical_divide(layout: Layout, tiler: Layout | Tree) -> Layout:
    """Divides a layout into tiles: mode 0 goes through a tile, mode 1 from tile to tile.

    `tiler` is a layout of the elements of a tile, a number of neighbours, or a tuple: one for each mode, each of which
    is divided by itself.

    Raises:
        EinkornError: EK0215, the layout cannot be divided so.
    """
    if isinstance(tiler, tuple):
        static_assert(len(tiler) <= layout.rank, "logical_divide: no more tilers than modes")
        modes = _by_modes(layout)
        done = tuple(logical_divide(mode, part) for mode, part in zip(modes, tiler, strict=False))
        return _joined((*done, *modes[len(tiler) :]))
    tile = _as_layout(tiler)
    divided: Layout = composition(layout, _joined((tile, complement(tile, layout.size))))
    return divided


def zipped_divide(layout: Layout, tiler: Layout | Tree) -> Layout:
    """As `logical_divide`, with all modes within a tile as mode 0, and all from tile to tile as mode 1."""
    divided = logical_divide(layout, tiler)
    if not isinstance(tiler, tuple):
        return divided
    modes = _by_modes(divided)
    inside = tuple(mode.mode(0) for mode in modes[: len(tiler)])
    among = tuple(mode.mode(1) for mode in modes[: len(tiler)])
    return _joined((_joined(inside), _joined((*among, *modes[len(tiler) :]))))


def tiled_divide(layout: Layout, tiler: Layout | Tree) -> Layout:
    """As `zipped_divide`, with the modes from tile to tile as modes 1, 2, …"""
    zipped = zipped_divide(layout, tiler)
    return _joined((zipped.mode(0), *_by_modes(zipped.mode(1))))


def logical_product(layout: Layout, tiler: Layout | Tree) -> Layout:
    """Repeats a layout as another one says: mode 0 goes through a copy, mode 1 from copy to copy.

    `tiler` is a layout, a number of copies, or a tuple: one for each mode.

    Raises:
        EinkornError: EK0215, copies cannot lie so.
    """
    if isinstance(tiler, tuple):
        static_assert(len(tiler) <= layout.rank, "logical_product: no more tilers than modes")
        modes = _by_modes(layout)
        done = tuple(logical_product(mode, part) for mode, part in zip(modes, tiler, strict=False))
        return _joined((*done, *modes[len(tiler) :]))
    copies = _as_layout(tiler)
    return _joined((layout, composition(complement(layout, layout.size * copies.cosize), copies)))


def _side_by_side(layout: Layout, tiler: Layout, tile_first: bool) -> Layout:
    """The product of two layouts with the modes of both side by side."""
    rank = max(layout.rank, tiler.rank)
    product = logical_product(_padded(layout, rank), _padded(tiler, rank))
    pairs = tuple(zip(_by_modes(product.mode(0)), _by_modes(product.mode(1)), strict=True))
    return _joined(tuple(_joined((a, b) if tile_first else (b, a)) for a, b in pairs))


def _padded(layout: Layout, rank: int) -> Layout:
    """A layout with as many modes, the new ones of one element."""
    return _joined((*_by_modes(layout), *((Layout(1, 0),) * (rank - layout.rank))))


def blocked_product(layout: Layout, tiler: Layout) -> Layout:
    """Repeats a layout along each axis: every copy is a block."""
    return _side_by_side(layout, tiler, True)


def raked_product(layout: Layout, tiler: Layout) -> Layout:
    """Repeats a layout along each axis: neighbours are of different copies, spread like the teeth of a rake."""
    return _side_by_side(layout, tiler, False)


def right_inverse(layout: Layout) -> Layout:
    """The longest layout r for which `layout(r(i)) == i`, for all i below its size."""
    modes = _modes(coalesce(layout))
    results: Any = ()
    at = 1
    for count, step in _by_stride(coalesce(layout)):
        if count > 1 and step == at:
            before = 1
            place = 0
            for size, apart in modes:
                if (size, apart) == (count, step):
                    place = before
                before = before * size
            results = (*results, (count, place))
            at = at * count
    return coalesce(_of_modes(results))


def left_inverse(layout: Layout) -> Layout:
    """A layout l for which `l(layout(i)) == i`, for all i below the layout's size.

    Raises:
        EinkornError: EK0215, there is none: offsets occur twice, or do not lie so.
    """
    for size, step in _modes(layout):
        static_assert(size == 1 or step != 0, "left_inverse: a stride of 0 yields an offset twice")
    return right_inverse(_joined((layout, complement(layout, layout.cosize))))
