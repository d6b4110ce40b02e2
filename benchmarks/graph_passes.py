"""What the passes over graphs give for graphs that people write: kernels, bytes and time, with and without them.

    python benchmarks/graph_passes.py [--threads 1] [--rounds 20] [--only minilm]

Each graph is loaded twice, the second time under `EINKORN_WITHOUT=graph`. The two take turns; a time is the fastest
round, in milliseconds of the processor where there is one thread. Bytes are those of the values that kernels store and
read from memory, each once for each kernel. MiniLM needs the extra [models].
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "models"))
WIDTH, HEADS, LAYERS = 384, 12, 6
Made = tuple[Any, list[np.ndarray]]  # a model, and what it is called with
RNG = np.random.default_rng(0)


class MadeWeights:
    """Weights by name, made in the order of their use."""

    def __init__(self) -> None:
        self.registry: dict[str, np.ndarray] = {}

    def __call__(self, *shape: int, positive: bool = False) -> Any:
        from einkorn.graph import DeviceRef, DType, Weight

        name = f"w{len(self.registry)}"
        values = RNG.standard_normal(shape).astype(np.float32)
        self.registry[name] = np.abs(values) + 0.5 if positive else values / shape[-1] ** 0.5
        return Weight(name, DType.float32, list(shape), DeviceRef.CPU())


def load(forward: Callable[[Any, MadeWeights], Any], shape: list[int]) -> Made:
    from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType

    weights = MadeWeights()
    kind = TensorType(DType.float32, shape, DeviceRef.CPU())
    graph = Graph("g", forward=lambda x: forward(x, weights), input_types=[kind])
    model = InferenceSession().load(graph, weights_registry=weights.registry)
    return model, [RNG.standard_normal(shape).astype(np.float32)]


def encoder(rows: int) -> Made:
    from einkorn.graph import ops

    def norm(x: Any, w: MadeWeights) -> Any:
        return ops.layer_norm(x, w(WIDTH), w(WIDTH), 1e-5)

    def forward(x: Any, w: MadeWeights) -> Any:
        for _ in range(LAYERS):
            q, k, v = (ops.reshape(x @ w(WIDTH, WIDTH).T, [rows, HEADS, -1]) for _ in range(3))
            q, k, v = (ops.permute(each, [1, 0, 2]) for each in (q, k, v))
            seen = ops.softmax(q @ ops.permute(k, [0, 2, 1]) * 0.18) @ v
            x = norm(x + ops.reshape(ops.permute(seen, [1, 0, 2]), [rows, WIDTH]) @ w(WIDTH, WIDTH).T, w)
            x = norm(x + ops.gelu(x @ w(4 * WIDTH, WIDTH).T) @ w(WIDTH, 4 * WIDTH).T, w)
        return x

    return load(forward, [rows, WIDTH])


def convolution(x: Any, w: MadeWeights, channels: int, size: int = 3) -> Any:
    from einkorn.graph import ops

    filter = w(channels, int(x.shape[1]), size, size)
    return ops.conv2d(x, filter, padding=size // 2, input_layout="NCHW", filter_layout="FCRS")


def resnet() -> Made:
    from einkorn.graph import ops

    def part(x: Any, w: MadeWeights, size: int, channels: int) -> Any:
        return ops.batch_norm(convolution(x, w, channels, size), *(w(channels, positive=True) for _ in range(4)))

    def forward(x: Any, w: MadeWeights) -> Any:
        for _ in range(2):  # bottlenecks: 1 x 1, 3 x 3, 1 x 1
            y = ops.relu(part(ops.relu(part(x, w, 1, 64)), w, 3, 64))
            x = ops.relu(part(y, w, 1, 256) + x)
        return x

    return load(forward, [1, 256, 28, 28])


def unet() -> Made:
    from einkorn.graph import ops

    def last(x: Any, w: MadeWeights, channels: int) -> Any:  # a convolution of images in NHWC, called with NCHW
        y = ops.permute(x, [0, 2, 3, 1])
        y = ops.conv2d(y, w(3, 3, int(y.shape[3]), channels), padding=1)
        return ops.relu(ops.permute(y, [0, 3, 1, 2]))

    def forward(x: Any, w: MadeWeights) -> Any:
        down = last(last(x, w, 16), w, 16)
        low = ops.permute(ops.max_pool2d(ops.permute(down, [0, 2, 3, 1]), 2, 2), [0, 3, 1, 2])
        low = last(last(low, w, 32), w, 16)
        up = ops.permute(ops.resize_nearest(ops.permute(low, [0, 2, 3, 1]), [1, 64, 64, 16]), [0, 3, 1, 2])
        return last(ops.concat([down, up], axis=1), w, 4)

    return load(forward, [1, 4, 64, 64])


def minilm(sentences: int, length: int) -> Made:
    import minilm as network

    from einkorn.graph import CPU, InferenceSession

    words = RNG.integers(1000, 20000, (sentences, length))
    return network.load_model(InferenceSession(devices=[CPU()])), [words, np.ones_like(words)]


GRAPHS: dict[str, Callable[[], Made]] = {
    "encoder of six layers of 384, 1 row": lambda: encoder(1),
    "encoder of six layers of 384, 16 rows": lambda: encoder(16),
    "encoder of six layers of 384, 128 rows": lambda: encoder(128),
    "minilm, 20 sentences of 14": lambda: minilm(20, 14),
    "minilm, 1 sentence of 8": lambda: minilm(1, 8),
    "minilm, 1 sentence of 128": lambda: minilm(1, 128),
    "resnet: two bottlenecks with batch norms": resnet,
    "u-net of one level with permutes": unet,
}


def moved(model: Any) -> float:
    """Megabytes of the values that kernels read and store, each once for each kernel, but for what has open sizes."""
    ir, total = model.ir, 0
    for code in model._own.codes():
        parts = code.plan.parts
        for group in parts.groups:
            nodes = [ir.nodes[n] for n in group.nodes]
            last = ir.nodes[group.root if group.epilogue is None else group.epilogue]
            made = {value for node in nodes for value in node.results}
            read = {value for node in nodes for value in node.operands} - made
            for value in (*read, *last.results):
                type = ir.types[value]
                if all(str(dim).isdigit() for dim in type.shape):
                    total += type.dtype.bytes_for(int(type.shape.num_elements))
    return total / 1e6


def measured(make: Callable[[], Made], rounds: int) -> Iterator[tuple[int, float, float]]:
    models = []
    for without in ("", "graph"):
        os.environ["EINKORN_WITHOUT"] = without
        models.append(make())
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for number, (model, given) in enumerate(models):
            model(*given)
            start = time.process_time()
            for _ in range(3):
                model(*given)
            times[number].append((time.process_time() - start) / 3)
    for (model, _), took in zip(models, times, strict=True):
        yield len(model.kernel_summaries), moved(model), min(took) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    os.environ["EINKORN_NUM_THREADS"] = str(options.threads)
    for name, make in GRAPHS.items():
        if options.only in name:
            (kernels, bytes, after), (most, more, before) = measured(make, options.rounds)
            columns = [name, f"{kernels}, was {most}", f"{bytes:.1f}, was {more:.1f}"]
            columns += [f"{after:.2f}, was {before:.2f}", f"{before / after:.2f}"]
            print(f"| {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
