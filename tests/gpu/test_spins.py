"""Threads that wait in loops for others: all of them continue by turns; if none can continue, that is an error."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.compiler.ir.opcodes import WHILE
from einkorn.compiler.ir.program import Program, walk
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.contract.unit import op_entry
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.dsl.package.library import load_library
from einkorn.graph import CPU, Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops

HEAD = """\
from einkorn.dsl import *
from einkorn.stdlib import Max

def zero(state):
    state[gpu.thread_idx.x] = 0

def thread(out, x, state):
    t = gpu.thread_idx.x
    b = gpu.block_idx.x
    i = gpu.global_idx.x
{body}

@register("op")
def op(out: OutputTensor[int32, "n"], x: InputTensor[int32, "n"], ctx: DeviceContext):
    state = gpu.scratch[int32](64)
    ctx.launch(zero, state, grid=1, block=64)
    ctx.launch(thread, out, x, state, grid={grid}, block={block}{more})
"""
LINE = 11  # of the first line of the body
GRID_BARRIER = """\
out[i] = x[i]
gpu.barrier()
if t == 0:
    atomic.add(state, 0, 1, ordering="acq_rel")
    while atomic.load(state, 0, ordering="acquire") < {wanted}:
        pass
gpu.barrier()
v = out[(i + 16) % x.dim(0)]
gpu.barrier()
if t == 0:
    atomic.add(state, 1, 1, ordering="acq_rel")
    while True:
        if atomic.load(state, 1, ordering="acquire") >= {wanted}:
            break
gpu.barrier()
out[i] = v + 1"""
WARPS = """\
kept = gpu.shared[int32](3)
if t < 3: kept[t] = 0
gpu.barrier()
if t == 0:
    while atomic.load(kept, 0, ordering="acquire", scope="block") == 0:
        pass
    kept[2] = kept[1]
if t == 32:
    kept[1] = 7
    atomic.store(kept, 0, 1, ordering="release", scope="block")
gpu.barrier()
out[i] = kept[2]"""
LOOK_BACK = """\
total = x[i]
if t == 0:
    if b > 0:
        flag = int32(0)
        while flag == 0:
            flag = atomic.load(state, b - 1, ordering="acquire")
        total = total + flag
    atomic.store(state, b, total, ordering="release")
out[i] = total"""
# By name: the body, the grid, the block, what the launch says more.
PROGRAMS: dict[str, tuple[str, int, int, str]] = {
    "a grid barrier": (GRID_BARRIER.replace("{wanted}", "4"), 4, 16, ""),
    "two warps": (WARPS, 1, 64, ""),
    "look-back": (LOOK_BACK, 4, 16, ""),
}
DEVICES = ["sim", "sim:gfx942", "cpu"]


def model_of(folder: Path, body: str, grid: int, block: int, more: str, device: Any) -> Any:
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    (folder / "kernels.py").write_text(HEAD.format(body=lines, grid=grid, block=block, more=more))
    ref = DeviceRef.CPU() if device.is_host else DeviceRef.GPU()
    row = TensorType(DType.int32, ["n"], ref)
    graph = Graph("g", lambda x: ops.custom("op", ref, [x], [row]), [row], custom_extensions=[folder / "kernels.py"])
    return InferenceSession([device]).load(graph)


def run(folder: Path, body: str, grid: int, block: int, more: str, device: Any) -> np.ndarray[Any, Any]:
    x = Buffer.from_numpy(np.arange(1, grid * block + 1, dtype=np.int32))
    model = model_of(folder, body, grid, block, more, device)
    result: np.ndarray[Any, Any] = model(x if device.is_host else x.to(device))[0].to_numpy()
    return result


def device_of(name: str, **how: Any) -> Any:
    return CPU() if name == "cpu" else Accelerator(name, **how)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("checks", ["all", "off"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_right_and_quiet(name: str, checks: str, seed: int, tmp_path: Path) -> None:
    body, grid, block, more = PROGRAMS[name]
    x = np.arange(1, grid * block + 1)
    wanted = {
        "a grid barrier": np.roll(x, -16) + 1,
        "two warps": np.full(64, 7),
        "look-back": np.where((x - 1) % 16 == 0, np.cumsum(np.where((x - 1) % 16 == 0, x, 0)), x),
    }
    for device in DEVICES if name != "two warps" else ("sim", "cpu"):
        out = run(tmp_path, body, grid, block, more, device_of(device, checks=checks, seed=seed))
        assert out.tolist() == wanted[name].tolist(), device


def test_more_blocks_than_the_device_holds(tmp_path: Path) -> None:
    """Blocks that do not wait for later ones give their place to those."""
    n = 200  # a multiprocessor of sm_75 holds one block with so much shared memory
    out = run(
        tmp_path,
        LOOK_BACK.replace("b - 1", "0").replace(", b, total", ", b % 64, total"),
        n,
        1,
        "",
        device_of("sim:sm_75"),
    )
    assert out[0] == 1
    with pytest.raises(KernelError, match="deadlock: 72 threads wait, and none can continue") as wrong:
        body = GRID_BARRIER.replace("{wanted}", "80").replace("16", "1")
        run(tmp_path, body, 80, 1, ", shared=64000", device_of("sim:sm_75"))
    assert "8 blocks have not begun: the device runs 72 blocks or clusters of this launch at once" in wrong.value.notes


# By name: what is wrong, the device's checks, the lines and what stands under them.
DEADLOCKS: dict[str, tuple[str, int, int, list[tuple[int, str]]]] = {
    "one too few": (
        GRID_BARRIER.replace("{wanted}", "5"),
        4,
        16,
        [
            (4, "thread (0, 0, 0) of block (0, 0, 0), and 3 more, wait for a change of memory"),
            (6, "thread (1, 0, 0) of block (0, 0, 0), and 59 more, wait for the other threads of their block"),
        ],
    ),
    "no store": (
        WARPS.replace("    atomic.store", "    if t == 1: atomic.store"),
        1,
        64,
        [
            (4, "thread (0, 0, 0) of block (0, 0, 0) waits for a change of memory"),
            (10, "thread (1, 0, 0) of block (0, 0, 0), and 62 more, wait for the other threads of their block"),
        ],
    ),
    "a lock that is never released": (
        "while atomic.exchange(state, 0, 1) != 0: pass\nout[i] = x[i]",
        2,
        16,
        [(0, "thread (1, 0, 0) of block (0, 0, 0), and 30 more, wait for a change of memory")],
    ),
    "attempts without an end": (
        "tries = 0\nwhile atomic.load(state, 0) == 0 and tries < 1000000000:\n    tries += 1\nout[i] = x[i]",
        1,
        1,
        [(1, "thread (0, 0, 0) of block (0, 0, 0) waits for a change of memory")],
    ),
    "a block that waits together": (
        "while gpu.block.reduce(atomic.load(state, 0), Max) == 0: pass\nout[i] = x[i]",
        1,
        32,
        [(0, "thread (0, 0, 0) of block (0, 0, 0), and 31 more, wait for a change of memory")],
    ),
    "a lock that is polled": (
        "ready = int32(0)\nwhile ready == 0:\n    while atomic.exchange(state, 0, 1) != 0: pass\n"
        "    ready = atomic.load(state, 1)\n    atomic.store(state, 0, 0)\nout[i] = x[i]",
        1,
        2,
        [(1, "thread (0, 0, 0) of block (0, 0, 0), and 1 more, wait for a change of memory")],
    ),
}


@pytest.mark.parametrize("device", ["sim", "cpu"])
@pytest.mark.parametrize("name", DEADLOCKS)
def test_a_deadlock_is_an_error(name: str, device: str, tmp_path: Path) -> None:
    body, grid, block, labels = DEADLOCKS[name]
    with pytest.raises(KernelError, match="deadlock: ") as wrong:
        run(tmp_path, body, grid, block, "", device_of(device))
    error = wrong.value
    assert error.code == "EK0746" and error.message.endswith("in op 'op'")
    assert [(label.place.line - LINE, label.text) for label in error.labels] == labels
    assert error.place is not None and error.place.line == LINE + labels[0][0]


def test_attempts_that_end_are_no_deadlock(tmp_path: Path) -> None:
    body = "tries = int32(0)\nwhile atomic.load(state, 0) == 0 and tries < 50000:\n    tries += 1\nout[i] = tries"
    assert run(tmp_path, body, 2, 2, "", device_of("sim")).tolist() == [50000] * 4


def test_a_signal_ends_the_call(tmp_path: Path) -> None:
    """Each round changes a value of the thread, so that the loop is no deadlock for a long time."""
    body = "n = int64(0)\nwhile atomic.load(state, 0) == 0:\n    for k in range(1000): n += x.dim(0) + k\nout[i] = x[i]"

    class Ended(Exception):
        pass

    def end(number: int, frame: object) -> None:
        raise Ended

    before = signal.signal(signal.SIGALRM, end)
    try:
        model = model_of(tmp_path, body, 8, 32, "", device_of("sim"))
        x = Buffer.from_numpy(np.zeros(256, np.int32)).to(Accelerator("sim"))
        threading.Thread(target=int).start()  # other threads make no difference
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Ended):
            model(x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# By name: a loop, and how it is marked.
LOOPS = {
    "an atomic load": ("while atomic.load(state, 0) == 0: pass", "wait"),
    "a lock": ("while atomic.compare_exchange(state, 0, 0, 1) != 0: pass", "wait"),
    "an update by nothing": ("while atomic.add(state, 0, 0) == 0: pass", "wait"),
    "a break": ("while True:\n        if atomic.load(state, 0) > 0: break", "wait"),
    "what is kept": ("v = int32(0)\n    while v == 0: v = atomic.load(state, 0)", "wait"),
    "a plain load": ("while state[0] == 0: pass", "wait"),
    "attempts": ("k = 0\n    while atomic.load(state, 0) == 0 and k < 9: k += 1", "count"),
    "a walk": (
        "k = 3\n    while k > 0:\n        if atomic.load(state, k) == 1: k -= 1",
        "count",
    ),
    "attempts of a for": ("for k in range(x.dim(0)):\n        if atomic.load(state, 0) > 0: break", "count"),
    "a queue": ("k = int32(0)\n    while k < 9: k = atomic.add(state, 0, 1)", None),
    "a sum of atomic loads": (
        "k = 0\n    s = int32(0)\n    while k < 9:\n        s += atomic.load(state, k)\n        k += 1",
        None,
    ),
    "a search": ("k = 0\n    while x[k] > 3: k += 1", None),
    "a size in memory": ("k = int32(0)\n    while k < x[0]: k += 1", None),
    "stores": ("while x[0] == 0: state[0] = 1", None),
}


def program_of(folder: Path, text: str, target: str) -> Program:
    (folder / "kernels.py").write_text(text)
    kernel = load_library(folder / "kernels.py").kernels["op"].portable
    return typed_program(op_entry(kernel, {}, {}, {}), lookup(target))


@pytest.mark.parametrize("name", LOOPS)
def test_which_loops_are_meant(name: str, tmp_path: Path) -> None:
    body, marked = LOOPS[name]
    text = HEAD.format(body=f"    {body}\n    out[i] = x[i]", grid=1, block=1, more="")
    program = program_of(tmp_path, text, "sim")
    actual = [op.attrs.get("spins") for f in program.functions for op in walk(f.body) if op.opcode is WHILE]
    assert actual == [marked]


def test_on_hardware_nothing_is_marked(tmp_path: Path) -> None:
    text = HEAD.format(body="    while atomic.load(state, 0) == 0: pass\n    out[i] = x[i]", grid=1, block=1, more="")
    program = program_of(tmp_path, text, "sm_90a")
    assert not any("spins" in op.attrs for f in program.functions for op in walk(f.body))
