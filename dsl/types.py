"""Element types, and the value types that a kernel can name.

`DType` is the one description of an element type that all floors share: the language writes its members small
(`float32`), the graph writes `DType.float32`. `SIMDType` is the type of a run-time value: a dtype and a width, where
width 1 is a scalar (`Float32` is `SIMD[float32, 1]`).

Input: nothing. Output: immutable values, safe as dictionary keys. Non-goals: NumPy is imported only when a conversion
to or from its dtypes is asked for; nothing here knows how a type is lowered.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from .errors import DTypeError

if TYPE_CHECKING:
    import numpy as np


class DType(Enum):
    """An element type: its kind, its width in bits, and the limits that follow from them."""

    bool = ("bool", 8)
    int8 = ("int", 8)
    int16 = ("int", 16)
    int32 = ("int", 32)
    int64 = ("int", 64)
    uint8 = ("uint", 8)
    uint16 = ("uint", 16)
    uint32 = ("uint", 32)
    uint64 = ("uint", 64)
    float16 = ("float", 16, 10)
    bfloat16 = ("float", 16, 7)
    float32 = ("float", 32, 23)
    float64 = ("float", 64, 52)

    def __init__(self, kind: str, bits: int, mantissa: int = 0) -> None:
        self.kind = kind
        self.bits = bits
        self.mantissa = mantissa

    @property
    def size_in_bytes(self) -> int:
        """Bytes that one element takes in memory."""
        return self.bits // 8

    def is_float(self) -> builtins.bool:
        """Whether this is a floating-point type."""
        return self.kind == "float"

    def is_integral(self) -> builtins.bool:
        """Whether this is a signed or unsigned integer type; bool is not."""
        return self.kind in ("int", "uint")

    def is_signed(self) -> builtins.bool:
        """Whether values can be negative."""
        return self.kind in ("int", "float")

    def is_half(self) -> builtins.bool:
        """Whether this is one of the 16-bit floating types, which compute through float32."""
        return self.kind == "float" and self.bits == 16

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
        """The NumPy dtype (bfloat16 comes from ml_dtypes)."""
        import numpy

        if self is DType.bfloat16:
            import ml_dtypes

            bfloat16: np.dtype[Any] = numpy.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return numpy.dtype(self.name)

    @staticmethod
    def from_numpy(dtype: Any) -> DType:
        """The DType of a NumPy dtype or of anything that NumPy takes for one.

        Raises:
            DTypeError: NumPy's type has no counterpart here (complex, structured, byte-swapped, …).
        """
        known = _KNOWN.get(dtype)
        if known is not None:
            return known
        import numpy

        found = numpy.dtype(dtype)
        member = DType.__members__.get(found.name)
        if member is None or not found.isnative:
            raise DTypeError(
                f"NumPy's dtype {found!s} has no counterpart in Einkorn",
                code="EK0201",
                expected=", ".join(DType.__members__),
                got=str(found),
            )
        if isinstance(dtype, numpy.dtype):
            _KNOWN[dtype] = member
        return member

    def __repr__(self) -> str:
        return f"DType.{self.name}"

    def __str__(self) -> str:
        return self.name


_KNOWN: dict[Any, DType] = {}  # NumPy dtypes that were seen before

FLOATING = (DType.float32, DType.float64, DType.float16, DType.bfloat16)
SIGNED = (DType.int32, DType.int64, DType.int8, DType.int16)
UNSIGNED = (DType.uint8, DType.uint16, DType.uint32, DType.uint64)
INTEGRAL = SIGNED + UNSIGNED
NUMERIC = FLOATING + INTEGRAL
ANY = (*NUMERIC, DType.bool)


@dataclass(frozen=True)
class SIMDType:
    """The type of a run-time value: `width` lanes of `dtype`. Width 1 is a scalar."""

    dtype: DType
    width: int = 1

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
