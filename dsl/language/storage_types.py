"""The storage types of the language: dtypes, and the scalar type of each.

Input: nothing. Output: the names. Non-goals: the types that kernels compute with (see `language.names`); what the
formats mean (see `formats`).
"""

from __future__ import annotations

from ..types import dtype as types
from ..types.dtype import DType

int4 = DType.int4
uint4 = DType.uint4
float4_e2m1fn = DType.float4_e2m1fn
float6_e2m3fn = DType.float6_e2m3fn
float6_e3m2fn = DType.float6_e3m2fn
float8_e4m3fn = DType.float8_e4m3fn
float8_e4m3fnuz = DType.float8_e4m3fnuz
float8_e5m2 = DType.float8_e5m2
float8_e5m2fnuz = DType.float8_e5m2fnuz
float8_e8m0fnu = DType.float8_e8m0fnu

Int4 = types.SCALARS["Int4"]
UInt4 = types.SCALARS["UInt4"]
Float4_e2m1fn = types.SCALARS["Float4_e2m1fn"]
Float6_e2m3fn = types.SCALARS["Float6_e2m3fn"]
Float6_e3m2fn = types.SCALARS["Float6_e3m2fn"]
Float8_e4m3fn = types.SCALARS["Float8_e4m3fn"]
Float8_e4m3fnuz = types.SCALARS["Float8_e4m3fnuz"]
Float8_e5m2 = types.SCALARS["Float8_e5m2"]
Float8_e5m2fnuz = types.SCALARS["Float8_e5m2fnuz"]
Float8_e8m0fnu = types.SCALARS["Float8_e8m0fnu"]
