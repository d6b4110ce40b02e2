"""Structs give what the same algorithm gives in Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import KernelFile, assert_same_bits, dtype_name

from einkorn.dsl.frontend.read_program import read_program


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "struct_kernels.py")


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=dtype_name)
def test_operators_in_a_loop_with_a_return(kernels: KernelFile, dtype: Any) -> None:
    c = normal(2, 40, dtype=dtype)
    (got,) = kernels("mandelbrot", c[0], c[1])
    for k in range(40):
        re, im, steps = dtype(0), dtype(0), 0
        while steps < 30 and not re * re + im * im > 4:
            re, im = re * re - im * im + c[0, k], re * im + im * re + c[1, k]
            steps += 1
        assert got[k] == steps


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=dtype_name)
def test_operators_methods_properties(kernels: KernelFile, dtype: Any) -> None:
    re, im = normal(2, 9, dtype=dtype)
    re[0] = im[0] = 0
    (got,) = kernels("algebra", re, im)
    one, zero, two = dtype(1), dtype(0), dtype(2)
    assert_same_bits(got[:2], np.stack([zero * re - one * im, zero * im + one * re]))
    a, b = one, zero
    for _ in range(3):
        a, b = a * re - b * im, a * im + b * re
    assert_same_bits(got[2:4], np.stack([a + re, b + im]))
    x, y = two * re, two * -im
    assert_same_bits(got[4:6], np.stack([x, np.sqrt(x * x + y * y)]))
    assert got[6].tolist() == [1.0] * 9
    assert got[7].tolist() == [7.0] + [0.0] * 8


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=dtype_name)
def test_numbers_in_structs_adopt_types_in_loops(kernels: KernelFile, dtype: Any) -> None:
    x = normal(4, 11, dtype=dtype)
    means, sums = kernels("welford", x)
    for row, got_mean, got_m2 in zip(x, means, sums, strict=True):
        mean, m2 = dtype(0), dtype(0)
        for k, v in enumerate(row, 1):
            delta = v - mean
            mean = mean + delta / dtype(k)
            m2 = m2 + delta * (v - mean)
        assert (got_mean, got_m2) == (mean, m2)


def test_nested_structs_are_values(kernels: KernelFile) -> None:
    re = np.array([-3, -1, -0.5, 0.5, 1, 1.5, 2.5], np.float32)
    im = np.array([0, 0.5, -2, 1, -1.25, 0.25, -0.5], np.float32)
    (got,) = kernels("boxes", re, im)
    for k, (x, y) in enumerate(zip(re.tolist(), im.tolist(), strict=True)):
        inside = -1 <= x <= 1 and -1 <= y <= 1
        grown = -2 <= x <= 2 and -1 <= y <= 1
        moved = x >= -1 and -1.5 <= y <= 1
        low = (2.0, -1.5) if x > 0 else (x, y) if y > 0 else (-1.0, -1.5)
        last = 1 if low == (2.0, -1.5) else 2 if low == (x, y) else 0
        assert got[:, k].tolist() == [inside, grown, 1, moved, x < 2, 6, last], k


def test_structs_in_tuples_go_round_and_return(kernels: KernelFile) -> None:
    x = normal(12, 7, seed=1)
    values, at = kernels("argmax_pair", x)
    for row, value, where in zip(x, values, at, strict=True):
        best, least, stopped = (row[0], 0), (-row[0], 0), False
        for j, v in enumerate(row):
            if v > 2:
                stopped = True
                break
            best = (v, j) if v > best[0] else best
            least = (-v, j) if -v > least[0] else least
        wanted = best if stopped or best[0] > -least[0] + np.float32(1) else least
        assert (value, where) == wanted


def test_vectors_in_structs(kernels: KernelFile) -> None:
    x = normal(12)
    assert_same_bits(kernels("lanes", x)[0], x * 4)
    x = normal(8, dtype=np.float64)
    assert_same_bits(kernels("lanes", x)[0], x * 4)


def test_functions_of_parts(kernels: KernelFile) -> None:
    x = np.array([1.0, -2.5, 0.0])
    (out,) = kernels("parts", x)
    assert np.array_equal(out, 303 * x + 30)


def test_choices_and_reports(kernels: KernelFile) -> None:
    x = np.array([-1.5, 0.25, 3.0])
    (got,) = kernels("choices", x)
    for v, value in zip(x.tolist(), got, strict=True):
        a = complex(v) if v > 0 else complex(0.5, v)
        b = (a, 1) if v > 1 else (a * a, 2)
        t = complex(a.real, 0.25)
        for z in (a, t, b[0]):
            t = t + z
        assert value == t.real + t.imag + b[1]
    assert '"Complex("' in kernels.reports[0] and '"re="' in kernels.reports[0]


def test_structs_travel(kernels: KernelFile) -> None:
    for loaded in kernels.library.kernels.values():
        program = loaded.portable
        copy = read_program(json.loads(json.dumps(program.to_json())))
        assert copy.digest == program.digest and copy.to_json() == program.to_json()
    used = {entry.kind for loaded in kernels.library.kernels.values() for entry in loaded.portable.globals}
    assert {"struct", "instance"} <= used


def test_structs_are_ordinary_values_in_python() -> None:
    from struct_kernels import UNIT, Best, Complex

    z = Complex(1.0, 2.0)
    assert z * UNIT == Complex(-2.0, 1.0) and z != UNIT and hash(z) == hash(Complex(1.0, 2.0))
    assert repr(z) == "Complex(re=1.0, im=2.0)" and z.norm == 5.0 and Complex.of((1, 2)) == z
    assert Best(1.0, 2).better(3.0, 4) == Best(3.0, 4)
    with pytest.raises(AttributeError):
        z.re = 3.0  # type: ignore[misc]
