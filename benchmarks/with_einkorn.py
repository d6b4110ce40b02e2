"""The workloads as graphs of Einkorn.

"new" is `model(x)`. "given" calls the model's native entry with one output memory for all calls, as NumPy does with
`out=`: it shows the code alone, without the page faults of fresh memory, and is no way to call a model.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from workloads import Array, Workload

from einkorn.dsl.contract import abi
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, Model, TensorType, ops
from einkorn.graph.ir import ConstantTensor
from einkorn.graph.loading.thread_pool import thread_pool

Run = Callable[[], Any]
KERNELS = Path(__file__).with_name("twenty_kernels.py")
MATHEMATICS = Path(__file__).resolve().parents[1] / "tests" / "numerics" / "kernels_math.py"


def _forward(workload: Workload) -> Callable[..., Any]:
    if workload.section == "twenty":
        return lambda *values: ops.custom(workload.key, device=DeviceRef.CPU(), values=list(values))
    axis: Any = workload.axis
    if workload.section == "math":
        device = DeviceRef.CPU()
        return lambda *values: ops.custom(f"{workload.key}_each", device=device, values=values)[0]
    build: dict[str, Callable[..., Any]] = {
        "add_one": lambda x: x + 1.0,
        "multiply_add": lambda x, y, z: x * y + z,
        "relu": ops.relu,
        "exp": ops.exp,
        "chain": lambda x: ops.relu(x * 2.0 + 1.0) * 0.5 - 3.0,
        "sum": lambda x: ops.sum(x, axis),
        "mean": lambda x: ops.mean(x, axis),
        "max": lambda x: ops.max(x, axis=axis),
        "argmax": lambda x: ops.argmax(x, axis),
        "softmax": lambda x: ops.softmax(x, axis),
        "matmul": ops.matmul,
    }
    return build[workload.key]


def prepare(workload: Workload, arrays: list[Array]) -> dict[str, Run]:
    """What to call; "new" makes the output's memory, "given" writes into the same memory each time."""
    types = [TensorType(DType.from_numpy(array.dtype), array.shape, DeviceRef.CPU()) for array in arrays]
    kernels = {"twenty": [KERNELS], "math": [MATHEMATICS]}.get(workload.section, [])
    graph = Graph(workload.key, forward=_forward(workload), input_types=types, custom_extensions=kernels)
    model = InferenceSession().load(graph)
    return {"new": lambda: model(*arrays)[0].to_numpy(), "given": NativeEntry(model, arrays, workload.empty())}


class NativeEntry:
    """A model's native entry over fixed memory; see `dsl.contract.abi` for what it takes. `sizes` are those of symbolic
    dims."""

    def __init__(
        self, model: Model, inputs: list[Array], output: Array, sizes: Mapping[str, int] | None = None
    ) -> None:
        plan, sizes = model.code.plan, sizes or {}
        offsets, total = plan.place(sizes)
        arena = np.zeros(total + 64, np.uint8)
        base = -(-arena.ctypes.data // 64) * 64
        memory: list[int] = []
        for number, buffer in enumerate(plan.buffers):
            kind, index = buffer.source
            if kind == "input":
                memory.append(inputs[index].ctypes.data)
            elif kind == "output":
                memory.append(output.ctypes.data)
            elif kind == "constant":
                node = model.ir.nodes[index]
                assert isinstance(node, ConstantTensor)
                memory.append(node.array.ctypes.data)
            else:
                memory.append(base + offsets[number])
        self._pointers = (ctypes.c_void_p * max(1, len(memory)))(*memory)
        self._dims = (ctypes.c_int64 * max(1, len(plan.slots)))(*(dim.evaluate(sizes) for dim in plan.slots))
        self._context = abi.Context(threads=1)
        self._kept = (model, inputs, output, arena)
        self._output = output
        pool = thread_pool()
        if pool is not None:
            self._context.pool, self._context.parallel = pool.address, pool.run
            self._context.threads = pool.threads
        self._entry = model.code.entry
        self._arguments = [ctypes.addressof(part) for part in (self._context, self._pointers, self._dims)]

    def __call__(self) -> Array:
        if self._entry(*self._arguments):
            raise RuntimeError("the entry reported a failure")
        return self._output
