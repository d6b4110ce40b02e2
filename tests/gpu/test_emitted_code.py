"""What the code of GPUs looks like: accesses of 16 bytes, alignments, conversions, names that a group does not have."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import harness
from support.gpu_case import KERNELS

from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import assemble, find_ptxas
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import CompileError
from einkorn.dsl.package.library import load_library

EXAMPLES = Path(__file__).parents[2] / "examples"
FILE = KERNELS / "elements.py"


def code(op: str, dtype: Any, *shapes: tuple[int, ...], target: str = "sm_90a") -> str:
    types = [(DType.from_numpy(np.dtype(dtype)), shape) for shape in shapes]
    return harness.compile_kernel(FILE, op, types, target=target)[0].asm


@pytest.mark.parametrize(
    ("dtype", "access"),
    [
        (np.float32, "v4.b32"),
        (np.float16, "v4.b32"),
        (ml_dtypes.bfloat16, "v4.b32"),
        (np.int8, "v4.b32"),
        (np.float64, "v2.b64"),
    ],
    ids=str,
)
def test_a_thread_takes_sixteen_bytes(dtype: Any, access: str) -> None:
    ptx = code("elements::doubled", dtype, (1 << 20,))
    assert f"ld.global.nc.{access}" in ptx and f"st.global.{access}" in ptx
    assert f".align {np.dtype(dtype).itemsize} " in ptx


def test_amd_takes_sixteen_bytes() -> None:
    assembly = code("elements::doubled", np.float32, (1 << 20,), target="gfx942")
    assert "global_load_dwordx4" in assembly and "global_store_dwordx4" in assembly


def test_few_elements_have_a_thread_each() -> None:
    assert ".v4" not in code("elements::doubled", np.float32, (1000,))


def test_a_row_that_goes_on_is_read_at_once() -> None:
    ptx = code("elements::biased", np.float32, (100, 1000), (1000,))
    assert len(re.findall(r"ld\.global\S*\.v4\.b32", ptx)) == 2
    assert ".v4" not in code("elements::biased", np.float32, (100, 1001), (1001,))


def test_positions_of_known_sizes_are_taken_apart_in_32_bits() -> None:
    assert "div.u64" not in code("elements::turned", np.int16, (321, 17, 128))


@pytest.mark.parametrize(("target", "by_hardware"), [("sm_75", False), ("sm_80", True), ("sm_90a", True)])
def test_bfloat16_is_rounded_by_the_hardware(target: str, by_hardware: bool) -> None:
    ptx = code("elements::doubled", ml_dtypes.bfloat16, (100,), target=target)
    assert ("cvt.rn.bf16.f32" in ptx) == by_hardware


UNKNOWN = """
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, gpu, register

WIDTH = gpu.warps_per_bloc
PLACE = gpu.thread_idx.w

@register("fine")
def fine(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i])

@register("wrong")
def wrong(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i] * WIDTH)

@register("wrong_too")
def wrong_too(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i] * PLACE)
"""


def test_an_unknown_name_of_a_group_stops_the_ops_that_use_it(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(UNKNOWN)
    x = np.ones(3, np.float32)
    assert harness.run_kernel(file, "fine", [x])[0].tolist() == [1, 1, 1]
    texts = {"wrong": "'gpu' has no name 'warps_per_bloc'", "wrong_too": "'gpu.thread_idx' has no name 'w'"}
    for op, text in texts.items():
        mistakes = load_library(file).kernels[op].portable.mistakes
        assert [m.code for m in mistakes] == ["EK0105"] and text in str(mistakes[0])
        with pytest.raises(CompileError, match="EK0105"):
            harness.run_kernel(file, op, [x])


WISHES = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float32, gpu, register

def hold(out, x):
    i = 128 * gpu.global_idx.x
    kept, more = x.load(i, width=64), x.load(i + 64, width=32)
    gpu.barrier()
    out.store(kept * x[i], i)
    out.store(more, i + 64)

@register("wishes")
def wishes(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    ctx.launch(hold, out, x, grid=1, block=64)
    ctx.launch(hold, out, x, grid=1, block=64, max_registers=48)
    ctx.launch(hold, out, x, grid=1, block=1024, min_blocks=2)

@register("clusters")
def clusters(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    ctx.launch(hold, out, x, grid=(4, 1, 2), block=32, cluster=(2, 1, 2), max_registers=64, min_blocks=1)
"""


def requested(tmp_path: Path, op: str, target: str) -> list[str]:
    """The code of each kernel of an op of `WISHES`."""
    file = tmp_path / "kernels.py"
    file.write_text(WISHES)
    types = [(DType.float32, (1 << 17,))]
    artifact = harness.compile_kernel(file, op, types, target=target)[0]
    if target.startswith("sm_") and find_ptxas() is not None:
        assemble(artifact.asm, lookup(target))
    return artifact.asm.split(".visible .entry" if target.startswith("sm_") else ".globl")[1:]


def test_a_launch_requests_registers_blocks_and_clusters(tmp_path: Path) -> None:
    plain, few, two = requested(tmp_path, "wishes", "sm_80")
    assert ".maxnreg 48" in few and ".maxnreg" not in plain + two
    assert ".minnctapersm 2" in two and ".minnctapersm" not in plain + few and ".reqntid 1024, 1, 1" in two
    (clustered,) = requested(tmp_path, "clusters", "sm_90a")
    for line in (".reqnctapercluster 2, 1, 2", ".maxnreg 64", ".minnctapersm 1", ".reqntid 32, 1, 1"):
        assert line in clustered
    assert "ncta" not in plain


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("algorithm", ["registers", "vectorized"])
def test_the_product_of_the_example_stays_in_registers(algorithm: str, tmp_path: Path) -> None:
    file = EXAMPLES / "gpu" / "kernels" / "matrix_multiplication.py"
    types = [(DType.float32, (512, 512))] * 2
    artifact = harness.compile_kernel(
        file, "gpu::matrix_multiplication", types, {"algorithm": algorithm}, target="sm_80"
    )[0]
    (tmp_path / "code.ptx").write_text(artifact.asm)
    command = [str(find_ptxas()), "-v", "-arch=sm_80", str(tmp_path / "code.ptx"), "-o", str(tmp_path / "code.cubin")]
    reported = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "0 bytes spill stores, 0 bytes spill loads" in reported, reported


@pytest.mark.parametrize(("target", "registers"), [("gfx908", 64), ("gfx942", 64), ("gfx1100", 96)])
def test_amd_keeps_to_what_a_launch_requests(target: str, registers: int, tmp_path: Path) -> None:
    """Two blocks of 1024 threads are 8 warps of 64 lanes, or 16 of 32, for each of four SIMDs."""
    used = [int(n) for n in re.findall(r"amdhsa_next_free_vgpr (\d+)", "".join(requested(tmp_path, "wishes", target)))]
    assert used[0] > 96 and used[1] <= 48 and used[2] <= registers
