"""Mistakes with shared memory, barriers and atomic operations are errors at the line that makes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.harness import compile_kernel

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError, each_of

HEAD = """\
from einkorn.dsl import *
from einkorn.stdlib import Sum

def thread(out, x):
    {kernel}
    out[gpu.thread_idx.x] = x[0]

@register("wrong")
def wrong(out: OutputTensor[float32, "64"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    n = x.dim(0)
    kept = x
    {host}
    ctx.launch(thread, out, kept, grid=1, block=64{more})
"""
F32 = DType.float32

# What the kernel and the host's code say, what else the launch takes; the target, the code, a part of the message.
MISTAKES = {
    "too much": ("t = gpu.shared[float64](32000); t[0] = 1.0", "", "", "sm_90a", "EK0604", "holds 256,000 bytes"),
    "too much in all": (
        "t = gpu.shared[float32](8000); t[0] = 1.0",
        "",
        ", shared=40000",
        "sm_75",
        "EK0604",
        "requests 40,000 more",
    ),
    "storage of the host": ("", "kept = stack[float32](4)", "", "gfx942", "EK0821", "storage of the host"),
    "a size of the call": (
        "t = gpu.shared[float32](gpu.grid_dim.x + x.at(0).cast(int64))",
        "",
        "",
        "host",
        "EK0623",
        "",
    ),
    "no size": ("t = gpu.shared[float32](0)", "", "", "host", "EK0208", "whole sizes"),
    "no power of two": ("t = gpu.shared[float32](4, align=24)", "", "", "sm_90a", "EK0208", "power of two"),
    "shared in a loop": (
        "for k in range(x.dim(0)): t = gpu.dynamic_shared[float32](4)",
        "",
        ", shared=16",
        "host",
        "EK0640",
        "branch or a loop",
    ),
    "more than the launch has": ("t = gpu.dynamic_shared[float64](4)", "", ", shared=16", "host", "EK0641", ""),
    "barriers of lanes": (
        "gpu.barrier(id=gpu.lane_idx, threads=32)",
        "",
        "",
        "host",
        "EK0642",
        "among the lanes of a warp",
    ),
    "no number of a barrier": ('gpu.barrier(id="1")', "", "", "host", "EK0642", "0 to 15"),
    "a barrier with a number for a part": (
        "if gpu.warp_idx == 0: gpu.barrier(id=1)",
        "",
        "",
        "sm_80",
        "EK0620",
        "threads of a block",
    ),
    "a block collective in a tail": (
        "v = float32(0)\n    if gpu.global_idx.x < x.dim(0): v = gpu.block.reduce(x[0], Sum)\n    out[0] = v",
        "",
        "",
        "host",
        "EK0620",
        "threads of a block",
    ),
    "a warp collective in a tail": (
        "v = float32(0)\n    if gpu.global_idx.x < x.dim(0): v = gpu.warp.reduce(x[0], Sum)\n    out[0] = v",
        "",
        "",
        "host",
        "EK0621",
        "lanes of a warp",
    ),
    "filled storage of the host": (
        "",
        "kept = stack[float32](64); kept[0] = 1.0",
        "",
        "gfx942",
        "EK0821",
        "storage of the host",
    ),
    "storage of the host behind a pointer": (
        "",
        "here = stack[float32](64); p = here.pointer(); p[0] = 1.0; kept = here",
        "",
        "sm_90a",
        "EK0821",
        "storage of the host",
    ),
    "an element of the device": ("", "first = x[0]", "", "sm_90a", "EK0820", "lies in device memory"),
    "a barrier too high": ("gpu.barrier(16)", "", "", "host", "EK0642", "0 to 15"),
    "half a warp": ("gpu.barrier(1, threads=16)", "", "", "sm_80", "EK0642", "multiple of 32"),
    "one barrier": ("gpu.barrier(1)", "", "", "gfx1100", "EK0611", "one barrier a block"),
    "no clusters": ("", "", ", cluster=2", "sm_80", "EK0611", "no clusters"),
    "a large cluster": ("", "", ", cluster=(4, 4)", "sm_90a", "EK0604", "16 blocks"),
    "no whole clusters": (
        "",
        "",
        ", cluster=2",
        "sm_90a",
        "EK0604",
        "clusters of 2 blocks along x, and its grid has 1",
    ),
    "a part of shared memory": (
        "t = gpu.shared[float32](8); v = gpu.cluster.peer(t[0:4], 1)[0]",
        "",
        ", cluster=2",
        "sm_90a",
        "EK0630",
        "a whole tensor of shared memory, not",
    ),
    "a peer that does not exist": (
        "t = gpu.shared[float32](8); v = gpu.cluster.peer(t, 2)[0]",
        "",
        ", cluster=2",
        "host",
        "EK0630",
        "the number of a block of the cluster, which has 2",
    ),
    "blocks that part": (
        "if gpu.block_in_cluster.x == 0: gpu.cluster.sync()",
        "",
        ", cluster=2",
        "sm_90a",
        "EK0620",
        "under a condition that threads of a cluster may answer differently",
    ),
    "no scope": ('atomic.add(out, 0, 1.0, scope="warp")', "", "", "host", "EK0224", "scope="),
    "a relaxed fence": ('gpu.fence("relaxed")', "", "", "host", "EK0224", "ordering="),
    "no registers": ("", "", ", max_registers=0", "sm_90a", "EK0221", "max_registers="),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str, tmp_path: Path) -> None:
    kernel, host, more, target, code, words = MISTAKES[name]
    file = tmp_path / "kernels.py"
    file.write_text(HEAD.format(kernel=kernel or "pass", host=host or "pass", more=more))
    with pytest.raises(EinkornError) as wrong:
        compile_kernel(file, "wrong", [(F32, (4,))], target=target)
    actual = each_of(wrong.value)
    assert [error.code for error in actual] == [code]
    assert words in str(actual[0]) and actual[0].place is not None
