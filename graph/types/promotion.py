"""Decides which dtype an op computes in, and how plain numbers and arrays take part.

Tensors are *strong*: of their dtypes the one of the highest category (bool < unsigned < signed < float < complex) and,
in it, of the largest width is picked. Integers and bools combined with floats are rounded to them. An unsigned integer
that a signed one does not hold gives with it the smallest signed type that holds both, as in NumPy and the array API
standard. Else the dtype has to hold every value of the others, or the op is refused and the user casts.

    int8 and float16 -> float16        float16 and bfloat16 -> refused: neither holds the other
    uint8 and int16  -> int16          uint8 and int8       -> int16
    uint32 and int8  -> int64          uint64 and int64     -> refused: no integer type holds both

Python numbers, NumPy scalars and arrays, and other DLPack arrays are *weak*: they take the dtype that the tensors
agreed on. Floats are rounded to it but may not overflow it; integers must be exact in it; a float never becomes an
integer, nor a complex number a real one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import DTypeError, GraphError, brief
from ...dsl.diagnostics.places import Place
from ...dsl.types.dtype import DType
from ..driver.arrays import check_unmasked, lost, rounded
from ..driver.buffer import Buffer

_CATEGORIES = {"bool": 0, "uint": 1, "int": 2, "float": 3, "complex": 4}

MOST_DIGITS = 320  # of a number that is shown whole; float64 has 309 before the point


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    if wide is narrow:
        return True
    if wide.is_storage() or narrow.is_storage():  # cast by the user, never by an op
        return False
    if narrow is DType.bool:
        return True
    if wide.is_complex():
        return holds(wide.part, narrow.part)
    if narrow.is_complex():
        return False
    if wide.is_float():
        if narrow.is_float():  # float16 and bfloat16 hold neither each other; otherwise width decides
            return wide.bits > narrow.bits
        return max(abs(limit) for limit in narrow.range) <= 1 << (wide.mantissa + 1)
    if wide is DType.bool or narrow.is_float():
        return False
    return wide.range[0] <= narrow.range[0] and narrow.range[1] <= wide.range[1]


def _rounds(wide: DType, narrow: DType) -> bool:
    """Whether an op rounds `narrow` to `wide`: integers and bools, where they are combined with floats."""
    if wide.is_storage() or narrow.is_storage() or narrow.is_complex():
        return False
    return (wide.is_float() or wide.is_complex()) and not narrow.is_float()


def promote(dtypes: Iterable[DType], op: str, place: Place | None = None) -> DType:
    """The dtype that strong operands of these dtypes compute in.

    Raises:
        DTypeError: EK0410, the picked dtype cannot hold all values of another, and does not round them.
    """
    known = list(dtypes)
    picked = max(known, key=lambda dtype: (_CATEGORIES[dtype.kind], dtype.bits))
    if picked.is_signed_integral():
        unsigned = max(
            (dtype.bits for dtype in known if dtype.is_unsigned_integral() and not dtype.is_storage()), default=0
        )
        if not picked.is_storage() and picked.bits <= unsigned < 64:
            picked = DType[f"int{2 * unsigned}"]
    if picked is DType.complex64 and DType.float64 in known:
        picked = DType.complex128
    for dtype in known:
        if not holds(picked, dtype) and not _rounds(picked, dtype):
            wider = dtype.complex_dtype if picked.is_complex() else picked
            raise DTypeError(
                f"{op}: {dtype} and {picked} do not go together: {picked} cannot hold every value of {dtype}",
                code="EK0410",
                place=place,
                op=op,
                expected=str(picked),
                got=str(dtype),
                hint=f"cast one of them, as in ops.cast(x, DType.{wider})",
            )
    return picked


def is_weak(value: object) -> bool:
    """Whether this is a number or array that takes the dtype of the tensors it is combined with."""
    return isinstance(value, bool | int | float | complex | np.generic | np.ndarray) or hasattr(value, "__dlpack__")


def weak_array(value: object, dtype: DType, op: str, argument: str, place: Place | None = None) -> np.ndarray[Any, Any]:
    """A weak value as an array of `dtype`.

    Raises:
        GraphError: EK0412, the value is not exact in an integer type, or overflows a float type.
        DTypeError: EK0413, its own dtype has no counterpart here.
    """

    def refuse(given: object, why: str, hint: str) -> GraphError:
        shown = str(given) if isinstance(given, str | np.generic) else brief(given, MOST_DIGITS)
        return GraphError(
            f"{op}: {shown} {why} {dtype}, the dtype required for '{argument}'",
            code="EK0412",
            place=place,
            op=op,
            argument=argument,
            expected=str(dtype),
            got=shown,
            hint=hint,
        )

    check_unmasked(value, argument, op)
    if dtype.is_complex():
        source = np.asarray(value)  # a tensor of another library, too
        parts = [part if source.ndim else part.item() for part in (source.real, source.imag)]
        if source.dtype.kind != "c":
            return weak_array(value, dtype.part, op, argument, place).astype(dtype.to_numpy())
        joined = np.empty(source.shape, dtype.to_numpy())
        joined.real, joined.imag = (weak_array(part, dtype.part, op, argument, place) for part in parts)
        return joined
    if isinstance(value, int):  # bool too; and ints that no NumPy type holds
        return np.array(_exact_int(int(value), dtype, refuse), dtype.to_numpy())
    source = (
        np.asarray(value)
        if not hasattr(value, "__dlpack__") or isinstance(value, np.ndarray | np.generic)
        else (Buffer.from_dlpack(value).to_numpy())
    )
    own = _own_dtype(source, op, argument, place)
    if own.is_complex():
        shown = value if isinstance(value, complex) else f"an array of {own}"
        raise refuse(shown, "is complex and cannot become", f"cast the tensor to {dtype.complex_dtype}")
    if own.is_float():
        if not dtype.is_float():
            shown = value if isinstance(value, float) else f"an array of {own}"
            raise refuse(shown, "is a float and cannot become", "cast the tensor, or write an integer")
        with np.errstate(over="ignore", invalid="ignore"):
            result = rounded(source, dtype)
            wrong = lost(source, result, dtype)
        if wrong.any():
            raise refuse(source[wrong].reshape(-1)[0], "overflows", "cast the tensor to a wider dtype")
        return result
    return _exact_array(source, dtype, refuse)


def _own_dtype(source: np.ndarray[Any, Any], op: str, argument: str, place: Place | None) -> DType:
    try:
        return DType.from_numpy(source.dtype)
    except DTypeError as error:
        raise DTypeError(
            f"{op}: argument '{argument}': {error.message}",
            code="EK0413",
            place=place,
            op=op,
            argument=argument,
            expected=error.expected,
            got=error.got,
            hint=error.hint,
        ) from None


def _exact_int(value: int, dtype: DType, refuse: Any) -> int | float:
    if dtype.is_float():
        from fractions import Fraction  # most runs have no use for it

        nearest = dtype.format.round(Fraction(value))
        if nearest != value:
            raise refuse(value, "is not exact in", f"write {brief(value, MOST_DIGITS)}.0 to have it rounded")
        return nearest
    low, high = dtype.range
    if not low <= value <= high:
        raise refuse(value, "does not fit", f"{dtype} holds {low} to {high}; cast the tensor to a wider dtype")
    return value


def _exact_array(source: np.ndarray[Any, Any], dtype: DType, refuse: Any) -> np.ndarray[Any, Any]:
    """Integers or bools as `dtype`: the extremes determine whether they fit, a round trip whether a float holds
    them."""
    if source.dtype.name in ("int4", "uint4"):  # whose extremes NumPy does not find
        source = source.astype(np.int8)
    if source.size and not dtype.is_float():
        for extreme in (int(source.min()), int(source.max())):
            _exact_int(extreme, dtype, refuse)
        return source.astype(dtype.to_numpy())
    with np.errstate(over="ignore"):
        result = rounded(source, dtype)
    if dtype.is_float() and source.size:
        wrong = _differs(result, source)
        if wrong.any():
            raise refuse(source[wrong].reshape(-1)[0], "is not exact in", "convert the array to floats to round it")
    return result


def _differs(rounded: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # A comparison of an int64 with a float64 would round the integer, so the way back is through integers; a float
    # outside the integer's range has no way back, and what the processor makes of it cannot be trusted.
    if exact.dtype.kind not in "iu":
        return np.zeros(exact.shape, np.bool_)
    limits = np.iinfo(exact.dtype)
    wide = np.asarray(rounded, np.float64)
    inside = _inside(wide, int(limits.min), int(limits.max))
    wrong: np.ndarray[Any, Any] = ~inside | (np.where(inside, wide, 0).astype(exact.dtype) != exact)
    return wrong


def _inside(wide: np.ndarray[Any, Any], low: int, high: int) -> np.ndarray[Any, Any]:
    # The maximum of a 64-bit integer is not a float; the bound above it is, and both round to it.
    inside: np.ndarray[Any, Any] = (wide >= float(low)) & (wide < float(high) + 1.0)
    return inside


def literal_array(value: object, dtype: DType | None, op: str, place: Place | None = None) -> np.ndarray[Any, Any]:
    """The array that a literal stands for, contiguous and a copy.

    Without `dtype`, arrays keep theirs; Python's bools become bool, ints int64, floats float32, complex numbers
    complex64. With it, values are rounded to it, but an integer type takes neither fractions nor values out of its
    range, and bool only 0 and 1.

    Raises:
        DTypeError: EK0413, the value is not a number, or its dtype has no counterpart here.
        GraphError: EK0412, a value cannot be represented.
    """
    check_unmasked(value, "value", op)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
        value = Buffer.from_dlpack(value).to_numpy()
    try:
        source = np.asarray(value)
    except ValueError as error:
        raise GraphError(f"{op}: {error}", code="EK0412", place=place, op=op, argument="value") from None
    plain = not isinstance(value, np.ndarray | np.generic)
    if plain and source.dtype.kind == "f" and dtype is None:
        dtype = DType.float32
    if plain and source.dtype.kind == "c" and dtype is None:
        dtype = DType.complex64
    own = _own_dtype(source, op, "value", place)
    if dtype is not None and dtype.is_complex() and dtype is not own:
        joined = np.empty(source.shape, dtype.to_numpy())
        joined.real, joined.imag = (literal_array(each, dtype.part, op, place) for each in (source.real, source.imag))
        return joined
    if own.is_complex() and dtype is not None and dtype is not own:
        text = f"{op}: complex numbers have no place in {dtype}"
        hint = f"take the real parts, or write dtype=DType.{dtype.complex_dtype}"
        raise GraphError(text, code="EK0412", place=place, op=op, argument="value", expected=str(dtype), hint=hint)
    if dtype is None or dtype is own:
        return np.array(source, own.to_numpy(), order="C")
    with np.errstate(all="ignore"):
        if own.is_storage() and not own.is_float():
            source = source.astype(np.int8)
        result = np.array(rounded(source, dtype), order="C")
        if dtype.is_float():
            wrong = lost(source, result, dtype)
        elif own.is_float():
            wide = source.astype(np.float64)
            wrong = ~_inside(wide, *dtype.range) | (wide != np.trunc(wide))
        else:
            low, high = dtype.range
            wrong = np.zeros(source.shape, np.bool_)
            if source.size and not low <= int(source.min()) <= int(source.max()) <= high:
                wrong = (source == source.min()) if int(source.min()) < low else (source == source.max())
    if wrong.any():
        shown = source[wrong].reshape(-1)[0]
        raise GraphError(
            f"{op}: {shown} cannot be represented in {dtype}",
            code="EK0412",
            place=place,
            op=op,
            argument="value",
            expected=str(dtype),
            got=shown,
        )
    return result
