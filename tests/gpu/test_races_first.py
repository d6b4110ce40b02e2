"""A missing barrier is reported as a race, whatever its consequences are: an index out of bounds, a failed assert."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

KERNEL = """\
from einkorn.dsl import *

def thread(out, x):
    i = gpu.thread_idx.x
    kept = gpu.shared[int32](64)
{body}

@register("op")
def op(out: OutputTensor[int32, "64"], x: InputTensor[int32, "64"], ctx: DeviceContext):
    ctx.launch(thread, out, x, grid=1, block=64)
"""
SET = "kept[i] = 100\ngpu.barrier()\n"
# What the threads do between two barriers.
RACES = {
    "an index to read": "kept[i] = (i * 7 % 64).cast(int32)\nout[i] = x[kept[63 - i].cast(Int)]",
    "an index to write": "kept[i] = 63 - i.cast(int32)\nout[kept[(i + 1) % 64].cast(Int)] = x[i]",
    "an index that was another": f"{SET}kept[i] = i.cast(int32)\nout[i] = x[kept[63 - i].cast(Int)]",
    "an assert": f"{SET}kept[i] = 5\nv = kept[(i + 33) % 64]\nassert v == 5\nout[i] = v",
    "a neighbour's index": f"{SET}kept[i] = i.cast(int32)\nout[i] = x[kept[(i + 1) % 64].cast(Int)]",
}
# What is reported as it is: nothing but it is wrong.
OTHERS = {
    "an index of the author's": (f"{SET}out[i] = x[kept[63 - i].cast(Int)]", "EK0703"),
    "an element that no thread writes": (
        "kept[i // 2] = 1\ngpu.barrier()\nout[i] = x[kept[63 - i].cast(Int)]",
        "EK0740",
    ),
    "an element that is never written": (
        "if i < 32: kept[i] = 1\ngpu.barrier()\nout[i] = x[kept[63 - i].cast(Int)]",
        "EK0742",
    ),
}
DEVICE = DeviceRef.GPU()


def error_of(tmp_path: Path, body: str, seed: int) -> KernelError:
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    (tmp_path / "kernels.py").write_text(KERNEL.format(body=lines))
    device = Accelerator("sim:sm_80", checks="all", seed=seed)
    graph = Graph(
        "g",
        forward=lambda v: ops.custom(
            "op", device=DEVICE, values=[v], out_types=[TensorType(DType.int32, [64], DEVICE)]
        )[0],
        input_types=[TensorType(DType.int32, [64], DEVICE)],
        custom_extensions=[tmp_path / "kernels.py"],
    )
    model = InferenceSession([device]).load(graph)
    with pytest.raises(KernelError) as wrong:
        model.execute(Buffer.from_numpy(np.arange(64, dtype=np.int32)).to(device))
    return wrong.value


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", RACES)
def test_the_race_is_reported(name: str, seed: int, tmp_path: Path) -> None:
    error = error_of(tmp_path, RACES[name], seed)
    assert error.code == "EK0740", error
    assert {label.text.split(" of block ")[1].split()[-1] for label in error.labels} == {"reads", "writes"}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", OTHERS)
def test_what_else_is_wrong_is_reported(name: str, seed: int, tmp_path: Path) -> None:
    body, code = OTHERS[name]
    assert error_of(tmp_path, body, seed).code == code
