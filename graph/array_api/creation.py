"""Makes tensors as the standard's functions do: of numbers and arrays, of one number, of ranges and diagonals.

Python's ints are int64 here, and its floats float32.

See also `einkorn.random` (random numbers).
"""

from __future__ import annotations

import copy as python_copy
from typing import Any, Literal

import numpy as np

from ...dsl.diagnostics.errors import DeviceError
from ...dsl.diagnostics.places import user_place
from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ..arguments import choice_of, dtype_of, int_of
from ..driver.arrays import rounded
from ..driver.buffer import Buffer
from ..eager import functional as F
from ..eager.contexts import defaults
from ..eager.tensor import Tensor
from ..types.promotion import literal_array
from .operands import COMPLEX, REAL, Place, Shape, cast, dtype_of_number, shape_of, sizes_of, tensor


@placed
def asarray(obj: object, /, *, dtype: DType | None = None, device: Place = None, copy: bool | None = None) -> Tensor:
    """A tensor of a number, of nested lists of numbers, or of the elements of an array.

    Args:
        obj: what it holds; a tensor, a number, a list, an array of NumPy or of a library with DLPack.
        dtype: when left out that of an array, int64 of ints, float32 of floats, bool of bools.
        device: where it lies; when left out where a tensor lies, else the default device.
        copy: True always copies, False never does, None where it is needed.

    Raises:
        DeviceError: EK0804, `copy=False`, and a copy is needed.
        GraphError: EK0412, a value that the dtype does not hold.
    """
    wanted = None if dtype is None else dtype_of("dtype", dtype)
    if isinstance(obj, Tensor):
        result = cast(obj if device is None else obj.to(device), wanted)
        if copy is False and result is not obj:
            _needs_copy()
        return python_copy.copy(obj) if copy and result is obj else result
    if copy is False:
        return _shared(obj, wanted, device)
    if isinstance(obj, np.ndarray | np.generic) or hasattr(obj, "__dlpack__"):
        return cast(Tensor.constant(obj, device=device), wanted)
    return Tensor.constant(_elements(obj, wanted), device=device)


def _elements(obj: object, dtype: DType | None) -> np.ndarray[Any, Any]:
    """The elements of numbers and lists. Floats are rounded; integers are those of their dtype, or refused."""
    if (dtype is None and _has(obj, complex)) or (dtype is not None and dtype.is_complex()):
        return literal_array(obj, dtype or COMPLEX, "asarray", user_place())
    wide = dtype is None or dtype.is_float()
    array = literal_array(obj, DType.float64 if wide and _has(obj, float) else dtype, "asarray", user_place())
    if not wide or array.dtype != np.float64:
        return array
    with np.errstate(over="ignore"):
        return rounded(array, dtype or REAL)


def _has(obj: object, kind: type) -> bool:
    """Whether a number of a kind is among numbers and lists of them; a float also where there is nothing at all."""
    if isinstance(obj, list | tuple):
        return any(_has(each, kind) for each in obj) or (not obj and kind is float)
    return isinstance(obj, kind)


def _shared(obj: object, dtype: DType | None, device: Place) -> Tensor:
    """A tensor over the memory of an array."""
    if not hasattr(obj, "__dlpack__"):
        _needs_copy()
    result = Tensor.from_dlpack(Buffer.from_dlpack(obj, copy=False))
    place = defaults(None, device)[1] if device is not None else result.device
    if place != result.device or dtype not in (None, result.dtype):
        _needs_copy()
    return result


def _needs_copy() -> None:
    raise DeviceError("copy=False, and a copy is needed", code="EK0804", place=user_place(), argument="copy")


@placed
def from_dlpack(x: object, /, *, device: Place = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of an array, which is not copied unless `copy` or `device` requests it."""
    if isinstance(x, Tensor):
        return asarray(x, device=device, copy=copy)
    result = Tensor.from_dlpack(Buffer.from_dlpack(x, copy=copy))
    return asarray(result, device=device, copy=False if copy is False else None)


@placed
def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: DType | None = None, device: Place = None
) -> Tensor:
    """start, start + step, … up to `stop`, which is left out; from 0 on where one number is given.

    The dtype is int64 of ints and float32 of floats, when it is left out.
    """
    first, last = (0, start) if stop is None else (start, stop)
    numbers = (first, last, step)
    chosen = dtype or (DType.int64 if all(isinstance(each, int) for each in numbers) else REAL)
    if (last - first) * step <= 0 and step != 0:
        return full((0,), 0, dtype=chosen, device=device)
    return Tensor.arange(*numbers, dtype=chosen, device=device)


@placed
def full(
    shape: Shape, fill_value: bool | complex | Tensor, *, dtype: DType | None = None, device: Place = None
) -> Tensor:
    """A tensor of one number, in the dtype of the number where none is given."""
    chosen = dtype_of_number(fill_value) if dtype is None else dtype_of("dtype", dtype)
    number = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    return Tensor.full(sizes_of(shape), number, dtype=chosen, device=device)


@placed
def zeros(shape: Shape, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """A tensor of zeros, of float32 where no dtype is given."""
    return full(shape, 0, dtype=dtype or REAL, device=device)


@placed
def ones(shape: Shape, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """A tensor of ones, of float32 where no dtype is given."""
    return full(shape, 1, dtype=dtype or REAL, device=device)


@placed
def empty(shape: Shape, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """As `zeros`: no memory is uninitialised here."""
    return full(shape, 0, dtype=dtype or REAL, device=device)


@placed
def full_like(
    x: Tensor, /, fill_value: bool | complex | Tensor, *, dtype: DType | None = None, device: Place = None
) -> Tensor:
    """A tensor of one number with the shape of another, and its dtype and device where none is given."""
    like = tensor("x", x)
    return full(shape_of("x", like), fill_value, dtype=dtype or like.dtype, device=device or like.device)


@placed
def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """A tensor of zeros, as `full_like`."""
    return full_like(x, 0, dtype=dtype, device=device)


@placed
def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """A tensor of ones, as `full_like`."""
    return full_like(x, 1, dtype=dtype, device=device)


@placed
def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: Place = None) -> Tensor:
    """As `zeros_like`."""
    return full_like(x, 0, dtype=dtype, device=device)


@placed
def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | None = None, device: Place = None
) -> Tensor:
    """Ones on a diagonal, zeros elsewhere: the main diagonal, or the one that lies k places to the right."""
    rows = int_of("n_rows", n_rows)
    columns = rows if n_cols is None else int_of("n_cols", n_cols)
    if not -rows < int_of("k", k) < columns:
        return zeros((rows, columns), dtype=dtype, device=device)
    down = F.unsqueeze(arange(rows, device=device), 1)
    across = F.unsqueeze(arange(columns, device=device), 0)
    return cast(F.equal(F.add(down, k), across), dtype or REAL)


@placed
def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Place = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` numbers at equal distances from `start` to `stop`, which is among them unless `endpoint` is False.

    They are computed in float64 and rounded once.
    """
    count, chosen = int_of("num", num), dtype or REAL
    first, last = float(start), float(stop)
    parts = count - 1 if endpoint else count
    places = arange(count, dtype=DType.float64, device=device)
    step = (last / parts - first / parts) if parts > 0 else 0.0
    numbers = F.add(F.mul(places, step), first)
    if endpoint and count > 1:
        numbers = F.where(F.equal(places, float(parts)), last, numbers)
    return cast(numbers, chosen)


@placed
def meshgrid(*arrays: Tensor, indexing: Literal["xy", "ij"] = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid: each tensor along an axis of its own; "xy" swaps the first two axes."""
    order = choice_of("indexing", indexing, known=("xy", "ij"), code="EK0819")
    rank = len(arrays)
    axes = list(range(rank))
    if order == "xy" and rank > 1:
        axes[:2] = [1, 0]
    sizes = [0] * rank
    for axis, each in zip(axes, arrays, strict=True):
        sizes[axis] = tensor("arrays", each).size
    shaped = [
        F.reshape(each, [each.size if k == axis else 1 for k in range(rank)])
        for axis, each in zip(axes, arrays, strict=True)
    ]
    return tuple(F.broadcast_to(each, sizes) for each in shaped)


@placed
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangle of each matrix, up to and with diagonal k; zeros above."""
    return F.tril(tensor("x", x), k)


@placed
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangle of each matrix, from diagonal k on; zeros below."""
    return F.triu(tensor("x", x), k)
