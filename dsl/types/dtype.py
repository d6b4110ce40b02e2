"""Defines element types, and the value types that a kernel can name.

`DType` is the one description of an element type that all floors share: the language writes its members small
(`float32`), the graph writes `DType.float32`. `SIMDType` is the type of a run-time value: a dtype and a width, where
width 1 is a scalar (`Float32` is `SIMD[float32, 1]`).
"""

from __future__ import annotations

import builtins
import importlib
from enum import Enum
from typing import TYPE_CHECKING, Any

from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import DTypeError
from ..diagnostics.shield import shielded
from .formats import FloatFormat

if TYPE_CHECKING:
    import numpy as np


class DType(Enum):
    """An element type: its kind, its width in bits, and the limits that follow from them.

    *Storage types* (4-bit integers, floats below 16 bits) are loaded, stored, chosen and cast; arithmetic is for the
    types that they are cast to. Elements of 4 bits are *packed*: two share a byte, the first in its low half. Floats of
    6 bits take a byte each, in its low bits. A complex element is two floats, the real part first.
    """

    bool = ("bool", 8)
    int4 = ("int", 4)
    int8 = ("int", 8)
    int16 = ("int", 16)
    int32 = ("int", 32)
    int64 = ("int", 64)
    uint4 = ("uint", 4)
    uint8 = ("uint", 8)
    uint16 = ("uint", 16)
    uint32 = ("uint", 32)
    uint64 = ("uint", 64)
    float4_e2m1fn = ("float", 4, FloatFormat(2, 1, 1, "finite"))
    float6_e2m3fn = ("float", 6, FloatFormat(2, 3, 1, "finite"))
    float6_e3m2fn = ("float", 6, FloatFormat(3, 2, 3, "finite"))
    float8_e4m3fn = ("float", 8, FloatFormat(4, 3, 7, "fn"))
    float8_e4m3fnuz = ("float", 8, FloatFormat(4, 3, 8, "fnuz"))
    float8_e5m2 = ("float", 8, FloatFormat(5, 2, 15))
    float8_e5m2fnuz = ("float", 8, FloatFormat(5, 2, 16, "fnuz"))
    float8_e8m0fnu = ("float", 8, FloatFormat(8, 0, 127, "scale"))
    float16 = ("float", 16, FloatFormat(5, 10, 15))
    bfloat16 = ("float", 16, FloatFormat(8, 7, 127))
    float32 = ("float", 32, FloatFormat(8, 23, 127))
    float64 = ("float", 64, FloatFormat(11, 52, 1023))
    complex64 = ("complex", 64)
    complex128 = ("complex", 128)

    def __init__(self, kind: str, bits: int, format: FloatFormat | None = None) -> None:
        self.kind = kind
        self.bits = bits
        self._format = format
        self.mantissa = format.mantissa if format is not None else 0

    __hash__ = object.__hash__  # members are one each; an enum's own requests the hash of a name every time

    @property
    def format(self) -> FloatFormat:
        """Which numbers the patterns of a floating-point type mean."""
        if self._format is None:
            raise TypeError(f"{self} is not a floating-point type")
        return self._format

    @property
    def memory_bits(self) -> int:
        """Bits that one element takes in memory."""
        return 8 if self.bits == 6 else self.bits

    @property
    def size_in_bytes(self) -> int:
        """Bytes that one element takes in memory. Two elements of a packed type share one: see `bytes_for`."""
        if self.is_packed():
            raise TypeError(f"an element of {self} takes half a byte: use bytes_for(count)")
        return self.memory_bits // 8

    def bytes_for(self, count: int) -> int:
        """Bytes that `count` elements take, one behind the other; the last byte of a packed type may be half empty."""
        return (count + 1) // 2 if self.is_packed() else count * self.size_in_bytes

    def is_packed(self) -> builtins.bool:
        """Whether two elements share a byte."""
        return self.bits == 4

    def __or__(self, other: object) -> Any:
        """`float32 | None` in an annotation, which kernels read from the text."""
        return Any

    __ror__ = __or__

    def is_storage(self) -> builtins.bool:
        """Whether values are only stored and cast, and never computed with."""
        return self.bits < (16 if self.kind == "float" else 8)

    def is_float(self) -> builtins.bool:
        """Whether this is a floating-point type."""
        return self.kind == "float"

    def is_complex(self) -> builtins.bool:
        """Whether elements are complex numbers."""
        return self.kind == "complex"

    @property
    def part(self) -> DType:
        """The floating-point type of the real and the imaginary part; this one where it is not complex."""
        return {64: DType.float32, 128: DType.float64}[self.bits] if self.kind == "complex" else self

    @property
    def complex_dtype(self) -> DType:
        """The complex type whose parts hold the values of this one: complex64 for float32 and types below it."""
        if self.kind == "complex":
            return self
        wide = self is DType.float64 or (self.is_integral() and self.bits > 16)
        return DType.complex128 if wide else DType.complex64

    def is_integral(self) -> builtins.bool:
        """Whether this is a signed or unsigned integer type; bool is not."""
        return self.kind in ("int", "uint")

    def is_signed(self) -> builtins.bool:
        """Whether values can be negative."""
        return self.kind in ("int", "complex") or (self.kind == "float" and self.format.sign != 0)

    def is_signed_integral(self) -> builtins.bool:
        """Whether this is a signed integer type."""
        return self.kind == "int"

    def is_unsigned_integral(self) -> builtins.bool:
        """Whether this is an unsigned integer type."""
        return self.kind == "uint"

    def is_float8(self) -> builtins.bool:
        """Whether this is one of the 8-bit floating types."""
        return self.kind == "float" and self.bits == 8

    @property
    def size_in_bits(self) -> int:
        """Bits that one element takes in memory."""
        return self.memory_bits

    @property
    def align(self) -> int:
        """Bytes of which the address of an element is a multiple; 1 for packed types."""
        return 1 if self.is_packed() else self.part.size_in_bytes

    def is_half(self) -> builtins.bool:
        """Whether this is one of the 16-bit floating types, which compute through float32."""
        return self.kind == "float" and self.bits == 16

    def sum_dtype(self) -> DType:
        """The dtype of sums and products, as in NumPy: int64 or uint64 of integers, int64 of bools, else this one."""
        if self.is_float() or self.is_complex():
            return self
        return DType.uint64 if self.is_unsigned_integral() else DType.int64

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest integer value of a bool or integer type."""
        if self.kind == "bool":
            return 0, 1
        if self.kind == "uint":
            return 0, (1 << self.bits) - 1
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        raise TypeError(f"{self} has no integer range")

    def to_numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; those that NumPy lacks come from ml_dtypes, where every element takes a byte or more.

        So there is one for each, bfloat16 among them, and nothing is refused.
        """
        import numpy

        if self.is_storage() or self is DType.bfloat16:
            with shielded():
                import ml_dtypes

            dtype: np.dtype[Any] = numpy.dtype(getattr(ml_dtypes, self.name))
            return dtype
        return numpy.dtype(self.name)

    @staticmethod
    def from_numpy(dtype: Any) -> DType:
        """The DType of a NumPy dtype or of anything that NumPy takes for one.

        Raises:
            DTypeError: NumPy's type has no counterpart here (structured, byte-swapped, …).
        """
        known = _KNOWN.get(dtype)
        if known is not None:
            return known
        import numpy

        numpy_dtype = numpy.dtype(dtype)
        member = DType.__members__.get(numpy_dtype.name)
        if member is None or not numpy_dtype.isnative:
            raise DTypeError(
                f"NumPy's dtype {numpy_dtype!s} has no counterpart in Einkorn",
                code="EK0201",
                expected=", ".join(DType.__members__),
                got=str(numpy_dtype),
                hint=None if numpy_dtype.isnative else 'convert it: x.astype(x.dtype.newbyteorder("="))',
            )
        if isinstance(dtype, numpy.dtype):
            _KNOWN[dtype] = member
        return member

    def to_torch(self) -> Any:
        """PyTorch's dtype of this name.

        Raises:
            RuntimeError: PyTorch is not installed.
            DTypeError: it has none (a ValueError, too).
        """
        try:
            torch = importlib.import_module("torch")
        except ImportError as error:
            raise RuntimeError("DType.to_torch needs PyTorch, which is not installed") from error
        result = getattr(torch, self.name, None)
        if not isinstance(result, torch.dtype):
            raise DTypeError(f"PyTorch has no dtype {self}", code="EK0201", expected="a dtype of torch", got=str(self))
        return result

    @staticmethod
    def from_torch(dtype: object) -> DType:
        """The DType of a dtype of PyTorch's.

        Raises:
            DTypeError: it has no counterpart here (a ValueError, too).
        """
        name = str(dtype).removeprefix("torch.")
        member = DType.__members__.get(name)
        if member is None or not str(dtype).startswith("torch."):
            raise DTypeError(
                f"{dtype} has no counterpart in Einkorn",
                code="EK0201",
                expected=", ".join(DType.__members__),
                got=str(dtype),
            )
        return member

    def __repr__(self) -> str:
        return f"DType.{self.name}"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class finfo:
    """What a floating-point type holds: `finfo(DType.bfloat16).max`.

    Attributes:
        dtype: the type.
        bits: of an element.
        eps: the step from 1 to the next number.
        max, min: the largest and the smallest number; a scale has no sign, and its smallest is above 0.
        tiny: the smallest number that is not subnormal.
    """

    dtype: DType

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, DType) or not self.dtype.is_float():
            raise DTypeError(f"{self.dtype} is not a floating-point type", code="EK0201", argument="dtype")

    @property
    def bits(self) -> int:
        return self.dtype.bits

    @property
    def eps(self) -> float:
        return float(2.0**-self.dtype.mantissa)

    @property
    def max(self) -> float:
        return float(self.dtype.format.decode(self.dtype.format.largest))

    @property
    def min(self) -> float:
        return self.tiny if not self.dtype.is_signed() else -self.max

    @property
    def tiny(self) -> float:
        format = self.dtype.format
        return float(2.0 ** (-format.bias if format.family == "scale" else 1 - format.bias))

    @property
    def smallest_normal(self) -> float:
        """Another name of `tiny`."""
        return self.tiny


_KNOWN: dict[object, DType] = {}  # NumPy dtypes that were seen before

FLOATING = (DType.float32, DType.float64, DType.float16, DType.bfloat16)
SIGNED = (DType.int32, DType.int64, DType.int8, DType.int16)
UNSIGNED = (DType.uint8, DType.uint16, DType.uint32, DType.uint64)
INTEGRAL = SIGNED + UNSIGNED
NUMERIC = FLOATING + INTEGRAL
ANY = (*NUMERIC, DType.bool)
APPROXIMATED = (DType.float32, DType.float16, DType.bfloat16)  # by instructions of GPUs, with fast=True
STORAGE = tuple(dtype for dtype in DType if dtype.is_storage())
COMPLEX = (DType.complex64, DType.complex128)
INEXACT = FLOATING + COMPLEX
NUMBER = NUMERIC + COMPLEX
COMPARABLE = (*ANY, *COMPLEX)
STORABLE = (*ANY, *STORAGE, *COMPLEX)


@dataclass(frozen=True)
class SIMDType:
    """The type of a run-time value: `width` lanes of `dtype`. Width 1 is a scalar."""

    dtype: DType
    width: int = 1

    # As a dataclass has them, without the tuples: types are compared and are keys at every operation.

    def __eq__(self, other: object) -> builtins.bool:
        if self is other:
            return True
        if other.__class__ is not SIMDType:
            return NotImplemented
        return self.dtype is other.dtype and self.width == other.width

    def __hash__(self) -> int:
        return hash(self.dtype) ^ self.width

    def __or__(self, other: object) -> Any:
        """`Float32 | None` in an annotation, which kernels read from the text."""
        return Any

    __ror__ = __or__

    @property
    def is_scalar(self) -> builtins.bool:
        return self.width == 1

    def with_dtype(self, dtype: DType) -> SIMDType:
        """The same width with another element type."""
        return SIMDType(dtype, self.width)

    def __str__(self) -> str:
        return scalar_name(self.dtype) if self.width == 1 else f"SIMD[{self.dtype}, {self.width}]"


def scalar_name(dtype: DType) -> str:
    """How the language writes the scalar type of `dtype`: `Float32`, `UInt8`, `BFloat16`, `Bool`."""
    name = dtype.name
    for small, capital in (("uint", "UInt"), ("bfloat", "BFloat")):
        if name.startswith(small):
            return capital + name[len(small) :]
    return name[0].upper() + name[1:]


SCALARS = {scalar_name(dtype): SIMDType(dtype) for dtype in DType}
INT = SIMDType(DType.int64)
BOOL = SIMDType(DType.bool)
