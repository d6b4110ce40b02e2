"""Reads and checks arrays of the host: sizes, addresses for native code, rounding, and what may be written where.

See also `host`.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ...dsl.diagnostics.errors import DeviceError, DTypeError, EinkornError, GraphError, brief
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import raise_if_of_handler
from ...dsl.types.dtype import DType
from ..arguments import LIMIT, check_bytes, choice_of, int_of, least_bytes, list_of, wrong
from .device import Array, DeviceMemory, Storage

MOST_AXES = 64  # that an array of NumPy has


def sizes_of(shape: Iterable[int], dtype: DType) -> tuple[int, ...]:
    """The shape of a buffer as plain ints.

    Raises:
        GraphError: EK0805 something is not a size, EK0476 the buffer would take more bytes than 64 bits count.
    """
    given = list_of("shape", shape, "sizes", "EK0805")
    sizes = tuple(int_of(f"shape[{k}]", size, "EK0805", "an int >= 0") for k, size in enumerate(given))
    for k, size in enumerate(sizes):
        if size < 0:
            wrong(f"shape[{k}]", size, "an int >= 0", code="EK0805")
    check_bytes(least_bytes(dtype, sizes), lambda: f"a buffer of {dtype} with the shape {brief(sizes)}")
    return sizes


def mapped(filename: Any, dtype: DType, sizes: tuple[int, ...], mode: Any, offset: int) -> Array:
    """A file's bytes from `offset` on as an array; of a packed dtype as bytes.

    Raises:
        DeviceError: EK0810 the file cannot be read, or is too short.
    """
    choice_of("mode", mode, ("readonly", "r", "copyonwrite", "c", "readwrite", "r+"), "EK0810")
    if not isinstance(filename, str | os.PathLike):
        wrong("filename", filename, "a path", code="EK0810")
    if int_of("offset", offset, "EK0810") < 0:
        wrong("offset", offset, "an int from 0 on", code="EK0810")
    packed = dtype.is_packed()
    shape = (dtype.bytes_for(math.prod(sizes)),) if packed else sizes
    try:
        return np.memmap(filename, np.uint8 if packed else dtype.to_numpy(), mode, offset, shape)
    except (OSError, ValueError, OverflowError) as error:
        raise_if_of_handler(error)
        raise DeviceError(f"cannot map {brief(os.fspath(filename))}: {error}", code="EK0810") from error


def rounded(source: Array, dtype: DType) -> Array:
    """An array in another dtype: floats rounded once, to nearest, ties to even, as kernels round them.

    NumPy's own casts do so too, but for the types of ml_dtypes: these go through float32 and round there first.
    """
    numpy_dtype = dtype.to_numpy()
    if source.dtype == numpy_dtype:
        return source
    if not (dtype.is_float() and dtype.bits <= 16) or dtype is DType.float16:
        return source.astype(numpy_dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        single = _to_odd(source)
        out = np.asarray(single.astype(numpy_dtype))
    if dtype.is_storage():
        codes = out.view(np.uint8)
        codes[np.isnan(single)] = dtype.format.nan
        if dtype.format.family == "scale":  # ml_dtypes takes what is subnormal in float32 for the number above
            low = (single > 0) & (single < 2.0**-126)
            codes[low] = single[low] >= 1.5 * 2.0**-127
    return out


def lost(source: Array, result: Array, dtype: DType) -> Array:
    """Which numbers of `source` became none in `result`, which is `source` rounded to the float type `dtype`: those
    beyond its largest, and those that it lacks (infinities, NaN, 0 and what is below it in a scale)."""
    with np.errstate(invalid="ignore", over="ignore"):
        wide, narrow = source.astype(np.float64), result.astype(np.float64)
    out: Array = (np.isinf(narrow) & ~np.isinf(wide)) | (np.isnan(narrow) & ~np.isnan(wide))
    if not dtype.format.has_nan:
        format = dtype.format
        largest, next_one = format.decode(format.largest), format.decode(format.largest - 1)
        out |= np.isnan(wide) | (np.abs(wide) >= largest + (largest - next_one) / 2)
    return out


def _to_odd(source: Array) -> Array:
    """Numbers as float32, so that rounding once more gives the result of one rounding: what float32 cannot hold becomes
    the neighbour towards zero with its last bit set."""
    near = np.array(source, np.float32)
    if source.dtype.kind in "iu" and source.dtype.itemsize >= 4:
        differ = np.frompyfunc(lambda value, exact: abs(int(value)) - abs(exact), 2, 1)  # in Python's integers
        above = np.asarray(differ(near, source.astype(object)) > 0, np.bool_)
        inexact = np.asarray(differ(near, source.astype(object)) != 0, np.bool_)
    elif source.dtype == np.float64:
        above, inexact = np.abs(near.astype(np.float64)) > np.abs(source), near != source
        inexact &= ~np.isnan(source)
    else:
        return near
    bits = near.view(np.uint32)
    return np.where(inexact, (bits - above) | 1, bits).astype(np.uint32).view(np.float32)


def address_of(array: Array) -> int:
    """Where an array's elements lie.

    `array.ctypes.data` builds an object each time (1.5 us). The pointer is the first field behind CPython's object
    header, as NumPy's binary interface fixes it (`PyArrayObject_fields`); `_DIRECT` says whether that holds here.
    """
    if _DIRECT:
        return _POINTER.from_address(id(array) + _HEADER).value or 0
    return int(array.ctypes.data)


_POINTER = ctypes.c_void_p
_HEADER = object.__basicsize__


def _header_holds() -> bool:
    probe = np.arange(8.0)[3:]
    return sys.implementation.name == "cpython" and (
        _POINTER.from_address(id(probe) + _HEADER).value == probe.ctypes.data
    )


_DIRECT = _header_holds()


class PinnedMemory:
    """Memory of the host that a library of GPUs has made; `free` is called when nothing refers to it any more."""

    def __init__(self, address: int, size: int, free: Callable[[int], object]) -> None:
        self.address, self._free = address, free
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}

    def __del__(self) -> None:
        self._free(self.address)


def is_pinned(array: object) -> bool:
    """Whether an array lies in pinned memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, PinnedMemory)


def check_memory(names: Sequence[str], arrays: Sequence[Storage], changed: Sequence[int]) -> None:
    """The inputs of a call that a graph changes in place can be written, and share nothing with the others.

    Args:
        names: what the inputs are called in errors.
        arrays: where they lie.
        changed: the positions of those that are changed.

    Raises:
        GraphError: EK0461 one is read-only; EK0462 one overlaps another input, or itself.
    """
    for number in changed:
        name, array = names[number], arrays[number]
        if isinstance(array, np.ndarray) and not array.flags.writeable:
            raise GraphError(
                f"'{name}' is changed in place, and the array is read-only",
                code="EK0461",
                place=user_place(),
                argument=name,
                expected="an array that can be written",
                got="a read-only array",
                hint="pass an array of its own: x.copy()",
            )
        for other, theirs in enumerate(arrays):
            if other != number and _overlap(array, theirs):
                raise _shared(f"'{name}' is changed in place, and shares memory with '{names[other]}'", name)
        if isinstance(array, np.ndarray) and array.size > 1 and not _apart(array):
            raise _shared(f"'{name}' is changed in place, and its elements share memory with each other", name)


def check_outputs(names: Sequence[str], inputs: Sequence[Storage], outputs: Sequence[Storage | None]) -> None:
    """The memory that a caller gives for outputs can be written, and shares nothing with inputs or other outputs.

    Raises:
        GraphError: EK0461 one is read-only; EK0462 one overlaps an input, another output, or itself.
    """
    for number, array in enumerate(outputs):
        if array is None:
            continue
        if isinstance(array, np.ndarray) and not array.flags.writeable:
            raise GraphError(
                f"out[{number}] is written, and the array is read-only",
                code="EK0461",
                place=user_place(),
                argument=f"out[{number}]",
                expected="an array that can be written",
                got="a read-only array",
            )
        others = [(f"'{name}'", other) for name, other in zip(names, inputs, strict=True)]
        others += [(f"out[{k}]", other) for k, other in enumerate(outputs[:number]) if other is not None]
        for name, other in others:
            if _overlap(array, other):
                raise _shared(f"out[{number}] shares memory with {name}", f"out[{number}]")
        if isinstance(array, np.ndarray) and array.size > 1 and not (array.flags.c_contiguous or _apart(array)):
            raise _shared(f"elements of out[{number}] share memory with each other", f"out[{number}]")


def _overlap(a: Storage, b: Storage) -> bool:
    if isinstance(a, DeviceMemory) and isinstance(b, DeviceMemory):
        return a is b or (a.address < b.address + b.size and b.address < a.address + a.size)
    if isinstance(a, DeviceMemory) or isinstance(b, DeviceMemory):
        return False
    if not np.may_share_memory(a, b):  # compares bounds; without an overlap of these there is none
        return False
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]  # NumPy's stub has 0 and -1 only
    except np.exceptions.TooHardError:
        return True


def _apart(array: Array) -> bool:
    """Whether each element has memory of its own: every stride steps over all that the smaller strides reach."""
    reach = array.itemsize
    for stride, size in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride < reach:
            return False
        reach = stride * (size - 1) + reach
    return True


def _shared(message: str, argument: str) -> GraphError:
    return GraphError(
        message,
        code="EK0462",
        place=user_place(),
        argument=argument,
        expected="memory of its own",
        got="shared memory",
        hint="pass a copy of one of them",
    )


def index_of(index: object) -> tuple[Any, ...]:
    """What a view of a buffer is indexed by: ints, slices, None and '...'.

    Raises:
        GraphError: EK0805 something else.
        IndexError: a number that no axis has.
    """
    items = index if isinstance(index, tuple) else (index,)
    slices = [item for item in items if isinstance(item, slice)]
    for bound in (b for s in slices for b in (s.start, s.stop, s.step) if b is not None):
        int_of("index", bound, "EK0805")
    if any(isinstance(item, int) and abs(item) > LIMIT for item in items):
        raise IndexError("an index is out of bounds: it needs more than 64 bits")
    for item in items:
        if not (item is None or item is Ellipsis or isinstance(item, slice | int | np.integer)) or item is True:
            raise GraphError(
                f"a buffer is indexed by ints, slices, None and '...', not by {type(item).__name__}",
                code="EK0805",
                got=type(item).__name__,
                hint="index the array that to_numpy() returns",
            )
    return items


def check_unmasked(value: object, argument: str, op: str | None = None, depth: int = 0) -> None:
    """Refuses a masked array, also within lists: what its mask hides would be read like all else.

    Raises:
        DTypeError: EK0477.
    """
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())  # imported by code that has made one
    if isinstance(value, masked):
        raise DTypeError(
            f"{op + ': ' if op else ''}'{argument}' is a masked array, and its mask would be lost",
            code="EK0477",
            place=user_place(),
            op=op,
            argument=argument,
            expected="an array without a mask",
            got=type(value).__name__,
            hint="choose a value for masked elements: x.filled(0)",
        )
    if isinstance(value, list | tuple) and depth < MOST_AXES:
        for item in value:
            check_unmasked(item, argument, op, depth + 1)


def source_of(value: object) -> Array:
    """What is written into a buffer, as an array.

    Raises:
        GraphError: EK0805 lists of different lengths.
        DTypeError: EK0477 a masked array, EK0803 what is not a number.
    """
    check_unmasked(value, "value")
    try:
        return np.asarray(value)
    except EinkornError:
        raise
    except Exception as error:
        raise_if_of_handler(error)
        if isinstance(error, ValueError):
            raise GraphError(f"cannot write it: {error}", code="EK0805", argument="value") from error
        wrong("value", value, "a number, an array or a Buffer", code="EK0803", kind=DTypeError)


def check_storable(source: Array, value: object, dtype: DType) -> None:
    """Writing may round a float, never drop a fraction, a sign or high bits.

    `value` is what the user gave, `source` the same as an array.

    Raises:
        DTypeError: EK0803 the dtype does not hold numbers of this kind.
        GraphError: EK0805 a number is out of its range.
    """
    known = DType.__members__.get(source.dtype.name)
    kind = known.kind[0] if known else source.dtype.kind
    if kind not in ("cfiub" if dtype.is_complex() else "fiub" if dtype.is_float() else "iub"):
        raise DTypeError(
            f"cannot write {brief(value) if source.ndim == 0 else source.dtype} into a buffer of {dtype}",
            code="EK0803",
            expected=str(dtype),
            got=str(source.dtype),
            hint="convert the values first",
        )
    if not (dtype.is_float() or dtype.is_complex()) and source.size:
        low, high = dtype.range
        if known is not None and known.is_storage():
            source = source.astype(np.int64)
        if int(source.min()) < low or int(source.max()) > high:
            raise GraphError(
                f"a value is out of the range of {dtype}",
                code="EK0805",
                expected=f"{low} to {high}",
                got=brief(value),
            )


ROUNDING = 8  # units in the last place, by which results may differ that are rounded in another order


def rounding(array: np.ndarray[Any, Any]) -> tuple[float, float]:
    """How far from these floats others may be that were rounded in another order: of each, and of all.

    A few huge elements say nothing about the others: the scale of all is that of the middle of them.

    Raises:
        ValueError: they are not floats.
    """
    unit = ROUNDING * float(ml_dtypes.finfo(array.dtype).eps)  # type: ignore[no-untyped-call]
    with np.errstate(all="ignore"):
        sizes = np.abs(array.astype(np.float64))
    finite = sizes[np.isfinite(sizes)]
    return unit, unit * (float(np.quantile(finite, 0.75)) if finite.size else 0.0)
