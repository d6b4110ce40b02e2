"""Elementwise ops of the graph against NumPy: operators, casts, plain operands, constants, special cases.

That each op computes what its kernel's reference says is tested for all rows in `test_op_rows`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import graphs
from support.graphs import FLOATS, HALVES, INTEGERS, Array, Case, numbers, widely

from einkorn.graph import DType, ops

SHAPES = ((), (1,), (37,), (5, 9), (2, 3, 5), (2, 1, 3, 7), (0,), (3, 0, 2))
_erf = np.vectorize(math.erf, otypes=[np.float64])


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


@pytest.mark.parametrize("approximate", ("none", "tanh", "quick"))
def test_gelu(approximate: str) -> None:
    def reference(x: Array) -> Array:
        if approximate == "none":
            return np.asarray(0.5 * x * (1 + _erf(x / math.sqrt(2))))
        if approximate == "tanh":
            return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
        return np.asarray(x * _sigmoid(1.702 * x))

    x = np.linspace(-4, 9, 333)
    (y,) = graphs.run(lambda x: ops.gelu(x, approximate), x)
    np.testing.assert_allclose(y, reference(x), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.int32, np.uint8, np.int64))
def test_division_that_rounds_down(dtype: Any) -> None:
    cases: dict[str, Case] = {
        "//": (lambda x, y: x // y, np.floor_divide),
        "%": (lambda x, y: x % y, np.remainder),
    }
    x, y = numbers((400,), dtype, 1), numbers((400,), dtype, 2)
    y[y == 0] = 1
    y[:50] = np.arange(1, 51)
    if np.dtype(dtype).kind == "f":
        y = np.where(np.abs(y) < 0.25, dtype(0.75), y)
    graphs.check(cases, x, y)


def test_integers_divide_to_floats_and_by_zero_to_zero() -> None:
    x = np.array([7, -7, 0, 2**53 + 1], np.int64)
    y = np.array([2, 2, 3, 1], np.int64)
    true, floor, rest, reverse = graphs.run(lambda x, y: [x / y, x // (y * 0), x % (y * 0), 1 / y], x, y)
    assert true.dtype == np.float64
    np.testing.assert_array_equal(true, x / y)
    np.testing.assert_array_equal(floor, [0] * 4)
    np.testing.assert_array_equal(rest, [0] * 4)
    np.testing.assert_array_equal(reverse, 1 / y)


def test_powers() -> None:
    base, exponent = numbers((200,), np.int32, 1), np.arange(200, dtype=np.int32) % 9
    (integers,) = graphs.run(lambda x, y: x**y, base, exponent)
    np.testing.assert_array_equal(integers, base**exponent)
    x, y = np.abs(numbers((300,), np.float64, 3)), numbers((300,), np.float64, 4)
    floats, squares, roots, two = graphs.run(lambda x, y: [x**y, y**2, x**0.5, 2.0**y], x, y)
    for got, wanted in ((floats, x**y), (squares, y**2), (roots, x**0.5), (two, 2.0**y)):
        np.testing.assert_allclose(got, wanted, rtol=1e-14)


def test_logic() -> None:
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    cases: dict[str, Case] = {
        "and": (ops.logical_and, np.logical_and),
        "or": (ops.logical_or, np.logical_or),
        "xor": (ops.logical_xor, np.logical_xor),
        "not": (lambda x, y: ops.logical_not(x), lambda x, y: ~x),
        "&": (lambda x, y: x & y, np.logical_and),
        "| of a bool": (lambda x, y: x | True, lambda x, y: x | True),
        "^": (lambda x, y: y ^ x, np.logical_xor),
        "~": (lambda x, y: ~y, lambda x, y: ~y),
        "==": (lambda x, y: x == y, np.equal),
        "!=": (lambda x, y: x != y, np.not_equal),
        "where": (lambda x, y: ops.where(x, y, False), lambda x, y: np.where(x, y, False)),
    }
    graphs.check(cases, x, y)


@pytest.mark.parametrize("shape", SHAPES)
def test_ranks_and_empty_tensors(shape: tuple[int, ...]) -> None:
    x, y = numbers(shape, np.float32, 1), numbers(shape, np.float32, 2)
    cases: dict[str, Case] = {
        "max of two": (ops.max, np.maximum),
        "min of two": (ops.min, np.minimum),
        "chain": (lambda x, y: ops.relu(x * 2.0 + y) - 1.0, lambda x, y: np.maximum(x * np.float32(2) + y, 0) - 1),
        "compare": (lambda x, y: x < y, np.less),
        "cast": (lambda x, y: ops.cast(x, DType.int32), lambda x, y: x.astype(np.int32)),
    }
    graphs.check(cases, x, y)


ALL = (*FLOATS, *INTEGERS, np.bool_)


@pytest.mark.parametrize("source", ALL)
def test_casts(source: Any) -> None:
    """Every pair of dtypes; integers wrap, floats to integers saturate and lose the fraction, NaN becomes 0."""

    def reference(dtype: Any) -> Callable[[Array], Array]:
        def convert(x: Array) -> Array:
            if np.dtype(dtype).kind not in "iu" or x.dtype.kind in "iub":
                return np.asarray(x != 0) if dtype is np.bool_ else x.astype(dtype)
            info = np.iinfo(dtype)
            whole = [0 if math.isnan(v) else v for v in x.astype(np.float64)]
            clipped = [info.max if v >= info.max else info.min if v <= info.min else int(v) for v in whole]
            return np.array(clipped, dtype)

        return convert

    x = numbers((64,), source, 5)
    if np.dtype(source).kind not in "iub":
        with np.errstate(over="ignore"):
            x[:8] = np.array([0, -0.0, 1e9, -1e9, math.inf, -math.inf, math.nan, 200.7]).astype(source)
    cases: dict[str, Case] = {}
    for target in ALL:
        dtype = DType.from_numpy(np.dtype(target))
        cases[str(dtype)] = (lambda x, dtype=dtype: ops.cast(x, dtype), reference(target))
    del cases[str(DType.from_numpy(np.dtype(source)))]
    graphs.check(cases, x)


def test_a_cast_to_the_same_dtype_is_the_tensor_itself() -> None:
    x = numbers((5,), np.float32)
    (y,) = graphs.run(lambda x: ops.cast(x, DType.float32), x)
    np.testing.assert_array_equal(x, y)


def test_operands_are_promoted() -> None:
    small, wide = np.arange(-3, 4, dtype=np.int8), np.linspace(-1, 1, 7)
    half, flags = np.linspace(-2, 2, 7).astype(np.float16), np.arange(7) % 2 == 0
    outputs = graphs.run(lambda a, b, c, d: [a + b, a * c, d + a, c + b], small, wide, half, flags)
    expected = [small + wide, small.astype(np.float16) * half, flags + small, half + wide]
    for got, wanted in zip(outputs, expected, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", (np.float32, np.float16, ml_dtypes.bfloat16, np.int16, np.uint8))
def test_plain_operands_on_either_side(dtype: Any) -> None:
    """Python numbers, NumPy scalars and arrays take the tensor's dtype; reflected operators keep the order."""
    x = np.array([1, 2, 3, 4, 5, 7], dtype)
    row = np.array([3, 1, 2, 6, 5, 4], np.int64)

    def case(function: Callable[[Any], Any], wide: bool = True) -> Case:
        return function, (lambda x: widely(function)(x).astype(dtype)) if wide else function

    typed = row.astype(np.float32 if np.dtype(dtype) in HALVES else dtype)
    cases: dict[str, Case] = {
        "x + 1": case(lambda x: x + 1),
        "9 - x": case(lambda x: 9 - x),
        "x - 1": case(lambda x: x - 1),
        "3 * x": case(lambda x: 3 * x),
        "12 // x": case(lambda x: 12 // x),
        "12 % x": case(lambda x: 12 % x),
        "x // 2": case(lambda x: x // 2),
        "x % 3": case(lambda x: x % 3),
        "2 ** x": case(lambda x: 2**x),
        "x ** 2": case(lambda x: x**2),
        "row - x": (lambda x: row - x, widely(lambda x: typed - x)),
        "x * row": (lambda x: x * row, widely(lambda x: x * typed)),
        "np scalar - x": (lambda x: np.int64(9) - x, widely(lambda x: (9 - x).astype(x.dtype))),
        "2 < x": case(lambda x: x > 2, False),
        "x >= 3": case(lambda x: x >= 3, False),
        "3 == x": case(lambda x: x == 3, False),
        "x != 3": case(lambda x: x != 3, False),
        "row < x": (lambda x: row < x, lambda x: row.astype(x.dtype) < x),
        "maximum(x, 3)": (lambda x: ops.maximum(x, 3), lambda x: np.maximum(x, x.dtype.type(3))),
        "divmod(x, 2)[1]": case(lambda x: divmod(x, 2)[1]),
        "divmod(9, x)[0]": case(lambda x: divmod(9, x)[0]),
        "-x": case(lambda x: -x),
        "+x": case(lambda x: +x),
        "abs(x)": case(lambda x: abs(x)),
    }
    graphs.check(cases, x)


def test_plain_floats_combine_with_floats() -> None:
    x = np.linspace(0.1, 3, 50).astype(np.float32)
    cases: dict[str, Case] = {
        "1.5 / x": (lambda x: 1.5 / x, lambda x: np.float32(1.5) / x),
        "x - 0.1": (lambda x: x - 0.1, lambda x: x - np.float32(0.1)),
        "np.float64": (lambda x: np.float64(0.1) * x, lambda x: np.float32(0.1) * x),
        "rank 0 array": (lambda x: np.array(0.1) + x, lambda x: np.float32(0.1) + x),
        "column": (lambda x: x + np.ones((2, 1)), lambda x: x + np.ones((2, 1), np.float32)),
        "inf": (lambda x: ops.minimum(x, math.inf), lambda x: x),
        "nan": (lambda x: x == math.nan, lambda x: np.zeros(x.shape, np.bool_)),
        "-0.0": (lambda x: 1 / ((x - x) * -0.0 - 0.0), lambda x: np.full_like(x, -math.inf)),
    }
    graphs.check(cases, x)


def test_comparisons_with_nan_are_false() -> None:
    x = np.array([math.nan, 1, math.nan], np.float64)
    y = np.array([math.nan, math.nan, 1], np.float64)
    outputs = graphs.run(lambda x, y: [x < y, x <= y, x > y, x >= y, x == y, x != y], x, y)
    for output in outputs[:5]:
        assert not output.any()
    assert outputs[5].all()


def test_constants_of_every_kind() -> None:
    literal = [[1, 2], [3, 4]]
    array = np.arange(6, dtype=np.uint16).reshape(2, 3)
    half = np.array([1.5, -2.0, math.nan], ml_dtypes.bfloat16)
    flags = np.array([True, False])
    outputs = graphs.run(
        lambda: [
            ops.constant(2.5),
            ops.constant(literal),
            ops.constant(literal, DType.float16),
            ops.constant(array),
            ops.constant(half),
            ops.constant(flags),
            ops.constant(np.zeros((0, 3))),
            ops.constant(True),
            ops.constant(7, DType.int8) + ops.constant(array, DType.int8),
            ops.constant(array.T),
        ]
    )
    expected = [
        np.float32(2.5),
        np.array(literal),
        np.array(literal, np.float16),
        array,
        half,
        flags,
        np.zeros((0, 3)),
        np.True_,
        (array + 7).astype(np.int8),
        array.T,
    ]
    for got, wanted in zip(outputs, expected, strict=True):
        assert graphs.difference(got, np.asarray(wanted)) is None


def test_scalar_constants_keep_their_bits() -> None:
    values = [0.1, -0.0, 1e-45, 3.4028235e38, math.inf, -math.inf, math.nan]
    x = np.ones(3, np.float32)
    outputs = graphs.run(lambda x: [x * ops.constant(v, DType.float32) for v in values], x)
    for output, value in zip(outputs, values, strict=True):
        with np.errstate(all="ignore"):
            wanted = x * np.float32(value)
        np.testing.assert_array_equal(output, wanted)
        np.testing.assert_array_equal(np.signbit(output), np.signbit(wanted))
    big = [2**63 - 1, -(2**63), 2**53 + 1]
    outputs = graphs.run(lambda x: [x + v for v in big], np.zeros(2, np.int64))
    assert [int(o[0]) for o in outputs] == big
    (top,) = graphs.run(lambda x: [x + (2**64 - 1)], np.zeros(2, np.uint64))
    assert int(top[0]) == 2**64 - 1


def test_broadcasting_with_symbols() -> None:
    cases: dict[str, Case] = {
        "outer": (lambda a, b, c: a + b, lambda a, b, c: a + b),
        "column": (lambda a, b, c: c * b - a, lambda a, b, c: c * b - a),
        "where": (
            lambda a, b, c: ops.where(a < b, c, b),
            lambda a, b, c: np.where(a < b, c, b),
        ),
    }

    def arrays(m: int, n: int) -> list[Array]:
        return [numbers((n,), np.float32, 1), numbers((m, 1), np.float32, 2), numbers((1, n), np.float32, 3)]

    model = graphs.check(cases, *arrays(3, 5), shapes=[["n"], ["m", 1], [1, "n"]])
    for m, n in ((1, 1), (70, 33), (0, 3), (3, 0), (5, 3)):
        graphs.compare(model, cases, *arrays(m, n))
