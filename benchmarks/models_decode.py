"""Measures the decoding of a Llama with a cache in buffers next to PyTorch, on one thread, in one run.

    EINKORN_NUM_THREADS=1 python benchmarks/models_decode.py [--rounds 21] [--check]

The network has random weights: 8 layers, 512 wide, 8 heads of queries that share 4 of keys, SwiGLU, rotary positions.
Both take turns in every round; what counts is the median of the processor's time. A ratio is the other's time divided
by ours: PyTorch's, or, of a cache with eight times the room, that of the usual one. `--check` compares logits with a
float64 computation in NumPy, and the tokens of a generation, one `while_loop`, with those that PyTorch finds step by
step.

`measure(name)` measures one of `ROWS` for benchmarks/models.py, which writes docs/models.md. Needs torch.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from einkorn.graph import CPU, BufferType, DeviceRef, DType, Graph, InferenceSession, TensorType, Weight, ops

HOST = DeviceRef.CPU()
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Config:
    """The sizes of the network, and how many places its cache has."""

    layers: int = 8
    width: int = 512
    heads: int = 8
    shared: int = 4
    hidden: int = 1536
    words: int = 256
    room: int = 576

    @property
    def size(self) -> int:
        return self.width // self.heads

    def cache(self, batch: int) -> tuple[int, ...]:
        return self.layers, batch, self.shared, self.room, self.size


def weights(config: Config, seed: int = 0) -> dict[str, Array]:
    """Random weights by name; those of products as (out, in)."""
    random = np.random.default_rng(seed)
    c = config
    shapes = {"words": (c.words, c.width), "head": (c.words, c.width)}
    for layer in range(c.layers):
        shapes |= {
            f"{layer}.q": (c.width, c.width),
            f"{layer}.k": (c.shared * c.size, c.width),
            f"{layer}.v": (c.shared * c.size, c.width),
            f"{layer}.o": (c.width, c.width),
            f"{layer}.gate": (c.hidden, c.width),
            f"{layer}.up": (c.hidden, c.width),
            f"{layer}.down": (c.width, c.hidden),
        }
    by_name = {name: (random.standard_normal(s) * s[1] ** -0.5).astype(np.float32) for name, s in shapes.items()}
    norms = [f"{layer}.{name}" for layer in range(c.layers) for name in ("norm1", "norm2")]
    by_name |= {name: (1 + random.standard_normal(c.width) / 8).astype(np.float32) for name in [*norms, "norm"]}
    return by_name


def angles(config: Config) -> tuple[Array, Array]:
    """The cosines and sines of rotary positions, (place, half a head)."""
    turns = np.arange(config.room)[:, None] * 10000.0 ** (-np.arange(0, config.size, 2) / config.size)
    return np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)


# *** Einkorn ***


class Network:
    """The network in a graph."""

    def __init__(self, config: Config, data: dict[str, Array]) -> None:
        self.config = config
        self.w = {name: Weight(name, DType.float32, array.shape, HOST) for name, array in data.items()}
        self.angles = [ops.constant(table, DType.float32, HOST) for table in angles(config)]

    def logits(self, keys: Any, values: Any, tokens: Any, start: Any) -> Any:
        """The logits of the last of the tokens (batch, length), whose first one has the place `start`."""
        c, w = self.config, self.w
        batch, length = tokens.shape
        here = (slice(start, start + length), length)
        cos, sin = (table[here, :] for table in self.angles)
        x = ops.gather(w["words"], tokens, 0)
        for layer in range(c.layers):
            h = ops.rms_norm(x, w[f"{layer}.norm1"], 1e-5)
            q, k, v = (
                ops.permute((h @ w[f"{layer}.{name}"].T).reshape([batch, length, heads, c.size]), [0, 2, 1, 3])
                for name, heads in (("q", c.heads), ("k", c.shared), ("v", c.shared))
            )
            keys[layer, :, :, here] = self.turned(k, cos, sin)
            values[layer, :, :, here] = v
            q = self.turned(q, cos, sin)
            attended = ops.attention(
                q, keys[layer], values[layer], causal=True, valid_length=start + length, offset=start
            )
            attended = ops.permute(attended, [0, 2, 1, 3]).reshape([batch, length, c.width])
            x = x + attended @ w[f"{layer}.o"].T
            h = ops.rms_norm(x, w[f"{layer}.norm2"], 1e-5)
            x = x + (ops.silu(h @ w[f"{layer}.gate"].T) * (h @ w[f"{layer}.up"].T)) @ w[f"{layer}.down"].T
        return ops.rms_norm(x[:, -1], w["norm"], 1e-5) @ w["head"].T

    def turned(self, x: Any, cos: Any, sin: Any) -> Any:
        half = self.config.size // 2
        a, b = x[..., :half], x[..., half:]
        return ops.concat([a * cos - b * sin, a * sin + b * cos], -1)


def load(config: Config, data: dict[str, Array]) -> Any:
    """A model: caches, tokens and their first place in, logits out."""
    cache = BufferType(DType.float32, [config.layers, "b", config.shared, config.room, config.size], HOST)
    types = [cache, cache, TensorType(DType.int64, ["b", "s"], HOST), TensorType(DType.int64, [], HOST)]
    forward = lambda *inputs: Network(config, data).logits(*inputs)  # noqa: E731
    session = InferenceSession(devices=[CPU()])
    return session.load(Graph("decode", forward=forward, input_types=types), weights_registry=data)


def load_generator(config: Config, data: dict[str, Array], count: int) -> Any:
    """A model that decodes `count` tokens in one loop: caches, tokens (batch, 1) and their place in, tokens out."""

    def forward(keys: Any, values: Any, tokens: Any, start: Any) -> Any:
        network = Network(config, data)
        made = ops.buffer_create(BufferType(DType.int64, [count, tokens.shape[0]], HOST))

        def body(i: Any, tokens: Any) -> Any:
            best = ops.argmax(network.logits(keys, values, tokens, start + i), -1)
            made[i] = best.reshape([tokens.shape[0]])
            return i + 1, best.reshape([tokens.shape[0], 1])

        ops.while_loop((0, tokens), lambda i, tokens: i < count, body)
        return made[...]

    cache = BufferType(DType.float32, [config.layers, "b", config.shared, config.room, config.size], HOST)
    types = [cache, cache, TensorType(DType.int64, ["b", 1], HOST), TensorType(DType.int64, [], HOST)]
    session = InferenceSession(devices=[CPU()])
    return session.load(Graph("generate", forward=forward, input_types=types), weights_registry=data)


# *** PyTorch and NumPy ***


def torch_logits(config: Config, data: dict[str, Array]) -> Callable[..., Any]:
    """The same of tensors of PyTorch, run op by op."""
    import torch
    import torch.nn.functional as F

    c = config
    w = {name: torch.from_numpy(array) for name, array in data.items()}
    tables = [torch.from_numpy(table) for table in angles(config)]

    def turned(x: Any, cos: Any, sin: Any) -> Any:
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    def logits(keys: Any, values: Any, tokens: Any, start: int) -> Any:
        batch, length = tokens.shape
        end = start + length
        cos, sin = (table[start:end] for table in tables)
        x = w["words"][tokens]
        for layer in range(c.layers):
            h = F.rms_norm(x, (c.width,), w[f"{layer}.norm1"], 1e-5)
            q, k, v = (
                F.linear(h, w[f"{layer}.{name}"]).view(batch, length, heads, c.size).transpose(1, 2)
                for name, heads in (("q", c.heads), ("k", c.shared), ("v", c.shared))
            )
            keys[layer, :, :, start:end] = turned(k, cos, sin)
            values[layer, :, :, start:end] = v
            attended = F.scaled_dot_product_attention(
                turned(q, cos, sin),
                keys[layer, :, :, :end],
                values[layer, :, :, :end],
                is_causal=length > 1,
                enable_gqa=True,
            )
            x = x + F.linear(attended.transpose(1, 2).reshape(batch, length, c.width), w[f"{layer}.o"])
            h = F.rms_norm(x, (c.width,), w[f"{layer}.norm2"], 1e-5)
            h = F.silu(F.linear(h, w[f"{layer}.gate"])) * F.linear(h, w[f"{layer}.up"])
            x = x + F.linear(h, w[f"{layer}.down"])
        return F.linear(F.rms_norm(x[:, -1], (c.width,), w["norm"], 1e-5), w["head"])

    return logits


def exact_logits(config: Config, data: dict[str, Array], tokens: Array) -> Array:
    """The logits of the last of the tokens, in float64 and without a cache."""
    c = config
    w = {name: array.astype(np.float64) for name, array in data.items()}
    cos, sin = (table[: tokens.shape[1]].astype(np.float64) for table in angles(config))
    batch, length = tokens.shape

    def norm(x: Array, name: str) -> Array:
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-5) * w[name]

    def heads(x: Array, count: int) -> Array:
        return x.reshape(batch, length, count, c.size).transpose(0, 2, 1, 3)

    def turned(x: Array) -> Array:
        a, b = np.split(x, 2, -1)
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    x = w["words"][tokens]
    hidden = np.triu(np.full((length, length), -np.inf), 1)
    for layer in range(c.layers):
        h = norm(x, f"{layer}.norm1")
        q = turned(heads(h @ w[f"{layer}.q"].T, c.heads))
        k = turned(heads(h @ w[f"{layer}.k"].T, c.shared)).repeat(c.heads // c.shared, 1)
        v = heads(h @ w[f"{layer}.v"].T, c.shared).repeat(c.heads // c.shared, 1)
        scores = q @ k.swapaxes(-1, -2) * c.size**-0.5 + hidden
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        attended = (powers / powers.sum(-1, keepdims=True)) @ v
        x = x + attended.transpose(0, 2, 1, 3).reshape(batch, length, c.width) @ w[f"{layer}.o"].T
        h = norm(x, f"{layer}.norm2")
        gate = h @ w[f"{layer}.gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[f"{layer}.up"].T)) @ w[f"{layer}.down"].T
    return norm(x[:, -1], "norm") @ w["head"].T


# *** what is measured ***


def check(config: Config, data: dict[str, Array], count: int = 40) -> dict[str, float]:
    """The largest difference of logits from float64 relative to the largest logit, whole, in pieces and token by token;
    and how many tokens of a generation are those of PyTorch."""
    import torch

    random = np.random.default_rng(1)
    tokens = random.integers(0, config.words, (2, 23))
    model = load(config, data)
    wanted = exact_logits(config, data, tokens)
    worst = 0.0
    for cuts in ([0, 23], [0, 9, 10, 23], list(range(24))):
        keys, values = np.full((2, *config.cache(2)), np.nan, np.float32)
        for start, end in itertools.pairwise(cuts):
            (got,) = model(keys, values, tokens[:, start:end], start)
        worst = max(worst, float(np.abs(got.to_numpy() - wanted).max() / np.abs(wanted).max()))
    generator, logits = load_generator(config, data, count), torch_logits(config, data)
    keys, values = np.zeros((2, *config.cache(2)), np.float32)
    model(keys, values, tokens, 0)
    ours = generator(keys, values, tokens[:, -1:], 22)[0].to_numpy()
    others = torch.zeros(2, *config.cache(2))
    equal, given = 0, torch.from_numpy(tokens)
    with torch.no_grad():
        logits(*others, given, 0)
        given = given[:, -1:]
        for i in range(count):
            given = logits(*others, given, 22 + i).argmax(-1, keepdim=True)
            equal += int((given[:, 0].numpy() == ours[i]).sum())
    return {"logits": worst, "tokens": equal / (2 * count)}


def _medians(runs: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """The medians of the processor's times of some functions, which take turns."""
    times: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()
    for _ in range(rounds):
        for run, taken in zip(runs, times, strict=True):
            start = time.process_time()
            run()
            taken.append(time.process_time() - start)
    return [statistics.median(taken) for taken in times]


@dataclass(frozen=True)
class DecodeRow:
    """What is measured: `length` tokens of each of `batch` sequences behind `back` others.

    `roomy` compares a cache with eight times the room with one of the usual size instead of with PyTorch.
    """

    batch: int
    length: int = 1
    back: int = 512
    roomy: bool = False


ROWS = {
    "a token, batch 1": DecodeRow(1),
    "a token, batch 8": DecodeRow(8),
    "a token, batch 1, 8 times the room": DecodeRow(1, roomy=True),
    "a token, batch 8, 8 times the room": DecodeRow(8, roomy=True),
    "prefill of 512 tokens": DecodeRow(1, length=512, back=0),
}


def measure(name: str, rounds: int = 21) -> tuple[float, float]:
    """Milliseconds of Einkorn, and of what it is compared with."""
    import torch

    torch.set_num_threads(1)
    row, config = ROWS[name], Config()
    data = weights(config)
    random = np.random.default_rng(0)
    tokens = random.integers(0, config.words, (row.batch, row.length))
    caches = random.standard_normal((2, *config.cache(row.batch)), np.float32)
    model = load(config, data)
    if row.roomy:
        wide = Config(room=8 * config.room)
        roomy, larger = load(wide, data), np.zeros((2, *wide.cache(row.batch)), np.float32)
        larger[:, :, :, :, : config.room] = caches
        runs = [lambda: roomy(*larger, tokens, row.back), lambda: model(*caches, tokens, row.back)]
    else:
        logits, others, given = torch_logits(config, data), torch.from_numpy(caches.copy()), torch.from_numpy(tokens)
        runs = [lambda: model(*caches, tokens, row.back), lambda: logits(*others, given, row.back)]
    with torch.no_grad():
        ours, other = _medians(runs, rounds if row.length == 1 else max(rounds // 4, 3))
    return ours * 1e3, other * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.check:
        config = Config()
        print(check(config, weights(config)))
    for name in ROWS:
        ours, other = measure(name, given.rounds)
        print(f"{name:40} {ours:9.2f} ms {other:9.2f} ms {other / ours:7.2f}", flush=True)


if __name__ == "__main__":
    main()
