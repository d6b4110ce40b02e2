"""Every GPU test kernel, and the kernels of the examples, as PTX, run by the interpreter of `support.ptx`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import harness
from support.gpu_cases import CASES, OTHER_ON_SM_75, GpuCase
from support.launching_device import run_unit
from support.ptx_device import run_ptx

from einkorn.dsl import DType

TARGETS = ("sm_75", "sm_90a")  # the oldest, and one with asynchronous copies, bfloat16 and clusters


@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_ptx(case: GpuCase) -> None:
    """For the older target only what may be another text there."""
    for target in TARGETS if case.name.startswith(OTHER_ON_SM_75) or case.refusal(TARGETS[-1]) else TARGETS[1:]:
        if case.refusal(target) is None:
            outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]
            run_unit(case.spec(), target, run_ptx, [*(array.copy() for array in case.inputs()), *outputs])
            case.check(outputs)


EXAMPLES = Path(__file__).parents[2] / "examples" / "custom_ops" / "kernels"


def floats(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def bytes_(*shape: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize(
    ("file", "op", "inputs", "params", "tolerance"),
    [
        ("addition", "add_one", [floats(37, 10)], {}, 0),
        ("addition", "add_one", [floats(37, 10).astype(np.float16)], {}, 0),
        ("parametric_addition", "add_constant", [floats(5, 6, 7)], {"value": 2.5}, 0),
        ("vector_addition", "vector_addition", [floats(1000), floats(1000)[::-1].copy()], {"block": 128}, 0),
        ("histogram", "histogram", [bytes_(20, 31, 3)], {}, 0),
        ("images", "grayscale", [bytes_(9, 14, 3)], {}, 0),
        ("images", "brightness", [floats(9, 14)], {}, 0),
        ("images", "blur", [floats(9, 14)], {"axis": 1}, 0),
        ("mandelbrot", "mandelbrot", [], {"height": 12, "width": 18, "limit": 40, "pixel": 0.2}, 0),
        ("mandelbrot", "palette", [bytes_(6, 7).astype(np.int32), np.abs(floats(6, 7)).astype(np.float64)], {}, 0),
        ("matrix_multiplication", "matrix_multiplication", [floats(13, 21), floats(21, 34)], {}, 1e-5),
        ("matrix_multiplication", "matrix_multiplication", [floats(9, 8), floats(8, 7)], {"algorithm": "naive"}, 1e-5),
        ("normalization", "layer_norm", [floats(11, 70), floats(70), floats(70)[::-1].copy()], {}, 1e-5),
        ("normalization", "row_softmax", [floats(11, 70)], {}, 1e-5),
    ],
)
def test_examples(file: str, op: str, inputs: list[Any], params: dict[str, Any], tolerance: float) -> None:
    """What the kernel gives on a CPU: the same bits, or numbers near them where sums are joined in another order."""
    path = EXAMPLES / f"{file}.py"
    wanted = harness.run_kernel(path, op, inputs, params)
    types = [(DType.from_numpy(array.dtype), array.shape) for array in inputs]
    outputs = [np.zeros_like(array) for array in wanted]
    run_unit(harness.entry_of(path, op, types, params)[0], "sm_80", run_ptx, [*(a.copy() for a in inputs), *outputs])
    for given, array in zip(outputs, wanted, strict=True):
        if tolerance:
            assert np.allclose(given, array, rtol=tolerance, atol=tolerance)
        else:
            assert given.tobytes() == array.tobytes()
