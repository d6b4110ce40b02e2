"""Promotion: which dtype an op computes in, and what plain numbers and arrays become."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import DTypeError, EinkornError, GraphError
from einkorn.dsl.types.dtype import DType
from einkorn.graph import Buffer, Dim, Graph, TensorType, TensorValue, ops
from einkorn.graph.ir import ConstantTensor, Node
from einkorn.graph.types.promotion import holds, promote

pytestmark = pytest.mark.usefixtures("kernels")

FLOAT = TensorType(DType.float32, ["rows", 10])
INT = TensorType(DType.int32, [4])


def shown(error: BaseException) -> str:
    """The text of an error without what depends on where this file lies: path, line and column."""
    assert isinstance(error, EinkornError)
    text = re.sub(r"^\S*\.py:\d+:\d+: ", "", str(error))
    return re.sub(r"^ *\d+ \| +", "      | ", re.sub(r"^( +\| +)(?=[\^~])", "      | ", text, flags=re.M), flags=re.M)


def traced(forward: Callable[..., Any], *types: TensorType) -> Graph:
    return Graph("g", forward, types)


# --- promotion ---


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("int8", "float16", "float16"),
        ("uint8", "bfloat16", "bfloat16"),
        ("int16", "float32", "float32"),
        ("int32", "float64", "float64"),
        ("bool", "uint8", "uint8"),
        ("uint8", "int16", "int16"),
        ("int8", "int64", "int64"),
        ("float32", "float64", "float64"),
        ("bfloat16", "float32", "float32"),
        ("uint8", "int8", "int16"),
        ("uint16", "int8", "int32"),
        ("uint32", "int32", "int64"),
        ("uint64", "int8", None),
        ("uint4", "int8", None),
        ("int16", "float16", "float16"),
        ("int32", "float32", "float32"),
        ("int64", "float64", "float64"),
        ("uint64", "bfloat16", "bfloat16"),
        ("bool", "float16", "float16"),
        ("int4", "float32", None),
        ("float32", "complex64", "complex64"),
        ("int64", "complex64", "complex64"),
        ("complex64", "complex128", "complex128"),
        ("float64", "complex64", "complex128"),
        ("int8", "float8_e5m2", None),
        ("float16", "bfloat16", None),
    ],
)
def test_promotion_of_tensors(left: str, right: str, result: str | None) -> None:
    for a, b in ((DType[left], DType[right]), (DType[right], DType[left])):
        if result is None:
            with pytest.raises(DTypeError, match="do not go together"):
                promote([a, b], "add")
        else:
            assert promote([a, b], "add") is DType[result]


def test_holds_is_true() -> None:
    """Against NumPy: every extreme of the narrow type survives the way there and back."""
    for wide in DType:
        for narrow in DType:
            if not holds(wide, narrow) or narrow.is_float() or narrow.is_complex():
                continue
            for value in narrow.range:
                there = np.array(value, narrow.to_numpy()).astype(wide.to_numpy())
                assert int(there.real) == value, (wide, narrow)


def test_casts_are_staged() -> None:
    graph = traced(lambda x, i: x + i, TensorType(DType.float32, [4]), TensorType(DType.int8, [4]))
    assert [node.name for node in graph.ir.nodes if isinstance(node, Node)] == ["cast", "add"]


def stage_with(dtype: DType, value: Any) -> Any:
    """What a plain value becomes next to a tensor of `dtype`."""
    node = traced(lambda x: x + value, TensorType(dtype, [3])).ir.nodes[0]
    assert isinstance(node, ConstantTensor) and node.type.dtype is dtype
    return node.array.tolist()


def test_plain_values_take_the_tensors_dtype() -> None:
    assert stage_with(DType.float32, 2) == 2 and stage_with(DType.float32, True) == 1
    assert stage_with(DType.float16, 0.1) == np.float16(0.1)
    assert stage_with(DType.bfloat16, 1.5) == ml_dtypes.bfloat16(1.5)
    assert stage_with(DType.int8, -128) == -128 and stage_with(DType.uint64, 2**64 - 1) == 2**64 - 1
    assert stage_with(DType.float64, 2**60) == 2.0**60
    assert stage_with(DType.float32, float("inf")) == float("inf")
    assert stage_with(DType.float32, np.arange(3)) == [0, 1, 2]
    assert stage_with(DType.int16, np.array([1, -2, 3], np.int64)) == [1, -2, 3]
    assert stage_with(DType.float32, np.float64(0.1)) == np.float32(0.1)
    assert stage_with(DType.float32, Buffer.from_numpy(np.ones(3))) == [1, 1, 1]
    assert stage_with(DType.float64, np.array([-(2**63)] * 3)) == [-(2.0**63)] * 3
    assert stage_with(DType.int32, Dim(7)) == 7


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (DType.float32, 2**24 + 1),
        (DType.float16, 2**11 + 1),
        (DType.bfloat16, 2**8 + 1),
        (DType.float64, 2**53 + 1),
        (DType.float16, 10**6),
        (DType.float64, 10**400),
        (DType.int8, 128),
        (DType.uint8, -1),
        (DType.int64, 2**63),
        (DType.int32, 2.0),
        (DType.uint8, np.array([0.0, 1.0, 2.0])),
        (DType.int8, np.array([0, 1, 200])),
        (DType.float32, np.array([0, 1, 2**24 + 1])),
        (DType.float64, np.array([0, 1, 2**63 - 1])),
        (DType.float64, np.array([0, 1, 2**64 - 1], np.uint64)),
        (DType.float16, 1e6),
        (DType.float32, np.array([1e300, 0, 0])),
    ],
)
def test_plain_values_that_do_not_fit(dtype: DType, value: Any) -> None:
    for forward in (lambda x: x + value, lambda x: value + x):
        with pytest.raises(GraphError) as caught:
            traced(forward, TensorType(dtype, [3]))
        assert caught.value.code == "EK0412" and caught.value.op == "add"


def test_golden_weak_value() -> None:
    with pytest.raises(GraphError) as caught:
        traced(lambda i: i * 300, TensorType(DType.uint8, [3]))
    assert shown(caught.value) == (
        "error[EK0412]: mul: 300 does not fit uint8, the dtype required for 'rhs'\n"
        "      | traced(lambda i: i * 300, TensorType(DType.uint8, [3]))\n"
        "      | ^^^^^^^\n"
        "hint: uint8 holds 0 to 255; cast the tensor to a wider dtype"
    )


@pytest.mark.parametrize(
    ("attempt", "code"),
    [
        (lambda x: ops.add(1, 2), "EK0411"),
        (lambda x: ops.add(1, np.ones(2)), "EK0411"),
        (lambda x: ops.exp(1.0), "EK0411"),
        (lambda x: ops.cast(1.0, DType.int8), "EK0411"),
        (lambda x: ops.broadcast_to(np.ones(3), [2, 3]), "EK0411"),
        (lambda x: x * [1, 2], "EK0403"),
        (lambda x: x + "1", "EK0403"),
        (lambda x: x == None, "EK0403"),  # noqa: E711
        (lambda x: x + np.array(["a"]), "EK0413"),
    ],
)
def test_operands_without_a_dtype(attempt: Callable[[TensorValue], Any], code: str) -> None:
    with pytest.raises(DTypeError) as caught:
        traced(attempt, FLOAT)
    assert caught.value.code == code and isinstance(caught.value, TypeError)


def test_numpy_on_the_left() -> None:
    graph = traced(lambda x: np.ones((1, 10)) - x, FLOAT)
    assert [node.name for node in graph.ir.nodes if isinstance(node, Node)] == ["broadcast_to", "sub"]
    assert traced(lambda x: np.float32(1) - x, FLOAT).output_types == [FLOAT]


def test_objects_with_a_tensor() -> None:
    class Holder:
        def __init__(self, value: TensorValue) -> None:
            self.value = value

        def __tensorvalue__(self) -> TensorValue:
            return self.value

    assert traced(lambda x: ops.exp(Holder(x)) + Holder(x), FLOAT).output_types == [FLOAT]
