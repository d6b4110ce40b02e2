"""Products of what DequantizeLinear makes of bytes are products of integers, as exact as float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
from onnx import TensorProto, helper, numpy_helper

from einkorn.graph import InferenceSession, from_onnx

Array = np.ndarray[Any, Any]
ONNX = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "uint8": TensorProto.UINT8}


def bytes_of(seed: int, *shape: int, dtype: Any = np.uint8) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng([seed, *shape]).integers(info.min, info.max + 1, shape).astype(dtype)


def model_of(nodes: list[Any], x: Array, shape: list[Any], held: dict[str, Array], dtype: str = "float32") -> Any:
    graph = helper.make_graph(
        nodes,
        "dequantised",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), shape)],
        [helper.make_tensor_value_info("y", ONNX[dtype], None)],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])


def kernels(model: Any) -> str:
    return "\n".join(str(each) for each in model.kernel_summaries)


def dequantised(x: Array, scale: Array, zero: Array, axis: int) -> Array:
    shape = [-1 if k == axis % x.ndim else 1 for k in range(x.ndim)] if scale.ndim else []
    return (x.astype(np.float64) - zero.reshape(shape)) * scale.astype(np.float64).reshape(shape)


def product_nodes(product: Any, axis: int = 1) -> list[Any]:
    return [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"], axis=axis),
        product,
    ]


MATMUL = helper.make_node("MatMul", ["a", "b"], ["y"])


@pytest.mark.parametrize("signed_x", [False, True])
@pytest.mark.parametrize("signed_w", [False, True])
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("lead", [(5,), (2, 3), (0,), (1,)])
def test_products(signed_x: bool, signed_w: bool, by_column: bool, lead: tuple[int, ...]) -> None:
    kind_x, kind_w = (np.int8 if signed else np.uint8 for signed in (signed_x, signed_w))
    x, w = bytes_of(1, *lead, 70, dtype=kind_x), bytes_of(2, 70, 33, dtype=kind_w)
    shape = (33,) if by_column else ()
    held = {"w": w, "sx": np.array(0.013, np.float32), "zx": np.array(17, kind_x)}
    held["sw"] = np.random.default_rng(3).uniform(0.001, 0.1, shape).astype(np.float32)
    held["zw"] = bytes_of(4, *shape, dtype=kind_w)
    symbolic = ["n", *lead[1:], 70]
    model = InferenceSession().load(from_onnx(model_of(product_nodes(MATMUL), x, symbolic, held)))
    assert "matmul_8_bits" in kernels(model)
    wanted = dequantised(x, held["sx"], held["zx"], 1) @ dequantised(w, held["sw"], held["zw"], 1)
    np.testing.assert_allclose(model.execute(x)[0].to_numpy(), wanted, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("turned", [False, True])
def test_gemm_with_a_bias(turned: bool) -> None:
    x, w = bytes_of(1, 6, 20), bytes_of(2, *((9, 20) if turned else (20, 9)), dtype=np.int8)
    held = {"w": w, "sx": np.array(0.5, np.float32), "zx": np.array(3, np.uint8)}
    held |= {"sw": np.linspace(0.01, 0.2, 9, dtype=np.float32), "zw": np.zeros(9, np.int8)}
    held |= {"c": np.arange(9, dtype=np.float32)}
    gemm = helper.make_node("Gemm", ["a", "b", "c"], ["y"], transB=int(turned), alpha=0.5)
    axis = 0 if turned else 1
    model = InferenceSession().load(from_onnx(model_of(product_nodes(gemm, axis), x, [6, 20], held)))
    assert "matmul_8_bits" in kernels(model)
    right = dequantised(w, held["sw"], held["zw"], axis)
    wanted = 0.5 * dequantised(x, held["sx"], held["zx"], 1) @ (right.T if turned else right) + held["c"]
    np.testing.assert_allclose(model.execute(x)[0].to_numpy(), wanted, rtol=1e-6, atol=1e-5)


def test_half_scales_give_half_results() -> None:
    x, w = bytes_of(1, 4, 30), bytes_of(2, 30, 8)
    held = {"w": w, "sx": np.array(0.03, np.float16), "zx": np.array(128, np.uint8)}
    held |= {"sw": np.array(0.002, np.float16), "zw": np.array(120, np.uint8)}
    model = InferenceSession().load(from_onnx(model_of(product_nodes(MATMUL), x, [4, 30], held, "float16")))
    wanted = dequantised(x, held["sx"], held["zx"], 1) @ dequantised(w, held["sw"], held["zw"], 1)
    (result,) = (each.to_numpy() for each in model.execute(x))
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, wanted, rtol=1e-3, atol=1e-3)


def test_what_is_no_product_of_integers_is_one_of_floats() -> None:
    """Scales along the axis that is summed over, and sums that may exceed 32 bits."""
    for depth, by_row in ((40, True), (33100, False)):
        x, w = np.full((2, depth), 255, np.uint8), np.full((depth, 3), 255, np.uint8)
        shape = (depth,) if by_row else ()
        held: dict[str, Array] = {"w": w, "sx": np.array(0.25, np.float32), "zx": np.array(0, np.uint8)}
        held |= {"sw": np.full(shape, 0.5, np.float32), "zw": np.zeros(shape, np.uint8)}
        nodes = product_nodes(MATMUL, 0 if by_row else 1)
        model = InferenceSession().load(from_onnx(model_of(nodes, x, [2, depth], held)))
        assert "matmul_8_bits" not in kernels(model)
        np.testing.assert_allclose(model.execute(x)[0].to_numpy(), 255**2 * 0.125 * depth, rtol=1e-5)


def test_a_dequantised_tensor_has_other_uses_too() -> None:
    x, w = bytes_of(1, 4, 8), bytes_of(2, 8, 8)
    held = {"w": w, "sx": np.array(0.5, np.float32), "zx": np.array(100, np.uint8)}
    held |= {"sw": np.array(0.25, np.float32), "zw": np.array(3, np.uint8)}
    nodes = product_nodes(helper.make_node("MatMul", ["a", "b"], ["p"]))
    nodes += [helper.make_node("Mul", ["p", "a"], ["q"]), helper.make_node("MatMul", ["q", "b"], ["y"])]
    model = InferenceSession().load(from_onnx(model_of(nodes, x, [4, 8], held)))
    a, b = dequantised(x, held["sx"], held["zx"], 1), dequantised(w, held["sw"], held["zw"], 1)
    np.testing.assert_allclose(model.execute(x)[0].to_numpy(), (a @ b * a) @ b, rtol=1e-5)
