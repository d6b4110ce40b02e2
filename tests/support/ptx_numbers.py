"""Arithmetic of PTX on NumPy arrays, exact to the bit: types, roundings, conversions, fused multiply-adds.

Values of registers are unsigned integers, or bools for predicates; `read` gives them a type, `write` takes it away.
Half types are computed in float32 and rounded. The payloads of NaN are NumPy's. Instructions with `approx` in their
name give the nearest float32 instead of one near it: what the manual allows them is said in `BOUNDS`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np
from support.ptx_memory import UNSIGNED, Array

SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}

# The relative or absolute error that NVIDIA's manual (PTX ISA) allows to instructions whose results are not exact.
BOUNDS: Final = {
    "ex2.approx.f32": 2.0**-22,
    "lg2.approx.f32": 2.0**-22,
    "sin.approx.f32": 2.0**-20.5,
    "cos.approx.f32": 2.0**-20.5,
    "tanh.approx.f32": 2.0**-10.987,
    "rsqrt.approx.f32": 2.0**-22.9,
    "rcp.approx.f32": 2.0**-23,
    "div.full.f32": 2.0**-22,
}


class Type:
    """A type of PTX: `s32`, `f16`, `pred`, …"""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kind = "f" if name in ("bf16", "tf32") else "p" if name == "pred" else name[0]
        self.bits = {"bf16": 16, "tf32": 32, "pred": 1}.get(name) or int(name.lstrip("bsuf"))
        self.half = self.kind == "f" and self.bits == 16
        self.signed = self.kind == "s"

    def read(self, value: Array) -> Array:
        """The bits of a register as numbers; of a wider one its lower part."""
        if self.kind == "p":
            return value
        unsigned = UNSIGNED[self.bits]
        if value.dtype.itemsize * 8 != self.bits:
            value = value.astype(unsigned)
        if self.kind == "f":
            if self.name == "bf16":
                return (value.astype(np.uint32) << np.uint32(16)).view(np.float32)
            if self.bits == 16:
                return value.view(np.float16).astype(np.float32)
            return value.view(np.float64 if self.bits == 64 else np.float32)
        return value.view(SIGNED[self.bits]) if self.signed else value

    def write(self, value: Array) -> Array:
        """The bits of numbers."""
        if self.kind == "p":
            return value
        if self.name == "bf16":
            return bfloat16_bits(value)
        if self.half:
            value = value.astype(np.float16)
        return value.view(UNSIGNED[self.bits])

    def into(self, value: Array, width: int) -> Array:
        """The bits of numbers in a register: integers fill a wider one with their sign or with zeros."""
        bits = self.write(value)
        if self.kind == "p" or width == self.bits:
            return bits
        if width < self.bits:
            return bits.astype(UNSIGNED[width])
        if self.signed:
            return bits.view(SIGNED[self.bits]).astype(SIGNED[width]).view(UNSIGNED[width])
        return bits.astype(UNSIGNED[width])


_types: dict[str, Type] = {}


def type_of(name: str) -> Type:
    if name not in _types:
        _types[name] = Type(name)
    return _types[name]


# *** roundings ***


def bfloat16_bits(value: Array) -> Array:
    """The nearest bfloat16 of float32, ties to even."""
    bits = value.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(value), np.uint32(0x7FFF), rounded).astype(np.uint16)


def _to_odd(value: Array, error: Array) -> Array:
    """`value + error` (value is their sum, rounded) rounded to odd: rounding that once more rounds only once."""
    bits = value.view(np.int64)
    inexact = (error != 0) & np.isfinite(value) & np.isfinite(error) & (bits & 1 == 0)
    away = (error > 0) == (value > 0)
    return np.where(inexact, bits + np.where(away, np.int64(1), np.int64(-1)), bits).view(np.float64)


def sum_to_odd(a: Array, b: Array) -> Array:
    """A sum of float64, for rounding to fewer bits."""
    total = a + b
    return _to_odd(total, _error(a, b, total))


def narrow(value: Array, name: str, mode: str = "rn") -> Array:
    """Float64 as numbers of a narrower type; 16-bit types as float32. Rounds once, in this direction."""
    if mode != "rn":
        return _directed(value, name, mode)
    if name == "f32":
        return value.astype(np.float32)
    if name == "f16":
        return value.astype(np.float16).astype(np.float32)
    if name == "bf16":
        single = value.astype(np.float32)
        bits = single.view(np.int32)
        off = (single.astype(np.float64) != value) & np.isfinite(single) & (bits & 1 == 0)
        away = np.abs(value) > np.abs(single)
        return np.where(off, bits + np.where(away, np.int32(1), np.int32(-1)), bits).view(np.float32)
    return value


def _directed(value: Array, name: str, mode: str) -> Array:
    """Rounding toward zero, up or down: the nearest number, or the one before it."""
    if name == "f64":
        return value
    near = type_of(name).read(type_of(name).write(narrow(value, name)))
    wide = near.astype(np.float64)
    over = {
        "rz": np.abs(wide) > np.abs(value),
        "rm": wide > value,
        "rp": wide < value,
    }[mode] & ~np.isnan(value)
    bits = type_of(name).write(near)
    signed = bits.view(SIGNED[type_of(name).bits])
    down = {"rz": True, "rm": signed >= 0, "rp": signed < 0}[mode]  # toward zero: the magnitude falls by one
    zero = near == 0
    smallest = np.where(mode == "rp", 1, (1 << (bits.dtype.itemsize * 8 - 1)) + 1).astype(bits.dtype)
    moved = np.where(zero, smallest, bits + np.where(down, -1, 1).astype(bits.dtype))
    return type_of(name).read(np.where(over, moved.astype(bits.dtype), bits))


def tf32(value: Array) -> Array:
    """Float32 with a mantissa of 10 bits, ties away from zero."""
    bits = value.view(np.uint32)
    return np.where(np.isfinite(value), (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000), bits).view(np.float32)


# *** fused multiply-add ***


def fma(a: Array, b: Array, c: Array, kind: Type, mode: str = "rn") -> Array:
    """`a * b + c`, rounded once."""
    if kind.bits == 64:
        return _fma64(a, b, c)
    product = a.astype(np.float64) * b.astype(np.float64)
    wide = c.astype(np.float64)
    total = product + wide
    return narrow(_to_odd(total, _error(product, wide, total)), kind.name, mode)


def _error(a: Array, b: Array, total: Array) -> Array:
    """What `a + b` lost (Knuth)."""
    part = total - a
    return (a - (total - part)) + (b - part)


def _split(a: Array) -> tuple[Array, Array]:
    """Two halves of 26 bits (Dekker)."""
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def _fma64(a: Array, b: Array, c: Array) -> Array:
    """By Boldo and Melquiond's emulation where nothing overflows or underflows, else by fractions."""
    a, b, c = np.broadcast_arrays(a, b, c)
    product = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    low = al * bl - (((product - ah * bh) - al * bh) - ah * bl)
    part = c + low
    lost = _error(c, low, part)
    total = product + part
    result = total + _to_odd(lost + (e := _error(product, part, total)), _error(lost, e, lost + e))
    size = np.abs(product)
    plain = (a == 0) | (b == 0)
    result = np.where(plain, product + c, result)
    safe = plain | (
        (size > 2.0**-900) & (size < 2.0**900) & (np.maximum(np.abs(a), np.abs(b)) < 2.0**900) & (np.abs(c) < 2.0**900)
    )
    safe &= (c == 0) | (np.abs(c) > 2.0**-900)
    safe &= plain | (total == 0) | (np.abs(total) > 2.0**-900)
    if not np.all(safe):
        flat = np.array(result).reshape(-1)
        for k in np.flatnonzero(~np.ravel(safe)):
            flat[k] = _fma_exact(*(float(v.reshape(-1)[k]) for v in (a, b, c)))
        result = flat.reshape(np.shape(result))
    return result


def _fma_exact(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


# *** other operations ***


def smaller(a: Array, b: Array, kind: Type, nan: bool = False) -> Array:
    """The minimum: -0 is below +0; of one NaN the other operand, or NaN where the name says so."""
    return _extreme(a, b, kind, nan, np.fmin(a, b), np.bitwise_or)


def larger(a: Array, b: Array, kind: Type, nan: bool = False) -> Array:
    """The maximum, likewise."""
    return _extreme(a, b, kind, nan, np.fmax(a, b), np.bitwise_and)


def _extreme(a: Array, b: Array, kind: Type, nan: bool, found: Array, zeros: Any) -> Array:
    unsigned = np.uint64 if kind.bits == 64 else np.uint32
    both = zeros(a.view(unsigned), b.view(unsigned)).view(a.dtype)
    found = np.where((a == 0) & (b == 0), both, found)
    return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), found) if nan else found


def to_integer(value: Array, source: Type, to: Type, mode: str) -> Array:
    """Floats as integers: what lies outside becomes the nearest end, NaN becomes what the manual says."""
    whole = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode](value.astype(np.float64))
    low, high = (-(1 << (to.bits - 1)), (1 << (to.bits - 1)) - 1) if to.signed else (0, (1 << to.bits) - 1)
    wide = source.bits == 64 or to.bits == 64
    of_nan = (1 << (to.bits - 1)) if wide else 0
    dtype = SIGNED[to.bits] if to.signed else UNSIGNED[to.bits]
    inside = (whole >= float(low)) & (whole < float(high + 1))
    plain = np.where(inside, whole, 0.0)
    actual = plain.astype(np.int64).astype(dtype) if to.signed or to.bits < 64 else plain.astype(np.uint64)
    actual = np.where(whole >= float(high + 1), dtype(high), np.where(whole < float(low), dtype(low), actual))
    return np.where(np.isnan(value), np.asarray(of_nan, UNSIGNED[to.bits]).view(dtype), actual)


def from_integer(value: Array, to: Type, mode: str) -> Array:
    """Integers as floats, rounded once."""
    if mode == "rn" and to.name == "f32":
        return value.astype(np.float32)
    wide = value.astype(np.float64)
    if value.dtype.itemsize == 8 and to.name != "f64":
        back = np.where(np.abs(wide) < 2.0**63, wide, 0.0).astype(value.dtype)
        lost = (value - back).astype(np.int64).astype(np.float64)
        wide = _to_odd(wide, np.where(np.abs(wide) < 2.0**63, lost, np.where(wide > 0, -1.0, 0.0)))
    elif mode != "rn" and value.dtype.itemsize == 8:
        raise NotImplementedError(f"rounding of 64-bit integers to f64 by {mode}")
    return narrow(wide, to.name, mode)


def high_product(a: Array, b: Array, bits: int) -> Array:
    """The upper half of a product."""
    if bits < 64:
        wide = SIGNED[2 * bits] if a.dtype.kind == "i" else UNSIGNED[2 * bits]
        return ((a.astype(wide) * b.astype(wide)) >> wide(bits)).astype(a.dtype)
    ua, ub = a.view(np.uint64), b.view(np.uint64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    al, ah, bl, bh = ua & low, ua >> half, ub & low, ub >> half
    middle = ah * bl + ((al * bl) >> half)
    other = al * bh + (middle & low)
    high = ah * bh + (middle >> half) + (other >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, ub, np.uint64(0)) - np.where(b < 0, ua, np.uint64(0))
    return high.view(a.dtype)


def divide(a: Array, b: Array, remainder: bool) -> Array:
    """Integer division toward zero; by zero all bits are set, and the remainder is the dividend."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        return np.where(zero, a if remainder else ~a.dtype.type(0), a % safe if remainder else a // safe)
    unsigned = UNSIGNED[a.dtype.itemsize * 8]
    size_a, size_b = np.abs(a).view(unsigned), np.abs(safe).view(unsigned)
    if remainder:
        part = (size_a % size_b).view(a.dtype)
        return np.where(zero, a, np.where(a < 0, -part, part))
    part = (size_a // size_b).view(a.dtype)
    return np.where(zero, a.dtype.type(-1), np.where((a < 0) != (b < 0), -part, part))


def count_bits(value: Array) -> Array:
    return np.bitwise_count(value).astype(np.uint32)


def leading_zeros(value: Array) -> Array:
    bits = value.dtype.itemsize * 8
    spread = value
    for step in (1, 2, 4, 8, 16, 32):
        if step < bits:
            spread = spread | (spread >> value.dtype.type(step))
    return np.uint32(bits) - count_bits(spread)


def reverse_bits(value: Array) -> Array:
    bits, kind = value.dtype.itemsize * 8, value.dtype.type
    masks = {1: 0x5555555555555555, 2: 0x3333333333333333, 4: 0x0F0F0F0F0F0F0F0F}
    for step, mask in masks.items():
        keep = kind(mask & ((1 << bits) - 1))
        value = ((value >> kind(step)) & keep) | ((value & keep) << kind(step))
    return value.byteswap()
