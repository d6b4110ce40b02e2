"""Functions that get compile-time values alone are computed then, with the bits that running them gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pure_kernels as text
import pytest
from kernel_harness import KernelFile, assert_same_bits


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "pure_kernels.py")


def test_whole_numbers(kernels: KernelFile) -> None:
    v = np.array([1, 2, 7, 12, 9])
    folded, ran = kernels("whole", v)
    h = text.harmonic(12)
    counted = text.words(4) + text.collatz(27) + 2
    assert folded.tolist() == [5040, text.collatz(27), 8, h.top, h.bottom, counted]
    assert ran[0].tolist() == [text.collatz(n) for n in v.tolist()]
    assert ran[1].tolist() == [text.harmonic(n).top * 1000 + text.harmonic(n).bottom for n in v.tolist()]


def test_floats_fold_as_they_run(kernels: KernelFile) -> None:
    folded, ran = kernels("floats", np.array(text.POINTS))
    assert_same_bits(folded, ran)
    (got,) = kernels("adopted", np.array([1, 3], np.float32))
    assert_same_bits(got, np.array([1, 3], np.float32) * np.float32(ran[0, 0]))
