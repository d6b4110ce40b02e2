"""Runs the GPU kernels of this folder on a device and compares them with NumPy.

python examples/gpu/run.py                       the processor, then a simulated GPU that looks for races
python examples/gpu/run.py --device 0            the first GPU of this machine
python examples/gpu/run.py --device sim:gfx942   a simulated GPU with warps of 64
python examples/gpu/run.py attention             the kernels whose names hold a text
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from kernel_examples import EXAMPLES, Example
from rich.console import Console
from rich.table import Table

from einkorn.graph import CPU, Accelerator, Buffer, Device, DeviceRef, DType, Graph, InferenceSession, TensorType, ops


def load(example: Example, device: Device, checks: str | None = None) -> Any:
    """The op as a graph for a device, and its inputs there."""
    place = DeviceRef.from_device(device)
    inputs = [Buffer.from_numpy(array).to(device) for array in example.inputs()]
    types = [TensorType(buffer.dtype, buffer.shape, place) for buffer in inputs]
    outputs = [TensorType(DType.from_numpy(array.dtype), array.shape, place) for array in example.expected()]

    def forward(*values: Any) -> Any:
        return ops.custom(example.op, place, values, outputs, parameters=dict(example.parameters))

    graph = Graph(example.file, forward, types, custom_extensions=[example.path])
    return InferenceSession(devices=[device], checks=checks).load(graph), inputs


def check(example: Example, results: list[Any]) -> str:
    """Compares results with NumPy's."""
    worst = 0.0
    for given, wanted in zip(results, example.expected(), strict=True):
        assert given.dtype == wanted.dtype and given.shape == wanted.shape, (given.dtype, given.shape)
        if example.bound == 0.0:
            np.testing.assert_array_equal(given, wanted)
        else:
            difference = float(np.abs(given - wanted.astype(np.float64)).max() / np.abs(wanted).max())
            assert difference <= example.bound, f"{example.name} differs from NumPy by {difference}"
            worst = max(worst, difference)
    return f"within {worst:.0e} of NumPy" if worst else "NumPy's bits"


def run(device: Device, wanted: str) -> None:
    table = Table("kernel", "result", "ms", title=str(device), title_justify="left", min_width=64)
    for example in EXAMPLES:
        if wanted in example.name:
            model, inputs = load(example, device)
            start = time.perf_counter()
            results = [result.to_numpy() for result in model(*inputs)]
            milliseconds = (time.perf_counter() - start) * 1e3
            table.add_row(example.name, check(example, results), f"{milliseconds:.1f}")
    Console().print(table)


def device_of(text: str) -> Device:
    return CPU() if text == "cpu" else Accelerator(int(text) if text.isdecimal() else text)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("kernel", nargs="?", default="", help="a part of a kernel's name")
    options.add_argument("--device", help="cpu, sim, sim:TARGET, or the number of a GPU")
    chosen = options.parse_args()
    devices = [CPU(), Accelerator("sim", checks="all")] if chosen.device is None else [device_of(chosen.device)]
    for device in devices:
        run(device, chosen.kernel)


if __name__ == "__main__":
    main()
