"""Storage types through the tools: cases that `check_op` derives, packages, the reference of a library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.compiler.build import build_package
from einkorn.dsl import DType
from einkorn.dsl.package.container import read_package
from einkorn.dsl.types.dtype import STORAGE
from einkorn.graph import DeviceRef, Graph, InferenceSession, TensorType, ops
from einkorn.testing import check_op

HERE = Path(__file__).parent
HOST = DeviceRef.CPU()
KERNEL = """
from typing import TypeVar
from einkorn.dsl import InputTensor, OutputTensor, float4_e2m1fn, float32, foreach, int4, register, uint4

P = TypeVar("P", int4, uint4, float4_e2m1fn)


@register("dequantize")
def dequantize(out: OutputTensor[float32, "m n"], q: InputTensor[P, "m n"], scale: InputTensor[float32, "m"]):
    foreach(out, lambda i: q[i].cast(float32) * scale[i[0]])
"""


def scaled(x: Any, scale: Any) -> Any:
    return x.astype(np.float32) * scale[:, None]


def test_cases_of_packed_types_are_derived() -> None:
    report = check_op("dequantize", HERE / "packed_kernels.py", reference=scaled, sizes=(1, 2, 7))
    assert report.cases > 20 and report.instances == 3


@pytest.mark.parametrize("dtype", STORAGE, ids=str)
def test_elements_move_in_any_layout(dtype: DType) -> None:
    """Strides, odd sizes and zero sizes, against NumPy and the interpreter."""
    report = check_op(
        "turned", HERE / "storage_kernels.py", reference=np.transpose, dtypes={"S": [dtype]}, sizes=(1, 6)
    )
    assert report.cases > 5


def test_packages_carry_storage_types(tmp_path: Path) -> None:
    """The schema, the portable program and the code of an instance."""
    path, source = tmp_path / "quantized.pkg", tmp_path / "quantized.py"
    source.write_text(KERNEL)
    build_package(str(source), str(path), targets=["x86-64-v2"])
    package = read_package(str(path))
    schema = next(op.schema for op in package.ops if op.schema.name == "dequantize")
    assert dict(schema.typevars)["P"] == (DType.int4, DType.uint4, DType.float4_e2m1fn)
    assert any(variant.op == "dequantize" for variant in package.variants)
    q = np.arange(-8, 7).reshape(3, 5).astype(ml_dtypes.int4)
    scale = np.array([1, 2, 4], np.float32)

    def forward(q: Any, scale: Any) -> Any:
        return ops.custom("dequantize", device=HOST, values=[q, scale])

    types = [TensorType(DType.int4, ["m", "n"], HOST), TensorType(DType.float32, ["m"], HOST)]
    graph = Graph("packaged", forward=forward, input_types=types, custom_extensions=[path])
    assert np.array_equal(InferenceSession().load(graph)(q, scale)[0].to_numpy(), scaled(q, scale))
