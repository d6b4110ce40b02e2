"""Sequences that are known at compile time mean what they mean in Python: the same functions run in both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import sequence_kernels as text
from kernel_harness import KernelFile


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "sequence_kernels.py")


def test_functions_give_what_python_gives(kernels: KernelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(text, "min")  # Python's own from here on
    monkeypatch.delattr(text, "max")
    monkeypatch.setattr(text, "unroll", lambda values: values)
    v, w = np.random.default_rng(0).integers(-12, 26, (2, 60))
    v[:3] = 4, 9, 25
    (got,) = kernels("sequences", v, w)
    functions = (text.generated, text.quantified, text.walked, text.downwards, text.requested)
    functions += (text.unrolled, text.unrolled_in_each_other)
    for row, function in zip(got, functions, strict=True):
        wanted = [function(int(a), int(b)) for a, b in zip(v, w, strict=True)]
        assert row.tolist() == wanted, function.__name__


def test_all_stops_where_python_stops(kernels: KernelFile) -> None:
    v = np.array([3, 1, 4, -1, 5, 9, 2, 6])
    at = np.array([0, 1, 2, 3, 4, 5, 6, 1 << 40])
    (got,) = kernels("guarded", v, at)
    wanted = [int(all(a + k < 8 and v[a + k] > 0 for k in range(3))) for a in at.tolist()]
    assert got.tolist() == wanted
