"""Measures all-MiniLM-L6-v2 next to ONNX Runtime and PyTorch (eager and compiled), in one run.

    python benchmarks/minilm.py [--threads 1 2] [--rounds 30] [--cpu]

The network is the one of examples/models: from the numbers of words to directions of sentences. Everyone takes its
turn in every round, so that they share what else the machine does; what counts is the fastest round. With `--cpu` it is
the time that the processor worked, which varies less on a busy machine, where it is of one thread. A ratio is the time
of the fastest of the others divided by ours: 1 is as fast as the best. Each number of threads is a process of its own.

Needs the extra [models], torch, onnx and onnxruntime; those of the last three that are missing are left out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "models"))
import minilm

SIZES = ((20, 14), (1, 128))
Run = Callable[[np.ndarray, np.ndarray], np.ndarray]


def arrays() -> dict[str, np.ndarray]:
    by_name = {name: weight.data() for name, weight in minilm.model_weights().items()}
    return {name: np.array(w) for name, w in by_name.items() if str(w.dtype) == "float32"}


def einkorn_run(threads: int) -> Run:
    from einkorn.graph import CPU, InferenceSession

    model = minilm.load_model(InferenceSession(devices=[CPU()]))
    return lambda words, mask: model(words, mask)[1].to_numpy()


def torch_run(threads: int, *, compiled: bool) -> Run:
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    w = {name: torch.from_numpy(array) for name, array in arrays().items()}

    def linear(x: Any, name: str) -> Any:
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x: Any, name: str) -> Any:
        return F.layer_norm(x, (minilm.SIZE,), w[f"{name}.weight"], w[f"{name}.bias"], minilm.EPSILON)

    def forward(words: Any, mask: Any) -> Any:
        batch, length = words.shape
        tables = [w[f"embeddings.{n}_embeddings.weight"] for n in ("word", "position", "token_type")]
        x = norm(F.embedding(words, tables[0]) + tables[1][:length] + tables[2][0], "embeddings.LayerNorm")
        seen = (mask != 0)[:, None, None, :]
        for number in range(minilm.LAYERS):
            name = f"encoder.layer.{number}"
            split = (batch, length, minilm.HEADS, minilm.SIZE // minilm.HEADS)
            parts = (linear(x, f"{name}.attention.self.{n}") for n in ("query", "key", "value"))
            attended = F.scaled_dot_product_attention(*(p.view(split).transpose(1, 2) for p in parts), attn_mask=seen)
            attended = linear(attended.transpose(1, 2).reshape(x.shape), f"{name}.attention.output.dense")
            x = norm(x + attended, f"{name}.attention.output.LayerNorm")
            y = linear(F.gelu(linear(x, f"{name}.intermediate.dense")), f"{name}.output.dense")
            x = norm(x + y, f"{name}.output.LayerNorm")
        return F.normalize((x * mask[:, :, None]).sum(1), dim=1)

    run = torch.compile(forward, dynamic=False) if compiled else forward

    def call(words: np.ndarray, mask: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(run(torch.from_numpy(words), torch.from_numpy(mask)))

    return call


class Onnx:
    """The network as an ONNX graph, of the ops that exporters write."""

    def __init__(self) -> None:
        from onnx import helper, numpy_helper

        self.helper, self.numpy_helper = helper, numpy_helper
        self.weights = arrays()
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        names = [self.constant(i) if isinstance(i, np.ndarray) else i for i in inputs]
        name = f"v{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, names, [name], **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def linear(self, x: str, name: str) -> str:
        product = self.op("MatMul", x, np.ascontiguousarray(self.weights[f"{name}.weight"].T))
        return self.op("Add", product, self.weights[f"{name}.bias"])

    def norm(self, x: str, name: str) -> str:
        scale, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=minilm.EPSILON)

    def attention(self, x: str, seen: str, name: str) -> str:
        def heads(which: str, order: list[int]) -> str:
            split = np.array([0, 0, minilm.HEADS, minilm.SIZE // minilm.HEADS])
            return self.op("Transpose", self.op("Reshape", self.linear(x, f"{name}.self.{which}"), split), perm=order)

        product = self.op("MatMul", heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]))
        scores = self.op("Add", self.op("Div", product, np.array(np.sqrt(32), np.float32)), seen)
        weighted = self.op("MatMul", self.op("Softmax", scores, axis=-1), heads("value", [0, 2, 1, 3]))
        joined = self.op("Reshape", self.op("Transpose", weighted, perm=[0, 2, 1, 3]), np.array([0, 0, minilm.SIZE]))
        return self.norm(self.op("Add", x, self.linear(joined, f"{name}.output.dense")), f"{name}.output.LayerNorm")

    def model(self) -> bytes:
        tables = [self.weights[f"embeddings.{n}_embeddings.weight"] for n in ("word", "position", "token_type")]
        length = self.op("Slice", self.op("Shape", "words"), np.array([1]), np.array([2]))
        places = self.op("Slice", tables[1], np.array([0]), length, np.array([0]))
        x = self.op("Add", self.op("Add", self.op("Gather", tables[0], "words"), places), tables[2][0])
        x = self.norm(x, "embeddings.LayerNorm")
        kept = self.op("Cast", "mask", to=1)
        hidden = self.op("Mul", self.op("Sub", np.array(1, np.float32), kept), np.array(-1e30, np.float32))
        seen = self.op("Unsqueeze", hidden, np.array([1, 2]))
        for number in range(minilm.LAYERS):
            name = f"encoder.layer.{number}"
            x = self.attention(x, seen, f"{name}.attention")
            y = self.op("Gelu", self.linear(x, f"{name}.intermediate.dense"))
            x = self.norm(self.op("Add", x, self.linear(y, f"{name}.output.dense")), f"{name}.output.LayerNorm")
        total = self.op(
            "ReduceSum", self.op("Mul", x, self.op("Unsqueeze", kept, np.array([2]))), np.array([1]), keepdims=0
        )
        size = self.op("ReduceL2", total, np.array([1]), keepdims=1)
        self.nodes.append(self.helper.make_node("Div", [total, size], ["directions"]))
        shape = ["batch", "length"]
        inputs = [self.helper.make_tensor_value_info(name, 7, shape) for name in ("words", "mask")]
        outputs = [self.helper.make_tensor_value_info("directions", 1, ["batch", minilm.SIZE])]
        initializers = [self.numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = self.helper.make_graph(self.nodes, "minilm", inputs, outputs, initializers)
        opset = self.helper.make_opsetid("", 20)
        return self.helper.make_model(graph, opset_imports=[opset], ir_version=9).SerializeToString()


def onnx_run(threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(Onnx().model(), options, providers=["CPUExecutionProvider"])
    return lambda words, mask: session.run(None, {"words": words, "mask": mask})[0]


def runners(threads: int) -> dict[str, Run]:
    """The libraries that are installed."""
    runs = {"einkorn": einkorn_run(threads)}
    if find_spec("onnxruntime") and find_spec("onnx"):
        runs["onnxruntime"] = onnx_run(threads)
    if find_spec("torch"):
        runs["torch"] = torch_run(threads, compiled=False)
        runs["compiled"] = torch_run(threads, compiled=True)
    return runs


def measure(threads: int, rounds: int, clock: Callable[[], float]) -> None:
    """Prints a line for each size."""
    everyone = runners(threads)
    for batch, length in SIZES:
        words = np.random.default_rng(0).integers(1000, 20000, (batch, length))
        mask = np.ones((batch, length), np.int64)
        mask[0, length // 2 :] = 0
        results = {name: run(words, mask) for name, run in everyone.items()}
        for name, result in results.items():
            assert np.abs(result - results["einkorn"]).max() < 1e-5, name
        times: dict[str, list[float]] = {name: [] for name in everyone}
        for _ in range(rounds):
            for name, run in everyone.items():
                run(words, mask)  # the threads of the others lie still after this
                start = clock()
                run(words, mask)
                times[name].append(clock() - start)
        best = {name: min(seconds) for name, seconds in times.items()}
        fastest = min((t for name, t in best.items() if name != "einkorn"), default=best["einkorn"])
        shown = "  ".join(f"{name} {t * 1e3:7.2f} ms" for name, t in best.items())
        print(
            f"{threads} threads  {batch:3d} x {length:<4d} {shown}  ratio {fastest / best['einkorn']:.2f}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        measure(given.threads[0], given.rounds, time.process_time if given.cpu else time.perf_counter)
        return
    for threads in given.threads:
        command = [sys.executable, __file__, "--here", "--threads", str(threads), "--rounds", str(given.rounds)]
        command += ["--cpu"] if given.cpu else []
        numbers = {"OMP_NUM_THREADS": str(threads), "EINKORN_NUM_THREADS": str(threads)}
        subprocess.run(command, env=os.environ | numbers, check=True)


if __name__ == "__main__":
    main()
