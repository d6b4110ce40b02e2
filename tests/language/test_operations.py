"""Every row of the table of operations on every element type that it takes, bit for bit, for scalars and vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bits_references import FLOATS_OF, INTEGERS_OF
from kernel_harness import (
    ALL,
    FLOATS,
    INTS,
    UINTS,
    KernelFile,
    assert_same_bits,
    bfloat16,
    dtype_name,
    pairs_of,
    random_values,
    special_values,
)
from references import (
    BOOL_ROWS,
    COMPARISONS,
    FLOAT_ROWS,
    FLOAT_TESTS,
    INTEGER_ROWS,
    converted,
    float_row,
)

from einkorn.compiler.ir.operations import ROWS
from einkorn.dsl import DType

WIDTHS = pytest.mark.parametrize("width", [1, 8], ids=["scalars", "vectors"])


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "rows_kernels.py")


def test_every_row_is_tested() -> None:
    tested = {
        "bool": set(BOOL_ROWS),
        "int": {*INTEGER_ROWS, *COMPARISONS, *INTEGERS_OF},
        "float": {*FLOAT_ROWS, *FLOAT_TESTS, *FLOATS_OF, "isfinite"},
    }
    tested["uint"] = tested["int"]
    by_test_complex = "add sub mul truediv eq ne neg abs sqrt isnan isinf isfinite"
    tested["complex"] = set(by_test_complex.split())
    for row in ROWS.values():
        for kind in row.mlir:
            assert row.name in tested[kind], (row.name, kind)


@WIDTHS
@pytest.mark.parametrize("dtype", [*INTS, *UINTS], ids=dtype_name)
def test_integers(kernels: KernelFile, dtype: Any, width: int) -> None:
    x, y = pairs_of(special_values(dtype))
    values, tests = kernels("integers", x, y, width=width)
    for got, (name, reference) in zip(values, INTEGER_ROWS.items(), strict=True):
        assert_same_bits(got, reference(x, y), name, (x, y))
    for got, (name, reference) in zip(tests, COMPARISONS.items(), strict=True):
        assert_same_bits(got, reference(x, y), name, (x, y))


@WIDTHS
def test_bools(kernels: KernelFile, width: int) -> None:
    x, y = pairs_of(special_values(np.bool_))
    (values,) = kernels("bools", x, y, width=width)
    for got, (name, reference) in zip(values, BOOL_ROWS.items(), strict=True):
        assert_same_bits(got, reference(x, y), name, (x, y))


@WIDTHS
@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_name)
def test_floats(kernels: KernelFile, dtype: Any, width: int) -> None:
    x, y = pairs_of(special_values(dtype))
    z = np.random.default_rng(1).permutation(y)
    values, tests = kernels("floats", x, y, z, width=width)
    failures = []
    for got, name in zip(values, FLOAT_ROWS, strict=True):
        try:
            assert_same_bits(got, float_row(name, x, y, z), name, (x, y, z))
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, "\n".join(failures)
    for got, (name, reference) in zip(tests, FLOAT_TESTS.items(), strict=True):
        assert_same_bits(got, reference(x, y), name, (x, y))


@pytest.mark.parametrize("dtype", ALL, ids=dtype_name)
def test_select(kernels: KernelFile, dtype: Any) -> None:
    x, y = pairs_of(special_values(dtype))
    condition = np.random.default_rng(2).integers(0, 2, len(x)).astype(np.bool_)
    for got in kernels("selects", condition, x, y):
        assert_same_bits(got, np.where(condition, x, y), "select", (condition, x, y))


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_name)
def test_scalars_combine_with_vectors(kernels: KernelFile, dtype: Any) -> None:
    x, _ = pairs_of(special_values(dtype))
    s = np.array(2.5, dtype)
    (values,) = kernels("splats", x, s)
    full = np.full_like(x, s)
    half, three_halves = (np.full_like(x, v) for v in (0.5, 1.5))
    wanted = [
        float_row("add", x, full, x),
        float_row("sub", full, x, x),
        float_row("max", x, half, x),
        float_row("fma", x, full, three_halves),
        x,
    ]
    for got, want in zip(values, wanted, strict=True):
        assert_same_bits(got, want, "splat", (x,))


@pytest.mark.parametrize("dtype", ALL, ids=dtype_name)
def test_lanes(kernels: KernelFile, dtype: Any) -> None:
    x = random_values(np.random.default_rng(3), dtype, 80).reshape(10, 8)
    (got,) = kernels("lanes", x)
    assert_same_bits(got, np.stack([x[:, 0], x[:, 5], x[:, 7]]))


@pytest.mark.parametrize("dtype", [np.int16, np.uint64, np.float32, bfloat16], ids=dtype_name)
def test_lanes_combine_in_halves(kernels: KernelFile, dtype: Any) -> None:
    x = (np.random.default_rng(4).standard_normal((10, 8)) * 50).astype(dtype)
    (got,) = kernels("lane_sums", x)
    total = x.astype(np.float32) if dtype is bfloat16 else x
    while total.shape[1] > 1:
        half = total.shape[1] // 2
        total = total[:, :half] + total[:, half:]
    assert_same_bits(got[0], total[:, 0].astype(dtype), "reduce_add")
    assert_same_bits(got[1], x.max(axis=1), "reduce_max")
    assert_same_bits(got[2], x.min(axis=1), "reduce_min")


# *** conversions ***


def cast_inputs(dtype: Any) -> np.ndarray[Any, Any]:
    """Special values, random ones, and numbers that lie half-way between two of a narrower type."""
    values = [special_values(dtype)]
    kind = np.dtype(dtype).kind
    if kind in "iu":
        top = np.dtype(dtype).itemsize * 8 - (kind == "i")
        ties = [
            (1 << e) + (1 << (e - d)) + n
            for e in range(4, top)
            for d in (8, 9, 11, 12, 24, 25, 53, 54)
            if d <= e
            for n in (-1, 0, 1)
        ]
        values.append(np.array(ties, dtype))
        values.append(-np.array(ties, dtype) if kind == "i" else np.array([], dtype))
    elif dtype is not np.bool_:
        exact = [
            2.0**e * (1 + 2.0**-d * k)
            for e in (-149, -134, -127, -15, 0, 16, 30, 62, 63)
            for d in (8, 9, 11, 12)
            for k in (1, 3)
        ]
        edges = [
            127.5,
            128.0,
            -128.5,
            -129.0,
            255.9,
            256.0,
            -0.9,
            32767.5,
            65535.9,
            65504.0,
            65519.99,
            65520.0,
            2.0**31,
            2.0**32,
            2.0**64,
        ]
        near = [v * f for v in [*exact, *edges] for f in (1, 1 + 2.0**-30, 1 - 2.0**-30, -1)]
        with np.errstate(over="ignore"):
            values.append(np.array(near).astype(dtype))
    values.append(random_values(np.random.default_rng(5), dtype, 500))
    out = np.concatenate(values)
    return np.concatenate([out, out[: -len(out) % 16]])


@WIDTHS
@pytest.mark.parametrize("dtype", ALL, ids=dtype_name)
def test_casts(kernels: KernelFile, dtype: Any, width: int) -> None:
    x = cast_inputs(dtype)
    failures = []
    for got in kernels("cast_to_all", x, width=width):
        try:
            assert_same_bits(got, converted(x, got.dtype), f"{dtype_name(dtype)} -> {got.dtype}", (x,))
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize(
    "pair",
    [
        *[(np.int8, np.uint8), (np.float16, bfloat16), (np.uint16, np.float16), (bfloat16, np.int16)],
        *[(np.float32, np.uint32), (np.int32, np.float32), (np.float64, np.int64), (np.uint64, np.float64)],
    ],
    ids=lambda pair: f"{dtype_name(pair[0])}-{dtype_name(pair[1])}",
)
def test_bitcasts(kernels: KernelFile, pair: tuple[Any, Any]) -> None:
    source, to = np.dtype(pair[0]), np.dtype(pair[1])
    x = random_values(np.random.default_rng(6), source, 64)
    bits = np.dtype(f"u{source.itemsize}")
    for got in kernels("bitcasts", x, outs=[(DType.from_numpy(to), x.shape)] * 2):
        assert (got.view(bits) == x.view(bits)).all()
