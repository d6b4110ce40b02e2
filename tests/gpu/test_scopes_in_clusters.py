"""Orders and scopes of atomic operations in a cluster are judged by the memory model of PTX.

Two operations synchronise if the scope of each includes the thread of the other, one releases, and the other acquires;
relaxed loads acquire by a fence alone. Two atomic operations whose scopes do not include each other race.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops

HEAD = """\
from einkorn.dsl import *

def thread(out, x):
    t = gpu.thread_idx.x
    rank = gpu.block_in_cluster.x
    box = gpu.shared[int32](2)
    if t < 2: box[t] = 0
    gpu.cluster.sync()
    other = gpu.cluster.peer(box, (rank + 1) % 2)
{body}
    gpu.cluster.sync()
    out[gpu.global_idx.x] = box[1]

@register("op")
def op(out: OutputTensor[int32, "64"], x: InputTensor[int32, "64"], ctx: DeviceContext):
    ctx.launch(thread, out, x, grid=2, block=32, cluster=2)
"""
MESSAGE = """\
if t == 0:
    other[1] = x[0]
{send}
    while atomic.load(box, 0, {order}) {until}: pass
{fence}    box[1] = box[1] + 1"""


def message(
    send: str | tuple[str, ...], order: str = "acquire", scope: str = "cluster", until: str = "== 0", fence: str = ""
) -> str:
    """A block hands a number to the other one: what it does for that, and how the other one waits."""
    lines = "\n".join(f"    {line}" for line in ([send] if isinstance(send, str) else send))
    how = f'ordering="{order}", scope="{scope}"'
    return MESSAGE.format(send=lines, order=how, until=until, fence=f"    {fence}\n" if fence else "")


def store(value: int, order: str, scope: str = "cluster") -> str:
    return f'atomic.store(other, 0, {value}, ordering="{order}", scope="{scope}")'


# By name: what threads do, and whether it is a race.
PROGRAMS = {
    "updates for their blocks": (
        'atomic.add(other, 1, 1, scope="block")\natomic.add(box, 1, 1, scope="block")',
        True,
    ),
    "updates for the cluster": (
        'atomic.add(other, 1, 1, scope="cluster")\natomic.add(box, 1, 1, scope="cluster")',
        False,
    ),
    "updates of one's own": ('atomic.add(box, 1, 1, scope="block")', False),
    "one of them for its block": (
        'atomic.add(other, 1, 1, scope="cluster")\natomic.add(box, 1, 1, scope="block")',
        True,
    ),
    "a message": (message(store(1, "release")), False),
    "a message for the device": (message(store(1, "release", "device")), False),
    "a release for a block": (message(store(1, "release", "block")), True),
    "an acquire for a block": (message(store(1, "release"), scope="block"), True),
    "a relaxed store": (message(store(1, "relaxed")), True),
    "a relaxed load": (message(store(1, "release"), "relaxed"), True),
    "a relaxed load and a fence": (
        message(store(1, "release"), "relaxed", fence='gpu.fence(ordering="acquire", scope="cluster")'),
        False,
    ),
    "a relaxed load and a fence of a block": (
        message(store(1, "release"), "relaxed", fence='gpu.fence(ordering="acquire", scope="block")'),
        True,
    ),
    "a fence and a relaxed store": (
        message(('gpu.fence(ordering="release", scope="cluster")', store(1, "relaxed"))),
        False,
    ),
    "a fence of a block and a relaxed store": (
        message(('gpu.fence(ordering="release", scope="block")', store(1, "relaxed"))),
        True,
    ),
    "a relaxed store behind the release": (message((store(1, "release"), store(2, "relaxed")), until="!= 2"), True),
    "a relaxed update behind the release": (
        message((store(1, "release"), 'atomic.add(other, 0, 1, scope="cluster")'), until="!= 2"),
        False,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_orders_and_scopes(name: str, tmp_path: Path) -> None:
    body, races = PROGRAMS[name]
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    (tmp_path / "kernels.py").write_text(HEAD.format(body=lines))
    gpu = DeviceRef.GPU()
    row = TensorType(DType.int32, [64], gpu)
    graph = Graph("g", lambda x: ops.custom("op", gpu, [x], [row]), [row], custom_extensions=[tmp_path / "kernels.py"])
    for seed in (0, 1, 2):
        device = Accelerator("sim", checks="all", seed=seed)
        x = Buffer.from_numpy(np.ones(64, np.int32)).to(device)
        model = InferenceSession([device]).load(graph)
        if not races:
            model(x)
            continue
        with pytest.raises(KernelError, match="data race: ") as caught:
            model(x)
        assert caught.value.code == "EK0740"
