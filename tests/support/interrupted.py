"""A program that is interrupted: it imports, compiles, loads and runs, again after each KeyboardInterrupt.

It says `begun` first, `stopped` after each interrupt, and `right` when everything has worked. What a half-imported
package or a half-made table leaves behind would show in one of the later rounds. With `EINKORN_CACHE_DIR` a folder that
is new, the first round compiles; the last does again, another graph.

Run as a program: python interrupted.py; input: SIGINT at any moment.
"""

from __future__ import annotations

import faulthandler
import signal
from pathlib import Path
from typing import Any

KERNELS = Path(__file__).parents[1] / "graph" / "session_kernels.py"


def work(factor: float) -> None:
    """Everything from the first import to results that are compared."""
    from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

    def forward(x: Any) -> list[Any]:
        y = ops.exp(x * factor)
        return [ops.softmax(y), y @ x, ops.custom("positive", device=DeviceRef.CPU(), values=[y])[0]]

    types = [TensorType(DType.float32, ["n", "n"], DeviceRef.CPU())]
    graph = Graph("interrupted", forward=forward, input_types=types, custom_extensions=[KERNELS])
    model = InferenceSession().load(graph)
    check(model, factor)


def check(model: Any, factor: float) -> None:
    import numpy as np  # here: half an import of NumPy is nothing that Einkorn could mend

    for n in (3, 70):
        x = np.linspace(-1, 1, n * n, dtype=np.float32).reshape(n, n)
        y = np.exp(x * np.float32(factor))
        e = np.exp(y - y.max(-1, keepdims=True))
        softmax, product, positive = (np.asarray(each) for each in model(x))
        assert np.allclose(softmax, e / e.sum(-1, keepdims=True), rtol=1e-5)
        assert np.allclose(product, y @ x, rtol=1e-4, atol=1e-4) and np.allclose(positive, y, rtol=1e-6)


def main() -> None:
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the process that started this may ignore it
    print("begun", flush=True)
    for factor in (0.5, 0.25):
        while True:
            try:
                work(factor)
                break
            except KeyboardInterrupt:
                print("stopped", flush=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is over: Python's own end would die of one
    print("right", flush=True)


if __name__ == "__main__":
    main()
