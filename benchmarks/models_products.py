"""Measures products, convolutions, pools and recurrent layers of models next to PyTorch and ONNX Runtime.

    python benchmarks/models_products.py                 # all rows
    python benchmarks/models_products.py product conv    # those whose names begin so

One thread and processor time: both sides take turns in one process, and what counts is the median of their times. A
ratio is the time of the other side divided by ours, 1 is as fast. `rows` gives the rows to other benchmarks.

Needs torch, onnx and onnxruntime.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("EINKORN_NUM_THREADS", "1")

import torch

from einkorn.graph import CPU, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, from_onnx, ops

ROUNDS, SECONDS = 7, 0.05
Call = Callable[[], Any]


@dataclass(frozen=True)
class ProductRow:
    """What was measured next to which peer: seconds of both, and the ratio that is wanted."""

    what: str
    peer: str
    ours: float
    theirs: float
    bar: float

    @property
    def ratio(self) -> float:
        return self.theirs / self.ours


def medians(ours: Call, theirs: Call) -> tuple[float, float]:
    """Seconds of the processor for a call of each, by turns."""
    counts = []
    for call in (ours, theirs):
        call()
        start = time.process_time()
        call()
        counts.append(max(1, int(SECONDS / max(time.process_time() - start, 1e-6))))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for call, count, seconds in zip((ours, theirs), counts, times, strict=True):
            start = time.process_time()
            for _ in range(count):
                call()
            seconds.append((time.process_time() - start) / count)
    return statistics.median(times[0]), statistics.median(times[1])


def loaded(forward: Callable[..., Any], dtype: DType, shape: Sequence[int], **weights: Any) -> Any:
    types = [TensorType(dtype, list(shape), DeviceRef.CPU())]
    graph = Graph("measured", forward=forward, input_types=types)
    return InferenceSession(devices=[CPU()]).load(graph, weights_registry=weights)


# *** products ***


def product(rows: int, dtype: str, bar: float, n: int = 11008, k: int = 4096) -> ProductRow:
    """`x @ W.T`, with weights as checkpoints have them."""
    kind = DType[dtype]
    weight, x = torch.randn(n, k).to(getattr(torch, dtype)), torch.randn(rows, k).to(getattr(torch, dtype))
    type = TensorType(kind, [n, k], DeviceRef.CPU())
    model = loaded(
        lambda v: ops.matmul(v, ops.transpose(ops.constant_external("w", type), 0, 1)),
        kind,
        [rows, k],
        w=Buffer.from_dlpack(weight),
    )
    given = Buffer.from_dlpack(x)
    times = medians(lambda: model(given), lambda: torch.nn.functional.linear(x, weight))
    return ProductRow(f"product {dtype}, {rows} x {n} x {k}", "torch", *times, bar)


def int8_product(rows: int, bar: float, n: int = 11008, k: int = 4096) -> ProductRow:
    """`qmatmul` of int8 weights with a scale for each row."""
    weight = torch.randint(-127, 128, (n, k), dtype=torch.int8)
    scales, x = torch.rand(n) * 0.01, torch.randn(rows, k)
    types = [TensorType(DType.int8, [n, k], DeviceRef.CPU()), TensorType(DType.float32, [n], DeviceRef.CPU())]

    def forward(v: Any) -> Any:
        return ops.qmatmul("int8_row", None, v, *map(ops.constant_external, "ws", types))

    model = loaded(forward, DType.float32, [rows, k], w=Buffer.from_dlpack(weight), s=Buffer.from_dlpack(scales))
    given, half, half_scales = Buffer.from_dlpack(x), x.bfloat16(), scales.bfloat16()
    times = medians(lambda: model(given), lambda: torch._weight_int8pack_mm(half, weight, half_scales))
    return ProductRow(f"product int8 by row, {rows} x {n} x {k}", "torch int8pack, bfloat16", *times, bar)


# *** ONNX ***


def onnx_row(what: str, module: torch.nn.Module, shape: Sequence[int], bar: float) -> ProductRow:
    import onnxruntime

    x = torch.randn(*shape)
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        with torch.no_grad():
            torch.onnx.export(module.eval(), (x,), file.name, dynamo=False, input_names=["x"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        theirs = onnxruntime.InferenceSession(file.name, options, providers=["CPUExecutionProvider"])
        model = InferenceSession(devices=[CPU()]).load(from_onnx(file.name))
        array = x.numpy()
        given = Buffer.from_numpy(array)
        times = medians(lambda: model(given), lambda: theirs.run(None, {"x": array}))
    return ProductRow(what, "ONNX Runtime", *times, bar)


CONVOLUTIONS = [  # channels, size, results, filter, stride, groups
    *((64, 56, 64, 3, 1, 1), (128, 28, 128, 3, 1, 1), (256, 14, 256, 3, 1, 1), (512, 7, 512, 3, 1, 1)),
    *((64, 56, 128, 3, 2, 1), (3, 224, 64, 7, 2, 1), (64, 56, 256, 1, 1, 1), (256, 40, 64, 1, 1, 1)),
    *((32, 160, 32, 3, 1, 1), (16, 320, 32, 3, 2, 1), (96, 56, 96, 3, 1, 96), (96, 112, 96, 3, 2, 96)),
]
POOLS = [(64, 112, 3, 2, 1), (128, 10, 5, 1, 2), (128, 40, 2, 2, 0), (64, 56, 3, 1, 1)]  # channels, size, …, padding
RECURRENT = [("LSTM", 64, 1, 128, 128), ("LSTM", 100, 1, 64, 256), ("GRU", 64, 1, 128, 128), ("LSTM", 16, 8, 128, 256)]


def convolution(channels: int, size: int, results: int, filter: int, stride: int, groups: int) -> ProductRow:
    layer = torch.nn.Conv2d(channels, results, filter, stride, filter // 2, groups=groups)
    name = f"conv {filter} x {filter} / {stride}, {channels} x {size} x {size} to {results}"
    name += " by channel" if groups > 1 else ""
    return onnx_row(name, torch.nn.Sequential(layer, torch.nn.ReLU()), (1, channels, size, size), 1.0)


def pool(channels: int, size: int, kernel: int, stride: int, padding: int) -> ProductRow:
    name = f"max pool {kernel} x {kernel} / {stride}, {channels} x {size} x {size}"
    return onnx_row(name, torch.nn.MaxPool2d(kernel, stride, padding), (1, channels, size, size), 1.0)


def recurrent(kind: str, steps: int, batch: int, inputs: int, hidden: int) -> ProductRow:
    name = f"{kind} of {steps} steps, batch {batch}, {inputs} to {hidden}"
    return onnx_row(name, getattr(torch.nn, kind)(inputs, hidden), (steps, batch, inputs), 1.0)


MEASURED: dict[str, list[Callable[[], ProductRow]]] = {
    "product": [
        *(lambda m=m: product(m, "float32", 1.0) for m in (1, 2, 4, 8, 16)),
        *(lambda m=m: product(m, "bfloat16", 1.0) for m in (1, 16, 64, 256)),
        *(lambda m=m, bar=bar: int8_product(m, bar) for m, bar in ((1, 1.8), (16, 1.0))),
    ],
    "conv": [lambda case=case: convolution(*case) for case in CONVOLUTIONS],
    "pool": [lambda case=case: pool(*case) for case in POOLS],
    "recurrent": [lambda case=case: recurrent(*case) for case in RECURRENT],
}


NAMES = [f"{family} {number}" for family, measured in MEASURED.items() for number in range(len(measured))]


def named(name: str) -> ProductRow:
    """A row by its family and number, as in `NAMES`."""
    torch.set_num_threads(1)
    family, number = name.split()
    return MEASURED[family][int(number)]()


def rows(families: Sequence[str] = ()) -> Iterator[ProductRow]:
    """The rows of these families, or of all."""
    torch.set_num_threads(1)
    for family, measured in MEASURED.items():
        if not families or family in families:
            for measure in measured:
                yield measure()


if __name__ == "__main__":
    for row in rows(sys.argv[1:]):
        times = f"{row.ours * 1e3:9.3f} ms  {row.theirs * 1e3:9.3f} ms  {row.ratio:5.2f}  (bar {row.bar})"
        print(f"{row.what:55} {row.peer:26} {times}", flush=True)
