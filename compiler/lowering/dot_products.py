"""Writes sums of neighbouring products, of four 8-bit integers or two bfloat16, by one instruction if there is one.

Of 8-bit integers an instruction for other signs serves as well, with a second one: an unsigned number is the signed one
with its top bit flipped, plus 128. Sums wrap, so that all forms give the same bits. Of unsigned numbers that are seen
to be 128 at most, as after `x & 127`, two products add up to 16 bits.
"""

from __future__ import annotations

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import DType
from ..ir.opcodes import CONST
from ..ir.program import Op, Value
from ..targets.base import DotOperations
from .types import lanes_of
from .vectors import joined_lanes, lanes_from
from .writer import FunctionWriter, emits


@emits("dot4")
def _dot4(w: FunctionWriter, op: Op) -> None:
    acc, a, b = op.operands
    width = acc.simd.width
    if a.dtype is DType.int8 and b.dtype is DType.uint8:
        a, b = b, a
    signs = "".join("s" if factor.dtype is DType.int8 else "u" for factor in (a, b))
    has_small = signs == "us" and _is_small(a)
    sums = w.name(acc) if width > 1 else w.op(f"vector.broadcast {w.name(acc)} : i32 to vector<1xi32>")
    factors = [_words(w, factor, width) for factor in (a, b)]
    known = w.target.dots
    if known is None:
        total = _Words(w, width).bytewise(signs, sums, *factors)
    else:
        size = max((n for n in known.lanes if n <= width), default=min(known.lanes))
        parts = []
        for start in range(0, width, size):
            taken = [lanes_from(w, name, width, start, size, "i32") for name in (sums, *factors)]
            words = _Words(w, size)
            has_pairs = has_small and signs not in known.forms and size in known.byte_pairs
            parts.append(words.by_byte_pairs(known, *taken) if has_pairs else words.dots(known, signs, *taken))
        total = joined_lanes(w, parts, size, width, "i32")
    w.result(op, total if width > 1 else w.op(f"vector.extract {total}[0] : i32 from vector<1xi32>"))


@emits("dot2")
def _dot2(w: FunctionWriter, op: Op) -> None:
    acc, *factors = op.operands
    width, known = acc.simd.width, w.target.bf16_dots
    sums = w.name(acc) if width > 1 else w.op(f"vector.broadcast {w.name(acc)} : f32 to vector<1xf32>")
    words = [_words(w, factor, width) for factor in factors]
    if not known:
        total = _Floats(w, width).stepwise(sums, *words)
    else:
        size = max((n for n in known if n <= width), default=min(known))
        parts = []
        for start in range(0, width, size):
            taken = [lanes_from(w, v, width, start, size, "i32") for v in words]
            parts.append(_Floats(w, size).dots(known[size], lanes_from(w, sums, width, start, size, "f32"), *taken))
        total = joined_lanes(w, parts, size, width, "f32")
    w.result(op, total if width > 1 else w.op(f"vector.extract {total}[0] : f32 from vector<1xf32>"))


def _words(w: FunctionWriter, factor: Value, width: int) -> str:
    """Neighbours as words of 32 bits."""
    return w.op(f"vector.bitcast {w.name(factor)} : {w.type(factor.type)} to vector<{width}xi32>")


def _is_small(value: Value) -> bool:
    """Whether bytes are the result of a mask of 128 at most."""
    op = value.maker
    if op is None or op.name != "and_":
        return False
    masks = [v.maker.attrs["value"] for v in op.operands if v.maker is not None and v.maker.opcode is CONST]
    return any(0 <= mask <= 128 for mask in masks)


_FLIPS = 0x80808080 - (1 << 32)  # the top bit of each byte


@dataclass(frozen=True)
class _Words:
    """Arithmetic on vectors of `size` words."""

    w: FunctionWriter
    size: int

    def _do(self, name: str, a: str, b: str | int, bits: int = 32) -> str:
        """An operation of integers on words, or on numbers of fewer bits in them."""
        text = f"vector<{self.size * 32 // bits}xi{bits}>"
        other = self.w.op(f"arith.constant dense<{b}> : {text}") if isinstance(b, int) else b
        return self.w.op(f"arith.{name} {a}, {other} : {text}")

    def _constant(self, word: int) -> str:
        return self.w.op(f"arith.constant dense<{word}> : vector<{self.size}xi32>")

    def dots(self, known: DotOperations, signs: str, sums: str, a: str, b: str) -> str:
        """By the instructions that a target has."""
        if signs in known.forms:
            return self._call(known, known.forms[signs], sums, a, b)
        if known.pairs:
            return self._by_pairs(known, signs, sums, a, b)
        top = self._constant(_FLIPS)  # of each byte: 128, or -128 where it counts as signed
        if "us" in known.forms:
            mixed = known.forms["us"]
            unsigned, signed = (self._do("xori", a, _FLIPS), b) if signs == "ss" else (a, self._do("xori", b, _FLIPS))
            rest = (top, b) if signs == "ss" else (a, top)
        else:
            mixed = known.forms["ss"]
            unsigned, signed, rest = self._do("xori", a, _FLIPS), b, (top, b)
        total = self._call(known, mixed, sums, unsigned, signed)
        return self._do("subi", total, self._call(known, mixed, self._constant(0), *rest))

    def _call(self, known: DotOperations, form: str, sums: str, a: str, b: str) -> str:
        word = f"vector<{self.size}xi32>"
        if known.of_words:
            return self._of_words(form, sums, a, b)
        bytes = f"vector<{4 * self.size}xi8>"
        left, right = (self.w.op(f"vector.bitcast {v} : {word} to {bytes}") for v in (a, b))
        text = form.format(acc=sums, a=left, b=right, bits=32 * self.size, sums=word, bytes=bytes)
        return self.w.op(text)

    def _of_words(self, form: str, sums: str, a: str, b: str) -> str:
        """One lane, as a number."""
        acc, left, right = (self.w.op(f"vector.extract {v}[0] : i32 from vector<1xi32>") for v in (sums, a, b))
        false, true = self.w.op("arith.constant false"), self.w.op("arith.constant true")
        total = self.w.op(form.format(acc=acc, a=left, b=right, false=false, true=true))
        return self.w.op(f"vector.broadcast {total} : i32 to vector<1xi32>")

    def _by_pairs(self, known: DotOperations, signs: str, sums: str, a: str, b: str) -> str:
        """Even bytes and odd ones as 16 bits, whose products an instruction adds in pairs."""
        word, half = f"vector<{self.size}xi32>", lanes_of("i16", 2 * self.size)
        even, odd = [], []
        for sign, factor in zip(signs, (a, b), strict=True):
            halves = self.w.op(f"vector.bitcast {factor} : {word} to {half}")
            low = self._do("shli", halves, 8, 16) if sign == "s" else self._do("andi", halves, 255, 16)
            even.append(self._do("shrsi", low, 8, 16) if sign == "s" else low)
            odd.append(self._do("shrsi" if sign == "s" else "shrui", halves, 8, 16))
        for left, right in (even, odd):
            call = f'llvm.call_intrinsic "{known.pairs[self.size]}"({left}, {right})'
            sums = self._do("addi", sums, self.w.op(f"{call} : ({half}, {half}) -> {word}"))
        return sums

    def by_byte_pairs(self, known: DotOperations, sums: str, a: str, b: str) -> str:
        """Products of bytes added in pairs of 16 bits, and those in pairs of 32."""
        word, half, byte = f"vector<{self.size}xi32>", lanes_of("i16", 2 * self.size), lanes_of("i8", 4 * self.size)
        left, right = (self.w.op(f"vector.bitcast {v} : {word} to {byte}") for v in (a, b))
        call = f'llvm.call_intrinsic "{known.byte_pairs[self.size]}"({left}, {right})'
        pairs = self.w.op(f"{call} : ({byte}, {byte}) -> {half}")
        ones = self.w.op(f"arith.constant dense<1> : {half}")
        call = f'llvm.call_intrinsic "{known.pairs[self.size]}"({pairs}, {ones})'
        return self._do("addi", sums, self.w.op(f"{call} : ({half}, {half}) -> {word}"))

    def bytewise(self, signs: str, sums: str, a: str, b: str) -> str:
        """Where there is no instruction: each byte of the words as a word."""
        for byte in range(4):
            factors = []
            for sign, word in zip(signs, (a, b), strict=True):
                top = self._do("shli", word, 24 - 8 * byte) if byte < 3 else word
                factors.append(self._do("shrsi" if sign == "s" else "shrui", top, 24))
            sums = self._do("addi", sums, self._do("muli", factors[0], factors[1]))
        return sums


_EXPONENT, _SIGN, _UPPER = 0x7F800000, -(1 << 31), -(1 << 16)


@dataclass(frozen=True)
class _Floats:
    """Arithmetic on vectors of `size` float32, and of words of two bfloat16."""

    w: FunctionWriter
    size: int

    def dots(self, intrinsic: str, sums: str, a: str, b: str) -> str:
        """By the instruction that a target has."""
        text, word, halves = f"vector<{self.size}xf32>", f"vector<{self.size}xi32>", f"vector<{2 * self.size}xbf16>"
        left, right = (self.w.op(f"vector.bitcast {v} : {word} to {halves}") for v in (a, b))
        call = f'llvm.call_intrinsic "{intrinsic}"({sums}, {left}, {right})'
        return self.w.op(f"{call} : ({text}, {halves}, {halves}) -> {text}")

    def stepwise(self, sums: str, a: str, b: str) -> str:
        """As the instruction computes: the upper half of each word first."""
        text = f"vector<{self.size}xf32>"
        total = self._normal(self._bits(sums))
        for upper in (True, False):
            halves = [self._do("andi", v, _UPPER) if upper else self._do("shli", v, 16) for v in (a, b)]
            left, right = (self._normal(v) for v in halves)
            added = self.w.op(f"llvm.intr.fma({left}, {right}, {total}) : ({text}, {text}, {text}) -> {text}")
            total = self._normal(self._bits(added))
        return total

    def _do(self, name: str, a: str, b: int) -> str:
        text = f"vector<{self.size}xi32>"
        return self.w.op(f"arith.{name} {a}, {self.w.op(f'arith.constant dense<{b}> : {text}')} : {text}")

    def _bits(self, value: str) -> str:
        return self.w.op(f"arith.bitcast {value} : vector<{self.size}xf32> to vector<{self.size}xi32>")

    def _normal(self, bits: str) -> str:
        """The float32 of these bits; a zero of its sign where it is subnormal."""
        text = f"vector<{self.size}xi32>"
        is_small = self._do("cmpi eq,", self._do("andi", bits, _EXPONENT), 0)
        zero = self._do("andi", bits, _SIGN)
        kept = self.w.op(f"arith.select {is_small}, {zero}, {bits} : vector<{self.size}xi1>, {text}")
        return self.w.op(f"arith.bitcast {kept} : {text} to vector<{self.size}xf32>")
