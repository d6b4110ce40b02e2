"""Integers of two types are combined without a cast where nothing is lost; what may lose something is refused."""

from __future__ import annotations

import itertools
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import FLOATS, INTS, UINTS, KernelFile

from einkorn.dsl import DType, kernels_of
from einkorn.dsl.diagnostics.errors import CompileError

INTEGERS = INTS + UINTS
PAIRS = list(itertools.product(INTEGERS, INTEGERS))
WIDENING = [(a, b) for a, b in PAIRS if np.can_cast(a, b) or np.can_cast(b, a)]
COMPARE = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "widening_kernels.py")


def ends(dtype: Any) -> list[int]:
    """The numbers where a conversion would go wrong."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return sorted(
        {low, low // 2, 0, 1, 5, 100, high // 2, high // 2 + 1, high - 1, high} | ({-1, -5} if low else set())
    )


def meeting(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    pairs = list(itertools.product(ends(a), ends(b)))
    return np.array([x for x, _ in pairs], a), np.array([y for _, y in pairs], b)


@pytest.mark.parametrize("a, b", PAIRS)
def test_comparisons_are_exact(a: Any, b: Any, kernels: KernelFile) -> None:
    x, y = meeting(a, b)
    (got,) = kernels("compared", x, y)
    for line, compare in zip(got, COMPARE, strict=True):
        assert line.tolist() == [compare(p, q) for p, q in zip(x.tolist(), y.tolist(), strict=True)], compare


@pytest.mark.parametrize(
    "a, b", [(np.int64, np.uint64), (np.uint64, np.int8), (np.int32, np.uint32), (np.int8, np.int16)]
)
def test_lanes_are_compared_exactly(a: Any, b: Any, kernels: KernelFile) -> None:
    x, y = np.array(ends(a)[:4] + ends(a)[-4:], a), np.array(ends(b)[-4:] + ends(b)[:4], b)
    (got,) = kernels("compared_lanes", x, y)
    assert got[0].tolist() == [p < q for p, q in zip(x.tolist(), y.tolist(), strict=True)]
    assert got[1].tolist() == [p >= int(y[0]) for p in x.tolist()]


@pytest.mark.parametrize("a, b", [pair for pair in WIDENING if np.uint64 not in pair])
def test_arithmetic_is_done_in_the_type_that_is_wanted(a: Any, b: Any, kernels: KernelFile) -> None:
    """Results go into a tensor of Int64: nothing wraps on the way."""
    x, y = meeting(a, b)
    x, y = x[y != 0], y[y != 0]
    p, q = x.astype(np.int64), y.astype(np.int64)
    (got,) = kernels("computed", x, y)
    with np.errstate(all="ignore"):
        even = np.arange(len(x)) % 2 == 0
        wanted = [p + q, p - q, p * q, p // q, p % q, np.maximum(p, q), np.minimum(np.maximum(p, 0), q)]
        wanted += [np.where(even, p, q), np.where(p > q, p, q) ^ q]
    for number, (line, values) in enumerate(zip(got, wanted, strict=True)):
        assert line.tolist() == values.tolist(), number


@pytest.mark.parametrize("a, b", PAIRS)
def test_a_shift_has_the_type_of_what_is_shifted(a: Any, b: Any, kernels: KernelFile) -> None:
    counts = [
        n for n in (0, 1, 7, 8, 31, 32, 63, 64, 100, 127, 128, 200, 255, 256, 2**32, 2**63) if n <= np.iinfo(b).max
    ]
    pairs = list(itertools.product(ends(a), counts))
    x, y = np.array([p for p, _ in pairs], a), np.array([n for _, n in pairs], b)
    left, right, turned = kernels("shifted", x, y)
    bits = np.iinfo(a).bits
    mask = (1 << bits) - 1
    for k, (value, n) in enumerate(pairs):
        assert int(left[k]) & mask == ((value << n) & mask if n < bits else 0)
        assert int(right[k]) == (value >> min(n, bits))
        pattern = value & mask
        assert int(turned[k]) & mask == ((pattern << n % bits) | (pattern >> (bits - n % bits))) & mask


@pytest.mark.parametrize("dtype", INTEGERS[:-1])
def test_indices_and_bounds(dtype: Any, kernels: KernelFile) -> None:
    x = np.arange(1, 101, dtype=np.float32)
    at = np.array([0, 1, 7, 99], dtype)
    (got,) = kernels("indexed", x, at)
    assert got.tolist() == [4 * x[k] + x[:k].sum() + x[:k:2].sum() for k in at.tolist()]


def test_assignments_and_stores(kernels: KernelFile) -> None:
    a, b = np.array([5, 9, 2**31 - 1, -4], np.int32), np.array([2**40, 6, 2**50, 3], np.int64)
    (got,) = kernels("assigned", a, b)
    assert got.tolist() == [5 + 2**31 - 1, 5, 9, 2**50 + 2**31 - 1, -4, 5, 2**31 - 2]
    (got,) = kernels("lanes", np.arange(8, dtype=np.int16) - 3, b.repeat(2))
    assert got.tolist() == [k * int(n) - 3 for k, n in zip(range(-3, 5), b.repeat(2), strict=True)]
    (got,) = kernels("fields", np.array([3, 10], np.int32))
    assert got.tolist() == [7, 0]


def test_a_guard_on_a_narrow_index(kernels: KernelFile) -> None:
    x = np.arange(4, dtype=np.float32)
    (got,) = kernels("guarded", x, np.array([3, -1, 4, 0], np.int32))
    assert got.tolist() == [3, -1, -1, 0]
    assert not kernels.reports


def test_a_narrow_number_of_rounds() -> None:
    kernel = kernels_of((Path(__file__).parent / "widening_kernels.py").read_text())["parallel"]
    x = np.arange(9, dtype=np.float32)
    assert kernel(x, 4).tolist() == [0, 2, 4, 6, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_combine_with_any_floats(dtype: Any, kernels: KernelFile) -> None:
    x = np.linspace(-2, 2, 9).astype(dtype)
    (got,) = kernels("numbers", x)
    if np.dtype(dtype).itemsize > 2:
        cast = np.dtype(dtype).type
        assert got[0].tolist() == (x * cast(1001) + cast(257)).tolist()
        assert got[1].tolist() == (x + cast(np.pi / 2)).tolist()
        np.testing.assert_allclose(got[2], np.sin(x * cast(np.pi / 2)), atol=1e-6)
        assert got[3].tolist() == (np.maximum(x, cast(2049)) - cast(4099)).tolist()


HEAD = """
from einkorn.dsl import *

@register("op")
def op(out: OutputTensor[{out}, "n"], x: InputTensor[{x}, "n"], y: InputTensor[{y}, "n"]):
    foreach(out, lambda i: {text})
"""
REFUSED = [
    ("int32", "int32", "int64", "x[i] + y[i]", "EK0213", "Int32 does not hold every Int64"),
    ("int32", "int32", "uint32", "x[i] + y[i]", "EK0202", "Int32 does not hold every UInt32"),
    ("int64", "int64", "uint64", "max(x[i], y[i])", "EK0202", "UInt64 does not hold every Int64"),
    ("int8", "int8", "int16", "add_sat(x[i], y[i])", "EK0202", "depends on how wide its operands are"),
    ("float32", "float32", "int64", "x[i] * y[i]", "EK0202", "integers become floats by a cast only"),
    ("float32", "float32", "int8", "x[i] * y[i]", "EK0202", "integers become floats by a cast only"),
    ("float64", "float32", "float64", "x[i] * y[i]", "EK0202", "Float32 does not hold every Float64"),
    ("int32", "int32", "float32", "y[i]", "EK0213", "Int32 has no fractions"),
    ("uint8", "int8", "uint8", "x[i]", "EK0213", "UInt8 does not hold every Int8"),
    ("complex64", "complex64", "int32", "x[i] * y[i]", "EK0202", "a real number becomes a Complex64 by a cast"),
    ("complex128", "complex128", "float32", "x[i] * y[i]", "EK0202", "unless it is a Float64"),
    ("float16", "float16", "float16", "x[i] * 70000", "EK0205", "70000 is too large for float16"),
]


@pytest.mark.parametrize("out, x, y, text, code, why", REFUSED)
def test_what_may_lose_something_is_refused(out: str, x: str, y: str, text: str, code: str, why: str) -> None:
    kernel = kernels_of(HEAD.format(out=out, x=x, y=y, text=text))["op"]
    inputs = [np.ones(2, DType[name].to_numpy()) for name in (x, y)]
    with pytest.raises(CompileError) as caught:
        kernel(*inputs)
    assert caught.value.code == code and why in str(caught.value)
