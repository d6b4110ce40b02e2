"""Tiles: what is refused and where, what the machine code has, and mistakes that a simulated GPU finds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import harness, simulated
from support.gpu_case import GPUS, GpuCase
from support.gpu_cases_groups import product as product_of_groups
from support.gpu_cases_scaled import packed, scaled
from support.gpu_cases_tiles import CASES, product

from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.products import PRODUCTS, MatrixProduct, product_rows
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import Accelerator

HEAD = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float16, float32, gpu, register
from einkorn.stdlib import Max, Sum

def tiles(out, x):
    i = gpu.thread_idx.x
    s = gpu.shared[float32](2, 32, 32, layout="dot")
    t = gpu.tile[float32](32, 32)
{}
    t.store(out.tile(0, 0, (32, 32)))

@register("op")
def op(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"], ctx: DeviceContext):
    ctx.launch(tiles, out, x, grid=1, block=64)
"""
FIRST = 9  # the line at which a test's text begins
TYPES = [(DType.float32, (40, 40))]


def written(folder: Path, text: str) -> Path:
    lines = "\n".join(f"    {line}" for line in text.split("\n"))
    path = folder / "kernel.py"
    path.write_text(HEAD.format(lines))
    return path


REFUSED = {
    "sizes": ("t = gpu.load(x.tile(0, 0, (20, 32)))", 0, "EK0650"),
    "a scope": ('t = gpu.tile[float32](32, 32, scope="warp")', 0, "EK0650"),
    "shapes": ("t = t + gpu.tile[float32](16, 1)", 0, "EK0651"),
    "a function": ("t = t.map(lambda v, i: v)", 0, "EK0652"),
    "an axis": ("t = t + t.reduce(2, Sum)", 0, "EK0652"),
    "no view": ("t = gpu.load(x)", 0, "EK0650"),
    "an input": ("t.store(x.tile(0, 0, (32, 32)))", 0, "EK0211"),
    "a store": ("t.cast(float16).store(out.tile(0, 0, (32, 32)))", 0, "EK0653"),
    "a product": ("t = gpu.dot(t, gpu.tile[float32](16, 32), t)", 0, "EK0654"),
    "dtypes": ("t = gpu.dot(t, t.cast(float16), t)", 0, "EK0655"),
    "precision": ('t = gpu.dot(t, t, t, precision="fast")', 0, "EK0655"),
    "a layout": ('b = gpu.shared[float32](8, 8, layout="rows")\nb[0, 0] = 1.0', 0, "EK0656"),
    "a copy": ("gpu.copy_async(s[0], x.tile(0, 0, (16, 32))).wait()", 0, "EK0646"),
    "threads apart": ("if i < 5:\n    t = t + 1.0", 1, "EK0620"),
    "a copy apart": ("if i < 5:\n    gpu.copy_async(s[0], x.tile(0, 0, (32, 32))).wait()", 1, "EK0620"),
    "no wait": ("gpu.copy_async(s[0], x.tile(0, 0, (32, 32)))", 0, "EK0622"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path: Path, name: str) -> None:
    text, line, code = REFUSED[name]
    spec = harness.entry_of(written(tmp_path, text), "op", TYPES, {}, TYPES)[0]
    with pytest.raises(EinkornError) as refused:
        typed_program(spec, lookup("sm_90a"))
    error = refused.value
    assert (error.code, error.place.line if error.place else 0) == (code, FIRST + line), str(error)


COPY = "gpu.copy_async(s[{}], x.tile(0, {}, (32, 32)))"
DOT = "t = gpu.dot(s[{}], s[{}], t)"
BEGIN = [COPY.format(0, 0), "gpu.commit().wait()"]
MISTAKES = {
    "no barrier": [*BEGIN, DOT.format(0, 0)],
    "a wait too late": [COPY.format(0, 0), "g = gpu.commit()", "gpu.barrier()", DOT.format(0, 0), "g.wait()"],
    "an empty stage": [*BEGIN, "gpu.barrier()", DOT.format(0, 1)],
    "a stage under way": [
        *(COPY.format(0, 0), "gpu.commit()", COPY.format(1, 1), "h = gpu.commit()", "h.wait(pending=1)"),
        *("gpu.barrier()", DOT.format(0, 1), "h.wait()"),
    ],
    "overwritten too early": [*BEGIN, "gpu.barrier()", DOT.format(0, 0), "t.store(s[0])"],
    "an element of the tile": ["if i == 3:", "    out[0, 1] = 1.0"],
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_simulated_gpu_finds_mistakes(tmp_path: Path, name: str) -> None:
    """In one of a few orders of the threads: `support.simulated` raises what the checks of the device report."""
    spec = harness.entry_of(written(tmp_path, "\n".join(MISTAKES[name])), "op", TYPES, {}, TYPES)[0]
    with pytest.raises(AssertionError, match="'found'"):
        for seed in range(6):
            arrays: list[Any] = [np.ones((40, 40), np.float32), np.zeros((40, 40), np.float32)]
            simulated.run_unit(spec, Accelerator("sim", like="sm_90a", seed=seed, checks="all"), arrays, outputs=1)


@pytest.mark.as_shipped
def test_a_product_is_matrix_instructions() -> None:
    """Of 64 x 32 x 32 by four warps: each has 32 x 16, in two steps of 16."""
    case = next(case for case in CASES if case.name.startswith("tiles-product[bfloat16-64x64x64"))
    ptx = case.compile("sm_80").asm
    loop = ptx[: ptx.rindex("mma.sync")]
    assert len(re.findall(r"mma\.sync\.aligned\.m16n8k16", ptx)) == 8
    assert len(re.findall(r"ldmatrix", loop)) == 6 and "cp.async" in ptx and ".local" not in ptx


def multiplied_by(row: MatrixProduct) -> GpuCase:
    """A product of the dtypes of a row, whose steps are so long that the row takes them."""
    dtype, depth = row.a.to_numpy(), max(row.shape[2], 16)
    how = {"precision": row.precision} if row.precision else {}
    if row.scale is not None and row.in_tensor_memory:
        if row.a.is_packed():
            return packed(row.block, 20, 16, 8 * row.block, op="begun", M=128, N=16, K=8 * row.block)
        return scaled(dtype, 20, 16, 128, op="begun", M=128, N=16, K=128)
    if row.a.is_packed():
        return packed(row.block, 33, 20, 2 * depth, M=32, N=16, K=max(8 * row.block, 2 * row.shape[2]))
    if row.scale is not None:
        return scaled(dtype, 33, 20, 2 * depth, op="staged", M=32, N=16, K=2 * row.shape[2], threads=64)
    if row.in_tensor_memory:
        sizes = {"M": 128, "N": 16, "K": depth}
        return product_of_groups(dtype, 128, 16, 2 * depth, op="ahead", b_turned=not row.reads_across, **sizes, **how)
    if row.of_groups:
        return product_of_groups(dtype, 64, 32, 2 * depth, N=32, K=depth, b_turned=not row.reads_across, **how)
    if row.precision:
        return product(dtype, 32, 32, 2 * depth, 4e-3, op="turned", precision=row.precision)
    of_narrow = "product_in_float32" if row.a.is_float() else "product_of_bytes"
    op = "product" if row.acc is row.a or row.a.bits == 16 else of_narrow
    bound = 0.0 if op == "product_of_bytes" else 1e-2 if row.a.bits == 16 else 1e-5
    return product(dtype, 16, 32, 2 * depth, bound, op=op, K=depth)


@pytest.mark.parametrize("row", PRODUCTS, ids=lambda row: row.name)
def test_each_matrix_instruction(row: MatrixProduct) -> None:
    """The interpreter has the places of elements from the manuals; what LLVM emits has the instruction's name."""
    case = multiplied_by(row)
    how = row.precision or "ieee"
    assert row in product_rows(row.a, row.acc, how, None if row.scale is None else (row.scale, row.block))
    name = next(each for each in GPUS if row.missing(lookup(each)) is None)
    assert f"'row': '{row.name}'" in str(typed_program(case.spec(), lookup(name))), name
    case.check(case.interpret(name), lookup(name).lanes)
    if row.in_tensor_memory:
        assert row.intrinsic in case.compile(name).asm
        return
    instruction = (
        "wgmma" if row.of_groups else "mma.sync" if name.startswith("sm") else f"v_{row.name.partition('.')[0]}_"
    )
    m, n, k = (row.shape[0], 32, row.shape[2]) if row.of_groups else row.shape
    size = f"{m}x{n}x{k}" if name.startswith("gfx") else f"m{m}n{n}k{k}"
    assert re.search(rf"{re.escape(instruction)}\S*{size}", case.compile(name).asm), name


WHY = {
    "sm_80": "mma.sync.m16n8k16.float16",
    "gfx942": "mfma.16x16x16.float16: not mfma.16x16x32.float16, as gfx942 has no mfma_16_bytes",
    "gfx950": "mfma.16x16x16.float16: not mfma.16x16x32.float16, as the inner size of 16 is not a multiple of 32",
    "gfx1030": "elements: gfx1030 has no matrix instruction of float16",
    "sim:gfx942": "elements: a simulated GPU multiplies them one by one, so that each access is checked",
}


@pytest.mark.parametrize("depth", [64, 256])
def test_long_steps_of_narrow_floats(depth: int) -> None:
    """An inner size that the longest instruction does not take goes by the next one."""
    case = product(ml_dtypes.float8_e5m2, 33, 48, 2 * depth, 1e-5, op="product_in_float32", K=depth)
    name, shorter = "mfma.16x16x128.float8_e5m2", "mfma.16x16x32.float8_e5m2"
    wanted = name if depth % 128 == 0 else f"{shorter}: not {name}, as the inner size of 64 is not a multiple of 128"
    assert f"'product': '{wanted}'" in str(typed_program(case.spec(), lookup("gfx950")))
    case.check(case.interpret("gfx950"), lookup("gfx950").lanes)


@pytest.mark.parametrize("name", WHY)
def test_typed_programs_say_what_multiplies(name: str) -> None:
    """And why none of the rows before it does."""
    program = str(typed_program(product(np.float16, 32, 32, 32, 0.0).spec(), lookup(name)))
    assert f"'product': '{WHY[name]}'" in program
