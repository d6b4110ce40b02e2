"""LLVM 24's text -> text that LLVM 22 reads.

The MLIR bindings print the LLVM IR of their own version; llvmlite's parser is two versions older. The languages differ
in how floating-point constants are spelt, and in a few attributes:

    LLVM 24                                 LLVM 22
    float 1.000000e-01                      float 0x3FB99999A0000000   (inexact decimals are refused)
    half f0x3555                            half 0xH3555
    double +inf, -qnan, +snan(0x1)          double 0x7FF0000000000000, 0xFFF8000000000000, 0x7FF0000000000001
    "uniform-work-group-size"               "uniform-work-group-size"="true"
"""

from __future__ import annotations

import functools
import re
import struct
from typing import Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import InternalError

# Attributes and intrinsics that moved between the two versions: text to look for -> text to write.
RENAMES: Final[tuple[tuple[str, str], ...]] = (('"uniform-work-group-size" ', '"uniform-work-group-size"="true" '),)


@dataclass(frozen=True)
class _Format:
    """A binary floating-point format as LLVM spells it."""

    exponent_bits: int
    mantissa_bits: int
    prefix: str

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits


_FORMATS: Final = {
    "half": _Format(5, 10, "0xH"),
    "bfloat": _Format(8, 7, "0xR"),
    "float": _Format(8, 23, "0x"),
    "double": _Format(11, 52, "0x"),
}

_LITERAL = r"f0x[0-9A-Fa-f]+|[+-](?:inf|qnan|s?nan\(0x[0-9A-Fa-f]+\))|[+-]?\d+\.\d*(?:[eE][+-]?\d+)?"
_SUSPECT: Final = re.compile(r"f0x|[+-](?:inf|qnan|s?nan\()|\d\.\d")
# Strings and comments are matched so that they are stepped over. A type keyword names the type of the literals after
# it, up to the next keyword; `%float` and `@half` are names, hence the look-behinds.
_TOKEN: Final = re.compile(
    r'"[^"]*"|;.*'
    r"|(?<![\w.%@$!-])(half|bfloat|float|double|x86_fp80|fp128|ppc_fp128)(?![\w.])"
    rf"|(?<![\w.%@$!+-])({_LITERAL})(?![\w.])"
)


def downgrade(text: str) -> str:
    """The same module in the language of LLVM 22.

    Raises:
        InternalError: a constant of a type that is not translated.
    """
    lines = text.split("\n")
    for index, line in enumerate(lines):
        # The first part is a fast test for _SUSPECT: most lines have no constant.
        if ("." in line or "f0x" in line or "inf" in line or "nan" in line) and _SUSPECT.search(line):
            lines[index] = _downgrade_line(line)
    text = "\n".join(lines)
    for old, new in RENAMES:
        text = text.replace(old, new)
    return text


def _downgrade_line(line: str) -> str:
    keyword = ""

    def rewrite(match: re.Match[str]) -> str:
        nonlocal keyword
        if match[1]:
            keyword = match[1]
        elif match[2]:
            return _respell(keyword, match[2])
        return match[0]

    return _TOKEN.sub(rewrite, line)


@functools.lru_cache(maxsize=4096)
def _respell(keyword: str, literal: str) -> str:
    """One constant, as LLVM 22 spells it."""
    if keyword not in _FORMATS:
        raise InternalError(f"no spelling for the constant {literal} of type {keyword or 'unknown'}", code="EK0903")
    kind = _FORMATS[keyword]
    if literal.startswith("f0x"):
        return _hexadecimal(kind, int(literal[3:], 16))
    if literal[1] in "iqns":
        return _hexadecimal(kind, _special_bits(kind, literal))
    value = float(literal)
    bits = _round_to(keyword, value)
    # Decimals that are exact stay readable.
    return literal if _value_of(keyword, bits) == value else _hexadecimal(kind, bits)


def _special_bits(kind: _Format, literal: str) -> int:
    """The bits of `+inf`, `-qnan`, `+nan(0x1)` (a quiet NaN with a payload) and `+snan(0x1)` (a signalling one)."""
    quiet = 1 << (kind.mantissa_bits - 1)
    bits = ((1 << kind.exponent_bits) - 1) << kind.mantissa_bits
    if literal[0] == "-":
        bits |= 1 << (kind.width - 1)
    name, _, payload = literal[1:].partition("(")
    if payload:
        bits |= int(payload.rstrip(")"), 16)
    return bits | quiet if name in ("qnan", "nan") else bits


def _round_to(keyword: str, value: float) -> int:
    """The bits of the value of that type nearest to `value`, ties to even."""
    if keyword == "double":
        return _bits("<d", "<Q", value)
    if keyword == "half":
        return _bits("<e", "<H", value)
    single = _bits("<f", "<I", value)
    if keyword == "float":
        return single
    # A decimal that LLVM printed for a bfloat lies next to one: rounding twice is harmless.
    return (single + 0x7FFF + (single >> 16 & 1)) >> 16


def _value_of(keyword: str, bits: int) -> float:
    if keyword == "bfloat":
        keyword, bits = "float", bits << 16
    form, unsigned = {"half": ("<e", "<H"), "float": ("<f", "<I"), "double": ("<d", "<Q")}[keyword]
    value: float = struct.unpack(form, struct.pack(unsigned, bits))[0]
    return value


def _bits(form: str, unsigned: str, value: float) -> int:
    bits: int = struct.unpack(unsigned, struct.pack(form, value))[0]
    return bits


def _hexadecimal(kind: _Format, bits: int) -> str:
    if kind.width == 32:
        # LLVM 22 writes a float as the double of the same value.
        exponent, mantissa = bits >> 23 & 0xFF, bits & 0x7FFFFF
        if exponent == 0xFF:
            bits = (bits >> 31) << 63 | 0x7FF << 52 | mantissa << 29
        else:
            bits = _bits("<d", "<Q", _value_of("float", bits))
    digits = 16 if kind.prefix == "0x" else 4
    return f"{kind.prefix}{bits:0{digits}X}"
