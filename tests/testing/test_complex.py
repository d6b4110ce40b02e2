"""`check_op` of ops on complex numbers: tolerances of products, and gradients in PyTorch's convention."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import pytest

from einkorn.dsl import ComplexFloating, InputTensor, OutputTensor, complex128, float64, foreach, register
from einkorn.testing import CheckError, check_op

C = TypeVar("C", bound=ComplexFloating)


@register("complex_checks::squared")
def squared(out: OutputTensor[C, "n"], x: InputTensor[C, "n"], y: InputTensor[C, "n"]) -> None:
    foreach(out, lambda i: x[i] * x[i] * y[i])


@squared.backward
def _(context: Any, grad: Any) -> Any:
    x, y = context.inputs
    return 2 * grad * (x * y).conj(), grad * (x * x).conj()


@register("complex_checks::wrong")
def wrong(out: OutputTensor[C, "n"], x: InputTensor[C, "n"]) -> None:
    foreach(out, lambda i: x[i] * x[i])


@wrong.backward
def _(context: Any, grad: Any) -> Any:
    """Not conjugated."""
    return 2 * grad * context.inputs[0]


@register("complex_checks::power")
def power(out: OutputTensor[float64, "n"], x: InputTensor[complex128, "n"]) -> None:
    foreach(out, lambda i: x[i].real * x[i].real + x[i].imag * x[i].imag)


@power.backward
def _(context: Any, grad: Any) -> Any:
    return 2 * grad * context.inputs[0]


def test_tolerances(tmp_path: Path) -> None:
    check_op(squared, reference=lambda x, y: x * x * y)
    with pytest.raises(CheckError, match="differs from the reference"):
        check_op(squared, reference=lambda x, y: x * x * y * (1 + 1e-4j), folder=tmp_path)


def test_gradients(tmp_path: Path) -> None:
    check_op(squared, reference=lambda x, y: x * x * y, gradients=True)
    check_op(power, reference=lambda x: x.real**2 + x.imag**2, gradients=True)
    with pytest.raises(CheckError, match="the backward of op 'complex_checks::wrong' says"):
        check_op(wrong, reference=lambda x: x * x, gradients=True, folder=tmp_path)
