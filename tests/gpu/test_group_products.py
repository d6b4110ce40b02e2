"""Products of four warps: which are such, what the code is, and what the interpreter of PTX refuses.

That results are right is what the cases of `support.gpu_cases_groups` say, where all GPU test kernels are run.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import harness, ptx
from support.gpu_case import GpuCase
from support.gpu_cases_groups import BF16, CASES, E4M3, E5M2, product
from support.gpu_cases_tiles import product as product_of_warps
from support.launching_device import run_unit
from support.ptx_device import run_ptx

from einkorn.compiler.ir.program import walk
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import find_ptxas
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError

GROUPS = "wgmma.m64k16.bfloat16"
WHY = {
    "four warps": (product(BF16, 64, 64, 64), "sm_90a", GROUPS),
    "eight warps": (product(BF16, 128, 64, 64, M=128, block=256), "sm_90a", GROUPS),
    "two warps": (
        product(BF16, 64, 64, 64, block=64),
        "sm_90a",
        f"mma.sync.m16n8k16.bfloat16: not {GROUPS}, as the sums are not 64 rows",
    ),
    "few rows": (product(BF16, 64, 64, 64, M=32), "sm_90a", f"mma.sync.m16n8k16.bfloat16: not {GROUPS}, as the sums"),
    "rows for one group": (
        product(BF16, 64, 64, 64, block=256),
        "sm_90a",
        f"mma.sync.m16n8k16.bfloat16: not {GROUPS}, as the sums",
    ),
    "an older GPU": (product(BF16, 64, 64, 64), "sm_80", "mma.sync.m16n8k16.bfloat16"),
    "a newer GPU": (product(BF16, 64, 64, 64), "sm_100a", "mma.sync.m16n8k16.bfloat16"),
    "code for later GPUs, too": (product(BF16, 64, 64, 64), "sm_90", "mma.sync.m16n8k16.bfloat16"),
    "tf32": (
        product(np.float32, 64, 64, 64, b_turned=True, precision="tf32"),
        "sm_90a",
        "wgmma.m64k8.float32.tf32",
    ),
    "float32": (
        product(np.float32, 64, 64, 64, b_turned=True),
        "sm_90a",
        'elements: sm_90a has no matrix instruction of float32; precision="tf32" is not requested',
    ),
    "bytes across": (
        product(np.int8, 64, 64, 64),
        "sm_90a",
        "mma.sync.m16n8k32.int8: not wgmma.m64k32.int8, as b lies across the inner axis in shared memory, which only"
        " 16-bit elements may: it is kept as N x K, and b.transpose() is multiplied",
    ),
    "a across": (
        product(np.float32, 64, 64, 64, a_turned=True, b_turned=True, precision="tf32"),
        "sm_90a",
        "mma.sync.m16n8k8.float32.tf32: not wgmma.m64k8.float32.tf32, as a lies across the inner axis in shared memory,"
        " which only 16-bit elements may: it is kept as M x K",
    ),
    "float8 across": (
        product(E4M3, 64, 64, 64),
        "sm_90a",
        "elements: not wgmma.m64k32.float8_e4m3fn, as b lies across the inner axis",
    ),
    "tiles of float8": (product(E5M2, 64, 32, 64, op="loaded"), "sm_90a", "wgmma.m64k32.float8_e5m2"),
    "columns of bytes": (
        product(np.int8, 64, 40, 64, op="loaded", N=40),
        "sm_90a",
        "mma.sync.m16n8k32.int8: not wgmma.m64k32.int8, as 40 columns of sums are not 8, 24 or a multiple of 16",
    ),
    "other numbers": (
        product_of_warps(np.float64, 64, 64, 32, 1e-12, M=64, N=32, K=16, block=128),
        "sm_90a",
        "mma.sync.m8n8k4.float64",
    ),
}


@pytest.mark.parametrize("name", WHY)
def test_what_multiplies(name: str) -> None:
    case, target, wanted = WHY[name]
    program = typed_program(case.spec(), lookup(target))
    ops = [op for function in program.functions for op in walk(function.body)]
    found = [op.attrs["product"] for op in ops if op.opcode.name == "together" and "product" in op.attrs]
    assert found and all(words == wanted or words.startswith(wanted) for words in found), found


@pytest.mark.as_shipped
def test_the_code_of_a_product() -> None:
    """Of 64 x 64 x 32 in two steps, between a fence and a wait; threads order what they wrote in front of barriers."""
    text = product(BF16, 128, 64, 64).compile("sm_90a").asm
    assert len(re.findall(r"wgmma\.mma_async\.sync\.aligned\.m64n64k16\.f32\.bf16\.bf16", text)) == 2
    assert re.search(
        r"(?s)wgmma\.fence.*wgmma\.mma_async.*wgmma\.commit_group.*wgmma\.wait_group\.sync\.aligned 0", text
    )
    assert not re.search(r"(?<!fence\.proxy\.async\.shared::cta;\n\t// end inline asm\n)\tbarrier\.sync", text)
    assert "ldmatrix" not in text and ".local" not in text


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
def test_nothing_is_spilled_and_nothing_is_serialized(tmp_path: Path) -> None:
    """ptxas warns of products that it puts one behind the other."""
    ptxas, source = find_ptxas(), tmp_path / "kernel.ptx"
    assert ptxas is not None
    for case in CASES:
        source.write_text(case.compile("sm_90a").asm)
        command = [ptxas, "-v", "--gpu-name=sm_90a", str(source), f"--output-file={tmp_path / 'cubin'}"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in report, (case, report)
        assert "serialized" not in report, (case, report)


REFUSED = {
    "no wait": ("gpu.dot_async(s, s, t)", 0, "EK0622", "this product may be under way when its kernel ends"),
    "a wait on one way": (
        "p = gpu.dot_async(s, s, t)\nif gpu.block_idx.x < 1:\n    p.wait()",
        0,
        "EK0622",
        "this product may be under way when its kernel ends",
    ),
    "a wait that leaves one": ("p = gpu.dot_async(s, s, t)\np.wait(pending=1)", 0, "EK0622", "leaves 1 under way"),
    "sums that are read": (
        "p = gpu.dot_async(s, s, t)\nu = t * 2.0\np.wait()",
        1,
        "EK0622",
        "these sums were given to gpu.dot_async",
    ),
    "sums that are stored": (
        "p = gpu.dot_async(s, s, t)\nt.store(out.tile(0, 0, (64, 64)))\np.wait()",
        1,
        "EK0622",
        "these sums were given to gpu.dot_async",
    ),
    "sums of a product that go on": (
        "p = gpu.dot_async(s, s, t)\nq = gpu.dot_async(s, s, p)\nq.wait()\np.wait().store(out.tile(0, 0, (64, 64)))",
        3,
        "EK0622",
        "these sums were given to gpu.dot_async",
    ),
    "a product with two behind it": (
        "p = gpu.dot_async(s, s, t)\nq = gpu.dot_async(s, s, p)\nr = gpu.dot_async(s, s, p)\nr.wait()",
        2,
        "EK0622",
        "these sums were given to gpu.dot_async",
    ),
    "a product as sums": ("t = gpu.dot(s, s, gpu.dot_async(s, s, t))", 0, "EK0653", "a product under way"),
    "many": ("p = gpu.dot_async(s, s, t)\np.wait(pending=8)", 1, "EK0646", "from 0 to 7"),
    "threads apart": (
        "if gpu.thread_idx.x < 64:\n    gpu.dot_async(s, s, t).wait()",
        1,
        "EK0620",
        "come here together",
    ),
}
HEAD = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float16, float32, gpu, register

def tiles(out, x):
    s = gpu.shared[float16](64, 64, layout="dot")
    gpu.load(x.tile(0, 0, (64, 64))).cast(float16).store(s)
    gpu.barrier()
    t = gpu.load(x.tile(0, 0, (64, 64)))
    t.store(out.tile(0, 0, (64, 64)))
{}

@register("op")
def op(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"], ctx: DeviceContext):
    ctx.launch(tiles, out, x, grid=2, block=128)
"""
FIRST = 10


@pytest.mark.parametrize("target", ("sm_90a", "sm_80", "host"))
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path: Path, name: str, target: str) -> None:
    """Also where a product is done at once."""
    text, line, code, words = REFUSED[name]
    file = tmp_path / "kernel.py"
    file.write_text(HEAD.format("\n".join(f"    {each}" for each in text.split("\n"))))
    types = [(DType.float32, (64, 64))]
    with pytest.raises(EinkornError) as refused:
        typed_program(harness.entry_of(file, "op", types, {}, types)[0], lookup(target))
    error = refused.value
    assert (error.code, error.place.line if error.place else 0) == (code, FIRST + line), str(error)
    assert words in str(error)


OF_HALVES = product(BF16, 64, 64, 64)
OF_BYTES = product(np.int8, 64, 64, 64, b_turned=True)
OF_FLOATS = product(E4M3, 64, 64, 64, b_turned=True)
TAKEN = {
    "sums that either way gives away": """if gpu.block_idx.x < 1:
    u = gpu.dot_async(s, s, t).wait()
else:
    u = gpu.dot_async(s, s, gpu.dot(s, s, t)).wait()
u.store(out.tile(0, 0, (64, 64)))""",
    "products of several layouts in a loop": """p = gpu.dot_async(s, s, t)
q = gpu.dot_async(s, s, gpu.tile[float32](64, 64))
for k in range(x.dim(0)):
    p, q = gpu.dot_async(s, s, q), p
(p.wait() - q.wait()).store(out.tile(0, 0, (64, 64)))""",
    "products of several layouts from branches": """if gpu.block_idx.x < 1:
    p = gpu.dot_async(s, s, t)
else:
    p = gpu.dot_async(s, s, gpu.tile[float32](64, 64))
p.wait().store(out.tile(0, 0, (64, 64)))""",
}


@pytest.mark.parametrize("target", ("sm_90a", "sm_80", "gfx1100", "host", "sim:sm_90a"))
@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken(tmp_path: Path, name: str, target: str) -> None:
    """Also where loaded tiles have other layouts than sums."""
    file = tmp_path / "kernel.py"
    file.write_text(HEAD.format("\n".join(f"    {each}" for each in TAKEN[name].split("\n"))))
    types = [(DType.float32, (64, 64))]
    program = typed_program(harness.entry_of(file, "op", types, {}, types)[0], lookup(target))
    assert any(op.opcode.name == "product_wait" for function in program.functions for op in walk(function.body))


def changed(pattern: str, to: str, case: GpuCase) -> tuple[Any, list[Any]]:
    """What a product gives as PTX in which something was changed."""
    outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]

    def run(text: bytes, *rest: Any) -> None:
        new, found = re.subn(pattern, to, text.decode())
        assert found
        run_ptx(new.encode(), *rest)

    run_unit(case.spec(), "sm_90a", run, [*(array.copy() for array in case.inputs()), *outputs])
    return case, outputs


@pytest.mark.parametrize(
    ("pattern", "to", "message", "case"),
    [
        (r"wgmma\.fence\.sync\.aligned;", "", "there is no wgmma.fence before it", OF_HALVES),
        (r"m64n64k16", "m64n56k16", "32 registers for 56 columns", OF_HALVES),
        (r"wgmma\.wait_group\.sync\.aligned 0;", "", "a product may be under way", OF_HALVES),
        (r"m64n64k32", "m64n64k16", "this product is not known", OF_BYTES),
        (r"(add|new);", r"\1, 1, 1;", "operands are not negated here", OF_BYTES),
        (r"add, 1, 1;", "add, 1, 1, 0, 1;", "only those of 16 bits lie across", OF_FLOATS),
    ],
)
def test_the_interpreter_of_ptx_finds_mistakes(pattern: str, to: str, message: str, case: GpuCase) -> None:
    with pytest.raises(ptx.PtxError, match=message):
        changed(pattern, to, case)


@pytest.mark.parametrize(
    ("pattern", "to", "case"),
    [
        (r"add, 1, 1, 0, 1;", "add, 1, 1, 0, 0;", OF_HALVES),
        (r"add, 1, 1, 0, 1;", "new, 1, 1, 0, 1;", OF_HALVES),
        (r"s32\.s8\.s8", "s32.u8.u8", OF_BYTES),
        (r"f32\.e4m3\.e4m3", "f32.e5m2.e5m2", OF_FLOATS),
    ],
    ids=("the order of axes", "the first sums", "the sign of bytes", "the form of floats"),
)
def test_results_depend_on_the_operands(pattern: str, to: str, case: GpuCase) -> None:
    with pytest.raises(AssertionError):  # other results, or an address outside of shared memory
        case.check(changed(pattern, to, case)[1])


def test_what_a_description_says() -> None:
    """The bits of operands: eight rows of 64 bytes are 512 bytes apart, panels of 64 rows 4096."""
    from einkorn.compiler.lowering.group_matrices import description

    bits = description((64, 4096, 512, True))
    assert (bits >> 16 & 0x3FFF, bits >> 32 & 0x3FFF, bits >> 62) == (256, 32, 2)
    assert description((128, 8192, 1024, False)) >> 62 == 1
