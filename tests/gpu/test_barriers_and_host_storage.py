"""Barriers whose number is known at run time only, and storage of host code: what works, and what is reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

KERNEL = """\
from einkorn.dsl import *

def numbered(out, x):
    number = gpu.uniform(x[0].cast(Int))
    gpu.barrier(id=number)
    out[gpu.thread_idx.x] = x[1]

@register("numbered")
def numbered_op(out: OutputTensor[int32, "64"], x: InputTensor[int32, "n"], ctx: DeviceContext):
    ctx.launch(numbered, out, x, grid=1, block=64)

def doubled(out, x, factor: Int):
    i = gpu.thread_idx.x
    out[i] = x[0] * factor.cast(int32)

@register("table")
def table(out: OutputTensor[int32, "64"], x: InputTensor[int32, "n"], ctx: DeviceContext):
    kept = stack[int64](4)
    for k in range(4):
        kept[k] = (k + 1) * 10
    p = kept.pointer(1)
    ctx.launch(doubled, out, x, kept[x.dim(0)] + p[0], grid=1, block=64)
"""
DEVICE = DeviceRef.GPU()


def called(tmp_path: Path, op: str, x: list[int]) -> list[int]:
    (tmp_path / "kernels.py").write_text(KERNEL)
    device = Accelerator("sim:sm_80")
    graph = Graph(
        "g",
        forward=lambda v: ops.custom(op, device=DEVICE, values=[v], out_types=[TensorType(DType.int32, [64], DEVICE)])[
            0
        ],
        input_types=[TensorType(DType.int32, ["n"], DEVICE)],
        custom_extensions=[tmp_path / "kernels.py"],
    )
    model = InferenceSession([device]).load(graph)
    out = model.execute(Buffer.from_numpy(np.array(x, np.int32)).to(device))[0]
    device.synchronize()
    actual: list[int] = out.to_numpy().tolist()
    return actual


def test_a_number_of_the_running_program(tmp_path: Path) -> None:
    assert called(tmp_path, "numbered", [15, 7]) == [7] * 64


def test_a_number_that_no_barrier_has(tmp_path: Path) -> None:
    with pytest.raises(EinkornError, match="a block has no barrier 16: their numbers are 0 to 15") as wrong:
        called(tmp_path, "numbered", [16, 7])
    assert wrong.value.code == "EK0642" and wrong.value.place is not None and wrong.value.place.line == 5


def test_host_code_uses_storage_of_its_own(tmp_path: Path) -> None:
    assert called(tmp_path, "table", [3, 0]) == [150] * 64


def test_host_code_stays_in_its_storage(tmp_path: Path) -> None:
    with pytest.raises(EinkornError, match="index 5 is out of bounds") as wrong:
        called(tmp_path, "table", [3, 0, 0, 0, 0])
    assert wrong.value.code == "EK0703"
