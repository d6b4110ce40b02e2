"""Addresses that break a promise of `align=`, or that an asynchronous copy cannot use, are findings at their lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl import DType, kernels_of
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops

HEAD = """\
from einkorn.dsl import *

def thread(out, x):
    t = gpu.thread_idx.x
{body}

@register("op")
def op(out: OutputTensor[float32, "64"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    ctx.launch(thread, out, x, grid=1, block=16)
"""
LINE = 5  # of the first line of the body
COPY = (
    "kept = gpu.shared[float32](80, align=1024)\n"
    "token = gpu.copy_async(kept[{to} : {to} + 4], x[{at} : {at} + 4])\n"
    "token.wait()\n"
    "for k in range(4): out[4 * t + k] = kept[{to} + k]"
)
# What a thread does, the line at which it is wrong, and what the message says; {at} is replaced.
ACCESSES = {
    "a load": ("v = x.load({at}, width=4, align=16)\nout.store(v, 4 * t)", 0, "reads global"),
    "a load by a pointer": ("v = x.pointer().load({at}, width=4, align=16)\nout.store(v, 4 * t)", 0, "reads global"),
    "a store": ("v = x.load(4 * t, width=4)\nout.store(v, {at}, align=16)", 1, "writes global"),
    "a masked load": (
        "m = x.load({at}, width=4) > -1.0\nv = x.load({at}, width=4, mask=m, align=16)\nout.store(v, 4 * t)",
        1,
        "reads global",
    ),
    "of shared memory": (
        "kept = gpu.shared[float32](80, align=1024)\nfor k in range(4): kept[4 * t + k] = x[4 * t + k]\n"
        "if t < 2: kept[64 + t] = 0.0\ngpu.barrier()\nv = kept.load({at}, width=4, align=16)\nout.store(v, 4 * t)",
        4,
        "reads shared",
    ),
    "a copy's source": (COPY.replace("{to}", "4 * t"), 1, "reads global"),
    "a copy's target": (COPY.replace("{at}", "4 * t").replace("{to}", "({at})"), 1, "writes shared"),
}
X = np.arange(80, dtype=np.float32)


def text_of(body: str, at: str) -> str:
    lines = body.replace("{at}", at).split("\n")
    return HEAD.format(body="\n".join(f"    {line}" for line in lines))


def run(folder: Path, text: str, device: Accelerator, session: dict[str, Any] | None = None) -> np.ndarray[Any, Any]:
    (folder / "kernels.py").write_text(text)
    gpu = DeviceRef.GPU()
    types = [TensorType(DType.float32, [n], gpu) for n in (80, 64)]
    graph = Graph(
        "g", lambda x: ops.custom("op", gpu, [x], types[1:]), types[:1], custom_extensions=[folder / "kernels.py"]
    )
    model = InferenceSession([device], **(session or {})).load(graph)
    result: np.ndarray[Any, Any] = model(Buffer.from_numpy(X).to(device))[0].to_numpy()
    return result


@pytest.mark.parametrize("name", ACCESSES)
def test_found_on_a_simulated_gpu(name: str, tmp_path: Path) -> None:
    body, line, said = ACCESSES[name]
    device = Accelerator("sim:sm_80", checks="bounds")
    with pytest.raises(KernelError, match=f"misaligned access: a thread {said} memory at address 0x") as wrong:
        run(tmp_path, text_of(body, "4 * t + 1"), device)
    assert wrong.value.code == "EK0745"
    assert wrong.value.place is not None and wrong.value.place.line == LINE + line
    assert "bytes behind a multiple of" in wrong.value.message and "thread (0, 0, 0)" in wrong.value.labels[0].text


@pytest.mark.parametrize("checks", ["all", "off"])
@pytest.mark.parametrize("name", ACCESSES)
def test_right_addresses_are_quiet(name: str, checks: str, tmp_path: Path) -> None:
    body = ACCESSES[name][0]
    out = run(tmp_path, text_of(body, "4 * t"), Accelerator("sim:sm_80", checks=checks))
    assert np.isfinite(out).all()


@pytest.mark.parametrize("name", ["a load", "a load by a pointer", "of shared memory"])
def test_nothing_ends_the_process_without_checks(name: str, tmp_path: Path) -> None:
    run(tmp_path, text_of(ACCESSES[name][0], "4 * t + 1"), Accelerator("sim:sm_80"))


def test_checks_of_a_session_find_it_too(tmp_path: Path) -> None:
    text = text_of(ACCESSES["a load"][0], "4 * t + 1")
    with pytest.raises(KernelError, match="element 1 is not a multiple of 16 bytes") as wrong:
        run(tmp_path, text, Accelerator("sim:sm_80"), {"checks": "all"})
    assert wrong.value.code == "EK0745" and wrong.value.place is not None and wrong.value.place.line == LINE


CPU = """\
from einkorn.dsl import *

@register("fours")
def fours(out: OutputTensor[float32, "16"], x: InputTensor[float32, "m"], *, by: int):
    def four(i):
        m = x.load(4 * i[0], width=4) < {limit}
        return x.load(4 * i[0] + by, width=4, mask=m, align=16)[0]

    foreach(out, four)
"""


def test_a_promise_is_checked_on_a_cpu() -> None:
    x, out = np.empty(84, np.float32), np.zeros(16, np.float32)
    start = -x.ctypes.data % 16 // 4
    x = x[start : start + 81]
    x[:] = np.arange(81)
    for limit, by, wrong in ((100, 0, False), (100, 1, True), (-1, 1, False)):
        kernel = kernels_of(CPU.format(limit=limit))["fours"]
        compiled = kernel.compile(x, out=out, by=by, checks="all")
        if not wrong:
            compiled(x, out=out)
            continue
        with pytest.raises(
            KernelError, match="element 1 is not a multiple of 16 bytes, which align=16 promises"
        ) as caught:
            compiled(x, out=out)
        assert caught.value.code == "EK0745" and caught.value.place is not None and caught.value.place.line == 7
