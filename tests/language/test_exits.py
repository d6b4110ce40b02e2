"""`return`, `break` and `continue` from anywhere: the same functions run in kernels and in Python."""

from __future__ import annotations

from pathlib import Path

import exit_kernels as text
import numpy as np
import pytest
from kernel_harness import KernelFile


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "exit_kernels.py")


@pytest.mark.parametrize("sign", [1, -1])
def test_functions_end_where_python_ends_them(kernels: KernelFile, sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "unroll", range)
    x = np.random.default_rng(sign + 1).standard_normal((40, 9)).astype(np.float32)
    at, out = kernels("exits", x, sign=sign)
    for row, places, values in zip(x, at.tolist(), out, strict=True):
        value, _, place = text.nested(lambda j: row[j], 9)  # noqa: B023
        total, count, best = np.float32(0), 0, (np.float32(0), 0)
        for j, v in enumerate(row):
            total, count = total + v, count + 1
            best = (v, j) if v > best[0] else best
            if total > 4:
                break
        assert places == [text.found(lambda j: row[j], 9), *place, count * 100 + best[1]]  # noqa: B023
        summed = text.summed(lambda j: row[j], 9, lambda v: v + np.float32(sign))  # noqa: B023
        assert values.tolist() == [value, text.partly(row[0], row[1]), summed, total, best[0]]


def test_a_function_that_always_raises_fits_anywhere(kernels: KernelFile) -> None:
    x = np.array([-1, -2], np.float32)
    assert kernels("refused", x)[0].tolist() == [-1, -2]
    assert kernels.reports == []
    kernels("refused", np.array([-1, 2], np.float32))
    assert len(kernels.reports) == 1 and "is refused" in kernels.reports[0]
