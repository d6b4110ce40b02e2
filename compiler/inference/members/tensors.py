"""Answers members and subscripts of tensors: `x.shape`, `x.dim(k)`, `x[i, j]`, `x[i, :]`, `x[i] = v`.

A subscript of anything else that has elements is here too: tuples, vectors, `SIMD[T, 8]`, `stack[T]`.

Registers tensor members in the table of members.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....dsl.diagnostics.errors import plural
from ....dsl.diagnostics.places import Label, Place
from ....dsl.frontend import syntax as s
from ....dsl.signature.schema import Role
from ....dsl.types.dtype import INT, DType, SIMDType
from ...ir.builder import Builder
from ...ir.distances import distance
from ...ir.program import PointerType, Value
from ..advice import index_of_rank, index_of_tuple, unindexable, width_by_name
from ..calls.struct_methods import method_of, special
from ..conversion import coerce, widened_or_rounded
from ..evaluator import Evaluator, Point
from ..exact_terms import wide_dtype
from ..ownership import report_access
from ..runtime_checks import guard_index, guard_number, guard_part, guard_start
from ..spelling import source_of, spelled_of
from ..target_refusals import refuse_host
from ..tiles.swizzles import is_shared
from ..values.compile_time import Marker, StorageType, StructValue, is_comptime_number
from ..values.describe import describe
from ..values.flow import Absent
from ..values.index import BodyIndex
from ..values.tensors import Epilogue, KernelTensor, View
from ..widening import reason_for_cast, widen
from .pointers import read_element
from .scalars import check_width
from .slices import slice_of
from .spans import lane_at
from .table import MEMBERS, member, method
from .vectors import read_lane


@member(KernelTensor, "dtype")
def tensor_dtype(here: Point, owner: KernelTensor) -> DType:
    return owner.dtype


@member(KernelTensor, "rank")
def tensor_rank(here: Point, owner: KernelTensor) -> int:
    return owner.rank


@member(KernelTensor, "shape")
def tensor_shape(here: Point, owner: KernelTensor) -> Any:
    return tuple(size(owner, axis) for axis in range(owner.rank))


@member(KernelTensor, "strides")
def tensor_strides(here: Point, owner: KernelTensor) -> tuple[Value, ...]:
    return owner.strides(here.builder)


@method(KernelTensor, "is_known")
def tensor_is_known(call: Point, owner: KernelTensor, axis: object) -> bool:
    """Whether a size is known now, and not at run time only."""
    return owner.dims[_known_axis(call, owner, axis, "is_known")].const is not None


@method(KernelTensor, "is_one")
def tensor_is_one(call: Point, owner: KernelTensor, axis: object) -> bool:
    """Whether a size is known to be 1 now; False for a size known at run time only."""
    return bool(owner.dims[_known_axis(call, owner, axis, "is_one")].const == 1)


def _known_axis(call: Point, owner: KernelTensor, axis: object, member: str) -> int:
    """The axis that a member of this name takes: a number known at compile time, of an axis of the tensor."""
    if type(axis) is not int:
        text = f"{member}() takes an axis known at compile time, not {describe(axis)}"
        raise call.error("EK0208", text, "axis")
    if not -owner.rank <= axis < owner.rank:
        text = f"'{owner.name}' has {plural(owner.rank, 'axis')}, there is no axis {axis}"
        raise call.error("EK0218", text, "axis", notes=owner.declaration())
    return axis


@member(KernelTensor, "size")
def tensor_size(here: Point, owner: KernelTensor) -> Value:
    return here.builder.product(owner.dims)


@method(KernelTensor, "dim")
def tensor_dim(call: Point, owner: KernelTensor, axis: object) -> Any:
    return size(owner, _known_axis(call, owner, axis, "dim") % owner.rank)


def size(tensor: KernelTensor, axis: int) -> Value | int:
    """A size: the number itself where the signature states it, an Int otherwise."""
    fixed = tensor.fixed[axis]
    return tensor.dims[axis] if fixed is None else fixed


@method(KernelTensor, "position")
def tensor_position(call: Point, owner: KernelTensor, *index: object) -> Value:
    """The row-major position of an index, which may lie anywhere, so that its arithmetic wraps."""
    builder, at = call.builder, to_index(call, owner, flat(call, index))
    if not at.unchecked:
        return at.position(builder)
    position = builder.int_(0)
    for part, dim in zip(at.components(builder), owner.dims, strict=True):
        whole = position if position.const == 0 else builder.row("mul", [position, dim])
        position = part if whole.const == 0 else builder.row("add", [whole, part])
    return position


@method(KernelTensor, "at")
def tensor_at(call: Point, owner: KernelTensor, position: Any, width: Any = 1) -> Value:
    """The element at a row-major position, or `width` elements from there on."""
    check_width(call, width, "width")
    number = coerce(call.argument("position"), position, INT, "a position is an Int")
    index = BodyIndex(owner.dims, linear=number, divisible=True, unchecked=True)
    guard_index(call, owner, index, width)
    refuse_unreadable(call, owner)
    report_access(call, owner, index, "read", width)
    return owner.load(call.builder, index, width)


def refuse_unreadable(call: Point, tensor: KernelTensor) -> None:
    """Refuses to read an output whose elements go on to the next kernel as they are stored."""
    if isinstance(tensor, Epilogue):
        raise call.error(
            "EK0455",
            f"'{tensor.name}' is read, and the kernel promises to store each of its elements once and to read none",
            hint="register the kernel without writes_once=True, or keep the element in a variable",
        )


def flat(call: Point, index: tuple[object, ...]) -> Any:
    """An index that is given as one value, or part by part."""
    return index[0] if len(index) == 1 and isinstance(index[0], BodyIndex | tuple) else tuple(index)


def to_index(call: Point, tensor: KernelTensor, index: object) -> BodyIndex:
    """Any form of index as a `BodyIndex` of the tensor's rank."""
    evaluator = call.evaluator
    if isinstance(index, BodyIndex) and len(index.dims) == tensor.rank:
        return index
    parts = index.components(evaluator.builder) if isinstance(index, BodyIndex) else index
    parts = tuple(_spliced(evaluator, parts))
    if len(parts) != tensor.rank:
        raise wrong_rank(call, tensor, len(parts))
    components = []
    for axis, part in enumerate(parts):
        node = call.index_part(axis, len(parts))
        if type(part) is int and part < 0:
            raise call.on(node).error(
                "EK0218",
                f"negative index {part} on axis {axis} of '{tensor.name}'",
                hint=f"count from the end with {tensor.name}.dim({axis}) - {-part}",
            )
        if isinstance(part, Value) and part.type != INT and part.dtype.is_integral():
            part = widen(call.on(node), part, INT.dtype)
        components.append(coerce(call.on(node), part, INT, f"an index on axis {axis} is an Int"))
    return BodyIndex(tensor.dims, components=tuple(components), unchecked=True)


def _spliced(evaluator: Evaluator, index: object) -> Iterator[Any]:
    """The parts of an index: `x[row, k]` takes the items of `row` when that is a tuple."""
    if isinstance(index, BodyIndex):
        index = index.components(evaluator.builder)
    if not isinstance(index, tuple):
        yield index
        return
    for part in index:
        yield from _spliced(evaluator, part)


def wrong_rank(call: Point, tensor: KernelTensor, got: int) -> Exception:
    """`'x' has 2 axes, the index has 1`."""
    return call.error(
        "EK0218",
        f"'{tensor.name}' has {plural(tensor.rank, 'axis')}, the index has {got}",
        "index",
        labels=(),
        notes=tensor.declaration(),
        expected=tensor.rank,
        got=got,
        hint=width_by_name(call.node, tensor.rank, got, call.frame) or index_of_rank(tensor, got),
    )


def store_into(call: Point, tensor: KernelTensor, index: BodyIndex, value: object) -> None:
    """`tensor[index] = value`, with its checks."""
    tensor.store(call.builder, index, to_store(call, tensor, index, value))


def to_store(call: Point, tensor: KernelTensor, index: BodyIndex, value: object) -> Value:
    """`value` as what `tensor` takes at `index`, with the checks of a store."""
    stored = storable(call, tensor, value)
    assert isinstance(stored.type, SIMDType)
    guard_index(call, tensor, index, stored.type.width)
    _guard_numbers(call, tensor, index, stored)
    report_access(call, tensor, index, "write", stored.type.width, stored)
    return stored


def _guard_numbers(call: Point, tensor: KernelTensor, index: BodyIndex, stored: Value) -> None:
    """Under `+nan` or `+inf`: each lane that is stored is a number; a report names its element."""
    builder = call.builder
    assert isinstance(stored.type, SIMDType)
    if stored.type.is_scalar or not call.evaluator.checks.finds:
        guard_number(call, tensor, index, stored)
        return
    loop = builder.for_loop(builder.int_(0), builder.int_(stored.type.width))
    with builder.inside(loop):
        count = loop.args[0]
        guard_number(call, tensor, index.ahead(builder, count), lane_at(builder, stored, count))
        builder.end()


def storable(call: Point, tensor: KernelTensor, value: object) -> Value:
    """`value` as what `tensor` takes."""
    refuse_input(call, tensor)
    refuse_host(call, tensor)
    if not (isinstance(value, Value | Absent) or is_comptime_number(value)):
        hint = "store one of its elements" if isinstance(value, KernelTensor) else None
        raise call.error("EK0202", f"cannot store {describe(value)} into '{tensor.name}'", "value", hint=hint)
    value = widened_or_rounded(call, value, tensor.dtype)
    if isinstance(value, Value) and isinstance(value.type, SIMDType) and value.weak is None:
        if value.dtype is not tensor.dtype:
            raise wrong_store(call, tensor, value)
        return value
    return coerce(call.argument("value"), value, SIMDType(tensor.dtype))


def wrong_store(call: Point, tensor: KernelTensor, value: Value) -> Exception:
    """`cannot store Float32 into a BFloat16 tensor`, as the language reference shows it."""
    assert isinstance(value.type, SIMDType)
    node = call.nodes.get("value", call.node)
    target = call.nodes.get("target")
    labels = [Label(call.frame.place(target), primary=False)] if target is not None else []
    notes: list[str | tuple[str, Place]] = [*tensor.declaration()]
    wide = wide_dtype(value.sums) if value.sums is not None and tensor.dtype.is_integral() else None
    if value.sums is not None and wide is not None and wide_dtype(tensor.dtype) in (wide, value.dtype):
        low, high = tensor.dtype.range
        why = "as in NumPy" if wide is value.dtype else "where something is subtracted"
        text = f"sums of {SIMDType(value.sums)} are {SIMDType(value.dtype)}, {why}: the cast keeps the low "
        text += f"{tensor.dtype.bits} bits, and clamp(..., {low}, {high}) before it the nearest number"
        notes.append(text)
    elif (reason := reason_for_cast(value.dtype, tensor.dtype)) is not None:
        notes.append(reason)
    text = source_of(node, call.frame)
    if not text.replace("_", "").isalnum():
        text = f"({text})"
    hint = f"write {text}.cast({spelled_of(tensor, target, call.frame)})"
    if value.dtype.is_complex() and not tensor.dtype.is_complex():
        cast = "" if value.dtype.part is tensor.dtype else f".cast({spelled_of(tensor, target, call.frame)})"
        hint = f"write {text}.real{cast}, {text}.imag{cast} or abs({text}){cast}"
    article = "an" if str(SIMDType(tensor.dtype))[0] in "IUO" else "a"
    return call.on(node).error(
        "EK0213",
        f"cannot store {value.type} into {article} {SIMDType(tensor.dtype)} tensor",
        label=f"{value.type}{_origin(call, node, value)}",
        labels=labels,
        notes=notes,
        argument=tensor.name,
        expected=str(tensor.dtype),
        got=str(value.dtype),
        hint=hint,
    )


def _origin(call: Point, node: s.SyntaxNode, value: Value) -> str:
    """` (from 'acc', norm.py:27:9)`: the variable that brought its type into an expression."""
    env, origins = call.frame.env, call.frame.origins
    for name in (n.id for n in s.walk(node) if isinstance(n, s.Name)):
        known = env.get(name)
        if name in origins and isinstance(known, Value) and known.type == value.type:
            return f" (from '{name}', {origins[name]})"
    return ""


def refuse_input(call: Point, tensor: KernelTensor) -> None:
    """Refuses to store into an input."""
    if tensor.role is Role.INPUT:
        raise call.error(
            "EK0211",
            f"'{tensor.name}' is an input and cannot be stored to",
            "target",
            notes=tensor.declaration(),
            hint="declare it as OutputTensor, or as MutableInputTensor to change it in place",
        )


# *** subscripts ***


def subscript(here: Point, owner: object, index: object, node: s.Subscript) -> Any:
    """`owner[index]`."""
    call = here.on(node)
    call.nodes = {**call.nodes, "index": node.index}
    match owner:
        case KernelTensor():
            return load_element(call, owner, index)
        case tuple() | BodyIndex() | str():
            return tuple_item(call, owner, index)
        case StructValue() if method_of(owner.type, "__getitem__") is not None:
            return special(here, owner, "__getitem__", [index])
        case Marker(name="SIMD"):
            if not (isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], DType)):
                raise call.error("EK0208", "SIMD takes a dtype and a width: SIMD[float32, 8]")
            check_width(call, index[1], "index")
            return SIMDType(index[0], index[1])
        case Marker(name="Pointer"):
            dtype = index.dtype if isinstance(index, SIMDType) and index.is_scalar else index
            if not isinstance(dtype, DType):
                raise call.error("EK0208", f"Pointer takes a dtype, not {describe(index)}")
            return PointerType(dtype, access="read-write")
        case Value(type=PointerType()):
            return read_element(call, owner, index)
        case Marker(name=name):
            dtype = index.dtype if isinstance(index, SIMDType) and index.is_scalar else index
            if not isinstance(dtype, DType):
                raise call.error("EK0208", f"{name} takes a dtype, not {describe(index)}")
            return StorageType(name, dtype)
        case Value(type=SIMDType(width=width)) if width > 1:
            return read_lane(call, owner, index)
    item = MEMBERS.get((type(owner), "__getitem__"))
    if item is not None:
        return item(call, owner)(index)
    hint = unindexable(node, here.frame)
    raise call.error("EK0207", f"{describe(owner)} has no elements", hint=hint)


def tuple_item(call: Point, owner: Any, index: Any) -> Any:
    """An item or a slice of a tuple, by compile-time numbers."""
    values = owner.components(call.builder) if isinstance(owner, BodyIndex) else owner
    if not isinstance(index, int | slice) or isinstance(index, bool):
        text = f"{describe(owner)} is indexed by compile-time numbers, not by {describe(index)}"
        raise call.error("EK0218", text, "index", hint=index_of_tuple(call.node, owner, call.frame))
    try:
        return values[index]
    except (IndexError, TypeError, ValueError):
        text = f"a string of {len(values)}" if isinstance(values, str) else describe(owner)
        where = f"item {index}" if isinstance(index, int) else "such slice"
        raise call.error("EK0218", f"{text} has no {where}", "index") from None


def load_element(call: Point, tensor: KernelTensor, index: object) -> KernelTensor | Value:
    """`x[i, j]`, or a view when slices are among the indices."""
    parts = tuple(_spliced(call.evaluator, index)) if isinstance(index, tuple) else (index,)
    if any(isinstance(p, slice) for p in parts) or (len(parts) < tensor.rank and is_shared(tensor)):
        return make_view(call, tensor, parts)
    refuse_host(call, tensor)
    refuse_unreadable(call, tensor)
    at = to_index(call, tensor, index)
    guard_index(call, tensor, at)
    report_access(call, tensor, at, "read")
    return tensor.load(call.builder, at)


def _at_least(call: Point, bound: Value | None, least: int) -> Value | None:
    """The end of a slice, which says no more for being far below the tensor: so its extent does not wrap."""
    if bound is None or call.evaluator.ranges.is_at_least(bound, least):
        return bound
    return call.builder.one("max", [bound, call.builder.int_(least)], INT)


def make_view(call: Point, tensor: KernelTensor, parts: tuple[Any, ...]) -> KernelTensor:
    """`x[i, :]`, `x[:, a:b]`, `x[::2]`: a tensor over some of the elements, nothing is copied."""
    builder = call.builder
    if len(parts) > tensor.rank:
        raise wrong_rank(call, tensor, len(parts))
    given = len(parts)
    parts = (*parts, *(slice(None),) * (tensor.rank - given))
    dims: list[Value] = []
    steps: list[tuple[int, Value]] = []
    plan: list[tuple[Value, Value] | Value] = []  # (start, step) of a sliced axis, or the index of a fixed one
    requested: int | None = None  # by the last slice

    def whole(part: object, node: s.SyntaxNode | None) -> Value | None:
        at = node or call.node
        return None if part is None else coerce(call.on(at), part, INT, "a bound is an Int")

    for axis, part in enumerate(parts):
        if not isinstance(part, slice):
            node = call.index_part(axis, given)
            plan.append(coerce(call.on(node), part, INT, "an index is an Int"))
            continue
        if type(part.step) not in (int, type(None)) or part.step == 0:
            raise call.error("EK0218", "the step of a slice is a whole number, not 0, known at compile time", "index")
        for bound in (part.start, part.stop):
            if type(bound) is int and bound < 0:
                raise call.error("EK0218", f"negative bound {bound} in a slice", "index")
        at = call.index_part(axis, given)
        lower, upper = (at.lower, at.upper) if isinstance(at, s.Slice) else (None, None)
        first, stop, step_by = whole(part.start, lower), whole(part.stop, upper), part.step or 1
        requested = distance(first, tensor.dims[axis] if stop is None else stop)
        first, stop = (first, _at_least(call, stop, 0)) if step_by > 0 else (_at_least(call, first, -1), stop)
        start, step, extent = slice_of(builder, tensor.dims[axis], first, stop, step_by)
        dims.append(extent)
        plan.append((start, step))
        steps.append((axis, step))

    def mapping(builder: Builder, components: tuple[Value, ...]) -> tuple[Value, ...]:
        left = iter(components)
        out = []
        for item in plan:
            if isinstance(item, tuple):
                out.append(builder.iadd(item[0], builder.imul(next(left), item[1])))
            else:
                out.append(item)
        return tuple(out)

    def guard(call: Point) -> None:
        if isinstance(tensor, View):
            tensor.guard(call)
        for axis, item in enumerate(plan):
            if isinstance(item, Value):
                guard_part(call, tensor.dims[axis], item, tensor, axis)
            elif (item[1].const or 0) > 0:  # backwards, a slice is cut to the axis at both ends
                guard_start(call, item[0], tensor, axis)

    guard(call)
    last = plan[-1] if plan else None
    return View(
        tensor, tuple(dims), mapping, isinstance(last, tuple) and last[1].const == 1, guard, tuple(steps), requested
    )
