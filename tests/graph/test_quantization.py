"""Quantised tensors against the `gguf` package: decoding and encoding to the bit, products compared with float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.graphs import HOST

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import DType, Graph, InferenceSession, TensorType, Weight, ops
from einkorn.graph.quantization import BlockParameters, QuantizationConfig, QuantizationEncoding
from einkorn.graph.quantization.encodings import ENCODINGS

gguf = pytest.importorskip("gguf")

BLOCKS = [encoding for encoding in QuantizationEncoding if encoding.is_gguf]
# Where a block has float16 numbers; any bytes are an integer of the others.
HALVES = {"q4_1": (0, 2), "q5_1": (0, 2), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,), "mxfp4": (), "nvfp4": ()}


def kind_of(encoding: QuantizationEncoding) -> Any:
    return gguf.GGMLQuantizationType(ENCODINGS[encoding].gguf)


def any_blocks(encoding: QuantizationEncoding, *shape: int, seed: int = 0) -> Any:
    """Blocks of any bytes, with scales that are finite and not large."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (*shape, encoding.block_size), np.uint8)
    for at in HALVES.get(encoding.name, (0,)):
        scales = rng.uniform(-0.1, 0.1, (*shape, 1)).astype(np.float16)
        blocks[..., at : at + 2] = scales.view(np.uint8)
    if encoding is QuantizationEncoding.MXFP4:
        blocks[..., 0] = rng.integers(0, 130, shape)
    return blocks.reshape(*shape[:-1], -1)


def run(forward: Callable[..., Any], *arrays: Any) -> Any:
    types = [TensorType(DType.from_numpy(array.dtype), array.shape, HOST) for array in arrays]
    results = InferenceSession().load(Graph("g", forward=forward, input_types=types))(*arrays)
    actual = [result.to_numpy() for result in results]
    return actual[0] if len(actual) == 1 else actual


@pytest.mark.parametrize("encoding", BLOCKS, ids=lambda e: e.name)
def test_decoding_has_the_bits_of_gguf(encoding: QuantizationEncoding) -> None:
    quantized = any_blocks(encoding, 3, 2, 3)
    actual = run(lambda q: ops.dequantize(encoding, q), quantized)
    wanted = gguf.quants.dequantize(quantized, kind_of(encoding))
    assert actual.dtype == np.float32 and actual.shape == wanted.shape
    np.testing.assert_array_equal(actual.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("encoding", [e for e in BLOCKS if ENCODINGS[e].encode], ids=lambda e: e.name)
def test_encoding_has_the_bits_of_gguf(encoding: QuantizationEncoding) -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((6, 512)) * np.exp(rng.standard_normal((6, 1)))).astype(np.float32)
    x[2], x[3, :40] = 0, 0
    actual = run(lambda x: ops.quantize(encoding, x), x)
    try:
        np.testing.assert_array_equal(actual, gguf.quants.quantize(x, kind_of(encoding)))
    except NotImplementedError:  # no encoder there: the error is at most that of a step
        bits = {"q4_k": 4, "q5_k": 5, "q6_k": 6}[encoding.name]
        size = np.abs(x).reshape(6, -1, 32).max(-1, keepdims=True)
        error = np.abs(gguf.quants.dequantize(actual, kind_of(encoding)) - x).reshape(6, -1, 32)
        assert (error <= 2.5 * size / (1 << bits) + 1e-9).all()


def rounded(x: Any) -> Any:
    blocks = x.reshape(len(x), -1, 32)
    d = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    digits = np.rint(blocks * np.where(d == 0, np.float32(0), 1 / d))
    return (digits.astype(np.float64) * d).reshape(x.shape)


@pytest.mark.parametrize("encoding", BLOCKS, ids=lambda e: e.name)
def test_products_are_those_of_float64_and_of_a_row_alone(encoding: QuantizationEncoding) -> None:
    """An element does not depend on the rows around it."""
    _check_products(encoding, 7, 21, 512)


@pytest.mark.parametrize(("rows", "columns", "depth"), [(2, 1, 256), (37, 33, 1280), (3, 9, 768)])
@pytest.mark.parametrize("encoding", [QuantizationEncoding.Q4_K, QuantizationEncoding.Q6_K], ids=lambda e: e.name)
def test_products_of_blocks_of_256(encoding: QuantizationEncoding, rows: int, columns: int, depth: int) -> None:
    _check_products(encoding, rows, columns, depth)


@pytest.mark.parametrize(("rows", "columns", "depth"), [(2, 1, 64), (37, 33, 1216), (3, 9, 832)])
@pytest.mark.parametrize("encoding", [QuantizationEncoding.Q5_1, QuantizationEncoding.Q8_0, QuantizationEncoding.NVFP4])
def test_products_of_small_blocks(encoding: QuantizationEncoding, rows: int, columns: int, depth: int) -> None:
    """Eight blocks are taken together, and fewer behind them."""
    _check_products(encoding, rows, columns, depth)


def _check_products(encoding: QuantizationEncoding, rows: int, columns: int, depth: int) -> None:
    matrix = any_blocks(encoding, columns, depth // encoding.elements_per_block)
    x = np.random.default_rng(2).standard_normal((rows, depth)).astype(np.float32)
    x[rows // 2] = 0
    elements = gguf.quants.dequantize(matrix, kind_of(encoding)).astype(np.float64)
    type = TensorType(DType.float32, ["m", depth], HOST)
    weight = Weight("w", DType.uint8, matrix.shape, HOST, encoding)
    graph = Graph("g", forward=lambda x: ops.qmatmul(encoding, None, x, weight), input_types=[type])
    model = InferenceSession().load(graph, weights_registry={"w": matrix})
    wanted = rounded(x) @ elements.T
    actual = model(x)[0].to_numpy()
    assert np.abs(actual - wanted).max() <= 1e-6 * np.abs(wanted).max()
    for k in range(rows):
        np.testing.assert_array_equal(model(x[k : k + 1])[0].to_numpy()[0], actual[k])


@pytest.mark.parametrize("is_weight", [True, False])
@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 1, 1), (17, 37, 203), (3, 64, 96), (2, 3, 0)])
def test_products_of_rounded_rows(rows: int, columns: int, depth: int, is_weight: bool) -> None:
    """Exact sums of integers times two scales, the same for a row alone."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((rows, depth)).astype(np.float32)
    x[rows // 2] = 0
    w, scales = rng.integers(-128, 128, (columns, depth)).astype(np.int8), rng.random(columns).astype(np.float32)
    types = [TensorType(DType.float32, ["m", depth], HOST)]
    data = [TensorType(DType.int8, w.shape, HOST), TensorType(DType.float32, scales.shape, HOST)]
    given: tuple[Any, ...] = () if is_weight else (w, scales)

    def forward(x: Any, *matrix: Any) -> Any:
        made = matrix or [ops.constant_external(name, type) for name, type in zip("ws", data, strict=True)]
        return ops.qmatmul("int8_row_dynamic", None, x, *made)

    graph = Graph("g", forward=forward, input_types=types if is_weight else types + data)
    registry = {"w": w, "s": scales} if is_weight else {}
    model = InferenceSession().load(graph, weights_registry=registry)
    actual = model(x, *given)[0].to_numpy()
    factor = np.abs(x).max(-1, keepdims=True, initial=0) / np.float32(127)
    inverse = np.divide(np.float32(1), factor, out=np.zeros_like(factor), where=factor != 0)
    sums = np.rint(x * inverse).astype(np.int64) @ w.T.astype(np.int64)
    np.testing.assert_allclose(actual, sums * factor.astype(np.float64) * scales, rtol=1e-6)
    for k in range(rows):
        np.testing.assert_array_equal(model(x[k : k + 1], *given)[0].to_numpy()[0], actual[k])


def test_elements_that_are_not_finite_stay_in_their_row() -> None:
    matrix = any_blocks(QuantizationEncoding.Q8_0, 5, 2)
    x = np.ones((3, 64), np.float32)
    x[1, 3] = np.nan
    actual = run(lambda x, w: ops.qmatmul("q8_0", None, x, w), x, matrix)
    assert np.isnan(actual[1]).all() and np.isfinite(actual[[0, 2]]).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_other_dtypes_of_the_left_operand(dtype: Any) -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 64)).astype(dtype)
    matrix = any_blocks(QuantizationEncoding.Q4_0, 5, 2)
    actual = run(lambda x, w: ops.qmatmul("q4_0", None, x, w), x, matrix)
    exact = run(lambda x, w: ops.qmatmul("q4_0", None, x, w), x.astype(np.float32), matrix)
    assert actual.dtype == dtype and actual.shape == (2, 3, 5)
    np.testing.assert_array_equal(actual, exact.astype(dtype))


@pytest.mark.parametrize("name", ["int8_row", "float8_tensor", "float8_row", "float8_block"])
def test_numbers_with_scales(name: str) -> None:
    rng = np.random.default_rng(4)
    w = rng.standard_normal((130, 200)).astype(np.float32) * rng.uniform(0.1, 3, (130, 1)).astype(np.float32)
    x = rng.standard_normal((5, 200)).astype(np.float32)

    def forward(x: Any, w: Any) -> Any:
        numbers, scales = ops.quantize(name, w)  # type: ignore[misc]
        return ops.qmatmul(name, None, x, numbers, scales), ops.dequantize(name, numbers, scales), scales

    product, decoded, scales = run(forward, x, w)
    assert scales.shape == {"float8_tensor": (1, 1), "float8_block": (2, 2)}.get(name, (130, 1))
    step = np.abs(w).max() / 16 if name.startswith("float8") else np.abs(w).max(1, keepdims=True) / 253
    assert (np.abs(decoded - w) <= step).all()
    wanted = x.astype(np.float64) @ decoded.astype(np.float64).T
    assert np.abs(product - wanted).max() <= 1e-6 * np.abs(wanted).max()


def digits_of(words: Any, order: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7)) -> Any:
    """The eight digits of words along a last axis."""
    collected = np.zeros((*words.shape, 8), np.int64)
    for k, place in enumerate(order):
        collected[..., place] = (words.astype(np.int64) >> (4 * k)) & 15
    return collected


@pytest.mark.parametrize("sym", [False, True])
@pytest.mark.parametrize("method", ["gptq", "gptq with groups that are mixed", "awq"])
def test_groups(method: str, sym: bool) -> None:
    rng = np.random.default_rng(5)
    channels, outputs, size = 96, 24, 32
    words = rng.integers(-(1 << 31), 1 << 31, (channels, outputs // 8)).astype(np.int32)
    zeros = rng.integers(-(1 << 31), 1 << 31, (3, outputs // 8)).astype(np.int32)
    scales = rng.uniform(0.01, 0.1, (3, outputs)).astype(np.float16)
    groups = (np.arange(channels) // size).astype(np.int32)
    mixed = "mixed" in method
    config = QuantizationConfig(method[:4], 4, size, desc_act=mixed, sym=sym)
    if method == "awq":
        order = (0, 2, 4, 6, 1, 3, 5, 7)
        digits = digits_of(words, order).reshape(channels, outputs)
        less = np.full((3, outputs), 8) if sym else digits_of(zeros, order).reshape(3, outputs)
    else:
        words = words.reshape(channels // 8, outputs)
        groups = rng.permutation(groups) if mixed else groups
        digits = digits_of(words).transpose(0, 2, 1).reshape(channels, outputs)
        less = np.full((3, outputs), 8) if sym else digits_of(zeros).reshape(3, outputs) + 1
    elements = (digits - less[groups]).astype(np.float32) * scales[groups].astype(np.float32)
    tensors = [words, scales, *([] if sym else [zeros]), *([groups] if mixed else [])]
    decoded = run(lambda *t: ops.dequantize(config.quant_method, *t, config=config), *tensors)
    np.testing.assert_array_equal(decoded, elements)
    x = rng.standard_normal((3, channels)).astype(np.float32)
    actual = run(lambda x, *t: ops.qmatmul(config.quant_method, config, x, *t), x, *tensors)
    assert np.abs(actual - x.astype(np.float64) @ elements).max() <= 1e-6 * np.abs(x @ elements).max()


def test_what_is_known_of_an_encoding() -> None:
    q4_k = QuantizationEncoding.Q4_K
    assert q4_k.name == "q4_k" and q4_k.is_gguf and not QuantizationEncoding.GPTQ.is_gguf
    assert q4_k.block_parameters == BlockParameters(256, 144)
    assert (q4_k.elements_per_block, q4_k.block_size) == (256, 144)
    for encoding in BLOCKS:
        assert gguf.GGML_QUANT_SIZES[kind_of(encoding)] == (encoding.elements_per_block, encoding.block_size)
    weight = Weight("w", DType.uint8, [3, 288], quantization_encoding=q4_k)
    assert weight.quantization_encoding is q4_k
    assert weight.original_dtype_and_shape == (DType.float32, [3, 512])


U8, F32 = DType.uint8, DType.float32
REFUSED: dict[str, tuple[Callable[..., Any], list[tuple[Any, list[Any]]], str]] = {
    "no encoding": (lambda x: ops.quantize("q9", x), [(F32, [32])], "encoding"),
    "nothing encodes": (lambda x: ops.quantize("nvfp4", x), [(F32, [64])], "encoding"),
    "half a block": (lambda x: ops.quantize("q8_0", x), [(F32, [2, 40])], "x"),
    "a size of a call": (lambda x: ops.quantize("q8_0", x), [(F32, ["n"])], "x"),
    "half a block of bytes": (lambda q: ops.dequantize("q8_0", q), [(U8, [33])], "quantized"),
    "no bytes": (lambda q: ops.dequantize("q8_0", q), [(F32, [34])], "quantized"),
    "three axes": (lambda x, q: ops.qmatmul("q8_0", None, x, q), [(F32, [1, 32]), (U8, [1, 1, 34])], "rhs"),
    "two tensors": (lambda x, q: ops.qmatmul("q8_0", None, x, q, q), [(F32, [1, 32]), (U8, [1, 34])], "rhs"),
    "no settings": (lambda x, q: ops.qmatmul("gptq", None, x, q, q), [(F32, [1, 32]), (U8, [1, 34])], "config"),
    "scales of another shape": (
        lambda x, q, s: ops.qmatmul("int8_row", None, x, q, s),
        [(F32, [1, 32]), (DType.int8, [5, 32]), (F32, [4])],
        "rhs[1]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tensors_that_do_not_fit(name: str) -> None:
    forward, types, argument = REFUSED[name]
    with pytest.raises(EinkornError) as caught:
        Graph("g", forward=forward, input_types=[TensorType(dtype, shape, HOST) for dtype, shape in types])
    assert (caught.value.code, caught.value.argument) == ("EK0470", argument), caught.value
    assert caught.value.place is not None and caught.value.place.file == __file__


def test_inner_sizes_and_settings() -> None:
    types = [TensorType(F32, [1, 64], HOST), TensorType(U8, [1, 34], HOST)]
    with pytest.raises(EinkornError, match="inner sizes are 64 and 32"):
        Graph("g", forward=lambda x, q: ops.qmatmul("q8_0", None, x, q), input_types=types)
    for wrong in ({"bits": 3, "group_size": 128}, {"bits": 4, "group_size": 0}):
        with pytest.raises(EinkornError) as caught:
            QuantizationConfig("gptq", **wrong)  # type: ignore[arg-type]
        assert caught.value.code == "EK0470"
    with pytest.raises(EinkornError) as caught:
        QuantizationEncoding.GPTQ.block_parameters  # noqa: B018
    assert caught.value.code == "EK0470"
    with pytest.raises(EinkornError) as caught:
        Weight("w", DType.uint8, [3, 33], quantization_encoding=QuantizationEncoding.Q8_0)
    assert caught.value.code == "EK0432"
