"""The kernels that ship, interpreted and compiled, bit for bit: all of a file in one graph, for special values."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.dsl import DType
from einkorn.dsl.package.library import library_of
from einkorn.graph import DeviceRef, Graph, InferenceSession, TensorType, ops
from einkorn.testing import check_op
from einkorn.testing.failures import Tolerance, difference

sys.path.insert(0, str(Path(__file__).parents[1] / "language"))

from kernel_harness import pairs_of, special_values

FLOAT32 = pytest.param(np.float32, marks=pytest.mark.as_shipped)  # every kernel once
HOST = DeviceRef.CPU()
PARAMETERS: dict[str, dict[str, Any]] = {
    "cast": {"dtype": DType.int32},
    "permute": {"order": (1, 0)},
    "broadcast_by_size": {"axes": (1, 0)},
    "concat2": {"axis": 1},
    "slice": {"starts": (1, 0), "steps": (1, 2)},
    **{name: {"axis": 0} for name in ("argmax", "argmin", "softmax", "logsoftmax")},
}
IN_CASES = {"bitcast"}  # whose dtypes depend on each other: see tests/graph/op_cases
# Of an input of (6, 5).
OUTPUTS = {"reshape": (5, 6), "permute": (5, 6), "broadcast_to": (6, 5), "broadcast_by_size": (6, 5), "slice": (5, 3)}


def both_ways(family: str, dtype: DType, *arrays: Any) -> int:
    """Runs every kernel of a file that takes such inputs; gives how many there are."""
    library = library_of(importlib.import_module(f"einkorn.stdlib.kernels.{family}"))
    names = []
    for name, kernel in library.kernels.items():
        fits = all(dtype in kernel.schema.allowed(a.dtype) for a in kernel.schema.inputs)
        if name not in IN_CASES and fits and not kernel.schema.mutable and len(kernel.schema.inputs) <= len(arrays):
            names.append(name)

    def forward(*values: Any) -> Any:
        made = []
        for name in names:
            given = values[: len(library.kernels[name].schema.inputs)]
            out = [TensorType(dtype, OUTPUTS[name], HOST)] if name in OUTPUTS else None
            if library.kernels[name].schema.outputs[0].dtype == "S" and family == "reduction":  # of a sum
                out = [TensorType(dtype.sum_dtype(), (*arrays[0].shape[:-1], 1), HOST)]
            if name == "cast":
                out = [TensorType(DType.int32, arrays[0].shape, HOST)]
            required = {p.name for p in library.kernels[name].schema.parameters if p.required}
            parameters = PARAMETERS.get(name) or ({"axis": 1} if required == {"axis"} else None)
            made += ops.custom(name, HOST, given, out, parameters)
        return made

    types = [TensorType(dtype, a.shape, HOST) for a in arrays]
    graph = Graph(family, forward=forward, input_types=types, kernel_library=library)
    compiled, stepped = (
        [np.array(b.to_numpy()) for b in InferenceSession(interpret=way).load(graph)(*arrays)] for way in (False, True)
    )
    for name, a, b in zip(names, stepped, compiled, strict=True):
        actual = difference([a], [b], [Tolerance.exact()], "the interpreter", "compiled code")
        assert actual is None, (name, actual)
    return len(names)


@pytest.mark.parametrize("dtype", [FLOAT32, ml_dtypes.bfloat16, np.int8], ids=lambda dtype: np.dtype(dtype).name)
def test_elementwise(dtype: Any) -> None:
    x, y = (a[::7] for a in pairs_of(special_values(dtype)))
    z = np.random.default_rng(1).permutation(y)
    assert both_ways("elementwise", DType.from_numpy(np.dtype(dtype)), x, y, z) > 15


def test_elementwise_on_bools() -> None:
    x = np.array([False, True, False, True])
    assert both_ways("elementwise", DType.bool, x, x[::-1].copy(), x) >= 5


@pytest.mark.parametrize("dtype", [FLOAT32, np.float16, np.uint8], ids=lambda dtype: np.dtype(dtype).name)
def test_movement_and_reductions(dtype: Any) -> None:
    rng = np.random.default_rng(2)
    x = (rng.standard_normal((6, 5)) * 4 + 8).astype(dtype)
    assert both_ways("movement", DType.from_numpy(np.dtype(dtype)), x, x[::-1].copy()) >= 4
    assert both_ways("reduction", DType.from_numpy(np.dtype(dtype)), x) >= 5


def test_matrix_products() -> None:
    for op in ("matmul", "batch_matmul"):
        check_op(op, dtypes={"T": [DType.float32]}, sizes=(3, 9), empty=False)
