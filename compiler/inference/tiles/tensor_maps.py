"""Copies tiles by tensor maps, where a target has them: one thread begins a copy, and hardware does all of it.

A map describes a tensor: where it lies, its sizes and strides, and the box of it that one copy takes. The host writes
it before the launch, as sizes and addresses are known there, and the kernel gets it as an argument. Hardware finds the
place of each row, stores zeros beyond the end of the tensor, and exchanges pieces as layouts for products do.

A tensor that has no map (its address, a stride or a size is not as hardware wants it) is copied by elements: the host
says so by a number next to the map.

Source: NVIDIA's PTX ISA manual, "Tensors", and the CUDA driver API, `cuTensorMapEncodeTiled`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dsl.contract.abi import TENSOR_MAP_RANK
from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import BOOL, INT
from ...ir.builder import Builder
from ...ir.copy_opcodes import FETCH_MAP
from ...ir.opcodes import ALLOCA
from ...ir.program import Op, PointerType, Region, Value
from ..evaluator import Point
from ..language import mbarriers
from ..language.grids import kernel_of
from ..members.spans import when
from ..members.table import method
from ..values.index import BodyIndex, same_dims
from ..values.launched import Launched
from ..values.mbarriers import MBarriers
from ..values.tensors import KernelTensor, Stored, Strided, View
from ..values.tiles import TileView
from . import access, layouts
from .operands import in_rows
from .swizzles import BANKS, PIECE, LaidOut, place_of, root_of

MOST_ALONG = 256  # elements of a box along an axis
MOST_SIZE = (1 << 31) - (1 << 20)  # of a tensor along an axis, so that coordinates beyond its end have 32 bits
STRIDE_BITS = 40  # of a stride in bytes
_SHIFTS = {32: 2, 64: 1, 128: 0}  # of the rows that a swizzle of so many bytes exchanges pieces by


@dataclass(frozen=True)
class Box:
    """The part of a tile that one copy takes: rows, columns, the bytes of its swizzle, the alignment that it needs."""

    rows: int
    columns: int
    swizzle: int
    align: int


@dataclass(frozen=True, eq=False)
class MapPlan:
    """How a tile is copied by a map.

    Attributes:
        root: the tensor that the map describes.
        axes: its axes, the innermost first: that of the tile's columns, that of its rows, and the others.
        box: the part that one copy takes.
    """

    root: Stored
    axes: tuple[int, ...]
    box: Box

    @property
    def attrs(self) -> dict[str, object]:
        """What operations say of the map."""
        box = self.box
        return {"box": (box.rows, box.columns), "rank": len(self.axes), "swizzle": box.swizzle}

    @property
    def words(self) -> str:
        """How it is copied, for people."""
        swizzle = f", pieces exchanged within {self.box.swizzle} bytes" if self.box.swizzle else ""
        return f"by a tensor map: boxes of {self.box.rows} x {self.box.columns}{swizzle}"


def plan(call: Point, to: KernelTensor, view: TileView, reach: access.Reach, share: int = 1) -> MapPlan | str:
    """How a tile is copied by a tensor map, in so many equal parts of its rows at least, or why it is not."""
    if not _has_elements(view.tensor):
        return f"elements have {view.tensor.dtype.bits} bits"
    box = _box_of(to, view, view.shape[0] // share)
    if isinstance(box, str):
        return box
    found = _root_of(view.tensor, whole=reach.whole is True)
    if isinstance(found, str):
        return found
    root, axes = found
    builder, launched = call.builder, kernel_of(call, "copy_async()")
    if not _is_of_host(launched, root.pointer):
        return "the tensor's address is not known before the launch"
    with builder.apart(Region()):
        strides = root.strides(builder)
        if strides[axes[0]].const != 1:
            return "neighbours of a row are not neighbours in memory"
        numbers = _numbers(root, axes, strides)
        if any(_hoisted(builder, launched, number) is None for number in numbers):
            return "the tensor's sizes are not known before the launch"
        if _fits(builder, root, axes, numbers) is False:
            return "a size or a stride of the tensor does not fit: strides are multiples of 16 bytes"
    return MapPlan(root, axes, box)


def _has_elements(tensor: KernelTensor) -> bool:
    """Whether a map describes the elements of a tensor."""
    return not tensor.dtype.is_packed() and tensor.dtype.bits in (8, 16, 32, 64)


@method(KernelTensor, "fits_tensor_map")
def fits_tensor_map(call: Point, owner: KernelTensor) -> Value | bool | None:
    """Whether a tensor map describes a matrix: its address, sizes and strides; None where none ever does.

    Raises:
        CompileError: EK0653, the tensor has not two axes.
    """
    if owner.rank != 2:
        raise call.error("EK0653", f"a tensor map is of a matrix; '{owner.name}' has {owner.rank} axes")
    if not call.evaluator.target.supports("bulk_copy") or not _has_elements(owner):
        return None
    found = _root_of(owner, whole=False)
    if isinstance(found, str):
        return None
    (root, axes), builder = found, call.builder
    strides = root.strides(builder)
    if strides[axes[0]].const != 1:
        return None
    fits = _fits(builder, root, axes, _numbers(root, axes, strides))
    if fits is False:
        return None
    return access.both(builder, fits, builder.one("aligned", [root.pointer], BOOL, align=PIECE))


# *** shared memory ***


def _box_of(to: KernelTensor, view: TileView, part: int) -> Box | str:
    """The box of a tile, of which a copy takes at most so many rows; or why the matrix in shared memory takes none."""
    (rows, columns), size, root = view.shape, view.tensor.dtype.bits // 8, root_of(to)
    if not _has_whole_rows(to, view.shape):
        return "the view of shared memory has not its whole rows"
    if isinstance(root, LaidOut):
        if root.swizzle is None:
            return "shared memory has a layout of the author's"
        width = root.swizzle.piece * (root.swizzle.mask + 1)
        if (root.panel or columns) != width or _SHIFTS.get(width * size) != root.swizzle.shift:
            return "rows in shared memory are longer than what hardware exchanges pieces within"
        if part % 8:
            return "a copy has not a multiple of eight rows"
        box = Box(_most_rows(part, 8), width, width * size, 8 * width * size)
    elif not in_rows(to) or columns > MOST_ALONG or columns * size % PIECE:
        return f"rows have more than {MOST_ALONG} elements, or are not multiples of {PIECE} bytes"
    else:
        box = Box(_most_rows(part, 1), columns, 0, BANKS)
    apart = [box.rows * box.columns * size] if box.rows < rows or box.columns < columns else []
    if len(root.dims) > 2:
        apart.append(rows * columns * size)
    if any(distance % box.align for distance in apart):
        return f"matrices in shared memory do not begin at multiples of {box.align} bytes"
    if not isinstance(root, Stored) or root.pointer.maker is None or root.pointer.maker.opcode is not ALLOCA:
        return "it is not known how shared memory is aligned"
    return box


def _has_whole_rows(to: KernelTensor, shape: tuple[int, int]) -> bool:
    """Whether a matrix is one of those that a tensor of shared memory consists of."""
    tensor = to
    while isinstance(tensor, View):
        last = [(axis, step.const) for axis, step in tensor.steps[-2:]]
        if last != [(tensor.base.rank - 2, 1), (tensor.base.rank - 1, 1)]:
            return False
        tensor = tensor.base
    return tensor.rank >= 2 and tuple(dim.const for dim in tensor.dims[-2:]) == shape


def _most_rows(rows: int, multiple: int) -> int:
    """How many rows a box has: the most that divide those of the tile."""
    return max(k for k in range(multiple, min(rows, MOST_ALONG) + 1, multiple) if rows % k == 0)


def _align(tensor: KernelTensor, bytes: int) -> None:
    """Has shared memory begin at a multiple of so many bytes."""
    root = root_of(tensor)
    assert isinstance(root, Stored) and root.pointer.maker is not None
    attrs = root.pointer.maker.attrs
    attrs["align"] = max(attrs.get("align", 1), bytes)


# *** the tensor ***


def _root_of(matrix: KernelTensor, *, whole: bool) -> tuple[Stored, tuple[int, ...]] | str:
    """The tensor that a matrix is part of, and its axes in the order of a map; or why it has no map.

    Beyond the end of that tensor hardware stores zeros: a slice has to end there, too, unless tiles are `whole`.
    """
    tensor, kept = matrix, [0, 1]
    while isinstance(tensor, View):
        if len(tensor.steps) != tensor.rank or any(tensor.steps[axis][1].const != 1 for axis in kept):
            return "the tensor is a slice with steps"
        axes = [tensor.steps[axis][0] for axis in kept]
        sizes = [(tensor.dims[k], tensor.base.dims[axis]) for k, axis in zip(kept, axes, strict=True)]
        if not whole and not all(same_dims((a,), (b,)) for a, b in sizes):
            return "the tensor is a slice that may end before the memory that it lies in"
        tensor, kept = tensor.base, axes
    if type(tensor) not in (Stored, Strided):
        return "the tensor has no addresses of its own"
    assert isinstance(tensor, Stored)
    if tensor.rank > TENSOR_MAP_RANK:
        return f"the tensor has {tensor.rank} axes, and a map at most {TENSOR_MAP_RANK}"
    others = [axis for axis in reversed(range(tensor.rank)) if axis not in kept]
    return tensor, (kept[1], kept[0], *others)


def _is_of_host(launched: Launched, value: Value) -> bool:
    """Whether a value was there before the kernel began."""
    return launched.before is not None and value.serial < launched.begins


def _hoisted(builder: Builder, launched: Launched, value: Value) -> Value | None:
    """A number before the launch; None where it is one of the kernel's own."""
    if value.const is not None:
        return builder.int_(int(value.const))
    if _is_of_host(launched, value):
        return value
    maker = value.maker
    if maker is None or maker.opcode.row is None or not maker.opcode.is_safe:
        return None
    operands = [_hoisted(builder, launched, operand) for operand in maker.operands]
    if any(operand is None for operand in operands):
        return None
    return builder.one(maker.opcode.name, [each for each in operands if each is not None], value.type, **maker.attrs)


def _numbers(root: Stored, axes: Sequence[int], strides: Sequence[Value]) -> list[Value]:
    """The sizes of a tensor along the axes of a map, and the distances along all but the first one."""
    return [*(root.dims[axis] for axis in axes), *(strides[axis] for axis in axes[1:])]


def _fits(builder: Builder, root: Stored, axes: Sequence[int], numbers: Sequence[Value]) -> Value | bool:
    """Whether hardware takes the sizes and strides of a tensor, which `numbers` are."""
    size = root.dtype.bits // 8
    pieces, most = max(PIECE // size, 1), (1 << STRIDE_BITS) // size - 1
    tests = [_within(builder, dim, MOST_SIZE) for dim in numbers[: len(axes)]]
    for stride in numbers[len(axes) :]:
        rest = builder.irem(stride, builder.int_(pieces))
        whole = rest.const == 0 if rest.const is not None else builder.compare("eq", rest, builder.int_(0))
        tests += [whole, _within(builder, stride, most)]
    holds: Value | bool = True
    for test in tests:
        holds = access.both(builder, holds, test)
    return holds


def _within(builder: Builder, number: Value, most: int) -> Value | bool:
    """Whether a number is at least 1 and at most so much."""
    if number.const is not None:
        return bool(1 <= number.const <= most)
    tests = (builder.compare("ge", number, builder.int_(1)), builder.compare("le", number, builder.int_(most)))
    return access.both(builder, *tests)


def make(call: Point, plan: MapPlan, view: TileView) -> tuple[Value, Value | bool]:
    """The map, which the host writes before the launch, and whether there is one."""
    launched, builder = kernel_of(call, "copy_async()"), call.builder
    before = launched.before
    assert before is not None
    sizes = tuple(dim.serial for dim in plan.root.dims)
    key = (plan.root.pointer.serial, sizes, plan.axes, plan.box, view.align, view.tensor is plan.root)
    made = launched.maps.get(key)
    if made is None:
        with builder.apart(Region() if call.evaluator.trial else before):
            made = _written(builder, launched, plan, view)
        if call.evaluator.trial:
            return made
        launched.maps[key] = made
        assert launched.region is not None
        attrs = layouts.warp_of(call)
        launched.region.ops.insert(0, Op(FETCH_MAP, [made[0]], [], builder.location, attrs, []))
    return made


def _written(builder: Builder, launched: Launched, plan: MapPlan, view: TileView) -> tuple[Value, Value | bool]:
    root, axes = plan.root, plan.axes
    strides = root.strides(builder)
    given = _numbers(root, axes, strides)
    numbers = [_hoisted(builder, launched, number) for number in given]
    known = [number for number in numbers if number is not None]
    fits = _fits(builder, root, axes, known)
    if view.align < PIECE or view.tensor is not root:
        fits = access.both(builder, fits, builder.one("aligned", [root.pointer], BOOL, align=PIECE))
    there = builder.const(True, BOOL) if fits is True else fits
    assert isinstance(there, Value)
    type = PointerType(root.dtype, "map")
    return builder.one("tensor_map", [root.pointer, there, *known], type, **plan.attrs), fits


# *** the copy ***


def copy(call: Point, plan: MapPlan, map: Value, to: KernelTensor, view: TileView, arrive: MBarriers | None) -> Value:
    """Begins the copy; gives a token of it. One that arrives at a barrier does so by the thread that begins it."""
    builder, zero = call.builder, call.builder.int_(0)
    _align(to, plan.box.align)
    operands = [*place_of(to, builder, (zero, zero)), map, *_coordinates(builder, plan, view)]
    attrs: dict[str, object] = {"tile": view.shape, **plan.attrs}
    if arrive is None:
        ring = layouts.ring_of_copies(call)
        return builder.one("copy_box", [*operands, ring], INT, **attrs, **layouts.warp_of(call))
    barrier = mbarriers.place_of(call, arrive, "arrive")[:2]
    rows, columns = view.shape

    def begin() -> None:
        mbarriers.arrive(call, arrive, builder.int_(rows * columns * to.dtype.bits // 8))
        builder.add("copy_box_arriving", [*operands, *barrier], (), (), **attrs)

    when(builder, builder.compare("eq", layouts.thread_number(call), zero), begin)
    return zero


def copy_to_cluster(
    call: Point,
    plan: MapPlan,
    map: Value,
    to: KernelTensor,
    part: TileView,
    first: Value,
    barrier: MBarriers,
    blocks: int,
) -> Value:
    """Begins the copy of a part of a tile, from its row `first` on, to all blocks; gives how many bytes each gets."""
    builder, zero = call.builder, call.builder.int_(0)
    _align(to, plan.box.align)
    rows, columns = part.shape
    place = place_of(to, builder, (first, zero))
    operands = [*place, map, *_coordinates(builder, plan, part), *mbarriers.place_of(call, barrier, "arrive")[:2]]
    attrs: dict[str, object] = {"tile": (rows * blocks, columns), "share": blocks, **plan.attrs}
    one = builder.compare("eq", layouts.thread_number(call), zero)
    when(builder, one, lambda: builder.add("copy_box_arriving", operands, (), (), **attrs))
    return builder.int_(rows * columns * to.dtype.bits // 8)


def _coordinates(builder: Builder, plan: MapPlan, view: TileView) -> list[Value]:
    """Where the tile begins, along the axes of the map, in numbers that 32 bits hold."""
    index = BodyIndex(view.tensor.dims, components=(view.row, view.column))
    tensor = view.tensor
    while isinstance(tensor, View):
        index, tensor = tensor.mapped(builder, index), tensor.base
    components, most = index.components(builder), builder.int_((1 << 31) - 1)
    found = [components[axis] for axis in plan.axes]
    found = [each if each.const is not None else builder.row("min", [each, most]) for each in found]
    return [*found, *[builder.int_(0)] * (TENSOR_MAP_RANK - len(found))]
