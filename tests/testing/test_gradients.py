"""`check_op(..., gradients=True)`: backwards beside finite differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.testing import CheckError, check_op

KERNELS = Path(__file__).with_name("gradient_kernels.py")
FEW = {"sizes": (2, 3), "empty": False, "gradients": True}


@pytest.mark.parametrize("op", ["product_of", "square", "softplus_of", "all_of"])
def test_right_backwards(op):
    report = check_op(op, KERNELS, ranks={"s": (1,)} if op in ("product_of", "square") else None, **FEW)
    assert "finite differences" in report.compared and not report.refusals


def test_inputs_of_the_callers_own():
    x, at = np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2], np.int32)
    expected = [x[at] * 3, x[:-1] + x[1:]]
    check_op("picked", KERNELS, inputs=[x, at], expected=expected, gradients=True)


def test_a_wrong_backward_is_found(tmp_path):
    with pytest.raises(CheckError, match="the backward of op 'wrong_sign' says") as caught:
        check_op("wrong_sign", KERNELS, folder=tmp_path, **FEW)
    error = caught.value
    assert (error.code, error.op, error.argument) == ("EK0730", "wrong_sign", "x")
    assert error.expected == pytest.approx(-error.got, rel=1e-4)


def test_without_a_backward():
    with pytest.raises(GraphError, match="'no_backward' has no backward") as caught:
        check_op("no_backward", KERNELS, **FEW)
    assert caught.value.code == "EK0732" and "@no_backward.backward" in caught.value.hint
