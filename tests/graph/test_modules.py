"""Modules: the tree, its parameters, loading, compiling; layers compared with those of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from einkorn.tensor import Tensor

from einkorn import functional as F
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, Weight, nn
from einkorn.graph.quantization import QuantizationConfig, QuantizationEncoding
from einkorn.graph.weights import GGUFWeights, write_gguf

HOST = DeviceRef.CPU()


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def f32(*shape: Any) -> TensorType:
    return TensorType(DType.float32, shape, HOST)


class Block(nn.Module[[Any], Any]):
    def __init__(self, dim: int) -> None:
        self.norm = nn.RMSNorm(dim)
        self.linear = nn.Linear(dim, dim)
        self.scale: Any = Tensor.ones([1])
        self.name = "a block"

    def forward(self, x: Any) -> Any:
        return x + self.linear(self.norm(x)) * self.scale


def test_the_tree() -> None:
    model = nn.Sequential(Block(4), nn.Linear(4, 3, bias=False))
    assert [name for name, _ in model.children] == ["0", "1"]
    assert [name for name, _ in model.descendants] == ["0", "0.norm", "0.linear", "1"]
    names = [name for name, _ in model.parameters]
    assert names == ["0.scale", "0.norm.weight", "0.linear.weight", "0.linear.bias", "1.weight"]
    assert [name for name, _ in model[0].local_parameters] == ["scale"]
    assert model[1].bias == 0 and (model[1].in_dim, model[1].out_dim) == (4, 3)
    assert "norm: RMSNorm" in repr(model) and "weight: float32 [3, 4]" in repr(model)
    doubled = model.map_parameters(lambda name, t: t * 2)
    np.testing.assert_array_equal(doubled[1].weight.numpy(), model[1].weight.numpy() * 2)
    model.apply_to_parameters(lambda name, t: Tensor.zeros_like(t) if name.endswith("bias") else t)
    assert not model[0].linear.bias.numpy().any()
    assert model.to(HOST) is model
    with pytest.raises(EinkornError) as caught:
        model.map_parameters(lambda name, t: 3)
    assert caught.value.code == "EK0472"


def test_a_module_of_fields() -> None:
    @nn.module_dataclass
    class Linear(nn.Module[[Any], Any]):
        weight: Any
        bias: Any = 0

        def forward(self, x: Any) -> Any:
            return x @ self.weight.T + self.bias

    layer = Linear(Tensor.ones([2, 3]), bias=Tensor.ones([2]))
    assert [name for name, _ in layer.parameters] == ["weight", "bias"]
    assert layer(Tensor.ones([1, 3])).tolist() == [[4, 4]]
    assert "weight: float32 [2, 3]" in repr(layer)
    assert [name for name, _ in Linear(Tensor.ones([2, 3])).parameters] == ["weight"]


def test_eager_compiled_and_staged_agree() -> None:
    model = nn.Sequential(Block(8), Block(8), nn.Linear(8, 5))
    x = numbers(3, 8)
    eager = model(Tensor.from_numpy(x)).numpy()
    compiled = model.compile(f32("n", 8))
    np.testing.assert_allclose(compiled(x).numpy(), eager, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(compiled(Tensor.from_numpy(x[:1])).numpy(), eager[:1], rtol=1e-5, atol=1e-6)
    staged = model.map_parameters(lambda name, t: Weight(name, t.dtype, [int(d) for d in t.shape], HOST))
    graph = Graph("g", forward=lambda x: [staged(x), staged(x)], input_types=[f32("n", 8)])  # equal weights are one
    session = InferenceSession().load(graph, weights_registry=dict(model.parameters))
    for result in session(x):
        np.testing.assert_allclose(result.to_numpy(), eager, rtol=1e-5, atol=1e-6)
    state = {name: -t.numpy() for name, t in model.parameters}  # type: ignore[union-attr]
    other = model.compile(f32(3, 8), weights=state)(x).numpy()
    model.load_state_dict(state)
    np.testing.assert_allclose(model(Tensor.from_numpy(x)).numpy(), other, rtol=1e-5, atol=1e-6)


def test_the_structure_of_results() -> None:
    class Pair(NamedTuple):
        first: Any
        second: Any

    class Both(nn.Module[[Any, Any], Any]):
        def __init__(self, made: Callable[..., Any]) -> None:
            self.made = made

        def forward(self, x: Any, y: Any) -> Any:
            return self.made(x + y, x * y)

    for made, kind in ((Pair, Pair), (lambda *a: a, tuple), (lambda *a: list(a), list)):
        result = Both(made).compile(f32(2), f32(2))(np.array([1, 2], np.float32), np.array([3, 4], np.float32))
        assert type(result) is kind and [each.tolist() for each in result] == [[4, 6], [3, 8]]


def test_what_does_not_fit_is_one_error() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    before = model[0].weight.numpy()
    state = {"0.weight": numbers(4, 3), "0.bias": np.zeros(3), "1.weigth": numbers(3), "1.bias": numbers(3)}
    with pytest.raises(nn.StateError) as caught:
        model.load_state_dict(state)
    error = caught.value
    assert isinstance(error, KeyError) and isinstance(error, ValueError) and error.code == "EK0471"
    assert error.message.startswith("4 weights do not fit module Sequential: '1.weight' is missing")
    assert error.notes == [
        "'0.weight' is float32 (4, 3), and the module has float32 (3, 4)",
        "'0.bias' is float64 (3), and the module has float32 (3)",
        "'1.weigth' is left over",
    ]
    assert "1.weight" in str(error.hint) and error.place is not None and error.place.file == __file__
    np.testing.assert_array_equal(model[0].weight.numpy(), before)
    good = {name: numbers(*map(int, t.shape)) for name, t in model.parameters}
    with pytest.raises(nn.StateError, match="'more' is left over"):
        model.load_state_dict({**good, "more": numbers(1)})
    model.load_state_dict({**good, "more": numbers(1)}, strict=False)
    np.testing.assert_array_equal(model[0].weight.numpy(), good["0.weight"])
    model.load_state(lambda name, _: -good[name])
    np.testing.assert_array_equal(model[1].bias.numpy(), -good["1.bias"])
    with pytest.raises(EinkornError) as other:
        model.load_state_dict([])  # type: ignore[arg-type]
    assert other.value.code == "EK0472"


@pytest.mark.parametrize("encoding", [QuantizationEncoding.Q8_0, QuantizationEncoding.Q4_K], ids=lambda e: e.name)
def test_quantised_layers(encoding: QuantizationEncoding, tmp_path: Any) -> None:
    model = nn.Sequential(nn.Embedding(20, 256), nn.Linear(256, 7))
    table, matrix = (F.quantize(encoding, t).numpy() for t in (model[0].weight, model[1].weight))  # type: ignore[union-attr]
    tensors = {"0.weight": table, "1.weight": matrix, "1.bias": model[1].bias.numpy()}
    names = {"0.weight": encoding, "1.weight": encoding}
    write_gguf(tmp_path / "m.gguf", tensors, encodings=names)
    weights = GGUFWeights(tmp_path / "m.gguf")
    indices = np.array([[3, 0, 19]])
    plain = model(Tensor.from_numpy(indices)).numpy()
    model.load_state_dict({name: weight.data() for name, weight in weights.items()})
    assert model[0].encoding is encoding and model[1].shape == (7, 256)
    actual = model(Tensor.from_numpy(indices)).numpy()
    assert np.abs(actual - plain).max() < (0.05 if encoding is QuantizationEncoding.Q8_0 else 0.2)
    compiled = model.compile(TensorType(DType.int64, [1, "n"], HOST))(indices).numpy()
    np.testing.assert_array_equal(compiled, actual)
    made = nn.Linear(256, 7, encoding=encoding)
    assert made.weight.shape == matrix.shape and made.weight.dtype is DType.uint8
    with pytest.raises(nn.StateError, match="is quantised in"):
        nn.RMSNorm(256).load_state(lambda name, _: weights["0.weight"].data())
    with pytest.raises(nn.StateError, match=r"\(20, 256\), and the module has \(9, 256\)"):
        nn.Linear(256, 9, bias=False).load_state(lambda name, _: weights["0.weight"].data())


def test_layers_of_other_checkpoints() -> None:
    rng = np.random.default_rng(0)
    x = numbers(3, 64)
    weight = numbers(16, 64)
    for name in ("int8_row", "float8_tensor", "float8_row", "float8_block"):
        layer = nn.Linear(64, 16, encoding=name)
        parts = F.quantize(name, Tensor.from_numpy(weight))
        layer.load_state_dict({"weight": parts[0], "weight_scale": parts[1], "bias": np.ones(16, np.float32)})
        wanted = x @ F.dequantize(name, *parts).numpy().T + 1
        for entry in both_ways(layer, x):
            np.testing.assert_allclose(entry[0].numpy(), wanted, rtol=1e-4, atol=1e-4)
        assert layer.shape == (16, 64) and layer.in_dim == 64
    words = rng.integers(-(1 << 31), 1 << 31, (8, 16)).astype(np.int32)
    scales = rng.uniform(0.01, 0.1, (2, 16)).astype(np.float16)
    zeros = rng.integers(-(1 << 31), 1 << 31, (2, 2)).astype(np.int32)
    config = QuantizationConfig("gptq", 4, 32)
    layer = nn.Linear(64, 16, bias=False, encoding="gptq", config=config)
    layer.load_state_dict({"qweight": words, "scales": scales, "qzeros": zeros})
    wanted = x @ F.dequantize("gptq", words, scales, zeros, config=config).numpy()
    np.testing.assert_allclose(both_ways(layer, x)[1][0].numpy(), wanted, rtol=1e-4, atol=1e-4)
    awq = nn.Linear(64, 16, encoding="awq", config=QuantizationConfig("awq", 4, 32, sym=True))
    assert [name for name, _ in awq.parameters] == ["qweight", "scales", "bias"]


def test_layers_that_cannot_be() -> None:
    cases: list[tuple[str, Callable[[], Any]]] = [
        ("in_dim", lambda: nn.Linear(0, 3)),
        ("encoding", lambda: nn.Linear(33, 3, encoding="q8_0")),
        ("encoding", lambda: nn.Linear(32, 3, encoding="q9")),
        ("encoding", lambda: nn.Embedding(32, 32, encoding="gptq")),
        ("config", lambda: nn.Linear(32, 32, encoding="gptq")),
        ("groups", lambda: nn.Conv2d(4, 6, 3, groups=4)),
        ("num_kv_heads", lambda: nn.Attention(8, 4, 3)),
        ("num_experts_per_token", lambda: nn.MoEGate(8, 4, 5)),
        ("dim", lambda: nn.RotaryEmbedding.of(7, 10)),
        ("start_pos", lambda: nn.RotaryEmbedding.of(4, 10)(Tensor.ones([1, 5, 1, 4]), 6)),
        ("module", lambda: nn.Sequential(3)),  # type: ignore[arg-type]
        ("input_types[0]", lambda: nn.Linear(3, 3).compile(3)),  # type: ignore[arg-type]
    ]
    for argument, case in cases:
        with pytest.raises(EinkornError) as caught:
            case()
        assert (caught.value.code, caught.value.argument) == ("EK0472", argument), caught.value
    with pytest.raises(NotImplementedError, match="Module defines no forward"):
        nn.Module()(3)  # type: ignore[arg-type]


# *** compared with PyTorch ***


def both_ways(module: Any, *arrays: Any, types: Any = None) -> list[Any]:
    """The results of a call with tensors, and of the compiled module."""
    eager = module(*map(Tensor.from_numpy, arrays))
    compiled = module.compile(*(types or [f32(*array.shape) for array in arrays]))(*arrays)
    return [result if isinstance(result, list | tuple) else [result] for result in (eager, compiled)]


def flat(results: Any) -> list[Any]:
    return [x for each in results for x in (flat(each) if isinstance(each, list | tuple) else [each])]


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("how", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}])
def test_recurrent_layers(kind: str, how: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn, kind)(5, 6, **how)
    ours = getattr(nn, kind)(5, 6, **how)
    ours.load_state_dict(theirs.state_dict())
    x = numbers(4, 3, 5)
    output, last = theirs(torch.from_numpy(x))
    wanted = [output, *(last if kind == "LSTM" else [last])]
    eager = flat(ours(Tensor.from_numpy(x)))

    class Flat(nn.Module[[Any], Any]):
        def __init__(self) -> None:
            self.layer = ours

        def forward(self, x: Any) -> Any:
            return flat(self.layer(x))

    size = ("t", 3, 5) if "batch_first" not in how else (4, "t", 5)
    for entry in (eager, Flat().compile(f32(*x.shape))(x), Flat().compile(f32(*size))(x)):
        for a, b in zip(entry, wanted, strict=True):
            np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_recurrent_layer_without_steps() -> None:
    output, (h, c) = nn.LSTM(3, 4)(Tensor.ones([0, 2, 3]))
    assert output.shape == [0, 2, 4] and h.shape == c.shape == [1, 2, 4] and not h.numpy().any()


@pytest.mark.parametrize("how", [{}, {"stride": 2, "padding": 1}, {"groups": 2, "dilation": (1, 2), "bias": False}])
def test_convolutions(how: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Conv2d(4, 6, 3, **how)
    ours = nn.Conv2d(4, 6, 3, **how)
    ours.load_state_dict(theirs.state_dict())
    x = numbers(2, 4, 9, 8)
    wanted = theirs(torch.from_numpy(x)).detach().numpy()
    for entry in both_ways(ours, x):
        np.testing.assert_allclose(entry[0].numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_norms() -> None:
    torch = pytest.importorskip("torch")
    x = numbers(2, 6, 5)
    for ours, theirs in (
        (nn.LayerNorm(5), torch.nn.LayerNorm(5)),
        (nn.GroupNorm(3, 6), torch.nn.GroupNorm(3, 6)),
        (nn.RMSNorm(5, eps=1e-5), torch.nn.RMSNorm(5, eps=1e-5)),
    ):
        theirs.load_state_dict({name: torch.randn_like(t) for name, t in theirs.state_dict().items()})
        ours.load_state_dict(theirs.state_dict())
        wanted = theirs(torch.from_numpy(x)).detach().numpy()
        for entry in both_ways(ours, x):
            np.testing.assert_allclose(entry[0].numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_weights_of_multi_head_attention(causal: bool) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    ours = nn.Attention(16, 4, bias=True, out_bias=True, causal=causal)
    state = theirs.state_dict()
    names = {"qkv_proj.weight": "in_proj_weight", "qkv_proj.bias": "in_proj_bias", "o_proj.weight": "out_proj.weight"}
    ours.load_state(lambda name, _: state[names.get(name, "out_proj.bias")])
    x = numbers(2, 5, 16)
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    wanted = theirs(*[torch.from_numpy(x)] * 3, attn_mask=mask, need_weights=False)[0].detach().numpy()
    for entry in both_ways(ours, x):
        np.testing.assert_allclose(entry[0].numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_fused_and_separate_heads_and_a_cache() -> None:
    rope = nn.RotaryEmbedding.of(8, 32)
    fused = nn.Attention(16, 4, 2, 8, bias=True, rope=rope, window=3)
    apart = nn.Attention(16, 4, 2, 8, bias=True, rope=rope, window=3, fused=False)
    state = dict(fused.parameters)
    parts = {"q": slice(0, 32), "k": slice(32, 48), "v": slice(48, 64)}

    def lookup(name: str, _: Any) -> Any:
        layer, _, end = name.rpartition(".")
        whole = state.get(name)
        return whole if whole is not None else state[f"qkv_proj.{end}"].numpy()[parts[layer[0]]]  # type: ignore[union-attr]

    apart.load_state(lookup)
    x = Tensor.from_numpy(numbers(1, 6, 16))
    whole = fused(x).numpy()
    np.testing.assert_allclose(apart(x).numpy(), whole, rtol=1e-5, atol=1e-6)
    fused.window = None
    whole = fused(x).numpy()
    _, *past = fused.heads(x[:, :5])
    actual, (keys, _) = fused.extended(x[:, 5:], tuple(past), 5)
    np.testing.assert_allclose(actual.numpy(), whole[:, 5:], rtol=1e-5, atol=1e-5)
    assert keys.shape == [1, 2, 6, 8]


# *** rotary positions ***


def turned(x: Any, table: Any, places: Any, interleaved: bool) -> Any:
    """In float64, as multiplication of complex numbers."""
    x = x.astype(np.float64)
    half = x.shape[-1] // 2
    pairs = x[..., ::2] + 1j * x[..., 1::2] if interleaved else x[..., :half] + 1j * x[..., half:]
    turns = (table[..., 0] + 1j * table[..., 1])[places][:, None, :]
    actual = pairs * turns
    parts = [actual.real, actual.imag]
    return np.stack(parts, -1).reshape(x.shape) if interleaved else np.concatenate(parts, -1)


@pytest.mark.parametrize("interleaved", [True, False])
def test_rotary_positions(interleaved: bool) -> None:
    rope = nn.RotaryEmbedding.of(8, 20, interleaved=interleaved)
    assert (rope.dim, rope.max_sequence_length) == (8, 20)
    x = numbers(2, 5, 3, 8)
    table = rope.weight.numpy()
    actual = rope(Tensor.from_numpy(x), 4).numpy()
    np.testing.assert_allclose(actual, turned(x, table, np.arange(4, 9), interleaved), rtol=1e-5, atol=1e-5)

    class At(nn.Module[..., Any]):
        def __init__(self) -> None:
            self.rope = rope

        def forward(self, x: Any, places: Any) -> Any:
            return self.rope(x, places)

    at = At()
    place = TensorType(DType.int64, [], HOST)
    np.testing.assert_array_equal(at.compile(f32(2, "n", 3, 8), place)(x, 4).numpy(), actual)
    for places in (np.arange(4, 9), np.tile(np.arange(4, 9), (2, 1))):
        type = TensorType(DType.int64, places.shape, HOST)
        np.testing.assert_array_equal(at.compile(f32(2, 5, 3, 8), type)(x, places).numpy(), actual)
    wide = np.concatenate([x, x], -1)
    longer = rope(Tensor.from_numpy(wide), 4).numpy()
    np.testing.assert_array_equal(longer[..., :8], actual)
    np.testing.assert_array_equal(longer[..., 8:], x)


def test_scalings() -> None:
    plain = 10000.0 ** (-np.arange(0, 64, 2) / 64)

    def angles(scaling: Any, length: int = 64) -> Any:
        table = nn.rotary_table(64, length, scaling=scaling).numpy().astype(np.float64)
        return np.arctan2(table[1, :, 1], table[1, :, 0]), np.hypot(table[1, :, 0], table[1, :, 1])

    np.testing.assert_allclose(angles(None)[0], plain, rtol=1e-5)
    np.testing.assert_allclose(angles(nn.LinearScaling(4))[0], plain / 4, rtol=1e-5)
    np.testing.assert_allclose(angles(nn.DynamicScaling(2, 64))[0], plain, rtol=1e-5)
    stretched = (10000.0 * 3 ** (64 / 62)) ** (-np.arange(0, 64, 2) / 64)
    np.testing.assert_allclose(angles(nn.DynamicScaling(2, 32))[0], stretched, rtol=1e-5)
    llama, size = angles(nn.Llama3Scaling(8, 1, 4, 8192))
    turns = 8192 * plain / (2 * np.pi)
    np.testing.assert_allclose(llama[turns > 4], plain[turns > 4], rtol=1e-5)
    np.testing.assert_allclose(llama[turns < 1], plain[turns < 1] / 8, rtol=1e-4)
    between = (turns >= 1) & (turns <= 4)
    smooth = (turns - 1) / 3
    np.testing.assert_allclose(llama[between], (plain * ((1 - smooth) / 8 + smooth))[between], rtol=1e-4)
    np.testing.assert_allclose(size, 1, rtol=1e-6)
    yarn, size = angles(nn.YarnScaling(4, 2048))
    np.testing.assert_allclose(size, 0.1 * np.log(4) + 1, rtol=1e-6)
    turns = 2048 * plain / (2 * np.pi)
    np.testing.assert_allclose(yarn[turns > 40], plain[turns > 40], rtol=1e-5)
    np.testing.assert_allclose(yarn[turns < 0.7], plain[turns < 0.7] / 4, rtol=1e-4)
    assert (np.diff(yarn) < 0).all()


# *** experts ***


def test_rows_of_no_expert_are_zeros() -> None:
    x, weights = numbers(9, 8), numbers(2, 40, 8, seed=1)
    starts = np.array([2, 5, 7], np.int32)
    wanted = np.zeros((9, 40), np.float32)
    wanted[2:5], wanted[5:7] = x[2:5] @ weights[0].T, x[5:7] @ weights[1].T
    result = F.grouped_matmul_ragged(*map(Tensor.from_numpy, (x, weights, starts)))
    np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_a_mixture_of_experts() -> None:
    layer = nn.MoE(8, 12, 5, 2)
    x = numbers(2, 7, 8)
    gate = layer.gate.gate_score.weight.numpy()  # type: ignore[attr-defined]
    scores = np.exp(x.reshape(-1, 8).astype(np.float64) @ gate.T)
    shares = scores / scores.sum(-1, keepdims=True)
    chosen = np.argsort(-shares, -1, kind="stable")[:, :2]
    wanted = np.zeros((14, 8))
    w1, w3, w2 = (getattr(layer, f"{name}_proj").numpy().astype(np.float64) for name in ("gate", "up", "down"))
    for token, row in enumerate(x.reshape(-1, 8)):
        total = shares[token, chosen[token]].sum()
        for e in chosen[token]:
            a = w1[e] @ row
            wanted[token] += shares[token, e] / total * (w2[e] @ (a / (1 + np.exp(-a)) * (w3[e] @ row)))
    for entry in both_ways(layer, x, types=[f32("b", 7, 8)]):
        np.testing.assert_allclose(entry[0].numpy().reshape(14, 8), wanted, rtol=1e-4, atol=1e-5)
