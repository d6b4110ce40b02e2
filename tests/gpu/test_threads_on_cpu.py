"""Threads that wait for each other where no hardware runs them: each is a coroutine, a block is run by one worker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs, harness

from einkorn.compiler.codegen.coroutines import with_coroutines
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import CPU, Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops

KERNELS = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float32, gpu, int64, register, stack

def rotate(out, x, rounds):
    i = gpu.thread_idx.x
    size = gpu.block_dim.x
    base = gpu.block_idx.x * size
    kept = x[base + i]
    for k in range(rounds):
        out[base + i] = kept
        gpu.barrier()
        kept = out[base + (i + 1) % size] + 1.0
        gpu.barrier()
    out[base + i] = kept

@register("rotated")
def rotated(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], rounds: InputTensor[float32, "r"],
            ctx: DeviceContext):
    ctx.launch(rotate, out, x, rounds.dim(0), grid=x.dim(0) // 64, block=64)

def keep_much(out, x):
    i = gpu.thread_idx.x + 16 * gpu.thread_idx.y + 128 * gpu.thread_idx.z
    mine = stack[float32](256)
    for k in range(256):
        mine[k] = x[i] * float32(k)
    out[i] = x[i]
    gpu.barrier()
    total = out[1023 - i]
    gpu.barrier()
    for k in range(256):
        total += mine[k]
    out[i] = total

@register("kept")
def kept(out: OutputTensor[float32, "1024"], x: InputTensor[float32, "1024"], ctx: DeviceContext):
    ctx.launch(keep_much, out, x, grid=1, block=(16, 8, 8))

def stop(out, x):
    i = gpu.global_idx.x
    for k in range(10):
        assert x[i] < 100.0, f"thread {gpu.thread_idx.x} of block {gpu.block_idx.x} in round {k}"
        gpu.barrier()
    out[i] = x[i]

@register("stopped")
def stopped(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    ctx.launch(stop, out, x, grid=x.dim(0) // 32, block=32)

def give(out, x):
    i = gpu.thread_idx.x
    if i % 2 == 0:
        out[i] = gpu.warp.shuffle_xor(x[i], 2, mask=0x5555_5555)

@register("given")
def given(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    ctx.launch(give, out, x, grid=1, block=40)

def part(out, x):
    i = gpu.thread_idx.x
    if gpu.uniform(x[i] > 0.0, scope="block"):
        gpu.barrier()
    out[i] = x[i]

@register("promised")
def promised(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    ctx.launch(part, out, x, grid=1, block=64)

@register("twice")
def twice(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], rounds: InputTensor[float32, "r"],
          ctx: DeviceContext):
    for k in range(rounds.dim(0)):
        if k < 3:
            ctx.launch(rotate, out, x, k + 1, grid=x.dim(0) // 64, block=64)
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("threads") / "kernels.py"
    path.write_text(KERNELS)
    return path


def rotated(x: Any, rounds: int) -> Any:
    blocks = x.reshape(-1, 64)
    for _ in range(rounds):
        blocks = np.roll(blocks, -1, axis=1) + np.float32(1)
    return blocks.reshape(-1)


X = np.random.default_rng(0).random(64 * 33).astype(np.float32)


def test_barriers_in_a_loop_and_blocks_over_the_pool(kernels: Path) -> None:
    def forward(x: Any, rounds: Any) -> Any:
        return [
            ops.custom(name, device=graphs.HOST, values=[x, rounds], out_types=[x.type])[0]
            for name in ("rotated", "twice")
        ]

    model = graphs.load(forward, (np.float32, ["n"]), (np.float32, ["r"]), extensions=kernels)
    for rounds in (0, 1, 70):
        first, second = graphs.results(model, X, np.zeros(rounds, np.float32))
        assert np.array_equal(first, rotated(X, rounds))
        if rounds:
            assert np.array_equal(second, rotated(X, min(rounds, 3)))
    assert graphs.results(model, X[:0], np.zeros(5, np.float32))[0].shape == (0,)


def test_threads_keep_more_than_a_stack_has(kernels: Path) -> None:
    x = np.random.default_rng(1).integers(0, 8, 1024).astype(np.float32)
    (out,) = harness.run_kernel(kernels, "kept", [x])
    assert np.array_equal(out, x[::-1] + x * (255 * 128))


def test_a_thread_that_fails_ends_the_call(kernels: Path) -> None:
    model = graphs.load(
        lambda x: ops.custom("stopped", device=graphs.HOST, values=[x], out_types=[x.type])[0],
        (np.float32, ["n"]),
        extensions=kernels,
    )
    x = np.ones(320, np.float32)
    assert np.array_equal(graphs.results(model, x)[0], x)
    x[70] = 100.0
    with pytest.raises(KernelError, match=r"assertion failed in op 'stopped': thread 6 of block 2 in round 0"):
        model(x)
    x[70] = 99.0
    assert np.array_equal(graphs.results(model, x)[0], x)


@pytest.mark.parametrize("checks", [None, "off", "all"])
def test_a_broken_promise_parts_the_threads_of_a_block(kernels: Path, checks: str | None) -> None:
    device = CPU() if checks is None else Accelerator("sim", seed=1, checks=checks)
    where = graphs.HOST if checks is None else DeviceRef.GPU()
    type = TensorType(DType.float32, ["n"], where)
    graph = Graph(
        "promised",
        lambda x: ops.custom("promised", device=where, values=[x], out_types=[x.type])[0],
        [type],
        custom_extensions=[kernels],
    )
    model = InferenceSession(devices=[device]).load(graph)
    for sign in (1, -1):
        x = np.full(64, sign, np.float32)
        assert np.array_equal(model(Buffer.from_numpy(x).to(device))[0].to_numpy(), x)
        x[40] = -sign
        with pytest.raises(KernelError, match="op 'promised'") as wrong:
            model(Buffer.from_numpy(x).to(device))
        error = wrong.value
        assert error.code == ("EK0708" if checks == "all" else "EK0722") and error.place is not None
        said = KERNELS.splitlines()[error.place.line - 1].strip()
        assert "gpu.uniform(" in said if checks == "all" else said == "gpu.barrier()"


def test_lanes_under_a_mask_wait_for_each_other(kernels: Path) -> None:
    x = np.arange(40, dtype=np.float32)
    (out,) = harness.run_kernel(kernels, "given", [x])
    assert np.array_equal(out[::2], x.reshape(10, 2, 2)[:, ::-1, 0].reshape(20))


def test_only_threads_that_wait_are_coroutines(kernels: Path) -> None:
    types = [(DType.float32, (64,)), (DType.float32, (2,))]
    artifact, _ = harness.compile_kernel(kernels, "rotated", types)
    assert re.search(r"@ek\.thread\.0\.resume", artifact.llvm) and "@ek.run_blocks" in artifact.llvm
    text = "define void @f() {\n  ret void\n}\n"
    assert with_coroutines(text, lookup("host")) is text


@pytest.mark.parametrize("target", ["x86-64-v2", "aarch64"])
def test_for_named_processors(target: str, kernels: Path) -> None:
    types = [(DType.float32, (64,)), (DType.float32, (2,))]
    artifact, _ = harness.compile_kernel(kernels, "rotated", types, target=target)
    assert artifact.code.startswith(b"\x7fELF")
