"""Op types that ONNX Runtime's quantiser writes give what ONNX Runtime gives: integers alike, or one unit apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
pytest.importorskip("onnxruntime", reason="make callers installs onnxruntime, which these tests compare with")
from support.onnx_runtime import by_graph, by_runtime, compare, model_of

from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.graph import from_onnx

Array = np.ndarray[Any, Any]
DTYPES = [np.uint8, np.int8]


def whole(seed: int, *shape: int, dtype: Any = np.uint8) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng([seed, *shape]).integers(info.min, info.max + 1, shape).astype(dtype)


def weights_of(seed: int, *shape: int, dtype: Any) -> Array:
    """Signed ones of seven bits: processors without VNNI add two products in 16 bits, where ONNX Runtime saturates."""
    numbers = whole(seed, *shape, dtype=dtype)
    return numbers // 2 if dtype is np.int8 else numbers


def drawn(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def number(value: float, dtype: Any = np.float32) -> Array:
    return np.array(value, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", [((2, 3, 5), (2, 3, 5)), ((4, 1, 3), (5, 1)), ((3, 4), ()), ((0, 2), (2,))])
def test_sums_and_products(dtype: Any, shapes: Any) -> None:
    """ONNX Runtime multiplies and adds in one step where the machine can, so ties may fall otherwise: one unit."""
    for seed, (sa, sb, sc) in enumerate([(0.02, 0.05, 0.09), (0.25, 0.5, 0.25), (0.003, 0.7, 0.004)]):
        given = {"a": whole(seed, *shapes[0], dtype=dtype), "sa": number(sa), "za": number(3, dtype)}
        given |= {"b": whole(seed + 9, *shapes[1], dtype=dtype), "sb": number(sb), "zb": number(100, dtype)}
        given |= {"sc": number(sc), "zc": number(7, dtype)}
        compare("QLinearAdd", given, units=1, share=0.05)
        compare("QLinearMul", {**given, "sc": number(sc * 30)}, units=1, share=0.05)


def test_sizes_that_the_call_compares() -> None:
    given = {"a": whole(0, 3, 4), "sa": number(0.1), "za": number(3, np.uint8), "b": whole(1, 3, 4), "sb": number(0.2)}
    given |= {"zb": number(9, np.uint8), "sc": number(0.3), "zc": number(7, np.uint8)}
    compare("QLinearAdd", given, symbolic={"a": ["n", 4], "b": ["m", 4]})
    floats = {"a": drawn(0, 3, 5), "b": whole(1, 5, 7), "sb": number(0.1)}
    compare("DynamicQuantizeMatMul", floats, symbolic={"a": ["n", "k"], "b": ["l", 7]})


def test_zero_points_that_are_left_out_are_0() -> None:
    given = {"a": whole(0, 3, 4), "sa": number(0.1), "za": None, "b": whole(1, 4), "sb": number(0.2), "zb": None}
    given |= {"sc": number(0.3)}
    full = {**given, "za": number(0, np.uint8), "zb": number(0, np.uint8), "zc": number(0, np.uint8)}
    for op_type in ("QLinearAdd", "QLinearMul"):
        (short,) = by_graph(model_of(op_type, given), given, interpret=True)
        (long,) = by_graph(model_of(op_type, full), full, interpret=True)
        np.testing.assert_array_equal(short, long)


@pytest.mark.parametrize("dtype", DTYPES)
def test_activations(dtype: Any) -> None:
    every = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1).astype(dtype)
    given = {"x": every, "sx": number(0.05), "zx": number(20, dtype), "sy": number(0.004), "zy": number(-0, dtype)}
    compare("QLinearSigmoid", given)
    compare("QLinearLeakyRelu", {**given, "sy": number(0.07), "zy": number(9, dtype)}, {"alpha": 0.3})
    compare("QLinearLeakyRelu", {**given, "zx": None, "sy": number(0.03), "zy": None})


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax(dtype: Any) -> None:
    """ONNX Runtime sums whole numbers that a table holds for e^x, and rounds the scale: one unit."""
    x = whole(0, 3, 4, 9, dtype=dtype)
    given = {
        "x": x,
        "sx": number(0.03),
        "zx": number(20, dtype),
        "sy": number(1 / 256),
        "zy": number(np.iinfo(dtype).min, dtype),
    }
    compare("QLinearSoftmax", given, {"axis": -1, "opset": 13}, units=1)
    compare("QLinearSoftmax", given, {"axis": 1, "opset": 13}, units=1)
    compare("QLinearSoftmax", given, {"axis": 1, "opset": 11}, units=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_joins_and_choices(dtype: Any) -> None:
    given = {"sy": number(0.05), "zy": number(4, dtype)}
    for k, scale in enumerate((0.05, 0.2, 0.01)):
        given |= {
            f"x{k}": whole(k, 2, k + 1, 3, dtype=dtype),
            f"s{k}": number(scale),
            f"z{k}": number(4 * k + 4, dtype),
        }
    compare("QLinearConcat", given, {"axis": 1})
    sides = {"x": whole(1, 2, 3, dtype=dtype), "sx": number(0.1), "zx": number(3, dtype)}
    sides |= {
        "y": whole(2, 3, dtype=dtype),
        "sy": number(0.03),
        "zy": number(8, dtype),
        "sz": number(0.07),
        "zz": number(1, dtype),
    }
    compare("QLinearWhere", {"c": np.array([[True], [False]]), **sides})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("last", [0, 1])
def test_pools(dtype: Any, last: int) -> None:
    x = whole(0, *((2, 5, 6, 3) if last else (2, 3, 5, 6)), dtype=dtype)
    given = {"x": x, "sx": number(0.05), "zx": number(20, dtype), "sy": number(0.04), "zy": number(7, dtype)}
    for more in ({}, {"pads": [1, 0, 1, 1], "strides": [2, 1]}, {"pads": [1, 1, 1, 1], "count_include_pad": 1}):
        compare(
            "QLinearAveragePool", given, {"kernel_shape": [2, 3], "channels_last": last, **more}, units=1, share=0.1
        )
    ceiling = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1, "channels_last": last}
    compare("QLinearAveragePool", given, ceiling, units=1, share=0.1)
    compare("QLinearGlobalAveragePool", given, {"channels_last": last})
    if last:
        windows = {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 1, 0, 0]}
        compare("NhwcMaxPool", {"x": x}, windows)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("group", [1, 2])
def test_convolutions(last: int, group: int) -> None:
    x = whole(0, *((2, 5, 6, 4) if last else (2, 4, 5, 6)))
    given = {"x": x, "sx": number(0.05), "zx": number(120, np.uint8)}
    given |= {
        "w": weights_of(1, 6, 4 // group, 3, 2, dtype=np.int8),
        "sw": np.abs(drawn(2, 6)) * 0.01,
        "zw": np.zeros(6, np.int8),
    }
    given |= {"sy": number(0.9), "zy": number(128, np.uint8), "b": np.arange(6, dtype=np.int32) * 1000}
    attributes = {"channels_last": last, "group": group, "pads": [1, 0, 1, 1], "strides": [2, 1]}
    weights = ["sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
    compare("QLinearConv", given, attributes, weights=weights, units=1, share=0.02)


# *** products ***


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("columns", [False, True])
def test_products(dtype: Any, batch: tuple[int, ...], columns: bool) -> None:
    scale = np.abs(drawn(3, 7)) * 0.02 if columns else number(0.02)
    zero = whole(4, 7, dtype=dtype) // 8 if columns else number(5, dtype)
    b = {"b": weights_of(1, 5, 7, dtype=dtype)}
    bias = drawn(6, 7)
    floats = {"a": drawn(0, *batch, 3, 5), **b, "sb": scale}
    for z, c in ((zero, bias), (None, None)):
        compare("DynamicQuantizeMatMul", {**floats, "zb": z, "bias": c}, interpret=not batch)
    integers = {"a": whole(7, *batch, 3, 5), **b, "sa": number(0.1), "sb": scale}
    for za, zb, c in ((number(9, np.uint8), zero, bias), (None, None, None)):
        compare("MatMulIntegerToFloat", {**integers, "za": za, "zb": zb, "bias": c}, interpret=not batch)


def test_products_of_one_value() -> None:
    """All elements 0, and all the same: the range is empty, or begins at 0."""
    b = {"b": whole(1, 5, 7), "sb": number(0.02), "zb": number(5, np.uint8)}
    for value in (0.0, 2.5, -1.0):
        compare("DynamicQuantizeMatMul", {"a": np.full((3, 5), value, np.float32), **b})


@pytest.mark.parametrize("transposed", [(0, 0), (1, 1)])
def test_gemm(transposed: tuple[int, int]) -> None:
    a, b = whole(0, 3, 5), weights_of(1, 5, 4, dtype=np.int8)
    given = {"a": a.T.copy() if transposed[0] else a, "sa": number(0.05), "za": number(99, np.uint8)}
    given |= {"b": b.T.copy() if transposed[1] else b, "sb": np.abs(drawn(2, 4)) * 0.1, "zb": np.zeros(4, np.int8)}
    attributes = {"transA": transposed[0], "transB": transposed[1], "alpha": 0.5}
    compare("QGemm", {**given, "c": whole(3, 4).astype(np.int32)}, attributes)
    result = {"c": whole(3, 4).astype(np.int32), "sy": number(0.8), "zy": number(100, np.uint8)}
    compare("QGemm", {**given, **result}, attributes, units=1, share=0.02)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "bytes", "floats"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_weights_of_few_bits(bits: int, zeros: str, dtype: Any) -> None:
    """Against the definition; ONNX Runtime's own kernels where it has one for the case."""
    n, k, block = 5, 72, 32
    blocks = -(-k // block)
    r = np.random.default_rng(bits)
    numbers = r.integers(0, 1 << bits, (n, blocks, block))
    zero = r.integers(0, 1 << bits, (n, blocks))
    a, scales, bias = drawn(0, 2, 3, k, dtype=dtype), drawn(1, n, blocks, dtype=dtype), drawn(2, n, dtype=dtype)

    def packed(x: Array) -> Array:
        each = 8 // bits
        padded = np.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, -x.shape[-1] % each)]).reshape(*x.shape[:-1], -1, each)
        return (padded << (bits * np.arange(each))).sum(-1).astype(np.uint8)

    given: dict[str, Any] = {"a": a, "b": packed(numbers), "scales": scales.reshape(-1)}
    points = {"none": None, "bytes": packed(zero).reshape(-1), "floats": zero.astype(dtype)}[zeros]
    given |= {"zero": points, "groups": None, "bias": bias}
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
    (got,) = by_graph(model_of("MatMulNBits", given, attributes), given, interpret=True)
    subtracted = 1 << (bits - 1) if zeros == "none" else zero[..., None]
    whole_weights = ((numbers - subtracted) * scales.astype(np.float64)[..., None]).reshape(n, -1)[:, :k]
    wanted = a.astype(np.float64) @ whole_weights.T + bias
    near = 2e-6 if dtype is np.float32 else 2e-3
    np.testing.assert_allclose(got, wanted, atol=near * np.abs(wanted).max())
    if bits != 2 and zeros != "floats":
        (theirs,) = by_runtime(model_of("MatMulNBits", given, attributes, weights=["b", "scales"]), given)
        np.testing.assert_allclose(got.astype(np.float64), theirs, atol=5 * near * np.abs(wanted).max())


def test_weights_of_few_bits_by_groups() -> None:
    n, k, block = 3, 32, 16
    r = np.random.default_rng(0)
    numbers, groups = r.integers(0, 16, (n, 2, block)), r.integers(0, 2, k).astype(np.int32)
    a, scales = drawn(0, 4, k), drawn(1, n, 2)
    given = {
        "a": a,
        "b": (numbers[..., ::2] | numbers[..., 1::2] << 4).astype(np.uint8),
        "scales": scales,
        "zero": None,
    }
    given["groups"] = groups
    model = model_of("MatMulNBits", given, {"K": k, "N": n, "block_size": block})
    wanted = a @ ((numbers.reshape(n, k) - 8) * scales[:, groups]).T
    np.testing.assert_allclose(by_graph(model, given)[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("columns", [False, True])
def test_lstm(direction: str, columns: bool) -> None:
    ways, hidden = 2 if direction == "bidirectional" else 1, 4
    scale = [np.abs(drawn(k, ways, *[4 * hidden] * columns)) * 0.01 + 0.005 for k in (1, 2)]
    zero = [np.zeros((ways, *[4 * hidden] * columns), np.int8) for _ in (1, 2)]
    given = {
        "x": drawn(0, 3, 2, 5),
        "w": weights_of(1, ways, 5, 4 * hidden, dtype=np.int8),
        "r": weights_of(2, ways, hidden, 4 * hidden, dtype=np.int8),
        "b": drawn(3, ways, 8 * hidden),
        "lengths": None if columns else np.array([3, 2], np.int32),
        "h": drawn(4, ways, 2, hidden),
        "c": drawn(5, ways, 2, hidden),
        "p": drawn(6, ways, 3 * hidden) if columns else None,
        "sw": scale[0],
        "zw": zero[0],
        "sr": scale[1],
        "zr": zero[1],
    }
    attributes = {"direction": direction, "hidden_size": hidden}
    weights = ["w", "r", "sw", "zw", "sr", "zr"]
    # Backwards, ONNX Runtime lines items of different lengths up at their ends: their states have other ranges.
    near = {} if columns or direction == "forward" else {"rtol": 0.0, "atol": 3e-2}
    compare("DynamicQuantizeLSTM", given, attributes, outputs=3, weights=weights, interpret=False, **near)


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention(dtype: Any) -> None:
    given = {
        "x": whole(0, 2, 3, 6),
        "w": weights_of(1, 6, 24, dtype=dtype),
        "b": drawn(2, 24),
        "sx": number(0.02),
        "sw": number(0.01),
    }
    given |= {"mask": np.array([3, 2], np.int32), "zx": number(120, np.uint8), "zw": number(3, dtype)}
    for unidirectional in (0, 1):
        compare("QAttention", given, {"num_heads": 2, "unidirectional": unidirectional}, weights=["w", "sw", "zw"])
    more = {**given, "mask": None, "past": drawn(3, 2, 2, 2, 2, 4)}
    compare("QAttention", more, {"num_heads": 2}, outputs=2, weights=["w", "sw", "zw"])


@pytest.mark.parametrize("segments", [False, True])
def test_embeddings(segments: bool) -> None:
    ids = whole(0, 2, 5).astype(np.int32) % 9
    shapes = {"words": (9, 8), "places": (7, 8), "kinds": (2, 8), "gamma": (8,), "beta": (8,)}
    names = [name for name in shapes if segments or name != "kinds"]
    given: dict[str, Any] = {"ids": ids, "segments": ids % 2 if segments else None}
    given |= {name: whole(1, *shape) if name in names else None for name, shape in shapes.items()}
    given["mask"] = (ids > 3).astype(np.int32)
    given |= {f"{name}_s": number(0.01 * k + 0.01) if name in names else None for k, name in enumerate(shapes)}
    given |= {f"{name}_z": number(100 + k, np.uint8) if name in names else None for k, name in enumerate(shapes)}
    compare("QEmbedLayerNormalization", given, {"epsilon": 1e-5}, outputs=2)


def test_what_is_left_out_is_named() -> None:
    given = {"a": drawn(0, 2, 32), "b": whole(1, 3, 1, 16), "scales": drawn(2, 3, 1)}

    def refused(attributes: Any, text: str) -> None:
        with pytest.raises(GraphError, match=text) as caught:
            from_onnx(model_of("MatMulNBits", given, {"K": 32, "N": 3, "block_size": 32, **attributes}))
        assert caught.value.code == "EK0528"

    refused({"bits": 3}, "has weights of 3 bits; 2, 4 and 8 are known")
    refused({"weight_prepacked": 1}, "in the order of a GPU")
    refused({"block_size": 24}, "has blocks of 24")
    joined = {"sy": number(1), "zy": number(0, np.uint8), "x": whole(0, 2), "s": number(1)}
    with pytest.raises(GraphError, match="they come in threes"):
        from_onnx(model_of("QLinearConcat", joined, {"axis": 0}))
