"""Measures products, convolutions, pools and recurrent layers of models next to PyTorch and ONNX Runtime.

    python benchmarks/models_products.py                 # all rows
    python benchmarks/models_products.py product conv    # those whose names begin so

One thread and processor time: both sides take turns in one process, and what counts is the median of their times. A
ratio is the time of the other side divided by ours, 1 is as fast. `named` gives a row of `NAMES` to other benchmarks.

`needs` says which libraries a row is compared with; ggml comes with llama-cpp-python.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

os.environ.setdefault("EINKORN_NUM_THREADS", "1")

import numpy as np
import with_ggml

from einkorn import functional as F
from einkorn.graph import CPU, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, from_onnx, ops

if TYPE_CHECKING:
    import torch

ROUNDS, SECONDS = 7, 0.05
Call = Callable[[], Any]
Array = np.ndarray[Any, Any]


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
    import torch

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


def int8_product(
    rows: int, bar: float, encoding: str = "int8_row", what: str = "", n: int = 11008, k: int = 4096
) -> ProductRow:
    """`qmatmul` of int8 weights with a scale for each row, next to the faster of PyTorch's ways.

    These are the product of bfloat16 rows with int8, and layers whose rows are rounded to 8 bits at each call.
    """
    import torch

    weight = torch.randint(-127, 128, (n, k), dtype=torch.int8)
    scales, x = torch.rand(n) * 0.01, torch.randn(rows, k)
    types = [TensorType(DType.int8, [n, k], DeviceRef.CPU()), TensorType(DType.float32, [n], DeviceRef.CPU())]

    def forward(v: Any) -> Any:
        return ops.qmatmul(encoding, None, v, *map(ops.constant_external, "ws", types))

    model = loaded(forward, DType.float32, [rows, k], w=Buffer.from_dlpack(weight), s=Buffer.from_dlpack(scales))
    given, half, half_scales = Buffer.from_dlpack(x), x.bfloat16(), scales.bfloat16()
    peers: dict[str, Call] = {"torch int8pack, bfloat16": lambda: torch._weight_int8pack_mm(half, weight, half_scales)}
    linear = torch.nn.Linear(k, n, bias=False)
    dynamic = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(linear), {torch.nn.Linear}, torch.qint8)
    peers["torch dynamic int8"] = lambda: dynamic(x)
    return _next_to(f"product int8 by row{what}, {rows} x {n} x {k}", lambda: model(given), peers, bar)


def int4_product(rows: int, bar: float, n: int = 11008, k: int = 4096) -> ProductRow:
    """`qmatmul` of Q4_0, next to PyTorch's int4 in groups of 32."""
    import torch

    model, _, numbers = _quantized("q4_0", rows, n, k)
    given = Buffer.from_numpy(numbers)
    peers: dict[str, Call] = {}
    for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        packed = torch._convert_weight_to_int4pack_for_cpu(torch.randint(0, 16, (n, k), dtype=torch.int32), 1)
        factors, x = torch.rand(k // 32, n, 2, dtype=dtype), torch.randn(rows, k, dtype=dtype)
        peers[f"torch int4pack, {name}"] = lambda x=x, p=packed, f=factors: torch._weight_int4pack_mm_for_cpu(
            x, p, 32, f
        )
    return _next_to(f"product int4 in groups of 32, {rows} x {n} x {k}", lambda: model(given), peers, bar)


def block_product(encoding: str, rows: int, bar: float, n: int = 11008, k: int = 4096) -> ProductRow:
    """`qmatmul` of an encoding of GGUF, next to ggml, which packs matrices when they are loaded where it can."""
    model, w, x = _quantized(encoding, rows, n, k)
    given = Buffer.from_numpy(x)
    other, values = with_ggml.product(w, encoding, x)
    times = medians(lambda: model(given), other)
    most = abs(model(given)[0].to_numpy() - values()).max() / abs(values()).max()
    assert most < 0.02, f"the results of {encoding} differ by {most}"
    return ProductRow(f"product {encoding}, {rows} x {n} x {k}", "ggml", *times, bar)


def _quantized(encoding: str, rows: int, n: int, k: int) -> tuple[Any, Array, Array]:
    """A model of a product, its random blocks, and rows."""
    random = np.random.default_rng(0)
    few = F.quantize(encoding, random.standard_normal((64, k)).astype(np.float32)).numpy()
    w = np.tile(few, (n // 64, 1))
    type = TensorType(DType.uint8, list(w.shape), DeviceRef.CPU())
    model = loaded(
        lambda v: ops.qmatmul(encoding, None, v, ops.constant_external("w", type)),
        DType.float32,
        [rows, k],
        w=Buffer.from_numpy(w),
    )
    return model, w, random.standard_normal((rows, k)).astype(np.float32)


def _next_to(what: str, ours: Call, peers: dict[str, Call], bar: float) -> ProductRow:
    """The row next to the fastest of some peers; those that this machine cannot run are left out."""
    rows = []
    for peer, theirs in peers.items():
        try:
            theirs()
        except (RuntimeError, NotImplementedError):
            continue
        rows.append(ProductRow(what, peer, *medians(ours, theirs), bar))
    return min(rows, key=lambda row: row.ratio)


# *** ONNX ***


def onnx_row(what: str, module: torch.nn.Module, shape: Sequence[int], bar: float) -> ProductRow:
    import onnxruntime
    import torch

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
    import torch

    layer = torch.nn.Conv2d(channels, results, filter, stride, filter // 2, groups=groups)
    name = f"conv {filter} x {filter} / {stride}, {channels} x {size} x {size} to {results}"
    name += " by channel" if groups > 1 else ""
    return onnx_row(name, torch.nn.Sequential(layer, torch.nn.ReLU()), (1, channels, size, size), 1.0)


def pool(channels: int, size: int, kernel: int, stride: int, padding: int) -> ProductRow:
    import torch

    name = f"max pool {kernel} x {kernel} / {stride}, {channels} x {size} x {size}"
    return onnx_row(name, torch.nn.MaxPool2d(kernel, stride, padding), (1, channels, size, size), 1.0)


def recurrent(kind: str, steps: int, batch: int, inputs: int, hidden: int) -> ProductRow:
    import torch

    name = f"{kind} of {steps} steps, batch {batch}, {inputs} to {hidden}"
    return onnx_row(name, getattr(torch.nn, kind)(inputs, hidden), (steps, batch, inputs), 1.0)


MEASURED: dict[str, list[Callable[[], ProductRow]]] = {
    "product": [
        *(lambda m=m: product(m, "float32", 1.0) for m in (1, 2, 4, 8, 16)),
        *(lambda m=m: product(m, "bfloat16", 1.0) for m in (1, 16, 64, 256)),
        *(lambda m=m, bar=bar: int8_product(m, bar) for m, bar in ((1, 1.8), (16, 1.0))),
        *(lambda m=m, bar=bar: int4_product(m, bar) for m, bar in ((1, 1.0), (16, 0.9))),
        *(lambda m=m: int8_product(m, 1.0, "int8_row_dynamic", " and rounded rows") for m in (1, 16)),
    ],
    "blocks": [lambda e=e, m=m: block_product(e, m, 0.9) for e in ("q8_0", "q4_0", "q4_k", "q6_k") for m in (1, 16)],
    "conv": [lambda case=case: convolution(*case) for case in CONVOLUTIONS],
    "pool": [lambda case=case: pool(*case) for case in POOLS],
    "recurrent": [lambda case=case: recurrent(*case) for case in RECURRENT],
}


NAMES = [f"{family} {number}" for family, measured in MEASURED.items() for number in range(len(measured))]


NEEDS = {"product": ("torch",), "blocks": ("llama_cpp",)}


def needs(name: str) -> Sequence[str]:
    """The libraries that a row of `NAMES` is compared with."""
    return NEEDS.get(name.split()[0], ("torch", "onnx", "onnxruntime"))


def named(name: str) -> ProductRow:
    """A row by its family and number, as in `NAMES`."""
    family, number = name.split()
    if "torch" in needs(name):
        import torch

        torch.set_num_threads(1)
    return MEASURED[family][int(number)]()


def rows(families: Sequence[str] = ()) -> Iterator[ProductRow]:
    """The rows of these families, or of all."""
    for name in NAMES:
        if not families or name.split()[0] in families:
            yield named(name)


if __name__ == "__main__":
    for row in rows(sys.argv[1:]):
        times = f"{row.ours * 1e3:9.3f} ms  {row.theirs * 1e3:9.3f} ms  {row.ratio:5.2f}  (bar {row.bar})"
        print(f"{row.what:55} {row.peer:26} {times}", flush=True)
