"""Attributes, methods and subscripts of the values that a kernel meets.

`x.shape`, `x.dim(k)`, `v.cast(T)`, `T.is_float()`, `x[i, j]`, `SIMD[T, 8]`, `stack[T](4)`: one small function each,
found by the owner's class and the name.
"""

from __future__ import annotations

import builtins
import inspect
import math
from collections.abc import Callable
from typing import Any

from ..dsl import syntax as s
from ..dsl.errors import TargetError, did_you_mean
from ..dsl.schema import Role
from ..dsl.source import Label
from ..dsl.types import INT, DType, SIMDType
from .coerce import bind_signature, coerce, misfit
from .infer import CALLABLES, Call, Inferer
from .program import Builder, PointerType, Value
from .tensors import Stored, Tensor, View
from .values import (
    Bound,
    ContextValue,
    Frame,
    Index,
    Marker,
    StackType,
    TargetValue,
    describe,
    is_comptime_number,
    plural,
)

MAX_STACK_BYTES = 1 << 20  # threads have stacks of some megabytes
MAX_LANES = 1024

Member = Callable[[Inferer, Any, s.Attribute, Frame], Any]
MEMBERS: dict[tuple[type, str], Member] = {}


def member(owner: type, name: str) -> Callable[[Member], Member]:
    """Registers an attribute of a class of values."""

    def add(function: Member) -> Member:
        MEMBERS[owner, name] = function
        return function

    return add


def method(owner: type, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a method of a class of values: `f(call, owner, *args, **keywords)`."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        whole = inspect.signature(function)
        signature = whole.replace(parameters=list(whole.parameters.values())[2:])

        def bind(inferer: Inferer, value: Any, node: s.Attribute, frame: Frame) -> Bound:
            def invoke(call: Call, *args: Any, **keywords: Any) -> Any:
                bind_signature(call, name, signature, list(args), keywords)
                return function(call, value, *args, **keywords)

            return Bound(value, name, invoke)

        MEMBERS[owner, name] = bind
        return function

    return add


def attribute(inferer: Inferer, owner: Any, node: s.Attribute, frame: Frame) -> Any:
    """`owner.name`."""
    for cls in type(owner).__mro__:
        found = MEMBERS.get((cls, node.name))
        if found is not None:
            inferer.locate(node, frame)
            return found(inferer, owner, node, frame)
    known = sorted({name for cls, name in MEMBERS if isinstance(owner, cls)})
    hint = did_you_mean(node.name, known) or (f"it has {', '.join(known)}" if known else None)
    if is_comptime_number(owner) and (Value, node.name) in MEMBERS:
        hint = "a compile-time number takes the type of its partner; Float32(...) makes a run-time value of it"
    elif isinstance(owner, Tensor) and (Value, node.name) in MEMBERS and (Tensor, node.name) not in MEMBERS:
        hint = f"work on elements: x[i].{node.name} in the body of a foreach"
    raise inferer.error("EK0113", f"{describe(owner)} has no attribute '{node.name}'", node, frame, hint=hint)


# *** run-time values ***


@member(Value, "dtype")
def value_dtype(inferer: Inferer, owner: Value, node: s.Attribute, frame: Frame) -> Any:
    return owner.dtype


@member(Value, "width")
def value_width(inferer: Inferer, owner: Value, node: s.Attribute, frame: Frame) -> Any:
    return owner.type.width if isinstance(owner.type, SIMDType) else 1


@method(Value, "cast")
def value_cast(call: Call, owner: Value, dtype: Any) -> Value:
    return cast(call, owner, dtype)


def cast(call: Call, value: Any, to: Any) -> Value:
    """A numeric conversion: rounds to nearest, truncates to integers, saturates, NaN becomes 0."""
    assert isinstance(value, Value) and isinstance(value.type, SIMDType)
    if isinstance(to, DType):
        to = value.type.with_dtype(to)
    if not isinstance(to, SIMDType):
        raise call.error("EK0208", f"cast takes a dtype, not {describe(to)}")
    if to.width == 1 and value.type.width > 1:
        to = value.type.with_dtype(to.dtype)
    if value.type == to and value.weak is None:
        return value
    if value.const is not None and misfit(value.const, to.dtype) is None:
        return call.builder.const(value.const, to)
    return call.builder.one("cast", [value], to)


@method(Value, "reduce_add")
def value_reduce_add(call: Call, owner: Value) -> Value:
    return _reduce_lanes(call, owner, "add")


@method(Value, "reduce_max")
def value_reduce_max(call: Call, owner: Value) -> Value:
    return _reduce_lanes(call, owner, "max")


@method(Value, "reduce_min")
def value_reduce_min(call: Call, owner: Value) -> Value:
    return _reduce_lanes(call, owner, "min")


def _reduce_lanes(call: Call, value: Value, row: str) -> Value:
    """Lanes combined pairwise, halves with halves: a fixed order on every target."""
    assert isinstance(value.type, SIMDType)
    lanes = [lane(call.builder, value, k) for k in range(value.type.width)]
    while len(lanes) > 1:
        half = (len(lanes) + 1) // 2
        pairs = [call.builder.row(row, [a, b]) for a, b in zip(lanes, lanes[half:], strict=False)]
        lanes = pairs + lanes[len(pairs) : half]
    return lanes[0]


def lane(builder: Builder, value: Value, number: int) -> Value:
    """One lane of a vector as a scalar."""
    return builder.one("extract", [value], SIMDType(value.dtype), lane=number)


# *** dtypes, types ***


@member(DType, "bits")
def dtype_bits(inferer: Inferer, owner: DType, node: s.Attribute, frame: Frame) -> Any:
    return owner.bits


for _name in ("is_float", "is_integral", "is_signed", "is_half"):

    def _make(name: str) -> Callable[..., Any]:
        def check(call: Call, owner: DType) -> Any:
            return getattr(owner, name)()

        return check

    method(DType, _name)(_make(_name))


@member(SIMDType, "dtype")
def type_dtype(inferer: Inferer, owner: SIMDType, node: s.Attribute, frame: Frame) -> Any:
    return owner.dtype


@member(SIMDType, "width")
def type_width(inferer: Inferer, owner: SIMDType, node: s.Attribute, frame: Frame) -> Any:
    return owner.width


def construct(
    inferer: Inferer, type: Any, args: list[Any], keywords: dict[str, Any], node: s.Call, frame: Frame
) -> Any:
    """`Float32(x)`, `T(0)`, `SIMD[T, 8](0.0)`: a value of this type; run-time values are converted."""
    if isinstance(type, DType):
        type = SIMDType(type)
    if len(args) != 1 or keywords:
        raise inferer.error("EK0208", f"{type} takes one value, not {len(args) + len(keywords)}", node, frame)
    value = args[0]
    if isinstance(value, Value) and isinstance(value.type, SIMDType):
        if value.type.is_scalar and not type.is_scalar:
            return coerce(inferer, cast(Call(inferer, node, frame), value, type.dtype), type, node, frame)
        return cast(Call(inferer, node, frame), value, type)
    if isinstance(value, float) and type.dtype.is_integral() and value.is_integer():
        value = int(value)
    at = node.arguments[0] if len(node.arguments) == 1 else node
    return coerce(inferer, value, type, at, frame, f"{type}(...) takes a number")


CALLABLES[SIMDType] = construct
CALLABLES[DType] = construct


def make_stack(
    inferer: Inferer, type: StackType, args: list[Any], keywords: dict[str, Any], node: s.Call, frame: Frame
) -> Tensor:
    """`stack[T](m, n)`: storage of a fixed size, zeroed unless `zeroed=False` says that it is written before it is read."""
    zeroed = keywords.pop("zeroed", True)
    if keywords or not isinstance(zeroed, bool) or not args or any(builtins.type(n) is not int or n < 1 for n in args):
        raise inferer.error(
            "EK0208", "stack[T](...) takes whole sizes >= 1 that are known at compile time", node, frame
        )
    builder = inferer.builder
    count = math.prod(args)
    if count * type.dtype.bits > MAX_STACK_BYTES * 8:
        text = f"{count} elements of {type.dtype} are too much for stack[...]: it holds {MAX_STACK_BYTES >> 10} KiB"
        raise inferer.error("EK0217", text, node, frame)
    pointer = builder.one("alloca", [], PointerType(type.dtype, "stack"), count=count, zeroed=zeroed)
    dims = tuple(builder.int_(n) for n in args)
    return Stored(pointer, "stack", type.dtype, dims, Role.MUTABLE, fixed=tuple(args))


CALLABLES[StackType] = make_stack


# *** tensors ***


@member(Tensor, "dtype")
def tensor_dtype(inferer: Inferer, owner: Tensor, node: s.Attribute, frame: Frame) -> Any:
    return owner.dtype


@member(Tensor, "rank")
def tensor_rank(inferer: Inferer, owner: Tensor, node: s.Attribute, frame: Frame) -> Any:
    return owner.rank


@member(Tensor, "shape")
def tensor_shape(inferer: Inferer, owner: Tensor, node: s.Attribute, frame: Frame) -> Any:
    return tuple(size(owner, axis) for axis in range(owner.rank))


@method(Tensor, "is_one")
def tensor_is_one(call: Call, owner: Tensor, axis: Any) -> bool:
    """Whether a size is known to be 1 now; False for a size known at run time only."""
    if type(axis) is not int or not -owner.rank <= axis < owner.rank:
        raise call.error("EK0208", f"is_one() takes an axis known at compile time, not {describe(axis)}", "axis")
    return bool(owner.dims[axis].const == 1)


@member(Tensor, "size")
def tensor_size(inferer: Inferer, owner: Tensor, node: s.Attribute, frame: Frame) -> Any:
    return inferer.builder.product(owner.dims)


@method(Tensor, "dim")
def tensor_dim(call: Call, owner: Tensor, axis: Any) -> Any:
    if type(axis) is not int:
        raise call.error("EK0208", f"dim() takes an axis known at compile time, not {describe(axis)}", "axis")
    if not -owner.rank <= axis < owner.rank:
        text = f"'{owner.name}' has {plural(owner.rank, 'axis')}, there is no axis {axis}"
        raise call.error("EK0218", text, "axis", notes=declaration(owner))
    return size(owner, axis % owner.rank)


def size(tensor: Tensor, axis: int) -> Any:
    """A size: the number itself where the signature states it, an Int otherwise."""
    fixed = tensor.fixed[axis]
    return tensor.dims[axis] if fixed is None else fixed


@method(Tensor, "load")
def tensor_load(call: Call, owner: Tensor, *index: Any, width: Any = 1) -> Value:
    check_width(call, width, "width")
    return owner.load(call.builder, to_index(call, owner, _flat(call, index)), width)


@method(Tensor, "store")
def tensor_store(call: Call, owner: Tensor, value: Any, *index: Any) -> None:
    call.nodes.pop("index", None)  # the first of several
    store_into(call, owner, to_index(call, owner, _flat(call, index)), value)


@method(Tensor, "position")
def tensor_position(call: Call, owner: Tensor, *index: Any) -> Value:
    """The row-major position of an index."""
    return to_index(call, owner, _flat(call, index)).position(call.builder)


@method(Tensor, "at")
def tensor_at(call: Call, owner: Tensor, position: Any) -> Value:
    """The element at a row-major position."""
    number = coerce(call.inferer, position, INT, call.node, call.frame, "a position is an Int")
    return owner.load(call.builder, Index(owner.dims, linear=number, divisible=True))


def check_width(call: Call, width: Any, argument: str) -> None:
    """Refuses what cannot be a number of lanes."""
    if type(width) is not int or width < 1 or width & (width - 1) or width > MAX_LANES:
        raise call.error(
            "EK0208", f"a width is a power of two up to {MAX_LANES}, known at compile time, not {describe(width)}", argument
        )


def declaration(tensor: Tensor) -> list[str]:
    """The note that says where a tensor of the signature is declared."""
    return [f"'{tensor.annotation}' declared at {tensor.declared}"] if tensor.declared is not None else []


def _flat(call: Call, index: tuple[Any, ...]) -> Any:
    return index[0] if len(index) == 1 and isinstance(index[0], Index | tuple) else tuple(index)


def to_index(call: Call, tensor: Tensor, index: Any) -> Index:
    """Any form of index as an `Index` of the tensor's rank."""
    inferer = call.inferer
    if isinstance(index, Index) and len(index.dims) == tensor.rank:
        return index
    parts = index.components(inferer.builder) if isinstance(index, Index) else index
    if not isinstance(parts, tuple):
        parts = (parts,)
    if len(parts) != tensor.rank:
        raise wrong_rank(call, tensor, len(parts))
    components = []
    for axis, part in enumerate(parts):
        node = _part_node(call, axis, len(parts))
        if type(part) is int and part < 0:
            raise inferer.error(
                "EK0218",
                f"negative index {part} on axis {axis} of '{tensor.name}'",
                node,
                call.frame,
                hint=f"count from the end with {tensor.name}.dim({axis}) - {-part}",
            )
        if isinstance(part, Value) and part.type != INT and part.dtype.is_integral():
            part = inferer.builder.one("cast", [part], INT)
        components.append(coerce(inferer, part, INT, node, call.frame, f"an index on axis {axis} is an Int"))
    return Index(tensor.dims, components=tuple(components))


def _part_node(call: Call, axis: int, count: int) -> s.Node:
    """Where the part of an index stands that belongs to an axis."""
    node = call.nodes.get("index", call.node)
    if isinstance(node, s.Tuple) and len(node.items) == count and not any(isinstance(n, s.Starred) for n in node.items):
        return node.items[axis]
    return node


def wrong_rank(call: Call, tensor: Tensor, got: int) -> Exception:
    """`'x' has 2 axes, the index has 1`."""
    return call.error(
        "EK0218",
        f"'{tensor.name}' has {plural(tensor.rank, 'axis')}, the index has {got}",
        labels=(),
        notes=declaration(tensor),
        argument="index",
        expected=tensor.rank,
        got=got,
    )


def store_into(call: Call, tensor: Tensor, index: Index, value: Any) -> None:
    """`tensor[index] = value`, with its checks."""
    inferer = call.inferer
    if tensor.role is Role.INPUT:
        raise call.error(
            "EK0211",
            f"'{tensor.name}' is an input and cannot be stored to",
            "target",
            notes=declaration(tensor),
            hint="declare it as OutputTensor, or as MutableInputTensor to change it in place",
        )
    if inferer.level == "host" and inferer.target.is_gpu:
        raise host_access(call, tensor)
    if not isinstance(value, Value) and not is_comptime_number(value):
        hint = "store one of its elements" if isinstance(value, Tensor) else None
        raise call.error("EK0202", f"cannot store {describe(value)} into '{tensor.name}'", "value", hint=hint)
    if isinstance(value, Value) and isinstance(value.type, SIMDType) and value.weak is None:
        if value.dtype is not tensor.dtype:
            raise wrong_store(call, tensor, value)
        stored = value
    else:
        stored = coerce(inferer, value, SIMDType(tensor.dtype), call.nodes.get("value", call.node), call.frame)
    tensor.store(inferer.builder, index, stored)


def wrong_store(call: Call, tensor: Tensor, value: Value) -> Exception:
    """`cannot store Float32 into a BFloat16 tensor`, as the language reference shows it."""
    assert isinstance(value.type, SIMDType)
    node = call.nodes.get("value", call.node)
    target = call.nodes.get("target")
    origin = ""
    if isinstance(node, s.Name) and node.id in call.frame.origins:
        origin = f" (from '{node.id}', {call.frame.origins[node.id]})"
    labels = [Label(call.frame.place(target), primary=False)] if target is not None else []
    notes = declaration(tensor)
    text = call.frame.place(node).source_line()
    shown = "..."
    if text is not None and node.span[0] == node.span[2]:
        shown = text[node.span[1] - 1 : node.span[3] - 1]
    if not shown.replace("_", "").isalnum():
        shown = f"({shown})"
    article = "an" if str(SIMDType(tensor.dtype))[0] in "IUO" else "a"
    return call.inferer.error(
        "EK0213",
        f"cannot store {value.type} into {article} {SIMDType(tensor.dtype)} tensor",
        node,
        call.frame,
        label=f"{value.type}{origin}",
        labels=labels,
        notes=notes,
        argument=tensor.name,
        expected=str(tensor.dtype),
        got=str(value.dtype),
        hint=f"write {shown}.cast({tensor.dtype})",
    )


def host_access(call: Call, tensor: Tensor) -> Exception:
    """Host code of a GPU op touches an element."""
    return call.error(
        "EK0820",
        f"'{tensor.name}' lies in device memory; this code runs on the host",
        hint="use foreach, parallel_for or ctx.launch, or guard the code by `if ctx.target.is_cpu:`",
    )


# *** subscripts ***


def subscript(inferer: Inferer, owner: Any, index: Any, node: s.Subscript, frame: Frame) -> Any:
    """`owner[index]`."""
    call = Call(inferer, node, frame)
    call.nodes["index"] = node.index
    match owner:
        case Tensor():
            return load_element(call, owner, index)
        case tuple() | Index() | str():
            return tuple_item(call, owner, index)
        case Marker(name="SIMD"):
            if not (isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], DType)):
                raise call.error("EK0208", "SIMD takes a dtype and a width: SIMD[float32, 8]")
            check_width(call, index[1], "index")
            return SIMDType(index[0], index[1])
        case Marker(name="stack"):
            dtype = index.dtype if isinstance(index, SIMDType) and index.is_scalar else index
            if not isinstance(dtype, DType):
                raise call.error("EK0208", f"stack takes a dtype, not {describe(index)}")
            return StackType(dtype)
        case Value(type=SIMDType(width=width)) if width > 1:
            if type(index) is not int or not -width <= index < width:
                text = f"a lane is a compile-time number from 0 to {width - 1}, not {describe(index)}"
                raise call.error("EK0218", text, "index")
            return lane(inferer.builder, owner, index % width)
    raise call.error("EK0207", f"{describe(owner)} has no elements")


def tuple_item(call: Call, owner: Any, index: Any) -> Any:
    """An item or a slice of a tuple, by compile-time numbers."""
    values = owner.components(call.builder) if isinstance(owner, Index) else owner
    if not isinstance(index, int | slice) or isinstance(index, bool):
        raise call.error(
            "EK0218", f"{describe(owner)} is indexed by compile-time numbers, not by {describe(index)}", "index"
        )
    try:
        return values[index]
    except (IndexError, TypeError, ValueError):
        text = f"a string of {len(values)}" if isinstance(values, str) else describe(owner)
        where = f"item {index}" if isinstance(index, int) else "such slice"
        raise call.error("EK0218", f"{text} has no {where}", "index") from None


def load_element(call: Call, tensor: Tensor, index: Any) -> Any:
    """`x[i, j]`, or a view when slices are among the indices."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(p, slice) for p in parts):
        return make_view(call, tensor, parts)
    if call.inferer.level == "host" and call.inferer.target.is_gpu:
        raise host_access(call, tensor)
    return tensor.load(call.builder, to_index(call, tensor, index))


def make_view(call: Call, tensor: Tensor, parts: tuple[Any, ...]) -> Tensor:
    """`x[i, :]`, `x[:, a:b]`, `x[::2]`: a tensor over some of the elements, nothing is copied."""
    inferer, builder = call.inferer, call.builder
    if len(parts) > tensor.rank:
        raise wrong_rank(call, tensor, len(parts))
    parts = (*parts, *(slice(None),) * (tensor.rank - len(parts)))
    dims: list[Value] = []
    plan: list[tuple[Value, Value] | Value] = []  # (start, step) of a sliced axis, or the index of a fixed one

    def whole(part: Any, default: Value) -> Value:
        return default if part is None else coerce(inferer, part, INT, call.node, call.frame, "a bound is an Int")

    for axis, part in enumerate(parts):
        if not isinstance(part, slice):
            node = _part_node(call, axis, len(parts))
            plan.append(coerce(inferer, part, INT, node, call.frame, "an index is an Int"))
            continue
        if type(part.step) not in (int, type(None)) or (part.step is not None and part.step < 1):
            raise call.error("EK0218", "the step of a slice is a whole number >= 1 known at compile time", "index")
        for bound in (part.start, part.stop):
            if type(bound) is int and bound < 0:
                raise call.error("EK0218", f"negative bound {bound} in a slice", "index")
        start = whole(part.start, builder.int_(0))
        stop = whole(part.stop, tensor.dims[axis])
        if part.stop is not None:
            stop = builder.one("min", [stop, tensor.dims[axis]], INT)
        extent = builder.one("max", [builder.isub(stop, start), builder.int_(0)], INT)
        if part.start is None and part.stop is None:
            extent = tensor.dims[axis]
        step = builder.int_(part.step or 1)
        if part.step not in (None, 1):
            extent = builder.idiv(builder.iadd(extent, builder.int_(part.step - 1)), step)
        dims.append(extent)
        plan.append((start, step))

    def mapping(builder: Builder, components: tuple[Value, ...]) -> tuple[Value, ...]:
        left = iter(components)
        out = []
        for item in plan:
            if isinstance(item, tuple):
                out.append(builder.iadd(item[0], builder.imul(next(left), item[1])))
            else:
                out.append(item)
        return tuple(out)

    return View(tensor, tuple(dims), mapping)


# *** the context ***


@member(ContextValue, "target")
def context_target(inferer: Inferer, owner: Any, node: s.Attribute, frame: Frame) -> Any:
    return TargetValue()


@member(TargetValue, "is_cpu")
def target_is_cpu(inferer: Inferer, owner: Any, node: s.Attribute, frame: Frame) -> Any:
    return not inferer.target.is_gpu


@member(TargetValue, "is_gpu")
def target_is_gpu(inferer: Inferer, owner: Any, node: s.Attribute, frame: Frame) -> Any:
    return inferer.target.is_gpu


@member(TargetValue, "name")
def target_name(inferer: Inferer, owner: Any, node: s.Attribute, frame: Frame) -> Any:
    return inferer.target.name


@member(TargetValue, "vector_bits")
def target_vector_bits(inferer: Inferer, owner: Any, node: s.Attribute, frame: Frame) -> Any:
    return inferer.target.vector_bits


@method(TargetValue, "supports")
def target_supports(call: Call, owner: Any, feature: Any) -> Any:
    if not isinstance(feature, str):
        raise call.error("EK0208", f"supports() takes the name of a feature, not {describe(feature)}", "feature")
    try:
        return call.inferer.target.supports(feature)
    except TargetError as error:
        raise call.error(error.code, error.message, "feature", notes=error.notes, hint=error.hint) from None
