"""The instructions of PTX that compute: arithmetic, comparisons, conversions, moves, bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from support import ptx_numbers as numbers
from support.ptx_group import Code, Group, Source, Step, apply, step
from support.ptx_memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, UNSIGNED, Array
from support.ptx_numbers import Type, type_of
from support.ptx_parse import WIDTHS, Instruction, Tuple

PAIRS = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}
TYPES = {*WIDTHS, "bf16", "tf32", *PAIRS}
MODES = ("rn", "rz", "rm", "rp")


def _types(ins: Instruction) -> list[str]:
    actual = [part for part in ins.parts if part in TYPES]
    if not actual:
        raise ins.fail("the instruction has no type that is known")
    return actual


def _known(ins: Instruction, *parts: str) -> None:
    """Refuses parts of a name that are neither types nor listed."""
    for part in ins.parts:
        if part not in TYPES and part not in parts:
            raise ins.fail(f"'.{part}' is not known")


def _flushing(function: Callable[..., Array]) -> Callable[..., Array]:
    """With `.ftz`: numbers below the normal ones are zeros, as operands and as results."""

    def flush(value: Array) -> Array:
        small = np.abs(value) < np.finfo(value.dtype).smallest_normal
        return np.where(small, np.copysign(value.dtype.type(0), value), value)

    return lambda *values: flush(function(*(flush(value) for value in values)))


def _saturating(function: Callable[..., Array]) -> Callable[..., Array]:
    """With `.sat`: results between 0 and 1, NaN is 0."""
    return lambda *values: np.where(
        np.isnan(actual := function(*values)), actual.dtype.type(0), np.clip(actual, 0, 1).astype(actual.dtype)
    )


def _pairwise(ins: Instruction, code: Code, pair: str, function: Callable[..., Array]) -> Step:
    """The step of an instruction on two numbers in a register of twice their bits."""
    half = type_of(PAIRS[pair])
    narrow, wide, word = UNSIGNED[half.bits], UNSIGNED[2 * half.bits], type_of(f"b{2 * half.bits}")
    to = code.target(ins, ins.operands[0], word)
    sources = [code.source(ins, operand, word) for operand in ins.operands[1:]]

    def run(group: Group) -> None:
        words = [source(group) for source in sources]
        low = half.write(function(*(half.read(value.astype(narrow)) for value in words)))
        high = half.write(function(*(half.read((value >> wide(half.bits)).astype(narrow)) for value in words)))
        to(group, low.astype(wide) | (high.astype(wide) << wide(half.bits)))

    return run


def _floats(ins: Instruction, code: Code, function: Callable[..., Array]) -> Step:
    """The step of a float function, with what its name requests."""
    kind = _types(ins)[-1]
    function = _flushing(function) if "ftz" in ins.parts and not kind.startswith("b") else function
    function = _saturating(function) if "sat" in ins.parts else function
    if kind in PAIRS:
        return _pairwise(ins, code, kind, function)
    return apply(kind, function)(ins, code)


def _mode(ins: Instruction) -> str:
    return next((part for part in ins.parts if part in MODES), "rn")


def _rounded(ins: Instruction, function: Callable[..., Array]) -> Callable[..., Array]:
    """A sum or product of floats, in the direction that its name says; other functions are rounded to nearest alone."""
    mode, kind = _mode(ins), _types(ins)[-1]
    if mode == "rn":
        return function
    if kind != "f32" or ins.name not in ("add", "sub", "mul"):
        raise ins.fail(f"rounding by {mode} is known for sums and products of f32 alone")

    def wide(a: Array, b: Array) -> Array:
        a, b = a.astype(np.float64), b.astype(np.float64)
        exact = a * b if ins.name == "mul" else numbers.sum_to_odd(a, -b if ins.name == "sub" else b)
        return numbers.narrow(exact, kind, mode)

    return wide


@step("add", "sub")
def _sum(ins: Instruction, code: Code) -> Step:
    _known(ins, *MODES, "ftz", "sat")
    function = {"add": np.add, "sub": np.subtract}[ins.name]
    kind = _types(ins)[-1]
    if kind in PAIRS or type_of(kind).kind == "f":
        return _floats(ins, code, _rounded(ins, function))
    if "sat" in ins.parts:
        wide = lambda a, b: np.clip(function(a.astype(np.int64), b.astype(np.int64)), -(1 << 31), (1 << 31) - 1)  # noqa: E731
        return apply(kind, lambda a, b: wide(a, b).astype(np.int32))(ins, code)
    return apply(kind, function)(ins, code)


@step("mul")
def _product(ins: Instruction, code: Code) -> Step:
    _known(ins, *MODES, "ftz", "sat", "lo", "hi", "wide")
    kind = _types(ins)[-1]
    if kind in PAIRS or type_of(kind).kind == "f":
        return _floats(ins, code, _rounded(ins, np.multiply))
    return apply(kind, _integer_product(ins, kind), _product_type(ins, kind))(ins, code)


def _product_type(ins: Instruction, kind: str) -> str:
    return f"{kind[0]}{2 * int(kind[1:])}" if "wide" in ins.parts else kind


def _integer_product(ins: Instruction, kind: str) -> Callable[[Array, Array], Array]:
    bits = type_of(kind).bits
    if "wide" in ins.parts:
        wide = (numbers.SIGNED if kind[0] == "s" else UNSIGNED)[2 * bits]
        return lambda a, b: a.astype(wide) * b.astype(wide)
    if "hi" in ins.parts:
        return lambda a, b: numbers.high_product(a, b, bits)
    return np.multiply


@step("mad", "fma")
def _product_and_sum(ins: Instruction, code: Code) -> Step:
    _known(ins, *MODES, "ftz", "sat", "lo", "hi", "wide", "relu")
    name = _types(ins)[-1]
    kind = type_of(PAIRS.get(name, name))
    if kind.kind == "f":
        function = lambda a, b, c: numbers.fma(a, b, c, kind, _mode(ins))  # noqa: E731
        if "relu" in ins.parts:
            plain = function
            function = lambda a, b, c: numbers.larger(plain(a, b, c), np.zeros_like(a), kind)  # noqa: E731
        return _floats(ins, code, function)
    product, result = _integer_product(ins, name), type_of(_product_type(ins, name))
    to = code.target(ins, ins.operands[0], result)
    a, b = (code.source(ins, operand, kind) for operand in ins.operands[1:3])
    c = code.source(ins, ins.operands[3], result)
    return lambda group: to(group, product(a(group), b(group)) + c(group))


@step("div", "rem")
def _quotient(ins: Instruction, code: Code) -> Step:
    _known(ins, *MODES, "ftz", "full", "approx")
    kind = _types(ins)[-1]
    if type_of(kind).kind == "f":
        return _floats(ins, code, _rounded(ins, np.divide))
    return apply(kind, lambda a, b: numbers.divide(a, b, ins.name == "rem"))(ins, code)


def _near(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """The nearest float32 of a function that is computed in float64."""
    return lambda a: function(a.astype(np.float64)).astype(a.dtype)


_OF_ONE: dict[str, Callable[[Array], Array]] = {
    "sqrt": np.sqrt,
    "rcp": lambda a: a.dtype.type(1) / a,
    "rsqrt": _near(lambda a: 1 / np.sqrt(a)),
    "ex2": _near(np.exp2),
    "lg2": _near(np.log2),
    "sin": _near(np.sin),
    "cos": _near(np.cos),
    "tanh": _near(np.tanh),
}


@step(*_OF_ONE)
def _of_one(ins: Instruction, code: Code) -> Step:
    _known(ins, *MODES, "ftz", "approx")
    function = _OF_ONE[ins.name]
    if ins.name in ("sqrt", "rcp"):
        function = _rounded(ins, function)
        if "approx" in ins.parts and _types(ins) == ["f64"]:
            exact = function
            function = lambda a: (exact(a).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)  # noqa: E731
    return _floats(ins, code, function)


@step("abs", "neg")
def _sign(ins: Instruction, code: Code) -> Step:
    _known(ins, "ftz")
    kind = _types(ins)[-1]
    if kind == "f32x2":
        raise ins.fail("'.f32x2' is not known")  # PTX has no such instruction
    if kind in PAIRS or type_of(kind).kind == "f":
        bits = 32 if kind in PAIRS else type_of(kind).bits
        sign = 0x80008000 if kind in PAIRS else 1 << (bits - 1)
        unsigned = UNSIGNED[bits]
        if ins.name == "abs":
            return apply(f"b{bits}", lambda a: a & unsigned(sign ^ ((1 << bits) - 1)))(ins, code)
        return apply(f"b{bits}", lambda a: a ^ unsigned(sign))(ins, code)
    return apply(kind, np.abs if ins.name == "abs" else np.negative)(ins, code)


@step("min", "max")
def _extreme(ins: Instruction, code: Code) -> Step:
    _known(ins, "ftz", "NaN", "xorsign", "abs")
    if "xorsign" in ins.parts:
        raise ins.fail("'.xorsign' is not known")
    name = _types(ins)[-1]
    kind = type_of(PAIRS.get(name, name))
    if kind.kind == "f":
        choose = numbers.smaller if ins.name == "min" else numbers.larger
        return _floats(ins, code, lambda a, b: choose(a, b, kind, "NaN" in ins.parts))
    return apply(name, np.minimum if ins.name == "min" else np.maximum)(ins, code)


@step("copysign")
def _copysign(ins: Instruction, code: Code) -> Step:
    return apply(_types(ins)[-1], lambda a, b: np.copysign(b, a))(ins, code)


# *** comparisons ***

_ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_JOINS: dict[str, Callable[[Any, Any], Any]] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _comparison(ins: Instruction, name: str, kind: Type) -> Callable[[Array, Array], Array]:
    if name in ("lo", "ls", "hi", "hs"):
        return {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}[name]
    if kind.kind != "f":
        return _ORDERED[name]
    unordered = lambda a, b: np.isnan(a) | np.isnan(b)  # noqa: E731
    if name == "nan":
        return unordered
    if name == "num":
        return lambda a, b: ~unordered(a, b)
    if name in _ORDERED:
        plain = _ORDERED[name]
        return (lambda a, b: plain(a, b) & ~unordered(a, b)) if name == "ne" else plain
    if name.endswith("u") and name[:-1] in _ORDERED:
        plain = _ORDERED[name[:-1]]
        return lambda a, b: plain(a, b) | unordered(a, b)
    raise ins.fail(f"comparison {name!r} is not known")


@step("setp", "set")
def _compare(ins: Instruction, code: Code) -> Step:
    if ins.parts[-1] in PAIRS:
        return _compare_pairs(ins, code)
    kind = type_of(_types(ins)[-1] if ins.name == "setp" else _types(ins)[1])
    compare = _comparison(ins, ins.parts[0], kind)
    join = next((_JOINS[part] for part in ins.parts[1:] if part in _JOINS), None)
    a, b = (code.source(ins, operand, kind) for operand in ins.operands[1:3])
    extra = code.source(ins, ins.operands[3], type_of("pred")) if join is not None else None
    outputs = ins.operands[0].parts if isinstance(ins.operands[0], Tuple) else (ins.operands[0],)
    if ins.name == "set":
        return _set(ins, code, lambda group: compare(a(group), b(group)))
    targets = [code.target(ins, output, type_of("pred")) for output in outputs]

    def run(group: Group) -> None:
        actual = compare(a(group), b(group))
        for number, to in enumerate(targets):
            value = ~actual if number else actual
            to(group, value if join is None or extra is None else join(value, extra(group)))

    return run


def _compare_pairs(ins: Instruction, code: Code) -> Step:
    """Two halves in 32 bits are compared each for itself: the lower ones give the first result."""
    if ins.name != "setp" or not isinstance(ins.operands[0], Tuple) or len(ins.operands) != 3:
        raise ins.fail("this comparison is not known")
    half, word = type_of(PAIRS[ins.parts[-1]]), type_of("b32")
    compare = _comparison(ins, ins.parts[0], half)
    a, b = (code.source(ins, operand, word) for operand in ins.operands[1:3])
    targets = [code.target(ins, output, type_of("pred")) for output in ins.operands[0].parts]

    def run(group: Group) -> None:
        words = a(group), b(group)
        for to, shift in zip(targets, (np.uint32(0), np.uint32(16)), strict=True):
            to(group, compare(*(half.read((value >> shift).astype(np.uint16)) for value in words)))

    return run


def _set(ins: Instruction, code: Code, found: Source) -> Step:
    """`set` gives all bits, or 1.0, where the comparison holds."""
    kind = type_of(_types(ins)[0])
    to = code.target(ins, ins.operands[0], kind)
    yes = np.float32(1) if kind.kind == "f" else kind.read(UNSIGNED[kind.bits]((1 << kind.bits) - 1))
    return lambda group: to(group, np.where(found(group), yes, np.zeros_like(yes)))


@step("selp")
def _select(ins: Instruction, code: Code) -> Step:
    kind = type_of(f"b{type_of(_types(ins)[-1]).bits}")
    to = code.target(ins, ins.operands[0], kind)
    a, b = (code.source(ins, operand, kind) for operand in ins.operands[1:3])
    p = code.source(ins, ins.operands[3], type_of("pred"))
    return lambda group: to(group, np.where(p(group), a(group), b(group)))


# *** moves and conversions ***


@step("mov")
def _move(ins: Instruction, code: Code) -> Step:
    kind = type_of(_types(ins)[-1])
    to, given = ins.operands
    if isinstance(given, Tuple):
        part = type_of(f"b{kind.bits // len(given.parts)}")
        sources = [code.source(ins, one, part) for one in given.parts]
        whole, dtype, width = code.target(ins, to, kind), UNSIGNED[kind.bits], part.bits

        def pack(group: Group) -> None:
            actual = dtype(0)
            for number, source in enumerate(sources):
                actual = actual | (source(group).astype(dtype) << dtype(number * width))
            whole(group, actual)

        return pack
    if isinstance(to, Tuple):
        part = type_of(f"b{kind.bits // len(to.parts)}")
        source = code.source(ins, given, type_of(f"b{kind.bits}"))
        targets = [code.target(ins, one, part) for one in to.parts]
        shift, small = UNSIGNED[kind.bits], UNSIGNED[part.bits]

        def unpack(group: Group) -> None:
            value = source(group)
            for number, write in enumerate(targets):
                write(group, (value >> shift(number * part.bits)).astype(small))

        return unpack
    return apply(f"b{kind.bits}" if kind.kind != "p" else "pred", lambda a: a)(ins, code)


@step("cvta")
def _convert_address(ins: Instruction, code: Code) -> Step:
    window = {"global": 0, "const": 0, "shared": SHARED_WINDOW, "shared__cta": SHARED_WINDOW, "local": LOCAL_WINDOW}
    window["param"] = PARAM_WINDOW
    space = next((part for part in ins.parts if part in window), None)
    if space is None:
        raise ins.fail("the space of the address is not known")
    offset = np.uint64(window[space])
    if "to" in ins.parts:
        return apply("u64", lambda a: a - offset)(ins, code)
    return apply("u64", lambda a: a + offset)(ins, code)


_WHOLE = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@step("cvt")
def _convert(ins: Instruction, code: Code) -> Step:
    _known(ins, *MODES, *_WHOLE, "rna", "ftz", "sat", "relu", "satfinite", "pack")
    names = _types(ins)
    if names[0] in PAIRS or "pack" in ins.parts or "relu" in ins.parts or "satfinite" in ins.parts:
        return _convert_pair(ins, code, names)
    to, source = (type_of(name) for name in names[:2])
    whole = next((part for part in ins.parts if part in _WHOLE), "")
    mode = _mode(ins)
    if to.name == "tf32":
        return apply(source.name, numbers.tf32, to.name)(ins, code)
    if source.kind == "f" and to.kind == "f":
        function = _between_floats(source, to, mode, whole)
        function = _flushing(function) if "ftz" in ins.parts else function
        function = _saturating(function) if "sat" in ins.parts else function
    elif source.kind == "f":
        function = lambda a: numbers.to_integer(a, source, to, whole)  # noqa: E731
    elif to.kind == "f":
        function = lambda a: numbers.from_integer(a, to, mode)  # noqa: E731
    else:
        function = _between_integers(source, to, "sat" in ins.parts)
    return apply(source.name, function, to.name)(ins, code)


def _between_floats(source: Type, to: Type, mode: str, whole: str) -> Callable[[Array], Array]:
    if whole:
        return _WHOLE[whole]
    if to.bits == 64:
        return lambda a: a.astype(np.float64)
    if to.bits == 32 and source.bits < 64:
        return lambda a: a
    return lambda a: numbers.narrow(a.astype(np.float64), to.name, mode)


def _between_integers(source: Type, to: Type, saturate: bool) -> Callable[[Array], Array]:
    dtype = (numbers.SIGNED if to.signed else UNSIGNED)[to.bits]
    if not saturate:
        return lambda a: a.astype(dtype)
    info = np.iinfo(dtype)
    have = np.iinfo((numbers.SIGNED if source.signed else UNSIGNED)[source.bits])
    low, high = max(int(info.min), int(have.min)), min(int(info.max), int(have.max))
    return lambda a: np.clip(a, a.dtype.type(low), a.dtype.type(high)).astype(dtype)


def _convert_pair(ins: Instruction, code: Code, names: list[str]) -> Step:
    """Two floats as two halves in 32 bits: the first operand is the upper one."""
    if names[0] not in PAIRS or names[1] != "f32" or "satfinite" in ins.parts:
        raise ins.fail("this conversion is not known")
    half, single = type_of(PAIRS[names[0]]), type_of("f32")
    to = code.target(ins, ins.operands[0], type_of("b32"))
    high, low = (code.source(ins, operand, single) for operand in ins.operands[1:3])
    mode, relu = _mode(ins), "relu" in ins.parts

    def bits(value: Array) -> Array:
        actual = numbers.narrow(value.astype(np.float64), half.name, mode)
        actual = np.where(actual < 0, np.float32(0), actual) if relu else actual
        return half.write(actual).astype(np.uint32)

    return lambda group: to(group, bits(low(group)) | (bits(high(group)) << np.uint32(16)))


# *** bits ***

_LOGIC: dict[str, Callable[[Any, Any], Any]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@step("and", "or", "xor")
def _logic(ins: Instruction, code: Code) -> Step:
    return apply(_types(ins)[-1], _LOGIC[ins.name])(ins, code)


@step("not")
def _not(ins: Instruction, code: Code) -> Step:
    return apply(_types(ins)[-1], np.invert)(ins, code)


@step("shl", "shr")
def _shift(ins: Instruction, code: Code) -> Step:
    kind = type_of(_types(ins)[-1])
    to = code.target(ins, ins.operands[0], kind)
    a, amount = code.source(ins, ins.operands[1], kind), code.source(ins, ins.operands[2], type_of("u32"))
    shift = np.left_shift if ins.name == "shl" else np.right_shift
    most, fill = np.uint32(kind.bits - 1), ins.name == "shr" and kind.signed

    def run(group: Group) -> None:
        value, by = a(group), amount(group)
        actual = shift(value, np.minimum(by, most).astype(value.dtype))
        to(group, actual if fill else np.where(by > most, value.dtype.type(0), actual))

    return run


@step("shf")
def _funnel(ins: Instruction, code: Code) -> Step:
    word = type_of("b32")
    to = code.target(ins, ins.operands[0], word)
    a, b, c = (code.source(ins, operand, word) for operand in ins.operands[1:4])
    left, wrap = ins.parts[0] == "l", "wrap" in ins.parts

    def run(group: Group) -> None:
        whole = a(group).astype(np.uint64) | (b(group).astype(np.uint64) << np.uint64(32))
        by = (c(group) & np.uint32(31)) if wrap else np.minimum(c(group), np.uint32(32))
        by = by.astype(np.uint64)
        actual = (whole << by) >> np.uint64(32) if left else whole >> by
        to(group, actual.astype(np.uint32))

    return run


def _mask(length: Array, dtype: Any) -> Array:
    """So many ones at the lower end."""
    bits = dtype(0).itemsize * 8
    short = np.minimum(length, np.uint32(bits - 1)).astype(dtype)
    return np.where(length >= bits, ~dtype(0), (dtype(1) << short) - dtype(1))


@step("bfe")
def _extract(ins: Instruction, code: Code) -> Step:
    kind = type_of(_types(ins)[-1])
    to = code.target(ins, ins.operands[0], kind)
    a = code.source(ins, ins.operands[1], type_of(f"b{kind.bits}"))
    start, length = (code.source(ins, operand, type_of("u32")) for operand in ins.operands[2:4])
    dtype, last = UNSIGNED[kind.bits], np.uint32(kind.bits - 1)

    def run(group: Group) -> None:
        value, at, count = a(group), start(group) & np.uint32(255), length(group) & np.uint32(255)
        shifted = np.where(at > last, dtype(0), value >> np.minimum(at, last).astype(dtype))
        actual = shifted & _mask(count, dtype)
        if kind.signed:
            top = np.minimum(at + count - np.uint32(1), last).astype(dtype)
            sign = ((value >> top) & dtype(1)).astype(np.bool_) & (count > 0)
            there = np.minimum(count, np.where(at > last, np.uint32(0), last + np.uint32(1) - at))
            actual = np.where(sign, actual | ~_mask(there, dtype), actual)
        to(group, kind.read(actual))

    return run


@step("bfi")
def _insert(ins: Instruction, code: Code) -> Step:
    kind = type_of(_types(ins)[-1])
    to = code.target(ins, ins.operands[0], kind)
    a, b = (code.source(ins, operand, kind) for operand in ins.operands[1:3])
    start, length = (code.source(ins, operand, type_of("u32")) for operand in ins.operands[3:5])
    dtype, last = UNSIGNED[kind.bits], np.uint32(kind.bits - 1)

    def run(group: Group) -> None:
        at, count = start(group) & np.uint32(255), length(group) & np.uint32(255)
        by = np.minimum(at, last).astype(dtype)
        mask = np.where(at > last, dtype(0), _mask(count, dtype) << by)
        to(group, ((a(group) << by) & mask) | (b(group) & ~mask))

    return run


@step("prmt")
def _permute(ins: Instruction, code: Code) -> Step:
    if ins.parts != ("b32",):
        raise ins.fail("modes of prmt are not known")
    word = type_of("b32")
    to = code.target(ins, ins.operands[0], word)
    a, b, c = (code.source(ins, operand, word) for operand in ins.operands[1:4])

    def run(group: Group) -> None:
        whole = a(group).astype(np.uint64) | (b(group).astype(np.uint64) << np.uint64(32))
        chosen, actual = c(group), np.uint32(0)
        for place in range(4):
            pick = (chosen >> np.uint32(4 * place)) & np.uint32(15)
            byte = (whole >> ((pick & np.uint32(7)).astype(np.uint64) << np.uint64(3))).astype(np.uint8)
            sign = np.where(byte >= 128, np.uint8(255), np.uint8(0))
            actual = actual | (np.where(pick >= 8, sign, byte).astype(np.uint32) << np.uint32(8 * place))
        to(group, actual)

    return run


@step("lop3")
def _three(ins: Instruction, code: Code) -> Step:
    word = type_of("b32")
    to = code.target(ins, ins.operands[0], word)
    a, b, c = (code.source(ins, operand, word) for operand in ins.operands[1:4])
    table = code.source(ins, ins.operands[4], word)

    def run(group: Group) -> None:
        values, rows, actual = (a(group), b(group), c(group)), int(table(group)), np.uint32(0)
        for row in range(8):
            if rows >> row & 1:
                term = np.uint32(0xFFFFFFFF)
                for bit, value in zip((4, 2, 1), values, strict=True):
                    term = term & (value if row & bit else ~value)
                actual = actual | term
        to(group, actual)

    return run


_COUNTS: dict[str, Callable[[Array], Array]] = {
    "popc": numbers.count_bits,
    "clz": numbers.leading_zeros,
}


@step(*_COUNTS)
def _count(ins: Instruction, code: Code) -> Step:
    return apply(_types(ins)[-1], _COUNTS[ins.name], "u32")(ins, code)


@step("brev")
def _reverse(ins: Instruction, code: Code) -> Step:
    return apply(_types(ins)[-1], numbers.reverse_bits)(ins, code)


@step("testp")
def _test(ins: Instruction, code: Code) -> Step:
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= np.finfo(a.dtype).smallest_normal),
        "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(a.dtype).smallest_normal),
    }
    return apply(_types(ins)[-1], tests[ins.parts[0]], "pred")(ins, code)


@step("dp4a")
def _dot(ins: Instruction, code: Code) -> Step:
    kinds = _types(ins)
    word = type_of("b32")
    to = code.target(ins, ins.operands[0], word)
    a, b, c = (code.source(ins, operand, word) for operand in ins.operands[1:4])
    parts = [np.int8 if kind[0] == "s" else np.uint8 for kind in kinds[:2]]

    def run(group: Group) -> None:
        total = c(group).astype(np.int64)
        x, y = a(group), b(group)
        for place in (0, 8, 16, 24):
            one, two = ((v >> np.uint32(place)).astype(np.uint8).view(p) for v, p in zip((x, y), parts, strict=True))
            total = total + one.astype(np.int64) * two.astype(np.int64)
        to(group, total.astype(np.uint32))

    return run
