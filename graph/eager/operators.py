"""Makes functions on tensors, and the methods of `Tensor`, of all ops of graphs.

An op of `ops.stage.OPS` is a function here under its name, and so are the methods and operators that graphs' values
have. What is written here by hand reads arguments: sizes that follow from others, ranges, indices. What has to do with
elements, such as branches, is in `values`.
"""

from __future__ import annotations

import functools
import math
import operator as python
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from .. import ops
from ..arguments import axes_given, axis_of, dtype_of
from ..driver.devices import Device, DeviceRef
from ..ops.indexing import Range, take
from ..ops.operands import as_shape
from ..ops.stage import METHODS, OPS, REFLECTED, BuiltinOp, builtin
from ..staging.active import ACTIVE
from ..staging.graph import Graph
from ..staging.value import TensorValue
from ..types.dims import Dim, Shape
from ..types.tensor_type import TensorType
from . import moves
from .arguments import OPERAND, OTHER, SIZES, Operator, categories_of, operator_of
from .methods import Methods
from .missing_attributes import add_missing_attributes
from .nodes import FUNCTIONS, Recorded, add_functions
from .record import binary, is_staged, record, unary
from .tensor import Tensor, picked

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
# What `Tensor` has as methods in addition to those of graphs' values.
FURTHER = ("split", "squeeze", "unsqueeze")
# What needs a graph, or has elements to read or to write (see `values`).
BY_HAND = (
    "assert_same_device",
    "buffer_create",
    "buffer_load",
    "buffer_store",
    "buffer_store_slice",
    "call",
    "cond",
    "constant",
    "constant_external",
    "custom",
    "inplace_custom",
    "kv_cache_store",
    "range",
    "arange",
    "slice_tensor",
    "transfer_to",
    "while_loop",
)


# *** sizes that follow from others ***


def _reshape_arguments(x: Any, shape: Any) -> Arguments:
    """The shape with the size in the place of -1."""
    sizes = list(Shape(shape)) if not isinstance(shape, Tensor) else shape.tolist()
    known = [int(each) for each in sizes if each != -1]
    total, rest = math.prod(x._kind.sizes), math.prod(known)
    if len(known) == len(sizes) - 1 and rest and total % rest == 0:
        sizes = [total // rest if each == -1 else each for each in sizes]
    return (x, sizes), {}


def _reshape(x: TensorValue, shape: Sequence[Dim]) -> TensorValue:
    """A reshape to sizes of other names than those of `x`: that there are as many elements is checked by call."""
    flat = ops.reshape(x, [x.shape.num_elements])
    return ops.reshape(ops.rebind(flat, [math.prod(shape, start=Dim(1))]), shape)


def _transpose_arguments(x: object, *axes: object, **named: object) -> Arguments:
    """The two axes, whose names may also be `dim_1` and `dim_2`, or `dim1` and `dim2`."""
    if len(axes) > 2:
        raise TypeError("transpose swaps two axes")  # `record` names the op and its parameters
    names = {f"{start}{k}": f"axis_{k}" for start in ("dim_", "dim") for k in (1, 2)}
    return (x, *axes), {names.get(name, name): value for name, value in named.items()}


def _permute_arguments(x: Any, *dims: Any, **named: Any) -> Arguments:
    """The axes as a list, where they stand side by side."""
    return (x, list(axes_given(dims)) if len(dims) > 1 else dims[0]) if dims else (x,), named


def _split_arguments(x: Any, split_sizes: Any = None, axis: int = 0, **named: Any) -> Arguments:
    """All sizes of the pieces, in the place of one."""
    sizes = named.pop("split_size_or_sections", split_sizes)
    if type(sizes) is int and sizes > 0 and not named:
        whole, rest = divmod(x._kind.sizes[axis_of(axis, x.rank)], sizes)
        sizes = [sizes] * whole + ([rest] if rest or not whole else [])
    return (x, sizes, axis), named


def _chunk_arguments(x: Any, chunks: int, axis: int = 0) -> Arguments:
    at = axis_of(axis, x.rank)
    size = x._kind.sizes[at]
    if type(chunks) is int and chunks > 0 and size % chunks == 0 and chunks <= max(size, 1):
        return (x, chunks, at, [size // chunks] * chunks), {}
    return (x, chunks, at), {}


def _split(x: TensorValue, split_sizes: Sequence[Dim], axis: int = 0) -> list[TensorValue]:
    if not isinstance(split_sizes, list | tuple):
        return ops.split(x, split_sizes, axis)  # which says what is wrong
    at = axis_of(axis, x.rank)
    shape = [*x.shape[:at], sum(split_sizes, start=Dim(0)), *x.shape[at + 1 :]]
    return ops.split(ops.rebind(x, shape), split_sizes, axis)


def _chunk(x: TensorValue, chunks: int, axis: int, sizes: Sequence[Dim] | None = None) -> list[TensorValue]:
    return ops.chunk(x, chunks, axis) if sizes is None else _split(x, sizes, axis)


def _counted(position: int) -> Callable[..., Arguments]:
    """Names the size of a result that is known only when the op has run, where the user does not."""

    def arguments(*args: Any, **kwargs: Any) -> Arguments:
        if len(args) <= position and "out_dim" not in kwargs:
            kwargs["out_dim"] = "count"
        return args, kwargs

    return arguments


PREPARED: dict[str, Callable[..., Arguments]] = {
    "reshape": _reshape_arguments,
    "split": _split_arguments,
    "transpose": _transpose_arguments,
    "permute": _permute_arguments,
    "chunk": _chunk_arguments,
    "nonzero": _counted(1),
    "masked_scatter": _counted(3),
}
SYMBOLIC: dict[str, Callable[..., object]] = {"reshape": _reshape, "split": _split}
SHORTCUTS: dict[str, Callable[..., object]] = {
    "reshape": moves.reshaped,
    "flatten": moves.reshaped,
    "squeeze": moves.reshaped,
    "unsqueeze": moves.reshaped,
    "rebind": moves.reshaped,
    "permute": moves.permuted,
    "transpose": moves.transposed,
    "broadcast_to": moves.broadcast,
    "concat": moves.joined,
    "stack": moves.stacked,
    "split": moves.cut,
}


@functools.cache
def operator(name: str) -> Operator:
    """The operator of an op."""
    made = operator_of(OPS[name])
    made.prepare, made.symbolic = PREPARED.get(name), SYMBOLIC.get(name)
    made.shortcut = SHORTCUTS.get(name)
    if name == "chunk":
        made.function = _chunk
        made.places = (OPERAND, OTHER, OTHER, SIZES)
    return made


# *** indices ***


def _sliced(x: TensorValue, starts: Sequence[Any], sizes: Sequence[Dim], steps: Any, shape: Any) -> TensorValue:
    """Elements of each axis from a start on; the starts come with the call."""
    whole = [Range(*each) for each in zip(starts, steps, sizes, strict=True)]
    return as_shape(take(x, whole), shape)


SLICE = Operator("slice_tensor", _sliced, numbers=True, places=(OPERAND, OPERAND, SIZES, OTHER, SIZES))
SLICE.number_dtype, SLICE.shortcut = DType.int64, moves.sliced


@placed
def slice_tensor(x: object, indices: object) -> Any:
    """The part of a tensor that indices name, as `ops.slice_tensor`; indices of elements are not part of the code."""
    if isinstance(x, Recorded) and not is_staged(x) and not ACTIVE.get():
        result = _ranges(x._kind.sizes, indices if isinstance(indices, tuple | list) else (indices,))
        if result is not None:
            return record(SLICE, (x, *result), {})
    return record(operator("slice_tensor"), (x, indices), {})


@placed
def part(x: Any, indices: Any) -> Any:
    """`x[indices]`: as `slice_tensor`; lists, arrays and tensors with axes pick elements, as NumPy's indices do."""
    items = tuple(map(_known, indices)) if isinstance(indices, tuple) else (_known(indices),)
    if any(map(_picks, items)) and not ACTIVE.get() and not is_staged(x) and not any(map(is_staged, items)):
        return picked(x, items)
    return slice_tensor(x, items)


def _known(item: Any) -> Any:
    """A slice with the numbers of tensors that bound it, where these have values."""
    if not isinstance(item, slice):
        return item
    bounds = (item.start, item.stop, item.step)
    if ACTIVE.get() or not any(isinstance(each, Recorded) for each in bounds) or any(map(is_staged, bounds)):
        return item
    return slice(*[python.index(each) if isinstance(each, Tensor) else each for each in bounds])


def _picks(item: Any) -> bool:
    if isinstance(item, Recorded):
        return bool(item._kind and (item._kind.sizes or item._kind.dtype is DType.bool))
    return isinstance(item, list | bool | np.bool_) or (isinstance(item, np.ndarray) and item.ndim > 0)


def _ranges(
    sizes: tuple[int, ...], items: Sequence[object]
) -> tuple[list[int], list[int], tuple[int, ...], list[int]] | None:
    """Starts, counts and steps for all axes, and the shape of the part; None where only the op itself can compute
    it."""
    named = sum(item is not None and item is not Ellipsis for item in items)
    gaps = sum(item is Ellipsis for item in items)
    if named > len(sizes) or gaps > 1:
        return None
    rest = [slice(None)] * (len(sizes) - named)
    spelled: list[object] = []
    for item in items if gaps else (*items, Ellipsis):
        spelled += rest if item is Ellipsis else [item]
    starts: list[int] = []
    counts: list[int] = []
    steps: list[int] = []
    shape: list[int] = []
    for item in spelled:
        if item is None:
            shape.append(1)
            continue
        size = sizes[len(starts)]
        result = _whole_range(item, size) if isinstance(item, slice) else _element(item, size)
        if result is None:
            return None
        starts.append(result[0])
        counts.append(result[1])
        steps.append(result[2])
        if isinstance(item, slice):
            shape.append(result[1])
    return starts, counts, tuple(steps), shape


def _number(value: Any) -> int | None:
    if isinstance(value, bool | Recorded) or not hasattr(type(value), "__index__"):
        return None
    return python.index(value)


def _element(item: Any, size: int) -> tuple[int, int, int] | None:
    at = _number(item)
    return None if at is None or not -size <= at < size else (at % size, 1, 1)


def _whole_range(item: slice, size: int) -> tuple[int, int, int] | None:
    bounds = [None if each is None else _number(each) for each in (item.start, item.stop, item.step)]
    if any(b is None for b, each in zip(bounds, (item.start, item.stop, item.step), strict=True) if each is not None):
        return None
    start, stop, step = bounds[0], bounds[1], 1 if bounds[2] is None else bounds[2]
    if step == 0 or any(each is not None and not -size <= each <= size for each in (start, stop)):
        return None
    result = range(*slice(start, stop, step).indices(size))
    rising = stop is None or start is None or (stop % (size or 1) >= start % (size or 1)) or len(result) > 0
    if not rising and step > 0 and stop not in (size, -size) and start not in (size, -size):
        return None
    return (result.start if len(result) else 0, len(result), step if len(result) else 1)


# *** ranges ***


def _range_of(start: Any, step: Any, size: Dim, dtype: DType, device: Any) -> TensorValue:
    """The kernel of ranges, whose bounds come with the call."""
    out = TensorType(dtype, [size], DeviceRef.from_device(device))
    return builtin("creation", "range", [start, step], {"dtype": dtype}, [out])[0]


def _range_operator(wide: DType) -> Operator:
    made = Operator("range", _range_of, numbers=True, places=(OPERAND, OPERAND, SIZES, OTHER, OTHER))
    made.number_dtype = wide
    return made


RANGES = {wide: _range_operator(wide) for wide in (DType.float64, DType.int64)}


@placed
def arange(
    start: Any,
    stop: Any,
    step: Any = 1,
    out_dim: object = None,
    *,
    dtype: DType | None = None,
    device: DeviceRef | Device | None = None,
) -> Any:
    """As `ops.arange`; bounds and number of elements are not part of the code."""
    given: tuple[Any, ...] = (start, stop, step)
    if ACTIVE.get() or any(map(is_staged, given)):
        return record(operator("arange"), (*given, out_dim), {"dtype": dtype, "device": device})
    if any(isinstance(each, Tensor) for each in given):
        dtype = dtype or next(each.dtype for each in given if isinstance(each, Tensor))
        given = tuple(each.item() if isinstance(each, Tensor) else each for each in given)
    chosen = DType.float32 if dtype is None else dtype_of("dtype", dtype)
    place = DeviceRef.CPU() if device is None else device
    with shielded(), Graph("range"):
        size = int(ops.arange(*given, dtype=chosen, device=place).shape[0])  # it says what is wrong
    numbers = [float(each) if chosen.is_float() else int(each) for each in (given[0], given[2])]
    wide = DType.float64 if chosen.is_float() else DType.int64
    return record(RANGES[wide], (*numbers, size, chosen, place), {})


# *** the tables ***


def _function(row: BuiltinOp) -> Callable[..., Any]:
    """An op on tensors as a function."""
    made = operator(row.name)
    if row.form == "elementwise" and len(made.places) == 2:
        short, _ = binary(made)

        def call(*args: Any, **kwargs: Any) -> Any:
            if len(args) == 2 and type(args[0]) is Tensor and not kwargs:
                return short(*args)
            return record(made, args, kwargs)

    elif row.form == "elementwise" and len(made.places) == 1 and "x" in made.categories:
        call = unary(made)
    else:

        def call(*args: Any, **kwargs: Any) -> Any:
            return record(made, args, kwargs)

    functools.update_wrapper(call, row.function)
    call.__module__, call.__qualname__ = f"{__package__}.functional", row.name.replace(".", "_")
    return call


def _method(made: Operator) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return record(made, (self, *args), kwargs)

    return functools.wraps(made.function)(call)


def _add_methods() -> None:
    rows = {row.function: name for name, row in OPS.items()}
    names = {name: function for (owner, name), function in METHODS.items() if owner is TensorValue}
    names |= {name: OPS[name].function for name in FURTHER}
    for name, function in names.items():
        if name in REFLECTED.values() or name in ("print", "to", "transfer_to"):
            continue
        if name == "__getitem__":
            setattr(Methods, name, part)
            continue
        made = operator(rows[function]) if function in rows else _of_method(name, function)
        if not name.startswith("__"):
            setattr(Methods, name, _method(made))
        elif len(made.places) == 1:
            _set_operator(name, unary(made))
        else:
            forward, reflected = binary(made)
            _set_operator(name, forward)
            if name in REFLECTED:
                _set_operator(REFLECTED[name], reflected)


def _set_operator(name: str, function: Callable[..., Any]) -> None:
    function.__qualname__ = f"Tensor.{name}"
    setattr(Methods, name, function)


def _of_method(name: str, function: Callable[..., Any]) -> Operator:
    """A method that chooses among ops, as an operator."""
    if name.startswith("__"):
        places: tuple[str, ...] = (OPERAND,) if name == "__invert__" else (OPERAND, OPERAND)
        return Operator(name.strip("_"), function, numbers=True, places=places)
    places, categories, rest = categories_of(function)
    made = Operator(name, function, places=(OPERAND, *places[1:]), categories=categories, rest=rest)
    made.prepare, made.shortcut = PREPARED.get(name), SHORTCUTS.get(name)
    return made


def outside(name: str, args: tuple[Any, ...], kwargs: Any) -> Any:
    """An op of `ops` that is called where no graph is built, if it is called with tensors."""
    if (reason := OPS[name].graphs_only) and any(map(_holds_tensor, (*args, *kwargs.values()))):
        raise GraphError(
            f"{name}: tensors that have elements are given to an op that runs in graphs alone: {reason}",
            code="EK0866",
            place=user_place(),
            op=name,
            hint="stage it in Graph(..., forward=...), and call the model on each rank",
        )
    if name in FUNCTIONS and any(map(_holds_tensor, (*args, *kwargs.values()))):
        return FUNCTIONS[name](*args, **kwargs)
    return NotImplemented


def _holds_tensor(value: Any) -> bool:
    return any(map(_holds_tensor, value)) if isinstance(value, list | tuple) else isinstance(value, Recorded)


add_functions(
    {
        name: _function(row)
        for name, row in OPS.items()
        if name not in BY_HAND and not row.graphs_only and not name.startswith("random.")
    }
)
add_functions({"complex_mul": FUNCTIONS["complex.mul"]})
add_functions({"slice_tensor": slice_tensor, "arange": arange, "range": arange})
add_missing_attributes(name for name in FUNCTIONS if "." not in name)
_add_methods()
