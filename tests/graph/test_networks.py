"""Networks as people write them on their first day agree with NumPy in float64: encoders, mixers, cells, masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

pytestmark = pytest.mark.as_shipped

HOST = DeviceRef.CPU()
Array = np.ndarray[Any, Any]
TOLERANCE = {DType.float64: 1e-12, DType.float32: 2e-5}  # of values around 1, some hundred roundings deep


def model_of(forward: Callable[..., Any], dtype: DType, *shapes: Sequence[int | str]) -> Any:
    types = [TensorType(dtype, shape, HOST) for shape in shapes]
    return InferenceSession(devices=[CPU()]).load(Graph("network", forward=forward, input_types=types))


def agree(got: Any, wanted: Array, dtype: DType) -> None:
    array = got.to_numpy()
    assert array.shape == wanted.shape and array.dtype == dtype.to_numpy()
    np.testing.assert_allclose(array.astype(np.float64), wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


class Weights:
    """Random numbers by name, the same by the same code."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def __call__(self, name: str, *shape: int) -> Array:
        rng = np.random.default_rng([self.seed, *name.encode()])
        return rng.standard_normal(shape) / math.sqrt(shape[0])


class Staged:
    """The mathematics that a network is written in, as ops of a graph."""

    def __init__(self, dtype: DType, weights: Weights) -> None:
        self.dtype = dtype
        self.weights = weights

    def weight(self, name: str, *shape: int) -> Any:
        return ops.constant(self.weights(name, *shape).astype(self.dtype.to_numpy()), self.dtype, HOST)

    def mean(self, x: Any) -> Any:
        return ops.mean(x, -1)

    gelu = staticmethod(ops.gelu)
    tanh = staticmethod(ops.tanh)
    sigmoid = staticmethod(ops.sigmoid)
    relu = staticmethod(ops.relu)
    softmax = staticmethod(ops.softmax)
    rsqrt = staticmethod(ops.rsqrt)
    permute = staticmethod(ops.permute)
    reshape = staticmethod(ops.reshape)
    concat = staticmethod(ops.concat)
    stack = staticmethod(ops.stack)


class Plain:
    """The same in NumPy, in float64, with the weights rounded as the graph has them."""

    def __init__(self, dtype: DType, weights: Weights) -> None:
        self.dtype = dtype
        self.weights = weights

    def weight(self, name: str, *shape: int) -> Array:
        return self.weights(name, *shape).astype(self.dtype.to_numpy()).astype(np.float64)

    def mean(self, x: Array) -> Array:
        return x.mean(-1, keepdims=True)

    def gelu(self, x: Array) -> Array:
        return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))

    def sigmoid(self, x: Array) -> Array:
        return 1 / (1 + np.exp(-x))

    def relu(self, x: Array) -> Array:
        return np.maximum(x, 0)

    def softmax(self, x: Array) -> Array:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def rsqrt(self, x: Array) -> Array:
        return 1 / np.sqrt(x)

    tanh = staticmethod(np.tanh)
    permute = staticmethod(np.transpose)
    reshape = staticmethod(np.reshape)
    concat = staticmethod(np.concatenate)
    stack = staticmethod(np.stack)


def layer_norm(m: Any, x: Any, name: str, width: int) -> Any:
    centred = x - m.mean(x)
    variance = m.mean(centred * centred)
    return centred * m.rsqrt(variance + 1e-5) * m.weight(f"{name}.scale", width) + m.weight(f"{name}.shift", width)


def linear(m: Any, x: Any, name: str, before: int, after: int) -> Any:
    return x @ m.weight(f"{name}.weight", before, after) + m.weight(f"{name}.bias", after)


def heads_of(m: Any, x: Any, heads: int) -> Any:
    batch, length, width = x.shape
    return m.permute(m.reshape(x, [batch, length, heads, int(width) // heads]), [0, 2, 1, 3])


def attention(m: Any, x: Any, name: str, width: int, heads: int, mask: Any = None) -> Any:
    batch, length, _ = x.shape
    q, k, v = (heads_of(m, linear(m, x, f"{name}.{part}", width, width), heads) for part in "qkv")
    scores = (q @ m.permute(k, [0, 1, 3, 2])) * (1 / math.sqrt(width // heads))
    if mask is not None:
        scores = scores + mask
    mixed = m.reshape(m.permute(m.softmax(scores) @ v, [0, 2, 1, 3]), [batch, length, width])
    return linear(m, mixed, f"{name}.out", width, width)


def encoder_layer(m: Any, x: Any, name: str, width: int, heads: int, mask: Any = None) -> Any:
    x = layer_norm(m, x + attention(m, x, f"{name}.attention", width, heads, mask), f"{name}.first", width)
    inner = m.gelu(linear(m, x, f"{name}.up", width, 2 * width))
    return layer_norm(m, x + linear(m, inner, f"{name}.down", 2 * width, width), f"{name}.second", width)


def encoder(m: Any, x: Any, width: int, heads: int, layers: int, mask: Any = None) -> Any:
    for k in range(layers):
        x = encoder_layer(m, x, f"layer{k}", width, heads, mask)
    return x


@pytest.mark.parametrize("dtype", [DType.float32, DType.float64], ids=str)
def test_an_encoder_of_six_layers(dtype: DType) -> None:
    """Multi-head attention, layer norms and residuals, of any batch and length."""
    weights = Weights()
    model = model_of(lambda x: encoder(Staged(dtype, weights), x, 8, 2, 6), dtype, ["batch", "length", 8])
    rng = np.random.default_rng(1)
    for batch, length in [(2, 5), (1, 1), (3, 2), (0, 4), (2, 17)]:
        x = rng.standard_normal((batch, length, 8)).astype(dtype.to_numpy())
        wanted = encoder(Plain(dtype, weights), x.astype(np.float64), 8, 2, 6)
        agree(model(x)[0], wanted, dtype)


def test_a_masked_decoder_gives_its_layers_too() -> None:
    """A causal mask as an input that is broadcast, and what each layer gave as outputs of their own."""
    dtype, weights = DType.float64, Weights(1)

    def forward(m: Any, x: Any, mask: Any) -> list[Any]:
        first = encoder_layer(m, x, "a", 8, 4, mask)
        second = encoder_layer(m, first, "b", 8, 4, mask)
        return [second, first, x, first]

    shapes = (["batch", "length", 8], ["length", "length"])
    model = model_of(lambda x, mask: forward(Staged(dtype, weights), x, mask), dtype, *shapes)
    for length in (1, 6):
        x = np.random.default_rng(length).standard_normal((2, length, 8))
        mask = np.triu(np.full((length, length), -1e9), 1)
        for got, wanted in zip(model(x, mask), forward(Plain(dtype, weights), x, mask), strict=True):
            agree(got, wanted, dtype)


@pytest.mark.parametrize("dtype", [DType.float32, DType.float64], ids=str)
def test_a_perceptron_with_residuals(dtype: DType) -> None:
    weights = Weights(2)

    def forward(m: Any, x: Any) -> Any:
        for k in range(4):
            h = layer_norm(m, m.relu(linear(m, x, f"{k}", 6, 6)) + x, f"{k}.norm", 6)
            x = x + m.tanh(h) * m.sigmoid(linear(m, h, f"{k}.gate", 6, 6))
        return m.softmax(linear(m, x, "head", 6, 3))

    model = model_of(lambda x: forward(Staged(dtype, weights), x), dtype, ["n", 6])
    for n in (0, 1, 7):
        x = np.random.default_rng(n).standard_normal((n, 6)).astype(dtype.to_numpy())
        agree(model(x)[0], forward(Plain(dtype, weights), x.astype(np.float64)), dtype)


def test_a_mixer_over_patches() -> None:
    """Patches cut out by slices, mixed along both axes by turns."""
    dtype, weights = DType.float32, Weights(3)

    def forward(m: Any, image: Any) -> Any:
        patches = [image[:, r : r + 2, c : c + 2] for r in (0, 2) for c in (0, 2, 4)]
        x = m.stack([m.reshape(patch, [image.shape[0], 4]) for patch in patches], axis=1)
        x = linear(m, x, "embed", 4, 8)
        for k in range(2):
            turned = m.permute(layer_norm(m, x, f"{k}.a", 8), [0, 2, 1])
            x = x + m.permute(linear(m, m.gelu(linear(m, turned, f"{k}.t1", 6, 6)), f"{k}.t2", 6, 6), [0, 2, 1])
            x = x + linear(m, m.gelu(linear(m, layer_norm(m, x, f"{k}.b", 8), f"{k}.c1", 8, 8)), f"{k}.c2", 8, 8)
        pooled = m.reshape(m.mean(m.permute(x, [0, 2, 1])), [image.shape[0], 8])
        return linear(m, pooled, "head", 8, 3)

    model = model_of(lambda x: forward(Staged(dtype, weights), x), dtype, ["batch", 4, 6])
    for batch in (1, 3):
        x = np.random.default_rng(batch).standard_normal((batch, 4, 6)).astype(np.float32)
        agree(model(x)[0], forward(Plain(dtype, weights), x.astype(np.float64)), dtype)


def test_a_recurrent_cell_unrolled() -> None:
    """A gated cell over five steps; each state is read three times and is an output."""
    dtype, weights = DType.float64, Weights(4)

    def forward(m: Any, x: Any, state: Any) -> list[Any]:
        states = []
        for k in range(5):
            both = m.concat([x[:, k], state], axis=1)
            forget = m.sigmoid(linear(m, both, "forget", 7, 4))
            reset = m.sigmoid(linear(m, both, "reset", 7, 4))
            new = m.tanh(linear(m, m.concat([x[:, k], state * reset], axis=1), "new", 7, 4))
            state = forget * state + (1.0 - forget) * new
            states.append(state)
        return [m.stack(states, axis=1), *states[::-1]]

    model = model_of(lambda x, s: forward(Staged(dtype, weights), x, s), dtype, ["n", 5, 3], ["n", 4])
    for n in (1, 6):
        rng = np.random.default_rng(n)
        x, state = rng.standard_normal((n, 5, 3)), rng.standard_normal((n, 4))
        for got, wanted in zip(model(x, state), forward(Plain(dtype, weights), x, state), strict=True):
            agree(got, wanted, dtype)
