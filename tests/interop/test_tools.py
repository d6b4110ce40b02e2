"""What kernels can do next to being called: compile ahead, show their stages, and be timed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError, KernelError
from einkorn.graph import TensorType

from . import direct_kernels as k

X = np.arange(5, dtype=np.float32)


def test_compiled_kernels_are_called_like_kernels() -> None:
    made = k.scale_and_shift.compile(TensorType(DType.float32, [128]), scale=3.0)
    assert made(X).tolist() == (3 * X).tolist()
    y = np.empty(5, np.float32)
    assert made(X, out=y) is y and y[1] == 3
    assert k.add.compile(X, X)(X, X).tolist() == (2 * X).tolist()
    assert k.axpy.compile(2.0, X, X)(4.0, X, X).tolist() == (5 * X).tolist()
    with pytest.raises(EinkornError, match=r"is compiled for Tensor\[float32, \(n\)") as caught:
        k.add.compile(X, X)(X.astype(int), X.astype(int))
    assert caught.value.code == "EK0854"
    assert "add" in repr(k.add.compile(X, X)) and "float32" in k.add.compile(X, X)._repr_html_()


def test_checks_are_those_that_were_requested() -> None:
    bad = np.array([1, -1], np.float32)
    with pytest.raises(KernelError):
        k.positive.compile(bad)(bad)
    assert k.positive.compile(bad, checks="off")(bad).tolist() == [1, -1]


def test_stages_of_what_a_call_compiles(tmp_path: Path) -> None:
    typed = k.scale_and_shift.inspect(X.reshape(5, 1), scale=3.0)
    assert "3.0" in typed and "float32" in typed
    assert "float64" in k.add.inspect(X.astype(float), X.astype(float))
    assert "@" in k.add.inspect(X, X, stage="llvm") and ".visible .entry" in k.add.inspect(
        X, X, stage="asm", target="sm_90"
    )
    assert k.add.compile(X, X).code("mlir").startswith("module")
    with pytest.raises(EinkornError, match="unknown stage"):
        k.add.inspect(X, X, stage="assembly")
    page = k.add.explore(X, X)
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!") and "<iframe" in page._repr_html_()


def test_benchmarks_compare() -> None:
    actual = k.add_one.benchmark(X, peers={"numpy": lambda x: x + 1})
    assert [row.name for row in actual.rows] == ["add_one", "numpy"]
    assert all(0 < row.best <= row.median for row in actual.rows)
    assert "numpy" in str(actual) and "<table" in actual._repr_html_()
