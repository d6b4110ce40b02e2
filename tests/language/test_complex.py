"""Complex numbers in kernels, against NumPy; the harness compares compiled code with the interpreter, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import KernelFile, assert_same_bits, dtype_name

from einkorn.dsl import DType
from einkorn.testing import check_op

TYPES = [np.complex64, np.complex128]
BY_TYPE = pytest.mark.parametrize("dtype", TYPES, ids=dtype_name)
PARTS = (0.0, -0.0, 1.0, -1.0, 0.5, -3.0, np.inf, -np.inf, np.nan)
SPECIAL = [complex(a, b) for a in PARTS for b in PARTS]


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "complex_kernels.py")


def normal(*shape: int, dtype: Any = np.complex64, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def assert_near(got: Any, wanted: Any, ulps: float = 4) -> None:
    """The error is at most so many units of the number's last place, by its absolute value."""
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    size = np.maximum(np.abs(wanted), np.finfo(got.dtype).tiny)
    wrong = np.abs(got - wanted) / size / np.finfo(got.dtype).eps
    assert np.nanmax(wrong) <= ulps, (np.nanargmax(wrong), np.nanmax(wrong))


AT_ONCE = 81


def functions_of(kernels: KernelFile, x: Any) -> np.ndarray[Any, Any]:
    """The functions of numbers, by one kernel of a fixed size: its code takes seconds to make."""
    parts = np.resize(x, (-(-len(x) // AT_ONCE), AT_ONCE))
    return np.concatenate([kernels("functions", part)[0] for part in parts], 1)[:, : len(x)]


def same_parts(got: Any, wanted: Any) -> np.ndarray[Any, Any]:
    """Where both parts have one kind of value: the same infinity, zero or NaN, or near numbers."""
    same = np.ones(got.shape, bool)
    for a, b in ((got.real, wanted.real), (got.imag, wanted.imag)):
        near = np.isclose(a, b, rtol=1e-5, atol=0) & (np.signbit(a) == np.signbit(b))
        same &= near | (np.isnan(a) & np.isnan(b))
    return same


@BY_TYPE
def test_operators(kernels: KernelFile, dtype: Any) -> None:
    x, y = normal(2, 67, dtype=dtype)
    (got,) = kernels("operators", x, y)
    wanted = [x + y, x - y, x * y, x / y, -x, x.conj() * 2, (1 - x) * dtype(0.5) + dtype(2 + 1j)]
    for row, numbers in zip(got, wanted, strict=True):
        assert_near(row, numbers)


@BY_TYPE
def test_operators_on_special_values(kernels: KernelFile, dtype: Any) -> None:
    """Sums, products and quotients have NumPy's infinities, zeros and NaN."""
    numbers = np.array(SPECIAL, dtype)
    x, y = (a.reshape(-1).copy() for a in np.broadcast_arrays(numbers[:, None], numbers))
    (got,) = kernels("operators", x, y)
    with np.errstate(all="ignore"):
        for row, wanted in zip(got[:5], (x + y, x - y, x * y, x / y, -x), strict=True):
            same = same_parts(row, wanted)
            assert same.all(), [(x[k], y[k], row[k], wanted[k]) for k in np.flatnonzero(~same)[:5]]


@BY_TYPE
def test_functions(kernels: KernelFile, dtype: Any) -> None:
    x = normal(150, dtype=dtype) * 3
    got = functions_of(kernels, x.astype(dtype))
    wide = x.astype(np.clongdouble)
    names = ("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "log2", "log10", "conj")
    for row, name in zip(got, names, strict=True):
        if name in ("log2", "log10"):
            wanted = np.log(wide) / np.log(np.longdouble(2 if name == "log2" else 10))
        else:
            wanted = getattr(np, name)(wide)
        assert_near(row, wanted.astype(dtype), 6)


@BY_TYPE
def test_functions_of_special_values(kernels: KernelFile, dtype: Any) -> None:
    """As C99 has them, signs of zeros included; where C99 leaves a sign open, it does not count."""
    x = np.array(SPECIAL, dtype)
    got = functions_of(kernels, x)
    with np.errstate(all="ignore"):
        for row, function in zip(got[:3], (np.exp, np.log, np.sqrt), strict=True):
            wanted = function(x)
            for part in ("real", "imag"):
                a, b = getattr(row, part), getattr(wanted, part)
                same = np.isclose(a, b, rtol=1e-5, atol=0, equal_nan=True)
                same &= (np.signbit(a) == np.signbit(b)) | np.isnan(b) | ~np.isfinite(x)
                assert same.all(), (function, [(x[k], row[k], wanted[k]) for k in np.flatnonzero(~same)[:5]])


@BY_TYPE
def test_large_and_small_numbers(kernels: KernelFile, dtype: Any) -> None:
    info = np.finfo(dtype)
    big, small = info.max / 2, info.tiny * 8
    x = np.array([complex(a, b) for a in (big, -big, small, 1) for b in (big, -big, small, -1)], dtype)
    edge = np.array([np.log(info.max) + 0.3 + 0.78j, np.log(info.max) + 0.3 - 0.78j], dtype)
    # the real part of a logarithm near 1 keeps its digits
    angles = np.exp(1j * np.linspace(0, 6, 50)).astype(dtype)
    results = functions_of(kernels, np.concatenate([x, edge, angles]))
    of_x, of_edge, got = np.split(results, [len(x), len(x) + len(edge)], axis=1)
    assert_near(of_x[1], np.log(x.astype(np.clongdouble)).astype(dtype))
    assert_near(of_x[2], np.sqrt(x.astype(np.clongdouble)).astype(dtype))
    assert np.isfinite(of_edge[0]).all()
    wanted = np.log(angles.astype(np.clongdouble)).real
    assert np.abs(got[1].real - wanted).max() <= 4 * info.eps * np.abs(wanted).max() + info.eps**2 * 4


def test_parts(kernels: KernelFile) -> None:
    x = normal(33)
    (got,) = kernels("parts", x)
    assert_same_bits(got[:2], np.stack([x.real, x.imag]))
    assert_near(got[2], np.abs(x))
    assert_same_bits(got[3], x.real + np.float32(2) + 0)


@BY_TYPE
def test_comparisons(kernels: KernelFile, dtype: Any) -> None:
    x = np.array(SPECIAL, dtype)
    y = np.roll(x, 1)
    y[::3] = x[::3]
    (got,) = kernels("tests", x, y)
    wanted = [x == y, x != y, np.isnan(x), np.isinf(x), np.isfinite(x), (x == 0) | (y != 0)]
    assert_same_bits(got, np.stack(wanted))


def test_construction(kernels: KernelFile) -> None:
    re, im = np.random.default_rng(1).standard_normal((2, 9)).astype(np.float32)
    (got,) = kernels("built", re, im)
    z = re + 1j * im
    wanted = [z, z, re, z, re + 1j, 2 + 1j * im, z * 1j, np.full(9, 3 + 6j), (7 + 1j * im) ** 2]
    for row, numbers in zip(got, wanted, strict=True):
        assert_near(row, numbers.astype(np.complex64))


@BY_TYPE
def test_powers(kernels: KernelFile, dtype: Any) -> None:
    x, y = normal(2, 40, dtype=dtype, seed=2)
    (got,) = kernels("powers", x, y)
    wide = x.astype(np.clongdouble)
    wanted = [wide**2, wide**5, 1 / wide, wide**0, np.exp(y * np.log(wide)), np.sqrt(wide), np.exp(wide * np.log(2))]
    for row, numbers in zip(got, wanted, strict=True):
        assert_near(row, numbers.astype(dtype), 16)


@BY_TYPE
def test_numbers_adopt_types_in_loops(kernels: KernelFile, dtype: Any) -> None:
    c = normal(5, 8, dtype=dtype)
    (got,) = kernels("escape", c)
    for at, number in np.ndenumerate(c):
        z, steps = dtype(0), 0
        while steps < 40 and abs(z) <= 2:
            z, steps = z * z + number, steps + 1
        assert abs(int(got[at]) - steps) <= 1


@BY_TYPE
def test_sums_and_choices(kernels: KernelFile, dtype: Any) -> None:
    x = normal(7, 13, dtype=dtype)
    (got,) = kernels("total", x)
    acc = (x * x.conj()).sum(1)
    best = x[np.arange(7), np.abs(x).argmax(1)]
    assert_near(got, np.where(x[:, 0].real > 0, acc + best, acc - best).astype(dtype), 8)


@BY_TYPE
def test_vectors(kernels: KernelFile, dtype: Any) -> None:
    x = normal(16, dtype=dtype)
    (got,) = kernels("vectors", x)
    for at in range(0, 16, 4):
        v, w = x[at : at + 4], x[at % 2 : at % 2 + 8 : 2].copy()
        mask = np.array([True, False, True, at > 3])
        rows = got[:, at : at + 4]
        assert_same_bits(rows[0], v[::-1].copy())
        assert_near(rows[1], (v * v[0] + 1j).astype(dtype))
        assert_same_bits(rows[2], np.where(mask, v, -v))
        assert_same_bits(rows[3], np.array([v[3], v[2], 1, 2j], dtype))
        assert_same_bits(rows[4], np.where(mask, v, dtype(5j)))
        assert_same_bits(rows[5], np.where(mask, v + v, v))
        w[1] = 7
        assert_same_bits(rows[6], w)
        w = x[at % 2 : at % 2 + 8 : 2]
        assert_near(rows[7], (np.array([w[3], v[0], w[1], v[2]]) + v.sum()).astype(dtype), 16)


@BY_TYPE
def test_memory(kernels: KernelFile, dtype: Any) -> None:
    x = normal(24, dtype=dtype)
    order = np.concatenate([np.random.default_rng(k).permutation(8) + 8 * k for k in range(3)]).astype(np.int32)
    (got,) = kernels("memory", x, order)
    wanted = np.empty_like(x)
    for b in range(0, 24, 8):
        at = order[b : b + 8]
        wanted[at] = x[at] + x[b : b + 8] * dtype(1j)
        wanted[b] = x[b + 3] * dtype(1j)
    assert_near(got, wanted)


def test_structs_casts_and_inputs_that_change(kernels: KernelFile) -> None:
    x = normal(9)
    (got,) = kernels("structs", x, np.arange(9, dtype=np.float64))
    assert_near(got, (x * -1j * (np.arange(9) + 3)).astype(np.complex64))
    (got,) = kernels("wide", x, np.arange(9, dtype=np.float64))
    assert_near(got, x.astype(np.complex128) * np.arange(9))
    y = x.copy()
    kernels("in_place", y)
    assert_near(y, (x * 1j + np.arange(9)).astype(np.complex64))


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float32, np.float16, np.complex64, np.complex128])
def test_one_text_for_all_numbers(kernels: KernelFile, dtype: Any) -> None:
    x = np.arange(6).astype(dtype) * dtype(1j if np.dtype(dtype).kind == "c" else 1)
    (got,) = kernels("any_number", x)
    assert_same_bits(got, x * x.conj() + dtype(1j if np.dtype(dtype).kind == "c" else 1))


def test_reports(kernels: KernelFile) -> None:
    kernels("says", np.array([1 - 2j, 3]))
    first = json.loads(kernels.reports[0])
    assert first[:6] == ["z is", " ", "(", ["", "float64"], " + ", ["", "float64"]]
    assert '".2f"' in kernels.reports[0] and "(2+1j)" in kernels.reports[0] and "three: " in kernels.reports[2]


def test_cases_of_complex_dtypes_are_derived() -> None:
    """`check_op` tries complex numbers where the signature allows them, special ones too."""
    path = Path(__file__).parent / "complex_kernels.py"

    def reference(x: Any) -> Any:
        if x.dtype.kind != "c":
            return x * x + x.dtype.type(1)
        actual, a, b = np.empty_like(x), x.real, x.imag  # NumPy contracts its products where it can
        actual.real, actual.imag = a * a - b * -b, a * -b + b * a + 1
        return actual

    report = check_op(
        "any_number", path, reference=reference, dtypes={"N": [DType.complex64, DType.int32]}, sizes=(1, 3)
    )
    assert report.instances >= 2


@BY_TYPE
def test_floats_next_to_complex_numbers_of_their_precision(kernels: KernelFile, dtype: Any) -> None:
    """They need no cast next to one, where one is stored, and where a variable is one."""
    z, x = normal(17, dtype=dtype), normal(17, dtype=dtype, seed=1).real.copy()
    (got,) = kernels("with_floats", z, x)
    wanted = [z * x + x, x - z / x, x.astype(dtype), np.where(x > 0, z, x), z + x.cumsum()]
    for row, numbers in zip(got, wanted, strict=True):
        assert_near(row, numbers.astype(dtype), 16)


@BY_TYPE
def test_absolute_values_of_any_size(kernels: KernelFile, dtype: Any) -> None:
    """To 1.25 units in the last place, among them zeros and subnormal numbers."""
    part = np.finfo(dtype).dtype
    rng = np.random.default_rng(2)
    low, high = np.finfo(dtype).minexp - 20, np.finfo(dtype).maxexp - 2
    z = (normal(4096, dtype=np.complex128) * np.exp2(rng.uniform(low, high, 4096))).astype(dtype)
    z[::5] = 0
    got = kernels("sizes", z)[0].real
    wanted = np.hypot(z.real.astype(np.longdouble), z.imag.astype(np.longdouble))
    assert np.abs(got - wanted).max(where=wanted == 0, initial=0) == 0
    assert (np.abs(got - wanted) / np.spacing(np.abs(wanted).astype(part))).max() <= 1.25
