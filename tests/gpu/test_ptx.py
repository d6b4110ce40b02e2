"""The interpreter of PTX itself: each instruction against NumPy or exact arithmetic, and what it refuses to run."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import ptx
from support.ptx import Memory, PtxError
from support.ptx_numbers import BOUNDS

Array = np.ndarray[Any, Any]

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"
REGISTERS = {"pred": "%p", "b16": "%h", "b32": "%r", "b64": "%rd"}
DECLARED = ".reg .pred %p<9>; .reg .b16 %h<99>; .reg .b32 %r<99>; .reg .b64 %rd<99>;"


def kernel(body: str, arguments: int, block: int = 32, before: str = "") -> str:
    """A kernel whose arguments are 64-bit numbers in %rd1, %rd2, …; %rd90 is the thread's number in its block."""
    names = ", ".join(f".param .u64 a{k}" for k in range(arguments))
    loads = "\n".join(f"ld.param.b64 %rd{k + 1}, [a{k}];" for k in range(arguments))
    thread = "mov.u32 %r90, %tid.x;\ncvt.u64.u32 %rd90, %r90;"
    head = f"{HEADER}{before}.visible .entry k({names})\n.reqntid {block}, 1, 1"
    return f"{head}\n{{\n{DECLARED}\n{loads}\n{thread}\n{body}\n}}"


def launch(text: str, *arguments: Any, block: int = 32, grid: int = 1, shared: int = 0) -> None:
    memory = Memory()
    given = [memory.lend(a) if isinstance(a, np.ndarray) else a for a in arguments]
    ptx.run(text, "k", grid=(grid,), block=(block,), arguments=given, memory=memory, shared=shared)


def compute(instruction: str, result: Any, *operands: Array, extra: str = "") -> Array:
    """The results of `instruction d, a, b…` with one thread for each place of the operands."""
    count = len(operands[0])
    words = {1: "b16", 2: "b16", 4: "b32", 8: "b64"}
    lines, names = [], []
    for k, array in enumerate(operands):
        size = array.dtype.itemsize
        name = f"{REGISTERS[words[size]]}{10 + k}"
        lines.append(f"mad.lo.s64 %rd80, %rd90, {size}, %rd{k + 1};")
        lines.append(f"ld.global.{'s' if array.dtype.kind == 'i' and size < 4 else 'b'}{8 * size} {name}, [%rd80];")
        names.append(name)
    out = np.zeros(count, result)
    size = out.dtype.itemsize
    to = f"{REGISTERS['pred' if out.dtype == np.bool_ else words[size]]}{7 if out.dtype == np.bool_ else 70}"
    lines.append(f"{instruction} {to}, {', '.join([*names, *([extra] if extra else [])])};")
    if out.dtype == np.bool_:
        lines.append("selp.b16 %h70, 1, 0, %p7;")
        to = "%h70"
    lines.append(f"mad.lo.s64 %rd80, %rd90, {size}, %rd{len(operands) + 1};")
    lines.append(f"st.global.b{8 * size} [%rd80], {to};\nret;")
    launch(kernel("\n".join(lines), len(operands) + 1, count), *operands, out, block=count)
    return out


def floats(dtype: Any, count: int = 512, seed: int = 0) -> Array:
    """Numbers of all sizes, with zeros, infinities, NaN and subnormal ones."""
    generator = np.random.default_rng(seed)
    info = ml_dtypes.finfo(dtype)
    exponents = generator.integers(int(info.minexp) - 6, int(info.maxexp), count)
    collected = np.ldexp(generator.uniform(1, 2, count) * generator.choice([-1, 1], count), exponents).astype(dtype)
    collected[: count // 2] = (generator.standard_normal(count // 2) * 3).astype(dtype)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1, -1, float(info.max), float(info.smallest_subnormal)]
    collected[generator.permutation(count)[: 3 * len(special)]] = np.array(special * 3, dtype)
    return collected


def integers(dtype: Any, count: int = 512, seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    collected = np.random.default_rng(seed).integers(info.min, info.max, count, dtype, endpoint=True)
    collected[: count // 4] //= max(int(info.max) // 50, 1)
    collected[:4] = [info.min, info.max, 0, 1]
    return collected


def same(given: Array, wanted: Array) -> None:
    equal = (given == wanted) | ((given != given) & (wanted != wanted))
    zeros = given.dtype.kind in "iub" or np.array_equal(np.signbit(given[equal]), np.signbit(wanted[equal]))
    where = np.flatnonzero(~equal)[:4]
    assert equal.all(), (where, given[where], wanted[where])
    assert zeros or np.isnan(given).any()


def nearest(value: Fraction, dtype: Any) -> float:
    """The number of a dtype that is nearest to an exact one, ties to even."""
    info = ml_dtypes.finfo(dtype)
    if not value:
        return 0.0
    size, exponent = abs(value), value.numerator.bit_length() - value.denominator.bit_length()
    exponent += (Fraction(2) ** exponent <= size) - 1  # 2**exponent <= size < 2**(exponent + 1)
    unit = Fraction(2) ** (max(exponent, int(info.minexp)) - int(info.nmant))
    result = round(value / unit) * unit
    over = abs(result) > Fraction(float(info.max))
    return math.copysign(math.inf if over else float(abs(result)), -1 if value < 0 else 1)


def rounded(function: Callable[..., Any], dtype: Any, *operands: Array) -> Array:
    """The nearest numbers to exact results; of NaN, infinities and zeros what wider floats say."""
    collected = []
    for values in zip(*operands, strict=True):
        plain = [float(v) for v in values]
        exact = Fraction(0)
        if all(map(math.isfinite, plain)):
            with contextlib.suppress(ZeroDivisionError):
                exact = function(*(Fraction(v.item() if isinstance(v, np.integer) else float(v)) for v in values))
        with np.errstate(all="ignore"):
            collected.append(nearest(exact, dtype) if exact else float(function(*map(np.longdouble, plain))))
    with np.errstate(all="ignore"):
        return np.array(collected).astype(dtype)


@pytest.mark.parametrize(("name", "dtype"), [("f32", np.float32), ("f64", np.float64), ("f16", np.float16)])
def test_float_arithmetic_rounds_once(name: str, dtype: Any) -> None:
    a, b, c = (floats(dtype, seed=k) for k in range(3))
    with np.errstate(all="ignore"):
        c[:64] = (-a[:64].astype(np.float64) * b[:64]).astype(dtype)  # what cancels
    same(compute(f"fma.rn.{name}", dtype, a, b, c), rounded(lambda a, b, c: a * b + c, dtype, a, b, c))
    same(compute(f"add.rn.{name}", dtype, a, b), rounded(lambda a, b: a + b, dtype, a, b))
    same(compute(f"mul.rn.{name}", dtype, a, b), rounded(lambda a, b: a * b, dtype, a, b))
    if name != "f16":
        same(compute(f"div.rn.{name}", dtype, a, b), rounded(lambda a, b: a / b, dtype, a, b))


def test_directed_rounding() -> None:
    a, b = (floats(np.float32, seed=k) for k in range(2))
    near = compute("add.rn.f32", np.float32, a, b)
    holds = {"rz": lambda d, e: abs(d) <= abs(e), "rm": lambda d, e: d <= e, "rp": lambda d, e: d >= e}
    for mode, right in holds.items():
        actual = compute(f"add.{mode}.f32", np.float32, a, b)
        for x, y, d, n in zip(a, b, actual, near, strict=True):
            if all(map(np.isfinite, (x, y, d, n))):
                assert right(Fraction(float(d)), Fraction(float(x)) + Fraction(float(y))), (mode, x, y)
                assert d in (n, np.nextafter(n, np.float32(np.inf)), np.nextafter(n, np.float32(-np.inf)))


def test_bfloat16_is_rounded_once() -> None:
    wide = floats(np.float32)
    wide[:100] = (wide[:100].view(np.uint32) & 0xFFFF0000 | 0x8000).view(np.float32)  # ties
    with np.errstate(all="ignore"):
        wanted = wide.astype(ml_dtypes.bfloat16).astype(np.float32)
    actual = compute("cvt.rn.bf16.f32", np.uint16, wide)
    same(compute("cvt.f32.bf16", np.float32, actual), wanted)
    pair = compute("cvt.rn.bf16x2.f32", np.uint32, wide, wide[::-1].copy())
    same((pair & 0xFFFF0000).view(np.float32), wanted)
    same((pair << 16).view(np.float32), wanted[::-1])
    a, b, c = (floats(ml_dtypes.bfloat16, seed=k) for k in range(3))
    given = compute("fma.rn.bf16", np.uint16, *(x.view(np.uint16) for x in (a, b, c))).view(ml_dtypes.bfloat16)
    exact = rounded(lambda a, b, c: a * b + c, ml_dtypes.bfloat16, a, b, c)
    same(given.astype(np.float32), exact.astype(np.float32))


INTEGERS = {"s32": np.int32, "u32": np.uint32, "s64": np.int64, "u64": np.uint64, "s16": np.int16, "u16": np.uint16}


@pytest.mark.parametrize("name", INTEGERS)
def test_conversions_between_integers_and_floats(name: str) -> None:
    dtype, info = INTEGERS[name], np.iinfo(INTEGERS[name])
    for source, kind in (("f32", np.float32), ("f64", np.float64)):
        x = floats(kind)
        x[:40] = np.linspace(-6, 6, 40)
        nan = 1 << (info.bits - 1) if source == "f64" or info.bits == 64 else 0
        for mode, whole in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
            actual = compute(f"cvt.{mode}.{name}.{source}", dtype, x)
            for value, given in zip(x, actual, strict=True):
                if np.isnan(value):
                    assert int(given) & ((1 << info.bits) - 1) == nan
                else:
                    exact = float(whole(np.float64(value)))
                    wanted = info.max if exact > info.max else info.min if exact < info.min else int(exact)
                    assert int(given) == wanted, (value, given)
        numbers = integers(dtype)
        same(compute(f"cvt.rn.{source}.{name}", kind, numbers), rounded(lambda a: a + 0, kind, numbers))
    same(compute(f"cvt.rn.f16.{name}", np.float16, numbers), rounded(lambda a: a + 0, np.float16, numbers))


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_arithmetic(name: str) -> None:
    dtype, bits = INTEGERS[name], np.iinfo(INTEGERS[name]).bits
    a, b, c = (integers(dtype, seed=k) for k in range(3))
    b[-8:] = 0

    def whole(function: Callable[..., int], shift: int = 0, result: Any = dtype) -> Array:
        size = np.iinfo(result).bits
        values = [function(*map(int, v)) >> shift & ((1 << size) - 1) for v in zip(a, b, c, strict=True)]
        return np.array(values, object).astype(f"u{size // 8}").view(result)

    def quotient(x: int, y: int) -> int:
        return -1 if y == 0 else abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1)

    same(compute(f"add.{name}", dtype, a, b), whole(lambda a, b, c: a + b))
    same(compute(f"mul.lo.{name}", dtype, a, b), whole(lambda a, b, c: a * b))
    same(compute(f"mul.hi.{name}", dtype, a, b), whole(lambda a, b, c: a * b, bits))
    same(compute(f"mad.lo.{name}", dtype, a, b, c), whole(lambda a, b, c: a * b + c))
    same(compute(f"div.{name}", dtype, a, b), whole(lambda a, b, c: quotient(a, b)))
    same(compute(f"rem.{name}", dtype, a, b), whole(lambda a, b, c: a if b == 0 else a - quotient(a, b) * b))
    same(compute(f"min.{name}", dtype, a, b), np.minimum(a, b))
    if bits < 64:
        wide = np.dtype(f"{a.dtype.kind}{bits // 4}").type
        same(compute(f"mul.wide.{name}", wide, a, b), whole(lambda a, b, c: a * b, 0, wide))
    for comparison, function in (("lt", np.less), ("ge", np.greater_equal), ("ne", np.not_equal)):
        same(compute(f"setp.{comparison}.{name}", np.bool_, a, b), function(a, b))
    amounts = np.random.default_rng(1).integers(0, bits + 9, len(a)).astype(np.uint32)
    shifted = [int(x) >> int(n) if n < bits else (-1 if x < 0 else 0) for x, n in zip(a, amounts, strict=True)]
    same(compute(f"shr.{name}", dtype, a, amounts), np.array(shifted, dtype))
    left = [(int(x) << int(n)) & ((1 << bits) - 1) if n < bits else 0 for x, n in zip(a, amounts, strict=True)]
    same(compute(f"shl.b{bits}", dtype, a, amounts), np.array(left, object).astype(f"u{bits // 8}").view(dtype))


def test_bits() -> None:
    a, b, c = (integers(np.uint32, seed=k) for k in range(3))
    long = integers(np.uint64)

    def each(function: Callable[..., int], dtype: Any, *operands: Array) -> Array:
        size = np.iinfo(dtype).bits
        return np.array([function(*map(int, v)) & ((1 << size) - 1) for v in zip(*operands, strict=True)], dtype)

    same(compute("popc.b32", np.uint32, a), each(int.bit_count, np.uint32, a))
    same(compute("popc.b64", np.uint32, long), each(int.bit_count, np.uint32, long))
    same(compute("clz.b32", np.uint32, a), each(lambda x: 32 - x.bit_length(), np.uint32, a))
    same(compute("clz.b64", np.uint32, long), each(lambda x: 64 - x.bit_length(), np.uint32, long))
    same(compute("brev.b32", np.uint32, a), each(lambda x: int(f"{x:032b}"[::-1], 2), np.uint32, a))
    same(compute("brev.b64", np.uint64, long), each(lambda x: int(f"{x:064b}"[::-1], 2), np.uint64, long))
    same(compute("lop3.b32", np.uint32, a, b, c, extra="0xE8"), a & b | a & c | b & c)
    n, at = c % 70, b % 40
    left = each(lambda x, y, k: (y << 32 | x) << (k & 31) >> 32, np.uint32, a, b, n)
    same(compute("shf.l.wrap.b32", np.uint32, a, b, n), left)
    right = each(lambda x, y, k: (y << 32 | x) >> min(k, 32), np.uint32, a, b, n)
    same(compute("shf.r.clamp.b32", np.uint32, a, b, n), right)
    length = c % 36
    taken = each(lambda x, p, k: x >> p & ((1 << k) - 1), np.uint32, a, at, length)
    same(compute("bfe.u32", np.uint32, a, at, length), taken)

    def signed(x: int, p: int, k: int) -> int:
        if k == 0:
            return 0
        wide = x - (1 << 32) if x >> 31 else x
        return ((wide >> p & ((1 << k) - 1)) ^ (1 << (k - 1))) - (1 << (k - 1)) if p + k <= 32 else wide >> min(p, 31)

    same(compute("bfe.s32", np.uint32, a, at, length), each(signed, np.uint32, a, at, length))

    def inserted(x: int, y: int, p: int, k: int) -> int:
        mask = ((1 << k) - 1) << p
        return (x << p & mask) | (y & ~mask)

    same(compute("bfi.b32", np.uint32, a, b, at, length), each(inserted, np.uint32, a, b, at, length))
    chosen = [np.array([word], np.uint32) for word in (0x33221180, 0x77665544, 0x0F87)]
    assert compute("prmt.b32", np.uint32, *chosen) == [0x8000FF77]


def test_minima_maxima_and_comparisons_of_floats() -> None:
    a, b = (floats(np.float32, seed=k) for k in range(2))
    a[:4], b[:4] = [0.0, -0.0, math.nan, 1], [-0.0, 0.0, 1, math.nan]
    low, high = (compute(f"{name}.f32", np.float32, a, b) for name in ("min", "max"))
    assert np.signbit(low[:2]).all() and not np.signbit(high[:2]).any() and (low[2:4] == 1).all()
    same(low[4:], np.fmin(a, b)[4:])
    assert np.isnan(compute("max.NaN.f32", np.float32, a, b)[2:4]).all()
    unordered = np.isnan(a) | np.isnan(b)
    for name, function in (("lt", np.less), ("ne", np.not_equal), ("eq", np.equal)):
        plain = function(a, b) & ~unordered
        same(compute(f"setp.{name}.f32", np.bool_, a, b), plain)
        same(compute(f"setp.{name}u.f32", np.bool_, a, b), plain | unordered)
    same(compute("setp.num.f32", np.bool_, a, b), ~unordered)
    body = (
        "mov.b32 %r1, 0x40003C00; mov.b32 %r2, 0x3C004000; setp.lt.f16x2 %p1|%p2, %r1, %r2; selp.b32 %r70, 1, 0, %p1;"
    )
    assert (each_thread(f"{body} @%p2 add.s32 %r70, %r70, 2;") == 1).all(), "1 < 2 below, 2 < 1 above"
    flushed = compute("mul.rn.ftz.f32", np.float32, np.array([1e-38, 2.0], np.float32), np.array([0.5, 1], np.float32))
    assert flushed.tolist() == [0.0, 2.0]


@pytest.mark.parametrize(("name", "function"), [("add", np.add), ("sub", np.subtract), ("mul", np.multiply)])
def test_two_floats_in_a_register(name: str, function: Any) -> None:
    a, b = floats(np.float32), floats(np.float32, seed=1)
    with np.errstate(all="ignore"):
        wanted = function(a, b)
    same(compute(f"{name}.rn.f32x2", np.uint64, a.view(np.uint64), b.view(np.uint64)).view(np.float32), wanted)


@pytest.mark.parametrize(
    ("name", "function", "low", "high"),
    [
        *(("ex2", np.exp2, -20, 20), ("lg2", np.log2, 0.1, 9), ("sin", np.sin, -3, 3), ("cos", np.cos, -3, 3)),
        *(("tanh", np.tanh, -4, 4), ("rsqrt", lambda x: 1 / np.sqrt(x), 0.1, 9), ("rcp", lambda x: 1 / x, 0.1, 9)),
    ],
)
def test_approximations_are_within_their_bounds(name: str, function: Any, low: float, high: float) -> None:
    x = np.random.default_rng(0).uniform(low, high, 256).astype(np.float32)
    actual, wanted = compute(f"{name}.approx.f32", np.float32, x), function(x.astype(np.float64))
    assert (np.abs(actual - wanted) <= BOUNDS[f"{name}.approx.f32"] * np.maximum(np.abs(wanted), 1)).all()


# *** threads ***


def each_thread(
    body: str, result: Any = np.uint32, block: int = 64, grid: int = 2, shared: int = 0, **more: Any
) -> Array:
    """What every thread of a grid leaves in %r70 (or %rd70)."""
    out = np.zeros(grid * block, result)
    size = out.dtype.itemsize
    store = f"""
        mov.u32 %r91, %ctaid.x;
        mad.lo.s32 %r92, %r91, {block}, %r90;
        mad.wide.s32 %rd91, %r92, {size}, %rd1;
        st.global.b{8 * size} [%rd91], {"%rd70" if size == 8 else "%r70"};
        ret;"""
    launch(kernel(body + store, 1, block, **more), out, block=block, grid=grid, shared=shared)
    return out.reshape(grid, block)


def test_threads_that_parted_join_again() -> None:
    """A loop of another length for each thread, with a vote behind it."""
    actual = each_thread("""
        mov.b32 %r70, 0;
        mov.b32 %r1, %r90;
        AGAIN:
        setp.eq.s32 %p1, %r1, 0;
        @%p1 bra DONE;
        add.s32 %r70, %r70, %r1;
        sub.s32 %r1, %r1, 1;
        bra.uni AGAIN;
        DONE:
        setp.gt.u32 %p2, %r70, 20;
        vote.sync.ballot.b32 %r2, %p2, -1;
        @!%p2 mov.b32 %r70, %r2;""")
    sums = np.cumsum(np.arange(64))
    assert actual.tolist() == [[int(s) if s > 20 else 0xFFFFFFC0 for s in sums]] * 2


def test_shared_memory_and_barriers() -> None:
    collected = each_thread(
        """
        .shared .align 4 .b8 tile[256];
        mov.b32 %r1, tile;
        shl.b32 %r2, %r90, 2;
        add.s32 %r3, %r1, %r2;
        mov.u32 %r4, %ctaid.x;
        mad.lo.s32 %r5, %r4, 100, %r90;
        st.shared.b32 [%r3], %r5;
        bar.sync 0;
        sub.s32 %r6, 252, %r2;
        add.s32 %r6, %r6, %r1;
        ld.shared.b32 %r70, [%r6];
        mov.b64 %rd2, more;
        st.shared.b32 [%rd2+4], %r70;
        cvta.shared.u64 %rd3, %rd2;
        ld.b32 %r70, [%rd3+4];""",
        shared=8,
        before=".extern .shared .align 8 .b8 more[];\n",
    )
    assert collected[:, 0].tolist() == [0, 100] or collected[0, 0] == collected[0, -1], "the last thread's value stays"


def test_atomics_run_one_after_another() -> None:
    counter, order = np.zeros(3, np.uint32), np.zeros(96, np.uint32)
    text = kernel(
        """
        atom.relaxed.gpu.global.add.u32 %r1, [%rd1], 2;
        shl.b64 %rd10, %rd90, 2;
        add.s64 %rd10, %rd10, %rd2;
        st.global.b32 [%rd10], %r1;
        red.global.max.u32 [%rd1+4], %r90;
        and.b32 %r2, %r90, 1;
        atom.acq_rel.sys.global.cas.b32 %r3, [%rd1+8], %r2, 7;
        ret;""",
        2,
        96,
    )
    launch(text, counter, order, block=96)
    assert counter.tolist() == [192, 95, 7] and sorted(order) == list(range(0, 192, 2))
    floats = np.zeros(2, np.float32)
    launch(kernel("red.global.add.f32 [%rd1], 0f3F800000;\nred.global.add.noftz.f16x2 [%rd1+4], %r9; ret;", 1), floats)
    assert floats[0] == 32


def test_shuffles() -> None:
    out = each_thread("""
        shfl.sync.down.b32 %r1|%p1, %r90, 3, 31, -1;
        shfl.sync.up.b32 %r2, %r90, 2, 0, -1;
        shfl.sync.bfly.b32 %r3, %r90, 5, 31, -1;
        shfl.sync.idx.b32 %r4, %r90, 1, 6175, -1;
        selp.b32 %r5, 1, 0, %p1;
        mad.lo.s32 %r70, %r1, 100, %r2;
        mad.lo.s32 %r70, %r70, 100, %r3;
        mad.lo.s32 %r70, %r70, 100, %r4;
        mad.lo.s32 %r70, %r70, 2, %r5;""")[0]
    for thread, entry in enumerate(out):
        lane, warp = thread % 32, thread // 32 * 32
        down = thread + 3 if lane + 3 < 32 else thread
        up = thread - 2 if lane >= 2 else thread
        first = warp + lane // 8 * 8 + 1
        wanted = (((down * 100 + up) * 100 + warp + (lane ^ 5)) * 100 + first) * 2 + (lane + 3 < 32)
        assert entry == wanted, thread


def test_votes_matches_and_elections() -> None:
    ends = "and.b32 %r1, %r90, 3; setp.eq.s32 %p1, %r1, 2;"
    assert (each_thread(ends + "vote.sync.ballot.b32 %r70, %p1, -1;") == 0x44444444).all()
    assert (each_thread(ends + "vote.sync.any.pred %p2, %p1, -1; selp.b32 %r70, 1, 0, %p2;") == 1).all()
    assert (each_thread(ends + "vote.sync.all.pred %p2, %p1, -1; selp.b32 %r70, 1, 0, %p2;") == 0).all()
    actual = each_thread(ends + "match.any.sync.b32 %r70, %r1, -1;")[0]
    assert actual[:4].tolist() == [0x11111111, 0x22222222, 0x44444444, 0x88888888]
    actual = each_thread(ends + "match.all.sync.b32 %r70|%p2, %r1, -1;")
    assert (actual == 0).all()
    actual = each_thread("elect.sync %r2|%p1, -1; selp.b32 %r70, 1, 0, %p1;")[0]
    assert np.flatnonzero(actual).tolist() == [0, 32]
    assert (each_thread("redux.sync.add.s32 %r70, %r90, -1;")[0, [0, 63]] == [496, 1520]).all()
    assert (each_thread("activemask.b32 %r70;") == 0xFFFFFFFF).all()


def test_asynchronous_copies_end_when_they_are_waited_for() -> None:
    source = np.arange(64, dtype=np.uint32)
    text = """
        .shared .align 16 .b8 tile[256];
        shl.b32 %r2, %r90, 2;
        mov.b32 %r1, tile;
        add.s32 %r1, %r1, %r2;
        st.shared.b32 [%r1], 9;
        cvt.u64.u32 %rd10, %r2;
        add.s64 %rd11, %rd10, %rd1;
        cp.async.ca.shared.global [%r1], [%rd11], 4{size};
        cp.async.commit_group;
        cp.async.wait_group {pending};
        ld.shared.b32 %r3, [%r1];
        add.s64 %rd12, %rd10, %rd2;
        st.global.b32 [%rd12], %r3;
        ret;"""
    for pending, size, wanted in ((0, "", source), (1, "", source * 0 + 9), (0, ", 0", source * 0), (0, ", 2", source)):
        out = np.zeros(64, np.uint32)
        launch(kernel(text.format(pending=pending, size=size), 2, 64), source, out, block=64)
        assert out.tolist() == wanted.tolist(), (pending, size)


# *** what is wrong ***


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("frob.u32 %r1, %r2; ret;", r"line 11: `frob.u32 %r1, %r2`: the instruction is not known"),
        ("add.strange.u32 %r1, %r2, %r3; ret;", r"line 11: .*'.strange' is not known"),
        (
            "mad.lo.s64 %rd2, %rd90, 8, %rd1; ld.global.b64 %rd3, [%rd2]; ret;",
            "line 11: .*block .0, 0, 0., thread .16,",
        ),
        ("ld.global.b32 %r1, [%rd1+2]; ret;", "is not a multiple of 4"),
        ("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1+4]; ret;", "the address of 16 bytes is not a multiple of that"),
        ("shl.b32 %r2, %r90, 2; ld.shared.b32 %r1, [%r2]; ret;", "behind the 0 bytes of shared memory"),
        ("setp.gt.u32 %p1, %r90, 4; @%p1 trap; ret;", "trap`: block .0, 0, 0., thread .5, 0, 0. fails"),
        ("setp.gt.u32 %p1, %r90, 4; @%p1 ret; bar.sync 0; ret;", "5 of 32 threads of the block wait here for ever"),
        (
            "setp.gt.u32 %p1, %r90, 4; @%p1 bra OUT; shfl.sync.idx.b32 %r1, %r90, 9, 31, -1; OUT: ret;",
            "lanes of its mask",
        ),
        ("shfl.sync.idx.b32 %r1, %r90, 0, 31, 1; ret;", "not in its own mask"),
        ("ON: bra.uni ON;", "does not end"),
        ("bra MISSING; ret;", "not a label"),
    ],
)
def test_mistakes_are_named(body: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx, "TURNS", 1000)
    data = np.zeros(32, np.uint32)
    with pytest.raises(PtxError, match=message):
        launch(kernel(body, 1), data)


def test_launches_are_checked() -> None:
    text = kernel("ret;", 1)
    with pytest.raises(PtxError, match="wants blocks of"):
        launch(text, 0, block=64)
    with pytest.raises(PtxError, match="takes 1 arguments, and got 2"):
        launch(text, 0, 1)
    with pytest.raises(PtxError, match="no kernel is called other"):
        ptx.run(text, "other", grid=(1,), block=(32,), arguments=[], memory=Memory())


def test_threads_that_wait_for_others_do_not_starve_them() -> None:
    flag = np.zeros(1, np.uint32)
    text = kernel(
        """
        setp.eq.u32 %p1, %r90, 31;
        @%p1 bra GIVE;
        WAIT:
        ld.volatile.global.b32 %r1, [%rd1];
        setp.eq.u32 %p2, %r1, 0;
        @%p2 bra WAIT;
        ret;
        GIVE:
        st.global.b32 [%rd1], 1;
        ret;""",
        1,
    )
    launch(text, flag)
    assert flag[0] == 1
