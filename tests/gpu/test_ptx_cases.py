"""Every GPU test kernel as PTX, run by the interpreter of `support.ptx`."""

from __future__ import annotations

import numpy as np
import pytest
from support.gpu_cases import CASES, GpuCase
from support.launching_device import run_unit
from support.ptx_device import run_ptx

# One target for each step of what LLVM writes: without and with asynchronous copies and bfloat16, with clusters.
TARGETS = ("sm_75", "sm_80", "sm_90a")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_ptx(case: GpuCase) -> None:
    for target in TARGETS:
        if case.refusal(target) is None:
            outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]
            run_unit(case.spec(), target, run_ptx, [*(array.copy() for array in case.inputs()), *outputs])
            case.check(outputs)
