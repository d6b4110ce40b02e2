"""`check_op(..., gradients=True)`: backwards next to finite differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from einkorn.compiler.build import build_package
from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.dsl.package.library import load_library
from einkorn.testing import CheckError, check_op

KERNELS = Path(__file__).with_name("gradient_kernels.py")
SMALL_RUN = {"sizes": (2, 3), "empty": False, "gradients": True}


@pytest.mark.parametrize("op", ["product_of", "square", "softplus_of", "all_of"])
def test_right_backwards(op):
    report = check_op(op, KERNELS, ranks={"s": (1,)} if op in ("product_of", "square") else None, **SMALL_RUN)
    assert "finite differences" in report.compared and not report.refusals


def test_inputs_of_the_callers_own():
    x, at = np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2], np.int32)
    expected = [x[at] * 3, x[:-1] + x[1:]]
    check_op("picked", KERNELS, inputs=[x, at], expected=expected, gradients=True)


def test_a_wrong_backward_is_found(tmp_path):
    with pytest.raises(CheckError, match="the backward of op 'wrong_sign' says") as caught:
        check_op("wrong_sign", KERNELS, folder=tmp_path, **SMALL_RUN)
    error = caught.value
    assert (error.code, error.op, error.argument) == ("EK0730", "wrong_sign", "x")
    assert error.expected == pytest.approx(-error.got, rel=1e-4)


def test_without_a_backward():
    with pytest.raises(GraphError, match="'no_backward' has no backward") as caught:
        check_op("no_backward", KERNELS, **SMALL_RUN)
    assert caught.value.code == "EK0732" and "@no_backward.backward" in caught.value.hint


def test_a_package_carries_backwards_that_are_kernels(tmp_path):
    (tmp_path / "cubes.py").write_text(CUBES)
    package = build_package(str(tmp_path / "cubes.py"), str(tmp_path / "cubes.pkg"), [])
    assert package.manifest.format == (1, 3) and package.op("cube_of").backward == "cube_gradient"
    check_op("cube_of", tmp_path / "cubes.pkg", gradients=True, sizes=(3,))
    kernels = load_library(tmp_path / "cubes.pkg").kernels
    assert kernels["square_of"].gradient is None, "a function is not carried"
    again = kernels["cube_gradient"].gradient
    assert again is not None and again.compute.schema.name == "cube_gradient"


CUBES = """
from typing import TypeVar
from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register

T = TypeVar("T", bound=Floating)


@register("cube_gradient")
def cube_gradient(grad_x: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], grad_out: InputTensor[T, "*s"]):
    foreach(grad_x, lambda i: grad_out[i] * 3 * x[i] * x[i])


@register("cube_of")
def cube_of(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] * x[i] * x[i])


@register("square_of")
def square_of(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] * x[i])


cube_of.backward(cube_gradient)
cube_gradient.backward(cube_gradient)
square_of.backward(lambda context, grad: 2 * context.inputs[0] * grad)
"""
