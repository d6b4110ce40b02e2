"""The host's half of ops for a device: what it launches, in which order, with which arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.recording_device import RecordingDriver, recording_kind

from einkorn.compiler.ir.printer import print_program
from einkorn.compiler.ir.verifier import verify_program
from einkorn.compiler.passes.host_and_device import device_half, host_half
from einkorn.compiler.pipeline import compile_entry, typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.contract import abi
from einkorn.dsl.contract.kernels import DeviceKernel, KernelParameter, KernelTable, read_kernels
from einkorn.dsl.diagnostics.errors import DeviceError, KernelError, PackageError
from einkorn.dsl.diagnostics.json_reading import Misread
from einkorn.graph import Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops
from einkorn.graph.driver import devices
from einkorn.graph.driver.device import CodeFile
from einkorn.graph.driver.halves import open_halves

GPU = DeviceRef.GPU()
KERNELS = """
from einkorn.dsl import (
    DeviceContext, InputTensor, OutputTensor, bfloat16, ceildiv, float32, foreach, gpu, int8, register
)

def scale(out, x, n, by, odd, half):
    i = gpu.global_idx.x
    if i < n and odd:
        out[i] = x[i] * by + half.cast(float32)

@register("branches")
def branches(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    n = x.dim(0)
    if n > 1000:
        ctx.launch(scale, out, x, n, 2.5, n % 2 == 1, bfloat16(1.5), grid=ceildiv(n, 256), block=256)
    elif n % 2 == 0:
        for k in range(n):
            ctx.launch(scale, out, x, k + 1, 3.0, k > 1, bfloat16(2.0), grid=(k, 2), block=(32, 2))
    else:
        left = n
        while left > 0:
            ctx.launch(scale, out, x, left, 4.0, True, bfloat16(0.5), grid=left, block=64)
            left = left // 2
    foreach(out, lambda i: out[i] + 1)

def share(out, x):
    kept = gpu.shared[float32](1000)
    more = gpu.dynamic_shared[int8](1)
    kept[gpu.thread_idx.x] = 0.0
    more[0] = x[0]
    gpu.barrier()
    out[0] = more[0]

@register("shared")
def shared(out: OutputTensor[int8, "n"], x: InputTensor[int8, "n"], ctx: DeviceContext):
    ctx.launch(share, out, x, grid=1, block=32, shared=x.dim(0))

def fill(out, x):
    kept = gpu.shared[float32](16384)
    kept[gpu.thread_idx.x] = x[0]
    gpu.barrier()
    out[gpu.thread_idx.x] = kept[31 - gpu.thread_idx.x]

@register("filled")
def filled(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    ctx.launch(fill, out, x, grid=1, block=32)

def nothing(out):
    pass

@register("tall")
def tall(out: OutputTensor[int8, "rows n"], x: InputTensor[int8, "rows n"], ctx: DeviceContext):
    ctx.launch(nothing, out, grid=(1, x.dim(0)), block=32)
    foreach(out, lambda i: x[i])
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "kernels.py"
    path.write_text(KERNELS)
    return path


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingDriver]:
    """A machine with a recording device."""
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, recording_kind()])
    driver = Accelerator(0).driver
    assert isinstance(driver, RecordingDriver)
    yield driver


def branches(library: Path, sizes: list[int], driver: RecordingDriver) -> None:
    x = TensorType(DType.float32, ["n"], GPU)
    graph = Graph("branches", custom_extensions=[library], input_types=[x])
    with graph:
        graph.output(ops.custom("branches", graph.inputs[0].device, [graph.inputs[0]], [x])[0])
    model = InferenceSession(devices=[Accelerator(0)]).load(graph)
    for size in sizes:
        model.execute(Buffer.from_numpy(np.zeros(size, np.float32)).to(GPU))


def test_branches_and_loops_of_the_host_choose_what_is_launched(library: Path, driver: RecordingDriver) -> None:
    branches(library, [1001], driver)
    first, last = driver.launches
    assert (first.grid, first.block, first.shared) == ((4, 1, 1), (256, 1, 1), 0)
    assert last.grid[0] * last.block[0] * 4 >= 1001, "a thread has 16 bytes"
    kinds = [(p.kind, p.dtype, p.bytes, p.buffer, p.access) for p in first.kernel.parameters]
    assert ("pointer", "float32", 8, 0, "read") in kinds and ("pointer", "float32", 8, 1, "write") in kinds
    assert ("int", "bool", 1, -1, "") in kinds and first.kernel.op == "branches"
    assert 1001 in first.arguments and 1 in first.arguments
    reads = [p.access for p in last.kernel.parameters if p.kind == "pointer"]
    assert reads == ["read-write"]
    driver.launches.clear()
    branches(library, [7], driver)
    assert [each.grid[0] for each in driver.launches[:-1]] == [7, 3, 1]
    driver.launches.clear()
    branches(library, [4, 2], driver)
    looped = [each for each in driver.launches if each.block == (32, 2, 1)]
    assert [each.grid for each in looped] == [(1, 2, 1), (2, 2, 1), (3, 2, 1), (1, 2, 1)]  # a grid of 0 is none
    driver.launches.clear()
    branches(library, [0], driver)
    assert driver.launches == []


def test_a_launch_that_fails_ends_the_call(library: Path, driver: RecordingDriver) -> None:
    driver.fails = 719
    with pytest.raises(
        DeviceError, match="gpu:0 could not launch kernel 'branches_0_kernel_2' of op 'branches'"
    ) as caught:
        branches(library, [7], driver)
    assert caught.value.code == "EK0624" and "RECORDING_ERROR_719" in str(caught.value)
    assert caught.value.place is not None and Path(caught.value.place.file) == library
    assert len(driver.launches) == 1, "what comes after it is not launched"
    driver.launches.clear()
    branches(library, [7], driver)
    assert len(driver.launches) == 4


def test_a_grid_beyond_the_limits_of_the_device_ends_the_call(library: Path, driver: RecordingDriver) -> None:
    x = TensorType(DType.int8, ["rows", 0], GPU)
    tall = Graph(
        "tall",
        lambda x: ops.custom("tall", GPU, [x], [TensorType(DType.int8, ["rows", 0], GPU)]),
        [x],
        custom_extensions=[library],
    )
    model = InferenceSession(devices=[Accelerator(0)]).load(tall)
    for rows in (0, 1, 65535):
        model.execute(Buffer(DType.int8, (rows, 0), GPU))
    assert [each.grid for each in driver.launches] == [(1, 1, 1), (1, 65535, 1)]
    with pytest.raises(KernelError) as caught:
        model.execute(Buffer(DType.int8, (65536, 0), GPU))
    error = caught.value
    assert (error.code, error.op, error.expected, error.got) == ("EK0830", "tall", 65535, 65536)
    assert "a launch requests 65,536 blocks along y, and the device has at most 65,535" in str(error)
    assert error.place is not None and Path(error.place.file) == library
    model.execute(Buffer(DType.int8, (7, 0), GPU))
    assert driver.launches[-1].grid == (1, 7, 1)


def test_shared_memory_of_the_kernel_and_of_the_launch_fit_together(library: Path, driver: RecordingDriver) -> None:
    type = TensorType(DType.int8, ["n"], GPU)
    graph = Graph("shared", lambda x: ops.custom("shared", GPU, [x], [type]), [type], custom_extensions=[library])
    model = InferenceSession(devices=[Accelerator(0)]).load(graph)
    most = lookup("sm_80").limits.shared_memory - 4000
    model.execute(Buffer(DType.int8, (most,), GPU))
    assert [each.shared for each in driver.launches] == [most]
    with pytest.raises(KernelError) as caught:
        model.execute(Buffer(DType.int8, (most + 1,), GPU))
    error = caught.value
    assert (error.code, error.op, error.expected, error.got) == ("EK0830", "shared", most, most + 1)
    assert f"has at most {most:,} in addition to the 4,000 of the kernel's gpu.shared[...]" in str(error)


def test_a_condition_on_the_device_is_brought_to_the_host(driver: RecordingDriver) -> None:
    def forward(pred: Any, x: Any) -> Any:
        chosen = ops.cond(pred, [x.type], lambda: x * 2, lambda: x)[0]
        return ops.while_loop([chosen], lambda y: ops.sum(y)[0] > 100, lambda y: y + y)

    types = [TensorType(DType.bool, [], GPU), TensorType(DType.float32, ["n"], GPU)]
    model = InferenceSession(devices=[Accelerator(0)]).load(Graph("chosen", forward, types))
    inputs = [Buffer.from_numpy(np.array(array)).to(GPU) for array in (True, np.zeros(5, np.float32))]
    runs = []
    for answers in ([0], [1], [0, 1, 1, 1], [1, 1]):
        driver.launches.clear()
        driver.copies.clear()
        driver.answers = list(answers)
        model.execute(*inputs)
        assert set(driver.copies) == {(abi.TO_HOST, 1)} and driver.answers == []
        runs.append((len(driver.copies), len(driver.launches)))
    copies = [count for count, _ in runs]
    assert copies == [2, 2, 5, 3]
    rounds = (runs[2][1] - runs[0][1]) / 3
    assert rounds == runs[3][1] - runs[1][1] > 0, "each round launches the same kernels"
    driver.copies_fail = 700
    with pytest.raises(DeviceError, match="gpu:0 could not copy memory: RECORDING_ERROR_700"):
        model.execute(*inputs)
    driver.copies_fail = 0
    driver.answers = [1, 0]
    assert model.execute(*inputs)[0].shape == (5,)


def test_sizes_that_the_device_computes_are_read(driver: RecordingDriver) -> None:
    x = TensorType(DType.float32, ["n"], GPU)
    graph = Graph("found", lambda x: ops.nonzero(x, "count"), [x])
    model = InferenceSession(devices=[Accelerator(0)]).load(graph)
    assert model.execute(Buffer.from_numpy(np.zeros(6, np.float32)).to(GPU))[0].shape == (0, 1)
    assert driver.launches


def test_halves_are_programs_of_their_own(library: Path) -> None:
    from support.harness import entry_of

    spec = entry_of(library, "branches", [(DType.float32, (2000,))])[0]
    program = typed_program(spec, lookup("sm_80"))
    before = print_program(program)
    host, device = host_half(program, lookup("sm_80")), device_half(program)
    for half in (host, device):
        verify_program(half)
    assert print_program(program) == before
    assert "enqueue 8, 1, 1, 0, " in print_program(host) and "launch" not in print_program(host)
    assert [f.name for f in device.functions] == ["branches_0_kernel_0", "branches_0_kernel_1"]
    assert "kernel branches_0_kernel_0(" in print_program(device) and "block 256, 1, 1 {" in print_program(device)


def test_a_kernel_that_shares_all_there_is(library: Path) -> None:
    from support.harness import entry_of

    spec = entry_of(library, "filled", [(DType.float32, (32,))])[0]
    host = host_half(typed_program(spec, lookup("gfx942")), lookup("gfx942"))
    verify_program(host)
    assert "static=65536" in print_program(host)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_the_halves_belong_together(target: str, library: Path, tmp_path: Path) -> None:
    from support.harness import entry_of

    codes = []
    for size in (2000, 3000):
        spec = entry_of(library, "branches", [(DType.float32, (size,))])[0]
        hosts = [lookup("host"), lookup("aarch64")]
        made = compile_entry(spec, lookup(target), hosts=hosts)
        assert [piece.target for piece in made.pieces] == [each.key for each in (*hosts, lookup(target))]
        assert made.code == made.pieces[-1].code
        codes.append(made.pieces)

    def opened(host: int, device: int) -> KernelTable:
        files = []
        for name, piece in (("host", codes[host][0]), ("device", codes[device][-1])):
            path = tmp_path / f"{name}.{piece.kind}"
            path.write_bytes(piece.code)
            files.append(CodeFile(piece.kind, piece.target, path, len(piece.code)))
        return open_halves(files).kernels

    assert opened(0, 0).digest != opened(1, 1).digest
    with pytest.raises(PackageError) as caught:
        opened(0, 1)
    assert caught.value.code == "EK0625"


def test_the_table_is_read_strictly() -> None:
    kernel = DeviceKernel(
        "k",
        (1, 2, 3),
        parameters=(KernelParameter("pointer", "float32", 8, 2, "read"), KernelParameter("int", "int8", 1)),
    )
    table = KernelTable("0" * 16, (kernel,))
    assert read_kernels(table.to_bytes()) == table and table.fits(b"..." + table.stamp.encode())
    for wrong, instead in (
        (b'"bytes": 8', b'"bytes": 3'),
        (b"[1, 2, 3]", b"[1, 2]"),
        (b'"read"', b'"rad"'),
        (b"{", b"["),
    ):
        with pytest.raises(Misread):
            read_kernels(table.to_bytes().replace(wrong, instead, 1))


def test_the_structures_are_laid_out_as_the_offsets_say() -> None:
    assert (ctypes.sizeof(abi.Launch), ctypes.sizeof(abi.DeviceTable)) == (abi.LAUNCH_SIZE, 112)
    for name in ("launch", "copy", "fill", "encode"):
        assert getattr(abi.DeviceTable, name).offset == getattr(abi, f"{name.upper()}_FUNCTION_OFFSET")
    for name in ("scratch", "failed_kernel", "failed_code"):
        assert getattr(abi.DeviceTable, name).offset == getattr(abi, f"{name.upper()}_OFFSET")
