"""The cases of graph ops on a GPU, against the references that the host is tested with.

With a library of the tests, whose kernels are interpreted, the first case of a few ops has to do.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from support import graphs, op_cases

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import Accelerator, Buffer, DeviceRef, InferenceSession
from einkorn.graph.ops.stage import OPS

GPU = DeviceRef.GPU()


class Case(op_cases.Case):
    """A case that is called by its op."""

    def __str__(self) -> str:
        return self.op


FOUND = [case for cases in op_cases.families().values() for case in op_cases.first_of_each(cases)]
CASES = [Case(**vars(case)) for case in FOUND]
SAMPLE_CASES = [case for case in CASES if case.op in ("take_along_axis", "argsort", "tile", "pad")]
# Other last places than those of the host: sums in another order, and instructions for functions.
ULPS = 8


def moved(type: Any) -> Any:
    """A type on the GPU."""
    return dataclasses.replace(type, device=GPU)


def check_op(case: Case, gpu: Accelerator) -> None:
    if OPS[case.op].host_only:
        pytest.skip(OPS[case.op].host_only)
    batch = op_cases.Batch([case], case.dtypes[0])
    try:
        graph = batch.graph(change=moved)
        model = InferenceSession([gpu]).load(graph, weights_registry=dict(case.weights or {}))
    except EinkornError as error:
        if error.code in ("EK0430", "EK0806", "EK0809"):  # of values that the case makes on the host
            pytest.skip(f"its case names the host: {error.message}")
        raise
    for run in range(batch.runs):
        arrays = batch.arrays(run)
        wanted = batch.expected([array.copy() for array in arrays])
        inputs = [Buffer.from_numpy(np.require(array, requirements=["C"])).to(GPU) for array in arrays]
        for got, (op, expected, ulps) in zip(model(*inputs), wanted, strict=True):
            wrong = graphs.difference(got.to_numpy(), expected, max(ulps, ULPS) if expected.dtype.kind == "f" else 0)
            assert wrong is None, f"{op}: {wrong}"
