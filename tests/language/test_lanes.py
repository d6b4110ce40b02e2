"""Lanes of vectors against NumPy: every element type, many widths, bit for bit; and the instructions for them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernel_harness import ALL, FLOATS, INTS, UINTS, KernelFile, assert_same_bits, bfloat16, dtype_name, random_values
from references import extreme, wrap

from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.cpu import lacking, machine
from einkorn.compiler.targets.nvptx import assemble, find_ptxas
from einkorn.dsl import DType

float8 = ml_dtypes.float8_e4m3fn
NUMBERS = [*INTS, *UINTS, *FLOATS]
ROWS = 7


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "lanes_kernels.py")


def vectors(dtype: Any, width: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return random_values(np.random.default_rng(seed), dtype, ROWS * width).reshape(ROWS, width)


# *** moving ***


def moved(a: Any, b: Any) -> list[Any]:
    """What the kernel `moves` does, in NumPy."""
    w = a.shape[1]
    h = w // 2
    zero = np.zeros_like(a)
    mixed = np.stack([a, b], axis=2).reshape(len(a), 2 * w)
    both = np.concatenate([a, b], axis=1)
    stored = a.copy()
    stored[:, 1], stored[:, -1] = b[:, 0], b[:, 1]
    if w == 2:
        stored[:, 1] = b[:, 1]
    first = a.copy()
    first[:, 0] = b[:, -1]
    swapped = np.concatenate([a[:, h:], a[:, :h]], axis=1)
    filled = np.repeat(b[:, 1:2], w, axis=1)
    return [
        *(swapped, np.concatenate([a[:, ::2], a[:, 1::2]], axis=1), mixed[:, :w], mixed[:, w:], both[:, h : h + w]),
        *(both[:, ::2], both[:, 1::2], a[:, ::-1], a[:, ::-1], np.roll(a, -1, axis=1), np.roll(a, 1, axis=1)),
        *(swapped, np.concatenate([a[:, 1:], zero[:, :1]], axis=1), np.concatenate([b[:, :1], a[:, :-1]], axis=1)),
        *(zero, a[:, ::-1], np.where(np.arange(w) % 2 == 0, a, b), np.concatenate([a[:, h:], b[:, :h]], axis=1)),
        *(first, stored, np.repeat(a[:, -1:], w, axis=1), filled, filled, swapped),
    ]


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        *((t, 8) for t in ALL),
        *((np.float32, w) for w in (2, 4, 16, 64)),
        (np.uint8, 64),
        (np.bool_, 2),
        (bfloat16, 32),
        (float8, 8),
    ],
    ids=str,
)
def test_moves(kernels: KernelFile, dtype: Any, width: int) -> None:
    a, b = vectors(dtype, width, 1), vectors(dtype, width, 2)
    (got,) = kernels("moves", a, b, w=width)
    for k, (one, wanted) in enumerate(zip(got, moved(a, b), strict=True)):
        assert_same_bits(one, np.ascontiguousarray(wanted), f"move {k}")


@pytest.mark.parametrize(
    ("target", "instruction"),
    [("x86-64-v2", "pshufb"), ("x86-64-v3", "vpshufb"), ("x86-64-v4", "vpshufb"), ("aarch64", "tbl")],
)
def test_tables_of_sixteen_bytes_are_instructions(kernels: KernelFile, target: str, instruction: str) -> None:
    """Of two joined vectors of places, too: LLVM sees no permutation there."""
    given = [(DType.uint8, (16,)), (DType.uint8, (32,))]
    text = kernels.compile("nibbles_of_table", given, target=target).asm
    assert len(re.findall(rf"^\t{instruction}\s", text, re.MULTILINE)) in (1, 2)
    assert not re.search(r"pextrb|umov", text)


@pytest.mark.parametrize(
    ("dtype", "index", "width", "size"),
    [
        *((t, np.int64, 8, 8) for t in [*ALL, float8]),
        *((np.float32, t, 8, 16) for t in (np.int8, np.uint8, np.int16, np.uint32, np.uint64)),
        *[(np.uint8, np.uint8, 32, 16), (np.float64, np.int32, 4, 2), (np.int8, np.int16, 16, 512)],
        *((np.int8, np.uint8, width, size) for width in (2, 16, 64, 128) for size in (2, 8, 16)),
    ],
    ids=str,
)
def test_lanes_chosen_at_run_time(kernels: KernelFile, dtype: Any, index: Any, width: int, size: int) -> None:
    x = vectors(dtype, width)
    table = random_values(np.random.default_rng(3), dtype, size)
    k = random_values(np.random.default_rng(4), index, x.size).reshape(x.shape)
    (got,) = kernels("indexed", x, table, k, w=width, t=size)
    at = np.array([[int(v) % width for v in row] for row in k])
    far = np.array([[int(v) % size for v in row] for row in k])
    changed = x.copy()
    for i in range(len(x)):
        for j in range(width):
            changed[i, at[i, j]] = x[i, j]
    assert_same_bits(got[:, 0], np.take_along_axis(x, at, axis=1), "take")
    assert_same_bits(got[:, 1], table[far], "table")
    assert_same_bits(got[:, 2], changed, "lanes stored")


@pytest.mark.parametrize("dtype", NUMBERS, ids=dtype_name)
def test_built_vectors(kernels: KernelFile, dtype: Any) -> None:
    x = np.arange(20, 28).astype(dtype)
    (got,) = kernels("built", x)
    wanted = [[21, 2, 23, 4, 5, 6, 7, 20], range(8), range(3, 19, 2), range(22, 30), [20, 21, 22, 23, 24, 0, 26, 27]]
    assert_same_bits(got, np.array([list(row) for row in wanted]).astype(dtype))


# *** combining ***


def by_halves(x: Any, op: Any) -> Any:
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        x = op(x[:, :half], x[:, half:])
    return x[:, 0]


def rounded(op: Any) -> Any:
    """In float32 for half types, rounded after every step."""

    def apply(a: Any, b: Any) -> Any:
        wide = np.float32 if a.dtype.itemsize == 2 and a.dtype.kind not in "iu" else a.dtype
        with np.errstate(all="ignore"):
            return op(a.astype(wide), b.astype(wide)).astype(a.dtype)

    return apply


@pytest.mark.parametrize(
    ("dtype", "width"), [*((t, 8) for t in NUMBERS), (np.float32, 2), (np.float32, 32), (np.int8, 256)], ids=str
)
def test_reductions(kernels: KernelFile, dtype: Any, width: int) -> None:
    x = vectors(dtype, width)
    whole = np.dtype(dtype).kind in "iu"
    if not whole:
        x[1] = (np.arange(width) - 3.25).astype(dtype)
        x[2, 1] = np.nan
        x[3] = np.array([0.0, -0.0] * (width // 2)).astype(dtype)
        x[4] = x[4, 0]
    values, lanes = kernels("reductions", x, w=width)
    if whole:
        exact = [[int(v) for v in row] for row in x]
        wanted = [
            wrap([sum(row) for row in exact], x.dtype),
            wrap([int(np.prod(np.array(r, object))) for r in exact], x.dtype),
        ]
        wanted += [x.min(axis=1), x.max(axis=1)]
    else:
        wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x  # sums and products of halves are rounded once
        wanted = [by_halves(wide, rounded(op)).astype(dtype) for op in (np.add, np.multiply)]
        wanted += [by_halves(x, rounded(op)) for op in (extreme(True), extreme(False))]
    for got, want, name in zip(values, wanted, ("add", "mul", "min", "max"), strict=True):
        assert_same_bits(got, want, name)
    with np.errstate(invalid="ignore"):
        wide = x if whole else x.astype(np.float64)
    assert lanes[0].tolist() == np.argmin(wide, axis=1).tolist()
    assert lanes[1].tolist() == np.argmax(wide, axis=1).tolist()


@pytest.mark.parametrize(("dtype", "width"), [*((t, 8) for t in [np.bool_, *INTS, *UINTS]), (np.bool_, 64)], ids=str)
def test_reductions_of_bits(kernels: KernelFile, dtype: Any, width: int) -> None:
    x = vectors(dtype, width)
    x[0] = x[0, 0]
    (got,) = kernels("bit_reductions", x, w=width)
    wanted = [op.reduce(x, axis=1) for op in (np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.bitwise_xor)]
    assert_same_bits(got, np.array(wanted))


@pytest.mark.parametrize(
    ("dtype", "width"), [(np.float32, 8), (np.int8, 32), (np.uint64, 2), (np.float16, 16), (np.float64, 64)], ids=str
)
def test_masks(kernels: KernelFile, dtype: Any, width: int) -> None:
    a, b = vectors(dtype, width, 1), vectors(dtype, width, 2)
    b[0], b[1, 0], a[2], b[2] = a[0], a[1, 0], 1, 2
    got, count = kernels("masks", a, b, w=width)
    with np.errstate(invalid="ignore"):
        low, same = a < b, a == b
    wanted = [low.any(1), low.all(1), ~same.any(1), (~low & ~same).any(1), (low | same).all(1)]
    assert_same_bits(got, np.array([*wanted, np.bitwise_xor.reduce(low ^ same, axis=1)]))
    assert count.tolist() == low.sum(1).tolist()


@pytest.mark.parametrize("dtype", [*INTS, *UINTS, np.float32, np.bool_], ids=dtype_name)
def test_saturating_casts(kernels: KernelFile, dtype: Any) -> None:
    x = random_values(np.random.default_rng(5), dtype, 64)
    for to in (np.int8, np.uint8, np.int32, np.uint64):
        (got,) = kernels("narrowed", x, outs=[(DType.from_numpy(to), (2, 64))])
        if np.dtype(dtype).kind not in "iu":
            assert_same_bits(got[0], got[1])
            continue
        info = np.iinfo(to)
        assert_same_bits(got[0], np.array([min(max(int(v), info.min), info.max) for v in x], to), str(to))
        assert_same_bits(got[1], wrap(x, np.dtype(to)), str(to))


# *** sums of neighbouring products ***


@pytest.mark.parametrize("w", [1, 2, 4, 16, 32])
@pytest.mark.parametrize("target", ["host", "x86-64-v2", "x86-64-v4"])
def test_half_dots(kernels: KernelFile, w: int, target: str) -> None:
    """The interpreter gives the bits of the instruction, and so do targets without it."""
    if target != "host" and (lacking(lookup(target), machine()) or w in (2, 32)):
        pytest.skip("not a machine for this level, or as at other widths")
    rng = np.random.default_rng(w)
    scales = 2.0 ** rng.integers(-80, 60, (3, 60, 2 * w))
    x, y = ((rng.standard_normal((60, 2 * w)) * scale).astype(bfloat16) for scale in scales[:2])
    acc = (rng.standard_normal((60, w)) * scales[2, :, :w]).astype(np.float32)
    tiny = np.float32(1e-39)
    x[0], x[1, ::2], acc[2], y[3] = tiny, -tiny, tiny, tiny  # what is subnormal counts as zero
    y[4], acc[4], x[5], y[5, 0], acc[6, 0] = np.inf, 1.0, 3e38, -3e38, np.nan
    (got,) = kernels("half_dots", acc, x, y, target=target, w=w)
    products = (x[7:].astype(np.float64) * y[7:].astype(np.float64)).reshape(53, w, 2)
    size = np.abs(products).sum(2) + np.abs(acc[7:])
    assert (np.abs(got[7:] - (products.sum(2) + acc[7:])) <= size * 2.0**-23 + 2.0**-125).all()


@pytest.mark.parametrize("w", [1, 2, 4, 16, 32])
@pytest.mark.parametrize("types", ["int8 int8", "uint8 int8", "int8 uint8", "uint8 uint8"])
@pytest.mark.parametrize("target", ["host", "x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_dots(kernels: KernelFile, types: str, w: int, target: str) -> None:
    if target != "host" and (lacking(lookup(target), machine()) or w in (2, 32)):
        pytest.skip("not a machine for this level, or as at other widths")
    first, second = (np.dtype(name) for name in types.split())
    rng = np.random.default_rng(w)
    x, y = random_values(rng, first, 40 * w).reshape(10, -1), random_values(rng, second, 40 * w).reshape(10, -1)
    acc = random_values(rng, np.int32, 10 * w).reshape(10, w)
    for row, (a, b) in enumerate([("min", "min"), ("min", "max"), ("max", "min"), ("max", "max")]):
        x[row], y[row] = getattr(np.iinfo(first), a), getattr(np.iinfo(second), b)
        acc[row] = np.iinfo(np.int32).max if row % 2 else np.iinfo(np.int32).min  # sums wrap
    (got,) = kernels("dots", acc, x, y, target=target, w=w)
    exact = (x.astype(np.int64) * y).reshape(10, w, 4).sum(2) + acc
    assert_same_bits(got, exact.astype(np.int32))


@pytest.mark.parametrize("w", [1, 4, 8, 16])
@pytest.mark.parametrize("mask", [15, 127, 128, 129, 255])
def test_dots_of_small_numbers(kernels: KernelFile, mask: int, w: int) -> None:
    """Under a mask of 128 at most, products are added in pairs of 16 bits, which no sum exceeds."""
    rng = np.random.default_rng(w)
    x, y = random_values(rng, np.uint8, 40 * w).reshape(10, -1), random_values(rng, np.int8, 40 * w).reshape(10, -1)
    acc = random_values(rng, np.int32, 10 * w).reshape(10, w)
    x[:2], y[0], y[1] = 255, -128, 127
    (got,) = kernels("small_dots", acc, x, y, mask=mask, w=w)
    exact = ((x & mask).astype(np.int64) * y).reshape(10, w, 4).sum(2) + acc
    assert_same_bits(got, exact.astype(np.int32))


@pytest.mark.parametrize(("mask", "is_small"), [(15, True), (127, True), (128, True), (129, False)])
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_dots_of_small_numbers_are_instructions(kernels: KernelFile, mask: int, is_small: bool, target: str) -> None:
    sizes = [(DType.int32, (100, 8)), (DType.uint8, (100, 32)), (DType.int8, (100, 32))]
    asm = kernels.compile("small_dots", sizes, target=target, mask=mask, w=8).asm
    assert ("pmaddubsw" in asm) == is_small


@pytest.mark.parametrize("types", [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")], ids=str)
@pytest.mark.parametrize("target", ["sm_80", "gfx942", "gfx1100", "gfx1030", "x86-64-v3", "x86-64-v4"])
def test_dots_are_instructions(kernels: KernelFile, types: tuple[str, str], target: str) -> None:
    sizes = [(DType.int32, (100, 8)), *((DType[name], (100, 32)) for name in types)]
    artifact = kernels.compile("dots", sizes, target=target, w=8)
    wanted = {"sm_80": "dp4a", "gfx942": r"v_dot4c?_[iu]32_[iu]8", "gfx1100": r"v_dot4_[iu]32_i?u8"}
    wanted |= {"gfx1030": wanted["gfx942"]}
    assert re.search(wanted.get(target, "vpmaddwd"), artifact.asm)
    if target == "sm_80" and find_ptxas() is not None:
        assert assemble(artifact.code.decode(), lookup(target))[:4] == b"\x7fELF"


# *** the instructions ***


@pytest.mark.parametrize(
    ("op", "types", "width", "target", "instruction"),
    [
        ("lookup", ("float32 8", "int32"), 8, "x86-64-v3", "vpermps"),
        ("lookup", ("uint8 16", "uint8"), 16, "x86-64-v2", "pshufb"),
        ("lookup", ("uint8 16", "uint8"), 16, "x86-64-v3", "vpshufb"),
        ("lookup", ("float32 16", "int32"), 16, "x86-64-v4", "vpermps"),
        ("lookup", ("uint16 32", "int16"), 32, "x86-64-v4", "vpermw"),
        ("row_sums", ("float32 100 16",), 0, "x86-64-v3", "vpmovmskb"),
        ("packed", ("int32",), 0, "x86-64-v3", "vpackuswb"),
    ],
    ids=str,
)
def test_cpus_have_instructions(
    kernels: KernelFile, op: str, types: tuple[str, ...], width: int, target: str, instruction: str
) -> None:
    given = []
    for text in types:
        dtype, *sizes = text.split()
        given.append((DType[dtype], tuple(map(int, sizes)) or (4096,)))
    parameters = {"w": width} if width else {}
    used = set(re.findall(r"^\t([a-z]\w*)", kernels.compile(op, given, target=target, **parameters).asm, re.MULTILINE))
    assert instruction in used
    assert not {one for one in used if re.match("v?p(extr|insr)[bwdq]", one)}  # lane by lane


@pytest.mark.parametrize("target", ["sm_80", "gfx942", "gfx1100"])
@pytest.mark.parametrize("dtype", [DType.float32, DType.bfloat16, DType.uint8], ids=str)
def test_gpus_compile_moves(kernels: KernelFile, dtype: DType, target: str) -> None:
    artifact = kernels.compile("mixed", [(dtype, (100, 8)), (DType.int32, (100, 8))], target=target)
    if target == "sm_80" and find_ptxas() is not None:
        assert assemble(artifact.code.decode(), lookup(target))[:4] == b"\x7fELF"


def test_moves_run_in_tasks(kernels: KernelFile) -> None:
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    k = np.array([[7, 6, 5, 4, 3, 2, 1, 0], [1] * 8, [2, 0, 0, 5, 0, 0, 0, 0]], np.int32)
    (got,) = kernels("mixed", x, k)
    for i, (v, at) in enumerate(zip(x, k, strict=True)):
        taken = v[at][::-1]
        joined = np.concatenate([taken[1::2], taken[::2]])
        w = np.where(np.arange(8) % 2 == 0, np.append(joined[1:], v[at[3]]), v)
        w[at[0]] = v.sum()
        w[2] = v.max()
        if (v < w).any():
            w[v.argmax()] = v.min()
        assert got[i].tolist() == w.tolist()
