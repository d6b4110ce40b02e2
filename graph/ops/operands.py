"""Makes operands of what users pass: promotion, casts, devices, broadcasting.

Casts and broadcasts become nodes of their own. So kernels take operands of one dtype and, where they are elementwise,
of one shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import DTypeError, EinkornError, brief
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import LIMIT, int_of
from ..driver.devices import DeviceRef
from ..staging.sizes import stage_dim, stage_sizes
from ..staging.value import BufferValue, TensorValue, TensorValueLike, Value, foreign_value
from ..types.dims import Dim, Shape, StaticDim, is_below_zero
from ..types.promotion import is_weak, literal_array, promote, weak_array
from ..types.tensor_type import TensorType, shown
from .stage import builtin, current, fail, named, require

DimLike = int | str | Dim

HINT_FOR_SYMBOLS = "if the two are always equal, give them one name in the input types, or use ops.rebind"
MAX_WINDOW = 1 << 40  # more places than a tensor has: a window is not a number that sums could overflow with


def tensor(name: str, argument: str, value: TensorValueLike) -> TensorValue:
    """A strong operand.

    Raises:
        DTypeError: EK0411 a plain number or array, EK0403 something else.
        GraphError: EK0402, a value of another graph.
    """
    value = _converted(value)
    if isinstance(value, Dim | Shape):
        return size_value(name, value, DeviceRef.CPU())
    if isinstance(value, TensorValue):
        graph = current(name)
        if value.graph is not graph:
            raise foreign_value(name, argument, value, graph, user_place())
        return value
    if _weak(value):
        fail(
            name,
            f"argument '{argument}' has to be a tensor, and {_shown(value)} takes its dtype from one",
            code="EK0411",
            kind=DTypeError,
            argument=argument,
            expected="TensorValue",
            got=type(value).__name__,
            hint="ops.constant(value, dtype, device) makes a tensor of it",
        )
    fail(
        name,
        f"argument '{argument}' is not a tensor but {type(value).__name__}",
        code="EK0403",
        kind=DTypeError,
        argument=argument,
        expected="TensorValue",
        got=type(value).__name__,
        hint="ops that return several values return a list, also of one: take an item of it"
        if isinstance(value, list) and any(isinstance(item, TensorValue) for item in value)
        else "ops.constant([...], dtype, device) makes a tensor of a list"
        if isinstance(value, list)
        else "ops.buffer_load(x) returns the contents of a buffer as a tensor"
        if isinstance(value, BufferValue)
        else None,
    )


def tensors(name: str, dtype: DType | None = None, **operands: TensorValueLike) -> list[TensorValue]:
    """Operands in one dtype on one device: the promoted one, or `dtype`. Weak ones become constants; a dim takes the
    dtype and the device of the tensors, and is an int64 where there are none.

    Raises:
        DTypeError: all are weak, or the dtypes do not go together.
        GraphError: a weak value does not fit, or devices differ.
    """
    values = {argument: _converted(value) for argument, value in operands.items()}
    strong = [tensor(name, argument, value) for argument, value in values.items() if isinstance(value, TensorValue)]
    if not strong:
        values = {argument: _sized(name, value, DeviceRef.CPU()) for argument, value in values.items()}
        strong = [value for value in values.values() if isinstance(value, TensorValue)]
    if not strong:
        tensor(name, *next(iter(values.items())))
    common = dtype or promote([value.dtype for value in strong], name, user_place())
    same_device(name, {a: v for a, v in values.items() if isinstance(v, TensorValue)})
    graph = current(name)
    result = []
    for argument, value in values.items():
        if isinstance(value, TensorValue):
            result.append(cast_to(value, common))
            continue
        value = int(value) if isinstance(value, StaticDim) else _sized(name, value, strong[0].device)
        if _weak(value):
            array = weak_array(value, common, name, argument, user_place())
            result.append(graph.stage_constant(array, strong[0].device, user_place()))
        else:
            result.append(cast_to(tensor(name, argument, value), common))
    return result


def _sized(name: str, value: object, device: DeviceRef) -> Any:
    """Dims and shapes as tensors; everything else as it is."""
    return size_value(name, value, device) if isinstance(value, Dim | Shape) else value


def size_value(name: str, value: Dim | Shape, device: DeviceRef) -> TensorValue:
    """A dim as an int64 tensor of rank 0, a shape as one of rank 1.

    Raises:
        GraphError: EK0431, a name that the graph does not know.
    """
    unknown = [dim for dim in value.parameters if not current(name).has_dim(dim)]
    if unknown:
        text = f"nothing determines the size of dim '{unknown[0]}'"
        fail(name, text, code="EK0431", got=unknown[0], hint="a named dim takes its size from an input of the graph")
    if isinstance(value, Dim):
        return stage_dim(current(name), value, device, user_place())
    return sizes_tensor(name, value, device)


def sizes_tensor(name: str, dims: Sequence[Dim], device: DeviceRef, computed: bool = False) -> TensorValue:
    """Dims as an int64 tensor of one axis; `computed` even where all are known."""
    check_known(name, "shape", dims)
    return stage_sizes(current(name), dims, device, user_place(), computed)


def same_device(name: str, operands: Mapping[str, Value], device: DeviceRef | None = None) -> None:
    """Nothing moves by itself: raises GraphError EK0430 when operands lie on different devices."""
    items = list(operands.items())
    first = device or (items[0][1].device if items else None)
    for argument, value in items:
        if value.device != first:
            expected = "the op runs" if device else f"argument '{items[0][0]}' lies"
            fail(
                name,
                f"argument '{argument}' lies on {value.device}, and {expected} on {first}",
                code="EK0430",
                argument=argument,
                expected=str(first),
                got=str(value.device),
                hint=f"move it with .to({first!r})",
            )


@dataclass(frozen=True, eq=False)
class DTypeGroup:
    """A kind of dtypes: which they are, what they are called, and what to do about another one."""

    holds: Callable[[DType], bool]
    wanted: str
    hint: str = "ops.cast(x, DType.int32)"

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """All dtypes of this kind."""
        return tuple(dtype for dtype in DType if self.holds(dtype))


def _computes(dtype: DType) -> bool:
    """Whether kernels compute with elements of this dtype as with real numbers."""
    return not dtype.is_storage() and not dtype.is_complex()


_TO_FLOAT = "ops.cast(x, DType.float32)"
SCALED_PAGES = (DType.int8, DType.float8_e4m3fn, DType.float8_e5m2)  # their numbers are parts of a scale
# What operands may be. Storage types are moved, chosen and cast, and nothing else: only "storable" has them.
KINDS = {
    "float": DTypeGroup(lambda t: t.is_float() and not t.is_storage(), "floating-point", _TO_FLOAT),
    "pages": DTypeGroup(
        lambda t: t in SCALED_PAGES or (t.is_float() and not t.is_storage()),
        "floating-point, int8, float8_e4m3fn or float8_e5m2",
        "make the pages of another dtype",
    ),
    "numeric": DTypeGroup(lambda t: t is not DType.bool and _computes(t), "numeric"),
    "number": DTypeGroup(lambda t: t is not DType.bool and not t.is_storage(), "numeric or complex"),
    "inexact": DTypeGroup(
        lambda t: t.is_complex() or (t.is_float() and not t.is_storage()), "floating-point", _TO_FLOAT
    ),
    "complex": DTypeGroup(lambda t: t.is_complex(), "complex", "ops.cast(x, DType.complex64)"),
    "integral": DTypeGroup(lambda t: t.is_integral() and not t.is_storage(), "integer"),
    "index": DTypeGroup(lambda t: t.is_integral() and not t.is_storage(), "an integer", "ops.cast(x, DType.int64)"),
    "bool": DTypeGroup(lambda t: t is DType.bool, "bool", "use a comparison, such as x != 0"),
    "any": DTypeGroup(lambda t: _computes(t), "of a type that computes"),
    "comparable": DTypeGroup(lambda t: not t.is_storage(), "of a type that computes"),
    "storable": DTypeGroup(lambda t: True, "of any type"),
}


def check_kind(name: str, argument: str, value: Value, kind: str) -> None:
    """Raises DTypeError EK0413 unless the dtype is of this kind, a key of `KINDS`."""
    wanted, dtype = KINDS[kind], value.dtype
    if wanted.holds(dtype):
        return
    hint = wanted.hint
    if dtype.is_complex():
        hint = "use ops.real(x), ops.imag(x) or ops.abs(x)"
    stored_float = dtype.is_storage() and dtype.is_float() and kind in ("numeric", "number", "any", "comparable")
    fail(
        name,
        f"argument '{argument}' has to be {wanted.wanted}, and is {dtype}",
        code="EK0413",
        kind=DTypeError,
        argument=argument,
        expected=wanted.wanted,
        got=str(dtype),
        hint=_TO_FLOAT if stored_float else hint,
    )


def _converted(value: object) -> Any:
    return value.__tensorvalue__() if hasattr(value, "__tensorvalue__") else value


def _weak(value: object) -> bool:
    return isinstance(value, StaticDim) or is_weak(value)


def _shown(value: Any) -> str:
    return f"the plain number {brief(value)}" if not hasattr(value, "shape") else f"a plain array of {value.dtype}"


# --- numbers, indices, sizes ---


def scalar(name: str, argument: str, given: Any, like: Value | TensorType) -> TensorValue:
    """A number as a tensor of rank 0, in the dtype and on the device of another value.

    Raises:
        DTypeError: EK0413, a tensor of another dtype.
        GraphError: EK0421, a tensor with axes; or a number that the dtype cannot hold.
    """
    given = _converted(given)
    if _weak(given):
        plain = bool(given) if like.dtype is DType.bool and given in (0, 1) else given
        number = int(plain) if isinstance(plain, StaticDim) else plain
        array = weak_array(number, like.dtype, name, argument, user_place())
        operand = current(name).stage_constant(array, like.device, user_place())
    else:
        operand = tensor(name, argument, given)
    same_device(name, {argument: operand}, like.device)
    check_dtype(name, argument, operand, like.dtype)
    if operand.rank:
        text = f"argument '{argument}' has shape {shown(operand.shape)}, and one number is requested"
        fail(name, text, code="EK0421", argument=argument, expected="rank 0", got=shown(operand.shape))
    return operand


def indices_of(name: str, argument: str, given: Any, device: DeviceRef) -> TensorValue:
    """Indices as a tensor; numbers and arrays of them become a constant.

    Raises:
        DTypeError: EK0413, no integers.
        GraphError: EK0430, they lie on another device.
    """
    given = _converted(given)
    if _weak(given):
        array = literal_array(int(given) if isinstance(given, StaticDim) else given, None, name, user_place())
        operand = current(name).stage_constant(array, device, user_place())
    else:
        operand = tensor(name, argument, given)
    same_device(name, {argument: operand}, device)
    return as_indices(name, argument, operand)


def as_indices(name: str, argument: str, value: TensorValue) -> TensorValue:
    """Indices in a dtype that kernels take: those of uint64 become int64, where what int64 does not hold stays out of
    range, as its largest number.

    Raises:
        DTypeError: EK0413, no integers.
    """
    check_kind(name, argument, value, "index")
    if value.dtype is not DType.uint64:
        return value
    most = current(name).stage_constant(np.array(LIMIT, np.uint64), value.device, user_place())
    return cast_to(builtin("elementwise", "minimum", [value, expand(most, value.shape)])[0], DType.int64)


def check_dtype(name: str, argument: str, value: Value, wanted: DType) -> None:
    """Raises DTypeError EK0413 unless the dtype is this one."""
    if value.dtype is not wanted:
        fail(
            name,
            f"argument '{argument}' has to be {wanted}, and is {value.dtype}",
            code="EK0413",
            kind=DTypeError,
            argument=argument,
            expected=str(wanted),
            got=str(value.dtype),
            hint=f"ops.cast(x, DType.{wanted})",
        )


def dim_of(name: str, argument: str, given: DimLike) -> Dim:
    """A size, or a name for one.

    Raises:
        GraphError: EK0330, it is neither.
    """
    try:
        return Dim(given)
    except EinkornError as error:
        raise named(error, name, argument) from None


def check_known(name: str, argument: str, dims: Iterable[Dim]) -> None:
    """Raises GraphError EK0431 when a dim has a name that the graph does not know."""
    graph = current(name)
    for symbol in (symbol for dim in dims for symbol in dim.parameters):
        if not graph.has_dim(symbol):
            text = f"nothing determines the size of dim {symbol!r}"
            fail(name, text, code="EK0431", argument=argument, expected="a dim of the graph", got=symbol)


def check_at_least(name: str, argument: str, dim: Dim, least: int | Dim, text: str, code: str = "EK0480") -> None:
    """Refuses a size now, if it can be seen to be too small, or else when the graph is called."""
    missing = dim - least
    if is_below_zero(missing):
        fail(name, text, code=code, argument=argument, expected=f"at least {least}", got=str(dim))
    if not isinstance(missing, StaticDim):
        require(name, "at_least", dim, Dim(least), f"{name}: {text}")


def check_equal(name: str, argument: str, dim: Dim, wanted: Dim, text: str, code: str = "EK0481") -> None:
    """Refuses a size now, if it can be seen to be another, or else when the graph is called."""
    difference = dim - wanted
    if difference == 0:
        return
    if isinstance(difference, StaticDim):
        fail(name, text, code=code, argument=argument, expected=str(wanted), got=str(dim))
    require(name, "equal", dim, wanted, f"{name}: {text}")


# --- casts and broadcasts ---


def cast_to(value: TensorValue, dtype: DType) -> TensorValue:
    """`value` in another dtype; no node when it has it."""
    if value.dtype is dtype:
        return value
    if value.dtype.is_complex() and not dtype.is_complex():
        text = f"complex numbers cannot become {dtype}: that would drop their imaginary parts"
        hint = "use ops.real(x), ops.imag(x) or ops.abs(x)"
        fail("cast", text, code="EK0413", kind=DTypeError, argument="x", expected="real numbers", hint=hint)
    out = value.type.with_dtype(dtype)
    return builtin("elementwise", "cast", [value], {"dtype": dtype}, [out])[0]


def parts_kernel(kernel: str, value: TensorValue) -> TensorValue:
    """A kernel that gives a real number for each complex one."""
    return builtin("complex", kernel, [value], {}, [value.type.with_dtype(value.dtype.part)])[0]


def are_set(value: TensorValue) -> TensorValue:
    """Whether complex numbers are not zero."""
    return builtin("complex", "is_set", [value])[0]


def as_real(value: TensorValue) -> TensorValue:
    """Complex numbers as pairs of floats in a last axis."""
    out = TensorType(value.dtype.part, [*value.shape, 2], value.device)
    return builtin("complex", "as_real", [value], {}, [out])[0]


def joined_parts(value: TensorValue) -> TensorValue:
    """Pairs of floats in a last axis as complex numbers."""
    out = TensorType(value.dtype.complex_dtype, value.shape[:-1], value.device)
    return builtin("complex", "as_complex", [value], {}, [out])[0]


def broadcast(name: str, operands: Mapping[str, TensorValue]) -> list[TensorValue]:
    """Operands in their common shape, aligned from the last axis; each pair of sizes equal, 1 or absent.

    Raises:
        GraphError: EK0420, two sizes that are neither equal nor 1.
    """
    items = list(operands.items())
    shape: tuple[Dim, ...] = tuple(items[0][1].shape)
    for argument, value in items[1:]:
        shape = broadcast_shapes(name, shape, tuple(value.shape), argument)
    return [expand(value, shape) for _, value in items]


def broadcast_shapes(name: str, left: Sequence[Dim], right: Sequence[Dim], argument: str) -> tuple[Dim, ...]:
    """The common shape of two."""
    rank = max(len(left), len(right))
    one = StaticDim(1)
    padded_left = (*[one] * (rank - len(left)), *left)
    padded_right = (*[one] * (rank - len(right)), *right)
    result = []
    for axis, (a, b) in enumerate(zip(padded_left, padded_right, strict=True)):
        if a != b and a != one and b != one:
            static = isinstance(a, StaticDim) and isinstance(b, StaticDim)
            fail(
                name,
                f"shapes {shown(left)} and {shown(right)} do not broadcast: {a} and {b} on axis {axis - rank}",
                code="EK0420",
                argument=argument,
                expected=f"{a} or 1",
                got=str(b),
                hint=None if static else HINT_FOR_SYMBOLS,
            )
        result.append(b if a == one else a)
    return tuple(result)


def expand(value: TensorValue, shape: Sequence[Dim]) -> TensorValue:
    """`value` broadcast to a shape that it is known to fit; no node when it has it."""
    if tuple(value.shape) == tuple(shape):
        return value
    return builtin("movement", "broadcast_to", [value], {}, [value.type.with_shape(shape)])[0]


def as_shape(value: TensorValue, shape: Iterable[DimLike]) -> TensorValue:
    """`value` reshaped to a shape of as many elements; no node when it has it."""
    target = Shape(shape)
    if tuple(value.shape) == tuple(target):
        return value
    return builtin("movement", "reshape", [value], {}, [value.type.with_shape(target)])[0]


def permuted(value: TensorValue, order: Sequence[int]) -> TensorValue:
    """`value` with its axes in another order; no node when it is the same."""
    if list(order) == list(range(value.rank)):
        return value
    out = value.type.with_shape(value.shape[axis] for axis in order)
    return builtin("movement", "permute", [value], {"order": tuple(order)}, [out])[0]


def buffer_of(name: str, argument: str, value: object) -> BufferValue:
    """A value that has to be a buffer of the current graph."""
    if not isinstance(value, BufferValue):
        fail(
            name,
            f"argument '{argument}' is not a buffer but {type(value).__name__}",
            code="EK0460",
            kind=DTypeError,
            argument=argument,
            expected="BufferValue",
            got=type(value).__name__,
            hint="take it as an input of a BufferType, or make one with ops.buffer_create(type)",
        )
    graph = current(name)
    if value.graph is not graph:
        raise foreign_value(name, argument, value, graph, user_place())
    return value


def window_of(name: str, window: object) -> int:
    """A window as a number; 0 for none."""
    if window is None:
        return 0
    size = int_of("window", window, "EK0414")
    if size < 1:
        text = f"argument 'window' is {size}, and a query sees at least one place"
        fail(name, text, code="EK0414", argument="window", expected="1 or more", got=size)
    return min(size, MAX_WINDOW)


def scale_of(name: str, scale: object, q: TensorValue) -> float:
    """What scores are multiplied by."""
    if scale is not None:
        if (
            isinstance(scale, int | float | np.floating)
            and not isinstance(scale, bool)
            and -MAX_WINDOW < scale < MAX_WINDOW
        ):
            return float(scale)
        text = f"argument 'scale' is {brief(scale)}, and has to be a number that scores can be multiplied by"
        fail(name, text, code="EK0414", argument="scale", expected="a finite number", got=brief(scale))
    size = q.shape[-1]
    if not isinstance(size, StaticDim):
        text = f"the size of a query is {size}, which is known at the call only, and scale depends on it"
        fail(name, text, code="EK0427", argument="scale", expected="a number", got="None", hint="pass scale=")
    return 1 / math.sqrt(max(int(size), 1))
