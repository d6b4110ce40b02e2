"""Declares the dtypes of the language, `float32`, and their scalar types, `Float32`; storage dtypes too.

To a type checker both are one class, whose bound says what may be done with its numbers. As a file runs, they are the
members of the table of dtypes.

See also `types.dtype` (what a dtype is), `types.formats` (what storage formats mean).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..types.dtype import INT, SCALARS, DType

if TYPE_CHECKING:
    from typing import Any, Self

    from .annotations import ComplexFloating, Element, Floating, Integral, Storable
    from .members import Numbers

    class _StructField:
        """A field of a struct to a checker: the constructor takes any number, and the field reads as its type."""

        def __get__(self, owner: Any, kind: Any = None) -> Self: ...
        def __set__(self, owner: Any, value: Numbers) -> None: ...

    class _Whole(_StructField):
        """Integers are bounds of ranges, too."""

        def __index__(self) -> int: ...

    class bool8(Element, _StructField):
        """True or false, a byte each."""

    class int8(Integral, _Whole):
        """Signed integers of 8 bits."""

    class int16(Integral, _Whole):
        """Signed integers of 16 bits."""

    class int32(Integral, _Whole):
        """Signed integers of 32 bits."""

    class int64(Integral, _Whole):
        """Signed integers of 64 bits."""

    class uint8(Integral, _Whole):
        """Unsigned integers of 8 bits."""

    class uint16(Integral, _Whole):
        """Unsigned integers of 16 bits."""

    class uint32(Integral, _Whole):
        """Unsigned integers of 32 bits."""

    class uint64(Integral, _Whole):
        """Unsigned integers of 64 bits."""

    class float16(Floating, _StructField):
        """Floats of 16 bits."""

    class bfloat16(Floating, _StructField):
        """Floats of 16 bits with the exponents of float32."""

    class float32(Floating, _StructField):
        """Floats of 32 bits."""

    class float64(Floating, _StructField):
        """Floats of 64 bits."""

    class complex64(ComplexFloating, _StructField):
        """Complex numbers of two float32."""

    class complex128(ComplexFloating, _StructField):
        """Complex numbers of two float64."""

    class int4(Storable):
        """Signed integers of 4 bits, which memory holds and no kernel computes with."""

    class uint4(Storable):
        """Unsigned integers of 4 bits, which memory holds and no kernel computes with."""

    class float4_e2m1fn(Storable):
        """Floats of 4 bits (e2m1fn), which memory holds and no kernel computes with."""

    class float6_e2m3fn(Storable):
        """Floats of 6 bits (e2m3fn), which memory holds and no kernel computes with."""

    class float6_e3m2fn(Storable):
        """Floats of 6 bits (e3m2fn), which memory holds and no kernel computes with."""

    class float8_e4m3fn(Storable):
        """Floats of 8 bits (e4m3fn), which memory holds and no kernel computes with."""

    class float8_e4m3fnuz(Storable):
        """Floats of 8 bits (e4m3fnuz), which memory holds and no kernel computes with."""

    class float8_e5m2(Storable):
        """Floats of 8 bits (e5m2), which memory holds and no kernel computes with."""

    class float8_e5m2fnuz(Storable):
        """Floats of 8 bits (e5m2fnuz), which memory holds and no kernel computes with."""

    class float8_e8m0fnu(Storable):
        """Floats of 8 bits (e8m0fnu), which memory holds and no kernel computes with."""

    Bool = bool8
    Int = int64
    Int8 = int8
    Int16 = int16
    Int32 = int32
    Int64 = int64
    UInt8 = uint8
    UInt16 = uint16
    UInt32 = uint32
    UInt64 = uint64
    Float16 = float16
    BFloat16 = bfloat16
    Float32 = float32
    Float64 = float64
    Complex64 = complex64
    Complex128 = complex128
    Int4 = int4
    UInt4 = uint4
    Float4_e2m1fn = float4_e2m1fn
    Float6_e2m3fn = float6_e2m3fn
    Float6_e3m2fn = float6_e3m2fn
    Float8_e4m3fn = float8_e4m3fn
    Float8_e4m3fnuz = float8_e4m3fnuz
    Float8_e5m2 = float8_e5m2
    Float8_e5m2fnuz = float8_e5m2fnuz
    Float8_e8m0fnu = float8_e8m0fnu
else:
    _NAMES = {"bool8" if dtype is DType.bool else dtype.name: dtype for dtype in DType} | SCALARS | {"Int": INT}
    globals().update(_NAMES)
    __all__ = list(_NAMES)
