"""`check_op` passes right ops, finds what is wrong with wrong ones, and leaves a program that shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.compiler.build import build_package
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.testing import CheckError, check_op

KERNELS = Path(__file__).parent / "checked_kernels.py"
HALVES = (DType.float16, DType.bfloat16)


def failure(tmp_path: Path, op: str, **options: Any) -> CheckError:
    with pytest.raises(CheckError) as caught:
        check_op(op, KERNELS, folder=tmp_path, **options)
    return caught.value


def test_a_reference_next_to_the_kernel() -> None:
    report = check_op("scaled", KERNELS, sizes=(1, 2, 3, 17, 33), parameters=[{}, {"shift": 2.0}])
    assert report.compared == ("the reference", "the interpreter")
    assert report.instances == 4 + 2 + 3  # dtypes; ranks of the first; ranks with the second parameters
    assert report.cases > 40 and report.skipped == 0


def test_reductions_mutable_and_variadic_arguments() -> None:
    def total(x: Any) -> Any:
        wide = np.float32 if x.dtype.itemsize == 2 else x.dtype
        return sum((x[:, k].astype(wide) for k in range(x.shape[1])), np.zeros(x.shape[0], wide)).astype(x.dtype)

    check_op("row_sum", KERNELS, reference=total, dtypes={"F": [DType.float64, DType.float32]})

    def add_into(x: Any, y: Any) -> None:
        x += y

    check_op("add_into", KERNELS, reference=add_into)
    check_op("add_all", KERNELS, reference=lambda xs: xs[0] + xs[1])


def test_sizes_that_are_computed_and_elements_of_ones_own() -> None:
    assert check_op("doubled", KERNELS, reference=lambda x: np.repeat(x, 2), sizes=(1, 17)).cases > 3
    data = {"index": lambda rng, dtype, shape: rng.integers(0, 3, shape)}
    check_op("picked", KERNELS, reference=lambda x, index: x[index], data=data, sizes=(3, 17), empty=False)


def test_ops_that_ship() -> None:
    """One dtype of each class: all of them are in the tests of the ops."""
    dtypes = {"N": [DType.float16, DType.float64, DType.int8, DType.uint32]}
    check_op("relu", reference=lambda x: np.maximum(x, np.zeros((), x.dtype)), sizes=(1, 17, 33), dtypes=dtypes)
    dtypes = {"F": [DType.float32, DType.bfloat16]}
    report = check_op("softmax", parameters={"axis": 1}, sizes=(3, 8), ranks={"b": [1]}, dtypes=dtypes)
    assert report.compared == ("the reference", "the interpreter")
    with pytest.raises(PackageError, match="no op 'rellu' ships"):
        check_op("rellu")


def test_packages(tmp_path: Path) -> None:
    file = tmp_path / "kernels.pkg"
    build_package(str(KERNELS), str(file), targets=[])
    check_op("scaled", file, reference=lambda x, by, *, shift: x * by + shift, dtypes={"F": [DType.float64]})
    with pytest.raises(PackageError, match="has no op 'scale'"):
        check_op("scale", file)


def test_a_forgotten_tail_is_found_and_made_small(tmp_path: Path) -> None:
    error = failure(tmp_path, "forgets_the_tail", reference=lambda x: x + x.dtype.type(1))
    assert (error.code, error.op) == ("EK0730", "forgets_the_tail")
    assert "differs from the reference at output 0[16]: expected np.float32(" in error.message
    assert any("the inputs are float32[17] (T=float32; " in note for note in error.notes)
    (file,) = tmp_path.glob("failing_*.py")
    assert str(file) in error.notes[-1]
    assert "inputs = [" in file.read_text() and file.read_text().count("0x0") >= 16  # zeros instead of noise


def test_the_saved_program_shows_the_failure(tmp_path: Path) -> None:
    error = failure(tmp_path, "loses_nan", reference=lambda x: np.maximum(x, 0).astype(x.dtype))
    assert "nan" in str(error.expected) and error.got == 0
    (file,) = tmp_path.glob("failing_loses_nan_*.py")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "error[EK0730]: op 'loses_nan' differs from the reference" in done.stderr


def test_extremes_and_aliasing(tmp_path: Path) -> None:
    error = failure(tmp_path, "wraps", reference=lambda x: x.astype(np.int64) ** 2, dtypes={"T": [DType.int8]})
    assert "int8" in error.notes[0] and "special elements" in error.notes[0]
    error = failure(tmp_path, "aliased", reference=lambda x, y: x - y, special=False)
    assert "same elements" in error.notes[0]


def test_wrong_shapes_dtypes_and_no_cases(tmp_path: Path) -> None:
    error = failure(tmp_path, "row_sum", reference=lambda x: x.sum(axis=0))
    assert error.message == "op 'row_sum' gives float32[1] for output 0, the reference says float32[2]"
    error = failure(tmp_path, "wraps", reference=lambda x: x, dtypes={"T": [DType.int8]})
    assert "gives int64[1] for output 0, the reference says int8[1]" in error.message
    assert failure(tmp_path, "scaled", dtypes={"F": []}).code == "EK0731"


def test_members_of_a_promised_batch_are_compared_with_calls_of_their_own(tmp_path: Path) -> None:
    assert check_op("row_totals", KERNELS, sizes=(1, 3, 17)).cases > 3
    error = failure(tmp_path, "mixes_rows", sizes=(1, 3))
    assert "a call for member 0 of the batch" in str(error), error


def test_a_case_of_ones_own(tmp_path: Path) -> None:
    x = np.array([1.0, 2.0], np.float32)
    check_op("scaled", KERNELS, inputs=[x, np.float32(2)], expected=[np.array([2.5, 4.5], np.float32)])
    with pytest.raises(CheckError, match=r"at output 0\[1\]: expected np.float32\(4.0\), got np.float32\(4.5\)"):
        check_op(
            "scaled", KERNELS, inputs=[x, np.float32(2)], expected=[np.array([2.5, 4.0], np.float32)], folder=tmp_path
        )
