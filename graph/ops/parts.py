"""Stages what takes complex numbers apart and makes them: real and imaginary parts, conjugates, pairs of floats.

See also `elementwise` (arithmetic), `complex`, `signal` (pairs that stand for complex numbers in tensors of floats).
"""

from __future__ import annotations

from ...dsl.types.dtype import DType
from ..staging.value import TensorValue, TensorValueLike
from .operands import as_real, broadcast, cast_to, check_kind, joined_parts, parts_kernel, tensor, tensors
from .signal import check_pairs
from .stage import builtin, op

__all__ = ["angle", "complex_of", "conj", "imag", "real", "view_as_complex", "view_as_real"]


@op(dtypes={"x": "number"}, example="ops.real(x)")
def real(x: TensorValueLike) -> TensorValue:
    """The real parts of complex numbers, as floats; other numbers as they are."""
    value = tensor("real", "x", x)
    check_kind("real", "x", value, "number")
    return parts_kernel("real", value) if value.dtype.is_complex() else value


@op(dtypes={"x": "number"}, example="ops.imag(x)")
def imag(x: TensorValueLike) -> TensorValue:
    """The imaginary parts of complex numbers, as floats; zeros of other numbers."""
    value = tensor("imag", "x", x)
    check_kind("imag", "x", value, "number")
    return parts_kernel("imag", value) if value.dtype.is_complex() else value * 0


@op(dtypes={"x": "number"}, example="ops.conj(x)")
def conj(x: TensorValueLike) -> TensorValue:
    """Complex numbers with the opposite imaginary parts; other numbers as they are."""
    value = tensor("conj", "x", x)
    check_kind("conj", "x", value, "number")
    return builtin("complex", "conj", [value])[0] if value.dtype.is_complex() else value


@op(dtypes={"x": "complex"}, example="ops.angle(x)")
def angle(x: TensorValueLike) -> TensorValue:
    """The angles of complex numbers to the positive real ones, from -pi to pi."""
    value = tensor("angle", "x", x)
    check_kind("angle", "x", value, "complex")
    return parts_kernel("angle", value)


@op(dtypes={"real": "float", "imag": "float"}, example="ops.complex_of(real, imag)")
def complex_of(real: TensorValueLike, imag: TensorValueLike) -> TensorValue:
    """The complex numbers of two parts: complex128 of float64, else complex64. The parts broadcast."""
    left, right = tensors("complex_of", real=real, imag=imag)
    check_kind("complex_of", "real", left, "float")
    wide = DType.float64 if left.dtype is DType.float64 else DType.float32
    parts = broadcast("complex_of", {"real": cast_to(left, wide), "imag": cast_to(right, wide)})
    return builtin("complex", "complex_of", parts, {}, [parts[0].type.with_dtype(wide.complex_dtype)])[0]


@op(dtypes={"x": "complex"}, example="ops.view_as_real(x)")
def view_as_real(x: TensorValueLike) -> TensorValue:
    """Complex numbers as pairs of real and imaginary part, in a last axis of size 2."""
    value = tensor("view_as_real", "x", x)
    check_kind("view_as_real", "x", value, "complex")
    return as_real(value)


@op(dtypes={"x": "float"}, example="ops.view_as_complex(x)")
def view_as_complex(x: TensorValueLike) -> TensorValue:
    """Pairs of real and imaginary part, in a last axis of size 2, as complex numbers; half types become complex64.

    Raises:
        GraphError: EK0421, the last axis has not size 2.
    """
    value = tensor("view_as_complex", "x", x)
    check_kind("view_as_complex", "x", value, "float")
    check_pairs("view_as_complex", "x", value)
    return joined_parts(cast_to(value, DType.float64 if value.dtype is DType.float64 else DType.float32))
