"""Op types that ONNX Runtime's optimiser writes give what ONNX Runtime gives, over random shapes and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
pytest.importorskip("onnxruntime", reason="make callers installs onnxruntime, which these tests compare with")
from support.onnx_runtime import by_graph, compare, model_of

from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.graph import from_onnx

Array = np.ndarray[Any, Any]
HALF = {"rtol": 2e-3, "atol": 2e-3}


def drawn(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def test_activations() -> None:
    x, bias = drawn(0, 2, 3, 7) * 3, drawn(1, 7)
    compare("Gelu", {"x": x})
    compare("BiasGelu", {"x": x, "bias": bias})
    compare("FastGelu", {"x": x, "bias": bias})
    compare("FastGelu", {"x": x})
    compare("QuickGelu", {"x": x})
    compare("QuickGelu", {"x": x}, {"alpha": -0.5})


@pytest.mark.parametrize("seed", range(8))
def test_fused_matmul(seed: int) -> None:
    r = np.random.default_rng(seed)
    n, k, m = (int(each) for each in r.integers(1, 5, 3))
    batch = [int(each) for each in r.integers(1, 4, r.integers(0, 3))]
    names = ("transA", "transB", "transBatchA", "transBatchB")[: 4 if batch else 2]
    attributes = {name: int(r.integers(2)) for name in names}
    operands = {}
    for name, last in (("A", (n, k)), ("B", (k, m))):
        shape = [*batch, *(last[::-1] if attributes[f"trans{name}"] else last)]
        if attributes.get(f"transBatch{name}"):
            shape = [shape[-2], *shape[:-2], shape[-1]]
        operands[name] = r.standard_normal(shape).astype(np.float64 if seed == 3 else np.float32)
    compare("FusedMatMul", operands, {**attributes, "alpha": 0.75})


@pytest.mark.parametrize(
    ("activation", "params"),
    [
        ("Relu", []),
        ("Sigmoid", []),
        ("Tanh", []),
        ("LeakyRelu", [0.3]),
        ("Clip", [-0.5, 0.6]),
        ("HardSigmoid", [0.3, 0.4]),
    ],
)
def test_fused_convolutions(activation: str, params: list[float]) -> None:
    attributes = {"activation": activation, "pads": [1, 0, 1, 1], "strides": [1, 2], "dilations": [1, 1], "group": 2}
    if params:
        attributes["activation_params"] = params
    x, w = drawn(0, 2, 4, 5, 6), drawn(1, 6, 2, 3, 2)
    compare("FusedConv", {"x": x, "w": w, "b": drawn(2, 6)}, attributes)
    if activation == "Relu":
        compare("FusedConv", {"x": x, "w": w, "b": drawn(2, 6), "z": drawn(3, 2, 6, 5, 3)}, attributes)
    gemm: dict[str, Any] = {"activation": activation, "alpha": 0.5, "beta": 2.0, "transB": 1}
    gemm |= dict(zip(("activation_alpha", "activation_beta"), params, strict=False))
    if activation != "Clip":
        compare("FusedGemm", {"a": drawn(4, 3, 4), "b": drawn(5, 5, 4), "c": drawn(6, 5)}, gemm)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("skip", [(2, 3, 8), (1, 3, 8), (3, 8)])
def test_sums_that_are_normalised(dtype: Any, skip: tuple[int, ...]) -> None:
    near = {"rtol": 1e-5, "atol": 1e-5} if dtype is np.float32 else HALF
    x, gamma, beta, bias = (drawn(k, *shape, dtype=dtype) for k, shape in enumerate(((2, 3, 8), (8,), (8,), (8,))))
    operands = {"x": x, "skip": drawn(9, *skip, dtype=dtype), "gamma": gamma}
    for b in (None, beta):
        for c in (None, bias):
            given = {**operands, "beta": b, "bias": c}
            compare("SkipLayerNormalization", given, {"epsilon": 1e-3}, outputs="y--s", **near)
            compare("SkipLayerNormalization", given, outputs=1, **near)
    for c in (None, bias):
        compare("SkipSimplifiedLayerNormalization", {**operands, "bias": c}, {"epsilon": 1e-3}, outputs="y--s", **near)
    plain = {"x": x, "scale": gamma}
    compare("SimplifiedLayerNormalization", plain, {"epsilon": 1e-3, "axis": -1}, domain="", **near)


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("positions", [None, 1, 3])
def test_embeddings(segments: bool, positions: int | None) -> None:
    r = np.random.default_rng(0)

    def ids(below: int, *shape: int) -> Array:
        return r.integers(0, below, shape).astype(np.int32)

    given = {
        "ids": ids(9, 3, 5),
        "segments": ids(2, 3, 5) if segments else None,
        "words": drawn(1, 9, 8),
        "places": drawn(2, 7, 8),
        "kinds": drawn(3, 2, 8) if segments else None,
        "gamma": drawn(4, 8),
        "beta": drawn(5, 8),
        "mask": ids(2, 3, 5),
        "positions": None if positions is None else ids(7, positions, 5),
    }
    compare("EmbedLayerNormalization", given, {"epsilon": 1e-5}, outputs=3)
    compare("EmbedLayerNormalization", {**given, "mask": None}, outputs=2)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotations(dtype: Any, interleaved: int) -> None:
    near = {"rtol": 1e-5, "atol": 1e-5} if dtype is np.float32 else HALF
    cos, sin = drawn(1, 9, 4, dtype=dtype), drawn(2, 9, 4, dtype=dtype)
    whole, some = drawn(3, 2, 3, 16, dtype=dtype), drawn(4, 2, 3, 20, dtype=dtype)
    heads = drawn(5, 2, 2, 3, 8, dtype=dtype)
    places = np.random.default_rng(0).integers(0, 9, (2, 3))
    for positions in (np.array([4]), places):
        angles = {"positions": positions, "cos": cos, "sin": sin}
        compare("RotaryEmbedding", {"x": whole, **angles}, {"interleaved": interleaved, "scale": 2.0}, **near)
        compare("RotaryEmbedding", {"x": heads, **angles}, {"interleaved": interleaved}, **near)
        part = {"interleaved": interleaved, "num_heads": 2, "rotary_embedding_dim": 8}
        compare("RotaryEmbedding", {"x": some, **angles}, part, **near)


# *** attention ***

MASKS: dict[str, Any] = {
    "none": None,
    "ends": np.array([3, 5], np.int32),
    "ends and begins": np.array([4, 5, 1, 0], np.int32),
    "keys": np.array([[1, 1, 0, 1, 1], [1, 0, 0, 0, 1]], np.int32),
    "queries and keys": (np.random.default_rng(1).random((2, 3, 5)) < 0.6).astype(np.int32),
}


@pytest.mark.parametrize("form", MASKS)
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention(form: str, unidirectional: int) -> None:
    """Two items, two heads; three new keys behind two old ones.

    Where every key of a row is masked, scores near -10000 keep three digits behind the point.
    """
    near = {"atol": 2e-4} if form in ("keys", "queries and keys") else {}
    x, w, b = drawn(0, 2, 3, 6), drawn(1, 6, 24), drawn(2, 24)
    given = {"x": x, "w": w, "b": b, "mask": MASKS[form], "past": drawn(3, 2, 2, 2, 2, 4)}
    attributes = {"num_heads": 2, "unidirectional": unidirectional}
    compare("Attention", given, attributes, outputs=2, **near, symbolic={"x": [2, "s", 6]} if form == "none" else None)
    compare("Attention", given, {**attributes, "scale": 0.3, "mask_filter_value": -5.0}, outputs=2, **near)
    mask = (
        None if MASKS[form] is None else MASKS[form][..., -3:] if MASKS[form].ndim > 1 else np.minimum(MASKS[form], 3)
    )
    wide = {"x": x, "w": drawn(5, 6, 22), "b": drawn(6, 22), "mask": mask, "past": None, "bias": drawn(4, 1, 2, 3, 3)}
    compare("Attention", wide, {**attributes, "qkv_hidden_sizes": [8, 8, 6]}, **near)


def test_attention_with_a_square_mask() -> None:
    """A mask of (batch, 1, most, most): as many rows as there are queries, behind those of the past."""
    mask = np.tril(np.ones((7, 7), np.int32))[None, None].repeat(2, 0)
    given = {
        "x": drawn(0, 2, 3, 6),
        "w": drawn(1, 6, 24),
        "b": drawn(2, 24),
        "mask": mask,
        "past": drawn(3, 2, 2, 2, 2, 4),
    }
    rows = (mask[:, 0, 2:5, :5]).copy()
    got = by_graph(model_of("Attention", given, {"num_heads": 2}, outputs=2), given)
    wanted = by_graph(
        model_of("Attention", {**given, "mask": rows}, {"num_heads": 2}, outputs=2), {**given, "mask": rows}
    )
    np.testing.assert_array_equal(got[0], wanted[0])


MHA_MASKS = {**MASKS, "ends and begins": None}


@pytest.mark.parametrize("form", [form for form in MASKS if form != "ends and begins"])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_multi_head_attention(form: str, unidirectional: int) -> None:
    q, k, v, b = drawn(0, 2, 3, 8), drawn(1, 2, 3, 8), drawn(2, 2, 3, 12), drawn(3, 28)
    attributes = {"num_heads": 2, "unidirectional": unidirectional}
    mask = MASKS[form]
    short = None if mask is None else mask[..., -3:] if mask.ndim > 1 else np.minimum(mask, 3)
    given = {"q": q, "k": k, "v": v, "b": b, "mask": short, "bias": drawn(4, 2, 1, 3, 3)}
    compare("MultiHeadAttention", given, {**attributes, "scale": 0.4}, outputs=3 if form == "none" else 1)
    given = {"q": q, "k": k, "v": drawn(2, 2, 3, 8), "b": None, "mask": mask, "bias": drawn(4, 2, 1, 3, 5)}
    given |= {"past_k": drawn(5, 2, 2, 2, 4), "past_v": drawn(6, 2, 2, 2, 4)}
    compare("MultiHeadAttention", given, attributes, outputs=3)


def test_multi_head_attention_packed_and_across() -> None:
    q, packed = drawn(0, 2, 3, 8), drawn(2, 2, 5, 2, 2, 4)
    longer = {"q": q, "k": drawn(3, 2, 5, 8), "v": drawn(4, 2, 5, 12)}
    compare("MultiHeadAttention", longer, {"num_heads": 2})
    known = {"q": q, "k": drawn(5, 2, 2, 5, 4), "v": drawn(6, 2, 2, 5, 4)}
    compare(
        "MultiHeadAttention",
        {**known, "b": drawn(7, 24) * np.repeat([1, 0, 0], 8).astype(np.float32)},
        {"num_heads": 2},
    )
    (got,) = by_graph(model_of("MultiHeadAttention", {"q": q, "k": packed}, {"num_heads": 2}), {"q": q, "k": packed})
    apart = {"q": q, "k": packed[:, :, :, 0].reshape(2, 5, 8).copy(), "v": packed[:, :, :, 1].reshape(2, 5, 8).copy()}
    (wanted,) = by_graph(model_of("MultiHeadAttention", apart, {"num_heads": 2}), apart)
    np.testing.assert_array_equal(got, wanted)
    whole = drawn(8, 2, 3, 2, 3, 4)
    (got,) = by_graph(model_of("MultiHeadAttention", {"q": whole}, {"num_heads": 2}), {"q": whole})
    parts = {name: whole[:, :, :, k].reshape(2, 3, 8).copy() for k, name in enumerate("qkv")}
    (wanted,) = by_graph(model_of("MultiHeadAttention", parts, {"num_heads": 2}), parts)
    np.testing.assert_array_equal(got, wanted)


def grouped(
    seed: int, new: int, room: int, lengths: Any, total: int, dtype: Any = np.float32, packed: bool = False
) -> Any:
    """The inputs of a GroupQueryAttention: four heads of queries, two of keys, 16 numbers each."""
    batch = len(lengths)
    q, k, v = (drawn(seed + n, batch, new, size, dtype=dtype) for n, size in enumerate((64, 32, 32)))
    given: dict[str, Any] = {"q": q, "k": k, "v": v}
    if packed:
        given = {"q": np.concatenate([q, k, v], -1), "k": None, "v": None}
    given |= {f"past_{n}": drawn(seed + 3, batch, 2, room, 16, dtype=dtype) if room else None for n in "kv"}
    given |= {"lengths": np.array(lengths, np.int32) - 1, "total": np.array([total], np.int32)}
    return given | {"cos": drawn(seed + 5, 16, 8, dtype=dtype), "sin": drawn(seed + 6, 16, 8, dtype=dtype)}


GROUPED = {"num_heads": 4, "kv_num_heads": 2}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "more", [{}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}, {"local_window_size": 2}]
)
def test_group_query_attention(dtype: Any, packed: bool, more: dict[str, int]) -> None:
    near = {"rtol": 1e-5, "atol": 1e-5} if dtype is np.float32 else {"rtol": 5e-3, "atol": 5e-3}
    first = grouped(0, 3, 0, [3, 3], 3, dtype, packed)
    compare("GroupQueryAttention", first, {**GROUPED, **more}, outputs=3, **near)
    later = grouped(1, 1, 6, [4, 6], 6, dtype, packed)
    compare("GroupQueryAttention", later, {**GROUPED, **more}, outputs=3, **near)


@pytest.mark.parametrize("more", [{"softcap": 0.7}, {"smooth_softmax": 1}, {"scale": 0.2}, {"causal": 0}])
def test_group_query_attention_and_its_attributes(more: dict[str, Any]) -> None:
    given = grouped(2, 2, 5, [5], 5)
    compare("GroupQueryAttention", given, {**GROUPED, **more}, outputs=3)


def test_group_query_attention_with_a_cache_that_grows() -> None:
    given = grouped(3, 1, 4, [5, 5], 5)
    compare("GroupQueryAttention", given, GROUPED, outputs=3)
    compare("GroupQueryAttention", given, GROUPED, outputs=3, weights=["total"])
    symbolic = {"q": ["b", "s", 64], "k": ["b", "s", 32], "v": ["b", "s", 32], "past_k": ["b", 2, "p", 16]}
    symbolic |= {"past_v": ["b", 2, "p", 16], "lengths": ["b"]}
    compare("GroupQueryAttention", given, GROUPED, outputs=3, symbolic=symbolic)


def test_group_query_attention_with_a_sink_and_a_bias() -> None:
    given = {**grouped(4, 2, 0, [2], 2), "positions": None, "bias": drawn(9, 1, 4, 2, 2), "sink": drawn(10, 4)}
    compare("GroupQueryAttention", given, GROUPED, outputs=3)
    given = {**grouped(4, 1, 3, [4], 4), "positions": None, "bias": drawn(9, 1, 1, 1, 4), "sink": None}
    compare("GroupQueryAttention", given, GROUPED, outputs=3)


def test_what_is_left_out_is_named() -> None:
    x, w = drawn(0, 2, 3, 6), drawn(1, 6, 24)

    def refused(op_type: str, given: Any, attributes: Any, text: str) -> None:
        with pytest.raises(GraphError, match=text) as caught:
            from_onnx(model_of(op_type, given, attributes))
        assert caught.value.code in ("EK0528", "EK0529") and "node 'node'" in str(caught.value)

    refused(
        "Attention", {"x": x, "w": w}, {"num_heads": 2, "do_rotary": 1}, "has 'do_rotary', which has no counterpart"
    )
    refused("Attention", {"x": x, "w": w}, {}, "attribute 'num_heads' is missing")
    refused("Attention", {"x": x, "w": w}, {"num_heads": 2, "colour": 1}, "attribute 'colour' has no counterpart")
    mask = np.ones(3, np.int32)
    refused("Attention", {"x": x, "w": w, "b": None, "mask": mask}, {"num_heads": 2}, "a mask of 3 numbers for 2 items")
    refused("GroupQueryAttention", grouped(0, 1, 2, [2], 2), {**GROUPED, "qk_output": 1}, "has 'qk_output'")
    refused("GroupQueryAttention", grouped(0, 1, 2, [2], 2), {**GROUPED, "kv_num_heads": 3}, "4 heads of queries for 3")
    conv = {"x": drawn(0, 1, 2, 4, 4), "w": drawn(1, 2, 2, 3, 3)}
    refused("FusedConv", conv, {"activation": "Sine"}, "has the activation 'Sine'; known are Relu")
    heads = {"x": drawn(0, 2, 6), "positions": np.array([0]), "cos": drawn(1, 4, 2), "sin": drawn(2, 4, 2)}
    refused("RotaryEmbedding", heads, {}, "takes tensors of three or four axes, and gets 2")
